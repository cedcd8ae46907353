"""Validation of the other arguments of a push than rows (`eddy.ingest.tables`): the order of arrival, event times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Order, Rows, Times
from eddy.ingest.kernels import count_streams
from eddy.ingest.keys import unified_column
from eddy.streams.event_time import in_words, reach
from eddy.streams.stream import Stream
from stairs.errors import InputError
from stairs.graph import FOREVER

_NARROW = np.dtype(np.uint8)


def _beyond(number: int, places: Sequence[str]) -> InputError:
    return InputError(f"order contains {number}; its numbers are 0 to {len(places) - 1}: {', '.join(places)}")


def checked_order(order: object, rows: list[int], places: Sequence[str], seen: Rows) -> Order:
    """Return an order of arrival as uint8[arrivals], writable. Raises InputError unless it has each row once.

    rows    rows pushed, by stream
    places  the streams as errors name them
    seen    int64[256], overwritten
    """
    try:
        given = np.asarray(order) if type(order) is not list else _listed(order)
    except ValueError as error:
        raise InputError(f"order must be a one-dimensional array of integers, one per row: {error}") from error
    if given.dtype is not _NARROW or given.ndim != 1 or not given.flags.carray or len(given) != sum(rows):
        given = _narrowed(given, sum(rows), places)
    count_streams(given, seen)
    if seen[: len(rows)].tolist() != rows:
        if seen[len(rows) :].any():
            raise _beyond(given.max(), places)
        i = next(i for i, count in enumerate(rows) if seen[i] != count)
        raise InputError(f"order contains {places[i]} {seen[i]} times, but {rows[i]} of its rows were pushed")
    return given


def _listed(order: list[Any]) -> npt.NDArray[Any]:
    """Return a list as an array. Raises ValueError for lists of different lengths in it."""
    if order and bool not in map(type, order):
        try:
            # This takes a third of the time that NumPy takes to determine the type of a list.
            return np.frombuffer(bytearray(order), np.uint8)
        except (TypeError, ValueError):
            pass
    return np.asarray(order)


def _narrowed(given: npt.NDArray[Any], rows: int, places: Sequence[str]) -> Order:
    """Return an order with an entry for each row as uint8[arrivals], writable. Raises InputError if it is none."""
    if not given.size:
        given = given.astype(np.uint8)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise InputError(
            f"order must be a one-dimensional array of integers, one per row, not {given.dtype} of shape {given.shape}"
        )
    if len(given) != rows:
        raise InputError(f"order has {len(given)} entries for {rows} rows; give the stream of each row")
    # As an unsigned number, a negative number is large.
    if given.dtype != np.uint8 and len(given) and given.view(given.dtype.str.replace("i", "u")).max() > 255:
        raise _beyond(given.min() if given.min() < 0 else given.max(), places)
    # Numba would compile the kernels again for read-only memory, such as that of an Arrow column.
    return np.require(given, np.uint8, ["C", "W"])


def checked_times(stream: Stream, batch: pa.RecordBatch, kind: pa.DataType | None) -> Times:
    """Return the event times of a stream's rows in ticks, int64[rows].

    kind   the type of all event times of the query

    Raises InputError for a null and for times beyond ±2^61 ticks.
    """
    assert stream.time is not None
    return checked_ticks(stream.place, stream.time, "event time", batch, kind)


def checked_ticks(place: str, column_name: str, noun: str, batch: pa.RecordBatch, kind: pa.DataType | None) -> Times:
    """Return the values of a column in ticks of a type of event times, int64[rows].

    place  the input as errors name it;  noun  what a value is

    Raises InputError for a null and for values beyond ±2^61 ticks.
    """
    place = f"{place}, column {column_name}"
    try:
        column = unified_column(batch.column(column_name), kind, place)
    except InputError as error:
        raise InputError(f"{error}; {noun}s must lie {reach(kind)}") from error
    # The nulls of a dictionary may be among its values, so the column is checked after it was decoded.
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InputError(f"{place}: the {noun} of row {row} of the push is null; set it or filter the row out")
    if column.type.bit_width == 32:
        return np.asarray(column.view(pa.int32())).astype(np.int64)
    ticks = np.asarray(column.view(pa.int64()))
    if len(ticks) and (ticks.min() < -FOREVER or ticks.max() > FOREVER):
        row = int(np.flatnonzero((ticks < -FOREVER) | (ticks > FOREVER))[0])
        raise InputError(
            f"{place}: the {noun} of row {row} of the push is {in_words(int(ticks[row]), column.type)}; {noun}s"
            f" must lie {reach(column.type)}"
        )
    return ticks

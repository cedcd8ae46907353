"""From what a user pushes to arrivals: validation, filters, order, late rows. Nothing here touches the state.

The common case (every row arrives, the order is given, no event times) costs a few Arrow calls a stream and no copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.kernels import count_streams, mark_late, merge_by_time
from eddy.ingest.keys import unified_column
from eddy.query.query import Query
from stairs.errors import InputError
from stairs.graph import FOREVER, WindowKind
from stairs.plain_types import TOO_LONG, merged, no_rows, taken

MERGED_ONE_BY_ONE = 12
"""Up to so many streams the least of their next times is found by looking at each; more are sorted."""

Order = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


class TooLate(NamedTuple):
    """Late rows of one stream in one push.

    rows    the rows, None if they are counted only
    n_rows  how many they are
    behind  ticks by which the first of them is older than the greatest event time before it, or the watermark given
    """

    rows: pa.RecordBatch | None
    n_rows: int
    behind: int


@dataclass
class Arrivals:
    """One push, ready for the state modules.

    batches  per stream its rows in the order of their arrival, None for none
    order    uint8[arrivals], the stream of each
    times    per stream int64[rows] event times in ticks, None in queries without a RANGE window
    late     rows that do not arrive, by stream
    sorted   whether they were put in the order of their event times
    watermark  the one that holds when they are in, None = it follows from them
    """

    batches: list[pa.RecordBatch | None]
    order: Order
    times: list[Times | None]
    late: dict[int, TooLate]
    sorted: bool = False
    watermark: int | None = None

    @property
    def by_time(self) -> bool:
        """Whether each arrival is at least as young as those before it. O(arrivals * streams) unless `sorted`."""
        if self.sorted:
            return True
        merged = np.empty(len(self.order), np.int64)
        for i, ticks in enumerate(self.times):
            if ticks is not None:
                merged[self.order == i] = ticks
        return bool((merged[1:] >= merged[:-1]).all())

    @property
    def rows(self) -> list[int]:
        """Rows that arrive, by stream."""
        return [0 if batch is None else len(batch) for batch in self.batches]


def _one_array(column: pa.Array | pa.ChunkedArray, field: pa.Field, name: str) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks < 2:
        return column.chunk(0) if column.num_chunks else no_rows(field.type)
    try:
        return merged(column.chunks)
    except TOO_LONG as error:
        raise InputError(
            f"stream {name}: column {field.name!r} has {column.nbytes:,} bytes in {column.num_chunks} chunks, which do"
            f" not fit one array of {field.type}; push fewer rows at a time, or declare a type of greater width"
        ) from error


def _fitted(rows: object, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Return the columns the stream declares, in its order. Raises InputError for a missing one, or another type."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        raise InputError(
            f"stream {name}: rows come as a pyarrow.RecordBatch or Table, not as {type(rows).__name__}; for pandas use"
            " pyarrow.RecordBatch.from_pandas, for polars DataFrame.to_arrow()"
        )
    if isinstance(rows, pa.RecordBatch) and rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        found = rows.schema.get_all_field_indices(field.name)
        if len(found) != 1:
            problem = "is missing" if not found else f"stands {len(found)} times"
            raise InputError(f"stream {name}: column {field.name!r} {problem} in {rows.schema.names}")
        column = rows.column(found[0])
        if column.type != field.type:
            raise InputError(
                f"stream {name}: column {field.name!r} is {column.type}, the query says {field.type}; cast it first"
            )
        columns.append(_one_array(column, field, name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _beyond(stream: int, names: Sequence[str]) -> InputError:
    return InputError(
        f"order names stream {stream}; streams are counted from 0 to {len(names) - 1}: {', '.join(names)}"
    )


def _checked_order(order: object, rows: list[int], names: Sequence[str]) -> Order:
    try:
        given = np.asarray(order)
    except ValueError as error:
        raise InputError(f"order is a one-dimensional array of integers, one for each row pushed: {error}") from error
    if not given.size:
        given = given.astype(np.uint8)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise InputError(
            f"order is a one-dimensional array of integers, one for each row pushed, not {given.dtype} of shape"
            f" {given.shape}"
        )
    if len(given) != sum(rows):
        raise InputError(f"order has {len(given)} entries for {sum(rows)} rows; it names the stream of every row")
    if given.dtype != np.uint8 and len(given) and (given.min() < 0 or given.max() > 255):
        raise _beyond(given.min() if given.min() < 0 else given.max(), names)
    # Read-only memory (an Arrow column, say) is another type to the kernels, which would be compiled once more for it.
    narrow = np.require(given, np.uint8, ["C", "W"])
    counts = np.zeros(256, np.int64)
    count_streams(narrow, counts)
    if counts[: len(rows)].tolist() != rows:
        if counts[len(rows) :].any():
            raise _beyond(narrow.max(), names)
        i = next(i for i, count in enumerate(rows) if counts[i] != count)
        raise InputError(f"order names stream {names[i]} {counts[i]} times, but {rows[i]} of its rows were pushed")
    return narrow


def _kept_batches(batches: list[pa.RecordBatch | None], keep: Mapping[int, Rows]) -> list[pa.RecordBatch | None]:
    """Keep rows keep[i] of each stream i named."""
    kept = list(batches)
    for i, rows in keep.items():
        batch = batches[i]
        kept[i] = taken(batch, rows) if batch is not None and len(rows) else None
    return kept


def _kept_order(sequence: Order, batches: list[pa.RecordBatch | None], keep: Mapping[int, Rows]) -> Order:
    """Keep the arrivals of rows keep[i] of each stream i named."""
    staying = np.ones(len(sequence), bool)
    for i, rows in keep.items():
        batch = batches[i]
        assert batch is not None
        stays = np.zeros(len(batch), bool)
        stays[rows] = True
        staying[np.flatnonzero(sequence == i)] = stays
    return sequence[staying]


class Gate:
    """Admits pushes for one query; keeps nothing from one to the next but what its filters learn."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.names = query.graph.names
        self.ranged = query.graph.timed
        self.filters = {
            i: AdaptiveFilter(stream.conditions, place=f"stream {stream.name}: its filter")
            for i, stream in enumerate(query.streams)
            if stream.conditions
        }
        """The filters by stream."""
        self._untimed: list[Times | None] = [None] * len(self.names)
        self._index = {name: i for i, name in enumerate(self.names)}

    def admit(
        self,
        pushed: Mapping[str, pa.RecordBatch | pa.Table],
        order: object,
        watermark: int,
        oldest: int | None = None,
    ) -> Arrivals:
        """Return the arrivals of a push. Raises InputError.

        watermark  greatest event time before it, from which a row counts as late
        oldest     rows older than this are late instead, whatever comes before them; None = by the watermark
        """
        batches = self._batches(pushed)
        sequence = None
        if order is not None:
            sequence = _checked_order(order, [0 if batch is None else len(batch) for batch in batches], self.names)
        if self.filters:
            # First of all: a row that is rejected never arrives, so nothing is asked of its time.
            batches, sequence = self._filtered(batches, sequence)
        times = self._untimed
        present = [i for i, batch in enumerate(batches) if batch is not None]
        if sequence is not None:
            if self.ranged:
                times = [self._times(i, batch) for i, batch in enumerate(batches)]
        elif len(present) == 1 and self.query.streams[present[0]].time is None:
            (only,) = present
            sequence = np.full(len(batches[only]), only, np.uint8)  # type: ignore[arg-type]
        else:
            batches, sequence, by_time = self._by_time(batches)
            if self.ranged:
                times = by_time
        late: dict[int, TooLate] = {}
        if self.ranged and len(sequence):
            if oldest is None:
                marks, newest = self._late_rows(sequence, times, watermark)
            else:
                marks = {i: ticks < oldest for i, ticks in enumerate(times) if ticks is not None}
                newest = [oldest] * len(times)
            batches, sequence, times, late = self._without_late(batches, sequence, times, marks, newest)
        return Arrivals(batches, sequence, times, late, self.ranged and order is None)

    def _batches(self, pushed: Mapping[str, pa.RecordBatch | pa.Table]) -> list[pa.RecordBatch | None]:
        if not isinstance(pushed, Mapping):
            raise InputError(f"push takes a mapping from stream names to Arrow batches, not {type(pushed).__name__}")
        batches: list[pa.RecordBatch | None] = [None] * len(self.names)
        for name, rows in pushed.items():
            i = self._index.get(name)
            if i is None:
                raise InputError(f"there is no stream {name!r}; the streams are {', '.join(self.names)}")
            batch = _fitted(rows, self.query.streams[i].schema, name)
            if len(batch):
                batches[i] = batch
        return batches

    def _times(self, i: int, batch: pa.RecordBatch | None) -> Times | None:
        if batch is None:
            return None
        stream = self.query.streams[i]
        assert stream.time is not None
        place = f"stream {stream.name}, column {stream.time}"
        # Only then its nulls are known: those of a dictionary may be among its values.
        try:
            column = unified_column(batch.column(stream.time), self.query.time_type, place)
        except InputError as error:
            raise InputError(f"{error}; event times lie within ±2^61 ticks, filter out rows beyond them") from error
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise InputError(
                f"stream {stream.name}: time column {stream.time!r} is null in row {row} of the push; give it a time or"
                " filter it out"
            )
        if column.type.bit_width == 32:
            return np.asarray(column.view(pa.int32())).astype(np.int64)
        ticks = np.asarray(column.view(pa.int64()))
        if len(ticks) and (ticks.min() < -FOREVER or ticks.max() > FOREVER):
            raise InputError(
                f"{place}: times lie within ±2^61 ticks, here they go from {ticks.min()} to {ticks.max()}; filter out"
                " rows beyond them"
            )
        return ticks

    def past(
        self, pushed: Mapping[str, pa.RecordBatch | pa.Table], watermark: int | None
    ) -> tuple[Arrivals, list[int]]:
        """Return rows that arrived before, those still in their windows, and how many of each stream are not.

        watermark  the one that holds after them; None = it follows from them

        They are in the order of their event times within each stream, where each stream with rows has any, else in
        row order; and stream after stream, because what is probed with nothing need not be in turn. None is late.
        Raises InputError as `admit` does.
        """
        batches, times = self._batches(pushed), self._untimed
        if self.filters:
            batches, _ = self._filtered(batches, None)
        streams, graph = self.query.streams, self.query.graph
        if all(batch is None or stream.time is not None for batch, stream in zip(batches, streams, strict=True)):
            batches, times = self._sorted(batches)
        horizon = watermark
        if horizon is None and self.ranged:
            horizon = max((int(ticks[-1]) for ticks in times if ticks is not None), default=-FOREVER) - graph.lateness
        skipped = [0] * len(batches)
        for i, (batch, ticks, window) in enumerate(zip(batches, times, graph.windows, strict=True)):
            if batch is None:
                continue
            if window.kind == WindowKind.ROWS:
                skipped[i] = max(len(batch) - window.size, 0)
            elif window.kind == WindowKind.RANGE:
                assert ticks is not None
                assert horizon is not None
                skipped[i] = int(np.searchsorted(ticks, horizon - window.size))
        kept = [
            batch.slice(n) if batch is not None and n < len(batch) else None
            for batch, n in zip(batches, skipped, strict=True)
        ]
        on_time = self._untimed
        if self.ranged:
            on_time = [None if ticks is None else ticks[n:] for ticks, n in zip(times, skipped, strict=True)]
        counts = [0 if batch is None else len(batch) for batch in kept]
        order = np.repeat(np.arange(len(kept), dtype=np.uint8), counts)
        return Arrivals(kept, order, on_time, {}, watermark=watermark), skipped

    def _sorted(self, batches: list[pa.RecordBatch | None]) -> tuple[list[pa.RecordBatch | None], list[Times | None]]:
        """Order the rows of each stream by (event time, row)."""
        sorted_batches: list[pa.RecordBatch | None] = [None] * len(batches)
        sorted_times: list[Times | None] = [None] * len(batches)
        for i, batch in enumerate(batches):
            times = self._times(i, batch)
            if times is None or batch is None:
                continue
            if (times[1:] < times[:-1]).any():
                rows = np.argsort(times, kind="stable")
                batch, times = taken(batch, rows), times[rows]
            sorted_batches[i], sorted_times[i] = batch, times
        return sorted_batches, sorted_times

    def _by_time(
        self, batches: list[pa.RecordBatch | None]
    ) -> tuple[list[pa.RecordBatch | None], Order, list[Times | None]]:
        """Order the rows by (event time, stream, row)."""
        for i, batch in enumerate(batches):
            if batch is not None and self.query.streams[i].time is None:
                raise InputError(
                    f"stream {self.names[i]} has no time column to order its rows among the others by; name one with"
                    " Stream(…, time=…), push one stream at a time, or give order="
                )
        sorted_batches, sorted_times = self._sorted(batches)
        present = [i for i, times in enumerate(sorted_times) if times is not None]
        if not present:
            return sorted_batches, np.zeros(0, np.uint8), sorted_times
        merged = np.concatenate([ticks for ticks in sorted_times if ticks is not None])
        counts = np.array([len(ticks) for ticks in sorted_times if ticks is not None], np.int64)
        streams = np.array(present, np.uint8)
        if len(present) > MERGED_ONE_BY_ONE:
            order = np.repeat(streams, counts)[np.argsort(merged, kind="stable")]
        else:
            nth, ends = np.empty(len(merged), np.uint8), np.cumsum(counts)
            merge_by_time(merged, ends - counts, ends, np.empty(len(present), np.int64), nth)
            order = streams[nth]
        return sorted_batches, order, sorted_times

    def _filtered(
        self, batches: list[pa.RecordBatch | None], sequence: Order | None
    ) -> tuple[list[pa.RecordBatch | None], Order | None]:
        """Drop the rows that the streams' filters reject."""
        keep = {}
        for i, accepts in self.filters.items():
            batch = batches[i]
            if batch is not None:
                rows = accepts.accepted(batch)
                if len(rows) < len(batch):
                    keep[i] = rows
        return _kept_batches(batches, keep), sequence if sequence is None else _kept_order(sequence, batches, keep)

    def _late_rows(
        self, sequence: Order, times: list[Times | None], watermark: int
    ) -> tuple[dict[int, npt.NDArray[np.bool_]], Sequence[int]]:
        """Mark the rows that are late when their turn comes, by stream; none when no row is.

        Returns as well, per stream with any, the greatest event time before the first of them.
        """
        present = [(i, ticks) for i, ticks in enumerate(times) if ticks is not None]
        first = np.zeros(len(times), np.int64)
        np.cumsum([0 if ticks is None else len(ticks) for ticks in times[:-1]], out=first[1:])
        all_times = np.concatenate([ticks for _, ticks in present])
        marks = np.zeros(len(all_times), np.uint8)
        starts, newest = first.copy(), np.full(len(times), -FOREVER, np.int64)
        if not mark_late(sequence, all_times, first, marks, newest, watermark, self.query.graph.lateness):
            return {}, ()
        return {i: marks[starts[i] : starts[i] + len(ticks)] != 0 for i, ticks in present}, newest.tolist()

    def _without_late(
        self,
        batches: list[pa.RecordBatch | None],
        sequence: Order,
        times: list[Times | None],
        marks: dict[int, npt.NDArray[np.bool_]],
        newest: Sequence[int],
    ) -> tuple[list[pa.RecordBatch | None], Order, list[Times | None], dict[int, TooLate]]:
        """Set the rows marked, by stream, aside; the first one of stream i was late by newest[i]."""
        keep, late = {}, {}
        for i, own in marks.items():
            batch, ticks = batches[i], times[i]
            if batch is not None and ticks is not None and own.any():
                keep[i] = np.flatnonzero(~own)
                rows = np.flatnonzero(own)
                wanted = self.query.late_by_stream[i] != "count"
                late[i] = TooLate(taken(batch, rows) if wanted else None, len(rows), newest[i] - int(ticks[rows[0]]))
        if not keep:
            return batches, sequence, times, {}
        on_time = [ticks if i not in keep or ticks is None else ticks[keep[i]] for i, ticks in enumerate(times)]
        return _kept_batches(batches, keep), _kept_order(sequence, batches, keep), on_time, late

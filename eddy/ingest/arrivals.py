"""The arrivals of a push: rows that were validated, filtered and ordered, and the late rows among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.clock_reading import ClockReading
from stairs.graph import FOREVER
from stairs.plain_types import taken

Order = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Deletes = npt.NDArray[np.bool_]
NO_STREAM = 255
"""In an order, what is no stream."""


class LateBatch(NamedTuple):
    """The late rows of one stream in one push.

    rows    the rows, None if they are only counted
    n_rows  number of the rows
    behind  ticks by which the first row is older than the watermark with it
    """

    rows: pa.RecordBatch | None
    n_rows: int
    behind: int


class NewVersions(NamedTuple):
    """The versions of the changes of a table in a push (`eddy.ingest.newest_versions`).

    ids       the keys that changed, int64[changes], in order; the last one of several changes of a key counts
    versions  int64[changes]
    gone      bool[changes], whether the key has no row after the change
    """

    ids: Rows
    versions: Rows
    gone: Deletes


@dataclass(slots=True)
class Arrivals:
    """One push, ready for the state modules.

    batches    per stream its rows in order of arrival, None for no rows
    rows       rows that arrive, by stream
    order      uint8[arrivals], the stream of each arrival
    times      per stream int64[rows] event times in ticks, None in queries without a RANGE window
    late       late rows by stream; they do not arrive
    reading    the reading of the clock for the arrivals; None in queries without a RANGE window
    clock      the state of the clock after the push; None in queries without a RANGE window
    deletes    by table, bool[rows], which of its changes are deletes; tables without deletes are left out
    given      whether the caller gave a watermark with the push
    ends       whether the input ends with this push
    atomic     whether the results are the difference between the answers before and after the push
    newest     by table with versions, those of its changes
    """

    batches: list[pa.RecordBatch | None]
    rows: list[int]
    order: Order
    times: list[Times | None]
    late: dict[int, LateBatch]
    reading: ClockReading | None = None
    clock: Rows | None = None
    given: bool = False
    ends: bool = False
    atomic: bool = False
    deletes: Mapping[int, Deletes] = field(default_factory=dict)
    newest: Mapping[int, NewVersions] = field(default_factory=dict)

    @property
    def watermark(self) -> int | None:
        """The watermark after the push, None before the first one."""
        return None if self.reading is None or self.reading.after == -FOREVER else self.reading.after

    def of(self, streams: Sequence[int], timed: bool) -> Arrivals:
        """Return the arrivals of some streams, in this order of the streams, which do not bring late rows.

        timed   whether event times and watermarks count for them
        """
        order, reading = self.order, self.reading if timed else None
        if list(streams) != list(range(len(self.batches))):
            place = np.full(256, NO_STREAM, np.uint8)
            place[list(streams)] = np.arange(len(streams))
            order = place[order]
            places = np.flatnonzero(order != NO_STREAM)
            order = order[places]
            reading = None if reading is None else reading.of(places)
        times = [self.times[i] if timed else None for i in streams]
        batches, rows = [self.batches[i] for i in streams], [self.rows[i] for i in streams]
        deletes = {k: self.deletes[i] for k, i in enumerate(streams) if i in self.deletes}
        return Arrivals(batches, rows, order, times, {}, reading, atomic=self.atomic, deletes=deletes)

    def kept(self, keep: Mapping[int, Rows]) -> Arrivals:
        """Return the arrivals with only rows keep[i] of each input i in `keep`, none of which is in `deletes`."""
        if not keep:
            return self
        places = np.flatnonzero(kept_places(self.order, self.batches, keep))
        times = list(self.times)
        for i, rows in keep.items():
            ticks = times[i]
            times[i] = None if ticks is None else ticks[rows]
        batches, reading = keep_rows(self.batches, keep), None if self.reading is None else self.reading.of(places)
        return replace(
            self, batches=batches, rows=counts(batches), order=self.order[places], times=times, reading=reading
        )


def counts(batches: Iterable[pa.RecordBatch | None]) -> list[int]:
    """Return the numbers of rows of batches, 0 for None."""
    return [0 if batch is None else batch.num_rows for batch in batches]


def keep_rows(batches: list[pa.RecordBatch | None], keep: Mapping[int, Rows]) -> list[pa.RecordBatch | None]:
    """Return the batches with only rows keep[i] of each stream i in `keep`."""
    kept = list(batches)
    for i, rows in keep.items():
        batch = batches[i]
        kept[i] = taken(batch, rows) if batch is not None and len(rows) else None
    return kept


def kept_places(order: Order, batches: list[pa.RecordBatch | None], keep: Mapping[int, Rows]) -> npt.NDArray[np.bool_]:
    """Return bool[arrivals]: whether each arrival is one of rows keep[i] of its stream i, or i is not there."""
    staying = np.ones(len(order), bool)
    for i, rows in keep.items():
        batch = batches[i]
        assert batch is not None
        stays = np.zeros(len(batch), bool)
        stays[rows] = True
        staying[np.flatnonzero(order == i)] = stays
    return staying

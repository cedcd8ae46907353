"""Loads the state of key groups from the log, for engines that are not live on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from eddy.queries.sources import one_batch
from eddy.runtime import Runtime
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split_tree import SplitTree, own_rows
from eddy.spark.partitioning.ties import sort_ties
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.recovery import read_manifest
from eddy.spark.streaming.state.segments import Segment, SegmentReader


class StateLoader:
    """Loads states from the manifest of one batch, which it reads when the first state is requested.

    previous   the batch; None if no group has a state yet
    tree       splits of key groups; splits that the manifest lacks take effect with the next batch

    bytes_read  bytes of the log that were read so far
    """

    def __init__(self, job: Job, locations: Locations, previous: int | None, tree: SplitTree) -> None:
        self._job = job
        self._locations = locations
        self._previous = previous
        self._tree = tree
        self._manifest: Manifest | None = None
        self.bytes_read = 0
        self._reader: SegmentReader | None = None
        self._schemas = job.logged

    @property
    def reader(self) -> SegmentReader:
        """The reader of the log."""
        self._reader = self._reader or self._locations.reader(self._schemas)
        return self._reader

    def load(self, group: int, runtime: Runtime, watermark: int | None) -> None:
        """Load all rows of a group's chain into a runtime; `watermark` is the watermark after these rows.

        Rows that wait for the watermark (`Job.waits`) are left out.
        """
        rows: list[dict[int, list[pa.RecordBatch]]] = [{} for _ in self._schemas]
        for i, number, batch in self._rows(group):
            if self._job.waits:
                batch = passed(self._job, i, batch, None, watermark)
            rows[i].setdefault(number, []).append(batch)
        tables = {}
        for i, (stream, links) in enumerate(zip(self._job.query.streams, rows, strict=True)):
            parts = [self._in_order(i, batches) for batches in links.values()]
            if parts:
                tables[stream.name] = pa.concat_tables(parts)
        runtime.load(tables, watermark=watermark)

    def waiting_rows(
        self, group: int, watermark: int | None, after: int | None
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield the stream, the batch of their link, and rows of a group's chain that a watermark passes now.

        watermark   the watermark before, None if it was unknown;  after   the watermark now
        """
        if after is None or after == watermark:
            return

        def may_pass(segment: Segment) -> bool:
            ordered = self._job.sequence[segment.stream] is not None
            return ordered and (watermark is None or segment.last > watermark) and segment.first <= after

        for stream, number, batch in self._rows(group, may_pass):
            rows = passed(self._job, stream, batch, watermark, after)
            if len(rows):
                yield stream, number, rows

    def placed_rows(self, group: int, column: str) -> dict[str, pa.RecordBatch | None]:
        """Return all rows of a group's chain by stream, None without rows.

        column   an additional column, int64: the micro-batch of a row, or a later one of its link
        """
        return self._placed(self._rows(group), column)

    def placed_waiting(
        self, group: int, watermark: int | None, after: int | None, column: str
    ) -> dict[str, pa.RecordBatch | None]:
        """Return `waiting_rows` in the form of `placed_rows`."""
        return self._placed(self.waiting_rows(group, watermark, after), column)

    def _placed(
        self, parts: Iterable[tuple[int, int, pa.RecordBatch]], column: str
    ) -> dict[str, pa.RecordBatch | None]:
        links: list[dict[int, list[pa.RecordBatch]]] = [{} for _ in self._schemas]
        for stream, number, batch in parts:
            links[stream].setdefault(number, []).append(batch)
        rows = [
            [
                batch.append_column(column, pa.repeat(pa.scalar(number, pa.int64()), len(batch)))
                for number, batches in of_stream.items()
                for batch in self._in_order(stream, batches).to_batches()
            ]
            for stream, of_stream in enumerate(links)
        ]
        names = [stream.name for stream in self._job.query.streams]
        return {
            name: one_batch(pa.Table.from_batches(batches), "use shorter windows or more key groups")
            if batches
            else None
            for name, batches in zip(names, rows, strict=True)
        }

    def _in_order(self, stream: int, link: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the rows of a stream in a link, which are those of one micro-batch, or no two of one key and time."""
        table = pa.Table.from_batches(link)
        return sort_ties(self._job, stream, table) if self._job.tied(stream) else table

    def _rows(
        self, group: int, wanted: Callable[[Segment], bool] = lambda _: True
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield the stream, the batch of their link, and the rows of each wanted segment that are not late."""
        if self._manifest is None:
            assert self._previous is not None
            self._manifest = read_manifest(self._locations, self._previous)
        had = self._manifest.groups[self._tree.origin(group, len(self._manifest.splits))]
        self.reader.expect(piece for link in had.chain for piece in link.segments if wanted(piece))
        for link in had.chain:
            for segment in filter(wanted, link.segments):
                self.bytes_read += segment.length
                batch = own_rows(
                    self._job, self._tree, group, segment.stream, segment.splits, self.reader.read(segment)
                )
                yield segment.stream, link.batch, split_late(self._job, segment, batch, link.late_below)[0]

    def close(self) -> None:
        """Close the files of the log."""
        if self._reader is not None:
            self._reader.close()


def passed(job: Job, stream: int, rows: pa.RecordBatch, watermark: int | None, after: int | None) -> pa.RecordBatch:
    """Return the rows of a segment that a watermark passes on its way from `watermark` to `after`.

    The changes of a table do not wait: of these, all rows.
    """
    positions = job.positions(rows, stream)
    if positions is None:
        return rows
    low = 0 if watermark is None else int(np.searchsorted(positions, watermark, side="right"))
    high = 0 if after is None else int(np.searchsorted(positions, after, side="right"))
    return rows.slice(low, max(high - low, 0))


def split_late(
    job: Job, segment: Segment, rows: pa.RecordBatch, late_below: Sequence[int] | None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows of a segment that are not late, and the late rows. Segments are sorted by event time."""
    mark = None if late_below is None else late_below[segment.stream]
    if job.sequence[segment.stream] is None:
        return rows, rows.slice(0, 0)
    if mark is None or segment.first >= mark:
        return rows, rows.slice(0, 0)
    positions = job.positions(rows, segment.stream)
    assert positions is not None
    n = int(np.searchsorted(positions, mark, side="left"))
    return rows.slice(n), rows.slice(0, n)

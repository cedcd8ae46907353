"""Late rows that a task finds: their number by stream, and the rows themselves for their files."""

from __future__ import annotations

import pyarrow as pa

from eddy.query.query import Query
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.output_files import write_late
from eddy.spark.streaming.worker.tasks import LateCount


class TaskLateRows:
    """The late rows of a micro-batch that one task finds.

    late_below   per stream, the event time below which rows are late, None if no row is late
    counts       number of late rows by stream
    """

    def __init__(self, query: Query, late_below: tuple[int, ...] | None) -> None:
        self._query = query
        self._marks = late_below
        self._rows: list[list[pa.RecordBatch]] = [[] for _ in query.streams]
        self.counts: dict[int, LateCount] = {}

    def note(self, segment: Segment, rows: pa.RecordBatch) -> None:
        """Count the late rows of a segment, and collect them for their file unless the query only counts them."""
        stream = segment.stream
        assert self._marks is not None
        self.add(stream, LateCount(rows.num_rows, self._marks[stream] - segment.first))
        if self._query.late_by_stream[stream] != "count":
            self._rows[stream].append(rows)

    def add(self, stream: int, count: LateCount) -> None:
        """Count late rows of a stream."""
        self.counts[stream] = self.counts.get(stream, LateCount()).plus(count)

    def write(self, locations: Locations, batch: int) -> list[OutputFile]:
        """Write a file for each stream with late rows."""
        return [write_late(locations, batch, i, rows) for i, rows in enumerate(self._rows) if rows]

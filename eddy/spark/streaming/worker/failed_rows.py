"""Rows that fail in a micro-batch: one task collects them and writes their file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from eddy.results.failed_rows import FAILED
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.worker.output_files import write_set_aside

FAILED_OF_QUERY = pa.schema([pa.field("query", pa.string()), *FAILED])
"""The columns of failed rows: those of a runtime, and in a hub the name of the query."""
FAILED_NAME = "failed"
"""The part of a file's name that replaces the stream."""


class FailedRows:
    """The failed rows of a micro-batch."""

    def __init__(self) -> None:
        self._rows: list[pa.RecordBatch] = []

    def add(self, rows: Iterable[pa.RecordBatch], query: str | None = None) -> None:
        """Take failed rows."""
        for batch in rows:
            if batch.num_rows:
                names = pa.array([query] * batch.num_rows, pa.string())
                self._rows.append(pa.RecordBatch.from_arrays([names, *batch.columns], schema=FAILED_OF_QUERY))

    def write(self, locations: Locations, batch: int) -> list[OutputFile]:
        """Write a file; without failed rows, write no file."""
        return [write_set_aside(locations, batch, FAILED_NAME, self._rows)] if self._rows else []

"""Prints the results of each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.sinks.staging import explained, row_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConsoleSink(Sink):
    """Prints the number of each batch, its number of rows, and a table of the first rows; for trying things out.

    rows   maximal number of rows in the table
    """

    name = "console"
    options = frozenset({"numRows"})

    def __init__(self, rows: int = 20) -> None:
        if rows < 1:
            raise SparkJoinError(f"ConsoleSink(rows={rows}): show at least 1 row, or use a NullSink to count only")
        self._rows = rows

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ConsoleSink:
        shown = options.get("numRows", "20")
        if not shown.isdecimal() or not int(shown):
            raise SparkJoinError(f"format 'console': numRows={shown!r} is not a whole number above 0")
        return cls(int(shown))

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Print the batch. A second attempt prints it again."""
        paths = self.paths(batch, files)
        with explained(self.staging(batch), f"reading batch {batch}"):
            rows = sum(row_count(path) for path in paths)
        print(f"batch {batch}: {rows} rows" + (f", showing {self._rows}" if rows > self._rows else ""))
        if rows:
            self.frame(spark, batch, files).show(self._rows, truncate=False)

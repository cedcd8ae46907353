"""Results shown where the driver prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.frames import FrameSink
from eddy.spark.streaming.sinks.staging import explained, row_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConsoleSink(FrameSink):
    """Prints the number of each batch, how many rows it has, and a table of the first. To look at, not to keep.

    rows   how many to show
    """

    name = "console"

    def __init__(self, rows: int = 20) -> None:
        if rows < 1:
            raise SparkJoinError(f"ConsoleSink(rows={rows}): show 1 row or more, or take a NullSink to count only")
        super().__init__()
        self._rows = rows

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Print the batch; again if it is published again."""
        paths = self._files(batch, files)
        with explained(self.staging(batch), f"reading batch {batch}"):
            rows = sum(row_count(path) for path in paths)
        print(f"batch {batch}: {rows} rows" + (f", {self._rows} of them" if rows > self._rows else ""))
        if rows:
            self._frame(spark, paths).show(self._rows, truncate=False)

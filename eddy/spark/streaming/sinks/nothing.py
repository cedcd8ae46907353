"""Drops results and counts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.base import Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class NullSink(Sink):
    """Writes nothing. Tasks count results, and the metrics of the job contain the counts."""

    name = "noop"
    writes = False

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Do nothing: there is no destination."""

    def staging(self, batch: int) -> Path:
        raise SparkJoinError(f"batch {batch}: a NullSink has no staging directory; tasks count results")

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Do nothing. Raises SparkJoinError if tasks have written files, which would be lost."""
        if files:
            raise SparkJoinError(
                f"batch {batch}: a NullSink keeps no results, but the batch has the file {files[0]!r}; use another sink"
            )

    def clean(self, before_batch: int) -> None:
        """Do nothing: nothing is staged."""

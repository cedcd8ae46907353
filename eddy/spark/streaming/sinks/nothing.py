"""Results that nobody wants to have, only to count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class NullSink:
    """Nothing is written: tasks count results (`writes` is False), and the job's metrics tell how many there were."""

    name = "nothing"
    writes = False

    def prepare(self, *, schema: pa.Schema, owner: str, scratch: Path) -> None:
        """There is no place to look at."""

    def staging(self, batch: int) -> Path:
        raise SparkJoinError(f"batch {batch}: a NullSink has no staging directory; results are counted, not written")

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Do nothing. Raises SparkJoinError if files were written after all: they would be lost."""
        if files:
            raise SparkJoinError(
                f"batch {batch}: {files[0]!r} for a NullSink, which keeps no results; use another sink"
            )

    def clean(self, before_batch: int) -> None:
        """There is nothing to remove."""

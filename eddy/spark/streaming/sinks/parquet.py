"""Writes a directory of Parquet files with one subdirectory per batch, which appears as a whole.

    results/batch=0/…parquet
    results/batch=1/…parquet        a batch without results has no subdirectory
    results/_staging/000000000002   files that are being written; readers skip names that begin with '_'

Spark and pyarrow read `results` as one table with an additional column `batch`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.directory import DirectorySink, check_same
from eddy.spark.streaming.sinks.staging import checked_names, explained
from eddy.storage.durable import sync_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_BATCH = re.compile(r"batch=\d+")


class ParquetSink(DirectorySink):
    """Publishes a batch by one rename of a directory that holds exactly its files."""

    name = "parquet"
    beside = True

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Prepare the directory.

        Also raises SparkJoinError for a result column `batch`, which the names of the subdirectories would hide.
        """
        if "batch" in (name.lower() for name in schema.names):
            raise SparkJoinError(
                f"{self.path}: the results have a column 'batch', but readers add a column of this name for the"
                " subdirectories; rename the column in the query's select"
            )
        super().prepare(schema=schema, job=job, scratch=scratch)

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Make path/batch=<batch>/ appear with these files. O(files) renames and two syncs."""
        names = checked_names(files)
        final = self.path / f"batch={batch}"
        if not names and not final.exists():
            return
        with explained(final, f"publishing batch {batch}"):
            if final.exists():
                there = {path.name for path in final.iterdir() if path.name[0] not in "._"}
                check_same(final, batch, there, set(names))
            else:
                collected = self._files.collected(batch)
                self._files.take(batch, names, [collected / name for name in names])
                for path in collected.iterdir():
                    if path.name not in names:
                        raise SparkJoinError(
                            f"{path} does not belong to batch {batch}; remove it and start the job again"
                        )
                os.rename(collected, final)
            sync_directory(self.path)

    def _makes(self, name: str) -> bool:
        return _BATCH.fullmatch(name) is not None

    def _directories(self) -> Sequence[Path]:
        return (self.path,)

    def _has_batches(self) -> bool:
        return any(self._makes(path.name) for path in self.path.iterdir())

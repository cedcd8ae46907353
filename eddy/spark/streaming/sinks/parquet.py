"""A directory of Parquet files, one subdirectory per batch, which appears whole.

    results/batch=0/…parquet
    results/batch=1/…parquet        a batch without rows has none
    results/_staging/000000000002   being written; readers skip names that begin with '_'

Spark and pyarrow read `results` as one table with a column `batch` more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.durable import make_directories, sync_directory
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging, checked_names, explained, local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_BATCH = re.compile(r"batch=\d+")


class ParquetSink:
    """Publishes a batch by one rename of a directory that holds exactly its files.

    path   a directory for these results alone, made if need be; the driver and all workers have it under this name
    """

    name = "parquet"
    writes = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path, "ParquetSink")
        self._staging = Staging(self.path / "_staging")

    def prepare(
        self, *, schema: pa.Schema | None = None, owner: str | None = None, scratch: Path | None = None
    ) -> None:
        """See that the directory can be written and holds nothing that readers would take for results.

        Raises SparkJoinError naming the first thing that is foreign, or a result column `batch`, which readers would
        not see for the name of the directories.
        """
        if schema is not None and "batch" in (name.lower() for name in schema.names):
            raise SparkJoinError(
                f"{self.path}: results have a column 'batch', which is what readers call the number of the directory;"
                " give it another name in the query's select"
            )
        if self.path.exists() and not self.path.is_dir():
            raise SparkJoinError(f"{self.path} is a file; give a directory for the results")
        with explained(self.path, "preparing the directory of results"):
            make_directories(self.path)
            names = sorted(path.name for path in self.path.iterdir())
            foreign = [name for name in names if name[0] not in "._" and not _BATCH.fullmatch(name)]
            if foreign:
                raise SparkJoinError(
                    f"{self.path} holds {foreign[0]!r}, which no job published and readers would take for results; give"
                    " an empty directory, or one this job published to"
                )
            claim(self.path, owner, any(_BATCH.fullmatch(name) for name in names))
        self._staging.prepare()
        if os.stat(self._staging.root).st_dev != os.stat(self.path).st_dev:
            raise SparkJoinError(
                f"{self._staging.root} is on another file system than {self.path}, so nothing can be renamed from"
                " one to the other; unmount it"
            )

    def staging(self, batch: int) -> Path:
        return self._staging.of(batch)

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Make path/batch=<batch>/ appear with these files. O(files) renames and two syncs."""
        names = checked_names(files)
        if not names:
            return
        final = self.path / f"batch={batch}"
        with explained(final, f"publishing batch {batch}"):
            if final.exists():
                self._check_same(final, names)
            else:
                collected = self._staging.collected(batch)
                self._staging.take(batch, names, [collected / name for name in names])
                for path in collected.iterdir():
                    if path.name not in names:
                        raise SparkJoinError(
                            f"{path} is in the way: batch {batch} has no such file; remove it and start the job again"
                        )
                os.rename(collected, final)
            sync_directory(self.path)

    def clean(self, before_batch: int) -> None:
        self._staging.clean(before_batch)

    def _check_same(self, final: Path, names: list[str]) -> None:
        """Raise SparkJoinError if what is there is another job's batch of the same number."""
        there = {path.name for path in final.iterdir() if path.name[0] not in "._"}
        if there != set(names):
            raise SparkJoinError(
                f"{final} holds other files than this job's batch: {sorted(there ^ set(names))[0]!r} is in one of them"
                " only; give each job a directory of its own"
            )

"""Results as DataFrames, and the sinks that hand them on as such."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging, local_path
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, schema: pa.Schema | None, files: Sequence[Path], none: str) -> DataFrame:
    """Return Parquet files as one DataFrame, with the Spark types of `schema`, the query's, or those of the files.

    Raises SparkJoinError that begins with `none` when there is neither a file nor a schema.
    """
    named = [f"file://{path}" for path in files]  # not the default file system, which may be a distributed one
    if schema is None and not named:
        raise SparkJoinError(f"{none}, and the columns are not known; give prepare() the schema of the results")
    if schema is None:
        return spark.read.parquet(*named)
    kind = struct_type(schema)
    return spark.read.schema(kind).parquet(*named) if named else spark.createDataFrame([], kind)


class FrameSink:
    """A sink that hands on the results of a batch as a DataFrame and keeps none; CallbackSink and ConsoleSink are.

    staging_root  where tasks write; None: below the scratch directory the job gives
    """

    name = "frame"
    writes = True

    def __init__(self, staging_root: str | os.PathLike[str] | None) -> None:
        self._staging = None if staging_root is None else Staging(local_path(staging_root, type(self).__name__))
        self._schema: pa.Schema | None = None

    def prepare(
        self, *, schema: pa.Schema | None = None, owner: str | None = None, scratch: Path | None = None
    ) -> None:
        """See that the staging directory can be written and is no other job's, whose files would be cleaned here."""
        if self._staging is None and scratch is not None:
            self._staging = Staging(local_path(scratch, "scratch") / "staging")
        staging = self._place()
        if staging.root.exists() and not staging.root.is_dir():
            raise SparkJoinError(f"{staging.root} is a file; give a directory for staging")
        staging.prepare()
        claim(staging.root, owner, used=False)
        self._schema = schema

    def staging(self, batch: int) -> Path:
        return self._place().of(batch)

    def clean(self, before_batch: int) -> None:
        self._place().clean(before_batch)

    def _files(self, batch: int, files: Sequence[str]) -> list[Path]:
        return self._place().paths(batch, files)

    def _frame(self, spark: SparkSession, batch: int, files: Sequence[Path]) -> DataFrame:
        return frame(spark, self._schema, files, f"batch {batch} has no rows")

    def _place(self) -> Staging:
        if self._staging is None:
            raise SparkJoinError(
                f"{type(self).__name__} has no directory in which tasks could write; give it a staging_root that the"
                " driver and all workers have under the same name"
            )
        return self._staging

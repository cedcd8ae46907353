"""Results as DataFrames, and the sinks that hand them on as such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, schema: pa.Schema, files: Sequence[Path]) -> DataFrame:
    """Return Parquet files as one DataFrame, with the Spark types of `schema`, the query's."""
    named = [f"file://{path}" for path in files]  # not the default file system, which may be a distributed one
    kind = struct_type(schema)
    return spark.read.schema(kind).parquet(*named) if named else spark.createDataFrame([], kind)


class FrameSink:
    """A sink that hands on the results of a batch as a DataFrame and keeps none; CallbackSink and ConsoleSink are."""

    name = "frame"
    writes = True

    def __init__(self) -> None:
        self._prepared: tuple[Staging, pa.Schema] | None = None

    def prepare(self, *, schema: pa.Schema, owner: str, scratch: Path) -> None:
        """See that the staging directory, below `scratch`, can be written and is no other job's, whose files would be
        cleaned here.
        """
        staging = Staging(scratch / "staging")
        if staging.root.exists() and not staging.root.is_dir():
            raise SparkJoinError(f"{staging.root} is a file; remove it, results are staged in a directory of that name")
        staging.prepare()
        claim(staging.root, owner, used=False)
        self._prepared = staging, schema

    def staging(self, batch: int) -> Path:
        return self._ready()[0].of(batch)

    def clean(self, before_batch: int) -> None:
        self._ready()[0].clean(before_batch)

    def _files(self, batch: int, files: Sequence[str]) -> list[Path]:
        return self._ready()[0].paths(batch, files)

    def _frame(self, spark: SparkSession, files: Sequence[Path]) -> DataFrame:
        return frame(spark, self._ready()[1], files)

    def _ready(self) -> tuple[Staging, pa.Schema]:
        if self._prepared is None:
            raise SparkJoinError(f"{type(self).__name__} has no directory in which tasks could write; prepare it first")
        return self._prepared

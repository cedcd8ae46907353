"""The results of a `transactions` sink as a streaming source of Spark: a streaming query reads what a join published.

An offset is the number of a published batch. Batches are whole, and each batch is read once, so a query with its own
checkpoint processes each row exactly once. The tasks read the Parquet files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from eddy.spark.environment.ending import end_quietly
from eddy.spark.environment.stream_reader import (
    LimitedReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    reader_of,
    require_limits,
)
from eddy.spark.errors import SparkJoinError
from eddy.spark.local_path import local_path
from eddy.spark.streaming.sinks.staging import read_batches
from eddy.spark.streaming.sinks.transactions import batch_files, saved_schema, versions
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "eddy"
LIMIT = "maxBatchesPerTrigger"


end_quietly()


def stream_transactions(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Return the results that a `transactions` sink publishes, as a streaming DataFrame.

        pairs = eddy.spark.stream_transactions(spark, "results")
        pairs.groupBy("user").count().writeStream.outputMode("complete").format("memory").queryName("n").start()

    path   directory of the sink; the job must have started once

    A query over this DataFrame reads each batch of the join in order, and exactly once if the query has its own
    checkpoint. The same source with options: `spark.readStream.format("eddy").option("maxBatchesPerTrigger",
    10).load(path)`. Raises SparkJoinError for a directory without results of a join.
    """
    root = local_path(path, "path")
    saved_schema(root)
    register(spark)
    return spark.readStream.format(NAME).load(str(root))


def register(spark: SparkSession) -> None:
    """Register the source in a session in which Spark did not find it by itself (`pyspark_eddy.py`)."""
    try:
        spark.dataSource.register(ResultsSource)
    except AnalysisException as known:
        if known.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class ResultsSource(DataSource):
    """The source as Spark's interface defines it.

    Options: `path`, the directory of the sink; `maxBatchesPerTrigger`, the maximal number of batches of the join that
    one micro-batch reads (all by default).
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return struct_type(saved_schema(self._root))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # Spark's options ignore case.
        limit = self.options.get(LIMIT)
        if limit is not None and not (limit.isdecimal() and int(limit)):
            raise SparkJoinError(f"option {LIMIT}={limit!r}: give a number of batches, 1 or more")
        if limit is not None:
            require_limits(f"option {LIMIT}={limit}")
        return reader_of(ResultsReader(self._root, None if limit is None else int(limit)))

    @property
    def _root(self) -> Path:
        path = self.options.get("path")
        if not path:
            raise SparkJoinError("format 'eddy' reads the results of a transactions sink: pass its path to load(…)")
        return local_path(path, "path")


class ResultsFile(InputPartition):
    """One file of results."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ResultsReader(LimitedReader):
    """Reads batches in their order. An offset is {"batch": the last batch read}, -1 before the first batch."""

    def __init__(self, root: Path, limit: int | None) -> None:
        self._root = root
        self._limit = limit
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"batch": -1}

    def getDefaultReadLimit(self) -> ReadLimit:
        # This limit represents the option, which counts batches; Spark has no limit of this kind.
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        newest = self._newest() if self._last is None else self._last
        if self._limit is not None and not isinstance(limit, ReadAllAvailable):
            newest = min(newest, start["batch"] + self._limit)
        return {"batch": max(newest, start["batch"])}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"batch": self._newest()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        wanted = range(start["batch"] + 1, end["batch"] + 1)
        return [ResultsFile(str(path)) for batch in wanted for path in batch_files(self._root, batch)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ResultsFile)
        yield from read_batches([Path(partition.path)])

    def _newest(self) -> int:
        return max(versions(self._root), default=-1)

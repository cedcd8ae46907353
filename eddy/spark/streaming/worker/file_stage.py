"""The first stage for streams of Parquet files: the workers read them, and no row passes through the JVM.

It stands in for a streaming DataFrame only if that is a plain source, `spark.readStream.schema(…).parquet(path)`
with columns renamed or left out at most. Spark then streams the names of the files (its "binaryFile" source, whose
content is not asked for), in the same order and micro-batches, and the options of the source go on to hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from eddy.spark.batch.dataframe import Transport
from eddy.spark.batch.packed import NotPlain, check_file, logical_plan, open_file, stored_columns
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import BLOB_ROWS
from eddy.spark.streaming.state.locations import Places
from eddy.spark.streaming.worker.split_stage import TOLD_COLUMNS, log_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FILE = "path string, modificationTime timestamp, length bigint, content binary"


@dataclass(frozen=True)
class FileSource:
    """A stream of Parquet files.

    path      what Spark was asked to read
    options   of the source
    columns   names in the files, in the order of the job's inputs
    types     of those, as Spark was told
    """

    path: str
    options: dict[str, str]
    columns: tuple[str, ...]
    types: dict[str, pa.DataType]


class LogFiles:
    """What a worker does with names of files of one stream: reads them and logs their rows."""

    def __init__(self, job: Job, places: Places, stream: int, source: FileSource) -> None:
        self._job = job
        self._places = places
        self._stream = stream
        self._source = source
        self.__name__ = f"eddy_read_and_log[{job.query.streams[stream].name}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths = (path for batch in batches for path in batch.column(0).to_pylist())
        return log_rows(self._job, self._places, self._stream, chain.from_iterable(map(self._read, paths)))

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        source, names = self._source, self._job.inputs[self._stream].names
        with open_file(as_uri(path)) as file:
            try:
                check_file(path, file.metadata, source.types)
            except NotPlain as why:
                raise SparkJoinError(
                    f"stream {self._job.query.streams[self._stream].name!r}: {why}; rewrite the file, or let Spark read"
                    " it with transport='rows'"
                ) from why
            for batch in file.iter_batches(BLOB_ROWS, columns=list(source.types), use_threads=False):
                yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in source.columns], names=names)


def as_uri(path: str) -> str:
    """Return the address of a file from what Hadoop calls its path: that has a scheme as well, but nothing is escaped.

    >>> as_uri("file:/a b/100%.parquet"), as_uri("hdfs://host:80/a b")
    ('file:/a%20b/100%25.parquet', 'hdfs://host:80/a%20b')
    """
    scheme, _, rest = path.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:{quote(rest)}"
    host, _, below = rest.removeprefix("//").partition("/")
    return f"{scheme}://{host}/{quote(below)}"


def _source(frame: DataFrame, names: Sequence[str]) -> FileSource:
    """Return the files behind a streaming DataFrame. Raises NotPlain if it is anything but a plain Parquet source."""
    columns, types, relation = stored_columns(frame, logical_plan(frame, "analyzed"), "StreamingRelation", names)
    described = relation.dataSource()
    if described.className().lower() != "parquet":
        raise NotPlain(f"its source is {described.className()!r}, not Parquet files")
    options = _mapping(described.options())
    path = options.pop("path", None)
    if path is None:
        raise NotPlain("its source has no one path")
    if described.partitionColumns().size():
        raise NotPlain("its files are partitioned by columns in their paths")
    return FileSource(path, options, columns, types)


def _mapping(scala: Any) -> dict[str, str]:
    found, items = {}, scala.iterator()
    while items.hasNext():
        item = items.next()
        found[str(item._1())] = str(item._2())
    return found


def told_of_files(job: Job, places: Places, frames: Sequence[DataFrame], transport: Transport) -> DataFrame | None:
    """Return a streaming DataFrame that reads and logs the files of all streams when it runs; None for "rows".

    Raises SparkJoinError if `transport` is "packed" and some stream is no plain Parquet source.
    """
    if transport == "rows":
        return None
    logged = []
    for i, (schema, frame) in enumerate(zip(job.inputs, frames, strict=True)):
        try:
            source = _source(frame, schema.names)
        except NotPlain as why:
            if transport == "packed":
                name = job.query.streams[i].name
                raise SparkJoinError(
                    f"transport='packed' cannot be used: the DataFrame of stream {name!r} is no plain stream of Parquet"
                    f" files: {why}; pass transport='auto' or 'rows'"
                ) from why
            return None
        stream = frame.sparkSession.readStream.format("binaryFile").schema(_FILE).options(**source.options)
        files = stream.load(source.path)
        logged.append(files.select("path").mapInArrow(LogFiles(job, places, i, source), TOLD_COLUMNS))
    return reduce(lambda left, right: left.unionAll(right), logged)

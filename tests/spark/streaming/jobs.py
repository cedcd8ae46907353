"""Short forms of a user's streaming join: files that Spark streams in a known order, and a run to the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.query.query import Query
from eddy.spark import join
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.types import struct_type
from tests.cases import text_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST_FILE_S = 1_700_000_000


@contextmanager
def _not_looking(running: StreamingJoinQuery) -> Iterator[None]:
    """Keep Spark from making the next micro-batch: it lists the files of one stream after another under this lock."""
    lock = running._inner._jsq.streamingQuery().awaitProgressLock()
    lock.lock()
    try:
        yield
    finally:
        lock.unlock()


class Inputs:
    """Streams of Parquet files under one directory; file `k` of a stream comes before file `k + 1`."""

    def __init__(self, root: Path, **schemas: pa.Schema) -> None:
        self.root = root
        self.schemas = schemas
        self.tables: dict[str, list[pa.Table]] = {name: [] for name in schemas}
        for name in schemas:
            (root / name).mkdir(parents=True)

    def add(self, name: str, rows: Sequence[dict[str, Any]] | pa.Table) -> None:
        """Add a file to a stream."""
        self.add_together({name: rows})

    def add_together(
        self, rows: Mapping[str, Sequence[dict[str, Any]] | pa.Table], running: StreamingJoinQuery | None = None
    ) -> None:
        """Add a file to each of these streams, at nearly the same moment, so that one micro-batch takes them all.

        running   the query that reads them, for a test that compares each micro-batch: it does not look for files
                  meanwhile. Without it, one micro-batch in some thousands takes the files of some streams only
        """
        made = []
        for name, stream_rows in rows.items():
            table = (
                stream_rows
                if isinstance(stream_rows, pa.Table)
                else pa.Table.from_pylist(list(stream_rows), schema=self.schemas[name])
            )
            number = len(self.tables[name])
            # Spark orders files by modification time, and ignores names that begin with a dot.
            begun, path = self.root / name / f".{number}", self.root / name / f"{number:04d}.parquet"
            pq.write_table(table, begun)
            os.utime(begun, (_FIRST_FILE_S + number,) * 2)
            made.append((begun, path))
            self.tables[name].append(table)
        with nullcontext() if running is None else _not_looking(running):
            for begun, path in made:
                os.rename(begun, path)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return all rows of a stream."""
        return [row for table in self.tables[name] for row in table.to_pylist()]

    def frames(self, spark: SparkSession, files: int = 1) -> dict[str, DataFrame]:
        """Return the streaming DataFrames, with this number of files of each per micro-batch."""
        return {name: self.frame(spark, name, files) for name in self.schemas}

    def frame(self, spark: SparkSession, name: str, files: int = 1) -> DataFrame:
        """Return the streaming DataFrame of one stream."""
        reader = spark.readStream.schema(struct_type(self.schemas[name])).option("maxFilesPerTrigger", files)
        return reader.parquet(str(self.root / name))

    def batch_frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return all files as batch DataFrames."""
        return {
            name: spark.read.schema(struct_type(schema)).parquet(str(self.root / name))
            for name, schema in self.schemas.items()
        }


@contextmanager
def slot_taken(spark: SparkSession, root: Path) -> Iterator[Callable[[], None]]:
    """Run a task of another job in a slot of the session; yield the function that ends it."""
    begun, released = root / "begun", root / "released"

    def hold(numbers: object) -> None:
        begun.touch()
        while not released.exists():
            time.sleep(0.02)

    other = threading.Thread(target=lambda: spark.sparkContext.parallelize([0], 1).foreachPartition(hold), daemon=True)
    other.start()
    while not begun.exists():
        time.sleep(0.02)
    yield released.touch
    released.touch()
    other.join(60)


def run(
    query: Query, frames: dict[str, DataFrame], checkpoint: Path | str, out: Path, format: str = "parquet", **how: Any
) -> StreamingJoinQuery:
    """Run a join over all available files, to the end."""
    how.setdefault("key_groups", 4)
    writer = join(query, frames, checkpoint=checkpoint, **how).writeStream.trigger(availableNow=True)
    running = writer.format(format).start(*([] if format == "noop" else [out]))
    assert running.awaitTermination(120), "it did not end"
    return running


def newest_manifest(checkpoint: Path) -> Manifest:
    """Return the newest manifest of a checkpoint."""
    return Manifest.from_bytes(max((checkpoint / "manifests").glob("*.manifest")).read_bytes())


def await_rows(running: StreamingJoinQuery, rows: int, before: int = 0) -> list[dict[str, Any]]:
    """Wait until the micro-batches after the first `before` have taken this number of rows; return their metrics.

    Spark may begin a micro-batch when only some of several new files are there, so these may come with more than one.
    """
    while True:
        metrics: list[dict[str, Any]] = running.batches().slice(before).to_pylist()
        if sum(batch["rows"] for batch in metrics) >= rows or not running.isActive:
            return metrics
        running.processAllAvailable()


def published(out: Path) -> pa.Table:
    """Return the results of a Parquet sink in order of batches, without the column `batch`."""
    files = sorted(out.glob("batch=*/*.parquet"), key=lambda path: (int(path.parent.name.removeprefix("batch=")), path))
    tables = [pq.ParquetFile(path).read() for path in files]
    return pa.concat_tables(tables) if tables else pa.table({})


def results(out: Path) -> list[tuple[str, ...]]:
    """Return the results of a Parquet sink in comparable form."""
    return text_rows(published(out))

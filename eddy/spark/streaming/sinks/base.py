"""The base class of sinks, and the functions that all sinks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.environment.session import one_host
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging
from eddy.spark.streaming.state.working_directory import is_working
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReplacingKey(NamedTuple):
    """The key by which results replace each other in the destination of a sink.

    columns  result columns
    place    name of the destination, for errors
    """

    columns: Sequence[str]
    place: str


class Sink(ABC):
    """A destination for the results of a streaming join. Subclass it to publish results to your own system.

        class Sqlite(Sink):
            def __init__(self, path):
                self._path = path

            def publish(self, batch, files, spark):
                with contextlib.closing(sqlite3.connect(self._path)) as db, db:  # one transaction
                    db.execute("CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY)")
                    db.execute("CREATE TABLE IF NOT EXISTS pairs (k INTEGER, v TEXT)")
                    if db.execute("SELECT 1 FROM batches WHERE batch = ?", [batch]).fetchone():
                        return  # an earlier attempt has published this batch
                    for path in self.paths(batch, files):
                        rows = pyarrow.parquet.read_table(path).select(["R.k", "S.v"]).to_pylist()
                        db.executemany("INSERT INTO pairs VALUES (?, ?)", [tuple(row.values()) for row in rows])
                    db.execute("INSERT INTO batches VALUES (?)", [batch])

        join(query, frames, checkpoint="state").writeStream.sink(Sqlite("results.db")).start()

    Order of calls. The sink is on the driver and is never sent to a worker. `replaces_by` and `prepare` run once,
    within `start`; in a hub `prepare` runs again when a later query with other columns takes the sink over. Then
    each batch takes these steps, in the thread of the streaming query (see `beside`):

        1. staging(batch)                  on the driver, which sends the path to the tasks
        2. tasks write Parquet files there, in Spark's types; so do attempts that fail or whose results are not used
        3. the job commits the batch:      its manifest names the files that count; from now on the files never change
        4. publish(batch, files, spark)    with exactly those files; also for a batch without results (no files)
        5. the job records that the batch is published
        6. clean(batch)                    the sink may remove staging directories of earlier batches

    Batches come in ascending order. A batch is published before the next one begins.

    Second attempts. If the driver dies or `publish` raises between steps 3 and 5, the next start of the job calls
    `publish` again with the same batch number and the same files. To deliver results exactly once, `publish` has to
    recognise a batch that it has already published, by the batch number: record the number in the same transaction as
    the results, or make the whole operation idempotent. Between two attempts `clean` does not remove the files.

    Errors. An exception from any method ends the query. After an exception from `publish` the batch stays committed,
    and the next start publishes it. Raise `eddy.spark.SparkJoinError` with a message that names the destination and a
    remedy. The job wraps other exceptions of `publish` in a SparkJoinError that names the sink and the batch.

    Only `publish` has to be implemented. The defaults of the other methods stage results below the checkpoint, and do
    not require a call of `super().__init__()`.

    name      name of the sink in `writeStream.format(…)` if the sink is in the registry `FORMATS`; else unused
    options   names of the options in `writeStream`; "a.*" means all names that begin with "a."
    writes    whether tasks write results; if False, tasks only count results, and `staging` is never called
    beside    whether `staging` and `publish` may run beside those of other sinks, in a thread of their own, and
              `staging` ahead of its batch; the sinks of a hub then wait for the disk together. Not inherited
    """

    name: ClassVar[str] = ""
    options: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[bool] = True
    beside: ClassVar[bool] = False

    _staging: Staging | None = None
    _schema: pa.Schema | None = None

    @property
    def _title(self) -> str:
        """The sink in errors."""
        return type(self).__name__

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Sink:
        """Return the sink for options given by name to `writeStream`, all of them in `options`.

        Called for sinks in the registry only. Raises SparkJoinError for a value that does not fit.
        """
        return cls(**options)

    @classmethod
    def takes(cls, option: str) -> bool:
        """Return whether the sink has an option of this name."""
        return any(fnmatchcase(option, known) for known in cls.options)

    def replaces_by(self, schema: pa.Schema) -> ReplacingKey | None:
        """Return the key by which results replace each other; None, the default, if the sink keeps all of them.

        schema   schema of the results, in the query's types

        Called once, before `prepare`: the start refuses a key that several results of the query can share. Raises a
        SparkJoinError that names the destination and a remedy.
        """
        return None

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Check that the sink can be used. Called once before the first batch of a run.

        schema   schema of the results, in the query's types
        job      identifies the job across runs; refuse a destination that has results of another owner
        scratch  directory of the job that the driver and all workers reach under this path; it remains after a run.
                 If the checkpoint is in an object store, only staged results remain, and each host has its own

        The default prepares a staging directory below `scratch`. An overriding method must first call the default.
        Raises a SparkJoinError that names the path and a remedy.
        """
        staging = Staging(scratch / "staging")
        if staging.root.exists() and not staging.root.is_dir():
            raise SparkJoinError(f"{staging.root} is a file; remove it: results are staged in a directory of this name")
        staging.prepare()
        claim(staging.root, job, used=False)
        self._staging, self._schema = staging, schema

    def staging(self, batch: int) -> Path:
        """Return the directory in which tasks write the results of a batch, as Parquet files. It must exist.

        Each attempt of a task uses a new file name, which begins with neither '.' nor '_'. Before the batch is
        committed, its files are complete and synced, and so is the directory.
        """
        return self._prepared().of(batch)

    @abstractmethod
    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Publish the results of a committed batch: all rows of `files`, and of no other files.

        files   names of files in the staging directory of the batch; empty if the batch has no results

        May be called again for the same batch; see the class. Raises a SparkJoinError that names the destination and a
        remedy.
        """

    def clean(self, before_batch: int) -> None:
        """Remove the staging directories of batches before this one, all of which are published."""
        self._prepared().clean(before_batch)

    def paths(self, batch: int, files: Sequence[str]) -> list[Path]:
        """Return the paths of the files that `publish` received. Raises SparkJoinError for a missing file."""
        return self._prepared().paths(batch, files)

    def frame(self, spark: SparkSession, batch: int, files: Sequence[str]) -> DataFrame:
        """Return the rows of the files that `publish` received as a batch DataFrame. Raises the errors of `paths`."""
        paths = self.paths(batch, files)
        assert self._schema is not None
        return read_files(spark, self._schema, paths)

    def _prepared(self) -> Staging:
        if self._staging is None:
            raise SparkJoinError(
                f"{type(self).__name__} has no staging directory: call prepare first (a subclass that extends prepare"
                " has to call super().prepare)"
            )
        return self._staging


def read_files(spark: SparkSession, schema: pa.Schema, files: Sequence[Path]) -> DataFrame:
    """Return Parquet files as one DataFrame, with the Spark types of the query's `schema`."""
    kind = struct_type(schema)
    if files and not one_host(spark) and is_working(files[0]):
        # Only this host has the files, so Spark gets their rows.
        return spark.createDataFrame(pa.concat_tables(pq.read_table(path) for path in files), kind)
    named = [f"file://{path}" for path in files]  # with a scheme, as the default file system may be a distributed one
    return spark.read.schema(kind).parquet(*named) if named else spark.createDataFrame([], kind)

"""Writes results to a Delta Lake table: each batch is one commit of the table's log. Needs the package deltalake.

Rows are appended, those of a changelog with their operation; or, with a key, they replace and delete rows of the table.

Delta's log records, in the commit of a batch, the job and the number of the batch (an "application transaction"). So
the rows of a batch and the record of the batch appear together, and the sink recognises a repeated batch.

Source: Armbrust et al., "Delta Lake: high-performance ACID table storage over cloud object stores", VLDB 2020,
sec. 3.2.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.local_path import local_path
from eddy.spark.streaming.sinks.base import ReplacingKey, Sink
from eddy.spark.streaming.sinks.delta_schema import delta_schema, differences
from eddy.spark.streaming.sinks.directory import check_same
from eddy.spark.streaming.sinks.keyed import key_columns, keyed_changes, row_schema
from eddy.spark.streaming.sinks.staging import checked_names, read_batches, row_count
from eddy.spark.types import spark_schema

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import SparkSession

_JOB, _BATCH, _FILES = "eddyJob", "eddyBatch", "eddyFiles"
"""The entries of a commit on its batch, in addition to Delta's own entries. `DeltaTable.history` shows them."""

_COLOUR = re.compile(r"\x1b\[\d+m")
_SHOWN = 400
"""Messages of deltalake have colours, and they may end in a long trace of calls."""

_SOURCE, _TARGET, _GONE = "s", "t", "_eddy_gone"
"""The aliases in a merge, and the column that says which rows end."""


class DeltaSink(Sink):
    """Publishes a batch by one commit, which appends or merges its rows once, through all restarts.

    path          directory of the table, or its URL (`s3://…`); created if missing. Only the driver writes there.
                  deltalake takes credentials of object stores from environment variables
    partition_by  columns whose values name the subdirectories of a new table; an existing table keeps its own
    key           columns that identify a row, nulls included: rows replace those with their keys, and the table has the
                  answer of a query over tables; None = rows are appended, those of a changelog with `op`

    The table may already have rows and other writers: other jobs, or Spark. The path of its checkpoint identifies a
    job. A job with another path is another writer, which appends its results even if the table has them. A job that
    begins anew with the same path is refused at its first batch with results.

    A batch without results makes no commit. A commit that fails may leave data files that no reader sees; `VACUUM`
    removes them. The driver copies the rows from the tasks' files, some ten thousand at a time.
    """

    name = "delta"
    options = frozenset({"path", "partitionBy", "key"})

    def __init__(
        self, path: str | os.PathLike[str], partition_by: Sequence[str] = (), key: str | Sequence[str] | None = None
    ) -> None:
        text = os.fspath(path)
        # delta-rs does not sync files, so the sink syncs the files of a table on a mounted file system.
        remote = "://" in text and not text.startswith("file:")
        self._root = None if remote else local_path(text, type(self).__name__)
        self.path = text if remote else str(self._root)
        self._partition_by = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        self._asked_key = key
        self._key: list[str] = []
        self._job = ""
        self._table: DeltaTable | None = None

    @property
    def _place(self) -> str:
        """The table, for errors."""
        return f"Delta table {self.path}"

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> DeltaSink:
        if "path" not in options:
            raise SparkJoinError("format 'delta' needs a path: call start(path), or option('path', …)")
        columns = [name.strip() for name in options.get("partitionBy", "").split(",")]
        return cls(options["path"], [name for name in columns if name], options.get("key"))

    def replaces_by(self, schema: pa.Schema) -> ReplacingKey | None:
        """Return the key of the table. Raises SparkJoinError for a key that is no result column."""
        if self._asked_key is None:
            return None
        return ReplacingKey(key_columns(self._asked_key, schema, self._place), self._place)

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Open the table, or create an empty one.

        Raises a SparkJoinError that names the table and a remedy: without the package deltalake, for a table with other
        columns or partitions, and for a directory with other content.
        """
        try:
            from deltalake import DeltaTable
        except ImportError as problem:
            raise SparkJoinError("DeltaSink needs the package deltalake: pip install 'eddy-join[delta]'") from problem
        if self._asked_key is not None:
            self._key = key_columns(self._asked_key, schema, self._place)
        wanted = delta_schema(row_schema(schema) if self._key else schema)
        if unknown := [name for name in self._partition_by if name not in schema.names]:
            raise SparkJoinError(
                f"{self.path}: partitionBy names {unknown[0]!r}, which is no result column; the columns are"
                f" {', '.join(schema.names)}"
            )
        super().prepare(schema=schema, job=job, scratch=scratch)
        if self._root is not None and self._root.exists() and not self._root.is_dir():
            raise SparkJoinError(f"{self._root} is a file; give a directory for the table")
        with self._refused("opening the table"):
            if DeltaTable.is_deltatable(self.path):
                table = DeltaTable(self.path)
            else:
                self._check_empty()
                table = DeltaTable.create(self.path, wanted, partition_by=self._partition_by)
        if differing := differences(table.schema(), wanted):
            raise SparkJoinError(
                f"{self.path} is a table with other columns: {'; '.join(differing)}. Change the query's select, or give"
                " the results a table of their own"
            )
        there = table.metadata().partition_columns
        if self._partition_by and there != self._partition_by:
            raise SparkJoinError(
                f"{self.path} is partitioned by {', '.join(there) or 'no column'}, not by"
                f" {', '.join(self._partition_by)}; leave partitionBy out, or give the results a table of their own"
            )
        self._job, self._table = job, table

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Write the rows of the files in one commit, unless the log has a commit for this batch."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        names = checked_names(files)
        if not names:
            return
        self._prepared()
        assert self._table is not None
        with self._refused(f"publishing batch {batch}"):
            self._table.update_incremental()
            newest = self._table.transaction_version(self._job)
        if newest is not None and newest >= batch:
            self._check_published(self._table, batch, names, newest)
            return
        paths = self.paths(batch, names)
        for path in paths:
            row_count(path)  # the error names a damaged file; an error of deltalake would not
        commit = CommitProperties(
            custom_metadata={_JOB: self._job, _BATCH: batch, _FILES: names},
            app_transactions=[Transaction(self._job, batch)],
        )
        with self._refused(f"publishing batch {batch}"):
            if self._key:
                self._merge(self._table, paths, commit)
            else:
                write_deltalake(self._table, self._rows(paths), mode="append", commit_properties=commit)
            self._sync(self._table.version())

    def _merge(self, table: DeltaTable, paths: Sequence[Path], commit: CommitProperties) -> None:
        """Replace and delete rows of the table in one commit."""
        assert self._schema is not None
        upserts, deletes = keyed_changes(paths, self._schema, self._key, self._place)
        gone = pa.concat_tables(
            [
                rows.append_column(_GONE, pa.repeat(ends, len(rows)))
                for rows, ends in ((upserts, False), (deletes, True))
            ],
            promote_options="default",
        )
        # Nulls are equal, such as those of a row without a partner. Without nulls, = says the same.
        equal = {name: "<=>" if gone.column(name).null_count else "=" for name in self._key}
        same = [f"{_TARGET}.{_quoted(name)} {operator} {_SOURCE}.{_quoted(name)}" for name, operator in equal.items()]
        merge = table.merge(
            gone, " AND ".join(same), source_alias=_SOURCE, target_alias=_TARGET, commit_properties=commit
        )
        merge = merge.when_matched_delete(f"{_SOURCE}.{_GONE}").when_matched_update_all(except_cols=[_GONE])
        merge.when_not_matched_insert_all(f"NOT {_SOURCE}.{_GONE}", except_cols=[_GONE]).execute()

    def _rows(self, paths: Sequence[Path]) -> pa.RecordBatchReader:
        assert self._schema is not None
        schema = spark_schema(self._schema)
        batches = (pa.RecordBatch.from_arrays(rows.columns, schema=schema) for rows in read_batches(paths))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _check_published(self, table: DeltaTable, batch: int, names: list[str], newest: int) -> None:
        """Raise SparkJoinError unless the commit of a batch names the same files, if the log still has the commit."""
        with self._refused(f"reading the commit of batch {batch}"):
            history = table.history()
        for commit in history:
            if (commit.get(_JOB), commit.get(_BATCH)) == (self._job, batch):
                check_same(self.path, batch, set(commit[_FILES]), set(names))
                with self._refused(f"syncing batch {batch}"):
                    self._sync(commit["version"])  # an earlier attempt may have ended before the sync
                return
        if newest > batch:  # batches come in order, so only the newest batch may be repeated
            raise SparkJoinError(
                f"{self.path} holds batch {newest} of this job, and now batch {batch} comes: the checkpoint is new, or"
                " an older copy. Restore it, or start with a new checkpoint under another path and a table of its own"
            )

    def _check_empty(self) -> None:
        if self._root is not None and self._root.exists() and (names := sorted(os.listdir(self._root))):
            raise SparkJoinError(
                f"{self._root} holds {names[0]!r} and is no Delta table; give an empty directory, or a Delta table"
            )

    def _sync(self, version: int) -> None:
        """Make a commit and its data files survive a power cut. In an object store they are always durable."""
        if self._root is None:
            return
        log = self._root / "_delta_log"
        entry = log / f"{version:020}.json"
        actions: list[dict[str, Any]] = [json.loads(line) for line in entry.read_text().splitlines()]
        data = [self._root / unquote(action["add"]["path"]) for action in actions if "add" in action]
        directories = {directory for path in data for directory in path.parents if directory.is_relative_to(self._root)}
        for path in (*data, *directories, entry, log, self._root):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _refused(self, action: str) -> Iterator[None]:
        """Turn any error of deltalake into a SparkJoinError that names the table, the action and a remedy."""
        try:
            yield
        except SparkJoinError:
            raise
        except Exception as problem:  # deltalake raises many classes, some of them plain Exception
            plain = " ".join(_COLOUR.sub("", str(problem) or type(problem).__name__).split())
            raise SparkJoinError(
                f"{self._place}: {action} failed: {plain[:_SHOWN]}; check that the driver may write there,"
                " then start the job again"
            ) from problem


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'

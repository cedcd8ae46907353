"""Writes data files, and a log that names the files that count, similar to Delta Lake's transaction log.

    results/data/000000000000-….parquet
    results/_log/000000000000.json      {"batch": 0, "files": [{"name": …, "rows": …, "bytes": …}]}
    results/_log/schema.arrow           schema of the results, an Arrow IPC message
    results/_staging/                   files that are being written

A batch is visible once its log entry exists, and an entry appears atomically: a reader sees either the whole batch or
no part of it. A batch without results has an entry without files. Use `read_transactions`, because `data/` may contain
files that no entry names.

Source of the idea: Armbrust et al., "Delta Lake: high-performance ACID table storage over cloud object stores", VLDB
2020, sec. 3. This log has a single writer, so it needs no put-if-absent and no checkpoints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.local_path import local_path
from eddy.spark.streaming.sinks.base import read_files
from eddy.spark.streaming.sinks.directory import DirectorySink, check_same
from eddy.spark.streaming.sinks.staging import checked_names, explained, row_count
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.storage.durable import RESULT_FILE, sync_directory, write_whole
from stairs.storage.json_form import FormError, fields, file_name, integer, list_of, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENTRY = ".json"
_SCHEMA = "schema.arrow"
_ENTRY_FORM = fields(
    {
        "batch": integer(0),
        "files": list_of(fields({"name": file_name, "rows": integer(0), "bytes": integer(0)})),
    }
)


class TransactionSink(DirectorySink):
    """Publishes a batch by writing its log entry."""

    name = "transactions"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._data = self.path / "data"
        self._log = self.path / "_log"

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Prepare the directory. Also raises SparkJoinError for a log of results with another schema."""
        super().prepare(schema=schema, job=job, scratch=scratch)
        with explained(self.path, "preparing the directory of results"):
            self._write_schema(schema.remove_metadata())

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Move the files to path/data/ and write the entry. O(files) renames, three syncs."""
        names = checked_names(files)
        entry = self._log / f"{batch_name(batch)}{_ENTRY}"
        # Files of two batches may have the same name; the batch number keeps them apart.
        paths = [self._data / f"{batch_name(batch)}-{name}" for name in names]
        with explained(entry, f"publishing batch {batch}"):
            if entry.exists():
                there = {file["name"] for file in _entry(entry)["files"]}
                check_same(entry, batch, there, {path.name for path in paths})
                sync_directory(self._log)
                return
            self._files.take(batch, names, paths)
            listed = [{"name": path.name, "rows": row_count(path), "bytes": path.stat().st_size} for path in paths]
            write_whole(entry, json.dumps({"batch": batch, "files": listed}).encode(), RESULT_FILE)

    def _makes(self, name: str) -> bool:
        return name == self._data.name

    def _directories(self) -> Sequence[Path]:
        return (self._data, self._log)

    def _has_batches(self) -> bool:
        return bool(versions(self.path))

    def _write_schema(self, schema: pa.Schema) -> None:
        stored = _schema(self.path)
        if stored is None:
            write_whole(self._log / _SCHEMA, schema.serialize().to_pybytes(), RESULT_FILE)
        elif not stored.equals(schema):
            raise SparkJoinError(
                f"{self.path} holds results with the columns {_columns(stored)}, not {_columns(schema)}; give the"
                " results of this query a directory of their own"
            )


def versions(path: str | os.PathLike[str]) -> list[int]:
    """Return the published batches, ascending; an empty list for a directory without batches."""
    log = local_path(path, "path") / "_log"
    with explained(log, "listing the log"):
        names = os.listdir(log) if log.is_dir() else []
    return sorted(batch for name in names if (batch := batch_named(name, _ENTRY)) is not None)


def snapshot(path: str | os.PathLike[str], upto: int | None = None) -> list[Path]:
    """Return the files of all batches up to and including `upto`, in order of batches; None = of all current batches.

    Raises SparkJoinError without a log, and for a batch `upto` that is not in the log. O(batches + files).
    """
    root = local_path(path, "path")
    there = versions(root)
    if not (root / "_log").is_dir():
        raise SparkJoinError(f"{root} has no log of results; give the path to which a job wrote with a TransactionSink")
    if upto is not None and upto not in there:
        span = f"published are batches {there[0]} to {there[-1]}" if there else "no batch is published yet"
        raise SparkJoinError(f"{root}: batch upto={upto} is not published; {span}")
    return [path for batch in there if upto is None or batch <= upto for path in batch_files(root, batch)]


def batch_files(root: Path, batch: int) -> list[Path]:
    """Return the files of a published batch. Raises SparkJoinError for a damaged or missing entry."""
    path = root / "_log" / f"{batch_name(batch)}{_ENTRY}"
    with explained(path, "reading the entry of a batch"):
        return [root / "data" / file["name"] for file in _entry(path)["files"]]


def read_transactions(spark: SparkSession, path: str | os.PathLike[str], upto: int | None = None) -> DataFrame:
    """Return the results that a `transactions` sink published up to a batch, as a DataFrame.

        pairs = eddy.spark.read_transactions(spark, "results", upto=41)

    path   directory of the sink
    upto   last batch to read; None = all current batches

    Raises SparkJoinError without a log, and for a batch `upto` that is not published. O(batches + files).
    """
    root = local_path(path, "path")
    files = snapshot(root, upto)
    return read_files(spark, saved_schema(root), files)


def saved_schema(root: Path) -> pa.Schema:
    """Return the schema of the results. Raises SparkJoinError if the directory has no schema."""
    schema = _schema(root)
    if schema is None:
        raise SparkJoinError(
            f"{root / '_log' / _SCHEMA} is missing: give the path to which a job wrote with a transactions sink, or"
            " start the job again, which writes it"
        )
    return schema


def _entry(path: Path) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = parse(path.read_bytes())
        _ENTRY_FORM(entry, "entry")
    except FormError as problem:
        raise SparkJoinError(
            f"{path} is damaged ({problem}); restore it from a backup: nothing else names the files of this batch"
        ) from problem
    return entry


def _schema(root: Path) -> pa.Schema | None:
    path = root / "_log" / _SCHEMA
    if not path.exists():
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))
    except (pa.ArrowException, OSError) as problem:
        raise SparkJoinError(f"{path} is damaged; remove it and start the job again, which writes it") from problem


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)

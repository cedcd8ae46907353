"""Files that a task writes while it joins: its results, and the late rows of its key groups."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.partitioning.engine import as_spark
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.late_files import named_in_footer
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.types import spark_schema
from eddy.storage.durable import make_directories, private_opener, sync_directory

ROW_GROUP_BYTES = 1 << 20
"""Bytes of results that are written together."""
FEW_ROWS = 1000
"""Rows for which a dictionary of values takes more time than it saves."""


class ResultFile:
    """The results of one task as one Parquet file, created with the first result.

    staging   directory of the file; None = results are only counted
    keep      puts the durable file where the driver finds it (`Locations.keep`)
    """

    def __init__(
        self,
        staging: Path | None,
        partition: int,
        schema: pa.Schema,
        keep: Callable[[Path], None] | None,
    ) -> None:
        self._staging, self._keep = staging, keep
        self._name = f"part-{partition:05d}-{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._few: list[pa.Table] = []
        self._bytes = 0
        self.rows = 0

    def write(self, results: pa.Table) -> None:
        """Append results."""
        self.rows += results.num_rows
        if self._staging is None or not results.num_rows:
            return
        # A row group of Parquet costs as much as some thousand rows, and each key group brings results of each query.
        self._few.append(results)
        self._bytes += results.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_few()

    def _write_few(self) -> None:
        """Write the results that wait, as one row group or more."""
        if self._staging is None or not self._few:
            return
        if self._writer is None:
            self._staging.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._staging / self._name, self._schema)
        waiting, self._few, self._bytes = pa.concat_tables(self._few), [], 0
        self._writer.write_table(as_spark(waiting, self._schema))

    def finish(self) -> None:
        """Write the file to its end. Idempotent."""
        if self._staging is None:
            return
        if self._writer is not None:
            self._write_few()
            self._writer.close()
        elif self._few:
            self._write_small(self._staging)

    def _write_small(self, staging: Path) -> None:
        """Write the only row group, in less time than a file takes that Arrow opens by its path."""
        whole, results = pa.BufferOutputStream(), pa.concat_tables(self._few)
        with pq.ParquetWriter(whole, self._schema, use_dictionary=results.num_rows > FEW_ROWS) as writer:
            writer.write_table(as_spark(results, self._schema))
        staging.mkdir(parents=True, exist_ok=True)
        with open(staging / self._name, "xb") as file:  # which writes all bytes or raises an error
            file.write(whole.getvalue())
        self._few, self._writer = [], writer

    def close(self) -> list[OutputFile]:
        """Make the file durable and return its entry; return no entry without results."""
        self.finish()
        if self._writer is None or self._staging is None:
            return []
        entry = _durable(self._staging, self._name, self.rows)
        if self._keep is not None:
            self._keep(self._staging / self._name)
        return [entry]


def write_late(locations: Locations, batch: int, stream: int, rows: list[pa.RecordBatch]) -> OutputFile:
    """Write late rows of one stream to a new file and make it durable."""
    return replace(write_set_aside(locations, batch, str(stream), rows), stream=stream)


def write_set_aside(locations: Locations, batch: int, what: str, rows: list[pa.RecordBatch]) -> OutputFile:
    """Write late or failed rows to a new file in the directory of late rows, and make the file durable."""
    name = f"{batch_name(batch)}-{what}-{uuid.uuid4().hex}.parquet"
    table = pa.Table.from_batches(rows)
    table = as_spark(table, spark_schema(table.schema))
    table = table.cast(named_in_footer(table.schema, name))
    directory = locations.late
    make_directories(directory)
    with open(directory / name, "xb", opener=private_opener) as file:
        pq.write_table(table, file)
    entry = _durable(directory, name, table.num_rows)
    locations.keep(directory / name)
    return entry


def _durable(directory: Path, name: str, rows: int) -> OutputFile:
    """Make a file survive a power cut; return its entry for the manifest."""
    descriptor = os.open(directory / name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    sync_directory(directory)
    return OutputFile(file=name, rows=rows, bytes=size)

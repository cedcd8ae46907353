"""Sinks for tests, as a job prepares them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddy.spark.streaming.sinks import ParquetSink, Sink, TransactionSink

ROWS = pa.schema([("R.k", pa.int64()), ("S.v", pa.string())])

S = TypeVar("S", bound=Sink)
Lasting: TypeAlias = ParquetSink | TransactionSink

lasting = pytest.mark.parametrize("kind", [ParquetSink, TransactionSink])


def ready(sink: S, scratch: Path, schema: pa.Schema = ROWS, job: str = "one") -> S:
    """Prepare a sink as a job does when it starts."""
    sink.prepare(schema=schema, job=job, scratch=scratch)
    return sink


def stage(sink: Sink, batch: int, **files: list[int]) -> list[str]:
    """Write files as tasks do, and one of an abandoned attempt; return the names that count."""
    place = sink.staging(batch)
    for name, keys in {**files, "lost": [-1]}.items():
        table = pa.table({"R.k": keys, "S.v": [str(key) for key in keys]}, schema=ROWS)
        pq.write_table(table, place / f"{name}.parquet")
    return [f"{name}.parquet" for name in files]

"""Streams with late rows, and takers of late rows."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import eddy

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def two_streams(kind: pa.DataType | None = None, streams: dict[str, Any] | None = None, **more: Any) -> eddy.Query:
    schema = SCHEMA if kind is None else pa.schema([("k", pa.int64()), ("t", kind)])
    span = timedelta(days=1) if kind is not None else 100
    made = [eddy.Stream(name, schema, eddy.Range(span), "t", late=(streams or {}).get(name)) for name in "RS"]
    # One stream alone makes rows of both late.
    return eddy.Query(made, ["R.k = S.k"], **{"watermark": "fastest", **more})


def rows(*times: Any, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return rows of key 1 at these times."""
    return pa.RecordBatch.from_pylist([{"k": 1, "t": t} for t in times], schema=schema)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings logged since the last call."""
    texts = [record.getMessage() for record in caplog.records if record.name == "eddy.results.side_output"]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    caplog.clear()
    return texts


class Taker:
    """A function for late rows that records them, and can be set to fail."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[int]]] = []
        self.error: BaseException | None = None

    def __call__(self, stream: str, table: pa.Table) -> None:
        self.taken.append((stream, table["t"].to_pylist()))
        if self.error is not None:
            raise self.error

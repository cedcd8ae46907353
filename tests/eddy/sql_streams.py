"""The streams that the tests of SQL name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from eddy import Stream, Unbounded

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("v", pa.int32()),
        ("d", pa.decimal128(6, 2)),
        ("x", pa.float32()),
        ("s", pa.string()),
        ("f", pa.bool_()),
        ("at", pa.timestamp("s")),
    ]
)
STREAMS = [Stream(name, SCHEMA, window=Unbounded(), time="at") for name in "abcd"]
TIMED = [Stream(name, SCHEMA, time="at") for name in "abcd"]


def a_and_b(**more: Any) -> list[Stream]:
    return [Stream(name, SCHEMA, window=Unbounded(), time="at", **more) for name in "ab"]

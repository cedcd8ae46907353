"""Shared code of the tests of live engines."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy import Predicate, Query, Range, Runtime, Stream
from eddy.live.engine_file import EngineFile

KEY = b"a secret of all tests"

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(20, 3)),
        ("b", pa.bool_()),
        ("t", pa.int64()),
        ("text", pa.string()),
        ("list", pa.list_(pa.int16())),
    ]
)


def odd(batch: pa.RecordBatch) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(batch["k"], 31), 31)


def long_query() -> Query:
    keep = [Predicate(odd, ["k"]), pc.field("t") >= 0, lambda batch: pc.is_valid(batch["t"])]
    streams = [Stream(name, SCHEMA, window=Range(60), time="t", filter=keep) for name in "RST"]
    return Query(streams, ["R.k = S.k", "S.s = T.s", "S.d = T.d"], where=pc.field("R.t") >= 0)


def long_rows(start: int, n: int = 40) -> dict[str, pa.RecordBatch]:
    """Return rows of each stream with drifting keys, strings, decimals, and nulls in some pushes only."""
    rows = np.arange(start, start + n)
    columns = {
        "k": rows % 13 + start // 100,
        "s": [f"key {r % 7 + start // 200}" for r in rows],
        "d": pa.array([Decimal(int(r) % 3) for r in rows], pa.decimal128(20, 3)),
        "b": [None if start > 300 and r % 5 == 0 else bool(r % 2) for r in rows],
        "t": rows,
        "text": [f"row {r}" * (r % 4) for r in rows],
        "list": [[int(r) % 9] * (r % 3) for r in rows],
    }
    return {name: pa.record_batch(columns, schema=SCHEMA) for name in "RST"}


def looks(runtime: Runtime) -> dict[str, Any]:
    """Return everything observable of a runtime except bytes and times."""
    metrics = runtime.metrics()
    del metrics["bytes"], metrics["late_bytes"]
    states = {
        name: {k: v for k, v in figures.items() if k != "bytes"} for name, figures in metrics.pop("states").items()
    }
    for stair in metrics["stairs"]:
        del stair["bytes"]
    history = [
        {name: value for name, value in row.items() if isinstance(value, int | str) or name in ("ended", "at")}
        for row in runtime.history().to_pylist()
    ]
    return {
        "metrics": {k: v for k, v in metrics.items() if k not in ("seconds", "classes")},
        "states": states,
        "history": history,
        "scheduled": runtime.scheduled(),
        "plan": runtime.plan,
        "snapshot": runtime.snapshot(),
        "filters": runtime.filters().select(["where", "predicate", "rows", "accepted"]).to_pylist(),
    }


class SavedRuntime:
    """A runtime that is saved in a file from the first call of `again` on."""

    def __init__(self, path: Path, runtime: Runtime) -> None:
        self.path, self.runtime = path, runtime
        self._file = EngineFile(path, KEY).__enter__()
        assert self._file.locked

    def again(self, query: Query, token: bytes = b"t") -> Runtime:
        """Save the runtime, leave the context, enter it again and load it."""
        self._file.save(self.runtime, token)
        self.leave()
        self._file.__enter__()
        loaded = self._file.load(token, query)
        assert loaded is not None
        self.runtime = loaded
        return loaded

    def leave(self) -> None:
        self._file.__exit__(None, None, None)


def in_child(work: Callable[[], None]) -> int | None:
    """Run a function in a forked process and return its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    return child.exitcode

"""Earlier rows of streams with event times, and of tables, are loaded in whatever order the query names its inputs."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import eddy

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64())])
ITEM = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = ("stream", "stream", "table", "table")
ORDERS = sorted({order[:n] for order in permutations(KINDS) for n in (2, 3, 4)} - {("table", "table")})


def query(order: tuple[str, ...]) -> eddy.Query:
    inputs = [
        eddy.Table(f"I{i}", ITEM, key="k") if kind == "table" else eddy.Stream(f"I{i}", SCHEMA, eddy.Range(10), "at")
        for i, kind in enumerate(order)
    ]
    return eddy.Query(inputs, [f"I{i}.k = I{i + 1}.k" for i in range(len(order) - 1)])


def rows(order: tuple[str, ...], start: int) -> dict[str, list[dict[str, Any]]]:
    random = Random(start)
    return {
        f"I{i}": [{"k": random.randrange(4), **({"v": n} if kind == "table" else {"at": start + n})} for n in range(6)]
        for i, kind in enumerate(order)
    }


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_loaded_runtime_goes_on_as_one_that_saw_the_rows(order: tuple[str, ...]) -> None:
    pushed, loaded = (eddy.Runtime(query(order), output="changelog") for _ in range(2))
    pushed.push(rows(order, 0))
    loaded.load(rows(order, 0))
    for start in (5, 14):
        expected, results = (runtime.push(rows(order, start)).to_pylist() for runtime in (pushed, loaded))
        assert expected
        assert sorted(map(repr, results)) == sorted(map(repr, expected))
    loaded.check()

"""Queries with branches whose rows are dealt to cells by several keys: one cell puts each row of the answer out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import Branch, Query, Runtime, Stream
from eddy.placement.shares import Shares, choose
from tests.eddy.drawn_branches import NAMES, SCHEMA, DrawnBranches, drawn, steps

Rows = list[tuple[str, dict[str, Any]]]


def answer(query: Query, rows: Rows) -> Counter[Any]:
    """Return the rows of a query over an input that ends."""
    runtime, counts = Runtime(query, bounded=True), Counter[Any]()
    names = [stream.name for stream in query.streams]
    pushed = {
        name: pa.RecordBatch.from_pylist([row for other, row in rows if other == name], schema=SCHEMA) for name in names
    }
    order = [names.index(name) for name, _ in rows]
    for table in (runtime.push(pushed, order), runtime.finish()):
        counts.update(tuple(row.values()) for row in table.to_pylist())
    return counts


def dealt(query: Query, shares: Shares, rows: Rows) -> list[Rows]:
    """Return the rows of each cell."""
    cells: list[Rows] = [[] for _ in range(shares.partitions)]
    names = [stream.name for stream in query.streams]
    for name, row in rows:
        i, base = names.index(name), 0
        for c in shares.has[i]:
            key = tuple(row[component[0]] for component in query.partition_classes[c].columns[name])
            base += hash(key) % shares.counts[c] * shares.strides[c]
        for offset in shares.offsets(i).tolist():
            cells[base + offset].append((name, row))
    return cells


@given(drawn([("unbounded",)]), st.data())
def test_the_answers_of_all_cells_are_the_answer(query: DrawnBranches, data: st.DataObject) -> None:
    rows = [arrival for push in steps(data.draw, list(query.streams)) for arrival in push]
    shares = choose(query.query, 1)
    counts = data.draw(st.tuples(*(st.integers(1, 3) for _ in shares.counts)))
    total = Counter[Any]()
    for cell_rows in dealt(query.query, replace(shares, counts=counts), rows):
        total += answer(query.query, cell_rows)
    assert total == answer(query.query, rows)


def stream(name: str) -> Stream:
    return Stream(name, SCHEMA, window=eddy.Unbounded())


R, S, T, U = map(stream, NAMES[:4])
CASES = {
    "each branch has a key of its own": (
        Query([R], branches=[Branch([S], ["R.a = S.a"], "left"), Branch([T], ["R.b = T.b"], "anti")]),
        [{"R": "a", "S": "a"}, {"R": "b", "T": "b"}],
    ),
    "the core has a key, and a branch another one": (
        Query([R, S], ["R.a = S.a"], branches=[Branch([T], ["S.b = T.b"], "left")]),
        [{"R": "a", "S": "a"}, {"S": "b", "T": "b"}],
    ),
    "a branch below a branch": (
        Query([R], branches=[Branch([S], ["R.a = S.a"], "left", [Branch([T], ["S.b = T.b", "R.b = T.a"], "semi")])]),
        [{"R": "a", "S": "a"}, {"R": "b", "T": "a"}],
    ),
    "a branch without an equality": (
        Query([R], branches=[Branch([S], ["R.a = S.a"], "left"), Branch([T], ["R.v < T.v"], "anti")]),
        [{"R": "a", "S": "a"}],
    ),
    "one column for two keys": (
        Query([R], branches=[Branch([S], ["R.a = S.a", "R.b = S.a"], "left"), Branch([T], ["R.b = T.b"], "left")]),
        [{"R": "b", "S": "a", "T": "b"}],
    ),
    "a key that all streams share": (
        Query([R], branches=[Branch([S], ["R.a = S.a", "R.b = S.b"], "left"), Branch([T], ["R.a = T.a"], "left")]),
        [{"R": "a", "S": "a", "T": "a"}],
    ),
    "a full join": (Query([R], branches=[Branch([S], ["R.v < S.v"], "full")]), []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_classes_by_which_rows_are_dealt(case: str) -> None:
    query, wanted = CASES[case]
    classes = [
        {name: components[0][0] for name, components in key_class.columns.items()}
        for key_class in query.partition_classes
    ]
    assert classes == wanted
    assert all(
        len(components) == 1 for key_class in query.partition_classes for components in key_class.columns.values()
    )

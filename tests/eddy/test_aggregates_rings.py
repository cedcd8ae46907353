"""Ring values against the oracle, and against enumeration: switches at any push, plans, snapshots, undo, memory."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Rows, Runtime, Stream, Unbounded, agg
from eddy.aggregates import ring_kernels
from eddy.aggregates.ring_choice import RingChoice
from eddy.aggregates.rings import served
from eddy.fuzz.aggregate_oracle import OracleAggregate, grouped
from eddy.fuzz.oracle import Oracle, OracleQuery, OracleStream
from eddy.live.engine_file import EngineFile
from jisc.strategies import STRATEGIES
from tests.eddy.drawn_aggregates import VALUES, row_texts, texts

NAMES = "RSTUV"
SCHEMA = pa.schema(
    [
        *((column, pa.int64()) for column in "abc"),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.int64()),
    ]
)
TREES: dict[str, list[str]] = {
    "chain": ["R.a = S.a", "S.b = T.b", "T.c = U.c"],
    "star": ["R.a = S.a", "R.b = T.b", "R.c = U.c"],
    "one key": ["R.a = S.a", "S.a = T.a"],
    "mixed": ["R.a = S.a", "S.a = T.a", "T.b = U.b", "T.c = V.c"],
    "pair": ["R.a = S.a"],
}
WINDOWS: dict[str, Any] = {"rows": Rows, "range": Range, "unbounded": lambda _: Unbounded()}


class Case:
    """A query that ring values serve, for the oracle and for eddy."""

    def __init__(self, draw: st.DrawFn, kinds: tuple[str, ...]) -> None:
        self.on = TREES[draw(st.sampled_from(tuple(TREES)))]
        self.names = [name for name in NAMES if any(name in one for one in self.on)]
        own = [draw(st.sampled_from(kinds)) for _ in self.names]
        sizes = [draw(st.integers(1, 5)) for _ in own]
        time = "t" if "range" in own or draw(st.booleans()) else None
        streams = [OracleStream(*one, time) for one in zip(self.names, own, sizes, strict=True)]
        pairs = [tuple(tuple(side.split(".")) for side in one.split(" = ")) for one in self.on]
        self.oracle = Oracle(OracleQuery(streams, pairs, 0))  # type: ignore[arg-type]
        root = draw(st.sampled_from(self.names))
        self.keys = draw(st.lists(st.sampled_from([f"{root}.{c}" for c in "gxda"]), max_size=2, unique=True))
        picks = draw(
            st.lists(
                st.tuples(st.sampled_from(("sum", "avg", "count")), st.sampled_from(self.names), st.sampled_from("xid")),
                min_size=1,
                max_size=4,
            )
        )
        self.functions = [
            OracleAggregate("count"),
            *(OracleAggregate(function, f"{name}.{column}") for function, name, column in picks),
        ]
        self.query = Query(
            [
                Stream(one.name, SCHEMA, window=WINDOWS[one.window](one.size), time=one.time)
                for one in streams
            ],
            self.on,
            group_by=self.keys,
            aggregates={
                f"f{k}": getattr(agg, one.function)(*([one.column] if one.column else []))
                for k, one in enumerate(self.functions)
            },
        )
        assert served(self.query).root >= 0

    def row(self, numbers: Any) -> dict[str, Any]:
        """Return a result by column names."""
        return {
            f"{name}.{column}": value
            for name, n in zip(self.names, numbers, strict=True)
            for column, value in self.oracle.tuples[name][n].items()
        }

    def groups(self, results: Any) -> Counter[tuple[str, ...]]:
        """Return the rows of groups over some results, as text."""
        found = grouped([self.row(one) for one in results], self.keys, self.functions)
        return row_texts((*key, *values) for key, values in found.items())


def drawn_rows(draw: st.DrawFn, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Draw arrivals."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    found = []
    for k in range(draw(st.integers(5, 40))):
        row: dict[str, Any] = {column: rng.choice((1, 1, 2, None if rng.random() < 0.1 else 2)) for column in "abc"}
        row |= {column: rng.choice(VALUES[column]) for column in "gxid"}
        row["t"] = k - (rng.randrange(8) if rng.random() < 0.1 else 0)
        found.append((rng.choice(names), row))
    return found


def pushed(runtime: Runtime, names: list[str], rows: list[tuple[str, dict[str, Any]]]) -> pa.Table:
    """Push rows in their order."""
    own = {name: pa.Table.from_pylist([row for n, row in rows if n == name], schema=SCHEMA) for name in names}
    return runtime.push(own, [names.index(name) for name, _ in rows])


def forced(runtime: Runtime, on: bool | None) -> RingChoice:
    """Let ring values serve, or not."""
    rings = runtime._engine.rings
    assert rings is not None
    rings.choice.forced = on
    return rings.choice


@given(st.data(), st.sampled_from(("live", "end")))
def test_groups_are_those_of_the_oracle_through_switches(data: st.DataObject, form: str) -> None:
    kinds = data.draw(st.sampled_from((("rows",), ("range", "rows"), ("unbounded", "rows"), ("unbounded",))))
    case = Case(data.draw, kinds)
    options: dict[str, Any] = {"output": "changelog"} if form == "live" else {"bounded": True}
    strategy = data.draw(st.sampled_from(tuple(STRATEGIES)))
    runtime = Runtime(case.query, strategy=strategy, **options)
    standing: Counter[tuple[int, ...]] = Counter()
    answer: Counter[tuple[str, ...]] = Counter()
    rows, at, served_pushes = drawn_rows(data.draw, case.names), 0, 0
    while at < len(rows):
        choice = forced(runtime, data.draw(st.sampled_from((True, True, False))))
        size = data.draw(st.sampled_from((1, 3, 8, 0)))
        for name, row in rows[at : at + size]:
            outcome = case.oracle.arrive(name, row)
            if form == "live":
                standing.subtract([*outcome.expired, *outcome.displaced])
            standing.update(outcome.results)
        table = pushed(runtime, case.names, rows[at : at + size])
        served_pushes += choice.on
        at += size
        runtime.check()
        expected = case.groups(standing.elements())
        assert texts(runtime.groups()) == expected
        if form == "live":
            went = texts(table.filter(pc.field("op") == "-D").drop_columns("op"))
            came = texts(table.filter(pc.field("op") == "+I").drop_columns("op"))
            assert not went & came
            answer = answer - went + came
            assert answer == expected
        if data.draw(st.integers(0, 5)) == 0:
            runtime = Runtime.restore(runtime.snapshot(), case.query)
        elif len(case.names) > 2 and STRATEGIES[runtime.strategy].changes and data.draw(st.integers(0, 5)) == 0:
            runtime.transition(reordered(case))
    event(f"pushes by ring values: {min(served_pushes, 5)}")
    if form == "end":
        assert texts(runtime.finish()) == case.groups(standing.elements())


def reordered(case: Case) -> str:
    """Return another plan: left-deep, from the last stream on."""
    left = [case.names[-1]]
    text = left[0]
    while len(left) < len(case.names):
        for name in case.names:
            if name not in left and any(name in one and any(other in one for other in left) for one in case.on):
                text = f"({text}) {name}" if len(left) > 1 else f"{text} {name}"
                left.append(name)
                break
    return text

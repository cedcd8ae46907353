"""Joins without an equality: hash joins and nested loops in one plan, states completed tuple by tuple."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from jisc.plan.orders import has_choice
from jisc.plan.states import Masks
from jisc.strategies import STRATEGIES

FOUR = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("n", pa.int64())])
HYBRID = ["R.x < S.x", "S.k = T.k", "U.x between T.x - 1 and T.x + 1"]
PLANS = ("((R S) T) U", "R (S (T U))", "(R S) (T U)", "((U T) S) R", "(R (S T)) U")


def four(window: eddy.Rows | eddy.Unbounded, on: list[str]) -> eddy.Query:
    return eddy.Query([eddy.Stream(name, FOUR, window) for name in "RSTU"], on, select=[f"{n}.n" for n in "RSTU"])


@pytest.mark.campaign(6)
@pytest.mark.parametrize("output", ["append", "changelog"])
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_hash_joins_and_nested_loops_in_one_plan(strategy: str, output: Any) -> None:
    query, chance = four(eddy.Rows(12), HYBRID), random.Random(7)
    assert query.scans == (("R", "S"), ("T", "U"))
    runtime = eddy.Runtime(query, strategy=strategy, policy="fixed", output=output)
    arrived: dict[str, list[dict[str, int]]] = {name: [] for name in "RSTU"}
    for step in range(24):
        if step % 4 == 3 and STRATEGIES[strategy].changes:
            runtime.transition(PLANS[step // 4 % len(PLANS)], at=runtime.position + chance.randrange(8))
        rows = [
            ("RSTU"[i], {"k": chance.randrange(3), "x": chance.randrange(20), "n": 100 * step + at})
            for at, i in enumerate(chance.choices(range(4), k=16))
        ]
        pushed = {
            name: pa.RecordBatch.from_pylist([row for stream, row in rows if stream == name], schema=FOUR)
            for name in "RSTU"
        }
        changes = runtime.push(pushed, ["RSTU".index(name) for name, _ in rows]).to_pylist()
        expected = []
        for name, row in rows:
            arrived[name].append(row)
            r, s, t, u = ([row] if stream == name else arrived[stream][-12:] for stream in "RSTU")
            expected += [
                (a["n"], b["n"], c["n"], d["n"])
                for a in r
                for b in s
                for c in t
                for d in u
                if a["x"] < b["x"] and b["k"] == c["k"] and abs(d["x"] - c["x"]) <= 1
            ]
        combinations = [tuple(change[f"{n}.n"] for n in "RSTU") for change in changes if change.get("op", "+I") == "+I"]
        assert sorted(combinations) == sorted(expected)
        runtime.check()


def test_a_state_probed_by_an_inequality_is_completed_tuple_by_tuple() -> None:
    query = four(eddy.Unbounded(), ["R.x < S.x", "S.k = T.k", "T.k = U.k"])
    runtime = eddy.Runtime(query, "((S R) T) U", strategy="jisc")
    for name in "STU":
        rows = pa.RecordBatch.from_pylist([{"k": n % 50, "x": n, "n": n} for n in range(100)], schema=FOUR)
        runtime.push({name: rows})
    runtime.transition("R (S (T U))")

    def promoted() -> int:
        states = runtime.metrics()["stairs"]
        return next(state["promoted"] for state in states if state["streams"] == ["S", "T", "U"])

    assert promoted() == 0
    table = runtime.push({"R": pa.RecordBatch.from_pylist([{"k": 0, "x": 96, "n": 0}], schema=FOUR)})
    # Only the tuples 97, 98 and 99 of S have a greater x.
    assert promoted() == 3
    assert sorted(set(table["S.n"].to_pylist())) == [97, 98, 99]
    assert table.num_rows == 3 * 2 * 2
    runtime.check()


def test_a_plan_across_a_comparison_that_needs_no_scan_is_refused() -> None:
    query = four(eddy.Unbounded(), ["R.k = S.k", "R.k = T.k", "R.k = U.k", "S.x < U.n"])
    assert query.scans == ()
    chain = four(eddy.Unbounded(), ["R.k = S.k", "R.n = T.n", "T.k = U.k", "S.x < T.x"])
    with pytest.raises(eddy.PlanError, match="which only comparisons connect"):
        eddy.Runtime(chain, "((S T) R) U")


def test_the_order_of_streams_with_comparisons_matters() -> None:
    """The default policy tries other orders only where they matter."""
    assert has_choice(Masks(four(eddy.Unbounded(), HYBRID).graph))
    assert not has_choice(Masks(four(eddy.Unbounded(), ["R.k = S.k", "S.k = T.k", "T.k = U.k"]).graph))

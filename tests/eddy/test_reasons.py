"""Decisions as `history` and `explain` show them. All but one with `decide_every`, so that nothing depends on time."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.routing.policies import Decision
from jisc.strategies import STRATEGIES, base
from tests.eddy.decision_cases import CHAIN, LONG, A, B, Watch, push
from tests.eddy.queries import make_query


@pytest.fixture
def query() -> eddy.Query:
    return make_query(CHAIN, eddy.Rows(40))


def test_history_gives_reasons_and_effects(query: eddy.Query, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(base, "perf_counter", lambda: 0.25 * next(clock))
    policy = Watch(lambda view, n: Decision("((S T) R) U", ["S T"], "it was time") if n == 1 else None)
    runtime = eddy.Runtime(query, A, policy=policy, decide_every=100, count_only=True)
    runtime.transition(B, at=40)
    for seed in range(30):
        push(runtime, seed, 20)
    rows = runtime.history().to_pylist()
    assert [row["reason"] for row in rows] == ["asked for", "watch: it was time"]
    assert [(row["old"], row["new"], row["stored"]) for row in rows] == [(A, B, ""), (B, "((S T) R) U", "S T")]
    assert [row["position"] for row in rows] == [40, 140]
    for row in rows:
        assert row["seconds"] == 0.25
        assert row["ns_after"] > 0
        assert row["longest"] > 0
    assert rows[1]["ns_before"] > 0
    assert (rows[1]["incomplete"], rows[1]["dropped"]) == (1, 0)


def test_history_tells_of_states_dropped_for_room(query: eddy.Query) -> None:
    free = eddy.Runtime(query, A, policy="fixed", store=["R S", "R S T"], count_only=True)
    for seed in range(6):
        push(free, seed, 50)
    states = sum(stair.nbytes for stair in free.stairs)
    base = free._pipeline.join.bound.base()
    bounded = eddy.Runtime(
        query, A, policy="fixed", store=["R S", "R S T"], max_bytes=base + states // 2, count_only=True
    )
    plain = eddy.Runtime(query, A, strategy="mjoin", count_only=True)
    for seed in range(6):
        assert push(bounded, seed, 50) == push(plain, seed, 50)
    rows = bounded.history().to_pylist()
    assert rows
    assert {row["reason"] for row in rows} == {"there was no room for the states"}
    assert all(row["old"] == row["new"] == A for row in rows)
    assert all(row["dropped"] >= 1 for row in rows)
    assert len(bounded.stairs) < 2
    (line,) = [line for line in bounded.explain().splitlines() if line.startswith("max_bytes")]
    assert "room for states" in line


def test_explain_says_why_the_plan_stands() -> None:
    query = make_query(LONG, eddy.Rows(60))
    runtime = eddy.Runtime(query, "M Q P S T", decide_every=300, count_only=True)
    assert "no arrivals yet" in runtime.explain()
    rng = np.random.default_rng(1)
    for _ in range(8):
        rows = {
            stream.name: pa.record_batch(
                {c: rng.integers(0, 20, 300 if stream.name == "M" else 30) for c in stream.schema.names},
                schema=stream.schema,
            )
            for stream in query.streams
        }
        order = np.repeat(np.arange(5), [rows[stream.name].num_rows for stream in query.streams])
        runtime.push(rows, order=rng.permutation(order))
    text = runtime.explain()
    lines = text.splitlines()
    assert lines[0] == f"plan {runtime.plan}"
    (policy,) = [line for line in lines if line.startswith("policy ")]
    assert f"{runtime._pipeline.join.router.pace.decisions} decisions" in policy
    assert f"{runtime.history().num_rows} changes" in policy
    assert any(line.startswith("present ") for line in lines)
    assert "predicted" in text
    assert "considered last at arrival" in text
    at = next(k for k, line in enumerate(lines) if line.startswith("considered last"))
    inner = lines.index("inner states (predicted ns per arrival of any stream)")
    assert 1 <= inner - at - 1 <= 6
    # Cheapest first.
    costs = [float(line.split()[0].replace(",", "")) for line in lines[at + 1 : inner] if "more" not in line]
    assert costs == sorted(costs)
    states = lines[inner + 1 :]
    assert sum("net" in line and "upkeep" in line and "entries" in line for line in states) == 3


def test_explain_marks_what_is_stored(query: eddy.Query) -> None:
    runtime = eddy.Runtime(query, A, policy=Watch(), store=["R S"], decide_every=100, count_only=True)
    push(runtime, 1, 100)
    lines = [line for line in runtime.explain().splitlines() if "upkeep" in line]
    assert len(lines) == 2
    for line in lines:
        assert line.endswith("not stored") == ("R S T" in line)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_explains_itself(query: eddy.Query, strategy: str) -> None:
    runtime = eddy.Runtime(query, strategy=strategy, decide_every=50, max_bytes=1 << 24)
    assert "policy" in runtime.explain()
    push(runtime, 1, 60)
    if runtime._pipeline.join.strategy.changes:
        runtime.transition(B)
        assert "last change at arrival 240: asked for" in runtime.explain()
    push(runtime, 2, 60)
    assert "predicted" in runtime.explain()

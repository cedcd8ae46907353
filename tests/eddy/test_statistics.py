"""`Runtime.stats`: estimates against counted joins, and the table in every state of a runtime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.inspect.statistics import CHAINS, DRAWN, SCHEMA
from jisc.strategies import STRATEGIES
from tests.eddy.queries import make_query

CHAIN = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
ONE_KEY = {"R": "a", "S": "a", "T": "a", "U": "a"}


def draw(query: eddy.Query, seed: int, rows: int, keys: int) -> dict[str, pa.RecordBatch]:
    """Draw rows with skewed keys; half of the time the second column of a stream depends on the first."""
    rng = np.random.default_rng(seed)
    batches = {}
    for stream in query.streams:
        first = np.minimum(rng.geometric(3 / keys, rows), keys)
        columns = {}
        for column in stream.schema.names:
            columns[column] = np.where(rng.random(rows) < 0.5, first, rng.integers(0, keys, rows))
        batches[stream.name] = pa.record_batch(columns, schema=stream.schema)
    return batches


def of_kind(runtime: eddy.Runtime, kind: str) -> list[dict[str, Any]]:
    return [row for row in runtime.stats().to_pylist() if row["kind"] == kind]


def windows_of(pushes: list[dict[str, pa.RecordBatch]], size: int) -> dict[str, list[dict[str, int]]]:
    return {name: [row for batches in pushes for row in batches[name].to_pylist()][-size:] for name in pushes[0]}


def columns_of(query: eddy.Query, classes: list[int]) -> list[str]:
    """Return the column of a class; in these queries all its columns have one name."""
    return ["abc"[number - 1] for number in classes]


def joined(near: list[dict[str, int]], far: list[dict[str, int]], column: str) -> int:
    held = Counter(row[column] for row in far)
    return sum(held[row[column]] for row in near)


@pytest.mark.parametrize("columns", [CHAIN, ONE_KEY], ids=["chain", "one key"])
@pytest.mark.parametrize("pushes", [1, 5])
def test_estimates_are_exact_when_every_tuple_is_counted(columns: dict[str, str], pushes: int) -> None:
    query = make_query(columns, eddy.Rows(90))
    runtime = eddy.Runtime(query, count_only=True)
    pushed = [draw(query, seed, 40, 12) for seed in range(pushes)]
    for batches in pushed:
        runtime.push(batches, order=np.arange(160) % 4)
    windows = windows_of(pushed, 90)
    pairs, chains = of_kind(runtime, "pair"), of_kind(runtime, "chain")
    assert {(row["from"], row["to"]) for row in pairs} >= {("R", "S"), ("S", "R"), ("U", "T")}
    for pair in pairs:
        (column,) = columns_of(query, pair["classes"])
        near, far = windows[pair["from"]], windows[pair["to"]]
        held = {row[column] for row in far}
        assert pair["sampled"] == len(near)
        assert pair["size"] == pytest.approx(joined(near, far, column))
        assert pair["fanout"] == pytest.approx(pair["size"] / len(near))
        assert pair["hit"] == pytest.approx(sum(row[column] in held for row in near) / len(near))
        assert pair["error"] == pair["size_error"] == 0
    expected = {"chain": 2, "one key": 4}["one key" if columns is ONE_KEY else "chain"]
    assert len(chains) == len({(row["from"], row["through"], row["to"]) for row in chains}) == expected
    for chain in chains:
        x, y = columns_of(query, chain["classes"])
        left = Counter(row[x] for row in windows[chain["from"]])
        right = Counter(row[y] for row in windows[chain["to"]])
        assert chain["size"] == pytest.approx(sum(left[row[x]] * right[row[y]] for row in windows[chain["through"]]))
        assert chain["size_error"] == 0


def test_estimates_of_samples_lie_within_their_errors_and_on_no_side() -> None:
    query = make_query(CHAIN, eddy.Rows(1500))
    off = []
    for seed in range(12):
        runtime = eddy.Runtime(query, count_only=True)
        # Chains are short enough to be counted exactly.
        pushed = [draw(query, 100 + seed, 1500, 300)]
        runtime.push(pushed[0], order=np.arange(6000) % 4)
        windows = windows_of(pushed, 1500)
        for pair in of_kind(runtime, "pair"):
            assert pair["sampled"] == DRAWN
            exact = joined(windows[pair["from"]], windows[pair["to"]], columns_of(query, pair["classes"])[0])
            off.append((pair["size"] - exact) / pair["size_error"])
        for chain in of_kind(runtime, "chain"):
            x, y = columns_of(query, chain["classes"])
            left = Counter(row[x] for row in windows[chain["from"]])
            right = Counter(row[y] for row in windows[chain["to"]])
            exact = sum(left[row[x]] * right[row[y]] for row in windows[chain["through"]])
            off.append((chain["size"] - exact) / chain["size_error"])
    assert np.mean(np.abs(off) < 2) > 0.9
    assert np.abs(off).max() < 5
    assert abs(np.mean(off)) < 0.4


def test_correlated_attributes_of_the_middle_count() -> None:
    query = make_query({"R": "a", "S": "ab", "T": "b"}, eddy.Rows(100))
    runtime = eddy.Runtime(query, count_only=True)
    keys = list(range(10))
    even = pa.record_batch({"a": [0] * 10}), pa.record_batch({"b": [0] * 10})
    # A tuple of S has ten partners on one side or on the other, never on both.
    crossed = pa.record_batch({"a": [0] * 5 + [9] * 5, "b": [9] * 5 + [0] * 5})
    runtime.push({"R": even[0], "S": crossed, "T": even[1]}, order=[0] * 10 + [2] * 10 + [1] * len(keys))
    (chain,) = of_kind(runtime, "chain")
    assert chain["size"] == 0
    assert [pair["fanout"] for pair in of_kind(runtime, "pair") if pair["from"] == "S"] == [5, 5]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("policy", [None, "fixed", "rank"])
def test_every_strategy_has_the_table(strategy: str, policy: str | None) -> None:
    if policy == "rank" and not STRATEGIES[strategy].changes:
        policy = None
    query = make_query(CHAIN, eddy.Rows(50))
    runtime = eddy.Runtime(query, strategy=strategy, policy=policy, decide_every=40, count_only=True)
    empty = runtime.stats()
    assert empty.schema == SCHEMA
    assert set(empty["kind"].to_pylist()) == {"stream", "pair", "chain", "hop", "cost"}
    assert all(row["size"] is None for row in empty.to_pylist())
    for seed in range(3):
        runtime.push(draw(query, seed, 40, 8), order=np.arange(160) % 4)
    if STRATEGIES[strategy].changes:
        runtime.transition("U (T (S R))")
        runtime.push(draw(query, 9, 40, 8), order=np.arange(160) % 4)
    table = runtime.stats()
    assert table.schema == SCHEMA
    streams = of_kind(runtime, "stream")
    assert [row["arrivals"] for row in streams] == [runtime.position // 4] * 4
    assert [row["rows"] for row in streams] == [50] * 4
    assert sum(row["share"] for row in streams) == pytest.approx(1)
    hops = of_kind(runtime, "hop")
    assert [(row["from"], row["to"], row["probes"], row["matches"]) for row in hops] == [
        tuple(hop.values()) for hop in runtime.metrics()["hops"]
    ]
    assert all(row["ns"] > 0 for row in hops if row["probes"])
    (cost,) = of_kind(runtime, "cost")
    assert cost["arrivals"] == runtime.position
    assert cost["samples"] > 0
    assert (cost["decisions"] > 0) == (runtime.policy != "fixed")
    runtime.check()


def test_looking_changes_nothing() -> None:
    query = make_query(CHAIN, eddy.Rows(60))
    looked = eddy.Runtime(query, policy="rank", decide_every=50, count_only=True)
    left_alone = eddy.Runtime(query, policy="rank", decide_every=50, count_only=True)
    for seed in range(6):
        batches = draw(query, seed, 37, 9)
        for runtime in (looked, left_alone):
            runtime.push(batches, order=np.arange(4 * 37) % 4)
        before = looked.stats()
        assert looked.explain()
        assert looked.stats() == before
    columns = ["position", "reason", "old", "new"]
    assert looked.history().select(columns) == left_alone.history().select(columns)
    assert (
        looked._pipeline.join.router.samples.picked.tolist() == left_alone._pipeline.join.router.samples.picked.tolist()
    )


def test_without_statistics_there_are_counts_only() -> None:
    query = make_query(CHAIN, eddy.Rows(60))
    runtime = eddy.Runtime(query, statistics=False, count_only=True)
    runtime.push(draw(query, 1, 50, 9), order=np.arange(200) % 4)
    rows = runtime.stats().to_pylist()
    assert [row["arrivals"] for row in rows if row["kind"] == "stream"] == [50] * 4
    assert sum(row["probes"] or 0 for row in rows) == runtime.metrics()["probes"]
    for row in rows:
        assert row["size"] is row["fanout"] is row["share"] is row["recent"] is None
    assert (rows[-1]["samples"], rows[-1]["decisions"]) == (0, 0)
    assert "statistics are off" in runtime.explain()


def test_shares_are_those_the_next_sample_would_see() -> None:
    query = make_query({"R": "a", "S": "a"}, eddy.Rows(60))
    runtime = eddy.Runtime(query, policy="fixed", decide_every=8, count_only=True)
    rows = pa.record_batch({"a": list(range(8))})
    runtime.push({"R": rows.slice(0, 6), "S": rows.slice(0, 2)}, order=[0] * 6 + [1] * 2)
    assert [(row["share"], row["fresh"]) for row in of_kind(runtime, "stream")] == [(0.75, 6), (0.25, 2)]
    runtime.push({"S": rows}, order=[1] * 8)
    shares = [(row["share"], row["fresh"]) for row in of_kind(runtime, "stream")]
    assert shares[0][0] + shares[1][0] == pytest.approx(1)
    assert 0.25 < shares[1][0] < 1
    assert shares[1][1] == 8


def test_restored_and_renumbered_windows_are_counted_right() -> None:
    query = make_query(CHAIN, eddy.Rows(30))
    runtime = eddy.Runtime(query, renumber_at=64, count_only=True)
    pushed = [draw(query, seed, 20, 6) for seed in range(8)]
    for batches in pushed:
        runtime.push(batches, order=np.arange(80) % 4)
    windows = windows_of(pushed, 30)
    again = eddy.Runtime.restore(runtime.snapshot(), query)
    for either in (runtime, again):
        for pair in of_kind(either, "pair"):
            (column,) = columns_of(query, pair["classes"])
            assert pair["size"] == pytest.approx(joined(windows[pair["from"]], windows[pair["to"]], column))


def test_many_streams_on_one_key_have_chains_up_to_a_number() -> None:
    query = make_query({f"S{i}": "a" for i in range(40)}, eddy.Rows(10))
    runtime = eddy.Runtime(query, count_only=True)
    assert len(of_kind(runtime, "chain")) == CHAINS
    assert len(of_kind(runtime, "pair")) == 40 * 39

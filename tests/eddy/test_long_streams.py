"""Long streams compared with the oracle: windows turn over many times, buffers grow, ids are reused."""

from __future__ import annotations

import random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import eddy
from jisc.strategies import STRATEGIES, StrategyName
from stairs.stems import RENUMBER_AT
from tests.cases import (
    Arrival,
    BatchedPush,
    JoinCase,
    StreamCase,
    assert_same,
    feed,
    id_rows,
    late_rows,
    results,
    text_rows,
)

KINDS: tuple[Literal["rows", "range"], ...] = ("rows", "range")


def drifting(seed: int, count: int, streams: int, kinds: int, jitter: int, text: bool = False) -> list[Arrival]:
    """Return arrivals whose keys come from a moving window: each key occurs for a while and never again."""
    rng = random.Random(seed)
    arrivals: list[Arrival] = []
    for k in range(count):
        row: dict[str, Any] = {"t": k + jitter - rng.randrange(2 * jitter + 1)}
        for column in ("a", "b"):
            key = k // 7 + rng.randrange(kinds)
            row[column] = None if rng.random() < 0.02 else f"a key as text, {key}" if text else key
        arrivals.append((rng.randrange(streams), row))
    return arrivals


@pytest.mark.parametrize("window", KINDS)
@pytest.mark.parametrize(
    ("push_rows", "renumber_at"), [(1, RENUMBER_AT), (37, RENUMBER_AT), (10_000, RENUMBER_AT), (37, 256)]
)
def test_chain_on_two_classes(window: Literal["rows", "range"], push_rows: int, renumber_at: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int32()), ("t", pa.int64())])
    sizes = {"rows": (70, 9, 30), "range": (200, 20, 90)}[window]
    streams = tuple(StreamCase(name, schema, window, size, "t") for name, size in zip("RST", sizes, strict=True))
    case = JoinCase(
        streams, (((("R", "a"), ("S", "a")),), ((("S", "b"), ("T", "b")),)), lateness=8 * (window == "range")
    )
    arrivals = drifting(seed=7, count=1500, streams=3, kinds=12, jitter=5)
    # Sequence numbers are renumbered long before the arrivals end, so that results join rows from before and after.
    runtime = eddy.Runtime(case.query(), "R (S T)", ids_only=True, renumber_at=renumber_at)
    oracle = case.oracle()
    for at in range(0, len(arrivals), push_rows):
        push = BatchedPush(tuple(arrivals[at : at + push_rows]))
        table = runtime.push(push.batches(case), push.order())
        outcomes = feed(case, oracle, push.arrivals)
        assert_same(id_rows(case, table), results(outcomes), "ids of a push")
        late = {name: text_rows(rows) for name, rows in runtime.late().items() if rows.num_rows}
        assert late == late_rows(case, push.arrivals, outcomes)
        if at % (push_rows * 50) == 0:
            runtime.check()
    runtime.check()


@pytest.mark.parametrize("push_rows", [1, 100])
def test_keys_of_text_come_and_go(push_rows: int) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.large_string()), ("t", pa.int64())])
    streams = tuple(StreamCase(name, schema, "rows", 20, "t") for name in "RS")
    case = JoinCase(streams, (((("R", "a"), ("S", "a")), (("R", "b"), ("S", "b"))),))
    arrivals = drifting(seed=3, count=1500, streams=2, kinds=3, jitter=0, text=True)
    runtime = eddy.Runtime(case.query(), ids_only=True)
    oracle = case.oracle()
    total = 0
    for at in range(0, len(arrivals), push_rows):
        push = BatchedPush(tuple(arrivals[at : at + push_rows]))
        expected = results(feed(case, oracle, push.arrivals))
        assert_same(id_rows(case, runtime.push(push.batches(case), push.order())), expected, "ids of a push")
        total += len(expected)
    runtime.check()
    assert total > 500


def test_a_result_larger_than_any_room_made_for_it() -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(400)) for name in "RST"]
    query = eddy.Query(streams=streams, on=["R.k = S.k", "S.k = T.k"])
    runtime = eddy.Runtime(query)
    batch = pa.RecordBatch.from_arrays([pa.array(["same"] * 300), pa.array(range(300))], schema=schema)
    runtime.push({"R": batch, "S": batch}, np.repeat([0, 1], 300))
    table = runtime.push({"T": batch.slice(100, 3)})
    runtime.check()
    assert table.num_rows == 3 * 300 * 300
    assert set(table.column("T.n").to_pylist()) == {100, 101, 102}
    # Pushes of single rows give the results in the order of the arrivals.
    assert table.column("T.n").to_pylist() == [n for n in (100, 101, 102) for _ in range(300 * 300)]


@pytest.mark.campaign(3)
@pytest.mark.parametrize("n", [63, 64, 65, 128])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_streams_with_a_transition(strategy: StrategyName, n: int) -> None:
    """Sets of streams are numbers with a bit for each stream, and words have 64."""
    schema = pa.schema([("k", pa.int64())])
    streams = tuple(StreamCase(f"s{i}", schema, "rows", 2) for i in range(n))
    case = JoinCase(streams, tuple(((("s0", "k"), (f"s{i}", "k")),) for i in range(1, n)))
    plans = [" ".join(f"s{i}" for i in order) for order in (range(n), [n - 1, *range(1, n - 1), 0])]
    rng = random.Random(n)
    arrivals = [(i, {"k": key}) for key in range(3) for i in rng.sample(range(n), n)]
    purge: Literal["paper", "exact"] = "paper" if STRATEGIES[strategy].purges else "exact"
    runtime = eddy.Runtime(case.query(), plans[0], strategy=strategy, policy="fixed", purge=purge, ids_only=True)
    oracle, total = case.oracle(), 0
    for part in range(6):
        if part == 2 and strategy != "symmetric-hash":
            runtime.transition(plans[1])
        push = BatchedPush(tuple(arrivals[part * n // 2 : (part + 1) * n // 2]))
        expected = results(feed(case, oracle, push.arrivals))
        assert_same(id_rows(case, runtime.push(push.batches(case), push.order())), expected, "ids of a push")
        total += len(expected)
    runtime.check()
    assert total == 3


def test_many_streams_on_one_key() -> None:
    names = [f"s{i}" for i in range(128)]
    schema = pa.schema([("k", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(2)) for name in names]
    query = eddy.Query(streams=streams, on=[f"s0.k = {name}.k" for name in names[1:]])
    runtime = eddy.Runtime(query, ids_only=True)
    batch = pa.RecordBatch.from_arrays([pa.array(range(5))], schema=schema)
    table = runtime.push(dict.fromkeys(names, batch), np.tile(np.arange(128), 5))
    runtime.check()
    assert [list(set(row.values())) for row in table.to_pylist()] == [[k] for k in range(5)]

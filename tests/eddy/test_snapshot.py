"""Snapshots: a restored runtime continues as if nothing had happened."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Rows, Runtime, SnapshotError, Stream, Unbounded
from stairs.stems import RENUMBER_AT
from tests.cases import assert_same, feed, id_rows, late_rows, results, text_rows
from tests.draws import PAYLOADS, arrivals, cases, fewer, neighbours_by_predicate, plans, splits
from tests.eddy.snapshots import filled, make_query
from tests.key_types import to_arrow

CASES = cases()
MODES: tuple[dict[str, Any], ...] = ({}, {"ids_only": True}, {"count_only": True}, {"strategy": "cacq"})
TOTALS = ("arrivals", "results", "combinations", "inserts", "expired", "late")
STATE_TOTALS = ("arrivals", "inserts", "rows", "expired", "late")


def totals(runtime: Runtime) -> dict[str, Any]:
    """Return the counts that a restore preserves."""
    metrics = runtime.metrics()
    states = {name: [state[total] for total in STATE_TOTALS] for name, state in metrics["states"].items()}
    return {**{total: metrics[total] for total in TOTALS}, **states}


def restored(runtime: Runtime, query: Query, plan: str | None = None) -> Runtime:
    """Take a snapshot twice, restore it, and compare everything observable without a push."""
    saved = runtime.snapshot()
    runtime.check()
    assert runtime.snapshot() == saved
    again = Runtime.restore(saved, query, plan)
    again.check()
    assert totals(again) == totals(runtime)
    if plan is None:
        assert again.plan == runtime.plan
        assert again.snapshot() == saved
    return again


# --- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@fewer(3)
@given(st.data())
def test_a_restored_runtime_gives_what_the_oracle_gives(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    mode = data.draw(st.sampled_from(MODES))
    renumber_at = data.draw(st.sampled_from((RENUMBER_AT, 1, 16)))
    query = case.query()
    runtime = Runtime(query, renumber_at=renumber_at, **mode)
    oracle = case.oracle()
    held: dict[str, list[tuple[str, ...]]] = {}
    restores = 0
    for batched in pushes:
        for _ in range(data.draw(st.sampled_from((0, 0, 0, 1, 0, 2)))):
            # A new Query object, as in another process.
            query = case.query()
            runtime = restored(runtime, query, data.draw(st.none() | plans(case, neighbours_by_predicate(case))))
            restores += 1
        table = runtime.push(batched.batches(case), batched.order())
        outcomes = feed(case, oracle, batched.arrivals)
        expected = results(outcomes)
        if "count_only" in mode:
            assert table.to_pydict() == {"count": [len(expected)]}
        elif "ids_only" in mode:
            assert_same(id_rows(case, table), expected, "ids of a push")
        else:
            assert table.schema == query.output_schema
            assert_same(text_rows(table), [case.project(oracle, result) for result in expected], "rows of a push")
        for name, rows in late_rows(case, batched.arrivals, outcomes).items():
            held.setdefault(name, []).extend(rows)
        if data.draw(st.integers(0, 3)) == 0:
            assert {name: text_rows(rows) for name, rows in runtime.late().items() if rows.num_rows} == held
            held = {}
    runtime = restored(runtime, query)
    assert {name: text_rows(rows) for name, rows in runtime.late().items() if rows.num_rows} == held
    event(f"restores: {'none' if not restores else 'some'}")


@pytest.mark.campaign(0)
@pytest.mark.versions
@pytest.mark.slow
@fewer(3)
@given(st.data())
def test_the_same_plan_gives_the_very_same_tables(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
    mode = data.draw(st.sampled_from(MODES))
    # A policy that depends on time may change the plan of one runtime only.
    whole, broken = (Runtime(case.query(), plan, policy="fixed", **mode) for _ in range(2))
    every = data.draw(st.sampled_from((1, 3)))
    for n, batched in enumerate(pushes):
        batches, order = batched.batches(case), batched.order()
        expected, table = (runtime.push(batches, order) for runtime in (whole, broken))
        assert table.schema == expected.schema
        assert text_rows(table) == text_rows(expected)
        assert totals(broken) == totals(whole)
        if n % every == 0:
            broken = restored(broken, case.query())
            # The restored state is the same to the byte.
            assert broken.snapshot() == whole.snapshot()


PAYLOAD_COLUMNS = [(f"p{k}", kind) for k, kind in enumerate([*PAYLOADS, pa.int16()])]


def long_stream_rows(start: int, rows: int, names: str, text: bool) -> dict[str, pa.RecordBatch]:
    """Return rows of every payload type, with nulls in some pushes only, drifting keys and jumping event times."""
    batches = {}
    for name in names:
        rng = random.Random(f"{name}{start}")
        keys = [None if rng.random() < 0.02 else (start + k) // 9 + rng.randrange(80) for k in range(rows)]
        columns = [
            pa.array([None if key is None else f"key {key}" for key in keys] if text else keys),
            pa.array([start + k - rng.randrange(20) for k in range(rows)], pa.int64()),
        ]
        for column, kind in PAYLOAD_COLUMNS:
            pool = PAYLOADS.get(kind, (1, 2, -3))
            some_null = start // 100 % 3 == 1
            values = [None if some_null and rng.random() < 0.3 else pool[rng.randrange(len(pool))] for _ in range(rows)]
            if pa.types.is_duration(kind) or pa.types.is_time(kind):
                columns.append(pa.array(values, pa.int64()).cast(kind))
            else:
                columns.append(to_arrow(values, kind))
            assert columns[-1].type == kind, column
        batches[name] = pa.RecordBatch.from_arrays(columns, schema=long_schema(text))
    return batches


def long_schema(text: bool) -> pa.Schema:
    return pa.schema([("k", pa.string() if text else pa.int64()), ("t", pa.int64()), *PAYLOAD_COLUMNS])


@pytest.mark.campaign(2)
@pytest.mark.parametrize("window", [Rows(70), Range(90), "mixed"], ids=str)
@pytest.mark.parametrize("text", [False, True])
def test_windows_that_have_turned_over(window: eddy.Rows | eddy.Range | str, text: bool) -> None:
    kinds = [Rows(33), Range(40), Unbounded()] if isinstance(window, str) else [window] * 3
    schema = long_schema(text)
    streams = [Stream(name, schema, window=kind, time="t") for name, kind in zip("RST", kinds, strict=True)]
    lateness = 0 if window == Rows(70) else 15

    def query() -> Query:
        return Query(streams, ["R.k = S.k", "S.k = T.k"], lateness=lateness)

    whole, broken = (Runtime(query(), "R (S T)", renumber_at=300) for _ in range(2))
    seen = 0
    for n, start in enumerate(range(0, 1000, 40)):
        batches = long_stream_rows(start, 40, "RST", text)
        order = np.random.default_rng(n).permutation(np.repeat([0, 1, 2], 40))
        expected = whole.push(batches, order)
        assert broken.push(batches, order).equals(expected)
        seen += expected.num_rows
        if n % 3 == 2:
            broken = restored(broken, query())
            assert broken.snapshot() == whole.snapshot()
    assert seen > 500
    late, other = whole.late(), broken.late()
    assert late.keys() == other.keys() == (set("RST") if lateness else set())
    assert all(other[name].equals(late[name]) for name in late)


def test_dictionaries_within_lists() -> None:
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    schema = pa.schema([("k", pa.int64()), ("l", kind)])
    query = Query([Stream(name, schema, window=Rows(6)) for name in "RS"], ["R.k = S.k"])
    whole, broken = Runtime(query), Runtime(query)
    for start in range(0, 40, 4):
        lists = pa.array([[f"a{k}", None, f"b{k % 3}"] if k % 5 else None for k in range(start, start + 4)], kind)
        batch = pa.RecordBatch.from_arrays([pa.array([k % 3 for k in range(4)]), lists], schema=schema)
        rows = {"R": batch, "S": batch}, [0, 1] * 4
        assert broken.push(*rows).to_pylist() == whole.push(*rows).to_pylist()
        broken = restored(broken, query)


def test_an_empty_runtime() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    query = Query([Stream(name, schema) for name in "RS"], ["R.k = S.k"])
    again = restored(Runtime(query), query)
    batch = pa.record_batch({"k": ["a"], "v": [1]}, schema=schema)
    assert again.push({"R": batch, "S": batch}, [0, 1]).num_rows == 1


def test_a_window_that_ran_empty() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64())])
    query = Query([Stream(name, schema, window=Range(5), time="t") for name in "RS"], ["R.k = S.k"])
    runtime = Runtime(query, ids_only=True)
    runtime.push({"R": pa.record_batch({"k": ["a", "b"], "t": [0, 1]}, schema=schema)})
    runtime.push({"S": pa.record_batch({"k": ["a"], "t": [100]}, schema=schema)})
    again = restored(runtime, query)
    rows = {"R": pa.record_batch({"k": ["a"], "t": [101]}, schema=schema)}
    assert again.push(rows).to_pylist() == [{"R": 2, "S": 0}]
    with pytest.raises(eddy.InputError):
        again.push({"R": pa.record_batch({"k": ["a"], "t": [None]}, schema=schema)})
    again.push({"R": pa.record_batch({"k": ["a"], "t": [99]}, schema=schema)})
    assert again.late()["R"].to_pylist() == [{"k": "a", "t": 99}]


def test_a_failed_push_leaves_no_trace_in_a_snapshot() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    streams = [Stream(name, schema, window=Rows(5)) for name in "RS"]

    def broken(batch: pa.RecordBatch) -> Any:
        assert 0 not in batch["R.v"].to_pylist(), "zero"
        return pc.is_valid(batch["R.v"])

    query = Query(streams, ["R.k = S.k"], where=eddy.Predicate(broken, ["R.v"]))
    runtime = Runtime(query)
    runtime.push({"R": pa.record_batch({"k": ["a", "z"], "v": [1, 0]}, schema=schema)})
    saved = runtime.snapshot()
    for either in (runtime, Runtime.restore(saved, query)):
        with pytest.raises(eddy.InputError, match=r"where.* failed.*zero"):
            either.push({"S": pa.record_batch({"k": ["new", "z"], "v": [1, 1]}, schema=schema)})
        either.check()
        assert either.snapshot() == saved


def test_a_restored_runtime_does_not_keep_the_snapshot() -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64())), ("t", pa.int64())])
    query = Query([Stream(name, schema, window=Range(5), time="t") for name in "RS"], ["R.k = S.k"])
    runtime = Runtime(query)
    for t in (9, 1):
        row = pa.record_batch({"k": [1], "s": ["x"], "l": [[1, 2]], "t": [t]}, schema=schema)
        runtime.push({"R": row, "S": row})
    saved = runtime.snapshot()
    references = sys.getrefcount(saved)
    again = Runtime.restore(saved, query)
    assert sys.getrefcount(saved) == references
    assert again.late()["R"].to_pylist() == [{"k": 1, "s": "x", "l": [1, 2], "t": 1}]


def test_no_snapshot_in_the_middle_of_a_push() -> None:
    runtime = Runtime(make_query())
    runtime._pipeline.join.modules.begin([0, 0])
    with pytest.raises(SnapshotError, match="between two pushes"):
        runtime.snapshot()


_PRINT = """
import hashlib
from tests.eddy.snapshots import filled
print(hashlib.sha256(filled().snapshot()).hexdigest())
"""


@pytest.mark.versions
def test_another_process_writes_the_same_bytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [hashlib.sha256(filled().snapshot()).hexdigest()]


def test_scheduled_states_are_those_of_the_strategy_that_scheduled_them() -> None:
    """Another strategy has its own defaults, so what it saves can be restored again."""
    query = make_query()
    names = [stream.name for stream in query.streams]
    plan = names[0]
    for name in names[1:]:
        plan = f"({plan} {name})" if name != names[-1] else f"{plan} {name}"
    runtime = Runtime(query, plan, strategy="eddy", policy="fixed")
    runtime.transition(plan, at=5, store=[])
    other = Runtime.restore(runtime.snapshot(), query, strategy="mjoin", policy="fixed")
    again = Runtime.restore(other.snapshot(), query)
    assert again.scheduled() == other.scheduled() == runtime.scheduled() == [(5, runtime.plan)]

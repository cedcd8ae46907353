"""The runtime against the oracle: random queries, arrivals, splits into pushes and plans."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.oracle import ArrivalOutcome
from tests.cases import (
    Arrival,
    BatchedPush,
    JoinCase,
    assert_emission_order,
    assert_same,
    feed,
    id_rows,
    late_rows,
    results,
    sorted_by_time,
    text_rows,
)
from tests.draws import arrivals, cases, neighbours_by_predicate, plans, splits

CASES = cases()


def push(runtime: eddy.Runtime, case: JoinCase, batched: BatchedPush) -> pa.Table:
    """Push, and check the invariants afterwards."""
    table = runtime.push(batched.batches(case), batched.order())
    runtime.check()
    return table


def read_late(runtime: eddy.Runtime) -> dict[str, list[tuple[str, ...]]]:
    """Collect the late rows; streams without any are left out."""
    return {name: text_rows(table) for name, table in runtime.late().items() if table.num_rows}


def run_ids(case: JoinCase, pushes: Iterable[BatchedPush], plan: str | None) -> list[tuple[int, ...]]:
    """Return the ids of all results in the order of output."""
    # The default policy uses time, and a change of plan changes the order of the results of one arrival.
    runtime = eddy.Runtime(case.query(), plan, policy="fixed", ids_only=True)
    return [result for batched in pushes for result in id_rows(case, push(runtime, case, batched))]


@pytest.mark.campaign(0)
@pytest.mark.versions
@given(st.data())
def test_each_push_gives_the_results_and_the_late_rows_of_the_oracle(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
    query = case.query()
    runtime = eddy.Runtime(query, plan)
    oracle = case.oracle()
    total = 0
    for batched in pushes:
        table = push(runtime, case, batched)
        outcomes = feed(case, oracle, batched.arrivals)
        assert table.schema == query.output_schema
        expected = [case.project(oracle, result) for result in results(outcomes)]
        assert_same(text_rows(table), expected, "rows of a push")
        assert read_late(runtime) == late_rows(case, batched.arrivals, outcomes)
        total += len(expected)
    event(f"results: {'none' if not total else 'under 10' if total < 10 else 'more'}")
    assert isinstance(runtime.explain(), str)
    assert runtime.late() == {} or all(table.num_rows == 0 for table in runtime.late().values())


@pytest.mark.campaign(0)
@given(st.data())
def test_neither_split_nor_plan_changes_the_results(data: st.DataObject) -> None:
    case = data.draw(CASES)
    rows = data.draw(arrivals(case))
    oracle = case.oracle()
    outcomes = feed(case, oracle, rows)
    expected = results(outcomes)

    plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
    whole = run_ids(case, [BatchedPush(tuple(rows))], plan)
    assert_same(whole, expected, "ids in total")
    assert_emission_order(whole, rows, outcomes)
    # One plan gives the same sequence for every split of the arrivals into pushes.
    assert run_ids(case, data.draw(splits(rows)), plan) == whole
    # Another plan gives the same results for each arrival.
    other = run_ids(case, data.draw(splits(rows)), data.draw(plans(case, neighbours_by_predicate(case))))
    assert_same(other, expected, "ids by another plan")
    assert_emission_order(other, rows, outcomes)


@pytest.mark.campaign(0)
@given(st.data())
def test_counts_are_the_number_of_results(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    runtime = eddy.Runtime(case.query(), data.draw(plans(case, neighbours_by_predicate(case))), count_only=True)
    oracle = case.oracle()
    for batched in pushes:
        table = push(runtime, case, batched)
        assert table.to_pydict() == {"count": [len(results(feed(case, oracle, batched.arrivals)))]}
        assert table.schema == pa.schema([("count", pa.int64())])


@given(st.data())
def test_without_an_order_rows_arrive_by_event_time(data: st.DataObject) -> None:
    case = data.draw(CASES.filter(lambda case: case.streams[0].time is not None))
    runtime = eddy.Runtime(case.query(), ids_only=True)
    oracle = case.oracle()
    for batched in data.draw(splits(data.draw(arrivals(case)))):
        table = runtime.push(batched.batches(case))
        runtime.check()
        ordered = sorted_by_time(case, batched.arrivals)
        outcomes = feed(case, oracle, ordered)
        assert_same(id_rows(case, table), results(outcomes), "ids of a push by event time")
        assert read_late(runtime) == late_rows(case, ordered, outcomes)


@given(st.data())
def test_rows_of_one_stream_without_a_time_column_arrive_in_row_order(data: st.DataObject) -> None:
    case = data.draw(CASES.filter(lambda case: case.streams[0].time is None))
    runtime = eddy.Runtime(case.query(), ids_only=True)
    oracle = case.oracle()
    for batched in data.draw(splits(data.draw(arrivals(case)))):
        for i, stream in enumerate(case.streams):
            alone = BatchedPush(tuple(arrival for arrival in batched.arrivals if arrival[0] == i), batched.shape)
            batches = alone.batches(case)
            if stream.name not in batches:
                continue
            table = runtime.push({stream.name: batches[stream.name]})
            assert_same(id_rows(case, table), results(feed(case, oracle, alone.arrivals)), "ids in row order")


@given(st.data())
def test_metrics_count_what_happened(data: st.DataObject) -> None:
    case = data.draw(CASES)
    rows: list[Arrival] = data.draw(arrivals(case))
    runtime = eddy.Runtime(case.query(), data.draw(plans(case, neighbours_by_predicate(case))))
    outcomes: list[ArrivalOutcome] = []
    oracle = case.oracle()
    for batched in data.draw(splits(rows)):
        runtime.push(batched.batches(case), batched.order())
        outcomes += feed(case, oracle, batched.arrivals)
    metrics = runtime.metrics()
    assert metrics["arrivals"] == sum(outcome.fate == "arrived" for outcome in outcomes)
    assert metrics["late"] == sum(outcome.fate == "late" for outcome in outcomes)
    assert metrics["results"] == len(results(outcomes)) <= metrics["combinations"]
    assert metrics["bytes"] > 0
    for i, stream in enumerate(case.streams):
        state = metrics["states"][stream.name]
        stream_outcomes = [outcome for (at, _), outcome in zip(rows, outcomes, strict=True) if at == i]
        assert state["arrivals"] == state["inserts"] == sum(outcome.fate == "arrived" for outcome in stream_outcomes)
        assert state["late"] == sum(outcome.fate == "late" for outcome in stream_outcomes)
        assert state["rows"] + state["expired"] == state["inserts"]
        if stream.window == "rows":
            assert state["rows"] == min(stream.size, state["inserts"])
        if stream.window == "unbounded":
            assert state["expired"] == 0

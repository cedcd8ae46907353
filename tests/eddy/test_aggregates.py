"""Aggregates over the results of joins against the oracle: under all strategies, with transitions and restores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.aggregate_oracle import Row
from jisc.strategies import STRATEGIES
from tests.draws import fewer
from tests.eddy.drawn_aggregates import DrawnAggregation, arrivals, batches, in_pushes, texts

INFINITE = float("inf")


def moved(data: st.DataObject, runtime: eddy.Runtime, drawn: DrawnAggregation) -> eddy.Runtime:
    """Perhaps change the plan, or go on from a snapshot, under another strategy at times."""
    runtime.check()
    change = data.draw(st.sampled_from(("none", "none", "none", "plan", "snapshot")))
    if change == "plan" and len(drawn.names) == 3 and STRATEGIES[runtime.strategy].changes:
        runtime.transition(data.draw(st.sampled_from(("(R S) T", "R (S T)", "(S R) T"))))
    if change == "snapshot":
        strategy = data.draw(st.sampled_from((None, *STRATEGIES)))
        saved = runtime.snapshot()
        runtime = eddy.Runtime.restore(saved, drawn.query, strategy=strategy)
        if strategy is None:
            assert runtime.snapshot() == saved
        runtime.check()
    return runtime


def pushed(
    data: st.DataObject, runtime: eddy.Runtime, drawn: DrawnAggregation, rows: list[Any]
) -> tuple[Any, list[Row]]:
    """Push rows; return the table, and the results that they have by the oracle."""
    results: list[Row] = []
    for name, row in rows:
        results += [drawn.row(result) for result in drawn.oracle.arrive(name, row).results]
    given, order = batches(drawn.names, rows)
    return runtime.push(given, order), results


@fewer(2)
@given(st.data())
def test_each_window_comes_once_when_the_watermark_has_passed_it(data: st.DataObject) -> None:
    drawn = DrawnAggregation(data.draw, ("range",), windows=True)
    runtime = eddy.Runtime(drawn.query, strategy=data.draw(st.sampled_from(tuple(STRATEGIES))))
    results: list[Row] = []
    limit = -INFINITE
    total = 0
    for rows in in_pushes(data.draw, data.draw(arrivals(drawn.names))):
        table, new_results = pushed(data, runtime, drawn, rows)
        results += new_results
        before = limit
        if drawn.oracle.due is not None:
            limit = drawn.oracle.due - drawn.slack
        assert texts(table) == drawn.windows(results, before, limit)
        assert texts(runtime.groups()) == drawn.windows(results, limit, INFINITE)
        assert table.schema == runtime.output_schema == drawn.query.output_schema
        total += len(table)
        runtime = moved(data, runtime, drawn)
    event(f"rows of windows: {min(total, 5)}")
    assert texts(runtime.finish()) == drawn.windows(results, limit, INFINITE)
    assert not len(runtime.groups())
    assert not len(runtime.finish())
    with pytest.raises(eddy.InputError, match="input has ended"):
        runtime.push({})


@fewer(2)
@given(st.data())
def test_a_changelog_adds_up_to_the_groups_of_the_live_windows(data: st.DataObject) -> None:
    drawn = DrawnAggregation(
        data.draw, data.draw(st.sampled_from((("range",), ("rows",), ("rows", "unbounded")))), windows=False
    )
    runtime = eddy.Runtime(drawn.query, strategy=data.draw(st.sampled_from(tuple(STRATEGIES))), output="changelog")
    standing: Counter[tuple[int, ...]] = Counter()
    answer: Counter[tuple[str, ...]] = Counter()
    for rows in in_pushes(data.draw, data.draw(arrivals(drawn.names))):
        for name, row in rows:
            outcome = drawn.oracle.arrive(name, row)
            standing.subtract([*outcome.expired, *outcome.displaced])
            standing.update(outcome.results)
        given_rows, order = batches(drawn.names, rows)
        table = runtime.push(given_rows, order)
        operations = table.column("op").to_pylist()
        assert operations == sorted(operations, reverse=True)
        went, came = (texts(table.filter(pc.field("op") == op).drop_columns("op")) for op in ("-D", "+I"))
        assert not went & came
        assert not went - answer
        answer = answer - went + came
        assert answer == drawn.groups(drawn.row(result) for result in standing.elements())
        assert texts(runtime.groups()) == answer
        runtime = moved(data, runtime, drawn)


@fewer(2)
@given(st.data())
def test_the_end_of_the_input_gives_the_groups_of_all_results(data: st.DataObject) -> None:
    drawn = DrawnAggregation(data.draw, data.draw(st.sampled_from((("range",), ("rows", "unbounded")))), windows=False)
    runtime = eddy.Runtime(drawn.query, bounded=True)
    results: list[Row] = []
    for rows in in_pushes(data.draw, data.draw(arrivals(drawn.names))):
        table, new_results = pushed(data, runtime, drawn, rows)
        results += new_results
        assert not len(table)
        runtime = moved(data, runtime, drawn)
    assert texts(runtime.groups()) == drawn.groups(results)
    assert texts(runtime.finish()) == drawn.groups(results)

"""Watermarks follow from earlier batches, never go back, and never evict rows that may still match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import StreamingOptions, WatermarkOf
from eddy.spark.streaming.driver.watermarks import LEAST, WatermarkRules, Watermarks, make_rules
from stairs.errors import QueryError

POLICIES: tuple[WatermarkOf, WatermarkOf] = ("slowest", "per-source")
Batch = tuple[int | None, ...]


def run(batches: Sequence[Sequence[int | None]], rules: WatermarkRules, seconds: float = 1.0) -> list[Watermarks]:
    """Return the states before each batch and after the last."""
    states = [Watermarks.none(len(rules.lateness))]
    for number, batch in enumerate(batches):
        states.append(states[-1].after(batch, 1000.0 + seconds * number, rules))
    return states


def test_the_table_of_the_module() -> None:
    batches = [(100, 40), (120, 90)]
    slowest = run(batches, WatermarkRules("slowest", (5, 5)))
    assert [(state.late_below, state.engine) for state in slowest] == [(None, None), ((35, 35), 35), ((85, 85), 85)]
    per_source = run(batches, WatermarkRules("per-source", (5, 5)))
    assert [(state.late_below, state.engine) for state in per_source] == [(None, None), ((95, 35), 35), ((115, 85), 85)]


def test_lateness_is_that_of_each_stream() -> None:
    for policy, marks in (("slowest", (70, 70)), ("per-source", (100, 70))):
        (_, state) = run([(100, 100)], WatermarkRules(policy, (0, 30)))  # type: ignore[arg-type]
        assert (state.late_below, state.engine) == (marks, 70)


def test_a_source_that_never_came_holds_everything_back() -> None:
    slowest = run([(100, None), (200, None)], WatermarkRules("slowest", (0, 0)))[-1]
    assert slowest.late_below is None
    assert slowest.engine is None
    per_source = run([(100, None), (200, None)], WatermarkRules("per-source", (0, 0)))[-1]
    assert per_source.late_below == (200, LEAST)
    assert per_source.engine is None


@pytest.mark.parametrize("policy", POLICIES)
def test_an_idle_source_is_waited_for_no_longer(policy: WatermarkOf) -> None:
    rules = WatermarkRules(policy, (0, 0), idle_after_s=10.0)
    state = Watermarks.none(2).after((100, 50), 0.0, rules).after((200, None), 9.9, rules)
    assert state.engine == 50
    state = state.after((300, None), 10.0, rules)
    assert state.engine == 300
    assert state.late_below == (300, 300)
    # The source is back: its old rows are late, and it holds the watermark back until it has caught up.
    state = state.after((400, 120), 11.0, rules)
    assert state.engine == 300
    assert state.late_below == ((300, 300) if policy == "slowest" else (400, 300))
    state = state.after((None, 390), 12.0, rules)
    assert state.engine == 390


@pytest.mark.parametrize("policy", POLICIES)
def test_a_source_that_never_came_is_idle_from_the_first_batch_on(policy: WatermarkOf) -> None:
    rules = WatermarkRules(policy, (0, 0), idle_after_s=10.0)
    states = run([(100, None), (110, None), (120, None)], rules, seconds=5.0)
    assert [state.engine for state in states] == [None, None, None, 120]
    assert states[-1].late_below == (120, 120)


@pytest.mark.parametrize("policy", POLICIES)
def test_when_all_are_idle_nothing_moves(policy: WatermarkOf) -> None:
    rules = WatermarkRules(policy, (5, 0), idle_after_s=1.0)
    state = Watermarks.none(2).after((100, 90), 0.0, rules)
    after = state.after((None, None), 100.0, rules)
    assert (after.engine, after.marks) == (state.engine, state.marks)


def test_a_stop_of_the_job_makes_no_source_idle() -> None:
    rules = WatermarkRules("slowest", (0, 0), idle_after_s=10.0)
    stopped = Watermarks.none(2).after((100, 50), 0.0, rules).after((200, None), 6.0, rules)
    assert stopped.after((300, None), 3600.0, rules).engine == 300
    again = stopped.resumed(3600.0)
    assert again.after((300, None), 3603.0, rules).engine == 50
    assert again.after((300, None), 3604.0, rules).engine == 300
    assert Watermarks.none(2).resumed(5.0) == Watermarks.none(2)


def test_marks_stay_when_the_rules_change() -> None:
    before = run([(100, 40)], WatermarkRules("per-source", (0, 0)))[-1]
    assert before.late_below == (100, 40)
    after = before.after((105, 60), 2000.0, WatermarkRules("slowest", (50, 50)))
    assert (after.late_below, after.engine) == ((100, 40), 40)


def test_numbers_of_arrays_become_numbers_of_json() -> None:
    import numpy as np

    state = Watermarks.none(2).after(np.array([7, 9]), 1.0, WatermarkRules("per-source", (0, 0)))  # type: ignore[arg-type]
    assert json.loads(json.dumps(state.to_json()))["marks"] == [7, 9]


@pytest.mark.parametrize(
    "data", [{}, {"greatest": [1], "rows_at": [1.0], "marks": [1, 2]}, {"greatest": 1, "rows_at": [], "marks": []}]
)
def test_what_is_no_state_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(SparkJoinError, match="is damaged or of another version"):
        Watermarks.from_json(data)


def test_a_batch_of_other_streams_is_refused() -> None:
    with pytest.raises(SparkJoinError, match="3 greatest event times for 2 streams"):
        Watermarks.none(2).after((1, 2, 3), 0.0, WatermarkRules("slowest", (0, 0)))
    with pytest.raises(SparkJoinError, match="1 spans of lateness for 2 streams"):
        Watermarks.none(2).after((1, 2), 0.0, WatermarkRules("slowest", (0,)))


# Invariants


@st.composite
def histories(draw: st.DrawFn) -> tuple[WatermarkRules, list[tuple[Batch, float]]]:
    streams = draw(st.integers(1, 4))
    times = st.one_of(st.none(), st.integers(-60, 60), st.sampled_from([-(1 << 61), 1 << 61]))
    rules = WatermarkRules(
        draw(st.sampled_from(POLICIES)),
        tuple(draw(st.lists(st.integers(0, 20), min_size=streams, max_size=streams))),
        draw(st.one_of(st.none(), st.floats(0.5, 8))),
    )
    steps = st.tuples(st.tuples(*[times] * streams), st.floats(0, 5))
    return rules, draw(st.lists(steps, max_size=12))


@given(histories())
def test_nothing_goes_back_and_engines_keep_what_may_match(
    history: tuple[WatermarkRules, list[tuple[Batch, float]]],
) -> None:
    rules, batches = history
    state, now = Watermarks.none(len(rules.lateness)), 1000.0
    for greatest, seconds in batches:
        now += seconds
        before, state = state, state.after(greatest, now, rules)
        for old, new in zip((*before.marks, before.engine), (*state.marks, state.engine), strict=True):
            assert old is None or (new is not None and new >= old)
        if state.engine is not None:
            assert state.late_below is not None
            assert all(state.engine <= mark for mark in state.late_below)
            if rules.policy == "slowest":
                assert set(state.late_below) == {state.engine}
        assert Watermarks.from_json(json.loads(json.dumps(state.to_json()))) == state


@given(histories())
def test_without_idle_sources_marks_are_those_of_the_definition(
    history: tuple[WatermarkRules, list[tuple[Batch, float]]],
) -> None:
    """A mark is a function of all rows so far, whatever the batches."""
    rules, batches = history
    rules = WatermarkRules(rules.policy, rules.lateness)
    state = Watermarks.none(len(rules.lateness))
    for greatest, _ in batches:
        state = state.after(greatest, 0.0, rules)
    columns = [[t for batch, _ in batches if (t := batch[s]) is not None] for s in range(len(rules.lateness))]
    marks = [max(c) - ticks if c else None for c, ticks in zip(columns, rules.lateness, strict=True)]
    least = None if None in marks else min(mark for mark in marks if mark is not None)
    assert state.engine == least
    assert state.marks == (tuple(marks) if rules.policy == "per-source" else (least,) * len(marks))


@given(
    st.sampled_from(POLICIES),
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=20), min_size=2, max_size=4),
    st.data(),
)
def test_sources_in_order_have_no_late_row_whatever_their_speeds(
    policy: WatermarkOf, steps: list[list[int]], data: st.DataObject
) -> None:
    queues = [[sum(gaps[: i + 1]) for i in range(len(gaps))] for gaps in steps]
    rules = WatermarkRules(policy, (0,) * len(queues))
    state = Watermarks.none(len(queues))
    while any(queues):
        taken = [data.draw(st.integers(0, len(queue))) for queue in queues]
        if not any(taken):
            taken = [len(queue) for queue in queues]
        batch = [queue[:n] for queue, n in zip(queues, taken, strict=True)]
        queues = [queue[n:] for queue, n in zip(queues, taken, strict=True)]
        for rows, mark in zip(batch, state.late_below or [LEAST] * len(queues), strict=True):
            assert all(t >= mark for t in rows)
        state = state.after([max(rows) if rows else None for rows in batch], 0.0, rules)


# Rules from the user's arguments

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])
MS = timedelta(milliseconds=1)


def query(lateness: timedelta | int = 0, window: Any = None) -> eddy.Query:
    window = window or eddy.Range(timedelta(minutes=1))
    streams = [eddy.Stream(name, SCHEMA, window=window, time="at") for name in ("R", "S")]
    return eddy.Query(streams, ["R.k = S.k"], lateness=lateness)


def rules_of(query: eddy.Query, **options: Any) -> WatermarkRules:
    return make_rules(query, StreamingOptions(**options))


def test_rules_in_ticks_of_the_query() -> None:
    assert rules_of(query()) == WatermarkRules("slowest", (0, 0), None)
    assert rules_of(query(timedelta(seconds=2))) == WatermarkRules("slowest", (2000, 2000), None)
    assert rules_of(
        query(MS * 7), watermark="per-source", lateness=timedelta(seconds=1), idle_after=timedelta(minutes=1)
    ) == WatermarkRules("per-source", (1000, 1000), 60.0)
    assert rules_of(query(MS * 7), lateness={"S": timedelta(seconds=1)}, idle_after=2) == WatermarkRules(
        "slowest", (7, 1000), 2.0
    )
    assert rules_of(query(), lateness=MS * 5).lateness == (5, 5)
    streams = [
        eddy.Stream(n, SCHEMA, eddy.Range(MS * 9), "at", lateness=late) for n, late in (("R", MS * 3), ("S", None))
    ]
    assert rules_of(eddy.Query(streams, ["R.k = S.k"], lateness=MS)).lateness == (3, 1)
    assert rules_of(query(window=eddy.Unbounded())).lateness == (0, 0)


@pytest.mark.parametrize(
    ("given_", "kind", "says"),
    [
        ({"watermark": "fastest"}, SparkJoinError, "watermark='fastest': pass one of 'slowest', 'per-source'"),
        ({"lateness": {"T": 1}}, SparkJoinError, "the query has no stream 'T'; its streams are R, S"),
        ({"lateness": 5}, QueryError, "lateness of stream R: the number 5 has no unit"),
        ({"lateness": {"S": -1}}, SparkJoinError, "lateness of stream S: -1 is negative"),
        ({"lateness": timedelta(seconds=-1)}, SparkJoinError, "lateness of stream R: .* is negative"),
        ({"lateness": {"R": 1.5}}, SparkJoinError, "lateness of stream R: 1.5 is neither"),
        ({"lateness": {"R": True}}, SparkJoinError, "lateness of stream R: True is neither"),
        ({"lateness": {"S": timedelta(microseconds=1)}}, QueryError, "lateness of stream S: .* not a whole number"),
        ({"idle_after": 0}, SparkJoinError, "idle_after=0.0: give a time above 0"),
        ({"idle_after": float("nan")}, SparkJoinError, "idle_after=nan"),
        ({"idle_after": "1s"}, SparkJoinError, "idle_after='1s': give a timedelta"),
    ],
)
def test_rules_that_cannot_be(given_: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        rules_of(query(), **given_)


def test_options_of_a_runtime_are_refused_where_they_have_no_effect() -> None:
    streams = query().streams
    for options in ({"watermark": "fastest"}, {"idle_after": MS}):
        with pytest.raises(eddy.QueryError, match=r"is for a Runtime.*join\(…, idle_after=…\)"):
            rules_of(eddy.Query(streams, ["R.k = S.k"], **options))


def test_lateness_needs_a_range_window() -> None:
    with pytest.raises(SparkJoinError, match="lateness of stream R: 5 without a RANGE window"):
        rules_of(query(window=eddy.Unbounded()), lateness=5)

"""The benchmark of strategies: all figures exist, and only strategies that did the same work are compared."""

from __future__ import annotations

import numpy as np
import pytest

import eddy
from bench.harness.figure import Row, number
from bench.harness.turns import Mismatch, agree
from bench.transitions import CHANGING, FIGURES, HEADLINE, worst_of
from bench.ways.published import KINDS
from bench.ways.strategies import StrategyEngine, check_complete, pauses, timed_pushes
from bench.workloads.sources import Turnover, permutations, uniform
from jisc.plan.states import Masks, difference
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES

(FIGURE,) = FIGURES
PAUSES = (
    "pause.moving_state_vs_jisc",
    "latency.moving_state_vs_jisc",
    "pause.longest_vs_median",
    "pause.longest_vs_median_cpu",
)
"""Figures of which there is one for each window."""
TINY = [
    {"part": "normal", "window": 20, "rounds": 1},
    {"part": "pause", "window": 10, "streams": 5, "transitions": 2},
    {"part": "pause", "window": HEADLINE, "streams": 3, "transitions": 1},
    {"part": "call", "window": 20, "calls": 3},
]


@pytest.mark.campaign(0)
def test_a_run_gives_all_figures() -> None:
    rows: list[Row] = []
    for point in TINY:
        rows += [{**point, **row} for row in FIGURE.measure(point, lambda doing: None)]
    named = {str(row["figure"]): number(row, "value") for row in rows if "figure" in row}
    assert all(value > 0 for value in named.values())
    other = {f"{figure}.10" for figure in PAUSES}
    assert other <= set(named)
    # The bar of another window is for the same figure.
    assert {bar.replace(".1000000", ".10") for bar in FIGURE.bars} <= set(named)
    assert set(named) - other <= set(FIGURE.titles)
    for workload in ("W1", "W21"):
        assert {row["strategy"] for row in rows if row.get("workload") == workload} == set(KINDS)
    paused = [row for row in rows if "pause_ms" in row and row["window"] == 10]
    assert [row["strategy"] for row in paused] == list(CHANGING)
    for row in paused:
        assert 0 < number(row, "latency_ms") <= number(row, "pause_ms")


def test_jisc_is_held_to_its_worse_workload() -> None:
    rows: list[Row] = [{"figure": "normal.W1.x", "value": 1.1}, {"figure": "normal.W21.x", "value": 0.9}]
    for order in (rows, rows[::-1]):
        assert worst_of(order) == {"figure": "normal.jisc_vs_symmetric_hash", "value": 1.1}
    (described,) = FIGURE.described([worst_of(rows)])
    assert described["reached"] is False


@pytest.mark.parametrize("turnover", [permutations(5, 8), uniform(8, 40)], ids=lambda turnover: turnover.name)
def test_a_turnover_gives_the_same_results_again_under_every_strategy(turnover: Turnover) -> None:
    by_strategy = {}
    for name in STRATEGIES:
        engine = StrategyEngine(turnover, name)
        columns = turnover.cut(7).columns
        by_strategy[name] = [engine.turn(columns)[1] for _ in range(3)]
        if STRATEGIES[name].changes:
            engine.transition(turnover.reversed_plan)
        by_strategy[name].append(engine.turn(columns)[1])
        engine.modules.check()
        engine.strategy.check()
    agree("turnover", by_strategy)
    counts = by_strategy["mjoin"]
    assert counts[0] < counts[1] == counts[2] == counts[3]
    if turnover.name == "W5":
        assert counts[1] == len(turnover.order)
    runtime = eddy.Runtime(turnover.query, count_only=True)
    assert timed_pushes(runtime, turnover.cut(9).arrow)[1] == counts[0]


def test_a_stream_repeats_one_permutation() -> None:
    turnover = permutations(3, 6)
    for i in range(3):
        assert sorted(turnover.keys[turnover.order == i]) == list(range(6))
    again = permutations(3, 6)
    assert np.array_equal(turnover.keys, again.keys)
    assert np.array_equal(turnover.order, again.order)


@pytest.mark.parametrize(("plan", "new"), [("reversed_plan", 4), ("swapped_plan", 1)])
def test_plans_differ_in_all_states_or_in_the_one_below_the_root(plan: str, new: int) -> None:
    turnover = permutations(6, 2)
    graph = turnover.query.graph
    old, other = (parse(text, graph.names) for text in (turnover.plan, getattr(turnover, plan)))
    missing = difference(old, other, Masks(graph)).missing
    assert len(missing) == new
    assert max(state.mask.bit_count() for state in missing) == 5


@pytest.mark.parametrize("strategy", CHANGING)
def test_a_pause_is_the_longest_of_what_was_timed(strategy: str) -> None:
    turnover = permutations(4, 6)
    lengths, counts = pauses(turnover, turnover.cut(5).arrow, strategy, 2)
    assert len(lengths) == 2
    assert len(counts) == 5
    for pause in lengths:
        assert (pause.call > 0).all()
        assert (pause.call <= pause.latency).all()
        assert (pause.latency <= pause.longest).all()
        assert (pause.usual <= pause.usual_most).all()


def test_different_numbers_of_results_are_no_comparison() -> None:
    agree("W", {"jisc": [3, 4], "mjoin": [3, 4]})
    with pytest.raises(Mismatch, match=r"W: numbers of results differ: .*jisc"):
        agree("W", {"jisc": [3, 4], "mjoin": [3, 5]})


def test_an_incomplete_state_is_told() -> None:
    turnover = permutations(4, 6)
    runtime = eddy.Runtime(turnover.query, turnover.plan, strategy="jisc", count_only=True)
    pushes = turnover.cut(24).arrow
    timed_pushes(runtime, pushes)
    runtime.transition(turnover.reversed_plan)
    with pytest.raises(Mismatch, match="incomplete"):
        check_complete(runtime)
    timed_pushes(runtime, pushes)
    check_complete(runtime)

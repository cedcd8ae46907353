"""The benchmark of strategies: all figures are there, and nothing is compared that did different work."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eddy
from bench import cli, transitions
from bench.engine import StrategyEngine
from bench.measure import Mismatch, agree
from bench.pauses import CHANGING, Windows, check_complete, pauses, timed_pushes
from bench.ratios import TRANSITIONS
from bench.transitions import BARS, QUICK, Sizes
from bench.workloads import Turnover, permutations, uniform
from jisc.plan.states import Masks, difference
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES

TINY = Sizes(
    rounds=1,
    rows=20,
    points=[Windows(5, 10, 2), Windows(4, 30, 1)],
    headline=10,
    calls=3,
)


def expected(sizes: Sizes) -> set[str]:
    names = {"machine", "transition_call_ms", "transition_call_first_ms", *BARS}
    held = ("jisc", "jisc_latency", "steady_max")
    names |= {f"pause.{name}_vs_steady_batch{clock}" for name in held for clock in ("", "_cpu")}
    for workload in ("W1", "W21"):
        names |= {f"normal.{workload}.jisc_vs_symmetric_hash"}
        names |= {f"normal.{workload}.jisc_after_transitions_vs_symmetric_hash"}
        names |= {f"normal.{workload}.{strategy}_vs_mjoin" for strategy in STRATEGIES}
    for point in sizes.points:
        names |= {f"{figure}.moving_state_vs_jisc.{point.rows}" for figure in ("pause", "latency")}
        names |= {f"pause.moving_state_vs_jisc.{point.rows}.streams"}
        for figure in ("pause_ms", "latency_ms", "steady_max_ms"):
            names |= {f"{figure}.{strategy}.{point.rows}" for strategy in CHANGING}
    return names


def check_figures(figures: dict[str, Any], sizes: Sizes) -> None:
    assert set(figures) == expected(sizes)
    for name, value in figures.items():
        if name == "machine":
            assert value
        else:
            assert value > 0, name


def test_a_run_gives_all_figures() -> None:
    report = io.StringIO()
    figures = transitions.run(sizes=TINY, report=report)
    check_figures(figures, TINY)
    assert "≤ 1.05" in report.getvalue()


@pytest.mark.slow
def test_the_quick_command_prints_figures_that_have_titles() -> None:
    done = CliRunner().invoke(cli.app, ["transitions", "--quick", "--json", "-"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    check_figures(figures, QUICK)
    assert set(figures) - {"machine"} <= TRANSITIONS.figures


def test_figures_of_a_full_run_have_titles() -> None:
    assert expected(Sizes()) - {"machine"} <= TRANSITIONS.figures


@pytest.mark.parametrize("turnover", [permutations(5, 8), uniform(8, 40)], ids=lambda own: own.name)
def test_a_turnover_gives_the_same_results_again_under_every_strategy(turnover: Turnover) -> None:
    found = {}
    for name in STRATEGIES:
        engine = StrategyEngine(turnover, name)
        columns = turnover.columns(7)
        found[name] = [engine.turn(columns)[1] for _ in range(3)]
        if STRATEGIES[name].changes:
            engine.transition(turnover.reversed_plan)
        found[name].append(engine.turn(columns)[1])
        engine.modules.check()
        engine.strategy.check()
    agree("turnover", found)
    counts = found["mjoin"]
    assert counts[0] < counts[1] == counts[2] == counts[3]
    if turnover.name == "W5":
        assert counts[1] == len(turnover.order)
    runtime = eddy.Runtime(turnover.query, count_only=True)
    assert timed_pushes(runtime, turnover.pushes(9))[1] == counts[0]


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
    found, counts = pauses(turnover, turnover.pushes(5), strategy, 2)
    assert len(found) == 2
    assert len(counts) == 5
    for pause in found:
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
    pushes = turnover.pushes(24)
    timed_pushes(runtime, pushes)
    runtime.transition(turnover.reversed_plan)
    with pytest.raises(Mismatch, match="incomplete"):
        check_complete(runtime)
    timed_pushes(runtime, pushes)
    check_complete(runtime)

"""`eddy bench guard`: a few ratios in half a minute, which show whether a change slowed anything down.

Ratios of times taken in turns in one process are much the same on another machine, so they can be compared with a file
of an earlier run made elsewhere.
"""

from __future__ import annotations

from functools import partial

from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Taken, Work, speed, take_turns
from bench.limit import LARGE, ways
from bench.ways.runners import fill, rounds
from bench.ways.strategies import PUSH, StrategyEngine
from bench.workloads.sources import WINDOW, filling, workload
from bench.workloads.turnover import Turnover, permutations

PAIRS = {
    "W1.engine_vs_loop": "W1: engine / loop",
    "W1.arrow_vs_loop": "W1: arrow / loop",
    "W2.engine_vs_loop": "W2: engine / loop",
    "W21.jisc_vs_mjoin": "20 joins on one key: all states stored / none stored",
    "W21.transition_vs_jisc": "20 joins, all states stored: a transition of all states each turnover / no transition",
}


def _strategies(turnover: Turnover) -> dict[str, Work]:
    pushes = turnover.columns(PUSH)
    engines = {name: StrategyEngine(turnover, name) for name in ("mjoin", "jisc")}
    moving = StrategyEngine(turnover, "jisc")
    plans = [turnover.reversed_plan, turnover.plan]
    for engine in (*engines.values(), moving):
        engine.turn(pushes)

    def transition() -> tuple[float, int]:
        moving.transition(plans[0])
        plans.reverse()
        return moving.turn(pushes)

    return {**{name: partial(engine.turn, pushes) for name, engine in engines.items()}, "transition": transition}


def _measure(point: Point, say: Say) -> list[Row]:
    count, share = point["rounds"], point["share"]
    taken: dict[str, Taken] = {}
    for name in ("W1", "W2"):
        say(name)
        push = LARGE // share
        found, source = ways(name, push), workload(name)
        fill(found, source, filling([WINDOW] * 4, push), push)
        taken[name], _ = rounds(found, source, 1_000_000 // share, push, count, say)
    taken["W21"] = take_turns("W21", _strategies(permutations(21, WINDOW // share)), count, say)
    rows: list[Row] = []
    for figure in PAIRS:
        name, _, pair = figure.partition(".")
        one, _, other = pair.partition("_vs_")
        rows.append({"figure": f"guard.{figure}", **speed(taken[name], one, other)})
    return rows


FIGURES = (
    Figure(
        "guard",
        "Speeds, in turns in one process: the engine and Arrow in and out against the loops of `limit`, and "
        "strategies against each other. `eddy bench --compare` compares two files of them.",
        lambda full: [{"rounds": 7, "share": 2}],
        _measure,
        tables=(NAMED,),
        titles={f"guard.{name}": title for name, title in PAIRS.items()},
    ),
)

"""`eddy bench guard`: a few ratios in half a minute, to see that a change made nothing slower.

Ratios of times taken in turns in one process, so another machine gives much the same ones: a file of an earlier run,
wherever it was made, says what is usual.

engine       W1 and W2, the engine / the hand-written loop
arrow        W1, Arrow in and out / the loop
jisc         20 joins on one key, states stored and complete: jisc / mjoin
transition   the same, a transition that changes all states every turnover: jisc / jisc without transitions
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from rich.console import Console

from bench.engine import StrategyEngine, engine_run
from bench.harness.figure import Figure, Grid, Point, Row, Say
from bench.harness.spread import spread
from bench.limit import arrow_seconds
from bench.loops import loop_seconds
from bench.measure import agree, rounds, without_gc
from bench.workloads import Turnover, permutations, w1, w2

LARGE = 100_000
BATCH = 1_000
"""Arrivals of a push, for the engine, and where plans change."""


def _strategies(turnover: Turnover) -> dict[str, Callable[[], tuple[float, int]]]:
    pushes = turnover.columns(BATCH)
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
    """Return a row a ratio: the speed of one in terms of that of another."""
    count, share = int(point["rounds"]), int(point["share"])
    works: dict[str, dict[str, Callable[[], tuple[float, int]]]] = {}
    for workload in (w1(1_000_000 // share), w2(1_000_000 // share)):
        works[workload.name] = {
            "loop": partial(loop_seconds, workload),
            "engine": engine_run(workload, LARGE).seconds,
        }
        if workload.name == "W1":
            works["W1"]["arrow"] = partial(arrow_seconds, workload, workload.pushes(LARGE))
    works["W21"] = _strategies(permutations(21, 10_000 // share))
    pairs = [("W1", "engine", "loop"), ("W1", "arrow", "loop"), ("W2", "engine", "loop")]
    pairs += [("W21", "jisc", "mjoin"), ("W21", "transition", "jisc")]
    taken: dict[str, dict[str, list[float]]] = {}
    for name, own in works.items():
        counts: dict[str, list[int]] = {}

        def timed(way: str, work: Callable[[], tuple[float, int]], counts: dict[str, list[int]] = counts) -> float:
            seconds, results = work()
            counts.setdefault(way, []).append(results)
            return seconds

        say(name)
        with without_gc(), open(os.devnull, "w") as nowhere:
            ways: dict[str, Callable[[], float]] = {way: partial(timed, way, work) for way, work in own.items()}
            taken[name] = rounds(ways, count, name, Console(file=nowhere))
        agree(f"guard.{name}", counts)
    return [
        {
            "figure": f"guard.{name}.{one}_vs_{other}",
            **spread([b / a for a, b in zip(taken[name][one], taken[name][other], strict=True)], "value"),
        }
        for name, one, other in pairs
    ]


FIGURES = (
    Figure(
        "guard",
        "A few ratios, to see that a change made nothing slower",
        "Speeds in terms of another's, in turns in one process: the engine, and Arrow in and out, beside the "
        "hand-written loops; 20 joins on one key with all states stored beside none stored, and with a transition of "
        "all states each turnover of the windows beside no transition. `eddy bench --compare` takes two files of them.",
        lambda full: [{"rounds": 7, "share": 2}],
        _measure,
        grids=[
            Grid(
                "Speed of the first in terms of that of the other",
                {"figure": "ratio"},
                {"value": "median", "value_low": "least", "value_high": "most"},
            )
        ],
    ),
)

"""`eddy bench transitions`: the strategies side by side, in normal operation and when plans change.

All run in one process, with the same kernels over the same layout, on the same arrivals; after each turnover of the
windows the numbers of results are compared. Nothing here builds results: they are counted.

normal      no transition: CPU time against mjoin, which stores nothing, and symmetric-hash, whose plan cannot change
pause       output at a transition (bench/pauses.py)
call        `Runtime.transition` itself

What a whole migration stage costs is in figures 7 and 8 of the report (bench/papers/jisc/migration.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import eddy
from bench.engine import StrategyEngine
from bench.measure import agree, machine, progress, ratio, rounds, without_gc
from bench.pauses import BATCH, CHANGING, Windows, pause_figures, timed_pushes
from bench.workloads import Turnover, permutations, uniform
from jisc.strategies import STRATEGIES

BARS = {
    "normal.jisc_vs_symmetric_hash": 1.05,
    "pause.jisc_vs_steady_batch": 2.0,
    "transition_call_ms": 1.0,
}
"""What the figures should not exceed."""

MOVED = "jisc after transitions"


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    rounds      rounds of normal operation
    rows        rows of a window there, and in the calls of `transition`
    points      where pauses are measured; `headline` is the window of the ratio to a usual push. Over windows of 10⁶
                there would be room for 21 streams, in about 4 GB, but each of three turnovers is 21 million arrivals,
                for each strategy a minute or two; so there are fewer streams there
    calls       calls of `transition` timed
    """

    rounds: int = 9
    rows: int = 10_000
    points: list[Windows] = field(
        default_factory=lambda: [
            Windows(21, 1_000, 8),
            Windows(21, 10_000, 4),
            Windows(21, 100_000, 1),
            Windows(4, 1_000_000, 1),
        ]
    )
    headline: int = 10_000
    calls: int = 40


QUICK = Sizes(
    rounds=2,
    rows=2_000,
    points=[Windows(21, 1_000, 2), Windows(21, 10_000, 1)],
    calls=10,
)


def _normal(turnover: Turnover, count: int, report: Console) -> dict[str, float]:
    """Return the speeds of all strategies while no plan changes."""
    pushes = turnover.columns(BATCH)
    engines = {name: StrategyEngine(turnover, name) for name in STRATEGIES}
    engines[MOVED] = StrategyEngine(turnover, "jisc")
    counts: dict[str, list[int]] = {name: [engine.turn(pushes)[1]] for name, engine in engines.items()}
    for plan in (turnover.reversed_plan, turnover.plan):
        engines[MOVED].transition(plan)
        # Twice: keys that leave the windows before anybody asks for them are completed in the background.
        for _ in range(2):
            engines[MOVED].turn(pushes)

    def work(name: str) -> Callable[[], float]:
        def turn() -> float:
            taken, results = engines[name].turn(pushes)
            counts[name].append(results)
            return taken

        return turn

    with without_gc():
        taken = rounds({name: work(name) for name in engines}, count, f"normal {turnover.name}", report)
    agree(f"normal.{turnover.name}", counts)
    head = f"normal.{turnover.name}"
    figures = {
        f"{head}.jisc_vs_symmetric_hash": ratio(taken, "jisc", "symmetric-hash"),
        f"{head}.jisc_after_transitions_vs_symmetric_hash": ratio(taken, MOVED, "symmetric-hash"),
    }
    for name in STRATEGIES:
        # ratio() gives a speed in terms of another's.
        figures[f"{head}.{name}_vs_mjoin"] = ratio(taken, name, "mjoin")
    return figures


def _calls(turnover: Turnover, count: int) -> dict[str, float]:
    """Return how long `Runtime.transition` takes under jisc, there and back, and to plans never seen before."""
    runtime = eddy.Runtime(turnover.query, turnover.plan, strategy="jisc", count_only=True)
    pushes = turnover.pushes(BATCH)
    timed_pushes(runtime, pushes)
    rng = np.random.default_rng(6)
    known = [turnover.reversed_plan, turnover.plan]
    unseen = [" ".join(turnover.names[i] for i in rng.permutation(len(turnover.names))) for _ in range(count)]
    found = []
    with without_gc():
        for plans in ([known[number % 2] for number in range(count + 4)], unseen):
            taken = []
            for number, plan in enumerate(plans):
                start = perf_counter()
                runtime.transition(plan)
                taken.append(perf_counter() - start)
                timed_pushes(runtime, [pushes[number % len(pushes)]])
            found.append(1e3 * median(taken[-count:]))
    return {"transition_call_ms": found[0], "transition_call_first_ms": found[1]}


def run(*, quick: bool = False, report: IO[str] | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    """Measure everything and return the figures by name; a table of them goes to `report`.

    quick: less of everything, to see that all runs; the figures mean little then.
    """
    console = Console(file=report) if report is not None else Console(stderr=True)
    sizes = sizes or (QUICK if quick else Sizes())
    eddy.warmup()
    figures: dict[str, Any] = {"machine": machine()}
    normal: dict[str, float] = {}
    for turnover in (uniform(sizes.rows, 10 * sizes.rows), permutations(21, sizes.rows)):
        normal.update(_normal(turnover, sizes.rounds, console))
    worst = max(normal[f"normal.{name}.jisc_vs_symmetric_hash"] for name in ("W1", "W21"))
    figures["normal.jisc_vs_symmetric_hash"] = worst
    figures.update(normal)
    with progress(console) as bar:
        task = bar.add_task("pauses", total=len(sizes.points) * len(CHANGING) + 1)

        def advance(done: str) -> None:
            bar.update(task, advance=1, description=done)

        figures.update(pause_figures(sizes.points, sizes.headline, advance))
        figures.update(_calls(permutations(21, sizes.rows), sizes.calls))
        advance("calls")
    table = Table("figure", "value", "wanted")
    for name, value in figures.items():
        if not isinstance(value, str):
            wanted = f"≤ {BARS[name]:g}" if name in BARS else ""
            table.add_row(name, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", wanted)
    console.print(table)
    console.print(figures["machine"])
    return figures

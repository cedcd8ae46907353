"""`eddy bench limit`: the engine against hand-written loops and Polars, and the ways through Spark.

engine   keys in as arrays, row ids out in a buffer, as the loop has it (bench/engine.py)
arrow    `Runtime.push`: Arrow batches in, Arrow tables with the key and all values out
loop     bench/limit_kernels.py

Every ratio is a speed in terms of another's, measured in turns in one process; the numbers of results are compared
before any time is reported. The clock starts when windows are full and memory has its size: throughput is that of a
stream that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from time import thread_time
from typing import IO, Any

from rich.console import Console
from rich.table import Table

import eddy
from bench.engine import engine_run
from bench.loops import loop_seconds
from bench.measure import agree, machine, ratio, rounds
from bench.workloads import Workload, w1, w2, w21

LARGE, SMALL = 100_000, 1_000
MICROBATCH = 50_000

BARS = {
    "W1.engine_vs_loop": 0.5,
    "W1.arrow_vs_loop": 0.25,
    "W1.batch1000_vs_batch100000": 0.6,
    "W2.engine_vs_loop": 0.5,
    "W2.arrow_vs_loop": 0.25,
    "W2.batch1000_vs_batch100000": 0.6,
    "W21.engine_vs_loop": 0.4,
    "W1.arrow_vs_polars_microbatch": 1.0,
    "spark.rows_vs_identity": 0.5,
    "spark.packed_vs_rows": 2.0,
}
"""What the figures should reach."""


def arrow_seconds(workload: Workload, pushes: list[Any]) -> tuple[float, int]:
    """Return (CPU seconds in `Runtime.push`, results) once warm."""
    runtime = eddy.Runtime(workload.query)
    done = results = 0
    start = thread_time()
    for rows, order in pushes:
        if done == workload.warm:
            results, start = 0, thread_time()
        done += len(order)
        results += runtime.push(rows, order).num_rows
    return thread_time() - start, results


def _seconds_of(work: Callable[[], tuple[float, int]]) -> float:
    return work()[0]


def _compared(name: str, works: dict[str, Callable[[], tuple[float, int]]]) -> dict[str, Callable[[], float]]:
    """Return the works as functions that give seconds, having checked that all give the same number of results."""
    found = {way: work()[1] for way, work in works.items()}
    agree(name, found)
    return {way: partial(_seconds_of, work) for way, work in works.items()}


def _workload_figures(workload: Workload, count: int, report: Console) -> dict[str, float]:
    large, small = engine_run(workload, LARGE), engine_run(workload, SMALL)
    works = {
        "loop": lambda: loop_seconds(workload),
        "engine": large.seconds,
        "engine small": small.seconds,
    }
    if workload.name != "W21":
        pushes = {arrivals: workload.pushes(arrivals) for arrivals in (LARGE, SMALL)}
        works["arrow"] = lambda: arrow_seconds(workload, pushes[LARGE])
        works["arrow small"] = lambda: arrow_seconds(workload, pushes[SMALL])
    if workload.name == "W1" and find_spec("polars"):
        from bench.peers.polars_microbatch import polars_peer
        from bench.peers.turns import Turn
        from bench.peers.works import ROWS, Work

        middle = workload.pushes(MICROBATCH)
        turn = Turn(polars_peer(), Work(ROWS, workload.warm, workload.timed, MICROBATCH, seed=1))
        works["arrow middle"] = lambda: arrow_seconds(workload, middle)
        works["polars"] = lambda: (turn.seconds(), turn.results)
    taken = rounds(_compared(workload.name, works), count, workload.name, report)
    name, n = workload.name, workload.timed
    figures = {f"{name}.engine_vs_loop": ratio(taken, "engine", "loop")}
    figures[f"{name}.batch1000_vs_batch100000"] = ratio(taken, "engine small", "engine")
    if "arrow" in taken:
        figures[f"{name}.arrow_vs_loop"] = ratio(taken, "arrow", "loop")
        figures[f"{name}.arrow_batch1000_vs_batch100000"] = ratio(taken, "arrow small", "arrow")
    if "polars" in taken:
        figures[f"{name}.arrow_vs_polars_microbatch"] = ratio(taken, "arrow middle", "polars")
    for way in ("loop", "engine", "arrow", "polars"):
        if way in taken:
            figures[f"{name}.{way}_tuples_per_s"] = n / sorted(taken[way])[len(taken[way]) // 2]
    return figures


def _state_figures(workload: Workload) -> dict[str, float]:
    runtime = eddy.Runtime(workload.query)
    for rows, order in workload.pushes(SMALL):
        runtime.push(rows, order)
    live = sum(state["rows"] for state in runtime.metrics()["states"].values())
    return {"state.bytes_per_live_tuple": runtime.nbytes / live}


def run(*, quick: bool = False, report: IO[str] | None = None, spark: bool = True) -> dict[str, Any]:
    """Measure everything and return the figures by name; a table of them goes to `report`.

    quick: smaller workloads and fewer rounds, to see that all runs; the figures mean little then.
    """
    console = Console(file=report) if report is not None else Console(stderr=True)
    eddy.warmup()
    count, share = (2, 10) if quick else (7, 1)
    figures: dict[str, Any] = {"machine": machine()}
    first = w1(1_000_000 // share)
    for workload in (first, w2(1_000_000 // share), w21(2_000_000 // share)):
        figures.update(_workload_figures(workload, count, console))
    figures.update(_state_figures(first))
    if spark and not find_spec("pyspark"):
        console.print("Spark is left out: pyspark is not installed (pip install 'eddy-join[spark]')", markup=False)
    elif spark:
        from bench.spark import spark_ratios

        figures.update(spark_ratios(arrivals=10_000_000 // share))
    table = Table("figure", "value", "wanted")
    for name, value in figures.items():
        if isinstance(value, float):
            wanted = f"≥ {BARS[name]:g}" if name in BARS else ""
            table.add_row(name, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", wanted)
    console.print(table)
    console.print(figures["machine"])
    return figures

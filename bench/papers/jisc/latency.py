"""Figure 10: the time from a transition until the next output, by the size of the windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from time import perf_counter

import numpy as np
import pyarrow as pa

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from bench.ways.strategies import PUSH, pauses, started
from bench.workloads.sources import permutations, uniform
from eddy import Query, Rows, Runtime, Stream
from eddy.routing.strategies import strategy_name

STRATEGIES = ("jisc", "moving-state", "stairs")
PUSHES = 20
"""Pushes timed before and after a transition, if a turnover has fewer."""
NESTED = ("jisc", "moving-state")
"""The strategies of panel b."""
PANELS = {"a": "hash joins", "b": "nested loops"}


def points(full: bool) -> list[Point]:
    """Return the points of hash joins (panel a) and of nested loops (panel b)."""
    hashed = [(20, 1_000, 9), (20, 10_000, 1), (3, 1_000, 9), (3, 10_000, 5), (3, 100_000, 1)]
    nested = [(100, 9), (1_000, 5)]
    if full:
        hashed = [(20, 1_000, 9), (20, 10_000, 5), (20, 100_000, 1)]
        hashed += [(3, 1_000, 9), (3, 10_000, 9), (3, 100_000, 5), (3, 1_000_000, 1)]
        nested = [(100, 9), (1_000, 9), (10_000, 3)]
    return [
        {"panel": panel, "joins": joins, "window": window, "transitions": transitions, "seed": 5}
        for panel, cases in (("a", hashed), ("b", [(20, *point) for point in nested]))
        for joins, window, transitions in cases
    ]


def uniform_points(full: bool) -> list[Point]:
    """Return the points of hash joins of four streams; with more streams, possibly no key is in all of them."""
    return [{**point, "keys": "uniform"} for point in points(full) if (point["panel"], point["joins"]) == ("a", 3)]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy."""
    joins, window, transitions = (point[name] for name in ("joins", "window", "transitions"))
    name = f"latency, {PANELS[str(point['panel'])]}, {joins} joins, windows of {window:,}"
    results: dict[str, object] = {}
    rows: list[Row] = []
    if point["panel"] == "a":
        permuted = point.get("keys") != "uniform"
        if not permuted:
            turnover = uniform(window, window, point["seed"], joins + 1).from_a_result()
        else:
            turnover = permutations(joins + 1, window, point["seed"])
        # The first push after a transition has one arrival, which has a result.
        pushes = turnover.cut(PUSH, first=1).arrow
        started(turnover, pushes, STRATEGIES)
        for strategy in STRATEGIES:
            say(f"{name}: {strategy}")
            measured, results[strategy] = pauses(turnover, pushes, strategy, transitions, PUSHES, complete=permuted)
            latency = spread([float(pause.latency[0]) for pause in measured], "latency_s")
            usual = spread([float(pause.usual[0]) for pause in measured], "usual_push_s")
            rows.append({"strategy": strategy, "curve": f"{strategy}, {joins} joins", **latency, **usual})
    else:
        for strategy in NESTED:
            taken = []
            for n in range(transitions + 1):
                say(f"{name}: {strategy}, {n} of {transitions}")
                with without_gc():
                    taken.append(first_output(joins + 1, window, strategy, point["seed"] + n))
            # The first transition may compile kernels.
            latency = spread([seconds for seconds, _ in taken[1:]], "latency_s")
            results[strategy] = [count for _, count in taken]
            rows.append({"strategy": strategy, "curve": f"{strategy}, {joins} joins", **latency})
    agree(name, results)
    return rows


def first_output(streams: int, window: int, strategy: str, seed: int) -> tuple[float, int]:
    """Return the seconds of a transition and of a push of one tuple over full windows, and the results of the push.

    All joins are nested loops: the predicates are comparisons, `R.k between S.k and S.k`, from stream to stream.
    """
    rng, schema = np.random.default_rng(seed), pa.schema([("k", pa.int64())])
    names = [f"S{i:03}" for i in range(streams)]
    query = Query(
        [Stream(name, schema, Rows(window)) for name in names],
        [f"{a}.k between {b}.k and {b}.k" for a, b in pairwise(names)],
    )
    runtime = Runtime(query, " ".join(names), strategy=strategy_name(strategy), count_only=True)
    runtime.load({name: pa.record_batch({"k": rng.permutation(window)}) for name in names})
    row = {names[0]: pa.record_batch({"k": [int(rng.integers(window))]})}
    start = perf_counter()
    runtime.transition(" ".join(names[::-1]))
    table = runtime.push(row)
    return perf_counter() - start, table["count"][0].as_py()


FIGURE = Figure(
    "fig10",
    "Streams joined on one key, each repeating its own permutation of as many keys as its window has rows. With "
    "full windows the plan changes to one that shares no state with the old one; latency is the wall time of the "
    "change and of a push of one tuple. Panel a, hash joins: the engine, with 20 joins as in the paper, and with "
    "3 joins up to windows of 10⁶. Panel b, nested loops: the engine as well, with comparisons in place of "
    "equalities. Of the paper's latencies the only one in its text is drawn: about 4600 s under Moving State.",
    points,
    measure,
    source="Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure 10",
    plots=[
        Plot(
            f"Latency over {joined}",
            "window",
            "latency_s",
            "curve",
            name=panel,
            x_label="rows of a window",
            y_label="seconds until output",
            log="xy",
            where={"panel": panel},
        )
        for panel, joined in PANELS.items()
    ],
    tables=[
        ReportTable(
            f"Latency over {joined}",
            {"window": "rows of a window"},
            {"latency_s": "s"},
            across="curve",
            where={"panel": panel},
        )
        for panel, joined in PANELS.items()
    ],
    printed=[{"panel": "b", "window": 100_000, "curve": "moving-state, 20 joins", "latency_s": 4600.0}],
)
UNIFORM_FIGURE = Figure(
    "fig10-uniform",
    "Four streams joined on one key, uniform over as many values as a window has rows, as the paper draws keys. With "
    "full windows the plan changes to one that shares no state with the old one; latency is the wall time of the "
    "change and of a push of one tuple that has a result. Only 3 joins: over 20 joins no tuple joins all the way.",
    uniform_points,
    measure,
    source="Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure 10",
    plots=[replace(FIGURE.plots[0], name="")],
    tables=FIGURE.tables[:1],
)

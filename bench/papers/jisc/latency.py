"""Figure 10: the time from a transition until the next output, by the size of the windows."""

from __future__ import annotations

from bench.harness.figure import Figure, Plot, Point, Row, Say, Table, spread
from bench.harness.turns import agree, without_gc
from bench.papers.jisc.nested_loops import STRATEGIES as MODELS
from bench.papers.jisc.nested_loops import first_output
from bench.ways.strategies import PUSH, pauses, started
from bench.workloads.sources import permutations

STRATEGIES = ("jisc", "moving-state", "stairs")
PUSHES = 20
"""Pushes timed before and after a transition, if a turnover has fewer."""
PANELS = {"a": "hash joins", "b": "nested loops"}


def points(full: bool) -> list[Point]:
    """Return the points of hash joins (panel a) and of nested loops (panel b)."""
    hashed = [(20, 1_000, 9), (20, 10_000, 1), (3, 1_000, 9), (3, 10_000, 5), (3, 100_000, 1)]
    nested = [(100, 9), (1_000, 5)]
    if full:
        hashed = [(20, 1_000, 9), (20, 10_000, 5), (20, 100_000, 1)]
        hashed += [(3, 1_000, 9), (3, 10_000, 9), (3, 100_000, 5), (3, 1_000_000, 1)]
        nested = [(100, 9), (1_000, 9), (10_000, 3), (100_000, 1)]
    return [
        {"panel": panel, "joins": joins, "window": window, "transitions": transitions, "seed": 5}
        for panel, own in (("a", hashed), ("b", [(20, *point) for point in nested]))
        for joins, window, transitions in own
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy."""
    joins, window, transitions = (point[name] for name in ("joins", "window", "transitions"))
    name = f"latency, {PANELS[str(point['panel'])]}, {joins} joins, windows of {window:,}"
    results: dict[str, object] = {}
    rows: list[Row] = []
    if point["panel"] == "a":
        turnover = permutations(joins + 1, window, point["seed"])
        # The first push after a transition has one arrival, which has one result.
        pushes = turnover.cut(PUSH, first=1).arrow
        started(turnover, pushes, STRATEGIES)
        for strategy in STRATEGIES:
            say(f"{name}: {strategy}")
            found, results[strategy] = pauses(turnover, pushes, strategy, transitions, PUSHES)
            latency = spread([float(pause.latency[0]) for pause in found], "latency_s")
            usual = spread([float(pause.usual[0]) for pause in found], "usual_push_s")
            rows.append({"strategy": strategy, "curve": f"{strategy}, {joins} joins", **latency, **usual})
    else:
        for strategy in MODELS:
            say(f"{name}: {strategy}")
            with without_gc():
                taken = [first_output(joins + 1, window, strategy, point["seed"] + n) for n in range(transitions)]
            results[strategy] = [sorted(found) for *_, found in taken]
            latency = spread([seconds for _, seconds, _ in taken], "latency_s")
            rows.append({"strategy": strategy, "curve": f"{strategy}, {joins} joins", **latency})
    agree(name, results)
    return rows


FIGURES = (
    Figure(
        "fig10",
        "Streams joined on one key, each repeating its own permutation of as many keys as its window has rows. With "
        "full windows the plan changes to one that shares no state with the old one; latency is the wall time of the "
        "change and of a push of one tuple. Panel a, hash joins: the engine, with 20 joins as in the paper, and with "
        "3 joins up to windows of 10⁶. Panel b, nested loops: a model (bench/papers/jisc/nested_loops.py), since the "
        "engine has hash tables only. Of the paper's latencies the only one in its text is drawn: about 4600 s under "
        "Moving State.",
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
            Table(
                f"Latency over {joined}",
                {"window": "rows of a window"},
                {"latency_s": "s"},
                across="curve",
                where={"panel": panel},
            )
            for panel, joined in PANELS.items()
        ],
        printed=[{"panel": "b", "window": 100_000, "curve": "moving-state, 20 joins", "latency_s": 4600.0}],
    ),
)

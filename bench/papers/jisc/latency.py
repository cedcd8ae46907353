"""Figure 10: how long after a transition there is output again, against the size of the windows."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.harness.words import listed, plain
from bench.measure import agree, without_gc
from bench.papers.jisc.comparison import exponents, most, values
from bench.papers.jisc.nested_loops import STRATEGIES as MODELS
from bench.papers.jisc.nested_loops import first_output
from bench.papers.jisc.runs import PUSH, started
from bench.pauses import pauses
from bench.workloads import permutations

STRATEGIES = ("jisc", "moving-state", "stairs")
PUSHES = 20
"""Pushes timed before and after a transition, if a turnover has fewer."""
PAPER = {"window": 100_000, "moving-state": 4600.0}
"""Seconds that the paper names for nested loops."""
FLAT = 0.15
"""An exponent not farther from 0 is called flat: over a thousand times the window it is less than a factor of 3."""


def points(full: bool) -> list[Point]:
    """Return the points of hash joins (panel a) and of nested loops (panel b)."""
    hashed = [(20, 1_000, 9), (20, 10_000, 1), (3, 1_000, 9), (3, 10_000, 5), (3, 100_000, 1)]
    nested = [(100, 9), (1_000, 5), (10_000, 1)]
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
    return _hashed(point, say) if point["panel"] == "a" else _nested(point, say)


def _hashed(point: Point, say: Say) -> list[Row]:
    joins, window = int(point["joins"]), int(point["window"])
    turnover = permutations(joins + 1, window, int(point["seed"]))
    # The first push after a transition has one arrival, which has one result.
    pushes = turnover.pushes(PUSH, first=1)
    started(turnover, pushes, STRATEGIES)
    rows: list[Row] = []
    counts = {}
    for strategy in STRATEGIES:
        say(f"latency, hash joins, {joins} joins, windows of {window:,}: {strategy}")
        found, counts[strategy] = pauses(turnover, pushes, strategy, int(point["transitions"]), PUSHES)
        rows.append(
            {
                "strategy": strategy,
                "curve": _curve(strategy, joins),
                **spread([pause.latency[0] for pause in found], "latency_s"),
                "call_s": spread([pause.call[0] for pause in found], "s")["s"],
                "pause_s": spread([pause.longest[0] for pause in found], "s")["s"],
                "usual_push_s": spread([pause.usual[0] for pause in found], "s")["s"],
            }
        )
    agree(f"latency, {joins} joins, windows of {window:,}", counts)
    return rows


def _nested(point: Point, say: Say) -> list[Row]:
    joins, window = int(point["joins"]), int(point["window"])
    taken: dict[str, list[float]] = {strategy: [] for strategy in MODELS}
    calls: dict[str, list[float]] = {strategy: [] for strategy in MODELS}
    for strategy in MODELS:  # compiles the loops
        first_output(3, 10, strategy, 0)
    with without_gc():
        for number in range(int(point["transitions"])):
            results = {}
            for strategy in MODELS:
                say(f"latency, nested loops, windows of {window:,}: {strategy}, {number + 1}")
                call, seconds, found = first_output(joins + 1, window, strategy, int(point["seed"]) + number)
                results[strategy] = sorted(found)
                calls[strategy].append(call)
                taken[strategy].append(seconds)
            agree(f"latency, nested loops, windows of {window:,}", results)
    return [
        {
            "strategy": strategy,
            "curve": _curve(strategy, joins),
            **spread(found, "latency_s"),
            "call_s": spread(calls[strategy], "s")["s"],
        }
        for strategy, found in taken.items()
    ]


def _curve(strategy: str, joins: int) -> str:
    return f"{strategy}, {joins} joins"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say which curves are flat and how the others grow, and how strategies compare at the largest windows."""
    said = []
    for panel, name in (("a", "Hash joins"), ("b", "Nested loops")):
        own = [row for row in rows if row.get("panel") == panel]
        grown = exponents(own, "window", "latency_s", "curve")
        told = [f"{'flat, ' if abs(b) <= FLAT else ''}{round(b, 2) + 0.0:.2f} ({curve})" for curve, b in grown.items()]
        if told:
            said.append(f"{name}: the power of the window to which latency grows is {listed(told)}.")
        for joins in sorted({int(str(row["joins"])) for row in own}):
            said += _largest(name, joins, [row for row in own if row["joins"] == joins])
    return [*said, *_beside_the_paper(rows)]


def _largest(name: str, joins: int, rows: Sequence[Row]) -> list[str]:
    window = most(rows, "window")
    latency, usual = (values(rows, column, window=window) for column in ("latency_s", "usual_push_s"))
    if window is None or "jisc" not in latency:
        return []
    own = latency["jisc"]
    others = listed([f"{one} {plain(value / own)} times that" for one, value in latency.items() if one != "jisc"])
    against = f" ({own / usual['jisc']:.2f} of a usual push of {PUSH:,})" if "jisc" in usual else ""
    eager = latency.get("moving-state")
    verdict = ""
    if eager is not None:
        holds = "holds" if eager > own else "does not hold"
        verdict = f" The paper's order, JISC before Moving State, {holds}."
    return [
        f"{name}, {joins} joins, windows of {window:,.0f}: there is output {plain(1e3 * own)} ms after the transition "
        f"under jisc{against}, {others}.{verdict}"
    ]


def _beside_the_paper(rows: Sequence[Row]) -> list[str]:
    here = values(rows, "latency_s", panel="b", window=PAPER["window"]).get("moving-state")
    if here is None:
        return []
    joins = next(int(str(row["joins"])) for row in rows if row.get("panel") == "b")
    pairs = (joins - 1) * PAPER["window"] ** 2
    return [
        f"The paper reads about {PAPER['moving-state']:,.0f} s for Moving State over nested loops at windows of "
        f"{PAPER['window']:,.0f}; here it is {plain(here)} s, which is {1e9 * here / pairs:.2g} ns a pair where "
        f"the paper's would be {1e9 * PAPER['moving-state'] / pairs:.2g}, if it computes the {joins - 1} states below "
        "the root as well."
    ]


FIGURES = (
    Figure(
        name="fig10",
        title="Output latency after a transition",
        source="Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure 10",
        about=(
            "Streams joined on one key, each repeating its own permutation of as many keys as its window has rows: "
            "every tuple gives one result. With full windows the plan changes to one that shares no state with the old "
            "one. Latency is the wall time from then until the first result: the change, and a push of one tuple. "
            "Panel a, hash joins: the engine, with 21 streams as in the paper and windows of 10³ to 10⁵ rows, and with "
            "four streams (3 joins) up to 10⁶, where 21 would take gigabytes and an hour; the curves are told apart by "
            "the number of joins. Three strategies one after another, several transitions there and back, one where "
            f"windows are largest. `pause_s` is the longest wait in the turnover after, in pushes of {PUSH:,}. "
            "Panel b, nested loops: the engine has hash tables only, so it is a model (bench/papers/jisc/"
            "nested_loops.py): states and windows are lists, every probe scans, the predicate is evaluated for each "
            "pair; moving-state computes all 19 states below the root before the next tuple, jisc what the first tuple "
            "asks for, down the plan. Windows are filled at once; the first tuple is of a stream drawn at random. "
            "Windows of 10² to 10⁵, once at the largest, which takes minutes. Quick: up to 10⁴, in panel a up to 10⁵ "
            "with four streams. Of the paper's own latencies only the one that its text names is given, about 4600 s "
            "for Moving State over nested loops at windows of 100,000."
        ),
        points=points,
        measure=measure,
        plots=tuple(
            Plot(
                f"Latency over {joined}",
                "window",
                "latency_s",
                "curve",
                name=panel,
                x_label="rows of a window",
                y_label="seconds until output",
                log_x=True,
                log_y=True,
                where={"panel": panel},
                spread=("latency_s_low", "latency_s_high"),
            )
            for panel, joined in (("a", "hash joins"), ("b", "nested loops"))
        ),
        remarks=remarks,
        printed=[
            {
                "panel": "b",
                "joins": 20,
                "window": PAPER["window"],
                "strategy": "moving-state",
                "curve": _curve("moving-state", 20),
                "latency_s": PAPER["moving-state"],
            }
        ],
    ),
)

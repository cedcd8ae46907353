"""Figures 13 to 16: what is stored and what comes out over time, before, in and after a migration stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import thread_time

import eddy
from bench.harness.figure import Figure, Grid, Plot, Point, Row, Say
from bench.measure import agree, without_gc
from bench.papers.migration import over_time_remarks as remarks
from bench.papers.migration.arrivals import NEW, OLD, Push, Setting, counted, draw
from bench.papers.migration.over_time_remarks import MS, NEW_ONLY, OLD_ONLY, PT
from bench.papers.migration.server import Served, first_begun, longest_silence, rates, serve, slow_down
from bench.papers.migration.stage import PUSH_MS, steps

LOW = Setting(1_000, (100, 100, 100, 100), (0.1, 0.02, 0.02))
HIGH = Setting(2_000, (50, 50, 50, 50), (0.2, 0.05, 0.05))
LOW_LOAD, HIGH_LOAD = 0.3, 1.3
LOW_SCALE, HIGH_SCALE = 400, 100
CHANGE_MS, SEED = 10_000, 13
CASES = (MS, PT, "jisc", NEW_ONLY, OLD_ONLY)
RATE_MS = 1_000
"""Time on the clock over which an output rate is taken."""
LEVEL = 1.05
"""Entries are at the new plan's level when they are at most so many times its own."""


@dataclass(frozen=True)
class Run:
    """One case through the stream, an entry for each push.

    seconds  CPU seconds of the push
    stall    CPU seconds of the transition before it, 0 = none
    results  results of it
    entries  stored in inner states of all plans that run, after it
    """

    seconds: list[float]
    stall: list[float]
    results: list[int]
    entries: list[int]


def run(setting: Setting, pushes: Sequence[Push], case: str, change: int | None) -> Run:
    """Take the pushes, and change from the old plan to the new one before push number `change`."""
    alone = case in (NEW_ONLY, OLD_ONLY)
    plan = NEW if case == NEW_ONLY else OLD
    strategy = "symmetric-hash" if alone else case
    runtime = eddy.Runtime(setting.query(), plan, strategy=strategy, count_only=True)
    made = Run([], [], [], [])
    for k, push in enumerate(pushes):
        stall = 0.0
        if k == change and not alone:
            start = thread_time()
            runtime.transition(NEW)
            stall = thread_time() - start
        start = thread_time()
        table = runtime.push(*push)
        made.seconds.append(thread_time() - start)
        made.stall.append(stall)
        made.results.append(counted(table))
        made.entries.append(sum(stair.rows for stair in runtime.stairs))
    runtime.dismantle()
    return made


def _medians(runs: Sequence[Run]) -> Run:
    """Return runs of one case as one: the median seconds of each push; counts are the same in all of them."""
    seconds = [median(own) for own in zip(*(one.seconds for one in runs), strict=True)]
    stall = [median(own) for own in zip(*(one.stall for one in runs), strict=True)]
    return Run(seconds, stall, runs[0].results, runs[0].entries)


def level_ms(entries: Sequence[int], new: Sequence[int], served: Served, change: int) -> float | None:
    """Return the ms from the change until entries are at the new plan's level for good; None = they never are."""
    above = [k for k in range(change, len(entries)) if entries[k] > LEVEL * new[k]]
    first = above[-1] + 1 if above else change
    return None if first >= len(entries) else served.done[first] - served.begun[change]


def measure(point: Point, say: Say, series: str) -> list[Row]:
    """Measure all cases, in turns, and return a row for each case and the rows of a series: "entries" or "rate".

    Raises bench.measure.Mismatch if a push has not the same number of results in all cases.
    """
    setting, stream_ms, load = Setting.of(point), int(point["stream_ms"]), float(point["load"])
    name = f"windows of {setting.w_ms} ms, scale {setting.scale}"
    arrivals = draw(setting, stream_ms, int(point["seed"]))
    edges = steps(0, stream_ms, PUSH_MS)
    pushes = arrivals.pushes(edges)
    repeats = int(point["repeats"])
    runs: dict[str, list[Run]] = {case: [] for case in CASES}
    with without_gc():
        say(f"{name}: where the plan changes")
        # The second run: the first one finds memory and caches cold.
        seconds = [run(setting, pushes, OLD_ONLY, None).seconds for _ in range(2)][1]
        served = serve(edges, seconds, slow_down(seconds, stream_ms, load))
        change = first_begun(served, float(point["change_ms"]))
        for turn in range(repeats):
            for case in CASES:
                say(f"{name}: {case}, round {turn + 1} of {repeats}")
                runs[case].append(run(setting, pushes, case, change))
    agree(name, {f"{case} {turn}": one.results for case, own in runs.items() for turn, one in enumerate(own)})
    found = {case: _medians(own) for case, own in runs.items()}
    # Not the factor of the run before: a machine that has become slower would make another load of it.
    factor = slow_down(found[OLD_ONLY].seconds, stream_ms, load)
    rows: list[Row] = []
    for case, one in found.items():
        served = serve(edges, one.seconds, factor, one.stall)
        rows.append(
            {
                "shows": "case",
                "case": case,
                "slow_down": factor,
                "repeats": repeats,
                **_summary(one, found[NEW_ONLY], served, edges, change, factor, setting.w_ms),
                **arrivals.found_sigmas(),
            }
        )
        if series == "entries":
            rows += [
                {"shows": series, "case": case, "ms": ms, "entries": entries}
                for ms, entries in zip(served.done, one.entries, strict=True)
            ]
        else:
            found_rates = rates(served.done, one.results, RATE_MS)
            rows += [{"shows": series, "case": case, "ms": ms, "rate": rate} for ms, rate in found_rates]
    return rows


def _summary(one: Run, new: Run, served: Served, edges: Sequence[float], change: int, factor: float, w_ms: int) -> Row:
    """Return the figures of a case, all on the clock; the stage is taken to be the 2 W after the change."""
    changed = served.begun[change] if change < len(edges) else served.done[-1]
    end = changed + 2 * w_ms
    stage = [k for k in range(change, len(edges)) if served.done[k] <= end]
    before = served.done[change - 1] if change else 0.0
    after = range(change, len(edges))
    return {
        "changed_ms": changed,
        "stall_ms": 1e3 * factor * sum(one.stall),
        "silence_ms": longest_silence(served.done, one.results, before, end),
        "silence_before_ms": longest_silence(served.done, one.results, before - 2 * w_ms, before),
        "level_ms": level_ms(one.entries, new.entries, served, change),
        "stage_entries": sum(one.entries[k] for k in stage) / len(stage) if stage else None,
        "stage_results": sum(one.results[k] for k in stage),
        "mean_entries": sum(one.entries[k] for k in after) / len(after) if len(after) else None,
        "load": factor * 1e3 * (sum(one.seconds) + sum(one.stall)) / edges[-1],
        "behind_ms": served.done[-1] - edges[-1],
        "cpu_ms": 1e3 * (sum(one.seconds) + sum(one.stall)),
    }


def _points(setting: Setting, scale: int, load: float, full: bool) -> list[Point]:
    return [
        {
            **replace(setting, scale=factor).columns(),
            "load": load,
            "change_ms": CHANGE_MS,
            "stream_ms": 50_000 if full else 16_000,
            "seed": SEED,
            "repeats": 7 if full else 2,
        }
        for factor in (1, scale)
    ]


ABOUT = (
    "Four streams joined in a chain, RANGE windows of {w_ms} ms, Poisson arrivals and reduction factors of the paper's"
    " table 2, section 6.3, set {number}; pushes of 250 ms of stream time. Five cases: the plan ((A B) C) D to the end,"
    " A ((B C) D) from the start, and the change from one to the other at 10 000 ms by moving-state, parallel-track and"
    " jisc. The time is that of a virtual clock: a push is there at the end of its stream time, and the processor takes"
    " the CPU seconds measured for it times a factor, chosen so that the old plan asks for {load} of the time there"
    " is; a quick run has 16 000 of the 50 000 ms. At the paper's rates a push has some {few} tuples and its fixed cost"
    " is most of what is measured, so a second series has {scale} times the tuples and as many times the keys.{more}"
)
ENTRIES = (
    " Counted are the entries of all inner states, of both plans while two run, after each push. Tuples of the streams"
    " themselves are not: they are stored once, whatever the plan."
)
RATE = (
    " The rate is taken over a second of the clock. Output is not held back under parallel-track: results of the new"
    " plan appear when they are found, where the paper keeps them until the old plan is gone. The backlog that there"
    " is when the plan changes is not worked off first, which the paper's moving-state does; arrivals here are walked"
    " to their end one by one, so none is half done."
)

HEADINGS = {
    "slow_down": "times slower",
    "load": "load",
    "changed_ms": "changed at, ms",
    "stall_ms": "stall, ms",
    "silence_ms": "longest silence, ms",
    "silence_before_ms": "the same before, ms",
    "level_ms": "at the new level after, ms",
    "stage_entries": "mean entries in 2 W",
    "stage_results": "results in 2 W",
    "behind_ms": "behind at the end, ms",
}


def _figure(
    number: int,
    title: str,
    setting: Setting,
    scale: int,
    load: float,
    series: str,
    said: Callable[[Sequence[Row]], Sequence[str]],
    printed: Sequence[Row] = (),
) -> Figure:
    labels: Mapping[str, str] = {"entries": "entries in inner states", "rate": "results a second"}
    low = setting is LOW
    tuples = sum(PUSH_MS / delay for delay in setting.delays)
    about = ABOUT.format(
        w_ms=setting.w_ms,
        number=1 if low else 2,
        load=f"{load:g} times" if load > 1 else f"{load:g}",
        few=f"{tuples:.0f}",
        scale=scale,
        more=ENTRIES if series == "entries" else RATE,
    )
    titles = {1: ("", title), scale: ("scaled", f"{title}, {scale} times the tuples")}
    return Figure(
        name=f"migration-fig{number}",
        title=title,
        about=about,
        points=partial(_points, setting, scale, load),
        measure=partial(measure, series=series),
        source=f"Zhu, Rundensteiner, Heineman, SIGMOD 2004, figure {number}",
        plots=[
            Plot(
                own,
                "ms",
                series,
                by="case",
                name=name,
                x_label="ms on the clock",
                y_label=labels[series],
                where={"shows": series, "scale": factor},
                kind="steps" if series == "rate" else "lines",
                marked={float(CHANGE_MS): "change of plan"},
            )
            for factor, (name, own) in titles.items()
        ],
        grids=[
            Grid(f"Cases: {own}", {"case": "case"}, HEADINGS, where={"shows": "case", "scale": factor})
            for factor, (_, own) in titles.items()
        ],
        remarks=said,
        printed=printed,
    )


FIGURES: tuple[Figure, ...] = (
    _figure(13, "Entries stored, low configuration", LOW, LOW_SCALE, LOW_LOAD, "entries", remarks.entries),
    _figure(14, "Output rate, low configuration", LOW, LOW_SCALE, LOW_LOAD, "rate", remarks.output_low),
    _figure(15, "Entries stored, high configuration", HIGH, HIGH_SCALE, HIGH_LOAD, "entries", remarks.entries),
    _figure(
        16,
        "Output rate, high configuration",
        HIGH,
        HIGH_SCALE,
        HIGH_LOAD,
        "rate",
        remarks.output_high,
        [{"shows": "case", "scale": 1, "case": MS, "silence_ms": remarks.PAPER_SILENCE_MS}],
    ),
)
"""Figures 13 to 16."""

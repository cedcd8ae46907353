"""Figures 13 to 16: entries and output over time, before, during and after a migration stage.

The machine of the paper could not keep up with the old plan in the high configuration, but a current machine can. So
times are times of a virtual clock: a push is available at the end of its stream time, and the processor takes the CPU
seconds measured for the push times a factor, one push after another. With this factor the old plan needs `load` times
the available time; the factor is the same for all cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import agree, without_gc
from bench.papers.migration.arrivals import NEW, OLD, MigrationSetting, Push, StrategyRun, draw, run, steps
from bench.papers.migration.length import PUSH_MS

LOW = MigrationSetting(1_000, (100, 100, 100, 100), (0.1, 0.02, 0.02))
HIGH = MigrationSetting(2_000, (50, 50, 50, 50), (0.2, 0.05, 0.05))
CHANGE_MS, SEED = 10_000, 13
MS, PT, JISC, NEW_ONLY, OLD_ONLY = "moving-state", "parallel-track", "jisc", "new plan only", "old plan only"
CASES = (MS, PT, JISC, NEW_ONLY, OLD_ONLY)
RATE_MS = 1_000
"""Time on the clock over which an output rate is taken."""
LEVEL = 1.05
"""Entries are at the level of the new plan when they are at most this multiple of that level."""


@dataclass(frozen=True)
class ServiceTimes:
    """ms of the clock, one entry for each push: when its work began, and when its results came out."""

    begun: list[float]
    done: list[float]


def slow_down(seconds: Sequence[float], stream_ms: float, load: float) -> float:
    """Return the factor by which these pushes, over this much stream time, make the given load."""
    return load * stream_ms / (1e3 * sum(seconds))


def serve(available: Sequence[float], seconds: Sequence[float], factor: float, stalls: Sequence[float]) -> ServiceTimes:
    """Return when pushes are served.

    available  ms at which each push is available, ascending
    seconds    measured CPU seconds of each push; stalls: seconds just before each push without output
    """
    begun, done, clock = [], [], 0.0
    for there, taken, stall in zip(available, seconds, stalls, strict=True):
        clock = max(clock, there)
        begun.append(clock)
        clock += 1e3 * factor * (taken + stall)
        done.append(clock)
    return ServiceTimes(begun, done)


def longest_silence(done: Sequence[float], results: Sequence[int], start: float, end: float) -> float:
    """Return the longest time without output, in ms, that lies at least partly between two moments.

    Only pushes with results are output. Silence before the first output and after the last one does not count.
    """
    outputs = [at for at, count in zip(done, results, strict=True) if count]
    return max((after - before for before, after in pairwise(outputs) if after > start and before < end), default=0.0)


def rates(done: Sequence[float], results: Sequence[int], width: float) -> list[tuple[float, float]]:
    """Return (ms, results a second) for each stretch of `width` ms from 0 to the last push; ms is its end."""
    counts = [0] * (int(max(done, default=0.0) // width) + 1)
    for at, number in zip(done, results, strict=True):
        counts[int(at // width)] += number
    return [((k + 1) * width, 1e3 * count / width) for k, count in enumerate(counts)]


def level_ms(entries: Sequence[int], new: Sequence[int], served: ServiceTimes, change: int) -> float | None:
    """Return the ms from the change until entries stay at the new plan's level; None = never."""
    above = [k for k in range(change, len(entries)) if entries[k] > LEVEL * new[k]]
    first = above[-1] + 1 if above else change
    return None if first >= len(entries) else served.done[first] - served.begun[change]


def run_case(setting: MigrationSetting, pushes: Sequence[Push], case: str, change: int | None) -> StrategyRun:
    """Take the pushes; in a case of two plans, change to the new one before push number `change`."""
    if case in (NEW_ONLY, OLD_ONLY):
        return run(setting, pushes, "symmetric-hash", None, NEW if case == NEW_ONLY else OLD)
    return run(setting, pushes, case, change)


def _medians(runs: Sequence[StrategyRun]) -> StrategyRun:
    """Return the runs of a case as one run, with the median seconds of each push; all runs have the same counts."""
    seconds = [median(samples) for samples in zip(*(strategy_run.seconds for strategy_run in runs), strict=True)]
    stall = [median(samples) for samples in zip(*(strategy_run.stall for strategy_run in runs), strict=True)]
    return replace(runs[0], seconds=seconds, stall=stall)


def measure(series: str, point: Point, say: Say) -> list[Row]:
    """Return a row for each case and the rows of a series, "entries" or "rate"; cases take turns.

    Raises Mismatch if a push has different numbers of results in two cases.
    """
    setting, stream_ms, load = MigrationSetting.of(point), point["stream_ms"], point["load"]
    arrivals, edges = draw(setting, stream_ms, point["seed"]), steps(0, stream_ms, PUSH_MS)
    pushes, name = arrivals.pushes(edges), f"windows of {setting.w_ms} ms, scale {setting.scale}"
    runs: dict[str, list[StrategyRun]] = {case: [] for case in CASES}
    with without_gc():
        say(f"{name}: when the plan changes")
        # These seconds are from the second run: memory and caches are cold in the first run.
        seconds = [run_case(setting, pushes, OLD_ONLY, None).seconds for _ in range(2)][1]
        served = serve(edges, seconds, slow_down(seconds, stream_ms, load), [0.0] * len(edges))
        later = (k for k, begun in enumerate(served.begun) if begun >= point["change_ms"])
        change = next(later, len(edges))
        # The old plan processes the accumulated pushes before states are moved (sec. 4.1). The other cases begin at
        # once.
        worked_off = next((k for k in range(change, len(edges)) if edges[k] > point["change_ms"]), len(edges))
        for turn in range(point["repeats"]):
            for case in CASES:
                say(f"{name}, round {turn + 1}: {case}")
                runs[case].append(run_case(setting, pushes, case, worked_off if case == MS else change))
    agree(
        name,
        {
            f"{case} {turn}": strategy_run.results
            for case, turns in runs.items()
            for turn, strategy_run in enumerate(turns)
        },
    )
    medians = {case: _medians(turns) for case, turns in runs.items()}
    # The factor comes from these runs, not from the run above, because the speed of the machine may have changed.
    factor = slow_down(medians[OLD_ONLY].seconds, stream_ms, load)
    rows: list[Row] = []
    for case, median_run in medians.items():
        served = serve(edges, median_run.seconds, factor, median_run.stall)
        summary = _summary(median_run, medians[NEW_ONLY], served, edges, change, factor, setting.w_ms)
        rows.append({"shows": "case", "case": case, "slow_down": factor, **summary})
        values = zip(served.done, median_run.entries, strict=True) if series == "entries" else None
        for ms, value in values or rates(served.done, median_run.results, RATE_MS):
            rows.append({"shows": series, "case": case, "ms": ms, series: value})
    return rows


def _summary(
    strategy_run: StrategyRun,
    new: StrategyRun,
    served: ServiceTimes,
    edges: Sequence[float],
    change: int,
    factor: float,
    w_ms: int,
) -> Row:
    """Return the figures of a case on the clock; the stage is taken to be the 2 W after the change."""
    changed = served.begun[change] if change < len(edges) else served.done[-1]
    end = changed + 2 * w_ms
    stage = [k for k in range(change, len(edges)) if served.done[k] <= end]
    before = served.done[change - 1] if change else 0.0
    after = range(change, len(edges))
    return {
        "changed_ms": changed,
        "stall_ms": 1e3 * factor * sum(strategy_run.stall),
        "silence_ms": longest_silence(served.done, strategy_run.results, before, end),
        "silence_before_ms": longest_silence(served.done, strategy_run.results, before - 2 * w_ms, before),
        "level_ms": level_ms(strategy_run.entries, new.entries, served, change),
        "stage_entries": sum(strategy_run.entries[k] for k in stage) / len(stage) if stage else None,
        "stage_results": sum(strategy_run.results[k] for k in stage),
        "mean_entries": sum(strategy_run.entries[k] for k in after) / len(after) if len(after) else None,
        "load": factor * 1e3 * (sum(strategy_run.seconds) + sum(strategy_run.stall)) / edges[-1],
        "behind_ms": served.done[-1] - edges[-1],
    }


def _points(setting: MigrationSetting, scale: int, load: float, full: bool) -> list[Point]:
    sizes = {"change_ms": CHANGE_MS, "stream_ms": 50_000 if full else 16_000, "seed": SEED}
    repeats = 7 if full else 2
    settings = [replace(setting, scale=factor) for factor in (1, scale)]
    return [{**scaled.columns(), "load": load, **sizes, "repeats": repeats} for scaled in settings]


ABOUT = (
    "The join of figure 9, windows of {w_ms} ms, set {number} of section 6.3, pushes of 250 ms of stream time. The "
    "plans ((A B) C) D and A ((B C) D) alone, and the change from one to the other at 10 000 ms. The time is that of a "
    "virtual clock that is slowed down until the old plan asks for {load:g} of the available time. At the paper's "
    "rates the fixed cost of a push dominates; a second series has {scale} times the tuples and keys. Under "
    "moving-state the old plan first works off the tuples that have accumulated, as in the paper.{more}"
)
MORE = {
    "entries": " Entries are those of all inner states, of both plans while two run.",
    "rate": " Under parallel-track, results of the new plan appear when they are found; the paper holds them back.",
}
HEADINGS = {
    "slow_down": "times slower",
    "load": "load",
    "stall_ms": "stall, ms",
    "silence_ms": "longest silence, ms",
    "silence_before_ms": "the same before, ms",
    "level_ms": "at the new level after, ms",
    "stage_entries": "mean entries in 2 W",
    "mean_entries": "mean entries afterwards",
    "stage_results": "results in 2 W",
    "behind_ms": "behind at the end, ms",
}


def _figure(number: int, setting: MigrationSetting, scale: int, load: float, series: str) -> Figure:
    set_number = 1 if setting is LOW else 2
    about = ABOUT.format(w_ms=setting.w_ms, number=set_number, load=load, scale=scale, more=MORE[series])
    y_label = {"entries": "entries in inner states", "rate": "results a second"}[series]
    scales = {1: "the paper's rates", scale: f"{scale} times the tuples"}
    return Figure(
        f"migration-fig{number}",
        about,
        partial(_points, setting, scale, load),
        partial(measure, series),
        source=f"Zhu, Rundensteiner, Heineman, SIGMOD 2004, figure {number}",
        plots=[
            Plot(
                scales[scale],
                "ms",
                series,
                "case",
                name="scaled",
                x_label="ms on the clock",
                y_label=y_label,
                where={"shows": series, "scale": scale},
                kind="steps" if series == "rate" else "lines",
                marked={float(CHANGE_MS): "change of plan"},
            )
        ],
        tables=[
            ReportTable(f"Cases, {text}", {"case": "case"}, HEADINGS, where={"shows": "case", "scale": factor})
            for factor, text in scales.items()
        ],
        series={"shows": [series]},
    )


FIGURES: tuple[Figure, ...] = (
    _figure(13, LOW, 400, 0.3, "entries"),
    _figure(14, LOW, 400, 0.3, "rate"),
    _figure(15, HIGH, 100, 1.3, "entries"),
    _figure(16, HIGH, 100, 1.3, "rate"),
)

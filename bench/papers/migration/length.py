"""Figures 9 to 12: the length of a migration stage of parallel-track and of moving-state, measured and by the model.

T_PT  stream time from the transition until its stage ended, as `Runtime.history` reports it
T_MS  processing time of the call of `transition` under moving-state, during which there is no output
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from bench.harness.figure import Figure, Plot, Point, Row, Say, spread
from bench.harness.turns import agree, take_turns
from bench.papers.migration.arrivals import MigrationSetting, PaperArrivals, draw, run, steps
from bench.papers.migration.cost_model import by_hash, calibrate, eq4, eq8

STRATEGIES = ("moving-state", "parallel-track", "jisc", "mjoin")
PAPER = "parallel-track, purged as in the paper"
"""An additional stage: parallel-track that keeps an old composite for a window after its youngest component."""
PUSH_MS = 250
"""Stream time of a push."""
LOOKS = 50
"""Pushes per window while a stage lasts, so the end of the stage is known with the precision of a push."""
CHANGE_MS, STREAM_MS, SHORT_STREAM_MS = 10_000, 50_000, 25_000
"""When plans change, and the length of the stream; the short one is for larger scales, where all stages end early."""

SET_1 = MigrationSetting(1_000, (100, 100, 100, 100), (0.1, 0.05, 0.02))
SET_2 = MigrationSetting(1_000, (50, 50, 50, 50), (0.1, 0.05, 0.02))
SET_3 = MigrationSetting(1_000, (100, 12, 12, 12), (0.1, 0.1, 0.1))
WINDOWS = tuple(range(500, 5_001, 500))
ALL = {True: WINDOWS, False: (1_000, 5_000)}
"""Windows of a full run and of a quick one."""
Stall = tuple[float, float, int]
"""Seconds of a call of `transition`, seconds of the call and the push after it, entries of inner states."""


def points(
    base: MigrationSetting,
    scale: int,
    windows: Mapping[bool, Sequence[int]],
    delays: Mapping[bool, Sequence[float]] | None,
    timed: bool,
    widest: int,
    full: bool,
) -> list[Point]:
    """Return the points over windows and I_B, at the paper's rates and at a scale; `full` is the key of the mappings.

    timed   transitions are repeated; widest: the widest window at the scale
    """
    a, b, c, d = base.delays
    all_points: list[Point] = []
    for factor, window, delay in product((1, scale), windows[full], delays[full] if delays else (b,)):
        if factor == 1 or window <= widest:
            setting = replace(base, w_ms=window, delays=(a, delay, c, d), scale=factor)
            stream_ms = STREAM_MS if factor == 1 else SHORT_STREAM_MS
            point = {**setting.columns(), "change_ms": CHANGE_MS, "stream_ms": stream_ms, "seed": 9}
            all_points.append(point | ({"repeats": 9 if full else 2} if timed else {}))
    return all_points


def stages(arrivals: PaperArrivals, change_ms: int, stream_ms: int, say: Say) -> dict[str, float | None]:
    """Return the ms of stream time of the stage of each strategy and of PAPER, None if it lasts longer than the stream.

    Raises Mismatch if a push has different numbers of results under two strategies.
    """
    window = arrivals.setting.w_ms
    fine = min(change_ms + 2.5 * window, stream_ms)
    edges = steps(0, change_ms, PUSH_MS)
    before = len(edges)
    edges += steps(change_ms, fine, window / LOOKS) + steps(fine, stream_ms, PUSH_MS)
    pushes = arrivals.pushes(edges)
    results: dict[str, list[int]] = {}
    lengths: dict[str, float | None] = {}
    for strategy in (*STRATEGIES, PAPER):
        say(f"windows of {window} ms, stage of {strategy}")
        paper = strategy == PAPER
        strategy_run = run(
            arrivals.setting,
            pushes,
            "parallel-track" if paper else strategy,
            before,
            purge="paper" if paper else "exact",
        )
        results[strategy] = strategy_run.results
        lengths[strategy] = (
            None if strategy_run.ended is None else float(arrivals.times[strategy_run.ended - 1]) / 1e3 - change_ms
        )
    agree(f"windows of {window} ms", results)
    return lengths


def stalls(arrivals: PaperArrivals, change_ms: int, repeats: int, say: Say) -> dict[str, list[Stall]]:
    """Return the transitions of each strategy, in turns, in CPU time; a first round is not counted.

    Raises Mismatch if a push has different numbers of results under two strategies.
    """
    pushes = arrivals.pushes(steps(0, change_ms + PUSH_MS, PUSH_MS))
    by_strategy: dict[str, list[Stall]] = {strategy: [] for strategy in STRATEGIES}

    def work(strategy: str) -> tuple[float, list[int]]:
        strategy_run = run(arrivals.setting, pushes, strategy, len(pushes) - 1)
        by_strategy[strategy].append(
            (strategy_run.stall[-1], strategy_run.stall[-1] + strategy_run.seconds[-1], strategy_run.made)
        )
        return strategy_run.stall[-1], strategy_run.results

    works = {strategy: partial(work, strategy) for strategy in STRATEGIES}
    take_turns(f"windows of {arrivals.setting.w_ms} ms", works, repeats, say)
    return {strategy: rounds[1:] for strategy, rounds in by_strategy.items()}


def _row(shows: str, curve: str, ms: Sequence[float], rate: float) -> Row:
    return {"shows": shows, "curve": curve, **spread(ms, "ms"), "lambda_b": rate}


def measure(shows: Sequence[str], point: Point, say: Say) -> list[Row]:
    """Return rows of T_PT, of T_MS, or of both: measured, and by the model; with T_MS also calls and latencies.

    Column `shows` names the plot of a row: T_PT and T_MS have one plot, latency has none.
    """
    setting, change = MigrationSetting.of(point), point["change_ms"]
    stream_ms = point["stream_ms"]
    arrivals = draw(setting, stream_ms, point["seed"])
    drawn, rate = "both" if len(shows) > 1 else shows[0], setting.rates[1]
    rows: list[Row] = []
    if "T_PT" in shows:
        stage_ms = stages(arrivals, change, stream_ms, say)
        lengths = {
            "T_PT measured": stage_ms["parallel-track"],
            "T_PT measured with the paper's purging": stage_ms[PAPER],
            "T_PT by eq. 4": 1e3 * eq4(setting),
            "stage of jisc: all states complete": stage_ms["jisc"],
        }
        rows += [_row(drawn, curve, [ms], rate) for curve, ms in lengths.items() if ms is not None]
    if "T_MS" in shows:
        repeats = point["repeats"]
        taken = stalls(arrivals, change, repeats, say)
        for strategy, transitions in taken.items():
            curve = "T_MS measured" if strategy == "moving-state" else f"call of {strategy}"
            calls, latencies, entries = zip(*transitions, strict=True)
            rows.append({**_row(drawn, curve, [1e3 * call for call in calls], rate), "entries": entries[0]})
            rows.append(_row("latency", strategy, [1e3 * latency for latency in latencies], rate))
        costs = calibrate(repeats)
        rows.append(_row(drawn, "T_MS by eqs. 3 and 8", [1e3 * eq8(setting, costs)], rate))
        rows.append(_row(drawn, "T_MS by the model for hash joins", [1e3 * by_hash(setting, costs)], rate))
    return rows


ABOUT = (
    "Four streams joined in a chain, RANGE windows, Poisson arrivals; the plan changes from ((A B) C) D to A ((B C) "
    "D). Rates and reduction factors are those of the paper's table 2; it does not print the windows and rates it "
    "varies, so those are chosen here. In the scaled series, {scale} times the tuples and keys leave each tuple its "
    "partners and make states {scale} times as large.{more}"
)
STAGE = (
    " T_PT is stream time, from the transition until the old plan is dropped: once no old tuple is in a window, or, "
    "with the paper's rule of purging, a window later."
)
STALL = (
    " T_MS is the CPU time of the call of `transition`. Eqs. 3 and 8 use T_j and T_s measured here: as in the paper, "
    "for nested loops, and for joins by hash."
)


def _figure(
    number: int,
    shows: Sequence[str],
    base: MigrationSetting,
    scale: int,
    windows: Mapping[bool, Sequence[int]] = ALL,
    delays: Mapping[bool, Sequence[float]] | None = None,
    widest: int = WINDOWS[-1],
) -> Figure:
    """Return a figure over windows, or over the rate of B if there are several delays."""
    drawn, timed = "both" if len(shows) > 1 else shows[0], "T_MS" in shows
    x, label = ("lambda_b", "tuples of B a second") if delays else ("w_ms", "window W in ms")
    return Figure(
        f"migration-fig{number}",
        ABOUT.format(scale=scale, more="".join({"T_PT": STAGE, "T_MS": STALL}[shown] for shown in shows)),
        partial(points, base, scale, windows, delays, timed, widest),
        partial(measure, shows),
        source=f"Zhu, Rundensteiner, Heineman, SIGMOD 2004, figure {number}",
        plots=[
            Plot(
                f"{' and '.join(shows)}, {'the paper’s rates' if factor == 1 else f'{factor} times the tuples'}",
                x,
                "ms",
                "curve",
                name="" if factor == 1 else "scaled",
                x_label=label,
                y_label="ms",
                log="xy" if timed else "",
                where={"shows": drawn, "scale": factor},
            )
            for factor in (1, scale)
        ],
    )


DELAYS = {True: (100.0, 50.0, 25.0, 20.0, 12.5, 10.0, 5.0), False: (100.0, 25.0, 5.0)}
FIGURES: tuple[Figure, ...] = (
    _figure(9, ["T_PT"], SET_1, 100),
    _figure(10, ["T_MS"], SET_1, 300),
    _figure(11, ["T_PT", "T_MS"], SET_2, 100, {True: (1_000,), False: (1_000,)}, DELAYS),
    # Results per second grow with the third power of W; above 3 000 ms, counting would be nearly all of the work.
    _figure(12, ["T_PT", "T_MS"], SET_3, 10, {True: WINDOWS, False: (500, 1_500)}, widest=3_000),
)

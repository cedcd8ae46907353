"""Figures 9 to 12: the length of the migration stage of parallel-track and of moving-state, and what the model says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.measure import without_gc
from bench.papers.migration import length_remarks as remarks
from bench.papers.migration.arrivals import Setting, draw
from bench.papers.migration.cost_model import by_hash, calibrate, eq4, eq8
from bench.papers.migration.stage import purged_as_in_the_paper, setting_name, stages, stalls

SOURCE = "Zhu, Rundensteiner, Heineman, SIGMOD 2004, figure {}"
CHANGE_MS, STREAM_MS, SHORT_STREAM_MS = 10_000, 50_000, 25_000
"""When plans change, how long tuples come; and how long they come at a scale, where all stages are over by then."""
SEED = 9

SET_1 = Setting(1_000, (100, 100, 100, 100), (0.1, 0.05, 0.02))
SET_2 = Setting(1_000, (50, 50, 50, 50), (0.1, 0.05, 0.02))
SET_3 = Setting(1_000, (100, 12, 12, 12), (0.1, 0.1, 0.1))
WINDOWS = tuple(range(500, 5_001, 500))
DELAYS = (100.0, 50.0, 25.0, 20.0, 12.5, 10.0, 5.0)

STAGE_SCALE, STALL_SCALE, RATE_SCALE, HIGH_SCALE = 100, 300, 100, 10
HIGH_WIDEST = 3_000
"""ms, the widest window of figure 12 at its scale."""


def _points(
    base: Setting,
    scale: int,
    windows: Mapping[bool, Sequence[int]],
    delays: Mapping[bool, Sequence[float]] | None,
    repeated: bool,
    full: bool,
    widest: int = WINDOWS[-1],
) -> list[Point]:
    """Return the points over windows and I_B, at the paper's rates and at a scale; `full` picks of the mappings.

    widest  no window above it at the scale
    """
    a, b, c, d = base.delays
    points: list[Point] = []
    varied = product((1, scale), windows[full], delays[full] if delays else (b,))
    for factor, window, delay in varied:
        if factor > 1 and window > widest:
            continue
        setting = replace(base, w_ms=window, delays=(a, delay, c, d), scale=factor)
        point: dict[str, str | int | float | bool] = {
            **setting.columns(),
            "change_ms": CHANGE_MS,
            "stream_ms": STREAM_MS if factor == 1 else SHORT_STREAM_MS,
            "seed": SEED,
        }
        if repeated:
            point["repeats"] = 9 if full else 2
        points.append(point)
    return points


def measure_stages(point: Point, say: Say) -> list[Row]:
    """Return the length of the stage in stream time: measured, replayed as in the paper, and by the model."""
    setting = Setting.of(point)
    change, stream = int(point["change_ms"]), int(point["stream_ms"])
    arrivals = draw(setting, stream, int(point["seed"]))
    found = stages(arrivals, change, stream, setting_name(setting), say)
    lengths = {
        remarks.T_PT: found["parallel-track"],
        remarks.T_PT_PURGED: purged_as_in_the_paper(arrivals, change),
        remarks.T_PT_MODEL: 1e3 * eq4(setting),
        remarks.JISC_STAGE: found["jisc"],
    }
    own = {"lambda_b": setting.rates[1], **arrivals.found_sigmas()}
    return [
        {"shows": "T_PT", "curve": curve, "ms": ms, "ms_low": ms, "ms_high": ms, **own}
        for curve, ms in lengths.items()
        if ms is not None
    ]


def measure_stalls(point: Point, say: Say) -> list[Row]:
    """Return the stall in processing time: measured, and by the model both ways; and the latency of each strategy."""
    setting = Setting.of(point)
    change, repeats = int(point["change_ms"]), int(point["repeats"])
    arrivals = draw(setting, int(point["stream_ms"]), int(point["seed"]))
    with without_gc():
        found = stalls(arrivals, change, repeats, setting_name(setting), say)
    costs = calibrate(repeats)
    own: Row = {"lambda_b": setting.rates[1], **arrivals.found_sigmas(), **costs.columns()}
    rows: list[Row] = []
    for strategy, taken in found.items():
        entries: Row = {"strategy": strategy, "entries": taken[0].entries, **own}
        call = spread([1e3 * stall.call for stall in taken], "ms")
        curve = remarks.T_MS if strategy == "moving-state" else remarks.stall_of(strategy)
        rows.append({"shows": "T_MS", "curve": curve, **call, **entries})
        latency = spread([1e3 * stall.latency for stall in taken], "ms")
        rows.append({"shows": "latency", "curve": strategy, **latency, **entries})
    for curve, seconds in ((remarks.T_MS_MODEL, eq8(setting, costs)), (remarks.T_MS_HASH, by_hash(setting, costs))):
        ms = 1e3 * seconds
        rows.append({"shows": "T_MS", "curve": curve, "ms": ms, "ms_low": ms, "ms_high": ms, **own})
    return rows


def measure_both(point: Point, say: Say) -> list[Row]:
    """Return what `measure_stages` and `measure_stalls` do; those of both that belong in one plot show "both"."""
    rows = [*measure_stages(point, say), *measure_stalls(point, say)]
    return [{**row, "shows": row["shows"] if row["shows"] == "latency" else "both"} for row in rows]


def _plots(shows: str, x: str, x_label: str, title: str, scale: int, log: bool) -> tuple[Plot, ...]:
    """Return a plot at the paper's rates, one at the scale, and the latencies at the scale if there are any."""

    def plot(name: str, title: str, shows: str, factor: int) -> Plot:
        return Plot(
            title,
            x,
            "ms",
            by="curve",
            name=name,
            x_label=x_label,
            y_label="ms",
            log_x=log,
            log_y=log,
            where={"shows": shows, "scale": factor},
            spread=("ms_low", "ms_high"),
        )

    found = [plot("", title, shows, 1), plot("scaled", f"{title}, {scale} times the tuples", shows, scale)]
    if shows != "T_PT":
        found.append(plot("latency", f"The call and the push after it, {scale} times the tuples", "latency", scale))
    return tuple(found)


WINDOW_LABEL = "window W in ms"
RATE_LABEL = "tuples of B a second"

COMMON = (
    "Four streams joined in a chain, RANGE windows, Poisson arrivals; the plan changes from ((A B) C) D to A ((B C) D)"
    " after 10 000 ms of stream time. Rates, reduction factors and the 50 000 ms of stream are those of the paper's"
    " table 2; the text does not print the windows and rates it varies, so those are chosen here. A second series has"
    " {scale} times the tuples and as many times the keys, so that a tuple keeps its partners and states grow by that"
    " factor; its stream ends after 25 000 ms, when all stages are over."
)
STAGE = (
    " T_PT is stream time, from the transition until the old plan is dropped; that is known to a fiftieth of a window."
    " A second curve replays the same arrivals under the paper's rule of purging, and eq. 4 is beside them."
)
STALL = (
    " T_MS is the CPU time of the call of `transition` under moving-state, during which nothing comes out (all runs in"
    " one thread, so with a core of its own it takes that long); the calls"
    " of the other strategies, jisc among them, are beside it, and in a plot of its own the call with the push of"
    " 250 ms after it. Eqs. 3 and 8 are drawn twice with T_j and T_s measured here: as the paper has them, which is"
    " for nested loops that look at every pair, and for joins by hash, as these are, which look at matches only."
)

WIDEST = (
    " Results a second grow with the third power of W, so the second series ends at windows of {widest} ms; beyond them"
    " counting results would be nearly all of the work."
)


def _figure(
    number: int,
    title: str,
    about: str,
    points: Callable[[bool], Sequence[Point]],
    measure: Callable[[Point, Say], Sequence[Row]],
    plots: Sequence[Plot],
    said: Callable[[Sequence[Row]], Sequence[str]],
) -> Figure:
    return Figure(
        name=f"migration-fig{number}",
        title=title,
        about=about,
        points=points,
        measure=measure,
        source=SOURCE.format(number),
        plots=plots,
        remarks=said,
    )


FIGURES: tuple[Figure, ...] = (
    _figure(
        9,
        "Length of a parallel-track stage over the window",
        COMMON.format(scale=STAGE_SCALE) + STAGE,
        partial(_points, SET_1, STAGE_SCALE, {True: WINDOWS, False: (1_000, 5_000)}, None, False),
        measure_stages,
        _plots("T_PT", "w_ms", WINDOW_LABEL, "T_PT over W, set 1", STAGE_SCALE, log=False),
        remarks.stage_over_window,
    ),
    _figure(
        10,
        "Length of a moving-state stage over the window",
        COMMON.format(scale=STALL_SCALE) + STALL,
        partial(_points, SET_1, STALL_SCALE, {True: WINDOWS, False: (1_000, 2_000, 5_000)}, None, True),
        measure_stalls,
        _plots("T_MS", "w_ms", WINDOW_LABEL, "T_MS over W, set 1", STALL_SCALE, log=True),
        remarks.stall_over_window,
    ),
    _figure(
        11,
        "Length of both stages over the rate of B",
        COMMON.format(scale=RATE_SCALE) + STAGE + STALL,
        partial(
            _points,
            SET_2,
            RATE_SCALE,
            {True: (1_000,), False: (1_000,)},
            {True: DELAYS, False: (100.0, 25.0, 5.0)},
            True,
        ),
        measure_both,
        _plots("both", "lambda_b", RATE_LABEL, "T_MS and T_PT over the rate of B, set 2", RATE_SCALE, log=True),
        remarks.both_over_rate,
    ),
    _figure(
        12,
        "Length of both stages over the window, high configuration",
        COMMON.format(scale=HIGH_SCALE) + STAGE + STALL + WIDEST.format(widest=HIGH_WIDEST),
        partial(_points, SET_3, HIGH_SCALE, {True: WINDOWS, False: (500, 1_500)}, None, True, widest=HIGH_WIDEST),
        measure_both,
        _plots("both", "w_ms", WINDOW_LABEL, "T_MS and T_PT over W, set 3", HIGH_SCALE, log=True),
        remarks.both_over_window,
    ),
)
"""Figures 9 to 12."""

"""The growth figures: throughput and bytes against one growing size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log1p
from typing import Any

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, Scalar, number, spread
from bench.ways.runners import FOUR, ONE_KEY, LoopRunner, RuntimeRunner, fill, rounds
from bench.workloads.sources import WINDOW, ArrivalSource, Permuted, RandomSource, filling, one_key

DEFAULT, MJOIN, JISC, LOOP = "default", "mjoin", "jisc", "loop"
WAYS = (DEFAULT, MJOIN, JISC, LOOP)
COMMON: Point = {
    "draw": "drawn",
    "skew": 0.0,
    "ways": " ".join(WAYS),
    "settle": 0,
    "seed": 7,
    "streams": 4,
    "window": WINDOW,
    "keys": WINDOW,
    "push": 10_000,
}
"""Columns of all points, and their default values."""
WARM = 1_000
"""The least size of the pushes that fill windows; this size does not change the contents of the windows."""
MOST_STORED = 1_000_000
"""Maximal rows of a window for which jisc is measured, because filling its states takes longest."""


def runners(point: Point) -> dict[str, RuntimeRunner | LoopRunner]:
    """Return the ways of a point, which its column `ways` names, separated by spaces.

    default   a Runtime with its defaults: strategy "eddy", policy "cost"
    mjoin     nothing stored, one plan, no statistics
    jisc      all inner states of the plan stored, no statistics
    loop      the hand-written loop, row ids out
    """
    streams, window = point["streams"], point["window"]
    query = one_key(streams, window)
    made: dict[str, RuntimeRunner | LoopRunner] = {}
    for way in point["ways"].split():
        if way == LOOP:
            made[way] = LoopRunner(FOUR if streams == 4 else ONE_KEY, streams, window, point["keys"])
        elif way == DEFAULT:
            made[way] = RuntimeRunner(query)
        else:
            made[way] = RuntimeRunner(query, strategy=way, statistics=False)
    return made


def source(point: Point) -> ArrivalSource:
    """Return the arrivals of a point: `draw` is "permuted", or "drawn" with a `skew`, of `keys` keys."""
    query = one_key(point["streams"], point["window"])
    keys, seed = point["keys"], point["seed"]
    return (
        Permuted(query, keys, seed) if point["draw"] == "permuted" else RandomSource(query, keys, seed, point["skew"])
    )


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each way: CPU time per arrival and per arrival or result, throughput, bytes, results.

    The clock starts when the windows are full and `settle` further arrivals have been taken. deciding_ns is the part of
    the time spent on samples and decisions; state_bytes is `bytes` without the room for a push and its results.
    Raises Mismatch if two ways differ in the results of a push.
    """
    streams, window, push = point["streams"], point["window"], point["push"]
    arrivals, count = point["arrivals"], point["rounds"]
    ways, arriving = runners(point), source(point)
    say(f"filling {streams} windows of {window:,}")
    warm = max(push, WARM)
    fill(ways, arriving, filling([window] * streams, warm) + point["settle"], warm)
    began = {way: runner.deciding for way, runner in ways.items()}
    taken, results = rounds(ways, arriving, arrivals, push, count, say)
    live = next(runner.live for runner in ways.values() if isinstance(runner, RuntimeRunner))
    per_arrival = results / (arrivals * count)
    rows: list[Row] = []
    for way, runner in ways.items():
        ns = spread([1e9 * seconds / arrivals for seconds in taken[way]], "ns")
        rows.append(
            {
                "way": way,
                **ns,
                "ns_per_outcome": number(ns, "ns") / (1 + per_arrival),
                **spread([arrivals / seconds for seconds in taken[way]], "tuples_per_s"),
                # The figure includes the round that is not counted.
                "deciding_ns": 1e9 * (runner.deciding - began[way]) / (arrivals * (count + 1)),
                "bytes": runner.nbytes,
                "live": live,
                "bytes_per_tuple": runner.nbytes / live,
                "state_bytes": runner.state_bytes,
                "state_per_tuple": runner.state_bytes / live,
                "results_per_arrival": per_arrival,
            }
        )
    return rows


def point(full: bool, arrivals: tuple[int, int], **given: Any) -> Point:
    """Return a point for `measure`: COMMON and the given columns; `arrivals` are those of a full and a quick run."""
    return {**COMMON, "arrivals": arrivals[not full], "rounds": 7 if full else 4, **given}


def _joins(full: bool) -> list[Point]:
    rows = 1_000 if full else 500
    # The first decisions of a join of many streams are expensive and follow each other closely.
    sizes = {"window": rows, "keys": rows, "settle": 150_000, "draw": "permuted"}
    joins = (2, 5, 10, 20, 35, 50, 70, 100) if full else (2, 10, 30, 100)
    return [point(full, (50_000, 10_000), streams=n + 1, joins=n, **sizes) for n in joins]


def _windows(full: bool) -> list[Point]:
    points = []
    for window in [10**k for k in range(3, 8 if full else 6)]:
        ways = WAYS if window <= MOST_STORED else (DEFAULT, MJOIN, LOOP)
        points.append(point(full, (400_000, 100_000), window=window, keys=window, ways=" ".join(ways)))
    return points


DISTINCT, SKEWED = "distinct keys", "skew"


def _keys(full: bool) -> list[Point]:
    distinct = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000) if full else (1_000, 10_000, 100_000, 1_000_000)
    skews = (0.0, 0.25, 0.5, 0.75, 1.0) if full else (0.0, 0.5, 0.9)
    settings = [{"series": DISTINCT, "keys": keys} for keys in distinct]
    settings += [{"series": SKEWED, "skew": skew} for skew in skews]
    return [point(full, (100_000, 30_000), streams=2, **setting) for setting in settings]


def partner_share(keys: int, window: int) -> float:
    """Return the probability that a window of uniform keys holds a given key."""
    return -expm1(window * log1p(-1.0 / keys))


def _selectivity(full: bool) -> list[Point]:
    # With half a window of keys an arrival has eight results; with 1 000 windows of keys it has hardly any.
    keys = [int(share * WINDOW) for share in ((0.5, 1, 2, 4, 10, 30, 100, 1_000) if full else (0.5, 2, 10, 100))]
    return [point(full, (200_000, 50_000), keys=n, partners=partner_share(n, WINDOW)) for n in keys]


def _pushes(full: bool) -> list[Point]:
    points = []
    for push in [10**k for k in range(7 if full else 6)]:
        # A round is a few thousand calls at most, and one push at least.
        least = 100_000 if full else 20_000
        arrivals = (max(push, min(4_000 * push, least)), max(push, min(500 * push, least)))
        points.append(point(full, arrivals, push=push))
    return points


TIMES = 3
"""Windows with which an arrival of four streams is combined."""


def _results(full: bool) -> list[Point]:
    points = []
    for wanted in (0.01, 0.1, 1, 10, 100) if full else (0.01, 1, 100):
        arrivals = (200_000, 50_000) if wanted <= 1 else (40_000, 10_000)
        points.append(point(full, arrivals, keys=round(WINDOW / wanted ** (1 / TIMES)), wanted=wanted))
    return points


@dataclass(frozen=True)
class Curve:
    """Plots of one size: the column x and its label, and the column of bytes drawn, if any."""

    x: str
    label: str
    nbytes: str = "bytes"
    where: Mapping[str, Scalar] | None = None
    log: str = "xy"

    def plots(self) -> list[Plot]:
        """Return the plot of throughput and that of bytes."""
        where, name = self.where or {}, "" if self.log == "xy" else f"-{self.x}"
        shown = {"tuples_per_s": ("throughput", "tuples per second")}
        if self.nbytes:
            shown[self.nbytes] = (self.nbytes.replace("_", "-"), f"{self.nbytes.replace('_', ' ')}, bytes")
        return [
            Plot(
                f"{ends[0].replace('-', ' ').capitalize()} by {self.label}",
                self.x,
                y,
                "way",
                name=ends[0] + name,
                x_label=self.label,
                y_label=ends[1],
                log=self.log,
                where=where,
            )
            for y, ends in shown.items()
        ]

    def table(self) -> ReportTable:
        """Return the table of times."""
        return ReportTable("Time per arrival", {self.x: self.label}, {"ns": "ns"}, across="way", where=self.where or {})


def _figure(name: str, about: str, points: Callable[[bool], list[Point]], *curves: Curve) -> Figure:
    plots: Sequence[Plot] = [plot for curve in curves for plot in curve.plots()]
    return Figure(f"growth-{name}", about, points, measure, plots=plots, tables=[curve.table() for curve in curves])


FIGURES = (
    _figure(
        "joins",
        "All figures of growth: streams joined on one key, in random order, ROWS windows that are full before the "
        "clock starts. `default` is a Runtime with its defaults, `mjoin` stores nothing and keeps its plan, `jisc` "
        "stores all inner states; these take Arrow batches and return Arrow tables with the key. `loop` is written by "
        "hand: keys in as an array, row ids out. CPU time of the thread. Bytes include room for a push and its "
        "results. Here: windows of 1 000 rows of as many keys, each stream repeating a permutation, so every arrival "
        "gives one result.",
        _joins,
        Curve("joins", "joins", "state_per_tuple"),
    ),
    _figure(
        "window",
        "Four streams, uniform keys, as many as a window has rows, so an arrival gives about one result at every "
        "size. Pushes of 10 000. jisc is left out above 10⁶ rows, where filling its states takes longest.",
        _windows,
        Curve("window", "rows of a window"),
    ),
    _figure(
        "keys",
        "Two streams, windows of 10 000 rows. Distinct keys: uniform among 10³ to 10⁶, so results go from ten an "
        "arrival to a hundredth. Skew: 10 000 keys, key k as likely as k^-skew (0 = uniform, 1 = Zipf).",
        _keys,
        Curve("keys", "distinct keys", where={"series": DISTINCT}),
        Curve("skew", "skew", "", where={"series": SKEWED}, log="y"),
    ),
    _figure(
        "selectivity",
        "Four streams, windows of 10 000 rows. The axis is the probability that a given other window holds a partner "
        "of an arrival; an arrival gives a result only if all three do.",
        _selectivity,
        Curve("partners", "share of arrivals with a partner in a given window"),
    ),
    _figure(
        "batch",
        "Four streams, windows of 10 000 rows of 10 000 keys. A call has a fixed cost of Arrow and Python, and rings "
        "hold a push in addition to the windows.",
        _pushes,
        Curve("push", "arrivals of a push"),
    ),
    _figure(
        "results",
        "Four streams, windows of 10 000 rows, uniform keys, as many as give 0.01 to 100 results an arrival on "
        "average.",
        _results,
        Curve("results_per_arrival", "results per arrival"),
    ),
)

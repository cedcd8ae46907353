"""Load shedding: a burst of arrivals beyond what the full version of a query can take.

Arrivals come by a clock of their own, which the measured time of each push moves on. So after a push that takes longer
than the interval between two pushes more rows wait, as in a job that polls a topic.
"""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.figure import Figure, Point, ReportTable, Row, Say
from bench.harness.turns import without_gc
from eddy import Engine, Query, Range, Stream

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])
STREAMS = ("R", "S")
INTERVAL = 0.02
"""Seconds between two pushes, and the deadline of a push."""
MOST = 5
"""Intervals whose rows a push takes at most."""
CALM, BURST = 0.4, 2.0
"""Arrivals before, after and during the burst, as parts of what the full version can take."""
PHASES = (("before", 0.2, CALM), ("burst", 0.4, BURST), ("after", 0.4, CALM))
"""Name, share of the time and load of each phase."""
WAYS = ("full version", "cheapest version", "shed_load")


class BurstCourse(NamedTuple):
    """The course of a burst: the lag after each push, the phase of the push, the results, and the number of steps."""

    lags: list[float]
    phases: list[str]
    results: int
    steps: int


def _versions(window: float, keys: int) -> list[Query]:
    """Return the versions: the full one, one with a quarter of the window, and that with a quarter of the keys."""
    full, narrow = (Range(timedelta(seconds=size)) for size in (window, window / 4))
    sample = pc.field("k") < keys // 4
    return [
        Query([Stream(name, SCHEMA, window=size, time="at", filter=kept) for name in STREAMS], ["R.k = S.k"])
        for size, kept in ((full, None), (narrow, None), (narrow, sample))
    ]


def _rows(rng: np.random.Generator, keys: int, begin: float, end: float, n_rows: int) -> dict[str, pa.RecordBatch]:
    half = n_rows // 2
    at = np.linspace(1e6 * begin, 1e6 * end, half, endpoint=False).astype(np.int64)
    columns = [(rng.integers(0, keys, half), at) for _ in STREAMS]
    return {
        name: pa.record_batch([pa.array(k), pa.array(times).cast(pa.timestamp("us"))], schema=SCHEMA)
        for name, (k, times) in zip(STREAMS, columns, strict=True)
    }


def _engine(point: Point) -> Engine:
    window = Range(timedelta(seconds=point["window"]))
    return Engine([Stream(name, SCHEMA, window=window, time="at") for name in STREAMS])


def _capacity(point: Point) -> float:
    """Return the arrivals of each second at which the full version takes an interval for the rows of an interval."""
    rate = 20_000.0
    for _ in range(6):
        engine, rng = _engine(point), np.random.default_rng(point["seed"])
        engine.start("q", _versions(point["window"], point["keys"])[0])
        took = []
        for push in range(round(1.5 * point["window"] / INTERVAL)):
            began, n_rows = perf_counter(), round(rate * INTERVAL)
            engine.push(_rows(rng, point["keys"], push * INTERVAL, (push + 1) * INTERVAL, n_rows))
            took.append(perf_counter() - began)
        last = float(np.median(took[len(took) // 2 :]))
        if 0.8 * INTERVAL <= last <= 1.25 * INTERVAL:
            break
        # A join takes time with the square of the rate, its other work with the rate.
        rate *= min(max(INTERVAL / last, 0.1), 10.0) ** 0.7
    return rate


def _course(way: str, point: Point, capacity: float, say: Say) -> BurstCourse:
    versions = _versions(point["window"], point["keys"])
    engine, rng = _engine(point), np.random.default_rng(point["seed"])
    query = engine.start("q", versions[-1] if way == "cheapest version" else versions[0])
    if way == "shed_load":
        engine.shed_load(INTERVAL, {"q": versions})
    lags, phases, results, now, taken = list[float](), list[str](), 0, 0.0, 0.0
    ends = np.cumsum([share * point["seconds"] for _, share, _ in PHASES])
    while taken < ends[-1]:
        now = max(now, taken + INTERVAL)
        phase = int(np.searchsorted(ends, taken, side="right"))
        until = min(now, taken + MOST * INTERVAL, float(ends[phase]))
        n_rows = round(capacity * PHASES[phase][2] * (until - taken))
        rows = _rows(rng, point["keys"], taken, until, n_rows)
        began = perf_counter()
        table = engine.push(rows)["q"]
        now += perf_counter() - began
        results, taken = results + table.num_rows, until
        lags.append(now - taken)
        phases.append(PHASES[phase][0])
        if len(lags) % 200 == 0:
            say(f"{way}: {taken:.1f} of {ends[-1]:.0f} s, {lags[-1]:.2f} s behind")
    return BurstCourse(lags, phases, results, query.versions[-1].number)


def points(full: bool) -> list[Point]:
    """Return one point: the seconds of arrivals, the seconds of the full window, and the keys."""
    return [{"seconds": 30.0 if full else 10.0, "window": 1.0, "keys": 20_000, "seed": 1}]


def _worst(course: BurstCourse, phase: str) -> float | None:
    lags = [lag for lag, name in zip(course.lags, course.phases, strict=True) if name == phase]
    return max(lags, default=None)


def measure(point: Point, say: Say) -> list[Row]:
    """Return for each way how far pushes fall behind, and its results as a part of those of the full version."""
    _capacity({**point, "window": 0.2})  # compiles
    with without_gc():
        capacity = _capacity(point)
        courses: dict[str, BurstCourse] = {way: _course(way, point, capacity, say) for way in WAYS}
    whole = courses["full version"].results
    return [
        {
            "way": way,
            **{f"{phase}_s": _worst(course, phase) for phase, _, _ in PHASES},
            "last_s": course.lags[-1],
            "results": course.results / max(whole, 1),
            "steps": course.steps,
        }
        for way, course in courses.items()
    ]


FIGURES = (
    Figure(
        "shedding",
        "A join of two streams in windows of a second. Arrivals come with 0.4 of the rate that the full version can"
        " take, then with twice that rate, then again with 0.4. Each push takes the rows that have come since the last"
        " one, of 20 to 100 ms, and 20 ms is the deadline. The first cheaper version has a quarter of the window, the"
        " second one also a quarter of the keys. The lag is the time from the last row of a push to its end.",
        points,
        measure,
        source="Sheykh Esmaili, Sanamrad, Fischer, Tatbul, SIGMOD 2011, use case 3 (adaptive load management)",
        tables=[
            ReportTable(
                "The worst lag of each phase and the lag at the end in seconds, results as a part of those of the full"
                " version, and steps",
                {"way": "way"},
                {
                    "before_s": "before the burst",
                    "burst_s": "during the burst",
                    "after_s": "after the burst",
                    "last_s": "at the end",
                    "results": "results",
                    "steps": "steps",
                },
            )
        ],
    ),
)

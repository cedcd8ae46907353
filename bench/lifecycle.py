"""Figures 14 to 16 of Sheykh Esmaili and others, "Changing flights in mid-air", SIGMOD 2011, over joins.

One query over two streams changes from windows of 50 rows to windows of another size, by each kind of change. The paper
sums over windows of one stream, as `bench.lifecycle_sums` does; docs/internals/papers.md discusses what reproduces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import without_gc
from eddy import Engine, Query, Rows, Stream
from eddy.fuzz.changing.measures import (
    NEW,
    OLD,
    Measures,
    all_results,
    handover_reference,
    measured,
    papers_reference,
)
from eddy.fuzz.changing.oracle import Arrived, OracleResult
from eddy.fuzz.oracle import OracleQuery, OracleStream
from eddy.queries.changes import CHANGES

STREAMS = ("R", "S")
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
WINDOW, KEYS, ARRIVALS, CHANGE_AT = 50, 25, 2000, 1000
"""Rows of the old windows, keys, arrivals, and the arrival before which the query changes. With these keys an arrival
has two results. Windows, arrivals and the place of the change are those of the paper."""
PAPER = "Sheykh Esmaili, Sanamrad, Fischer, Tatbul, SIGMOD 2011"


@cache
def _arrived(seed: int, streams: Sequence[str] = STREAMS) -> list[Arrived]:
    """Return the arrivals: the streams take turns, keys are uniform, column n is the position."""
    keys = np.random.default_rng(seed).integers(0, KEYS, ARRIVALS)
    return [Arrived(streams[n % len(streams)], {"k": int(k), "n": n}, None, None) for n, k in enumerate(keys)]


def _query(version: int, window: int) -> Query:
    streams = [Stream(name, SCHEMA, window=Rows(window)) for name in STREAMS]
    return Query(streams, ["R.k = S.k"], select={f"{version}_{name}": f"{name}.n" for name in STREAMS})


def _engine() -> Engine:
    return Engine([Stream(name, SCHEMA) for name in STREAMS])


def _all(version: int, window: int, arrived: Sequence[Arrived]) -> list[OracleResult]:
    sizes = [OracleStream(name, "rows", window) for name in STREAMS]
    return all_results(OracleQuery(sizes, [(("R", "k"), ("S", "k"))]), version, arrived)


class Subject(NamedTuple):
    """A change to measure.

    query      the query of a version with windows of a size; its first output columns are the components of a result
    engine     an engine for it
    streams    the streams of the arrivals, which take turns
    all        all results of a version by definition
    components   the names of the components
    handover   whether a handover has its own reference
    """

    query: Callable[[int, int], Query]
    engine: Callable[[], Engine]
    streams: Sequence[str]
    all: Callable[[int, int, Sequence[Arrived]], list[OracleResult]]
    components: Sequence[str]
    handover: bool


JOIN = Subject(_query, _engine, STREAMS, _all, STREAMS, True)


class ChangeRun(NamedTuple):
    """The results and times of a change.

    tables         the results of the push before the change, and of each push after it
    returned       the wall time at which each of these pushes returned, in seconds; the first is that of the change
    cpu_s          CPU time of these pushes and of the change
    complete_from  the position from which the new version has all results
    """

    tables: list[pa.Table]
    returned: list[float]
    cpu_s: float
    complete_from: int


def _run(how: str, window: int, seed: int, subject: Subject) -> ChangeRun:
    """Change the query; all rows before the change come in one push, and the other rows one by one."""
    arrived, streams = _arrived(seed, subject.streams), subject.streams
    engine = subject.engine()
    query = engine.start("q", subject.query(OLD, WINDOW))
    before = arrived[:CHANGE_AT]
    rows = {name: [arrival.row for arrival in before if arrival.stream == name] for name in streams}
    tables = [engine.push(rows, [streams.index(arrival.stream) for arrival in before])["q"]]
    after = [
        {arrival.stream: pa.RecordBatch.from_pylist([dict(arrival.row)], schema=SCHEMA)}
        for arrival in arrived[CHANGE_AT:]
    ]
    with without_gc():
        returned, begin = [perf_counter()], process_time()
        query.change(subject.query(NEW, window), how)  # type: ignore[arg-type]
        for batch in after:
            tables.append(engine.push(batch)["q"])
            returned.append(perf_counter())
        cpu_s = process_time() - begin
    return ChangeRun(tables, returned, cpu_s, query.complete_from)


def _given(run: ChangeRun, subject: Subject) -> list[tuple[OracleResult, int]]:
    """Return the results in order, and the push of each, without results that begin before the first arrival."""
    results, n = [], len(subject.components)
    for push, table in enumerate(run.tables):
        for row in table.to_pylist():
            filled = {name: n for name, n in row.items() if n is not None}
            places = tuple(filled.values())[:n]
            if min(places) >= 0:
                results.append((OracleResult(int(next(iter(filled))[0]), places), push))
    return results


def _response_ms(run: ChangeRun, subject: Subject) -> float:
    """Return the time from the old version's last result, or the change, to the new version's first result."""
    pushes: dict[int, list[int]] = {OLD: [], NEW: []}
    for result, push in _given(run, subject):
        pushes[result.version].append(push)
    return 1e3 * (run.returned[min(pushes[NEW])] - run.returned[max(pushes[OLD])])


def _measures(how: str, window: int, seed: int, subject: Subject) -> Measures:
    arrived = _arrived(seed, subject.streams)
    old, new = (subject.all(number, size, arrived) for number, size in ((OLD, WINDOW), (NEW, window)))
    run = _run(how, window, seed, subject)
    reference = papers_reference(old, new, CHANGE_AT)
    if how == "handover" and subject.handover:
        reference = handover_reference(old, new, CHANGE_AT, run.complete_from)
    return measured([result for result, _ in _given(run, subject)], reference, [subject.components] * 2)


def points(full: bool) -> list[Point]:
    """Return a point for each size of the new windows."""
    sizes = (10, 25, 40, 50, 60, 75, 100) if full else (10, 50, 100)
    return [{"window": size, "rounds": 5 if full else 2, "seed": 1} for size in sizes]


def correctness_points(full: bool) -> list[Point]:
    """Return the same points without rounds, since each round has the same counts."""
    return [{name: value for name, value in point.items() if name != "rounds"} for point in points(full)]


def _raced(point: Point, say: Say, subject: Subject) -> dict[str, list[ChangeRun]]:
    """Run all kinds of change in turn, each round; the first round, which may compile, does not count."""
    runs: dict[str, list[ChangeRun]] = {how: [] for how in CHANGES}
    for turn in range(point["rounds"] + 1):
        for how, rounds in runs.items():
            say(f"windows of {point['window']}, round {turn}: {how}")
            rounds.append(_run(how, point["window"], point["seed"] + max(turn - 1, 0), subject))
    return {how: rounds[1:] for how, rounds in runs.items()}


def response(point: Point, say: Say, subject: Subject = JOIN) -> list[Row]:
    """Return the response time of each kind of change."""
    runs = _raced(point, say, subject)
    return [
        {"how": how, **spread([_response_ms(run, subject) for run in rounds], "response_ms")}
        for how, rounds in runs.items()
    ]


def correctness(point: Point, say: Say, subject: Subject = JOIN) -> list[Row]:
    """Return loss, disorder and duplicates of each kind of change."""
    rows: list[Row] = []
    for how in CHANGES:
        say(f"windows of {point['window']}: {how}")
        rows.append({"how": how, **_measures(how, point["window"], point["seed"], subject)._asdict()})
    return rows


def cost(point: Point, say: Say, subject: Subject = JOIN) -> list[Row]:
    """Return the CPU time of the arrivals after the change, and its excess over that of an immediate change."""
    runs = _raced(point, say, subject)
    rows: list[Row] = []
    for how, rounds in runs.items():
        extra = [1e3 * (run.cpu_s - other.cpu_s) for run, other in zip(rounds, runs["immediate"], strict=True)]
        rows.append({"how": how, **spread([1e3 * run.cpu_s for run in rounds], "cpu_ms"), **spread(extra, "extra_ms")})
    return rows


_ABOUT = (
    "A join of two streams on one of 25 keys changes from windows of 50 rows to windows of another size, before "
    "arrival 1000 of 2000; an arrival has two results under the old windows. Rows after the change are pushed one by "
    "one. The paper changes the size of the windows of a sum over one stream, with as many elements. "
)


def plot(title: str, column: str, label: str, name: str = "") -> Plot:
    return Plot(title, "window", column, "how", name=name, x_label="rows of the new windows", y_label=label)


def table(title: str, column: str, label: str) -> ReportTable:
    return ReportTable(title, {"window": "rows of the new windows"}, {column: label}, across="how")


def printed(column: str, values: dict[str, Sequence[tuple[int, float]]]) -> list[Row]:
    return [{"window": size, "how": how, column: value} for how, pairs in values.items() for size, value in pairs]


RESPONSE_TIME = (
    "Response time is the wall time from the last result of the old version, or from the change if that is later, "
    "until the first result of the new version; it is negative if the new version comes first."
)
PRINTED_RESPONSE_TIMES = printed(
    "response_ms",
    {
        "immediate": [(10, 1.7), (100, 22.6)],
        "drain-query": [(10, 0.2), (50, 0.2)],
        "drain-stream": [(10, -7.0)],
        "graceful": [(10, 0.003), (100, 0.003)],
        "graceful-drain": [(10, -10.0), (100, -10.0)],
    },
)
"""The response times in figure 14 of the paper, in milliseconds, by kind of change and size of the window."""
COUNTS = {
    "lost": "Results of the reference that did not come",
    "query_disorder": "Old results after a new one",
    "stream_disorder": "Results after one with a later last component",
    "duplicates": "Results of both versions",
}

FIGURES = (
    Figure(
        "lifecycle-fig14",
        _ABOUT + RESPONSE_TIME,
        points,
        response,
        source=f"{PAPER}, figure 14",
        plots=[plot("Response time", "response_ms", "ms")],
        tables=[table("Response time", "response_ms", "ms")],
        printed=PRINTED_RESPONSE_TIMES,
    ),
    Figure(
        "lifecycle-fig15",
        _ABOUT + "The handover is measured by its own reference, the others by that of the paper "
        "(docs/guide/semantics.md). The results of the references come from nested loops.",
        correctness_points,
        correctness,
        source=f"{PAPER}, figure 15",
        plots=[plot(title, column, "results", name=column) for column, title in COUNTS.items()],
        tables=[table(title, column, "results") for column, title in COUNTS.items()],
    ),
    Figure(
        "lifecycle-fig16",
        _ABOUT
        + "CPU time is that of the change and of the 1000 arrivals after it. The paper measures the threads that "
        "run the second version; here both share one join, and what counts is the time beyond an immediate change.",
        points,
        cost,
        source=f"{PAPER}, figure 16",
        plots=[plot("CPU time beyond that of an immediate change", "extra_ms", "ms")],
        tables=[
            table("CPU time of 1000 arrivals", "cpu_ms", "ms"),
            table("CPU time beyond that of an immediate change", "extra_ms", "ms"),
        ],
    ),
)

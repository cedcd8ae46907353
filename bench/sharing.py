"""`eddy bench sharing`: many queries in one engine, and each query in its own Runtime.

The queries differ in filters of one stream: ranges on two columns, of which each filter accepts a hundredth of the
rows, or conditions of another form (`FORMS`). A push goes to the engine and to the runtimes in turns, and the results
of every query are compared. Of a thousand queries only a sample runs in separate runtimes, because a thousand windows
do not fit into memory; the time of the sample is scaled up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench import sharing_graphs
from bench.harness.figure import NAMED, Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from eddy import Engine, Query, Range, Runtime, Stream

STREAMS = ("R", "S", "T")
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
WIDTH = 10
"""Number of values, of 100, that a range on one column accepts."""
STARTS = 20
"""Number of queries that are started and stopped while other queries run."""
MOST, MOST_APART = 1000, 50
FORMED = 300
"""Number of queries with conditions of another form than ranges."""
LONE = (10, 1_000, 10_000, 100_000)
"""Rows of a push to an engine with one query."""
X, Y, S = pc.field("x"), pc.field("y"), pc.field("s")
FORMS: dict[str, Callable[[int], pc.Expression]] = {
    "or": lambda n: (n % 100 == X) | (n * 7 % 100 == X),
    "in": lambda n: X.isin([n % 100, n * 7 % 100, n * 13 % 100]),
    "not": lambda n: (n % 100 != X) & (n * 7 % 100 != Y) & (Y < 10),
    "prefix": lambda n: pc.starts_with(S, f"s{n % 100}"),
}
"""Forms of conditions, of the number of a query."""


def _schema(form: str | None) -> pa.Schema:
    return SCHEMA.append(pa.field("s", pa.string())) if form == "prefix" else SCHEMA


def _query(number: int | None, window: int, form: str | None = None) -> Query:
    """Return a query with the filters of its number, of a form; None = without filters, and of ranges."""
    kept: list[pc.Expression] | None = None
    if number is not None and form is not None:
        kept = [FORMS[form](number)]
    elif number is not None:
        x, y = number % 91, number * 37 % 91
        kept = [
            (pc.field(column) >= least) & (pc.field(column) < least + WIDTH) for column, least in (("x", x), ("y", y))
        ]
    streams = [
        Stream(name, _schema(form), window=Range(window), time="t", filter=kept if name == "R" else None)
        for name in STREAMS
    ]
    return Query(streams, ["R.k = S.k", "S.k = T.k"], select=["R.x", "S.x", "T.x"])


def _pushes(point: Point) -> Iterator[tuple[dict[str, pa.RecordBatch], npt.NDArray[np.uint8]]]:
    """Yield the pushes: rows by stream, and the order of their arrival."""
    chance, rows = np.random.default_rng(point["seed"]), point["push"]
    for step in range(point["pushes"] + 1):
        order = chance.integers(0, len(STREAMS), rows, np.uint8)
        times = np.arange(step * rows, (step + 1) * rows)
        keys = chance.integers(0, point["window"] // len(STREAMS), rows)
        columns = [keys, times, chance.integers(0, 100, rows), chance.integers(0, 100, rows)]
        schema = _schema(point.get("form"))
        if len(schema) > len(columns):
            columns.append(np.array([f"s{value} of a hundred" for value in columns[2]], object))
        yield (
            {
                name: pa.record_batch([pa.array(column[order == i]) for column in columns], schema=schema)
                for i, name in enumerate(STREAMS)
            },
            order,
        )


def measure(point: Point, say: Say) -> list[Row]:
    """Run the queries of a point together and apart; return the row of the point."""
    if "graphs" in point:
        return sharing_graphs.measure(point, say)
    if "lone" in point:
        return _measure_lone(point)
    count, window, form = point["queries"], point["window"], point.get("form")
    engine = Engine([Stream(name, _schema(form), time="t") for name in STREAMS])
    for number in range(count):
        engine.start(str(number), _query(number, window, form))
    alone = [str(number) for number in np.linspace(0, count - 1, min(count, MOST_APART)).astype(int)]
    runtimes = {name: Runtime(_query(int(name), window, form)) for name in alone}
    together, apart, results = [], [], 0
    with without_gc():
        for step, (batches, order) in enumerate(_pushes(point)):
            say(f"{count} queries, push {step} of {point['pushes']}")
            began = thread_time()
            tables = engine.push(batches, order)
            middle = thread_time()
            separate = {name: runtime.push(batches, order) for name, runtime in runtimes.items()}
            ended = thread_time()
            for name, table in separate.items():
                agree(f"query {name}, push {step}", {"together": _digest(tables[name]), "apart": _digest(table)})
            results += sum(table.num_rows for table in tables.values())
            if step:  # windows fill and kernels load in the first push
                together.append(middle - began)
                apart.append((ended - middle) * count / len(alone))
    ratios = [b / a for a, b in zip(together, apart, strict=True)]
    if form is not None:
        return [{"figure": f"filters_{form}{count}.vs_one_by_one", **spread(ratios, "value")}]
    starts, stops = _starts_and_stops(engine, count, window)
    single = Runtime(_query(None, window))
    for batches, order in _pushes(point):
        single.push(batches, order)
    kept = engine.metrics()
    state = sum(join["bytes"] for join in kept["joins"]) + sum(kept["kept_bytes"].values())
    named: list[Row] = [
        {"figure": f"filters{count}.vs_one_by_one", **spread(ratios, "value")},
        {"figure": f"filters{count}.state_vs_one", "value": state / single.nbytes},
        {"figure": f"filters{count}.start_ms", **spread(starts, "value")},
        {"figure": f"filters{count}.stop_ms", **spread(stops, "value")},
    ]
    summary = {
        "results": results,
        "arrivals_per_s": point["push"] / median(together),
        **spread(ratios, "vs_one_by_one"),
        "state_vs_one": state / single.nbytes,
        "start_ms": median(starts),
        "stop_ms": median(stops),
    }
    return [summary, *(named if count == MOST else [])]


def _measure_lone(point: Point) -> list[Row]:
    """Push to an engine with one query without filters, and to a runtime, in turns; return how much longer it takes."""
    query = _query(None, point["window"])
    engine, runtime = Engine([Stream(name, SCHEMA, time="t") for name in STREAMS]), Runtime(query)
    engine.start("q", query)
    ratios = []
    with without_gc():
        for step, (batches, order) in enumerate(_pushes(point)):
            began = thread_time()
            together = engine.push(batches, order)["q"]
            middle = thread_time()
            alone = runtime.push(batches, order)
            ended = thread_time()
            agree(f"push {step}", {"engine": _digest(together), "runtime": _digest(alone)})
            if step > point["pushes"] // 4:  # windows have filled
                ratios.append((middle - began) / (ended - middle))
    return [{"figure": f"lone.{point['push']}.vs_runtime", **spread(ratios, "value")}]


def _digest(table: pa.Table) -> tuple[int, ...]:
    """Return the number of results and the sums of their columns."""
    return (table.num_rows, *(pc.sum(column).as_py() or 0 for column in table.columns))


def _starts_and_stops(engine: Engine, count: int, window: int) -> tuple[list[float], list[float]]:
    """Return milliseconds of starts and of stops while all queries run, including the construction of the query."""
    starts, stops = [], []
    for number in range(STARTS):
        began = perf_counter()
        running = engine.start("another", _query(count + number, window))
        middle = perf_counter()
        running.stop()
        starts.append(1000 * (middle - began))
        stops.append(1000 * (perf_counter() - middle))
    return starts, stops


def points(full: bool) -> list[Point]:
    """Return the points: one query to a thousand."""
    sizes = {"window": 60_000, "push": 60_000, "pushes": 5} if full else {"window": 30_000, "push": 20_000, "pushes": 3}
    return [
        *({"queries": count, **sizes, "seed": 1} for count in (1, 10, 100, MOST)),
        *({"queries": FORMED, "form": form, **sizes, "seed": 1} for form in FORMS),
        *(
            {"lone": 1, "window": 40_000, "push": rows, "pushes": max(40, min(400_000 // rows, 800)), "seed": 1}
            for rows in LONE
        ),
        *sharing_graphs.points(full),
    ]


FIGURES = (
    Figure(
        "sharing",
        "Three streams on one key, RANGE windows. Queries differ in range filters on two columns of one stream; each "
        f"accepts a hundredth of its rows; {FORMED} queries differ in conditions of another form. All queries in one "
        "engine, and each in a Runtime of its own, push by push. "
        f"{MOST_APART} queries at most run apart, and their time is scaled up. The results of each query are compared. "
        "State is that of the engine, the rows that it keeps included, over that of one Runtime without filters. "
        "An engine with one query without filters, and a Runtime, take pushes of several sizes in turns. "
        f"CPU time. {sharing_graphs.ABOUT}",
        points,
        measure,
        plots=(
            Plot(
                "Speed of one engine over that of a Runtime for each query",
                "queries",
                "vs_one_by_one",
                x_label="queries",
                y_label="times as fast",
                log="xy",
            ),
        ),
        tables=(
            NAMED,
            ReportTable(
                "By the number of queries",
                {"queries": "queries"},
                {
                    "arrivals_per_s": "arrivals/s",
                    "results": "results of all",
                    "vs_one_by_one": "times as fast as one by one",
                    "state_vs_one": "state / one Runtime",
                    "start_ms": "start, ms",
                    "stop_ms": "stop, ms",
                },
            ),
            sharing_graphs.TABLE,
        ),
        titles={
            "filters1000.vs_one_by_one": "1 000 queries: times as fast as one by one",
            "filters1000.state_vs_one": "1 000 queries: state over that of one Runtime without filters",
            "filters1000.start_ms": "Start of a query beside 1 000 others, ms",
            "filters1000.stop_ms": "Stop of a query beside 1 000 others, ms",
            **{f"filters_{form}{FORMED}.vs_one_by_one": f"{FORMED} queries, {form}: times as fast" for form in FORMS},
            **{
                f"lone.{rows}.vs_runtime": f"Time of an engine with one query, a Runtime = 1, {rows:,} rows"
                for rows in LONE
            },
            **sharing_graphs.TITLES,
        },
        bars={
            "filters1000.vs_one_by_one": "≥ 50",
            "filters1000.state_vs_one": "≤ 1.5",
            "filters1000.start_ms": "≤ 5",
            "filters1000.stop_ms": "≤ 5",
            **{f"filters_{form}{FORMED}.vs_one_by_one": "≥ 20" for form in FORMS},
            **{f"lone.{rows}.vs_runtime": "≤ 1.1" for rows in LONE},
            **sharing_graphs.BARS,
        },
    ),
)

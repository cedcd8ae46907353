"""Queries over different join graphs of the same streams: in one engine, and each query in its own Runtime.

A part of `eddy bench sharing`. The graphs are random trees over three to six of six streams; each edge sets a key of
one stream equal to a key of another one. A push goes to the engine and to the runtimes in turns. The results of every
query are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median
from time import thread_time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.figure import Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from eddy import Engine, Query, Range, Runtime, Stream

STREAMS = ("A", "B", "C", "D", "E", "F")
KEYS, PAYLOAD = ("k0", "k1", "k2"), ("p0", "p1", "p2")
SCHEMA = pa.schema([(name, pa.int64()) for name in (*KEYS, "at", *PAYLOAD)])
GRAPHS = 20

Graph = tuple[tuple[str, ...], tuple[str, ...]]
"""Streams, and the equalities between them."""
Rows = dict[str, pa.RecordBatch]


def graphs(count: int, seed: int) -> list[Graph]:
    """Return different random trees; the first one has all streams."""
    chance, trees = random.Random(seed), dict[Graph, None]()
    while len(trees) < count:
        names = chance.sample(STREAMS, chance.choice((3, 4, 5, 6)) if trees else len(STREAMS))
        on = [
            f"{names[chance.randrange(k)]}.{chance.choice(KEYS)} = {names[k]}.{chance.choice(KEYS)}"
            for k in range(1, len(names))
        ]
        trees[tuple(sorted(names)), tuple(sorted(on))] = None
    return list(trees)


def _query(graph: Graph, window: int) -> Query:
    names, on = graph
    return Query([Stream(name, SCHEMA, window=Range(window), time="at") for name in names], on)


def _pushes(point: Point) -> Iterator[tuple[Rows, npt.NDArray[np.uint8]]]:
    """Yield the pushes: rows by stream, and the order of their arrival."""
    chance = np.random.default_rng(point["seed"])
    rows: int = point["push"]
    for step in range(point["pushes"] + 2):
        order = chance.integers(0, len(STREAMS), rows, np.uint8)
        times = np.arange(step * rows, (step + 1) * rows)
        values = [chance.integers(0, 1 << 40 if name in PAYLOAD else point["keys"], rows) for name in SCHEMA.names]
        columns = [times if name == "at" else column for name, column in zip(SCHEMA.names, values, strict=True)]
        yield (
            {
                name: pa.record_batch([pa.array(column[order == i]) for column in columns], schema=SCHEMA)
                for i, name in enumerate(STREAMS)
            },
            order,
        )


def _pushed(runtime: Runtime, rows: Rows, order: npt.NDArray[np.uint8]) -> tuple[float, pa.Table]:
    """Return the seconds of a push of the rows of a query, and its results."""
    names = [stream.name for stream in runtime.query.streams]
    number = np.full(len(STREAMS), len(names), np.uint8)
    number[[STREAMS.index(name) for name in names]] = np.arange(len(names))
    streams = number[order]
    streams, batches = streams[streams < len(names)], {name: rows[name] for name in names}
    began = thread_time()
    table = runtime.push(batches, streams)
    return thread_time() - began, table


def digest(table: pa.Table) -> tuple[int, ...]:
    """Return the number of results and the sums of their columns."""
    return (table.num_rows, *(pc.sum(column).as_py() or 0 for column in table.columns))


def state(engine: Engine) -> int:
    """Return the bytes of the state of an engine, including the rows that it keeps."""
    kept = engine.metrics()
    return sum(kept["kept_bytes"].values()) + kept["shared_bytes"] + sum(join["bytes"] for join in kept["joins"])


def measure(point: Point, say: Say) -> list[Row]:
    """Run the queries of a point together and apart."""
    drawn = graphs(point["graphs"] + 1, point["seed"])
    queries = {f"q{n}": _query(graph, point["window"]) for n, graph in enumerate(drawn[:-1])}
    engine = Engine([Stream(name, SCHEMA, time="at") for name in STREAMS])
    for name, query in queries.items():
        engine.start(name, query)
    runtimes = {name: Runtime(query) for name, query in queries.items()}
    together: list[float] = []
    apart: list[float] = []
    results, state_ratio, anew = 0, 0.0, 0.0
    with without_gc():
        for step, (rows, order) in enumerate(_pushes(point)):
            say(f"{len(queries)} graphs, push {step} of {point['pushes']}")
            if step > point["pushes"]:
                state_ratio = state(engine) / max(runtime.nbytes for runtime in runtimes.values())
                engine.start("another", _query(drawn[-1], point["window"]), warm=True)
            began = thread_time()
            tables = engine.push(rows, order)
            seconds = thread_time() - began
            if step > point["pushes"]:
                anew = 1000 * (seconds - median(together))
                break
            separate = {name: _pushed(runtime, rows, order) for name, runtime in runtimes.items()}
            for name, (_, table) in separate.items():
                agree(f"query {name}, push {step}", {"together": digest(tables[name]), "apart": digest(table)})
            results += sum(table.num_rows for table in tables.values())
            if step:  # windows fill and kernels load in the first push
                together.append(seconds)
                apart.append(sum(spent for spent, _ in separate.values()))
    ratios = [b / a for a, b in zip(together, apart, strict=True)]
    amounts: list[Row] = [
        {"figure": f"graphs{GRAPHS}.vs_apart", **spread(ratios, "value")},
        {"figure": f"graphs{GRAPHS}.state_vs_largest", "value": state_ratio},
        {"figure": f"graphs{GRAPHS}.anew_ms", "value": anew},
    ]
    summary = {
        "graph_results": results,
        "graph_arrivals_per_s": point["push"] / median(together),
        **spread(ratios, "vs_apart"),
        "state_vs_largest": state_ratio,
        "anew_ms": anew,
    }
    return [summary, *(amounts if point["main"] else [])]


def points(full: bool) -> list[Point]:
    """Return the points: keys with about one partner for each arrival, and keys with a partner for few arrivals."""
    sizes = (
        {"window": 120_000, "push": 60_000, "pushes": 6} if full else {"window": 30_000, "push": 10_000, "pushes": 5}
    )
    live = sizes["window"] // len(STREAMS)
    return [
        {"graphs": GRAPHS, **sizes, "keys": keys, "main": keys == 2 * live, "seed": 1}
        for keys in (live, 2 * live, 6 * live)
    ]


ABOUT = (
    f"{GRAPHS} queries over different join graphs of six streams with three integer keys and three columns of payload "
    "each: random trees over three to six streams, RANGE windows. All in one engine, and each in a Runtime of its own, "
    "push by push. State is that of the engine, the rows that it keeps included, over that of the largest Runtime."
)

TABLE = ReportTable(
    "Queries over different join graphs, by the number of keys",
    {"graphs": "queries", "keys": "keys"},
    {
        "graph_arrivals_per_s": "arrivals/s",
        "graph_results": "results of all",
        "vs_apart": "times as fast as apart",
        "state_vs_largest": "state / largest Runtime",
        "anew_ms": "another graph, ms",
    },
)

TITLES = {
    "graphs20.vs_apart": "20 join graphs: times as fast as apart",
    "graphs20.state_vs_largest": "20 join graphs: state over that of the largest Runtime",
    "graphs20.anew_ms": "20 join graphs: one more push that makes the shared SteMs anew takes, ms",
}

BARS = {"graphs20.state_vs_largest": "≤ 2"}

"""The figure `floor`: time per arrival compared with the time that its memory accesses alone would take.

The model counts random accesses per arrival from the layout and the counters of the engine. The model counts the cache
lines whose address depends on the key:

directory   the slot of each key of the arrival in the hash table of the key directory (a slot has 16 bytes and the
            table is at most three quarters full, so a look-up hardly ever needs another line)
heads       the head row of each key: the keys of the arrival, and keys that a match of a trunk hop adds. Probing and
            inserting use the same row; a row of several streams may span several lines
chain       the record of each match, whose link must be read to find the end of the chain; the engine counts them
            (`V_MATCHES`)
gather      the payload of each component of a result except the arrival, one line for each column

For memory that is accessed in order (keys in, the slot written to the ring of the stream, row ids and columns out) the
model counts the bytes. The model does not count the sweep of dead keys, longer chains by other keys of a bucket (in the
loop), and address translation beyond that of the measured accesses.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.machine_limit.memory import LINE, costs, powers_of_two
from bench.ways.runners import JOINS, EngineRunner, LoopRunner, Runner, RuntimeRunner, fill, rounds
from bench.workloads.sources import filling, workload
from jisc.strategies.base import COUNTERS
from stairs.descriptors import H_OPS0, H_OPS1, M_RESULTS, O_CHECK, R_END, R_TRUNK, V_MATCHES, V_PROBES
from stairs.graph import JoinGraph
from stairs.memory.arena import Int64s, Routes
from stairs.modules import Modules

KEY = 8
"""Bytes of a key word, of a (link, key id) in a record, of a value of the payload."""
ROW_ID = 4


@dataclass(frozen=True)
class Traffic:
    """Counts per arrival: random accesses by purpose, and bytes read or written in order.

    working_set   bytes in which the random accesses lie
    """

    directory: float
    heads: float
    chain: float
    gather: float
    sequential_bytes: float
    working_set: float

    @property
    def random(self) -> float:
        """Random accesses per arrival."""
        return self.directory + self.heads + self.chain + self.gather


def lines_of(n_bytes: int) -> float:
    """Return the average number of cache lines that a row of this size in bytes touches; the first row starts a line.

    >>> lines_of(16), lines_of(84)
    (1.0, 2.25)
    """
    starts = (np.arange(LINE) * n_bytes) % LINE
    return float(((starts + n_bytes + LINE - 1) // LINE).mean())


@dataclass(frozen=True)
class Counted:
    """Counts of the engine, per arrival.

    keys      keys of the arrival
    bindings  keys that matches of trunk hops added
    matches   tuples found in chains
    results   results
    """

    keys: float
    bindings: float
    matches: float
    results: float


def counters(routes: Routes) -> Int64s:
    """Return the counts of all hops so far: int64[2, hops], probes and matches."""
    return routes.counts[COUNTERS].copy()


def counted(graph: JoinGraph, routes: Routes, before: Int64s, arrivals: int, results: int) -> Counted:
    """Return the counts of the arrivals since `counters` returned `before`; streams come equally often."""
    matches = routes.counts[V_MATCHES] - before[V_MATCHES - V_PROBES]
    bindings = 0
    for route in range(graph.n_streams):
        for h in range(int(routes.span[route, R_TRUNK]), int(routes.span[route, R_END])):
            ops = routes.ops[int(routes.hops[h, H_OPS0]) : int(routes.hops[h, H_OPS1])]
            bindings += int(matches[h]) * int((ops[:, O_CHECK] == 0).sum())
    keys = sum(map(len, graph.attributes)) / graph.n_streams
    return Counted(keys, bindings / arrivals, float(matches.sum()) / arrivals, results / arrivals)


def engine_traffic(counts: Counted, modules: Modules, columns: int = 0) -> Traffic:
    """Return the traffic of the engine. `columns` is the number of payload columns of results; 0 = row ids only."""
    graph = modules.graph
    live = [modules.rows(i) for i in range(graph.n_streams)]
    head_bytes = [ROW_ID * len(members) for members in graph.members]
    per_key = sum(map(lines_of, head_bytes)) / len(head_bytes)
    working_set = sum(
        modules.keys(c) * head_bytes[c] + modules.table.view(c).nbytes for c in range(graph.n_classes)
    ) + sum(KEY * len(attributes) * rows for attributes, rows in zip(graph.attributes, live, strict=True))
    # The last component of a result is the arrival, and each stream has the same number of arrivals.
    others = columns * (graph.n_streams - 1) / graph.n_streams
    sequential = 2 * KEY * counts.keys + ROW_ID * graph.n_streams * counts.results
    if columns:
        working_set += KEY * columns * sum(live) // graph.n_streams
        # Columns in: read and written; columns out: row ids read, values written.
        sequential += 2 * KEY * columns / graph.n_streams + counts.results * columns * (ROW_ID + KEY)
    return Traffic(
        directory=counts.keys,
        heads=per_key * (counts.keys + counts.bindings),
        chain=counts.matches,
        gather=others * counts.results,
        sequential_bytes=sequential,
        working_set=working_set,
    )


def loop_traffic(counts: Counted, graph: JoinGraph, rows: int, bits: int) -> Traffic:
    """Return the traffic of a hand-written loop without a directory; a candidate takes two lines: key and link.

    rows   tuples in all windows
    bits   each attribute has 2^bits buckets
    """
    per_row = [ROW_ID * len(members) for members in graph.members]
    per_key = sum(map(lines_of, per_row)) / len(per_row)
    return Traffic(
        directory=0.0,
        heads=per_key * (counts.keys + counts.bindings),
        chain=2 * counts.matches,
        gather=0.0,
        # A key and a link are written, a key is read.
        sequential_bytes=(2 * KEY + ROW_ID) * counts.keys + ROW_ID * graph.n_streams * counts.results,
        working_set=sum((n << bits) for n in per_row) + (KEY + ROW_ID) * counts.keys * rows,
    )


def points(full: bool) -> list[Point]:
    """Return W1 over windows of 10^3 to 10^6 rows (quick: 10^5), W2 and W21 over 10^4."""
    arrivals, count = (500_000, 7) if full else (100_000, 3)
    windows = [10**k for k in range(3, 7 if full else 6)]
    sizes = [("W1", window) for window in windows] + [("W2", 10_000), ("W21", 10_000)]
    return [
        {"workload": name, "window": window, "arrivals": arrivals, "push": 50_000, "rounds": count, "seed": 1}
        for name, window in sizes
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each way: measured ns per arrival, those of the model, and the counts of the model."""
    name, window, push = point["workload"], point["window"], point["push"]
    arrivals, count, seed = point["arrivals"], point["rounds"], point["seed"]
    source = workload(name, window, seed)
    graph = source.query.graph
    loop = LoopRunner(JOINS[name], graph.n_streams, window, window)
    engine = EngineRunner(source.query)
    # One plan and no statistics, so that the runtime walks the routes that the engine counts.
    arrow = RuntimeRunner(source.query, strategy="mjoin", statistics=False)
    runners: dict[str, Runner] = {"engine": engine, "arrow": arrow, "loop": loop}
    say(f"{name}, windows of {window:,}: filling")
    fill(runners, source, filling([window] * graph.n_streams, push), push)
    before = counters(engine.routes)
    # The counters also run in the round that is not timed.
    matched_before = int(engine.modules.meta[M_RESULTS])
    taken, _ = rounds(runners, source, arrivals, push, count, say)
    results = int(engine.modules.meta[M_RESULTS]) - matched_before
    counts = counted(graph, engine.routes, before, arrivals * (count + 1), results)
    live = sum(engine.modules.rows(i) for i in range(graph.n_streams))
    traffic = {
        "loop": loop_traffic(counts, graph, live, loop.bits),
        "engine": engine_traffic(counts, engine.modules),
        "arrow": engine_traffic(counts, engine.modules, len(source.query.select)),
    }
    rows: list[Row] = []
    for way, way_traffic in traffic.items():
        ns = [1e9 * seconds / arrivals for seconds in taken[way]]
        say(f"{name}, windows of {window:,}: latency in {powers_of_two(way_traffic.working_set):,} bytes")
        rows.append({"way": way, **spread(ns, "ns"), **_model(way_traffic, median(ns), seed), "live": live})
    return rows


def _model(traffic: Traffic, ns: float, seed: int) -> Row:
    latency = costs(powers_of_two(traffic.working_set), 3, 1_000_000, seed)
    dependent, independent, sequential = (median(latency[kind]) for kind in ("dependent", "independent", "sequential"))
    in_order = traffic.sequential_bytes / LINE * sequential
    best, worst = traffic.random * independent + in_order, traffic.random * dependent + in_order
    return {
        **asdict(traffic),
        "random": traffic.random,
        "dependent_ns": dependent,
        "independent_ns": independent,
        "best_ns": best,
        "worst_ns": worst,
        "ratio_best": ns / best,
        "ratio_worst": ns / worst,
    }


ROW = {"workload": "workload", "window": "window", "way": "way"}

FIGURES = (
    Figure(
        "floor",
        "The loop, the engine and `Runtime.push` (one plan, no statistics) on W1, W2 and W21, in turns on the same "
        "arrivals, windows full. The model counts random accesses per arrival (key directory, head rows, records of "
        "matches, payload) and multiplies them by the latency measured in the same process at the size of the memory "
        "accessed: `dependent` is the worst case, `overlapped` the best. Memory accessed in order is added to both.",
        points,
        measure,
        plots=[
            Plot(
                "W1: measured / floor",
                "window",
                "ratio_best",
                "way",
                name="w1",
                x_label="rows of a window",
                y_label="measured / overlapped accesses",
                log="xy",
                where={"workload": "W1"},
            )
        ],
        tables=[
            ReportTable(
                "Measured and predicted ns per arrival",
                ROW,
                {
                    "random": "random accesses",
                    "dependent_ns": "dependent, ns each",
                    "independent_ns": "overlapped, ns each",
                    "best_ns": "floor, overlapped",
                    "worst_ns": "floor, dependent",
                    "ns": "measured",
                    "ratio_best": "measured / overlapped",
                    "ratio_worst": "measured / dependent",
                },
            ),
            ReportTable(
                "Random accesses per arrival",
                ROW,
                {
                    "directory": "key directory",
                    "heads": "head rows",
                    "chain": "records of matches",
                    "gather": "payload",
                    "sequential_bytes": "bytes in order",
                    "working_set": "working set, bytes",
                },
            ),
        ],
    ),
)

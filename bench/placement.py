"""`eddy bench placement`: joins placed on simulated nodes; figures 4, 5 and table 3 of the paper, and chains beyond it.

The joins are real and their results are checked; time and bytes are those of the simulated network. The seconds of
inserts, probes and matches are fitted from the engine in the same run and stored with the figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness.figure import NAMED, Figure, Plot, Point, Row, Say, Table, number
from bench.harness.turns import Mismatch
from eddy import Query, Range, Runtime, Stream
from eddy.placement.costs import UnitCosts
from eddy.placement.simulation import Simulation

PAPER = "Tran, Lee, Distributed and Parallel Databases 2014"
INTERVAL_MS, WINDOW_MS, KEYS, TUPLE_BYTES = 200, 500, 100, 150
"""Of the paper: measurement interval, windows, 1 / selectivity factor, bytes of a tuple."""
ROUNDS = (1500, 3500, 5500, 7500)
"""Milliseconds at which the rate of one stream changes, between 50 and 200 tuples a second."""
END_MS, WARM = 9000, 6
"""Length of a run, and the intervals of warming up before it."""
AnyRow = dict[str, Any]
SYNC = ("LocalReady", "GlobalReady")
MOVED = (*SYNC, "Request")
CARRIED = ("Base",)


WAYS = ("fixed", "CNU", "DNU", "CNU, shared copies")
"""Ways to adapt: not at all, the two of the paper, and with a cost model that charges a copy once."""


@cache
def fitted() -> dict[str, float]:
    """Return the seconds of an insert, a probe and a match in the engine, from three runs of it."""
    rng, n = np.random.default_rng(1), 200_000
    schema = pa.schema([("k", pa.int64())])
    query = Query([Stream("R", schema), Stream("S", schema)], ["R.k = S.k"])

    def seconds(run: str, keys: np.ndarray, shift: int) -> tuple[float, int]:
        batches = {"R": pa.record_batch({"k": keys}), "S": pa.record_batch({"k": keys + shift})}
        order = np.tile(np.array([0, 1], np.uint8), len(keys))
        runtime, begin = Runtime(query, count_only=True, statistics=False), process_time()
        if run == "load":
            runtime.load(batches)
            return process_time() - begin, 0
        found = runtime.push(batches, order)["count"][0].as_py()
        return process_time() - begin, found

    some = rng.integers(0, n // 4, n)
    runs = {"load": ("load", some, 0), "apart": ("push", some, n), "together": ("push", some, 0)}
    for one in runs.values():
        seconds(*one)  # compile
    taken = {name: min((seconds(*one) for _ in range(3)), key=lambda pair: pair[0]) for name, one in runs.items()}
    insert = taken["load"][0] / (2 * n)
    probe = max(taken["apart"][0] / (2 * n) - insert, 1e-9)
    match = max((taken["together"][0] - taken["apart"][0]) / taken["together"][1], 1e-9)
    return {"c_u": insert, "c_p": probe, "c_m": match}


def fitted_rows() -> list[Row]:
    """Return the fitted costs as rows of a figure, in nanoseconds."""
    return [{"figure": f"{name}_ns", "value": 1e9 * value} for name, value in fitted().items()]


# The paper's experiments


def _same_key(m: int) -> Query:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("p", pa.binary(TUPLE_BYTES - 16))])
    streams = [Stream(f"S{i}", schema, window=Range(WINDOW_MS), time="t") for i in range(m)]
    return Query(streams, [f"S0.k = S{i}.k" for i in range(1, m)], select=["S0.k"])


def _interval(query: Query, rng: np.random.Generator, at_ms: int, rates: Sequence[float]) -> dict[str, pa.RecordBatch]:
    """Return the rows of one interval: rates are tuples per second."""
    found = {}
    for stream, rate in zip(query.streams, rates, strict=True):
        n = round(rate * INTERVAL_MS / 1000)
        columns = [
            pa.array(rng.integers(0, KEYS, n)),
            pa.array(at_ms + np.arange(n) * INTERVAL_MS // max(n, 1)),
            pa.array([b"p" * (TUPLE_BYTES - 16)] * n, pa.binary(TUPLE_BYTES - 16)),
        ]
        found[stream.name] = pa.record_batch(columns, schema=stream.schema)
    return found


def _paper_run(m: int, way: str, seed: int) -> tuple[list[AnyRow], list[AnyRow]]:
    """Return the cost of each interval, and the messages and overhead of each round, of one way to adapt."""
    query, rng = _same_key(m), np.random.default_rng(seed)
    cluster = Simulation(
        query,
        update="distributed" if way == "DNU" else "central",
        migration="track",
        shared="shared" in way,
        costs=UnitCosts(**fitted(), nested=False),
        count_only=True,
    )
    rows: list[AnyRow] = []
    rounds: list[AnyRow] = []
    for k in range(-WARM, END_MS // INTERVAL_MS):
        at = k * INTERVAL_MS
        changes = sum(at >= one for one in ROUNDS)
        rates = [*([100.0] * (m - 1)), 200.0 if changes % 2 else 50.0]
        if k == 0:
            cluster.report = math.inf if way == "fixed" else 2.0
            begun = 0
        if k >= 0 and changes > begun:
            begun = changes
            rounds.append({"round": changes, "up": changes % 2 == 1, **_no_overhead()})
        before, told = cluster.cost, cluster.messages().num_rows
        found = cluster.push(_interval(query, rng, at, rates))["count"][0].as_py()
        if k >= 0:
            cost = {"cost_s": cluster.cost - before, "modelled_s": cluster.modelled_cost()}
            rows.append({"way": way, "at_ms": at, **cost, "results": found})
            if rounds:
                rounds[-1] = _added(rounds[-1], cluster, told)
    return rows, [{"way": way, **one} for one in rounds]


def _no_overhead() -> dict[str, Any]:
    names = ("modification", "migration", "synchronization", "windows", "modification_s", "migration_s")
    return dict.fromkeys(names, 0)


def _added(row: Mapping[str, Any], cluster: Simulation, told: int) -> dict[str, Any]:
    """Return a row with the messages of an interval added."""
    found = dict(row)
    costs = cluster.costs
    for one in cluster.messages().slice(told).to_pylist():
        moved = one["name"] in MOVED
        part = "migration" if moved or one["name"] in CARRIED else "modification"
        found[f"{part}_s"] += costs.transfer(one["bytes"])
        found["windows" if one["name"] in CARRIED else part] += 1
        found["synchronization"] += one["name"] in SYNC
    return found


@cache
def _paper_runs(m: int, seed: int) -> dict[str, tuple[list[AnyRow], list[AnyRow]]]:
    found = {way: _paper_run(m, way, seed) for way in WAYS}
    counts = {way: [row["results"] for row in rows] for way, (rows, _) in found.items()}
    if len({tuple(own) for own in counts.values()}) > 1:
        raise Mismatch(f"a join of {m} streams: the ways to adapt give different results")
    return found


def costs_over_time(point: Point, say: Say) -> list[Row]:
    """Return the cost of each interval for each way to adapt, and the mean cost while the rate is high."""
    say(f"{point['streams']} streams")
    runs = _paper_runs(point["streams"], point["seed"])
    rows: list[Row] = [row for own, _ in runs.values() for row in own]
    ratios: dict[str, float] = {}
    for column, name in (("cost_s", "vs_fixed"), ("modelled_s", "modelled_vs_fixed")):
        high = {
            way: np.mean([row[column] for row in own if any(a <= row["at_ms"] < a + 2000 for a in ROUNDS[::2])])
            for way, (own, _) in runs.items()
        }
        ratios |= {f"{way}.{name}": float(high[way] / high["fixed"]) for way in WAYS[1:]}
    named: list[Row] = [
        {"figure": f"streams{point['streams']}.{name}", "value": value} for name, value in ratios.items()
    ]
    return [*rows, *named, *fitted_rows()]


def overheads(point: Point, say: Say) -> list[Row]:
    """Return the messages and the seconds of each round, by the way to adapt."""
    say(f"{point['streams']} streams")
    runs = _paper_runs(point["streams"], point["seed"])
    return [{**row, "bar": f"{row['way']} {row['round']}"} for way in ("CNU", "DNU") for row in runs[way][1]]


def paper_points(full: bool) -> list[Point]:
    """Return a point for each number of streams."""
    return [{"streams": m, "seed": 1} for m in (4, 8)]


# Beyond the paper: one round, several hops, and the choice between them

LINK = {"c_l": 5e-4, "c_r": 12.5e6}
"""100 Mbit/s and half a millisecond."""
SHAPES: Mapping[str, tuple[float, float]] = {"selective": (0.25, 0.25), "fan-out": (4.0, 0.5), "drift": (0.25, 4.0)}
"""Partners that a tuple finds in the next window: of odd and of even neighbours; under `drift`, before and after."""
EPOCH_SPAN = 3


def _chain(m: int) -> Query:
    streams, on = [], []
    for i in range(m):
        own = [f"k{c}" for c in (i - 1, i) if 0 <= c < m - 1]
        schema = pa.schema([*((name, pa.int64()) for name in (*own, "t")), ("p", pa.binary(100))])
        streams.append(Stream(f"S{i}", schema, window=Range(EPOCH_SPAN), time="t"))
        if i:
            on.append(f"S{i - 1}.k{i - 1} = S{i}.k{i - 1}")
    return Query(streams, on, select=["S0.t"])


def _epoch(query: Query, rng: np.random.Generator, epoch: int, point: Point) -> dict[str, pa.RecordBatch]:
    n, (odd, even) = point["rows"], SHAPES[point["shape"]]
    if point["shape"] == "drift":
        # The ends stay selective, so that results do not explode while the middle does.
        late = epoch >= point["epochs"] // 2
        odd, even = (even, 0.5) if late else (odd, odd)
    found = {}
    for stream in query.streams:
        columns: dict[str, Any] = {}
        for name in stream.schema.names:
            if name[0] == "k":
                partners = odd if int(name[1:]) % 2 else even
                columns[name] = rng.integers(0, max(1, round(n * EPOCH_SPAN / partners)), n)
        columns["t"] = np.full(n, epoch)
        columns["p"] = pa.array([b"p" * 100] * n, pa.binary(100))
        found[stream.name] = pa.record_batch(columns, schema=stream.schema)
    return found


def chains(point: Point, say: Say) -> list[Row]:
    """Return seconds and bytes of the grid, of hops and of the choice between them, for one chain."""
    query = _chain(point["streams"])
    rows: list[Row] = []
    for way in ("grid", "hops", "auto"):
        say(f"{point['streams']} streams, {point['nodes']} nodes, {point['shape']}: {way}")
        rng = np.random.default_rng(point["seed"])
        costs = UnitCosts(**LINK, **fitted(), nested=False)
        cluster = Simulation(query, point["nodes"], placement=way, costs=costs, count_only=True)
        counts = [
            cluster.push(_epoch(query, rng, epoch, point))["count"][0].as_py() for epoch in range(point["epochs"])
        ]
        rows.append(
            {
                "way": way,
                "seconds": cluster.clock,
                "mbytes": cluster.sent_bytes / 1e6,
                "results": sum(counts),
                "changes": cluster.history().num_rows,
            }
        )
    if len({row["results"] for row in rows}) > 1:
        raise Mismatch(f"{dict(point)}: grid, hops and auto give different results")
    name = f"streams{point['streams']}.nodes{point['nodes']}.{point['shape']}"
    return [*rows, *auto_ratios(name, rows), *fitted_rows()]


def auto_ratios(name: str, rows: Sequence[Row]) -> list[Row]:
    """Return the seconds of auto over those of the better and, where they differ by 3 or more, of the worse way.

    rows   grid, hops and auto, with their `seconds`
    """
    grid, hops, auto = (number(row, "seconds") for row in rows)
    ratios = {"auto_vs_better": auto / min(grid, hops)}
    if max(grid, hops) >= 3 * min(grid, hops):
        ratios["auto_vs_worse"] = auto / max(grid, hops)
    return [{"figure": f"{name}.{one}", "value": value} for one, value in ratios.items()]


def chain_points(full: bool) -> list[Point]:
    """Return a point for each length, number of nodes and kind of data."""
    sizes = [(m, n) for m in (4, 6, 8) for n in (4, 16, 64)]
    return [
        {
            "streams": m,
            "nodes": n,
            "shape": shape,
            "epochs": 20 if full else 10,
            "rows": 2000 if full else 400,
            "seed": 1,
        }
        for m, n in sizes
        for shape in SHAPES
    ]


_BARS = {
    f"streams{p['streams']}.nodes{p['nodes']}.{p['shape']}.{name}": bar
    for p in chain_points(True)
    for name, bar in (("auto_vs_better", "≤ 1.1"), ("auto_vs_worse", "≤ 0.5"))
}
_COST = {"c_u_ns": "ns of an insert", "c_p_ns": "ns of a probe", "c_m_ns": "ns of a match"}

FIGURES = (
    Figure(
        "placement",
        "Chains without a common key on simulated nodes (100 Mbit/s, 0.5 ms): one round over a hypercube grid, several "
        "hops, and the choice between them from figures measured after each epoch. A tuple finds 0.25 partners in each "
        "window (selective), 4 and 0.5 in turn (fan-out), or the former and from the middle on the latter (drift). "
        "Seconds are simulated; the costs of inserts, probes and matches are those of the engine.",
        chain_points,
        chains,
        plots=[
            Plot(
                "Seconds", "nodes", "seconds", "way", f"{shape}-{m}", "nodes", "s", "xy", {"shape": shape, "streams": m}
            )
            for shape in SHAPES
            for m in (4, 6, 8)
        ],
        tables=(
            Table(
                "Simulated seconds",
                {"streams": "streams", "nodes": "nodes", "shape": "data"},
                {"seconds": "s"},
                across="way",
            ),
            Table(
                "Megabytes shipped",
                {"streams": "streams", "nodes": "nodes", "shape": "data"},
                {"mbytes": "MB"},
                across="way",
            ),
            NAMED,
        ),
        titles={name: name.replace(".", ", ") for name in _BARS} | _COST,
        bars=_BARS,
    ),
    Figure(
        "placement-fig4",
        "Streams on one key, one node per stream; the rate of one stream changes between 50 and 200 tuples a second. "
        "Cost of each interval of 200 ms: the seconds of all nodes and shipments. Links as in the paper (1024 kbit/s, "
        "5 ms); inserts, probes and matches cost what they cost in the engine, which joins by hash.",
        paper_points,
        costs_over_time,
        source=f"{PAPER}, figure 4",
        plots=[
            Plot(
                f"{m} streams",
                "at_ms",
                "cost_s",
                "way",
                f"{m}",
                "ms",
                "s",
                where={"streams": m},
                marked=dict.fromkeys(map(float, ROUNDS), ""),
            )
            for m in (4, 8)
        ],
        tables=(NAMED,),
        titles={
            f"streams{m}.{w}.{name}": f"{m} streams, {w}: {what} at the high rate, of that of the fixed plan"
            for m in (4, 8)
            for w in WAYS[1:]
            for name, what in (("vs_fixed", "cost"), ("modelled_vs_fixed", "cost by the model"))
        }
        | _COST,
    ),
    Figure(
        "placement-fig5",
        "Seconds of all shipments for the modification of plans and for their migration, in each round of figure 4.",
        paper_points,
        overheads,
        source=f"{PAPER}, figure 5",
        plots=[
            Plot(
                f"Modification, {m} streams",
                "bar",
                "modification_s",
                None,
                f"modification-{m}",
                "",
                "s",
                where={"streams": m},
                kind="bars",
            )
            for m in (4, 8)
        ],
        tables=(
            Table(
                "Seconds",
                {"streams": "streams", "way": "way", "round": "round"},
                {"modification_s": "modification", "migration_s": "migration"},
            ),
        ),
    ),
    Figure(
        "placement-table3",
        "Messages of each round of figure 4, without those that carry windows. In the paper the messages of migration "
        "include those of synchronisation, and so they do here.",
        paper_points,
        overheads,
        source=f"{PAPER}, table 3",
        tables=(
            Table(
                "Messages",
                {"streams": "streams", "way": "way", "round": "round"},
                {
                    "modification": "modification",
                    "migration": "migration",
                    "synchronization": "synchronisation",
                    "windows": "windows carried",
                },
            ),
        ),
    ),
)

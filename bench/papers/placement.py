"""Figures 4, 5 and table 3 of the paper on placement: adaptive plans of streams on one key, on simulated nodes.

The joins are real and their results are checked; time and bytes are those of the simulated network. The seconds of
inserts, probes and matches are fitted from the engine in the same run and stored with the figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness.figure import NAMED, Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import Mismatch
from bench.placement import COST_TITLES, fitted, fitted_rows
from bench.simulated.placement.simulation import PlacementSimulation
from eddy import Query, Range, Stream
from eddy.placement.costs import UnitCosts

PAPER = "Tran, Lee, Distributed and Parallel Databases 2014"
INTERVAL_MS, WINDOW_MS, KEYS, TUPLE_BYTES = 200, 500, 100, 150
"""Values of the paper: measurement interval, windows, 1 / selectivity factor, bytes of a tuple."""
ROUNDS = (1500, 3500, 5500, 7500)
"""Milliseconds at which the rate of one stream changes, between 50 and 200 tuples a second."""
END_MS, WARM = 9000, 6
"""Length of a run, and the number of warm-up intervals before it."""
AnyRow = dict[str, Any]
SYNC = ("LocalReady", "GlobalReady")
MOVED = (*SYNC, "Request")
CARRIED = ("Base",)
WAYS = ("fixed", "CNU", "DNU", "CNU, shared copies")
"""Ways to adapt: no adaptation, the two of the paper, and one with a cost model that charges a copy once."""


def _same_key(m: int) -> Query:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("p", pa.binary(TUPLE_BYTES - 16))])
    streams = [Stream(f"S{i}", schema, window=Range(WINDOW_MS), time="t") for i in range(m)]
    return Query(streams, [f"S0.k = S{i}.k" for i in range(1, m)], select=["S0.k"])


def _interval(query: Query, rng: np.random.Generator, at_ms: int, rates: Sequence[float]) -> dict[str, pa.RecordBatch]:
    """Return the rows of one interval: rates are tuples per second."""
    batches = {}
    for stream, rate in zip(query.streams, rates, strict=True):
        n = round(rate * INTERVAL_MS / 1000)
        columns = [
            pa.array(rng.integers(0, KEYS, n)),
            pa.array(at_ms + np.arange(n) * INTERVAL_MS // max(n, 1)),
            pa.array([b"p" * (TUPLE_BYTES - 16)] * n, pa.binary(TUPLE_BYTES - 16)),
        ]
        batches[stream.name] = pa.record_batch(columns, schema=stream.schema)
    return batches


def _run(m: int, way: str, seed: int) -> tuple[list[AnyRow], list[AnyRow]]:
    """Return the cost of each interval, and the messages and overhead of each round, of one way to adapt."""
    query, rng = _same_key(m), np.random.default_rng(seed)
    cluster = PlacementSimulation(
        query,
        update={"DNU": "distributed", "CNU, shared copies": "shared"}.get(way, "central"),
        migration="track",
        costs=UnitCosts(**fitted(), nested=False),
        count_only=True,
    )
    rows: list[AnyRow] = []
    rounds: list[AnyRow] = []
    for k in range(-WARM, END_MS // INTERVAL_MS):
        at = k * INTERVAL_MS
        changes = sum(at >= moment for moment in ROUNDS)
        rates = [*([100.0] * (m - 1)), 200.0 if changes % 2 else 50.0]
        if k == 0:
            cluster.report = math.inf if way == "fixed" else 2.0
            begun = 0
        if k >= 0 and changes > begun:
            begun = changes
            rounds.append({"round": changes, "up": changes % 2 == 1, **_no_overhead()})
        before, told = cluster.cost, cluster.messages().num_rows
        results = cluster.push(_interval(query, rng, at, rates))["count"][0].as_py()
        if k >= 0:
            cost = {"cost_s": cluster.cost - before, "modelled_s": cluster.modelled_cost()}
            rows.append({"way": way, "at_ms": at, **cost, "results": results})
            if rounds:
                rounds[-1] = _added(rounds[-1], cluster, told)
    return rows, [{"way": way, **row} for row in rounds]


def _no_overhead() -> dict[str, Any]:
    names = ("modification", "migration", "synchronization", "windows", "modification_s", "migration_s")
    return dict.fromkeys(names, 0)


def _added(row: Mapping[str, Any], cluster: PlacementSimulation, told: int) -> dict[str, Any]:
    """Return a row with the messages of an interval added."""
    added = dict(row)
    costs = cluster.costs
    for message in cluster.messages().slice(told).to_pylist():
        moved = message["name"] in MOVED
        part = "migration" if moved or message["name"] in CARRIED else "modification"
        added[f"{part}_s"] += costs.transfer(message["bytes"])
        added["windows" if message["name"] in CARRIED else part] += 1
        added["synchronization"] += message["name"] in SYNC
    return added


@cache
def _runs(m: int, seed: int) -> dict[str, tuple[list[AnyRow], list[AnyRow]]]:
    runs = {way: _run(m, way, seed) for way in WAYS}
    counts = {way: [row["results"] for row in rows] for way, (rows, _) in runs.items()}
    if len({tuple(results) for results in counts.values()}) > 1:
        raise Mismatch(f"a join of {m} streams: the ways to adapt give different results")
    return runs


def costs_over_time(point: Point, say: Say) -> list[Row]:
    """Return the cost of each interval for each way to adapt, and the mean cost while the rate is high."""
    say(f"{point['streams']} streams")
    runs = _runs(point["streams"], point["seed"])
    rows: list[Row] = [row for intervals, _ in runs.values() for row in intervals]
    ratios: dict[str, float] = {}
    for column, name in (("cost_s", "vs_fixed"), ("modelled_s", "modelled_vs_fixed")):
        high = {
            way: np.mean([row[column] for row in intervals if any(a <= row["at_ms"] < a + 2000 for a in ROUNDS[::2])])
            for way, (intervals, _) in runs.items()
        }
        ratios |= {f"{way}.{name}": float(high[way] / high["fixed"]) for way in WAYS[1:]}
    named: list[Row] = [
        {"figure": f"streams{point['streams']}.{name}", "value": value} for name, value in ratios.items()
    ]
    return [*rows, *named, *fitted_rows()]


def overheads(point: Point, say: Say) -> list[Row]:
    """Return the messages and the seconds of each round, by the way to adapt."""
    say(f"{point['streams']} streams")
    runs = _runs(point["streams"], point["seed"])
    return [{**row, "bar": f"{row['way']} {row['round']}"} for way in ("CNU", "DNU") for row in runs[way][1]]


def points(full: bool) -> list[Point]:
    """Return a point for each number of streams."""
    return [{"streams": m, "seed": 1} for m in (4, 8)]


FIGURES = (
    Figure(
        "placement-fig4",
        "Streams on one key, one node per stream; the rate of one stream changes between 50 and 200 tuples a second. "
        "Cost of each interval of 200 ms: the seconds of all nodes and shipments. Links as in the paper (1024 kbit/s, "
        "5 ms); inserts, probes and matches cost what they cost in the engine, which joins by hash.",
        points,
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
        | COST_TITLES,
    ),
    Figure(
        "placement-fig5",
        "Seconds of all shipments for the modification of plans and for their migration, in each round of figure 4.",
        points,
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
            ReportTable(
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
        points,
        overheads,
        source=f"{PAPER}, table 3",
        tables=(
            ReportTable(
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

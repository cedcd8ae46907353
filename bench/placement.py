"""`eddy bench placement`: chains without a common key on simulated nodes, in one round, in hops, and by "auto".

The joins are real and their results are checked; time and bytes are those of the simulated network. The seconds of
inserts, probes and matches are fitted from the engine in the same run and stored with the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from bench.chains import SHAPES, WAYS, auto_bars, auto_ratios, auto_titles, chain
from bench.harness.figure import NAMED, Figure, Plot, Point, ReportTable, Row, Say, number
from bench.harness.turns import Mismatch
from bench.simulated.placement.simulation import PlacementSimulation
from eddy import Query, Runtime, Stream
from eddy.placement.costs import UnitCosts

LINK = {"c_l": 5e-4, "c_r": 12.5e6}
"""100 Mbit/s and half a millisecond."""
DRIFT = "drift"
DATA: Mapping[str, tuple[float, float]] = {**SHAPES, DRIFT: (0.25, 4.0)}
"""Partners of a tuple in the next window, for odd and for even neighbours; under `drift`, before and after."""
EPOCH_SPAN = 3
FULL_ROWS = 2000
"""Rows of each stream per epoch of a full run."""
COST_TITLES = {"c_u_ns": "ns of an insert", "c_p_ns": "ns of a probe", "c_m_ns": "ns of a match"}


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
        results = runtime.push(batches, order)["count"][0].as_py()
        return process_time() - begin, results

    some = rng.integers(0, n // 4, n)
    runs = {"load": ("load", some, 0), "apart": ("push", some, n), "together": ("push", some, 0)}
    for arguments in runs.values():
        seconds(*arguments)  # compile
    taken = {
        name: min((seconds(*arguments) for _ in range(3)), key=lambda pair: pair[0]) for name, arguments in runs.items()
    }
    insert = taken["load"][0] / (2 * n)
    probe = max(taken["apart"][0] / (2 * n) - insert, 1e-9)
    match = max((taken["together"][0] - taken["apart"][0]) / taken["together"][1], 1e-9)
    return {"c_u": insert, "c_p": probe, "c_m": match}


def fitted_rows() -> list[Row]:
    """Return the fitted costs as rows of a figure, in nanoseconds."""
    return [{"figure": f"{name}_ns", "value": 1e9 * value} for name, value in fitted().items()]


def _epoch(query: Query, rng: np.random.Generator, epoch: int, point: Point) -> dict[str, pa.RecordBatch]:
    n, (odd, even) = point["rows"], DATA[point["shape"]]
    if point["shape"] == DRIFT:
        # The ends stay selective, so that the number of results does not grow with that of the intermediate tuples.
        late = epoch >= point["epochs"] // 2
        odd, even = (even, 0.5) if late else (odd, odd)
    batches = {}
    for stream in query.streams:
        columns: dict[str, Any] = {}
        for name in stream.schema.names:
            if name[0] == "k":
                partners = odd if int(name[1:]) % 2 else even
                columns[name] = rng.integers(0, max(1, round(n * EPOCH_SPAN / partners)), n)
        columns["t"] = np.full(n, epoch)
        columns["p"] = pa.array([b"p" * 100] * n, pa.binary(100))
        batches[stream.name] = pa.record_batch(columns, schema=stream.schema)
    return batches


def chains(point: Point, say: Say) -> list[Row]:
    """Return seconds and bytes of the grid, of hops and of "auto", for one chain."""
    more = {"t": pa.int64(), "p": pa.binary(100)}
    query = chain(point["streams"], more, ["S0.t"], EPOCH_SPAN)
    rows: list[Row] = []
    for way in WAYS:
        say(f"{point['streams']} streams, {point['nodes']} nodes, {point['shape']}: {way}")
        rng = np.random.default_rng(point["seed"])
        costs = UnitCosts(**LINK, **fitted(), nested=False)
        cluster = PlacementSimulation(query, point["nodes"], placement=way, costs=costs, count_only=True)
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
    seconds = {str(row["way"]): [number(row, "seconds")] for row in rows}
    return [*rows, *auto_ratios(_name(point), seconds), *fitted_rows()]


def points(full: bool) -> list[Point]:
    """Return a point for each length, number of nodes and kind of data."""
    sizes = [(m, n) for m in (4, 6, 8) for n in (4, 16, 64)]
    return [
        {
            "streams": m,
            "nodes": n,
            "shape": shape,
            "epochs": 20 if full else 10,
            "rows": FULL_ROWS if full else 400,
            "seed": 1,
        }
        for m, n in sizes
        for shape in DATA
    ]


def _name(point: Point) -> str:
    return f"streams{point['streams']}.nodes{point['nodes']}.rows{point['rows']}.{point['shape']}"


_BARS = auto_bars(map(_name, [*points(True), *points(False)]))
_OF_POINT = {"streams": "streams", "nodes": "nodes", "rows": "rows per epoch", "epochs": "epochs", "shape": "data"}

FIGURES = (
    Figure(
        "placement",
        "Chains without a common key on simulated nodes (100 Mbit/s, 0.5 ms): one round over a hypercube grid, several "
        "hops, and the choice between them from figures measured after each epoch. A tuple finds 0.25 partners in each "
        "window (selective), 4 and 0.5 in turn (fan-out), or the former and from the middle on the latter (drift). "
        "Seconds are simulated; the costs of inserts, probes and matches are those of the engine. A run has 10 epochs "
        "of 400 rows of each stream (quick) or 20 of 2000, and drifts in the middle.",
        points,
        chains,
        plots=[
            Plot(
                f"Seconds, {FULL_ROWS} rows per epoch",
                "nodes",
                "seconds",
                "way",
                f"{shape}-{m}",
                "nodes",
                "s",
                "xy",
                {"shape": shape, "streams": m, "rows": FULL_ROWS},
            )
            for shape in DATA
            for m in (4, 6, 8)
        ],
        tables=(
            ReportTable("Simulated seconds", _OF_POINT, {"seconds": "s"}, across="way"),
            ReportTable("Megabytes shipped", _OF_POINT, {"mbytes": "MB"}, across="way"),
            NAMED,
        ),
        titles=auto_titles(_BARS) | COST_TITLES,
        bars=_BARS,
        both=True,
    ),
)

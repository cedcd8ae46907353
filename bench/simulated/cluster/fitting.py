"""Fits the costs of the simulated clock to the real engine of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.simulated.cluster.machine import Node
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.split import POSITION, TICKS
from bench.simulated.cluster.work import Costs, WorkCounts, counters
from eddy.query.query import Query
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from eddy.streams.stream import Stream
from eddy.streams.windows import Range

ROWS = 20_000
"""Rows of each stream in a push."""
SETTINGS = ((20_000, 40_000), (40_000, 40_000), (20_000, 160_000), (60_000, 120_000), (400_000, 20_000))
"""Number of keys and size of the windows in rows, of each measurement."""
_COUNTS = {"row": "rows", "probe": "probes", "match": "matches", "entry": "entries", "result": "results"}
"""Per fitted cost, the count of `WorkCounts`."""


def _rows(keys: int, start: int, seed: int) -> pa.RecordBatch:
    drawn = np.random.default_rng(seed)
    at = np.arange(start, start + ROWS)
    columns = {"k": drawn.integers(0, keys, ROWS), "t": at, "v": at, TICKS: at, POSITION: at}
    return pa.record_batch(columns)


def _query(window: int) -> Partitioned:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
    streams = [Stream(name, schema, window=Range(window), time="t") for name in "ABC"]
    return Partitioned(Query(streams, ["A.k = B.k", "B.k = C.k"]), 1)


def _measured(strategy: str, keys: int, window: int, pushes: int) -> Iterator[tuple[WorkCounts, float]]:
    query = _query(window)
    runtime = Runtime(query.inner, strategy=strategy_name(strategy))
    for number in range(pushes):
        batches = {
            name: _rows(keys, number * ROWS, 3 * number + i).cast(query.inner.streams[i].schema)
            for i, name in enumerate("ABC")
        }
        before, began = counters(runtime), process_time()
        results = runtime.push(batches, watermark=number * ROWS)
        seconds = process_time() - began
        if number:  # the first push allocates memory
            yield counters(runtime) - before + WorkCounts(rows=3 * ROWS, results=results.num_rows), seconds


def _load_and_pack() -> tuple[float, float]:
    """Return the seconds of loading a row, and of filtering and concatenating it for a package."""
    query = _query(10 * ROWS)
    batches = {name: _rows(ROWS, 0, i).cast(query.inner.streams[i].schema) for i, name in enumerate("ABC")}
    loads, packs = [], []
    for _ in range(5):
        runtime = Runtime(query.inner, strategy=strategy_name(Node().strategy))
        began = process_time()
        runtime.load(batches, watermark=0)
        loads.append((process_time() - began) / (3 * ROWS))
        pieces = [batches["A"].slice(start, 100) for start in range(0, ROWS, 100)]
        began = process_time()
        packed = pa.concat_batches(pieces)
        packed.filter(pa.array(packed.column(POSITION).to_numpy() >= 0))
        packs.append((process_time() - began) / ROWS)
    return float(np.median(loads)), float(np.median(packs))


def fitted(pushes: int = 6) -> tuple[Costs, float]:
    """Return the costs of this machine, and the median relative error of the seconds that they predict.

    Engines that store states and engines that do not join keys of several frequencies in windows of several sizes; the
    costs are the solution of least relative squares without negative costs. Cost: some seconds.
    """
    points = [
        point
        for strategy in ("jisc", "mjoin")
        for keys, window in SETTINGS
        for point in _measured(strategy, keys, window, pushes)
    ]
    counts = np.array([[getattr(work, _COUNTS[name]) for name in _COUNTS] for work, _ in points], float)
    seconds = np.array([second for _, second in points])
    solution = _nonnegative(counts / seconds[:, None], np.ones(len(seconds)))
    error = np.abs(counts @ solution / seconds - 1)
    load, pack = _load_and_pack()
    return Costs(**dict(zip(_COUNTS, solution.tolist(), strict=True)), load=load, pack=pack), float(np.median(error))


def _nonnegative(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return x >= 0 with the least |a x - b|, by leaving out columns with a negative coefficient."""
    use = list(range(a.shape[1]))
    while True:
        coefficients = np.linalg.lstsq(a[:, use], b, rcond=None)[0]
        if (coefficients >= 0).all():
            x = np.zeros(a.shape[1])
            x[use] = coefficients
            return x
        use.pop(int(coefficients.argmin()))

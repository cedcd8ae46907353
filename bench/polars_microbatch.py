"""W1 in Polars, a micro-batch at a time: what one would write without a streaming join at hand.

Each step joins all rows that can matter (the windows and the new rows) on the key and keeps the combinations whose last
component is new and whose others were in their windows when it came. Results are the same rows with the same columns.
"""

from __future__ import annotations

import os
from time import thread_time

# One thread on each side; Polars reads this once, when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from bench.workloads import WINDOW, Workload

NAMES = "RSTU"


def microbatch_seconds(workload: Workload, arrivals: int) -> tuple[float, int]:
    """Return (CPU seconds, results) of W1 in steps of so many arrivals, once warm."""
    steps = [
        (start, workload.order[start : start + arrivals], workload.keys[start : start + arrivals, 0])
        for start in range(0, len(workload.order), arrivals)
    ]
    kept = [
        pl.DataFrame(schema={"k": pl.Int64, f"v{i}": pl.Int64, f"seq{i}": pl.Int64, f"pos{i}": pl.Int64})
        for i in range(4)
    ]
    arrived = np.zeros(4, np.int64)
    results, began = 0, thread_time()
    for start, order, keys in steps:
        if start == workload.warm:
            results, began = 0, thread_time()
        counts = {}
        for i in range(4):
            mine = order == i
            counts[f"n{i}"] = arrived[i] + np.cumsum(mine)
            pos = np.flatnonzero(mine)
            new = pl.DataFrame(
                {
                    "k": keys[pos],
                    f"v{i}": pos + start,
                    f"seq{i}": arrived[i] + np.arange(len(pos)),
                    f"pos{i}": pos + start,
                }
            )
            kept[i] = pl.concat([kept[i], new])
            arrived[i] += len(pos)
        joined = kept[0]
        for other in kept[1:]:
            joined = joined.join(other, on="k")
        joined = joined.with_columns(last=pl.max_horizontal([f"pos{i}" for i in range(4)])).filter(
            pl.col("last") >= start
        )
        windows = pl.DataFrame(counts).select(pl.all().gather(joined["last"] - start))
        joined = joined.hstack(windows).filter(
            # A tuple is in its window when fewer than WINDOW of its stream came after it; the last component is in any
            # case.
            pl.all_horizontal([pl.col(f"seq{i}") >= pl.col(f"n{i}") - WINDOW for i in range(4)])
        )
        results += len(joined.select("k", "v0", "v1", "v2", "v3"))
        kept = [frame.tail(WINDOW) for frame in kept]
    return thread_time() - began, results

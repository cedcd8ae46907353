"""Runs of the hand-written loops on their workloads."""

from __future__ import annotations

from time import thread_time

import numpy as np

from bench.limit_kernels import tables, w1_loop, w2_loop, w21_loop
from bench.workloads import WINDOW, Workload

BITS = 14
"""2^14 buckets for 10 000 keys: the best of 13 to 16 on the machine where this was written."""


def loop_seconds(workload: Workload) -> tuple[float, int]:
    """Return (CPU seconds, results) of the loop written for W1, W2 or W21, with all its memory made before."""
    n = len(workload.order)
    keys = np.ascontiguousarray(workload.keys[:, 0])
    if workload.name == "W1":
        kept = tables(4, 4, 4, BITS, WINDOW, 2 * n)
        start = thread_time()
        results = w1_loop(workload.order, keys, WINDOW, BITS, kept)
    elif workload.name == "W2":
        kept = tables(4, 6, 6, BITS, WINDOW, 2 * n)
        start = thread_time()
        results = w2_loop(workload.order, workload.keys, WINDOW, BITS, kept)
    else:
        kept = tables(21, 21, 21, BITS, WINDOW, n)
        found = np.zeros(21, np.int64)
        start = thread_time()
        results = w21_loop(workload.order, keys, WINDOW, BITS, kept, found)
    return thread_time() - start, results

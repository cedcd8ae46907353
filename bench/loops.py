"""Runs of the hand-written loops on their workloads."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import numpy as np

from bench.limit_kernels import Tables, tables, w1_loop, w2_loop, w21_loop
from bench.workloads import WINDOW, Order, Workload

BITS = 14
"""2^14 buckets for 10 000 keys."""

STREAMS_AND_INDEXES = {"W1": (4, 4), "W2": (4, 6), "W21": (21, 21)}


def _loop(workload: Workload, kept: Tables) -> Callable[[Order, np.ndarray], int]:
    if workload.name == "W1":
        return lambda order, keys: w1_loop(order, keys.reshape(-1), WINDOW, BITS, kept)
    if workload.name == "W2":
        return lambda order, keys: w2_loop(order, keys, WINDOW, BITS, kept)
    found = np.zeros(21, np.int64)
    return lambda order, keys: w21_loop(order, keys.reshape(-1), WINDOW, BITS, kept, found)


def loop_seconds(workload: Workload) -> tuple[float, int]:
    """Return (CPU seconds, results) of the loop written for W1, W2 or W21, once warm and with all its memory mapped."""
    streams, indexes = STREAMS_AND_INDEXES[workload.name]
    # Two results an arrival at most, in the workloads there are; the arrivals before the clock have results as well.
    kept = tables(streams, indexes, indexes, BITS, WINDOW, 2 * max(workload.timed, workload.warm))
    kept.ids.fill(0)
    loop, warm = _loop(workload, kept), workload.warm
    loop(workload.order[:warm], workload.keys[:warm])
    start = thread_time()
    results = loop(workload.order[warm:], workload.keys[warm:])
    return thread_time() - start, results

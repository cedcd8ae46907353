"""`eddy bench filters`: an adaptive filter compared with every fixed order of its conditions.

Three conditions of different cost: a regular expression over strings, distances on a sphere, and a hash of numbers.

stationary   the share of rows that each condition accepts stays the same
drifting     the conditions take turns in rejecting nearly all rows
small        stationary, in batches of 1 000 rows, where the fixed cost of a call is a large part of the time
as_given     stationary, and the given order is already the best: adapting costs time without a gain

Each order filters all batches with a new filter, so the measured time includes the learning of an adaptive filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from statistics import median
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.figure import Figure, Point, ReportTable, Row, Say
from bench.harness.turns import Work, speed, take_turns
from eddy import AdaptiveFilter
from eddy.filters.conditions import Condition

NAMES = ("regex", "distance", "hash")
PHASE_ROWS = 500_000


@dataclass(frozen=True)
class FiltersWorkload:
    """Batches, the order in which a user wrote the conditions, and the number of passes over the batches."""

    name: str
    batches: list[pa.RecordBatch]
    given: tuple[str, ...]
    times: int = 1


def _near(batch: pa.RecordBatch) -> np.ndarray:
    """Return which points are within 1 000 km of a point in the north."""
    latitude, longitude = (np.radians(np.asarray(batch[name])) for name in ("latitude", "longitude"))
    at, along = np.radians(60.0), np.radians(10.0)
    half = np.sin((latitude - at) / 2) ** 2 + np.cos(at) * np.cos(latitude) * np.sin((longitude - along) / 2) ** 2
    near: np.ndarray = 2 * 6371 * np.arcsin(np.sqrt(half)) < 1000
    return near


def _hashed(batch: pa.RecordBatch) -> np.ndarray:
    """Return which numbers hash to a bucket below the number in column `below`."""
    h = np.asarray(batch["number"]).astype(np.uint64)
    for _ in range(3):
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xFF51AFD7ED558CCD)
    buckets: np.ndarray = (h >> np.uint64(32)) % np.uint64(100) < np.asarray(batch["below"])
    return buckets


CONDITIONS: dict[str, Condition] = {
    "regex": pc.match_substring_regex(pc.field("text"), r"user=[0-9]+ .*status=5[0-9][0-9]"),
    "distance": _near,
    "hash": _hashed,
}


def _batch(rng: np.random.Generator, rows: int, shares: Sequence[float]) -> pa.RecordBatch:
    """Return rows of which each condition accepts a share."""
    matching, near, below = shares
    status = np.where(rng.random(rows) < matching, 500 + rng.integers(0, 99, rows), 200)
    users = rng.integers(0, 10**6, rows).tolist()
    codes = zip(users, status.tolist(), strict=True)
    text = [f"user={user} path=/page/{user % 97} status={code}" for user, code in codes]
    away = np.where(rng.random(rows) < near, 0.0, -90.0)
    return pa.record_batch(
        {
            "text": pa.array(text),
            "latitude": 60.0 + rng.uniform(-4, 4, rows) + away,
            "longitude": 10.0 + rng.uniform(-4, 4, rows),
            "number": rng.integers(0, 2**62, rows),
            "below": np.full(rows, round(100 * below), np.uint64),
            "payload": rng.random(rows),
        }
    )


def workloads(phase_rows: int) -> list[FiltersWorkload]:
    """Return the workloads, drawn with seed 1."""
    rng = np.random.default_rng(1)

    def cut(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
        return [batch.slice(low, size) for low in range(0, len(batch), size)]

    steady = _batch(rng, 2 * phase_rows, (0.5, 0.3, 0.1))
    turns = [(0.9, 0.9, 0.05), (0.9, 0.05, 0.9), (0.02, 0.9, 0.9), (0.9, 0.9, 0.05)]
    drifting = [part for shares in turns for part in cut(_batch(rng, phase_rows, shares), 50_000)]
    return [
        FiltersWorkload("stationary", cut(steady, 50_000), NAMES, 4),
        FiltersWorkload("drifting", drifting, NAMES),
        FiltersWorkload("small", cut(steady.slice(0, phase_rows // 2), 1_000), NAMES, 2),
        FiltersWorkload("as_given", cut(steady, 50_000), ("hash", "distance", "regex"), 4),
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each workload: the speed of the adaptive filter relative to fixed orders."""
    return [_row(workload, point["rounds"], say) for workload in workloads(point["rows"])]


def _row(workload: FiltersWorkload, count: int, say: Say) -> Row:
    last: dict[bool, AdaptiveFilter] = {}

    def work(order: Sequence[str], adaptive: bool) -> tuple[float, int]:
        start = process_time()
        kept = AdaptiveFilter([CONDITIONS[name] for name in order], names=order, adaptive=adaptive)
        rows = sum(kept.filter(batch).num_rows for batch in workload.batches * workload.times)
        last[adaptive] = kept
        return process_time() - start, rows

    fixed: dict[str, Work] = {" ".join(order): partial(work, order, False) for order in permutations(NAMES)}
    adaptive: dict[str, Work] = {"adaptive": partial(work, workload.given, True)}
    taken = take_turns(workload.name, adaptive | fixed, count, say)
    by_time = sorted(fixed, key=lambda name: median(taken[name]))
    return {
        "conditions": workload.name,
        **speed(taken, "adaptive", by_time[0], "vs_best_fixed"),
        **speed(taken, "adaptive", by_time[-1], "vs_worst_fixed"),
        **speed(taken, "adaptive", " ".join(workload.given), "vs_given"),
        "sampling_share": last[True].sample_seconds / last[True].seconds,
        "changes_of_order": last[True].reorders,
    }


FIGURES = (
    Figure(
        "filters",
        "Three conditions of different cost; above 1, the adaptive filter is faster. `as_given` begins with the best "
        "order. CPU time of the process.",
        lambda full: [{"rows": PHASE_ROWS if full else 20_000, "rounds": 7 if full else 1}],
        measure,
        tables=(
            ReportTable(
                "Speed of the adaptive filter in terms of fixed orders",
                {"conditions": "workload"},
                {
                    "vs_best_fixed": "best order",
                    "vs_worst_fixed": "worst order",
                    "vs_given": "given order",
                    "sampling_share": "share of time for sampling",
                    "changes_of_order": "changes of order",
                },
            ),
        ),
    ),
)

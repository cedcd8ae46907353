"""`eddy bench filters`: an adaptive filter beside every fixed order of its conditions.

Three conditions that do real work, of different cost: a regular expression over strings, distances on a sphere, and a
hash of numbers. How many rows each accepts is in the rows:

stationary   the shares stay as they are
drifting     the conditions take turns in dropping nearly everything
small        stationary, in batches of 1 000 rows, where the fixed part of a call weighs
as given     stationary, and the order given is the best already: what adapting costs when there is nothing to gain

Each order filters all batches with a filter that begins anew, so an adaptive one learns within the time measured.
The numbers of rows accepted are compared before any time is reported. Times are CPU times of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from time import process_time
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from bench.measure import agree, machine, ratio, rounds, without_gc
from eddy import AdaptiveFilter
from eddy.filters.conditions import Condition

NAMES = ("regex", "distance", "hash")
PHASE_ROWS = 500_000
WORKLOADS = ("stationary", "drifting", "small", "as_given")


@dataclass(frozen=True)
class Workload:
    """Batches, and the order in which a user wrote the conditions."""

    name: str
    batches: list[pa.RecordBatch]
    given: tuple[str, ...]
    times: int = 1
    """How often the batches are filtered in a row."""


def _near(batch: pa.RecordBatch) -> np.ndarray:
    """Tell which points are within 1 000 km of one in the north."""
    latitude, longitude = (np.radians(np.asarray(batch[name])) for name in ("latitude", "longitude"))
    at, along = np.radians(60.0), np.radians(10.0)
    half = np.sin((latitude - at) / 2) ** 2 + np.cos(at) * np.cos(latitude) * np.sin((longitude - along) / 2) ** 2
    near: np.ndarray = 2 * 6371 * np.arcsin(np.sqrt(half)) < 1000
    return near


def _hashed(batch: pa.RecordBatch) -> np.ndarray:
    """Tell which numbers hash to a bucket below the one that stands beside them."""
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
    """Give rows of which each condition accepts a share."""
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


def workloads(phase_rows: int) -> list[Workload]:
    """Make the workloads, from seed 1."""
    rng = np.random.default_rng(1)

    def cut(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
        return [batch.slice(low, size) for low in range(0, len(batch), size)]

    steady = _batch(rng, 2 * phase_rows, (0.5, 0.3, 0.1))
    turns = [(0.9, 0.9, 0.05), (0.9, 0.05, 0.9), (0.02, 0.9, 0.9), (0.9, 0.9, 0.05)]
    drifting = [part for shares in turns for part in cut(_batch(rng, phase_rows, shares), 50_000)]
    return [
        Workload("stationary", cut(steady, 50_000), NAMES, 4),
        Workload("drifting", drifting, NAMES),
        Workload("small", cut(steady.slice(0, phase_rows // 2), 1_000), NAMES, 2),
        Workload("as_given", cut(steady, 50_000), ("hash", "distance", "regex"), 4),
    ]


def _measured(workload: Workload, count: int, report: Console) -> dict[str, float]:
    accepted: dict[str, list[int]] = {}
    last: dict[str, AdaptiveFilter] = {}

    def work(name: str, order: Sequence[str], adaptive: bool) -> Callable[[], float]:
        def turn() -> float:
            start = process_time()
            kept = AdaptiveFilter([CONDITIONS[one] for one in order], names=order, adaptive=adaptive)
            rows = sum(kept.filter(batch).num_rows for batch in workload.batches * workload.times)
            taken = process_time() - start
            accepted.setdefault(name, []).append(rows)
            last[name] = kept
            return taken

        return turn

    fixed = {" ".join(order): work(" ".join(order), order, False) for order in permutations(NAMES)}
    with without_gc():
        taken = rounds({"adaptive": work("adaptive", workload.given, True), **fixed}, count, workload.name, report)
    agree(workload.name, accepted)
    by_time = sorted(fixed, key=lambda name: median(taken[name]))
    kept = last["adaptive"]
    return {
        f"{workload.name}.adaptive_vs_best_fixed": ratio(taken, "adaptive", by_time[0]),
        f"{workload.name}.adaptive_vs_worst_fixed": ratio(taken, "adaptive", by_time[-1]),
        f"{workload.name}.adaptive_vs_given": ratio(taken, "adaptive", " ".join(workload.given)),
        f"{workload.name}.sampling_share": kept.sample_seconds / kept.seconds,
        f"{workload.name}.changes_of_order": kept.reorders,
    }


def run(*, quick: bool = False, report: IO[str] | None = None) -> dict[str, Any]:
    """Measure everything and return the figures by name; a table of them goes to `report`.

    A figure a_vs_b is the speed of a in terms of that of b: above 1, a is faster. quick: less of everything, to see
    that all runs; the figures mean little then.
    """
    console = Console(file=report) if report is not None else Console(stderr=True)
    figures: dict[str, Any] = {"machine": machine()}
    for workload in workloads(20_000 if quick else PHASE_ROWS):
        figures.update(_measured(workload, 1 if quick else 7, console))
    table = Table("figure", "value")
    for name, value in figures.items():
        if not isinstance(value, str):
            table.add_row(name, f"{value:.3g}")
    console.print(table)
    console.print(figures["machine"])
    return figures

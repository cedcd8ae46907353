"""The cost model of the plan migration paper, sec. 5, with the times of this library's kernels.

The paper's joins are nested loops: T_j is the cost of each pair of tuples examined. The joins of eddy are hash joins,
so they examine only pairs with the same key, and each of these pairs is a match. `by_hash` is the model with this
change and a second one: `eq8` keeps a composite for a window after it was made (eq. 2); in eddy a composite leaves with
its oldest component, which halves the input of the second state.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import thread_time

import numpy as np
import pyarrow as pa

import eddy
from bench.harness.turns import agree, without_gc
from bench.papers.migration.arrivals import HEIGHT, NEW, OLD, MigrationSetting, counted
from eddy import Query, Rows, Stream

KEYS, PARTNERS = 1_000, 20
"""Key values of the calibration, and the tuples, hence the partners, of each."""


@dataclass(frozen=True)
class MachineCosts:
    """Seconds, measured on this machine.

    fixed  a transition without states to compute: T_match and T_move of eq. 3, and making the tables of the new plan
    join   T_j, to examine one pair of tuples
    store  T_s, to insert one tuple into a state, growth of its memory included
    """

    fixed: float
    join: float
    store: float


def eq4(setting: MigrationSetting) -> float:
    """Return the seconds of a stage of parallel-track."""
    return (1 if HEIGHT == 1 else 2) * setting.w_ms / 1e3


def eq8(setting: MigrationSetting, costs: MachineCosts) -> float:
    """Return the seconds of a stage of moving-state, eqs. 3 and 8."""
    bc, bcd = (sigma / setting.scale for sigma in setting.sigmas[1:])
    first, second = entries(setting)
    pairs, stored = first / bc + 2 * second / bcd, first + 2 * second
    return costs.fixed + costs.join * pairs + costs.store * stored


def entries(setting: MigrationSetting) -> tuple[float, float]:
    """Return the expected entries of the states {B, C} and {B, C, D}, all components within the window."""
    _, b, c, d = setting.rates
    bc, bcd = (sigma / setting.scale for sigma in setting.sigmas[1:])
    w = setting.w_ms / 1e3
    return b * c * w**2 * bc, b * c * d * w**3 * bc * bcd


def by_hash(setting: MigrationSetting, costs: MachineCosts) -> float:
    """Return the seconds of a stage of moving-state with joins by hash: each pair examined is stored."""
    return costs.fixed + sum(entries(setting)) * (costs.join + costs.store)


def calibrate(repeats: int) -> MachineCosts:
    """Measure the costs: medians over `repeats` rounds, in CPU time; a round takes about 20 ms.

    join   difference of the times of tuples of B with PARTNERS partners and of tuples without partners, per match
    store  time to compute the state {B, C} from the same windows, per entry, less `join`
    """
    rows, none = _rows(np.arange(KEYS)), _rows(np.arange(KEYS, 2 * KEYS))
    matches = KEYS * PARTNERS**2
    fixed, join, stored = [], [], []
    with without_gc():
        for _ in range(repeats + 1):
            fixed.append(_empty_transition())
            with_partners, found_none = _probe_seconds(rows, rows, matches), _probe_seconds(none, rows, 0)
            join.append((with_partners - found_none) / matches)
            stored.append((_compute_seconds(rows, matches) - _compute_seconds(none, 0)) / matches)
    # The first round warms memory and caches.
    look, both = median(join[1:]), median(stored[1:])
    return MachineCosts(median(fixed[1:]), look, both - look)


def _rows(keys: np.typing.NDArray[np.int64]) -> pa.RecordBatch:
    return pa.record_batch({"k": np.tile(keys, PARTNERS)})


def _query(names: str) -> Query:
    schema = pa.schema([("k", pa.int64())])
    streams = [Stream(name, schema, window=Rows(KEYS * PARTNERS)) for name in names]
    return Query(streams, [f"B.k = {name}.k" for name in names[1:]])


def _probe_seconds(b: pa.RecordBatch, c: pa.RecordBatch, matches: int) -> float:
    """Return the seconds that the tuples of B take to probe the tuples of C."""
    runtime = eddy.Runtime(_query("BC"), "B C", strategy="mjoin", count_only=True)
    runtime.push({"C": c}, order=np.ones(c.num_rows, np.uint8))
    order = np.zeros(b.num_rows, np.uint8)
    start = thread_time()
    results = counted(runtime.push({"B": b}, order=order))
    taken = thread_time() - start
    agree("matches of the calibration", {"expected": matches, "found": results})
    return taken


def _compute_seconds(b: pa.RecordBatch, entries: int) -> float:
    """Return the seconds of computing the state {B, C}."""
    runtime = eddy.Runtime(_query("BCD"), "B (C D)", strategy="moving-state", count_only=True)
    c = _rows(np.arange(KEYS))
    # D has a tuple without partners: over an empty window a state would not be computed.
    runtime.push({"D": pa.record_batch({"k": [-1]})}, order=[2])
    runtime.push({"B": b, "C": c}, order=np.repeat(np.array([0, 1], np.uint8), [b.num_rows, c.num_rows]))
    start = thread_time()
    runtime.transition("(B C) D")
    taken = thread_time() - start
    agree("entries of the calibration", {"expected": entries, "found": sum(stair.rows for stair in runtime.stairs)})
    return taken


def _empty_transition() -> float:
    """Return the seconds of a transition of the paper's query before any tuple has come."""
    setting = MigrationSetting(1_000, (100, 100, 100, 100), (0.1, 0.1, 0.1))
    runtime = eddy.Runtime(setting.query(), OLD, strategy="moving-state", count_only=True)
    start = thread_time()
    runtime.transition(NEW)
    return thread_time() - start

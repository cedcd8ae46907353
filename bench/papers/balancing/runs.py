"""One run of the load-balancing paper's cluster on simulated nodes: arrivals, local optimization, and balancing.

Streams A, B and C join on one key and are split into partition groups; node 0 has half of them at the start. Arrivals
are Poisson processes. The engines are real, and their work becomes seconds by costs that are fitted to them on this
machine. All nodes are slowed down until node 0 needs `load` times the available time, because the machines of the paper
could not keep up either.

*Local optimization* (LM) uses the rows that a node has joined in the last seconds, and joins the two slowest streams
first. *Balancing* is one decision at a given second: the fullest node sends groups to the emptiest node until no node
is above `FULL` times the mean. All protocols carry out the same kind of decision.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.harness.figure import Point, Row
from bench.simulated.cluster import Automatic, Balance, ClusterSimulation, Costs, Node, Variants, fitted
from eddy import Query, Range, Stream
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load

STREAMS = ("A", "B", "C")
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
KEYS = 500
FULL = 1.1
TICK = 0.5
"""Seconds between two deliveries of rows."""
TURN_ROWS = 16
"""Rows that a node joins before it handles messages. Slow nodes take a tenth of a second for this number of rows."""
CALIBRATED = 5
"""Seconds of the measurement of work from which the speed of nodes is computed."""
LM_SECONDS, LM_GAIN = 5, 0.5
"""Seconds over which a node measures rates; it changes its plan if the first join would see this part of the pairs."""
PLANS = {("A", "B"): "(A B) C", ("A", "C"): "(A C) B", ("B", "C"): "(B C) A"}
"""Two streams -> the plan that joins them first."""


class AdaptationWay(NamedTuple):
    """A way to adapt.

    lm        whether each node optimizes its plan
    how       protocol of moves, None = no balancing
    strategy  strategy of the engines: the paper's systems recompute states at a change of plan; eddy completes them on
              demand
    """

    lm: bool
    how: str | None
    strategy: str


WAYS = {
    "No-Adapt": AdaptationWay(False, None, "moving-state"),
    "LM only": AdaptationWay(True, None, "moving-state"),
    "PTLB only": AdaptationWay(False, "parallel", "moving-state"),
    "MSLB only": AdaptationWay(False, "state", "moving-state"),
    "LM-PTLB": AdaptationWay(True, "parallel", "moving-state"),
    "LM-MSLB": AdaptationWay(True, "state", "moving-state"),
    "JIT only": AdaptationWay(False, "jit", "jisc"),
    "LM-JIT": AdaptationWay(True, "jit", "jisc"),
    "LM-PTLB, jisc": AdaptationWay(True, "parallel", "jisc"),
    "LM-MSLB, jisc": AdaptationWay(True, "state", "jisc"),
}


@dataclass(frozen=True)
class BalancingSetting:
    """A setting of the paper's experiments.

    window    seconds
    rate      tuples a second of each stream, and `late_rate` of B and C from second `change` on
    seconds   length of the input
    balance   second of the decision
    load      work of node 0 over its time with full windows, before the change
    groups, nodes, seed
    """

    window: int = 30
    rate: float = 100.0
    late_rate: float = 5.0
    change: int = 30
    seconds: int = 90
    balance: int = 10
    load: float = 1.5
    groups: int = 100
    nodes: int = 10
    seed: int = 1
    purge: str = "paper"

    @classmethod
    def of(cls, point: Point) -> BalancingSetting:
        """Return the setting of a point."""
        return cls(**{name: point[name] for name in cls.__dataclass_fields__ if name in point})

    def query(self) -> Query:
        """Return the join of the three streams; the first join of the initial plan is that of A and B."""
        streams = [Stream(name, SCHEMA, window=Range(1000 * self.window), time="t") for name in STREAMS]
        return Query(streams, ["A.k = B.k", "B.k = C.k"], select=["A.k"])

    @property
    def owners(self) -> list[int]:
        """The owners of the groups: node 0 has half of the groups, and the other nodes share the rest."""
        half = self.groups // 2
        return [0] * half + [1 + group % (self.nodes - 1) for group in range(self.groups - half)]

    def arrivals(self) -> list[tuple[float, dict[str, pa.RecordBatch]]]:
        """Return the rows by the time of their delivery; the same seed gives the same rows."""
        rng = np.random.default_rng(self.seed)
        edges = [*np.arange(0, self.seconds, TICK).tolist(), float(self.seconds)]
        drawn: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}
        for name in STREAMS:
            late = self.rate if name == "A" else self.late_rate
            change = min(self.change, self.seconds)
            pieces = [_poisson(rng, 0, change, self.rate), _poisson(rng, change, self.seconds, late)]
            times = np.concatenate(pieces)
            drawn[name] = times, rng.integers(0, KEYS, len(times))
        deliveries = []
        for low, high in pairwise(edges):
            batches = {}
            for name, (times, keys) in drawn.items():
                part = slice(*np.searchsorted(times, [1000 * low, 1000 * high]))
                batches[name] = pa.record_batch([pa.array(keys[part]), pa.array(times[part])], schema=SCHEMA)
            deliveries.append((high, batches))
        return deliveries


def _poisson(rng: np.random.Generator, start: float, end: float, rate: float) -> npt.NDArray[np.int64]:
    """Return the moments of a Poisson process between two seconds, whole ms."""
    return np.sort(rng.uniform(1000 * start, 1000 * end, rng.poisson(rate * max(0.0, end - start)))).astype(np.int64)


class Once:
    """A policy that decides once: the fullest node sends groups to the emptiest until all nodes have about the mean."""

    def __init__(self, period: int) -> None:
        self.period = period

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the map for a period."""
        if batch != self.period:
            return partition_map
        return Automatic(FULL, 1, max_moves=partition_map.groups, least_gain=0.001).plan(partition_map, load, batch)


class Optimizer:
    """Local optimization: each node changes its plan by the rates of its own rows."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self.simulation = simulation
        self.first = [("A", "B")] * len(simulation.nodes)
        self.changes: list[tuple[float, int]] = []
        self._seen: deque[npt.NDArray[np.int64]] = deque(maxlen=LM_SECONDS + 1)

    def look(self) -> None:
        """Measure the rates once a second, and change the plans of nodes for which another plan is better."""
        table = self.simulation.groups()
        self._seen.append(np.array(table["joined"].to_pylist(), np.int64))
        if len(self._seen) <= LM_SECONDS:
            return
        came, nodes = (self._seen[-1] - self._seen[0]).clip(0), table["node"].to_numpy()
        for node, first in enumerate(self.first):
            counts = dict(zip(STREAMS, (came[nodes == node].sum(axis=0) + 1).tolist(), strict=True))
            pairs = {pair: counts[pair[0]] * counts[pair[1]] for pair in combinations(STREAMS, 2)}
            best = min(pairs, key=lambda pair: pairs[pair])
            if pairs[best] < LM_GAIN * pairs[first]:
                self.first[node] = best
                self.simulation.transition(node, PLANS[best])
                self.changes.append((self.simulation.time, node))


@cache
def costs() -> tuple[Costs, float]:
    """Return the costs of the engine on this machine, and the median relative error of their predictions."""
    return fitted()


def fitted_rows() -> list[Row]:
    """Return the fitted costs as rows of a figure, in nanoseconds, and their error."""
    unit_costs, error = costs()
    names = ("row", "probe", "match", "entry", "result", "load", "pack")
    rows: list[Row] = [{"figure": f"cost.{name}_ns", "value": 1e9 * getattr(unit_costs, name)} for name in names]
    return [*rows, {"figure": "cost.error", "value": error}]


COST_TITLES = {
    **{
        f"cost.{name}_ns": f"Cost of {what}, ns"
        for name, what in {
            "row": "a row joined",
            "probe": "a probe",
            "match": "a match",
            "entry": "an entry of a stored state",
            "result": "a result",
            "load": "a row loaded",
            "pack": "a row or entry packed",
        }.items()
    },
    "cost.error": "Median relative error of the costs",
}


@cache
def speed(setting: BalancingSetting) -> float:
    """Return the speed of nodes at which node 0 has `load` times its capacity when windows are full."""
    simulation = _simulation(setting, WAYS["No-Adapt"], 1.0)
    full = min(setting.change, 2 * setting.window)
    marks = {}
    for at, batches in setting.arrivals():
        if at > full:
            break
        simulation.push(batches, at=at)
        simulation.run(until=at)
        if at >= full - CALIBRATED:
            work = simulation.groups()["work"].to_pylist()
            marks[at] = sum(group_work for group_work, node in zip(work, setting.owners, strict=True) if node == 0)
    first, last = min(marks), max(marks)
    return (marks[last] - marks[first]) / (last - first) / setting.load


def _simulation(setting: BalancingSetting, way: AdaptationWay, of_speed: float) -> ClusterSimulation:
    balance = None
    if way.how is not None:
        balance = Balance(Once(setting.balance - 1), every=1.0, how=way.how, measure="memory", payback=None)
    nodes = [Node(PLANS["A", "B"], way.strategy, "fixed", of_speed)] * setting.nodes
    return ClusterSimulation(
        setting.query(),
        nodes,
        groups=setting.owners,
        costs=costs()[0],
        balance=balance,
        variants=Variants(purge=setting.purge),
        turn_rows=TURN_ROWS,
    )


class BalancingOutcome(NamedTuple):
    """The outcome of a run: a row for each second, and the moves."""

    seconds: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    lm: list[tuple[float, int]]
    total: int


@cache
def run(setting: BalancingSetting, way: AdaptationWay, of_speed: float) -> BalancingOutcome:
    """Run a setting. The rows end with the input; the moves and the number of results are those of the whole run."""
    simulation = _simulation(setting, way, of_speed)
    optimizer = Optimizer(simulation) if way.lm else None
    rows: list[dict[str, Any]] = []
    for number, (at, batches) in enumerate(setting.arrivals(), 1):
        simulation.push(batches, at=at)
        simulation.run(until=at)
        if number % round(1 / TICK) == 0:
            if optimizer is not None:
                optimizer.look()
            table = simulation.groups()
            kept = {name: sum(table[name].to_pylist()) for name in ("rows", "entries", "waiting")}
            work = sum(table["work"].to_pylist()) / of_speed
            rows.append(
                {
                    "second": round(at),
                    "results": simulation.union.count,
                    **kept,
                    "tuples": sum(kept.values()),
                    "work_s": work,
                }
            )
    simulation.finish()
    simulation.run()
    return BalancingOutcome(
        rows, simulation.history().to_pylist(), [] if optimizer is None else optimizer.changes, simulation.union.count
    )

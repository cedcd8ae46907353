"""The predicted work of a join on Spark, in one round or in hops, and the costs of its parts.

A prediction is a sum of products: counts of rounds, tasks, rows, copies, bytes, probes and matches, over all processes,
and the CPU seconds of each. Batch joins and micro-batches count in the same way and have different costs
(`eddy/spark/batch/choice.py`, `eddy/spark/streaming/driver/forecast.py`), which are fitted to such counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import mul
from typing import NamedTuple

import pyarrow as pa

from eddy.placement.costs import UnitCosts
from eddy.placement.routes import Planner
from eddy.placement.shares import Shares
from eddy.placement.synopses import Synopsis
from eddy.query.query import Query
from eddy.spark.hops.hops import Hops
from eddy.spark.partitioning.operators import grid_place, homes

TEXT_BYTES = 16
"""The assumed bytes of a value without a fixed width."""


class TaskWork(NamedTuple):
    """The work of all tasks of a join.

    rounds            number of rounds, with the cost of planning, scheduling and the shuffle
    tasks             number of tasks, with a cost that does not depend on their rows
    rows              number of rows that are read
    copies, n_bytes   copies of rows and tuples and their bytes; each is partitioned, shuffled and inserted
    probes, matches   probes and matches of rows and tuples in windows
    """

    rounds: float = 0.0
    tasks: float = 0.0
    rows: float = 0.0
    copies: float = 0.0
    n_bytes: float = 0.0
    probes: float = 0.0
    matches: float = 0.0


@dataclass(frozen=True)
class TaskCosts:
    """CPU seconds of each part of `TaskWork`, in its order."""

    c_round: float
    c_task: float
    c_read: float
    c_copy: float
    c_byte: float
    c_p: float
    c_m: float

    def seconds(self, work: TaskWork) -> float:
        """Return the seconds of some work."""
        return sum(map(mul, astuple(self), work))

    def carried(self, tuple_bytes: float) -> float:
        """Return the seconds to partition, shuffle and insert a copy of a row."""
        return self.c_copy + self.c_byte * tuple_bytes


def planner_of(query: Query, nodes: int, costs: TaskCosts) -> Planner:
    """Return the planner of hops over partitions or nodes that begin with the rows of their first keys."""
    usual = UnitCosts(0.0, 1 / costs.c_byte, costs.c_copy, costs.c_p, costs.c_m, nested=False)
    return Planner(query, nodes, homes(query, nodes), usual)


def hops_work(
    planner: Planner, hops: Hops, streams: Sequence[Synopsis], dealt: Iterable[Mapping[int, Iterable[int]]]
) -> TaskWork:
    """Return the predicted work of hops.

    dealt   by stream the classes by which its rows are partitioned, each time that they are read
    """
    rows = copies = n_bytes = probes = matches = 0.0
    for once in dealt:
        for stream, classes in once.items():
            synopsis = streams[stream]
            made = synopsis.rate * sum(1 if c in synopsis.keys else hops.partitions for c in classes)
            rows += synopsis.rate
            copies += made
            n_bytes += made * synopsis.tuple_bytes
    for head, steps in hops.routes.items():
        for k, hop in enumerate(planner.hops(head, steps, streams)):
            if k and hop.moves:
                copies += hop.before.rate
                n_bytes += hop.before.rate * hop.before.tuple_bytes
            probes += hop.before.rate
            matches += hop.after.rate
    return TaskWork(hops.rounds, hops.rounds * hops.partitions, rows, copies, n_bytes, probes, matches)


def grid_work(planner: Planner, shares: Shares, streams: Sequence[Synopsis]) -> TaskWork:
    """Return the predicted work of one round over a grid."""
    rows = copies = n_bytes = probes = matches = 0.0
    for i, synopsis in enumerate(streams):
        made = synopsis.rate * shares.copies(i)
        rows += synopsis.rate
        copies += made
        n_bytes += made * synopsis.tuple_bytes
    place = grid_place(shares)
    for head in range(len(streams)):
        steps = tuple((j, place) for j in planner.order(head, streams))
        for hop in planner.hops(head, steps, streams):
            probes += hop.before.rate
            matches += hop.after.rate
    return TaskWork(1, shares.partitions, rows, copies, n_bytes, probes, matches)


def bytes_of_row(schema: pa.Schema) -> float:
    """Return the bytes of a row, by the types of its columns."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> float:
    try:
        return max(kind.bit_width, 1) / 8
    except ValueError:
        return TEXT_BYTES

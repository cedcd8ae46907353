"""Where a join runs its steps: in one round over a grid, or in several hops, as asked or as measured.

Both are compared by predicted CPU seconds of all processes: a fixed amount for each round and each of its tasks, and
sums over rows read and dealt, bytes shuffled, inserts, probes and matches. The costs of the engine that joins in one
round and of the arrays that join in hops differ. Both were fitted by hand to a few runs with about a million rows on a
machine with two cores: of the tasks without Spark, and of small joins on Spark for the fixed amounts. Streaming joins
have costs of their own (`eddy/spark/streaming/driver/forecast.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eddy.placement.costs import UnitCosts
from eddy.placement.routes import Planner
from eddy.placement.synopses import Synopsis
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.hops.figures import Figures, bytes_of_row, synopses
from eddy.spark.hops.hops import Hops, own_hops
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.operators import grid_place, homes, why_unplaced
from eddy.spark.partitioning.shares import Shares

Placement = Literal["grid", "hops", "auto"] | Mapping[str, Sequence[tuple[str, str]]]
"""`placement` of `eddy.spark.join`."""
KINDS = ("grid", "hops", "auto")


@dataclass(frozen=True)
class TaskCosts:
    """CPU seconds.

    c_round   of a round, whatever its tasks: planning, scheduling, the shuffle
    c_task    of a task, whatever its rows
    c_read    to read a row
    c_deal    to deal a copy of a row or tuple
    c_byte    to shuffle a byte
    c_u, c_p, c_m   of an insert, a probe and a match
    """

    c_round: float
    c_task: float
    c_read: float
    c_deal: float
    c_byte: float
    c_u: float
    c_p: float
    c_m: float


GRID = TaskCosts(0.4, 0.025, 3e-8, 2e-8, 3e-9, 1e-7, 1.1e-7, 5e-8)
HOPS = TaskCosts(0.4, 0.025, 3e-8, 3e-8, 3e-9, 1e-7, 4e-8, 8e-8)


def check_placement(placement: object) -> None:
    """Raise SparkJoinError for a value that is no placement."""
    if not isinstance(placement, Mapping) and placement not in KINDS:
        raise SparkJoinError(
            f'placement={placement!r}: pass "grid", "hops", "auto", or {{head: [(stream, "ship" or "window"), …]}}'
        )


def why_one_round(query: Query, job: Job) -> str | None:
    """Return why a join can only run in one round; None if it can run in hops."""
    if job.options.max_bytes is not None:
        return "max_bytes= bounds engines, and hops have none"
    return why_unplaced(query)


def timed(job: Job) -> bool:
    """Return whether results depend on event times: then every row is a head."""
    return job.arrival == "time"


def asked_hops(job: Job, plan: Mapping[str, Sequence[tuple[str, str]]]) -> Hops:
    """Return the hops of a plan of the user."""
    return own_hops(job.query, plan, job.shares.partitions, timed(job))


@dataclass(frozen=True)
class Predicted:
    """The best hops, and the CPU seconds that the grid and they are predicted to take."""

    hops: Hops
    grid_s: float
    hops_s: float


def predicted(job: Job, figures: Sequence[Figures]) -> Predicted:
    """Return the best hops by the measured figures, and the predicted cost of these and of the grid of the job."""
    query, n = job.query, job.shares.partitions
    planner = planner_of(query, n, HOPS)
    streams = synopses(query, figures, single=not timed(job))
    routes = planner.hop_routes(streams)
    heads = [{head: steps} for head, steps in enumerate(routes)]
    candidates = [dict(enumerate(routes))] if timed(job) else heads
    ways = [Hops(n, planner.starts, own, timed(job)) for own in candidates]
    seconds = [hops_seconds(planner, one, streams, HOPS, map(one.dealt, range(one.rounds))) for one in ways]
    best = min(range(len(ways)), key=seconds.__getitem__)
    every = synopses(query, figures, single=False)
    return Predicted(ways[best], grid_seconds(planner, job.shares, every, GRID), seconds[best])


def may_pay(job: Job, sizes: Mapping[str, float] | None) -> bool:
    """Return whether hops may cost less than the grid, by sizes of the streams in bytes, None = unknown.

    They need a second round, and save no more than what the rows cost in the grid.
    """
    if job.shares.volume() == 1:
        return False
    if sizes is None:
        return True
    work = 0.0
    for i, stream in enumerate(job.query.streams):
        row_bytes = bytes_of_row(stream.schema)
        probes = (len(job.query.streams) - 1) * GRID.c_p
        work += sizes[stream.name] / row_bytes * job.shares.copies(i) * (carried(GRID, row_bytes) + probes)
    return work > HOPS.c_round + job.shares.partitions * HOPS.c_task


def planner_of(query: Query, nodes: int, costs: TaskCosts) -> Planner:
    """Return the planner of hops over partitions or nodes that begin with the rows of their first keys."""
    usual = UnitCosts(0.0, 1 / costs.c_byte, costs.c_u, costs.c_p, costs.c_m, nested=False)
    return Planner(query, nodes, homes(query, nodes), usual)


def hops_seconds(
    planner: Planner,
    hops: Hops,
    streams: Sequence[Synopsis],
    costs: TaskCosts,
    dealt: Iterable[Mapping[int, Iterable[int]]],
) -> float:
    """Return the predicted seconds of hops.

    dealt   by stream the classes by which its rows are dealt, each time that they are read
    """
    work = 0.0
    for once in dealt:
        for stream, classes in once.items():
            own = streams[stream]
            copies = sum(1 if c in own.keys else hops.partitions for c in classes)
            work += own.rate * costs.c_read + own.rate * copies * carried(costs, own.tuple_bytes)
    for head, steps in hops.routes.items():
        for k, hop in enumerate(planner.hops(head, steps, streams)):
            if k and hop.moves:
                work += hop.before.rate * carried(costs, hop.before.tuple_bytes)
            work += hop.before.rate * costs.c_p + hop.after.rate * costs.c_m
    return hops.rounds * (costs.c_round + hops.partitions * costs.c_task) + work


def grid_seconds(planner: Planner, shares: Shares, streams: Sequence[Synopsis], costs: TaskCosts) -> float:
    """Return the predicted seconds of one round over a grid."""
    work = 0.0
    for i, own in enumerate(streams):
        work += own.rate * costs.c_read + own.rate * shares.copies(i) * carried(costs, own.tuple_bytes)
    place = grid_place(shares)
    for head in range(len(streams)):
        steps = tuple((j, place) for j in planner.order(head, streams))
        for hop in planner.hops(head, steps, streams):
            work += hop.before.rate * costs.c_p + hop.after.rate * costs.c_m
    return costs.c_round + shares.partitions * costs.c_task + work


def carried(costs: TaskCosts, tuple_bytes: float) -> float:
    """Return the seconds to deal a copy of a row, to shuffle it, and to insert it where it arrives."""
    return costs.c_deal + costs.c_byte * tuple_bytes + costs.c_u

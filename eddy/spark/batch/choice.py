"""The choice between one round and several hops of a batch join, by predicted CPU seconds of all processes.

The costs of the engine that joins in one round differ from those of the arrays that join in hops. The costs of Spark
are the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eddy.spark.batch.figures import StreamFigures, synopses
from eddy.spark.hops.costs import TaskCosts, TaskWork, bytes_of_row, grid_work, hops_work, planner_of
from eddy.spark.hops.hops import Hops, own_hops
from eddy.spark.partitioning.job import Job

GRID = TaskCosts(0.14, 0.023, 2.4e-8, 2.3e-7, 4.9e-9, 5.1e-8, 1.0e-8)
HOPS = TaskCosts(0.14, 0.023, 2.4e-8, 2.7e-8, 4.9e-9, 4.3e-8, 7.1e-8)
"""Fitted to the CPU seconds of joins in both ways by least squares of relative errors: the 12 points of `eddy bench
placement-spark` in quick size, measured on two cores without other work, and 23 joins of the same chains with 20,000 to
1,000,000 rows of a stream, 4 to 16 partitions and up to 6 further columns, measured while other work ran. The
predictions are off by 14 % in the median. A large grid costs more than predicted: with 8 streams of 400,000 rows and 16
partitions 1.8 times as much."""


def timed(job: Job) -> bool:
    """Return whether results depend on event times; if they do, every row is a head."""
    return job.arrival == "time"


def asked_hops(job: Job, plan: Mapping[str, Sequence[tuple[str, str]]]) -> Hops:
    """Return the hops of a plan of the user."""
    return own_hops(job.query, plan, job.shares.partitions, timed(job))


@dataclass(frozen=True)
class WorkPrediction:
    """The best hops, and the predicted work of the grid and of these hops."""

    hops: Hops
    in_grid: TaskWork
    in_hops: TaskWork

    @property
    def grid_s(self) -> float:
        """The predicted CPU seconds of the grid."""
        return GRID.seconds(self.in_grid)

    @property
    def hops_s(self) -> float:
        """The predicted CPU seconds of the hops."""
        return HOPS.seconds(self.in_hops)


def predicted(job: Job, figures: Sequence[StreamFigures]) -> WorkPrediction:
    """Return the best hops by the measured figures, and the predicted work of these and of the grid of the job."""
    query, n = job.query, job.shares.partitions
    planner = planner_of(query, n, HOPS)
    streams = synopses(query, figures, single=not timed(job))
    routes = planner.hop_routes(streams)
    heads = [{head: steps} for head, steps in enumerate(routes)]
    candidates = [dict(enumerate(routes))] if timed(job) else heads
    ways = [Hops(n, planner.starts, candidate, timed(job)) for candidate in candidates]
    works = [hops_work(planner, way, streams, map(way.dealt, range(way.rounds))) for way in ways]
    best = min(range(len(ways)), key=lambda k: HOPS.seconds(works[k]))
    every = synopses(query, figures, single=False)
    return WorkPrediction(ways[best], grid_work(planner, job.shares, every), works[best])


def may_pay(job: Job, sizes: Mapping[str, float] | None) -> bool:
    """Return whether hops may cost less than the grid, by sizes of the streams in bytes, None = unknown.

    Hops need a second round and send each row at least once. So they save only the additional copies of the grid, each
    of which probes once if few rows find partners.
    """
    if job.shares.volume() == 1:
        return False
    if sizes is None:
        return True
    saved = 0.0
    for i, stream in enumerate(job.query.streams):
        row_bytes, copies = bytes_of_row(stream.schema), job.shares.copies(i) - 1
        saved += sizes[stream.name] / row_bytes * copies * (GRID.carried(row_bytes) + GRID.c_p)
    return saved > HOPS.c_round + job.shares.partitions * HOPS.c_task

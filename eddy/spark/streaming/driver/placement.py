"""Where the join steps of a streaming join run: in one round over the grid of key groups, or in hops over nodes.

The placement may be another one in each micro-batch. All rows are in the log, and key groups and copies of windows are
used only in the state that the newest manifest stands for. So a change needs no protocol: engines or copies that are
missing are made of the log, and the commit of the manifest is the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.hops.hops import Hops, own_hops
from eddy.spark.hops.placing import Placement, check_placement, why_one_round
from eddy.spark.partitioning.job import Job


def check_streaming(query: Query, job: Job, placement: Placement, memory: int | None) -> None:
    """Raise SparkJoinError, or PlanError for a plan, unless a streaming join can be placed in this way."""
    check_placement(placement)
    if placement == "grid":
        return
    why = why_one_round(query, job)
    if why is None and memory is not None:
        why = "memory= bounds engines, and hops have none"
    if why is not None:
        raise SparkJoinError(f'placement={placement!r}: {why}; such a join runs in one round: pass "grid"')
    if not isinstance(placement, Mapping):
        raise SparkJoinError(
            f'placement={placement!r}: a streaming join takes "grid", or {{head: [(stream, "ship" or "window"), …]}}'
        )
    own_hops(job.query, placement, 1, timed=True)


class Placing:
    """The placement of a running join. Thread-safe.

    nodes   how many there are in hops
    """

    def __init__(self, job: Job, nodes: int, placement: Placement, memory: int | None) -> None:
        self._job, self._nodes, self._memory = job, nodes, memory
        self._lock = Lock()
        self._asked = placement
        self.hops: Hops | None = None
        """Of the newest micro-batch that was planned; None in one round."""

    def ask(self, placement: Placement) -> None:
        """Place the steps in another way from the next micro-batch on."""
        check_streaming(self._job.query, self._job, placement, self._memory)
        with self._lock:
            self._asked = placement

    def next(self) -> Hops | None:
        """Return the hops of the next micro-batch, None for one round."""
        with self._lock:
            asked = self._asked
        if isinstance(asked, Mapping):
            self.hops = own_hops(self._job.query, asked, self._nodes, timed=True)
        else:
            self.hops = None
        return self.hops

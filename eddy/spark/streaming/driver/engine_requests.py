"""The requests of a user to the engines of a running job: other plans, and another policy.

A plan is part of the state of a key group: the manifest names the plan from which the group's next engine begins. So a
request changes the states before the next micro-batch, and an engine whose plan differs changes its plan before it
takes rows (`worker/partition_join.py`). A policy goes to each worker with its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from eddy.log import LOG
from eddy.pipeline.by_join import join_of, plans_in
from eddy.query.query import Query
from eddy.routing.policies import Policy, PolicyName
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.manifest import GroupState
from eddy.spark.streaming.worker.tasks import PolicyTask


@dataclass(frozen=True, eq=False)
class _PlanRequest:
    """A plan that a user requested. Requests are distinguished by identity."""

    plan: str


class EngineRequests:
    """The requests of one start of a job. Thread-safe.

    title   of the job, for log records
    """

    def __init__(self, title: str, job: Job) -> None:
        self._title = title
        self.job = job
        """The job, with the policy that was requested last."""
        self._lock = Lock()
        self._plans: dict[int | None, _PlanRequest] = {}
        """Key group, or None for all of them, -> the request that has not taken effect yet."""
        self._planned: dict[int | None, _PlanRequest] = {}
        """The requests in the newest plan of a micro-batch."""
        self._later: str | None = None
        """The plans with which key groups begin that have no rows yet; None = those of the options."""
        self._policy: PolicyTask | None = None

    # Requests

    def transition(self, plan: str, groups: Iterable[int] | None) -> None:
        """Change the plan of key groups with the next batch; see `StreamingJoinQuery.transition`."""
        query = self.job.query
        engine = self.job.options.runtime(query)
        engine.transition(plan)
        wanted = plans_in(query, engine.plan)[join_of(query, plan)]
        requested: list[int | None] = [None] if groups is None else list(groups)
        with self._lock:
            if groups is None:
                requested += list(self._plans)
                self._later = self._merged(self._later, wanted)
            for asked in dict.fromkeys(requested):
                waiting = self._plans.get(asked)
                plan = wanted if waiting is None else _merged(query, waiting.plan, wanted)
                self._plans[asked] = _PlanRequest(plan)

    def set_policy(self, policy: PolicyName | Policy | None) -> None:
        """Change the policy of all engines with the next batch; see `StreamingJoinQuery.set_policy`."""
        from pyspark.serializers import CloudPickleSerializer

        options = replace(self.job.options, policy=policy)
        options.runtime(self.job.query)
        try:
            data = CloudPickleSerializer().dumps(policy)
        except Exception as problem:
            raise SparkJoinError(f"policy {policy!r} cannot be sent to the workers: {problem}") from problem
        with self._lock:
            number = 1 if self._policy is None else self._policy.number + 1
            self._policy = PolicyTask(number, data)
            self.job = replace(self.job, options=options)

    # A batch

    def states(self, groups: Mapping[int, GroupState]) -> dict[int, GroupState]:
        """Return the states of key groups before a batch, with the plans that were requested."""
        with self._lock:
            self._planned = dict(self._plans)
        states = {}
        for group, state in groups.items():
            for asked in (None, group):
                if asked in self._planned:
                    state = replace(state, plan=self._merged(state.plan, self._planned[asked].plan))
            states[group] = state
        return states

    def first_plan(self, group: int) -> str | None:
        """Return the plans of the first engine of a key group, None = those of the options."""
        planned = self._planned.get(group)
        return self._later if planned is None else self._merged(self._later, planned.plan)

    def _merged(self, text: str | None, plan: str) -> str:
        return _merged(self.job.query, self.job.options.plan if text is None else text, plan)

    @property
    def policy(self) -> PolicyTask | None:
        """The policy that replaced that of the options; None = none has replaced it."""
        return self._policy

    def committed(self, groups: Mapping[int, GroupState]) -> None:
        """Take a committed batch; `groups` are its states."""
        with self._lock:
            done = [
                asked
                for asked, request in self._planned.items()
                if (asked is None or asked in groups) and self._plans[asked] is request
            ]
            for asked in done:
                which = "all key groups" if asked is None else f"key group {asked}"
                LOG.info("%s: %s: plan %s, as requested", self._title, which, self._plans.pop(asked).plan)
            self._planned = {}


def _merged(query: Query, text: str | None, plan: str) -> str:
    """Return the plans of all joins of a query in a text, with one of them replaced."""
    return "; ".join((plans_in(query, text) | plans_in(query, plan)).values())

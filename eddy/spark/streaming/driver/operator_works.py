"""Gives the operators above the joins of a micro-batch to Spark's tasks: each part to the worker that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eddy.query.query import Query
from eddy.query.text import difference, query_text
from eddy.spark.errors import StreamingStateError
from eddy.spark.groups.deal import Deal
from eddy.spark.streaming.driver.distribution import places
from eddy.spark.streaming.state.copies import COPY
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest, OperatorState, PartState
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import OperatorTask, PartitionReport

PARTS_PER_TASK = 4
"""Parts of an operator for each task of the first start, so that more tasks share the groups later."""


@dataclass(frozen=True)
class Above:
    """An operator above a join.

    key      names the query in the workers, "" in a join of one query
    name     names the operator in manifests
    query    the query with aggregates or `top`
    staging  directory of the rows; None = rows are only counted
    since    only windows that begin after this time are given; None = all windows
    """

    key: str
    name: str
    query: Query
    staging: Path | None
    since: int | None = None


def operator_tasks(
    above: Sequence[Above], states: Mapping[str, OperatorState], token: str, watermark: int | None, tasks: int
) -> tuple[OperatorTask, ...]:
    """Return the work on operators, without the places of their parts.

    states     by the names of the operators, before the batch
    token      of the states after the batch
    watermark  after the batch
    tasks      number of tasks at the first start
    """
    made = []
    for operator in above:
        state = states.get(operator.name)
        if state is None:
            parts = Deal(operator.query, PARTS_PER_TASK * tasks).parts
            due = frozenset([0] if parts == 1 else [])  # a group without results has a row, if it is the only one
        else:
            parts = len(state.parts)
            due = frozenset(
                number
                for number, part in enumerate(state.parts)
                if part.due is not None and watermark is not None and part.due <= watermark
            )
        before = None if state is None else state.token
        made.append(
            OperatorTask(
                key=operator.key,
                name=operator.name,
                before=before,
                after=token,
                due=due,
                since=operator.since,
                staging=operator.staging,
                places=(0,) * parts,
            )
        )
    return tuple(made)


def placed(tasks: Sequence[OperatorTask], holdings: Sequence[Holding]) -> tuple[OperatorTask, ...]:
    """Return the work with the task of each part: that of the worker that has it, or the one with the fewest parts."""
    made = []
    for task in tasks:
        held = [
            [number for number, token in sorted(holding.parts.get(task.key, {}).items()) if token == task.before]
            for holding in holdings
        ]
        made.append(replace(task, places=tuple(places(len(task.places), held))))
    return tuple(made)


def operators_after(
    above: Sequence[Above],
    tasks: Sequence[OperatorTask],
    states: Mapping[str, OperatorState],
    reports: Sequence[PartitionReport],
) -> dict[str, OperatorState]:
    """Return the states of the operators after a batch; without reports no task ran, and they are as before."""
    after = {}
    for operator, task in zip(above, tasks, strict=True):
        before = states.get(operator.name)
        if before is not None and not reports:
            after[operator.name] = before
            continue
        parts = [PartState()] * len(task.places) if before is None else list(before.parts)
        for report in reports:
            for number, state in report.operators[task.key].parts.items() if task.key in report.operators else ():
                parts[number] = state
        after[operator.name] = OperatorState(task.after, query_text(operator.query), tuple(parts))
    return after


def check_operator(manifest: Manifest, query: Query | None, locations: Locations) -> None:
    """Raise StreamingStateError if the manifest of a join of one query has not the operator of this query, or one of
    its files is lost.
    """
    root, state = locations.root, manifest.operators.get("")
    if query is None:
        if state is not None:
            raise StreamingStateError(f"the checkpoint {root} belongs to a join with aggregates or top; use a new one")
        return
    if state is None:
        raise StreamingStateError(
            f"the checkpoint {root} belongs to a join without aggregates and top, whose earlier results are not"
            " counted; use a new one"
        )
    # Rows of a changelog that have been given are taken back as they were given.
    changelog = query.aggregation is not None and query.aggregation.window is None
    differs = difference(state.query, query, where="the checkpoint", results=changelog)
    if differs is not None:
        raise StreamingStateError(f"these are groups of another query: {differs}; start with a new checkpoint")
    if Deal(query, len(state.parts)).parts != len(state.parts):
        raise StreamingStateError(
            f"the manifest of batch {manifest.batch} does not fit this join: its groups are in {len(state.parts)}"
            " parts; restore it and its copy from a backup, or start with a new checkpoint"
        )
    check_files(state, locations)


def check_files(state: OperatorState, locations: Locations) -> None:
    """Raise StreamingStateError if a file of an operator is lost, and its copy as well."""
    if locations.store is not None:
        return
    for file in sorted({file for part in state.parts for file in part.files}):
        path: Any = locations.log / file
        if not path.exists() and not path.with_name(file + COPY).exists():
            raise StreamingStateError(
                f"{path}, groups of the join, is missing, and so is its copy; restore one of them from a backup, or"
                " start with a new checkpoint"
            )

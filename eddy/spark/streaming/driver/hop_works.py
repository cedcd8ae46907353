"""Gives the work of a micro-batch in hops to Spark's tasks: nodes, rows to distribute, and copies to make from the log.

A node is a partition, and goes to the worker that had the node last. Each task deals the rows that it logged. The
driver spreads rows that Spark carried, and rows of the log for copies that no worker has, over the tasks by their
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eddy.placement.shares import Shares
from eddy.spark.hops.hops import Hops
from eddy.spark.streaming.driver.base_rows import base_rows, once
from eddy.spark.streaming.driver.distribution import places
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import BatchTask, HopTask, LoggedRows, NodeCopy, copy_token

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.batch_plan import BatchPlan
    from eddy.spark.streaming.worker.join_stage import Said


def missing_copies(hops: Hops, tasks: Sequence[int], holdings: Sequence[Holding], held: str | None) -> set[NodeCopy]:
    """Return the copies that their workers do not have in the state `held`; all if it is None."""
    return {
        (node, *copy)
        for node, task in enumerate(tasks)
        for copy in hops.copies
        if held is None or holdings[task].copies.get((node, *copy)) != copy_token(held, hops.partitions)
    }


def hop_works(batch: int, plan: BatchPlan, said: Sequence[Said], forget: bool, shares: Shares) -> list[BatchTask]:
    """Return the work of each Spark task.

    said    reports of the tasks in the meeting
    forget  whether the copies in the workers are ignored
    """
    hops, holdings = plan.hops, [answer.holding for answer in said]
    assert hops is not None
    placed = places(hops.partitions, [holding.partitions for holding in holdings])
    missing = missing_copies(hops, placed, holdings, None if forget else plan.held)
    base: list[list[LoggedRows]] = [[] for _ in said]
    if missing:
        streams = {stream for _, stream, _ in missing}
        load = [0] * len(said)
        for logged in base_rows(plan.groups, plan.layout.tree, shares, streams):
            task = min(range(len(said)), key=load.__getitem__)
            base[task].append(logged)
            load[task] += sum(segment.length for segment in logged.segments)
    dealt = _dealt(plan, said)
    return [
        BatchTask(
            partitions=tuple(node for node, task in enumerate(placed) if task == number),
            tasks=(),
            hand_over=(),
            drop=tuple(holding.engines),
            hops=HopTask(
                batch=batch,
                hops=hops,
                tasks=tuple(placed),
                segments=tuple(dealt[number]),
                base=tuple(base[number]),
                missing=frozenset(missing),
                after=plan.token,
                late_below=plan.late_below,
                forgotten=plan.forgotten,
                watermark=plan.watermarks.engine,
                staging=plan.staging,
                tree=replace(plan.layout.tree, dealt=()),  # hops have no fragments
                steps=plan.steps,
            ),
        )
        for number, holding in enumerate(holdings)
    ]


def _dealt(plan: BatchPlan, said: Sequence[Said]) -> list[list[Segment]]:
    """Return the segments of the batch that each task distributes: its own, or a share of those that Spark carried."""
    dealt = [once(segment for report in answer.logged for segment in report.segments) for answer in said]
    if any(dealt):
        return dealt
    load = [0] * len(said)
    for segment in once(plan.logged.segments):
        task = min(range(len(said)), key=load.__getitem__)
        dealt[task].append(segment)
        load[task] += segment.length
    return dealt

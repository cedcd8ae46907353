"""The plan of a micro-batch: its rows, the tasks that join them, and the states of the key groups after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eddy.placement.shares import Shares
from eddy.spark.hops.hops import Hops
from eddy.spark.streaming.driver.base_rows import base_rows
from eddy.spark.streaming.driver.feed import Taken
from eddy.spark.streaming.driver.key_groups import KeyGroupLayout
from eddy.spark.streaming.driver.operator_works import Above
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.state.compaction import Horizon, prune
from eddy.spark.streaming.state.manifest import GroupState, ManifestLink
from eddy.spark.streaming.worker.log_stage import LogReport
from eddy.spark.streaming.worker.tasks import OperatorTask, PartitionReport, PartitionTask


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a micro-batch.

    logged         rows of the batch, which the workers have logged
    logged_at      time at which the rows were logged, in seconds of `time.perf_counter`
    taken          position up to which each stream has been read with this batch; None if Spark carries the rows
    watermarks     watermarks after the batch
    late_below     event time below which rows of the batch are late, for each stream; None without event times
    layout         key groups of the batch: their splits and their partitions
    groups         key group -> its state before the batch, with the splits that take effect in the batch
    forgotten      watermark of the engines before the batch
    staging        directory of result files; None if results are only counted
    hops           plan of the hops; None if the rows are joined in one round
    held           token of the copies of windows that workers may hold; None if they hold no copies
    token          token of the copies after the batch
    steps          distance between two sampled rows, for each stream; None if no row is sampled
    above          operators above the joins
    operators      work on them, without the places of their parts
    tasks          tasks of the partitions with rows to join (`partition_tasks` makes them of the other fields)
    """

    logged: LogReport
    logged_at: float
    taken: Taken | None
    watermarks: Watermarks
    late_below: tuple[int, ...] | None
    layout: KeyGroupLayout
    groups: dict[int, GroupState]
    forgotten: int | None
    staging: Path | None
    hops: Hops | None
    held: str | None
    token: str
    steps: tuple[int, ...] | None
    above: Sequence[Above]
    operators: tuple[OperatorTask, ...] = ()
    tasks: Sequence[PartitionTask] = ()

    @property
    def idle(self) -> bool:
        """Whether no task has anything to do."""
        return not self.tasks and not any(operator.due for operator in self.operators)

    def live_rows(self, shares: Shares) -> list[int]:
        """Return the number of live rows of each stream before the batch, by the segments of the log. O(segments)."""
        live = [0] * len(self.logged.rows)
        for link in base_rows(self.groups, self.layout.tree, shares, set(range(len(live)))):
            for segment in link.segments:
                live[segment.stream] += segment.rows
        return live

    def groups_after(
        self, batch: int, reports: Sequence[PartitionReport], spans: Sequence[int | None], keep_plans: bool
    ) -> dict[int, GroupState]:
        """Return the states of the key groups after the batch.

        spans       ticks for which the log keeps the rows of each stream; None = for ever
        keep_plans  whether a group's next engine begins with the plan of its last one
        """
        ran = {row["group"]: row for report in reports for row in report.groups}
        groups = dict(self.groups)
        for task in self.tasks:
            for group_task in task.groups:
                chain = groups[group_task.group].chain if group_task.group in groups else ()
                if group_task.segments and not self.layout.tree.is_place(
                    group_task.group
                ):  # the chain of its group has the rows
                    chain = (*chain, ManifestLink(batch, self.late_below, group_task.segments))
                if self.hops is not None:  # No engine ran, so the plan stays for the next one.
                    groups[group_task.group] = GroupState(batch, group_task.after, chain, group_task.plan)
                    continue
                row = ran[group_task.group]
                text = row["plan"] if keep_plans else None
                groups[group_task.group] = GroupState(batch, group_task.after, chain, text, row["due"])
        watermark = self.watermarks.engine
        if watermark is None:
            return groups
        horizon = Horizon(watermark, spans)
        return {group: replace(state, chain=prune(state.chain, horizon)) for group, state in groups.items()}


def cost_of(metrics: Mapping[str, Any]) -> float:
    """Return the cost of a key group in a batch: the seconds to load its engine and to join."""
    return float(metrics["ready_seconds"] + metrics["join_seconds"])

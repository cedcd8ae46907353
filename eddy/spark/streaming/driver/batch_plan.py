"""The plan of a micro-batch: its rows, the work on them, and what the key groups are after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eddy.placement.shares import Shares
from eddy.spark.hops.hops import Hops
from eddy.spark.streaming.driver.base_rows import base_rows
from eddy.spark.streaming.driver.feed import Taken
from eddy.spark.streaming.driver.key_groups import Layout
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.state.compaction import Horizon, prune
from eddy.spark.streaming.state.manifest import GroupState, Link
from eddy.spark.streaming.worker.log_stage import LogReport
from eddy.spark.streaming.worker.tasks import PartitionReport, PartitionTask


@dataclass(frozen=True)
class BatchPlan:
    """The work on the rows of a batch.

    logged         the rows
    logged_at      when they were logged, on the clock `time.perf_counter`
    taken          how far each stream is read after this batch; None if Spark carries the rows
    watermarks     after the batch
    late_below     per stream, the event time below which rows of the batch are late
    layout         of the key groups in the batch
    groups         key group -> its state before the batch, after the splits that take effect with it
    forgotten      watermark of the engines before the batch
    staging        directory of result files; None: results are only counted
    hops           of the batch, None in one round
    held           state of the copies of windows that workers may have; None: they have none
    token          state of the copies after the batch
    steps          per stream, n: one row of n is sampled; None: no row is
    tasks          the work on the partitions that have any, which follows from the rest (`partition_tasks`)
    """

    logged: LogReport
    logged_at: float
    taken: Taken | None
    watermarks: Watermarks
    late_below: tuple[int, ...] | None
    layout: Layout
    groups: dict[int, GroupState]
    forgotten: int | None
    staging: Path | None
    hops: Hops | None
    held: str | None
    token: str
    steps: tuple[int, ...] | None
    tasks: Sequence[PartitionTask] = ()

    def live_rows(self, shares: Shares) -> list[int]:
        """Return per stream the live rows before the batch, as the log has them. O(segments)."""
        live = [0] * len(self.logged.rows)
        for link in base_rows(self.groups, self.layout.tree, shares, set(range(len(live)))):
            for one in link.segments:
                live[one.stream] += one.rows
        return live

    def groups_after(
        self, batch: int, reports: Sequence[PartitionReport], spans: Sequence[int | None], keep_plans: bool
    ) -> dict[int, GroupState]:
        """Return the states of the key groups after the batch.

        spans       per stream, how long the log keeps its rows
        keep_plans  whether an engine that is loaded begins with the plan that it had
        """
        ran = {one["group"]: one for report in reports for one in report.groups}
        groups = dict(self.groups)
        for task in self.tasks:
            for one in task.groups:
                chain = groups[one.group].chain if one.group in groups else ()
                if one.segments and not self.layout.tree.is_place(one.group):  # its rows are in the chain of its group
                    chain = (*chain, Link(batch, self.late_below, one.segments))
                if self.hops is not None:  # no engine ran: the group keeps its plan for the next one
                    groups[one.group] = GroupState(batch, one.after, chain, one.plan)
                    continue
                found = ran[one.group]
                text = found["plan"] if keep_plans else None
                groups[one.group] = GroupState(batch, one.after, chain, text, found["due"])
        watermark = self.watermarks.engine
        if watermark is None:
            return groups
        horizon = Horizon(watermark, spans)
        return {group: replace(state, chain=prune(state.chain, horizon)) for group, state in groups.items()}


def cost_of(metrics: Mapping[str, Any]) -> float:
    """Return the cost of a key group in a batch, from its row of metrics: seconds until its rows were joined."""
    return float(metrics["ready_seconds"] + metrics["join_seconds"])

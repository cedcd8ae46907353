"""Texts that explain a streaming join, before its start and while it runs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.driver.watermarks import Watermarks

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.key_groups import KeyGroups
    from eddy.spark.streaming.driver.settings import Settings
    from eddy.spark.streaming.state.manifest import Manifest

_POLICIES = {
    "slowest": "rows behind the slowest stream are late",
    "per-source": "rows behind their own stream are late",
}


def explain_job(job: Job, settings: Settings, transport: str, progress: str) -> str:
    """Return a text on a job: key groups, tasks, transport, watermarks, and the plan of a new engine.

    transport  the path of the rows, and the reason of the choice
    progress   the state of the checkpoint
    """
    return "\n".join(
        [
            f"key groups: {job.shares.describe()}",
            f"tasks of a micro-batch: {settings.partitions}",
            f"transport: {transport}",
            f"watermark: {_rules(job.query, settings)}",
            f"state: {progress}",
            "a new engine of a key group:",
            job.options.runtime(job.query).explain(),
        ]
    )


def _rules(query: Query, settings: Settings) -> str:
    if not query.graph.timed:
        return "none; the query uses no event times"
    rules = settings.rules
    lateness = ", ".join(f"{s.name} {ticks}" for s, ticks in zip(query.streams, rules.lateness, strict=True))
    idle = "" if rules.idle_after_s is None else f"; a stream without rows holds it back for {rules.idle_after_s:g} s"
    return f"{rules.policy} ({_POLICIES[rules.policy]}); lateness in ticks: {lateness}{idle}"


def explain_progress(manifest: Manifest, key_groups: KeyGroups) -> str:
    """Return a text on the state after a batch: watermark, rows, the key groups of each plan, splits and hot keys."""
    tree, mapped = key_groups.tree, key_groups.partition_map
    engine = Watermarks.from_json(manifest.watermarks).engine
    rows = sum(segment.rows for state in manifest.groups.values() for link in state.chain for segment in link.segments)
    plans: dict[str, list[int]] = defaultdict(list)
    for group, state in sorted(manifest.groups.items()):
        plans[state.plan or "the engine's choice"].append(group)
    idle = [group for group in range(tree.groups) if group not in manifest.groups and not tree.is_place(group)]
    lines = [
        f"batch {manifest.batch} is committed; watermark {'unknown' if engine is None else engine}; the log keeps"
        f" {rows:,} rows"
    ]
    lines += [f"  plan {plan}: key groups {ranges(members)}" for plan, members in sorted(plans.items(), key=_by_groups)]
    lines += [f"  without rows: key groups {ranges(idle)}"] * bool(idle)
    for i, (group, along) in enumerate(tree.splits):
        if along < tree.classes:
            said = f"split along [{key_groups.shares.classes[along]}]; the other half is {tree.cells + i}"
            lines.append(f"  key group {group} was {said}")
    for group, stream, _ in tree.dealt:
        name, fragments = key_groups.shares.streams[stream], ranges(tree.fragments(group))
        lines.append(f"  key group {group} is in fragments {fragments}: rows of {name} are dealt to them")
    lines += [f"  {hot_group}" for hot_group in key_groups.hot]
    for partition in range(mapped.n):
        groups = [group for group, at in enumerate(mapped.partitions) if at == partition and not tree.is_closed(group)]
        lines.append(f"  task {partition}: key groups {ranges(groups) or 'none'}")
    return "\n".join(lines)


def _by_groups(plan: tuple[str, list[int]]) -> tuple[int, str]:
    return -len(plan[1]), plan[0]


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers as text, with runs shortened: "0-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

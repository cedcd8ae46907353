"""Turns the newest manifest into the state from which a job resumes, and checks that the manifest fits the join.

The digest of a manifest detects damage, but not a manifest that someone else wrote. So this module checks all
properties on which the driver and the workers rely: key groups, streams and partitions are in bounds, and plans are
plans of the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eddy.pipeline.by_join import plans_in
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.hops.saved import SavedPlacement, restored
from eddy.spark.partitioning.fragments import why_undealt
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.inputs.offsets import position
from eddy.spark.streaming.state.manifest import Manifest
from jisc.plan.tree import check_connected, parse
from stairs.errors import PlanError
from stairs.storage.json_form import Form, FormError, fields, integer, list_of, mapping, optional, text

_EXTRA = {
    "partitions": integer(1, 1 << 31),
    "load": mapping,
    "options": text,
    "taken": optional(list_of(position)),
    "placement": mapping,
}


@dataclass(frozen=True)
class Resumed:
    """The parts of a manifest as objects, with as many streams and key groups as the join has."""

    watermarks: Watermarks
    tree: SplitTree
    partition_map: PartitionMap
    load: Load
    placement: SavedPlacement


def resume(manifest: Manifest, job: Job, directory: Path, more: Mapping[str, Form] | None = None) -> Resumed:
    """Return the parts of a manifest. Raises StreamingStateError if they do not fit the join. O(segments).

    directory   of the manifest, for messages
    more        further state of this kind of job in the manifest, and its form
    """
    try:
        fields({**_EXTRA, **(more or {})})(manifest.extra, "extra")
        resumed = Resumed(
            Watermarks.from_json(manifest.watermarks),
            SplitTree(job.shares.partitions, len(job.shares.counts), manifest.splits, manifest.dealt),
            PartitionMap(manifest.partition_map, manifest.extra["partitions"]),
            Load.from_json(manifest.extra["load"]),
            restored(job.query, manifest.extra["placement"], "extra.placement"),
        )
        _check(manifest, resumed, job)
    except (FormError, SparkJoinError, PlanError) as problem:
        raise StreamingStateError(
            f"{directory}: the manifest of batch {manifest.batch} does not fit this join: {problem}; restore it and its"
            " copy from a backup, or start with a new checkpoint"
        ) from problem
    return resumed


def _check(manifest: Manifest, resumed: Resumed, job: Job) -> None:
    groups, streams, graph = resumed.tree.groups, len(job.query.streams), job.query.graph
    origin = cache(resumed.tree.origin)

    @cache
    def check_plan(plan: str) -> None:
        if job.query.tree is not None:
            plans_in(job.query, plan)
        else:
            check_connected(parse(plan, graph.names), graph)

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise FormError(otherwise)

    require(
        len(resumed.watermarks.marks) == streams, f"{len(resumed.watermarks.marks)} watermarks for {streams} streams"
    )
    for what, length in (("partitions", resumed.partition_map.groups), ("loads", len(resumed.load.per_group))):
        require(length == groups, f"{length} {what} of key groups, but the join has {groups} key groups")
    for group, stream, _ in resumed.tree.dealt:
        require(stream < streams, f"key group {group} is in fragments by stream {stream}")
        why = why_undealt(job.query, stream)
        require(why is None, f"key group {group} is in fragments, but {why}")
    taken = manifest.extra["taken"]
    require(taken is None or len(taken) == streams, f"positions {taken} of inputs for {streams} streams")
    for group, state in manifest.groups.items():
        require(group < groups, f"key group {group}, but the join has {groups} key groups")
        if resumed.tree.is_place(group):
            fragments = resumed.tree.fragments(resumed.tree.split_group(group))
            require(group in fragments and not state.chain, f"key group {group} is no fragment, or has rows of its own")
        if state.plan is not None:
            check_plan(state.plan)
        for link in state.chain:
            late = link.late_below
            marks = streams if late is None else len(late)
            require(marks == streams, f"key group {group} has {marks} late marks for {streams} streams")
            for segment in link.segments:
                where = f"key group {group} has a segment of group {segment.group}, stream {segment.stream}"
                known = segment.splits <= len(resumed.tree.splits) and segment.group == origin(group, segment.splits)
                require(known and segment.stream < streams, f"{where} in {segment.file!r}")

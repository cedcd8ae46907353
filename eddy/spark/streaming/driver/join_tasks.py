"""Builds the work on the partitions of a micro-batch."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.key_groups import Layout
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.state.manifest import GroupState, Manifest
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.tasks import GroupTask, PartitionTask, VersionTask


def token_after(
    before: str | None, segments: Sequence[Segment], watermark: int | None, versions: Sequence[VersionTask] = ()
) -> str:
    """Return the token of the state after these rows. A replayed batch has other files, so it gets another token."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{before} {watermark}".encode())
    for version in versions:
        digest.update(f" {version.key}".encode())
    for one in segments:
        digest.update(f" {one.file} {one.offset} {one.digest}".encode())
    return digest.hexdigest()


def split_states(groups: Mapping[int, GroupState], tree: SplitTree, made: int) -> dict[int, GroupState]:
    """Return the state of each key group after the splits of a tree beyond the first `made` ones.

    A child has the chain of its parent, in which it finds its rows, and a token of its own: no engine fits it, so it is
    loaded from the log.
    """
    found = dict(groups)
    for i in range(made, len(tree.splits)):
        parent, child = tree.splits[i].group, tree.cells + i
        if parent in found:
            state = found[parent]
            for bit, group in enumerate((parent, child)):
                digest = hashlib.blake2b(f"{state.token} {i} {tree.splits[i].along} {bit}".encode(), digest_size=16)
                found[group] = replace(state, token=digest.hexdigest())
    return found


def rows_by_group(segments: Iterable[Segment], tree: SplitTree) -> dict[int, list[Segment]]:
    """Return the segments of each key group; those that do not follow all splits belong to several."""
    rows: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        for group in tree.descendants(segment.group, segment.splits):
            rows[group].append(segment)
    return rows


def partition_tasks(
    context: JobContext,
    batch: int,
    newest: Manifest | None,
    rows: Mapping[int, list[Segment]],
    groups: Mapping[int, GroupState],
    layout: Layout,
    before: Watermarks,
    after: Watermarks,
    versions: tuple[VersionTask, ...] | None = None,
    steps: tuple[int, ...] | None = None,
) -> list[PartitionTask]:
    """Return one task for each partition with rows, or with rows that waited for the watermark after the batch.

    newest         manifest before the batch, None for the first batch
    rows           key group -> its rows in the batch
    groups         key group -> its state before the batch, after the splits that take effect with it
    layout         of the key groups in the batch
    before, after  watermarks before and after the batch
    versions       of the queries of a hub; None in the join of one query
    steps          per stream, every how manieth row is sampled; None: none is
    """
    # A plan that the engine found stays in use, unless the options of the join have changed since.
    same_options = newest is not None and newest.extra["options"] == context.job.options.text
    by_partition: dict[int, list[GroupTask]] = defaultdict(list)
    waited: dict[int, list[Segment]] = {
        group: []
        for group, state in groups.items()
        if state.due is not None and after.engine is not None and state.due < after.engine
    }
    for group, own in sorted({**waited, **rows}.items()):
        state = groups.get(group)
        token = None if state is None else state.token
        task = GroupTask(
            group=group,
            before=token,
            after=token_after(token, own, after.engine, versions or ()),
            segments=tuple(own),
            plan=state.plan if state is not None and same_options else None,
            by_log=group in layout.by_log,
            watched=group in layout.watched,
        )
        by_partition[layout.partition_map.partitions[group]].append(task)
    return [
        PartitionTask(
            batch=batch,
            partition=partition,
            previous=None if newest is None else newest.batch,
            late_below=before.late_below,
            forgotten=before.engine,
            watermark=after.engine,
            staging=context.sink.staging(batch) if context.sink.writes else None,
            groups=tuple(own),
            tree=layout.tree,
            versions=versions,
            steps=steps,
        )
        for partition, own in sorted(by_partition.items())
    ]

"""The tasks of a micro-batch: one for each partition that has rows to join."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.batch_plan import BatchPlan
from eddy.spark.streaming.state.manifest import GroupState, Manifest
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.tasks import GroupTask, PartitionTask, VersionTask


def token_after(
    before: str | None, segments: Sequence[Segment], watermark: int | None, versions: Sequence[VersionTask] = ()
) -> str:
    """Return the token of a state after further rows. A replayed batch has other files, so its token differs."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{before} {watermark}".encode())
    for version in versions:
        digest.update(f" {version.key}".encode())
    for segment in segments:
        digest.update(f" {segment.file} {segment.offset} {segment.digest}".encode())
    return digest.hexdigest()


def regrouped_states(groups: Mapping[int, GroupState], before: SplitTree, tree: SplitTree) -> dict[int, GroupState]:
    """Return the state of each key group after the changes from one tree to a later one.

    The rows of a child of a split are in the chain of its parent, which the child takes over. The rows of a further
    fragment are in the chain of its group, so the fragment has no chain. Children, fragments and gathered groups get
    new tokens. No engine in memory has such a token, so a task loads the group from the log.
    """
    states = dict(groups)
    # One batch may gather a group, split the group, and divide the group in the same way as before.
    stay = {deal for deal in before.dealt if deal in tree.dealt and not tree.branches(deal.group, len(before.splits))}
    for dealt in set(before.dealt) - stay:
        gathered = [states.pop(group) for group in before.fragments(dealt.group) if group in states]
        if gathered:
            due = min((fragment.due for fragment in gathered if fragment.due is not None), default=None)
            tokens = " ".join(fragment.token for fragment in gathered)
            states[dealt.group] = replace(gathered[0], token=_token(f"{tokens} gathered"), due=due)
    for i in range(len(before.splits), len(tree.splits)):
        (parent, along), child = tree.splits[i], tree.cells + i
        if parent in states and along < tree.classes:
            state = states[parent]
            for bit, group in enumerate((parent, child)):
                states[group] = replace(state, token=_token(f"{state.token} {i} {along} {bit}"))
    for dealt in set(tree.dealt) - stay:
        if dealt.group in states:
            state = states[dealt.group]
            for part, group in enumerate(tree.fragments(dealt.group)):
                token = _token(f"{state.token} dealt {dealt.stream} {dealt.parts} {part}")
                states[group] = replace(state, token=token, chain=() if part else state.chain)
    return states


def _token(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def rows_by_group(segments: Iterable[Segment], tree: SplitTree) -> dict[int, list[Segment]]:
    """Return the segments of each key group. A segment from before a split belongs to all children of the split."""
    rows: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        for group in tree.descendants(segment.group, segment.splits):
            rows[group].append(segment)
    return rows


def partition_tasks(
    batch: int,
    newest: Manifest | None,
    plan: BatchPlan,
    versions: tuple[VersionTask, ...] | None,
    first_plan: Callable[[int], str | None],
) -> list[PartitionTask]:
    """Return a task for each partition with new rows, or with waiting rows that the watermark after the batch makes
    certain. A version that starts may have results of any group.

    newest      manifest before the batch; None for the first batch
    plan        plan of the batch, without tasks
    versions    versions of the queries of a hub; None in a join of one query
    first_plan  returns the plan of the first engine of a key group; None = that of the options
    """
    groups, layout, watermark = plan.groups, plan.layout, plan.watermarks.engine
    rows = rows_by_group(plan.logged.segments, layout.tree)
    by_partition: dict[int, list[GroupTask]] = defaultdict(list)
    all_wait = any(version.wakes and version.start == batch for version in versions or ())
    waited: dict[int, list[Segment]] = {
        group: []
        for group, state in groups.items()
        if all_wait or (state.due is not None and watermark is not None and state.due < watermark)
    }
    for group, segments in sorted({**waited, **rows}.items()):
        state = groups.get(group)
        token = None if state is None else state.token
        task = GroupTask(
            group=group,
            before=token,
            after=token_after(token, segments, watermark, versions or ()),
            segments=tuple(segments),
            plan=first_plan(group) if state is None else state.plan,
            by_log=group in layout.by_log,
            watched=group in layout.watched,
        )
        by_partition[layout.partition_map.partitions[group]].append(task)
    return [
        PartitionTask(
            batch=batch,
            partition=partition,
            previous=None if newest is None else newest.batch,
            late_below=plan.late_below,
            forgotten=plan.forgotten,
            watermark=watermark,
            staging=plan.staging,
            groups=tuple(group_tasks),
            tree=layout.tree,
            versions=versions,
            steps=plan.steps,
        )
        for partition, group_tasks in sorted(by_partition.items())
    ]

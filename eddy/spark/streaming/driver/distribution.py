"""Gives the work of a micro-batch to Spark's tasks: each partition to the worker that has its engines.

Spark runs a task in any of its Python workers. So a partition does not belong to a fixed task: the partition map states
which key groups are joined together, and the tasks report which partitions their workers joined last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eddy.spark.streaming.state.manifest import GroupState
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import BatchTask, GroupTask, PartitionTask


def places(partitions: int, held: Sequence[Sequence[int]]) -> list[int]:
    """Return the task of each partition: the task whose worker had it last, otherwise the least busy task.

    held   by task the partitions that its worker had last

    The numbers of partitions of two tasks differ by at most 1. O(partitions × tasks).
    """
    least, larger = divmod(partitions, len(held))
    placed: dict[int, int] = {}
    count = [0] * len(held)
    for task, here in enumerate(held):
        for partition in here:
            if partition < partitions and partition not in placed and count[task] < least + (larger > 0):
                placed[partition] = task
                count[task] += 1
                larger -= count[task] > least
    for partition in range(partitions):
        if partition not in placed:
            placed[partition] = min(range(len(count)), key=count.__getitem__)
            count[placed[partition]] += 1
    return [placed[partition] for partition in range(partitions)]


def distribute(
    tasks: Sequence[PartitionTask],
    partitions: int,
    holdings: Sequence[Holding],
    groups: Mapping[int, GroupState],
    movable: bool = True,
) -> list[BatchTask]:
    """Return the work of each Spark task.

        tasks     the work on the partitions with work
    holdings  the engines of the worker of each Spark task
    groups    key group -> its state before the batch
    movable   whether engines can move through files

    An engine moves through a file only between workers of one host and scratch directory, and only if its task does
    not demand `by_log`; otherwise its new worker loads the rows from the log.
    """
    placed = places(partitions, [holding.partitions for holding in holdings])
    assigned: list[list[PartitionTask]] = [[] for _ in holdings]
    leaving: dict[int, list[int]] = defaultdict(list)
    left: dict[int, list[int]] = defaultdict(list)
    for task in tasks:
        place = placed[task.partition]
        here = holdings[place]
        joined = []
        for group_task in task.groups:
            holder = (
                None
                if group_task.before is None or here.engines.get(group_task.group) == group_task.before
                else _holder(group_task, holdings)
            )
            if group_task.by_log and holder is not None:
                # If the engine is in a file, no process may use the file when the group moves on.
                left[holder].append(group_task.group)
                joined.append(group_task)
            elif movable and holder is not None and _shares_files(holdings[holder], here):
                leaving[holder].append(group_task.group)
                joined.append(replace(group_task, handed=True))
            else:
                joined.append(group_task)
        # Engines that are already in the worker join first, while the other engines are in transfer.
        assigned[place].append(replace(task, groups=tuple(sorted(joined, key=lambda entry: entry.handed))))
    return [
        BatchTask(
            partitions=tuple(partition for partition, place in enumerate(placed) if place == number),
            tasks=tuple(assigned[number]),
            hand_over=tuple(leaving[number]),
            drop=(*_outdated(holding, groups), *left[number]),
        )
        for number, holding in enumerate(holdings)
    ]


def _shares_files(sender: Holding, receiver: Holding) -> bool:
    return (sender.host, sender.scratch) == (receiver.host, receiver.scratch)


def _outdated(holding: Holding, groups: Mapping[int, GroupState]) -> list[int]:
    return [group for group, token in holding.engines.items() if group not in groups or groups[group].token != token]


def _holder(wanted: GroupTask, holdings: Sequence[Holding]) -> int | None:
    """Return the task whose worker has the wanted engine, None if none has it."""
    return next((k for k, holding in enumerate(holdings) if holding.engines.get(wanted.group) == wanted.before), None)

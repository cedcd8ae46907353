"""Which task joins which partitions: the one whose worker has their engines, as evenly as the numbers allow."""

from __future__ import annotations

import itertools
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given

from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.distribution import distribute, places
from eddy.spark.streaming.state.manifest import GroupState
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import GroupTask, PartitionTask

NOTHING = Holding("here", (), {})


@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 14), max_size=12), min_size=1, max_size=6))
def test_every_partition_has_one_place_and_no_task_too_many(partitions: int, held: list[list[int]]) -> None:
    placed = places(partitions, held)
    assert len(placed) == partitions
    counts = [placed.count(task) for task in range(len(held))]
    assert max(counts) - min(counts) <= 1


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 12))
def test_no_more_partitions_move_than_must(order: list[int], cuts: list[int], partitions: int) -> None:
    """From any placement to any number of tasks, as executors come and go."""
    bounds = [0, *sorted(cuts), 12]
    here = [[p for p in order[a:b] if p < partitions] for a, b in itertools.pairwise(bounds)]
    placed = places(partitions, here)
    least, larger = divmod(partitions, len(here))
    kept = sum(partition in here[place] for partition, place in enumerate(placed))
    larger = min(larger, sum(len(partitions_here) > least for partitions_here in here))
    assert kept == sum(min(len(partitions_here), least) for partitions_here in here) + larger


def test_partitions_follow_their_workers() -> None:
    held = [[3, 1], [], [0]]
    assert places(4, held)[3] == 0
    assert places(4, held)[1] == 0
    assert places(4, held)[0] == 2
    assert places(2, [[1], [0]]) == [1, 0]


def work(group: int, before: str | None = "old") -> GroupTask:
    return GroupTask(group, before, "new", (), None)


def state(token: str) -> GroupState:
    return GroupState(1, token, (), None)


def task(partition: int, *groups: GroupTask) -> PartitionTask:
    return PartitionTask(2, partition, 1, None, None, None, Path("staging"), groups, SplitTree(8, 1))


def test_engines_move_within_a_host_and_not_between_hosts() -> None:
    holdings = [
        Holding("here", (0,), {1: "old", 2: "old", 3: "older", 9: "old"}),
        Holding("here", (1,), {4: "old"}),
        Holding("there", (2,), {5: "old"}),
    ]
    tasks = [task(0, work(4), work(5), work(6, None)), task(1, work(1), work(3)), task(2, work(2))]
    groups = {group: state("old") for group in (1, 2, 3, 4, 5)}
    first, second, third = distribute(tasks, 3, holdings, groups)
    assert [
        (batch_task.partitions, [partition_task.partition for partition_task in batch_task.tasks])
        for batch_task in (first, second, third)
    ] == [
        ((0,), [0]),
        ((1,), [1]),
        ((2,), [2]),
    ]
    # Group 2 goes to another host, and the engine of group 3 is out of date.
    assert (first.hand_over, second.hand_over, third.hand_over) == ((1,), (4,), ())
    assert (first.drop, second.drop, third.drop) == ((3, 9), (), ())
    assert [(group_task.group, group_task.handed) for group_task in first.tasks[0].groups] == [
        (5, False),
        (6, False),
        (4, True),
    ]
    assert [(group_task.group, group_task.handed) for group_task in second.tasks[0].groups] == [(3, False), (1, True)]
    assert [(group_task.group, group_task.handed) for group_task in third.tasks[0].groups] == [(2, False)]


def test_an_engine_that_is_in_its_place_stays_there() -> None:
    holdings = [Holding("here", (0,), {1: "old"}), Holding("here", (1,), {1: "old"})]
    first, second = distribute([task(1, work(1))], 2, holdings, {1: state("old")})
    assert not first.tasks
    assert second.tasks[0].groups == (work(1),)
    assert first.hand_over == second.hand_over == ()


def test_engines_move_through_files_only_where_both_workers_see_them() -> None:
    """Executors of one host may have scratch directories of their own; a worker would wait for a file in vain."""
    for scratch in ("shared", "its own"):
        holdings = [Holding("here", (0,), {1: "old"}, scratch="shared"), Holding("here", (1,), {}, scratch=scratch)]
        first, second = distribute([task(1, work(1))], 2, holdings, {1: state("old")})
        moved = scratch == "shared"
        assert first.hand_over == ((1,) if moved else ())
        assert [group_task.handed for group_task in second.tasks[0].groups] == [moved]

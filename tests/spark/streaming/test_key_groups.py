"""Moves and splits take effect with a batch, once, in any order in which they are asked for."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eddy.placement.shares import Shares
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.fragments import Dealt
from eddy.spark.partitioning.split_tree import GroupSplit, SplitTree
from eddy.spark.streaming.driver.hot_group_rule import GROUPS_FACTOR, HotGroupRule, directions
from eddy.spark.streaming.driver.key_groups import KeyGroupLayout, KeyGroups
from eddy.spark.streaming.driver.move_records import MEASURED_AFTER
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Automatic, Load, Manual, Rebalancer
from eddy.spark.streaming.worker.hot_keys import HotKey
from eddy.spark.streaming.worker.tasks import LIVE

ONE_KEY = Shares(("R", "S"), ("R.k = S.k",), (4,), ((0,), (0,)), (1.0, 1.0))
CHAIN = Shares(("R", "S", "T"), ("R.a = S.a", "S.b = T.b"), (2, 2), ((0,), (0, 1), (1,)), (9.0, 1.0, 1.0))


class CostedKeyGroups:
    """Key groups whose batches cost what a test says."""

    def __init__(
        self,
        by: Rebalancer | None = None,
        partitions: int = 2,
        shares: Shares = ONE_KEY,
        undealt: Sequence[str | None] = (None, None),
    ) -> None:
        tree = SplitTree(shares.partitions, len(shares.counts))
        even = PartitionMap.even(tree.groups, partitions)
        self.groups = KeyGroups("a job", shares, tree, even, Load.none(tree.groups), by or Manual(), undealt)
        self.batch = 0

    def run(self, *costs: float, keys: dict[int, list[HotKey]] | None = None) -> KeyGroupLayout:
        """Run a batch in which these groups have costs."""
        layout = self.groups.layout(self.batch)
        load = layout.load.after(dict(enumerate(costs)))
        ran: dict[int, dict[str, Any]] = {
            group: {
                "partition": layout.partition_map.partitions[group],
                "source": LIVE,
                "received_bytes": 10,
                "ready_seconds": 0.1,
                "stream_rows": [1, 2],
                "keys": (keys or {}).get(group, []) if group in layout.watched else [],
            }
            for group, cost in enumerate(costs)
            if cost
        }
        self.groups.committed(self.batch, layout, load, ran, 0.01)
        self.batch += 1
        return layout

    def ask(self, request: Callable[..., None], *given: Any) -> None:
        """Request a change, which is refused for a group in fragments or a place for one."""
        with contextlib.suppress(SparkJoinError):
            request(*given)


class Pinned:
    """A user's rebalancer that always wants group 0 in partition 1."""

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        return partition_map.with_moves({0: 1})


def moves(layout: KeyGroupLayout) -> list[tuple[int, int, int, str, str]]:
    return [(change.group, change.sender, change.receiver, change.how, change.by) for change in layout.changes]


def test_there_and_back_in_one_step_is_no_move() -> None:
    job = CostedKeyGroups()
    job.groups.move([0, 1], 1)
    job.groups.move(0, 0)
    assert moves(job.run(1, 1, 1, 1)) == [(1, 0, 1, "state", "request")]
    assert moves(job.run(1, 1, 1, 1)) == []
    # A request for the place where a group is has no effect on later moves.
    job.groups.move(2, 1, "jit")
    job.run(1, 1, 1, 1)
    job.groups.move(2, 0)
    assert moves(job.run(1, 1, 1, 1)) == [(2, 1, 0, "state", "request")]


def test_a_request_is_stronger_than_the_rebalancer_for_its_batch() -> None:
    job = CostedKeyGroups(Pinned())
    job.groups.move(0, 0, "jit")
    assert moves(job.run(1, 1, 1, 1)) == []
    assert moves(job.run(1, 1, 1, 1)) == [(0, 0, 1, "state", "rule")]


def test_a_layout_that_is_not_committed_is_planned_again_with_later_requests() -> None:
    job = CostedKeyGroups()
    job.groups.move(0, 1, "jit")
    job.groups.split(3)
    first = job.groups.layout(0)
    assert job.groups.layout(0) == first
    job.groups.move(1, 1)
    job.groups.split(0)
    later = job.run(1, 1, 1, 1)
    assert later.tree.splits == (GroupSplit(3, 0), GroupSplit(0, 0))
    assert {change.group for change in later.changes if change.kind == "move"} == {0, 1}
    assert job.run(1, 1, 1, 1).changes == ()
    assert job.groups.tree == later.tree


def test_a_request_that_comes_during_a_batch_waits_for_the_next() -> None:
    job = CostedKeyGroups()
    job.groups.move(0, 1, "jit")
    layout = job.groups.layout(0)
    job.groups.move(0, 0)
    job.groups.split(0)
    job.groups.committed(0, layout, layout.load, {}, 0.0)
    job.batch = 1
    later = job.run(1, 1, 1, 1)
    assert [(change.group, change.child) for change in later.changes] == [(0, 4), (0, None)]
    assert later.by_log == {0, 4}, "0 has not run since it moved without its engine"
    assert job.run(1, 1, 1, 1).by_log == {4}
    assert job.run(1, 1, 1, 1, 1).by_log == {4}, "it runs for the first time"
    assert job.run(1, 1, 1, 1, 1).by_log == frozenset()


def test_the_child_of_a_split_goes_to_the_emptiest_partition() -> None:
    job = CostedKeyGroups(partitions=3)
    job.run(5, 1, 2, 4)
    job.groups.split(0)
    job.groups.split(0)
    layout = job.run(1, 1, 1, 1)
    assert layout.load.per_group == (1.25, 1, 2, 4, 2.5, 1.25)
    assert layout.partition_map.partitions == (0, 0, 1, 2, 1, 0)
    assert [(change.child, change.receiver, change.by) for change in layout.changes] == [
        (4, 1, "request"),
        (5, 0, "request"),
    ]


def test_gains_are_predicted_and_measured() -> None:
    job = CostedKeyGroups()
    job.run(3, 1, 0, 0)
    job.groups.move(1, 1)
    for _ in range(MEASURED_AFTER + 1):
        job.run(1, 1, 1, 1)
    (gain,) = job.groups.records.history().to_pylist()
    assert (gain["fullness_before"], gain["fullness_predicted"]) == (2.0, 1.5)
    # Now three of four equal groups are in partition 1.
    assert gain["fullness_measured"] == pytest.approx(1.5, abs=0.05)


def test_a_group_without_rows_is_received_when_it_has_some() -> None:
    job = CostedKeyGroups()
    job.groups.move(0, 1)
    job.run(0, 1, 1, 1)
    job.run(0, 1, 1, 1)
    job.run(1, 1, 1, 1)
    said = job.groups.records.messages().to_pylist()
    assert [(message["batch"], message["step"]) for message in said] == [(0, 2), (0, 8), (2, 5), (2, 6), (2, 7)]


@pytest.mark.parametrize(
    ("shares", "group", "says"),
    [
        (ONE_KEY, 4, "key group 4 does not exist; .* from 0 to 3"),
        (ONE_KEY, -1, "key group -1 does not exist"),
        (ONE_KEY, "0", "key group '0': pass its number"),
        (Shares(("R",), (), (), ((),), (1.0,)), 0, "key group 0 cannot be split: the query has no equality"),
    ],
)
def test_a_split_that_cannot_be(shares: Shares, group: Any, says: str) -> None:
    job = CostedKeyGroups(shares=shares, partitions=1)
    with pytest.raises(SparkJoinError, match=says):
        job.groups.split(group)
    assert job.run(1).changes == ()


def test_a_group_splits_so_often_and_no_more() -> None:
    job = CostedKeyGroups()
    for _ in range(16):
        job.groups.split(0)
    with pytest.raises(SparkJoinError, match="key group 0 cannot be split again: it was split 16 times"):
        job.groups.split(0)
    assert len(job.run(1).tree.splits) == 16


# The rule


def test_a_grid_is_split_where_the_fewest_tuples_are_copied() -> None:
    tree = SplitTree(4, 2)
    # R has most rows, and lacks class 1.
    assert directions(tree, CHAIN, 0) == [0, 1]
    assert directions(tree.split(0, 0), CHAIN, 0) == [0, 1]
    level = Shares(CHAIN.streams, CHAIN.classes, CHAIN.counts, CHAIN.has, (1.0, 1.0, 1.0))
    assert directions(tree.split(0, 0), level, 0) == [1, 0]


def many(share: float = 0.01) -> dict[int, list[HotKey]]:
    return {group: [HotKey(0, share, f"R.k = {group}")] for group in range(64)}


def test_a_hot_group_is_split_until_it_fits() -> None:
    """The halves of a group are taken to be equal; when they are measured, the larger half may be split again."""
    job = CostedKeyGroups(Automatic(patience=2), partitions=4)
    share = {0: 0.9}
    for _ in range(80):
        tree = job.groups.tree
        costs = []
        for group in range(tree.groups):
            mine = [branch.depth for branch in tree.branches(group)]
            costs.append(0.9 / 2 ** mine[0] if tree.origin(group, 0) == 0 and mine else share.get(group, 0.03))
        job.run(*costs, keys=many())
    assert job.groups.load.fullness(job.groups.partition_map) <= 1.25
    assert 2 <= len(job.groups.tree.splits) <= 4
    assert not job.groups.hot


def test_a_group_that_swings_is_not_split() -> None:
    job = CostedKeyGroups(Automatic(patience=3))
    for batch in range(100):
        job.run(*((9, 1, 1, 1) if batch % 6 < 3 else (1, 1, 9, 1)), keys=many())
    assert not job.groups.tree.splits


def test_there_is_a_bound_on_groups_and_a_rest_between_splits() -> None:
    job, made = CostedKeyGroups(Automatic(patience=1)), []
    for batch in range(300):
        layout = job.run(*[10] + [0.02] * (job.groups.tree.groups - 1), keys=many())
        made += [batch] * sum(change.child is not None for change in layout.changes)
    assert job.groups.tree.groups == GROUPS_FACTOR * 4 or job.groups.tree.depth(0, 0) == 16
    assert min(later - sooner for sooner, later in itertools.pairwise(made)) >= HotGroupRule().rest


def test_a_hot_key_whose_rows_cannot_be_dealt_is_reported_until_it_cools(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="eddy")
    job = CostedKeyGroups(Automatic(patience=2), undealt=["it has branches", "it has branches"])
    for _ in range(10):
        layout = job.run(9, 1, 1, 1, keys=many(0.9))
    assert not job.groups.tree.splits
    assert [(hot_group.group, hot_group.key) for hot_group in job.groups.hot] == [(0, "R.k = 0")]
    assert job.groups.figures(layout) == {"moved": 0, "split": 0, "fragments": 0, "hot_keys": 1}
    assert "key group 0 has 1.50 times the mean load of a partition, and one key (R.k = 0) has 90% of" in caplog.text
    assert caplog.text.count("no split and no move") == 1
    (refused,) = [change for change in job.groups.records.history().to_pylist() if change["kind"] == "fragment"]
    assert (refused["move"], refused["group"], refused["refused"]) == (None, 0, "it has branches")
    for _ in range(10):
        job.run(1, 1, 1, 1)
    assert job.groups.hot == []
    assert "no key of key group 0 is too frequent any more" in caplog.text


def test_a_hot_key_gets_fragments_until_it_cools(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="eddy")
    job = CostedKeyGroups(Automatic(patience=2), partitions=4)
    for batch in range(60):
        hot = 9 if batch < 30 else 0.3
        dealt = job.groups.tree.dealt
        costs = [hot / 3 if dealt else hot, 1, 1, 1, *[hot / 3 if dealt else 0] * (job.groups.tree.groups - 4)]
        job.run(*costs, keys=many(0.9))
        if batch == 29:
            # S has most rows. The load of the group is three times the mean of a partition.
            assert dealt == (Dealt(0, 1, 3),)
            assert sorted(job.groups.partition_map.partitions[group] for group in (0, 4, 5)) == [0, 1, 2]
            assert job.groups.load.fullness(job.groups.partition_map) < 1.5
    assert job.groups.tree.dealt == ()
    kinds = [(change["kind"], change["child"], change["by"]) for change in job.groups.records.history().to_pylist()]
    assert [kind for kind in kinds if kind[0] != "move"] == [
        ("fragment", 4, "rule"), ("fragment", 5, "rule"), ("gather", 4, "rule"), ("gather", 5, "rule")
    ]  # fmt: skip
    said = [message["kind"] for message in job.groups.records.messages().to_pylist() if message["step"] == 2]
    assert {"FragmentGroup", "GatherFragments"} <= set(said)
    assert "key group 0: fragment 5" in caplog.text
    assert "too frequent any more" not in caplog.text, "it has fragments for that key"
    assert not job.groups.hot


def test_a_request_that_the_rule_was_faster_than_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    job = CostedKeyGroups(Automatic(patience=1))
    while not (layout := job.groups.layout(job.batch)).tree.dealt:
        job.run(9, 1, 1, 1, keys=many(0.9))
    job.groups.fragment(0)
    job.groups.committed(job.batch, layout, layout.load, {}, 0.01)
    job.groups.move(1, 1)
    assert job.run(9, 1, 1, 1).tree == layout.tree
    assert "a request came too late and has no effect: key group 0 is in fragments" in caplog.text
    assert job.run(9, 1, 1, 1).tree == layout.tree


def test_a_key_that_swings_gets_no_fragments() -> None:
    job = CostedKeyGroups(Automatic(patience=3))
    for batch in range(100):
        job.run(*((9, 1, 1, 1) if batch % 6 < 3 else (1, 1, 9, 1)), keys=many(0.9))
    assert not job.groups.tree.splits


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"group": 4}, "key group 4 does not exist"),
        ({"group": 0, "deal": "Q"}, "there is no stream 'Q'; the streams are R, S"),
        ({"group": 0, "deal": "S"}, "key group 0 cannot be divided into fragments by stream 'S': a branch"),
        ({"group": 0, "to": []}, "names no partition"),
        ({"group": 0, "to": [2]}, "partitions are numbered from 0 to 1"),
    ],
)
def test_fragments_that_cannot_be(asked: dict[str, Any], says: str) -> None:
    job = CostedKeyGroups(undealt=[None, "a branch"])
    with pytest.raises(SparkJoinError, match=says):
        job.groups.fragment(**asked)
    with pytest.raises(SparkJoinError, match="key group 0 is not in fragments"):
        job.groups.gather(0)
    assert job.run(1).changes == ()


def test_without_the_rule_hot_keys_are_found_and_nothing_is_split() -> None:
    job = CostedKeyGroups(Manual())
    for _ in range(10):
        job.run(9, 1, 1, 1, keys=many(0.9))
    assert job.groups.hot
    job = CostedKeyGroups(Manual())
    for _ in range(10):
        job.run(9, 1, 1, 1, keys=many())
    assert not job.groups.hot
    assert not job.groups.tree.splits


@pytest.mark.parametrize("seed", range(5))
def test_any_requests_leave_every_group_in_a_partition(seed: int) -> None:
    chance = random.Random(seed)
    job = CostedKeyGroups(Automatic(patience=1), partitions=3)
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            group = chance.randrange(job.groups.tree.groups)
            kind = chance.random()
            if kind < 0.2 and job.groups.tree.depth(group, 0) < 5:
                job.ask(job.groups.split, group)
            elif kind < 0.4:
                job.ask(job.groups.fragment, group, None, chance.choices(range(3), k=chance.randrange(1, 3)))
            elif kind < 0.6:
                job.ask(job.groups.gather, group)
            else:
                job.groups.move(group, chance.randrange(3), chance.choice(["state", "jit"]))
        layout = job.run(*(chance.choice([0.0, 1.0, 10.0]) for _ in range(job.groups.tree.groups)))
        groups = layout.tree.groups
        assert len(layout.partition_map.partitions) == len(layout.load.per_group) == groups
        assert (job.groups.tree, job.groups.partition_map) == (layout.tree, layout.partition_map)

"""The key groups of a job: their splits, their partitions and their load, and the changes that are due.

A change takes effect with a micro-batch, whose manifest names the splits and the partition of each group. It is decided
before any row of the batch is logged, so the rows of a batch follow its splits. A change that no manifest names is lost
with the driver, and the next start decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from eddy.log import LOG
from eddy.query.numbers import whole
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.shares import Shares
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.move_records import Change, How, MoveRecords, check_how
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load, Rebalancer, balanced
from eddy.spark.streaming.driver.splitting import HotGroup, SplitRule, directions


@dataclass(frozen=True)
class _Request:
    """A move that a user asked for. Requests are told apart by identity."""

    to: int
    how: How


@dataclass(frozen=True)
class Layout:
    """The key groups in a micro-batch.

    tree           the splits
    partition_map  the partition of each group
    load           before the batch; a group that is split with the batch counts as two halves
    changes        moves and splits that take effect with the batch
    by_log         groups that are loaded from the log: the halves of those that are split, and those that move without
                   their engines
    watched        groups whose keys are counted
    """

    tree: SplitTree
    partition_map: PartitionMap
    load: Load
    changes: tuple[Change, ...] = ()
    by_log: frozenset[int] = frozenset()
    watched: frozenset[int] = frozenset()


def _number(value: object, what: str) -> int:
    """Return a whole number. Raises SparkJoinError for anything else: a manifest with it could not be read."""
    number = whole(value)
    if number is None:
        raise SparkJoinError(f"{what} {value!r}: pass its number")
    return number


class KeyGroups:
    """The key groups of one job, as of the newest committed batch, and the requests of its user. Thread-safe.

    title   of the job, for log records
    shares  the grid
    """

    def __init__(
        self, title: str, shares: Shares, tree: SplitTree, partition_map: PartitionMap, load: Load, by: Rebalancer
    ) -> None:
        self._title = title
        self.shares = shares
        self._rebalancer = by
        self._rule = SplitRule.beside(by)
        self._lock = Lock()
        self._moves: dict[int, _Request] = {}
        self._splits: list[int] = []
        self._planned: tuple[dict[int, _Request], int] = {}, 0
        """The requests in the newest layout: moves, and how many of the splits."""
        self._by_log: frozenset[int] = frozenset()
        """Groups that were split or moved without their engines, and have not run since."""
        self.records = MoveRecords()
        self.tree = tree
        self.partition_map = partition_map
        self.load = load
        self.hot: list[HotGroup] = []
        """Groups whose load is that of one key."""

    # Requests

    def move(self, groups: int | Iterable[int], to: int, how: How = "state") -> None:
        """Move groups to a partition from the next batch on; see `StreamingJoinQuery.move`."""
        check_how(how)
        own = [_number(one, "key group") for one in (groups if isinstance(groups, Iterable) else [groups])]
        partition = _number(to, "partition")
        with self._lock:
            self.partition_map.with_moves(dict.fromkeys(own, partition))
            self._moves.update({group: _Request(partition, how) for group in own})

    def rebalance(self) -> None:
        """Distribute the groups by their load from the next batch on."""
        with self._lock:
            moves = self.partition_map.moved(balanced(self.partition_map, self.load))
            self._moves.update({one.group: _Request(one.receiver, "state") for one in moves})

    def split(self, group: int) -> None:
        """Split a group from the next batch on; see `StreamingJoinQuery.split`."""
        group = _number(group, "key group")
        with self._lock:
            tree = self.tree
            for one in [*self._splits, group]:
                tree = tree.split(one, self._direction(tree, one))
            self._splits.append(group)

    def _direction(self, tree: SplitTree, group: int) -> int:
        """Return the class along which a group is split. Raises SparkJoinError for a group that cannot be split."""
        if not tree.classes:
            raise SparkJoinError(
                f"key group {group} cannot be split: the query has no equality, so its rows have no key to split by"
            )
        found = directions(tree, self.shares, group) if 0 <= group < tree.groups else []
        return found[0] if found else 0  # the tree refuses the split, and says why

    # A batch

    def layout(self, batch: int) -> Layout:
        """Return the groups in a batch: those of the last one with all changes that are due."""
        with self._lock:
            now = Layout(self.tree, self.partition_map, self.load)
            self._planned = dict(self._moves), len(self._splits)
            for group in self._splits:
                now = self._split(now, group, self._direction(now.tree, group), "request")
            due = self._rule.plan(self.tree, self.shares, self.partition_map, self.load, batch)
            if due is not None and due.group not in self._splits:
                now = self._split(now, due.group, due.along, "rule")
            planned = self._planned_map(now.partition_map, now.load, batch)
            wanted = planned.with_moves({group: one.to for group, one in self._moves.items()})
            moves = []
            for group, sender, receiver in now.partition_map.moved(wanted):
                asked = self._moves.get(group)
                how: How = "state" if asked is None else asked.how
                moves.append(Change(group, sender, receiver, how, "rule" if asked is None else "request"))
            changes = (*now.changes, *moves)
            by_log = {one.group for one in changes if one.how == "jit"}
            by_log.update(one.child for one in changes if one.child is not None)
            return Layout(now.tree, wanted, now.load, changes, self._by_log | by_log, self._rule.watched)

    def _split(self, now: Layout, group: int, along: int, by: str) -> Layout:
        """Split a group; the new child goes to the emptiest partition, as both children are loaded from the log."""
        tree, load, child = now.tree.split(group, along), now.load.with_split(group), now.tree.groups
        sender = now.partition_map.partitions[group]
        mapped = now.partition_map.with_group(sender)
        loads = load.of_partitions(mapped)
        loads[sender] -= load.per_group[child]
        sizes = [now.partition_map.partitions.count(partition) for partition in range(mapped.n)]
        emptiest = min(range(mapped.n), key=lambda partition: (loads[partition], sizes[partition]))
        change = Change(group, sender, emptiest, "jit", by, child)
        return Layout(tree, mapped.with_moves({child: emptiest}), load, (*now.changes, change))

    def _planned_map(self, mapped: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the partition map of the rebalancer."""
        planned = self._rebalancer.plan(mapped, load, batch)
        if (planned.groups, planned.n) != (mapped.groups, mapped.n):
            raise SparkJoinError(
                f"batch {batch}: the rebalancer {type(self._rebalancer).__name__} planned {planned.n} partitions for"
                f" {planned.groups} key groups, but the join has {mapped.n} for {mapped.groups}; have its method"
                " plan return partition_map.with_moves(…)"
            )
        return planned

    def committed(
        self, batch: int, layout: Layout, load: Load, ran: Mapping[int, Mapping[str, Any]], commit_s: float
    ) -> None:
        """Take a committed batch.

        load      after it
        ran       key group that ran -> its row of metrics
        commit_s  seconds of the commit
        """
        with self._lock:
            fullness = (
                self.load.fullness(self.partition_map),
                layout.load.fullness(layout.partition_map),
                load.fullness(layout.partition_map),
            )
            moves, splits = self._planned
            self._moves = {group: one for group, one in self._moves.items() if moves.get(group) is not one}
            del self._splits[:splits]
            self._planned = {}, 0
            self._by_log = layout.by_log - ran.keys()
            self.tree, self.partition_map, self.load = layout.tree, layout.partition_map, load
            for one in layout.changes:
                if one.child is not None:
                    self._rule.split(one.group, batch)
                    LOG.info("%s: batch %d: key group %d is split; %d is new", self._title, batch, one.group, one.child)
            self._rule.saw(self.partition_map, load, {group: one["keys"] for group, one in ran.items() if one["keys"]})
            self._find_hot(batch)
        self.records.committed(batch, layout.changes, ran, fullness, load.batches, commit_s)

    def figures(self, layout: Layout) -> dict[str, int]:
        """Return the figures of a batch: groups that moved, groups that were split, groups that one key overloads."""
        moved = sum(one.child is None for one in layout.changes)
        return {"moved": moved, "split": len(layout.changes) - moved, "hot_keys": len(self.hot)}

    def _find_hot(self, batch: int) -> None:
        before = {(one.group, one.key) for one in self.hot}
        self.hot = self._rule.hot(self.tree, self.shares, self.partition_map, self.load)
        for one in self.hot:
            if (one.group, one.key) not in before:
                LOG.warning("%s: batch %d: %s", self._title, batch, one)
        for group in {group for group, _ in before} - {one.group for one in self.hot}:
            LOG.info("%s: batch %d: no key of key group %d is too frequent any more", self._title, batch, group)

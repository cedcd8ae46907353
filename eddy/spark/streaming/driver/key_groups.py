"""The key groups of a job: their splits and fragments, their partitions and their load, and the changes that are due.

A change takes effect with a micro-batch, whose manifest names the splits and the partition of each group. The driver
decides on a change before any row of the batch is logged, so the segments of a batch have the key groups after its
splits. A change that no manifest names is lost with the driver, and the next start decides anew.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from eddy.log import LOG
from eddy.placement.shares import Shares
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.hot_group_rule import (
    FragmentGroup,
    GatherGroup,
    HotGroup,
    HotGroupRule,
    SplitGroup,
    Wish,
    directions,
)
from eddy.spark.streaming.driver.move_records import How, KeyGroupChange, Kind, MoveRecords, check_how
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load, Rebalancer, balanced
from eddy.streams.numbers import whole
from stairs.nearest import no_stream


@dataclass(frozen=True)
class _Request:
    """A move that a user requested. Requests are distinguished by identity."""

    to: int
    how: How


@dataclass(frozen=True)
class KeyGroupLayout:
    """The key groups in a micro-batch.

    tree           the splits and fragments
    partition_map  the partition of each group
        load           before the batch; groups that a change makes share the load of their group evenly
    changes        moves and other changes that take effect with the batch
    by_log         groups that are loaded from the log: the halves of those that are split, fragments, groups that are
                   gathered, and those that move without their engines
    watched        groups whose keys are counted
    """

    tree: SplitTree
    partition_map: PartitionMap
    load: Load
    changes: tuple[KeyGroupChange, ...] = ()
    by_log: frozenset[int] = frozenset()
    watched: frozenset[int] = frozenset()


def _number(value: object, what: str) -> int:
    """Return a whole number. Raises SparkJoinError for any other value, which no manifest may contain."""
    number = whole(value)
    if number is None:
        raise SparkJoinError(f"{what} {value!r}: pass its number")
    return number


class KeyGroups:
    """The key groups of one job, as of the newest committed batch, and the requests of its user. Thread-safe.

    title        of the job, for log records
    shares       the grid
    why_undealt  per stream, why its rows cannot be dealt to fragments; None if they can
    """

    def __init__(
        self,
        title: str,
        shares: Shares,
        tree: SplitTree,
        partition_map: PartitionMap,
        load: Load,
        by: Rebalancer,
        why_undealt: Sequence[str | None],
    ) -> None:
        self._title = title
        self.shares = shares
        self._rebalancer = by
        self._rule = HotGroupRule.beside(by, why_undealt)
        self._lock = Lock()
        self._moves: dict[int, _Request] = {}
        self._wishes: list[Wish] = []
        self._planned: tuple[dict[int, _Request], int] = {}, 0
        """The requests in the newest layout: moves, and the number of other requests."""
        self._by_log: frozenset[int] = frozenset()
        """Groups that were changed, or moved without their engines, and have not run after that."""
        self.records = MoveRecords()
        self.tree = tree
        self.partition_map = partition_map
        self.load = load
        self.hot: list[HotGroup] = []
        """Groups with most of their load from one key."""

    # Requests

    def numbers(self, groups: int | Iterable[int]) -> list[int]:
        """Return the numbers of groups. Raises SparkJoinError for a group that does not exist."""
        numbers = [_number(number, "key group") for number in (groups if isinstance(groups, Iterable) else [groups])]
        for group in numbers:
            self.partition_map.check_group(group)
        return numbers

    def move(self, groups: int | Iterable[int], to: int, how: How = "state") -> None:
        """Move groups to a partition from the next batch on; see `StreamingJoinQuery.move`."""
        check_how(how)
        numbers, partition = self.numbers(groups), _number(to, "partition")
        with self._lock:
            self.partition_map.with_moves(dict.fromkeys(numbers, partition))
            self._moves.update({group: _Request(partition, how) for group in numbers})

    def rebalance(self) -> None:
        """Distribute the groups by their load from the next batch on."""
        with self._lock:
            moves = self.partition_map.moved(balanced(self.partition_map, self.load))
            self._moves.update({move.group: _Request(move.receiver, "state") for move in moves})

    def split(self, group: int) -> None:
        """Split a group from the next batch on; see `StreamingJoinQuery.split`."""
        self._ask(SplitGroup(_number(group, "key group")))

    def fragment(self, group: int, deal: str | None = None, to: Iterable[int] | None = None) -> None:
        """Divide a group into fragments from the next batch on; see `StreamingJoinQuery.fragment`."""
        names = self.shares.streams
        if deal is not None and deal not in names:
            raise SparkJoinError(f"fragment: {no_stream(deal, names)}")
        undealt = self._rule.why_undealt
        if all(undealt):
            raise SparkJoinError(f"key group {group} cannot be divided into fragments: {undealt[0]}")
        group = _number(group, "key group")
        stream = self._rule.deal(group) if deal is None else names.index(deal)
        if (why := undealt[stream]) is not None:
            raise SparkJoinError(f"key group {group} cannot be divided into fragments by stream {deal!r}: {why}")
        partitions = None if to is None else tuple(_number(partition, "partition") for partition in to)
        if partitions == ():
            raise SparkJoinError("fragment: to=[] names no partition for a further fragment; name one or more")
        self._ask(FragmentGroup(group, stream, 2 if partitions is None else 1 + len(partitions), partitions))

    def gather(self, group: int) -> None:
        """Gather the fragments of a group from the next batch on; see `StreamingJoinQuery.gather`."""
        self._ask(GatherGroup(_number(group, "key group")))

    def _ask(self, wish: Wish) -> None:
        """Take a request. Raises SparkJoinError if the request does not fit the earlier requests."""
        with self._lock:
            self._changed(self._as_asked(), wish, "request")
            self._wishes.append(wish)

    def _as_asked(self) -> KeyGroupLayout:
        """Return the groups of the newest batch with the requested changes.

        The rule may have changed a group after a request came. A request that no longer fits has no effect."""
        now = KeyGroupLayout(self.tree, self.partition_map, self.load)
        for wish in self._wishes:
            try:
                now = self._changed(now, wish, "request")
            except SparkJoinError as problem:
                LOG.warning("%s: a request came too late and has no effect: %s", self._title, problem)
        return now

    def _direction(self, tree: SplitTree, group: int) -> int:
        """Return the class along which a group is split. Raises SparkJoinError for a group that cannot be split."""
        if not tree.classes:
            raise SparkJoinError(
                f"key group {group} cannot be split: the query has no equality, so its rows have no key to split by"
            )
        along = directions(tree, self.shares, group) if 0 <= group < tree.groups else []
        return along[0] if along else 0  # the tree refuses the split with the reason

    # A batch

    def layout(self, batch: int) -> KeyGroupLayout:
        """Return the groups in a batch: those of the last batch with all changes that are due."""
        with self._lock:
            now = self._as_asked()
            self._planned = dict(self._moves), len(self._wishes)
            due = self._rule.plan(self.tree, self.shares, self.partition_map, self.load, batch)
            if due is not None and not self._wishes:
                now = self._changed(now, due, "rule")
            planned = self._planned_map(now.partition_map, now.load, batch)
            wanted = planned.with_moves({group: request.to for group, request in self._moves.items()})
            moves = []
            for group, sender, receiver in now.partition_map.moved(wanted):
                asked = self._moves.get(group)
                how: How = "state" if asked is None else asked.how
                moves.append(
                    KeyGroupChange("move", group, sender, receiver, how, "rule" if asked is None else "request")
                )
            changes = (*now.changes, *moves)
            by_log = {change.group for change in changes if change.how == "jit"}
            by_log.update(change.child for change in changes if change.child is not None and change.kind != "gather")
            return KeyGroupLayout(now.tree, wanted, now.load, changes, self._by_log | by_log, self._rule.watched)

    def _changed(self, now: KeyGroupLayout, wish: Wish, by: str) -> KeyGroupLayout:
        """Return the groups after a split, fragmenting or gathering.

        The new groups are loaded from the log, so they may go to any partition: all new groups except the first go to
        the emptiest partitions."""
        kind: Kind
        group, tree, kind, to = wish.group, now.tree, "split", None
        if isinstance(wish, GatherGroup):
            tree, old, new = tree.gather(group), tree.fragments(group), [group]
            mapped, load = now.partition_map, now.load.regrouped(old, new)
            at = mapped.partitions
            changes = [
                KeyGroupChange("gather", group, at[fragment], at[group], "jit", by, fragment) for fragment in old[1:]
            ]
            return KeyGroupLayout(tree, mapped, load, (*now.changes, *changes))
        if isinstance(wish, SplitGroup):
            along = self._direction(tree, group) if wish.along is None else wish.along
            tree = tree.split(group, along)
            new = [group, tree.groups - 1]
        else:
            tree, kind, to = tree.fragment(group, wish.stream, wish.parts), "fragment", wish.to
            new = tree.fragments(group)
        sender, mapped = now.partition_map.partitions[group], now.partition_map
        for _ in range(tree.groups - mapped.groups):
            mapped = mapped.with_group(sender)
        load = now.load.regrouped([group], new)
        to = self._emptiest(mapped, load, new[1:]) if to is None else to
        changes = [
            KeyGroupChange(kind, group, sender, receiver, "jit", by, child)
            for child, receiver in zip(new[1:], to, strict=True)
        ]
        mapped = mapped.with_moves(dict(zip(new[1:], to, strict=True)))
        return KeyGroupLayout(tree, mapped, load, (*now.changes, *changes))

    def _emptiest(self, mapped: PartitionMap, load: Load, children: Sequence[int]) -> tuple[int, ...]:
        """Return a partition for each group: in turn, the emptiest one without the groups that follow."""
        loads, chosen = load.of_partitions(mapped), []
        sizes = [mapped.partitions.count(partition) for partition in range(mapped.n)]
        for child in children:
            loads[mapped.partitions[child]] -= load.per_group[child]
            sizes[mapped.partitions[child]] -= 1
        for child in children:
            emptiest = min(range(mapped.n), key=lambda partition: (loads[partition], sizes[partition]))
            loads[emptiest] += load.per_group[child]
            sizes[emptiest] += 1
            chosen.append(emptiest)
        return tuple(chosen)

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
        self, batch: int, layout: KeyGroupLayout, load: Load, ran: Mapping[int, Mapping[str, Any]], commit_s: float
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
            moves, wishes = self._planned
            self._moves = {group: request for group, request in self._moves.items() if moves.get(group) is not request}
            del self._wishes[:wishes]
            self._planned = {}, 0
            self._by_log = layout.by_log - ran.keys()
            self.tree, self.partition_map, self.load = layout.tree, layout.partition_map, load
            for change in layout.changes:
                if change.kind != "move":
                    self._rule.changed(change.group, batch)
                    LOG.info(
                        "%s: batch %d: key group %d: %s %d", self._title, batch, change.group, change.kind, change.child
                    )
            self._rule.saw(self.tree, self.partition_map, load, ran)
            refused = self._find_hot(batch)
        self.records.committed(batch, layout.changes, ran, fullness, load.batches, commit_s)
        for hot in refused:
            assert hot.why is not None
            self.records.refused(batch, hot.group, layout.partition_map.partitions[hot.group], hot.why, fullness[2])

    def figures(self, layout: KeyGroupLayout) -> dict[str, int]:
        """Return the figures of a batch: groups that moved, groups that were split, fragments of key groups after it,
        and groups that one key overloads."""
        kinds = Counter(change.kind for change in layout.changes)
        fragments = sum(deal.parts for deal in layout.tree.dealt)
        return {
            "moved": kinds["move"],
            "split": kinds["split"],
            "fragments": fragments,
            "hot_keys": len(self.hot),
        }

    def _find_hot(self, batch: int) -> list[HotGroup]:
        """Find the groups that one key overloads; return the new ones that are not divided into fragments."""
        before = {(hot_group.group, hot_group.key) for hot_group in self.hot}
        self.hot = self._rule.hot(self.tree, self.shares, self.partition_map, self.load)
        new = [hot_group for hot_group in self.hot if (hot_group.group, hot_group.key) not in before]
        for hot_group in new:
            LOG.log(
                logging.INFO if hot_group.why is None else logging.WARNING,
                "%s: batch %d: %s",
                self._title,
                batch,
                hot_group,
            )
        for group in {group for group, _ in before} - {hot_group.group for hot_group in self.hot}:
            if self.tree.deal_of(group) is None:
                LOG.info("%s: batch %d: no key of key group %d is too frequent any more", self._title, batch, group)
        return [hot_group for hot_group in new if hot_group.why is not None]

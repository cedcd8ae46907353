"""The rule that splits key groups with too much load, and divides groups into fragments if a split cannot help.

If a single group has more load than a partition should have, every partition with this group is overloaded. The group
is split by the next bit of the hash of its keys (`eddy/spark/partitioning/split_tree.py`), unless a single key has that
much load: rows with one key stay together under any hash. The group of such a hot key is divided into fragments
(`eddy/spark/partitioning/fragments.py`), as many as bring each of them below the mean, and gathered when its load is
below half of the bound. The share of a key is its share of the rows in a sample of the batch, which is an estimate of
its share of the load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eddy.placement.shares import Shares
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.split_tree import MAX_DEPTH, MAX_SPLITS, SplitTree
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Automatic, Load, Rebalancer
from eddy.spark.streaming.worker.hot_keys import HotKey

GROUPS_FACTOR = 4
"""The rule splits until the number of groups is this multiple of the number of groups of the grid."""
LEAST_LOAD = 0.01
"""Load below which the rule splits no group: each group costs a millisecond or two per batch."""


class SplitGroup(NamedTuple):
    """A request to split a group; along None, the class that copies the fewest tuples."""

    group: int
    along: int | None = None


class FragmentGroup(NamedTuple):
    """A request to divide a group into fragments.

    stream  position of the stream whose rows are dealt
    parts   number of fragments
        to      partitions of the fragments after the first; None = the emptiest ones
    """

    group: int
    stream: int
    parts: int
    to: tuple[int, ...] | None = None


class GatherGroup(NamedTuple):
    """A request to gather the fragments of a group."""

    group: int


Wish = SplitGroup | FragmentGroup | GatherGroup


@dataclass(frozen=True)
class HotGroup:
    """A key group that no split can relieve, because one key has most of its load.

    load   of the group over the mean load of a partition
    share  of the key in the rows of the group
    key    columns and values of the key, as text
        why    why the rule does not divide the group into fragments; None if it will
    """

    group: int
    load: float
    share: float
    key: str
    why: str | None

    def __str__(self) -> str:
        return (
            f"key group {self.group} has {self.load:.2f} times the mean load of a partition, and one key ({self.key})"
            f" has {self.share:.0%} of its rows: no split and no move can divide the load of one key, "
            + ("fragments will" if self.why is None else f"and it is not divided into fragments: {self.why}")
        )


def directions(tree: SplitTree, shares: Shares, group: int) -> list[int]:
    """Return the classes along which a group can be split, by the number of tuples that they copy to both children.

    The classes are in ascending order. Of classes that copy equally many tuples, the class along which the group was
    split less often comes first.
    """

    def cost(along: int) -> tuple[float, int, int]:
        copied = sum(weight for has, weight in zip(shares.has, shares.weights, strict=True) if along not in has)
        return copied, tree.depth(group, along), along

    return sorted((c for c in range(tree.classes) if tree.depth(group, c) < MAX_DEPTH), key=cost)


class HotGroupRule:
    """Splits or fragments a key group that alone had more load than a partition should have for several batches.

    why_undealt  per stream, why its rows cannot be dealt to fragments; None if they can
        threshold    a group has too much load above this multiple of the mean load of a partition
    patience     number of consecutive batches with that load before a split, or with less than half of it before the
                 fragments of a group are gathered
    rest         number of batches after a change before the next one
    splits       whether groups are changed; otherwise hot groups are only found
    """

    def __init__(
        self,
        why_undealt: Sequence[str | None] = (),
        threshold: float = 1.25,
        patience: int = 6,
        *,
        rest: int = 8,
        splits: bool = True,
    ) -> None:
        if not threshold > 1:
            raise SparkJoinError(f"threshold={threshold}: give more than 1, the mean load of a partition")
        for name, value in (("patience", patience), ("rest", rest)):
            if value < 1:
                raise SparkJoinError(f"{name}={value}: give 1 or more")
        self.threshold = threshold
        self.patience = patience
        self.rest = rest
        self.splits = splits
        self.why_undealt = tuple(why_undealt)
        self._deals = tuple(stream for stream, why in enumerate(why_undealt) if why is None)
        self._above: dict[int, int] = {}
        self._below: dict[int, int] = {}
        self._rows: dict[int, Sequence[int]] = {}
        self._keys: dict[int, Sequence[HotKey]] = {}
        self._rests_until = 0

    @classmethod
    def beside(cls, rebalancer: Rebalancer, why_undealt: Sequence[str | None]) -> HotGroupRule:
        """Return the rule for a rebalancer: with `Automatic` the rule splits, with twice the patience of its moves."""
        if isinstance(rebalancer, Automatic):
            return cls(why_undealt, rebalancer.threshold, 2 * rebalancer.patience)
        return cls(why_undealt, splits=False)

    @property
    def watched(self) -> frozenset[int]:
        """Groups whose keys are to be counted in the next batch: those with too much load."""
        return frozenset(self._above)

    def saw(
        self, tree: SplitTree, partition_map: PartitionMap, load: Load, ran: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Take the load after a committed batch, and the metrics of the groups that ran in it.

        The metrics have the most frequent keys of the watched groups.
        """
        bound = self.threshold * sum(load.per_group) / partition_map.n
        now = [
            group
            for group, group_load in enumerate(load.per_group)
            if group_load > bound and group_load >= LEAST_LOAD and tree.deal_of(group) is None
        ]
        self._above = {group: self._above.get(group, 0) + 1 for group in now}
        self._keys = {group: (group in ran and ran[group]["keys"]) or self._keys.get(group, ()) for group in now}
        self._rows.update({group: row["stream_rows"] for group, row in ran.items()})
        cool = [
            deal.group
            for deal in tree.dealt
            if sum(load.per_group[fragment] for fragment in tree.fragments(deal.group)) < bound / 2
        ]
        self._below = {group: self._below.get(group, 0) + 1 for group in cool}

    def plan(self, tree: SplitTree, shares: Shares, partition_map: PartitionMap, load: Load, batch: int) -> Wish | None:
        """Return the change that takes effect with a batch, None for none. O(groups + splits)."""
        if not self.splits or batch < self._rests_until:
            return None
        for group, batches in self._below.items():
            if batches >= self.patience:
                return GatherGroup(group)
        places = sum(tree.is_place(group) for group in range(tree.cells, tree.groups))
        full = tree.groups - places >= GROUPS_FACTOR * tree.cells or len(tree.splits) >= MAX_SPLITS
        for group in self._ripe(load):
            along = [
                direction
                for direction in directions(tree, shares, group)
                if not self._stuck(group, direction, partition_map, load)
            ]
            if along and not full:
                return SplitGroup(group, along[0])
            if not along and self.why_whole(tree, group) is None:
                mean = sum(load.per_group) / partition_map.n
                parts = max(2, min(partition_map.n, math.ceil(load.per_group[group] / mean)))
                return FragmentGroup(group, self.deal(group), min(parts, tree.most_parts(group)))
        return None

    def deal(self, group: int) -> int:
        """Return the stream with most rows of a group in its last batch, of the streams that can be dealt."""
        rows = self._rows.get(group)
        return max(self._deals, key=lambda stream: 0 if rows is None else rows[stream])

    def why_whole(self, tree: SplitTree, group: int) -> str | None:
        """Return why the rule does not divide a group into fragments, None if the rule does."""
        if not self._deals:
            return self.why_undealt[0] if self.why_undealt else "no stream can be dealt"
        if not self.splits:
            return "rebalance is not 'auto'; call fragment(…)"
        if tree.most_parts(group) < 2:
            return f"there are {MAX_SPLITS} splits and fragments"
        rows = self._rows.get(group)
        if rows is not None and not rows[self.deal(group)]:
            return "its rows are of streams that cannot be dealt"
        return None

    def changed(self, group: int, batch: int) -> None:
        """Record that a group was split, fragmented or gathered with a batch."""
        for by_group in (self._above, self._below, self._keys):
            by_group.pop(group, None)
        self._rests_until = batch + self.rest

    def hot(self, tree: SplitTree, shares: Shares, partition_map: PartitionMap, load: Load) -> list[HotGroup]:
        """Return the groups that had too much load for `patience` batches, and that no split can relieve."""
        hot_groups, mean = [], sum(load.per_group) / partition_map.n
        for group in self._ripe(load):
            along = directions(tree, shares, group)
            if along and all(self._stuck(group, direction, partition_map, load) for direction in along):
                key = next(hot_key for hot_key in self._keys[group] if hot_key.along == along[0])
                why = self.why_whole(tree, group)
                hot_groups.append(HotGroup(group, load.per_group[group] / mean, key.share, key.key, why))
        return hot_groups

    def _ripe(self, load: Load) -> Iterable[int]:
        ripe = (group for group, batches in self._above.items() if batches >= self.patience and self._keys[group])
        return sorted(ripe, key=lambda group: (-load.per_group[group], group))

    def _stuck(self, group: int, along: int, partition_map: PartitionMap, load: Load) -> bool:
        """Return whether one key has more load than a partition should have."""
        share = next((hot_key.share for hot_key in self._keys[group] if hot_key.along == along), 1.0)
        return share * load.per_group[group] > self.threshold * sum(load.per_group) / partition_map.n

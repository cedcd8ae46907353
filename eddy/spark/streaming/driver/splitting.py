"""When a key group is split, and when that cannot help.

A group that alone has more load than a partition should have leaves its partition overloaded wherever it moves. It is
split by the next bit of the hash of its keys (`eddy/spark/partitioning/split_tree.py`), unless a single key has that
much load: rows with one key stay together under any hash. Such a hot key is only reported. The share of a key is that
of the rows in a sample of the batch, which stands for its share of the load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.shares import Shares
from eddy.spark.partitioning.split_tree import MAX_DEPTH, MAX_SPLITS, Split, SplitTree
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Automatic, Load, Rebalancer
from eddy.spark.streaming.worker.hot_keys import HotKey

GROUPS_FACTOR = 4
"""The rule splits until there are so many times the groups of the grid."""
LEAST_LOAD = 0.01
"""Load below which the rule splits no group: each group costs a millisecond or two per batch."""


@dataclass(frozen=True)
class HotGroup:
    """A key group that no split can relieve, because one key has most of its load.

    load   of the group over the mean load of a partition
    share  of the key in the rows of the group
    key    columns and values of the key, as text
    """

    group: int
    load: float
    share: float
    key: str

    def __str__(self) -> str:
        return (
            f"key group {self.group} has {self.load:.2f} times the mean load of a partition, and one key ({self.key})"
            f" has {self.share:.0%} of its rows: no split and no move can divide the load of one key"
        )


def directions(tree: SplitTree, shares: Shares, group: int) -> list[int]:
    """Return the classes along which a group can be split, those first that copy the fewest tuples to both children.

    Of classes that copy equally many, the one along which the group was split less often comes first.
    """

    def cost(along: int) -> tuple[float, int, int]:
        copied = sum(weight for has, weight in zip(shares.has, shares.weights, strict=True) if along not in has)
        return copied, tree.depth(group, along), along

    return sorted((c for c in range(tree.classes) if tree.depth(group, c) < MAX_DEPTH), key=cost)


class SplitRule:
    """Splits a key group after it alone was more than a partition should have for several batches.

    threshold  such a load is above this multiple of the mean load of a partition
    patience   number of consecutive batches with that load before a split
    rest       number of batches after a split before the next one
    splits     whether groups are split; otherwise hot groups are only found
    """

    def __init__(self, threshold: float = 1.25, patience: int = 6, *, rest: int = 8, splits: bool = True) -> None:
        if not threshold > 1:
            raise SparkJoinError(f"threshold={threshold}: give more than 1, the mean load of a partition")
        for name, value in (("patience", patience), ("rest", rest)):
            if value < 1:
                raise SparkJoinError(f"{name}={value}: give 1 or more")
        self.threshold = threshold
        self.patience = patience
        self.rest = rest
        self.splits = splits
        self._above: dict[int, int] = {}
        self._keys: dict[int, Sequence[HotKey]] = {}
        self._rests_until = 0

    @classmethod
    def beside(cls, rebalancer: Rebalancer) -> SplitRule:
        """Return the rule beside a rebalancer: it splits beside `Automatic`, which then has twice its time to move."""
        if isinstance(rebalancer, Automatic):
            return cls(rebalancer.threshold, 2 * rebalancer.patience)
        return cls(splits=False)

    @property
    def watched(self) -> frozenset[int]:
        """Groups whose keys are to be counted in the next batch: those with too much load."""
        return frozenset(self._above)

    def saw(self, partition_map: PartitionMap, load: Load, keys: Mapping[int, Sequence[HotKey]]) -> None:
        """Take the load after a committed batch, and the most frequent keys of the groups that were watched in it."""
        bound = self.threshold * sum(load.per_group) / partition_map.n
        now = [group for group, own in enumerate(load.per_group) if own > bound and own >= LEAST_LOAD]
        self._above = {group: self._above.get(group, 0) + 1 for group in now}
        self._keys = {group: keys.get(group, self._keys.get(group, ())) for group in now}

    def plan(
        self, tree: SplitTree, shares: Shares, partition_map: PartitionMap, load: Load, batch: int
    ) -> Split | None:
        """Return the split that takes effect with a batch, None for none. O(groups + splits)."""
        full = tree.groups >= GROUPS_FACTOR * tree.cells or len(tree.splits) >= MAX_SPLITS
        if not self.splits or full or batch < self._rests_until:
            return None
        for group in self._ripe(load):
            for along in directions(tree, shares, group):
                if not self._stuck(group, along, partition_map, load):
                    return Split(group, along)
        return None

    def split(self, group: int, batch: int) -> None:
        """Take note that a group was split with a batch."""
        self._above.pop(group, None)
        self._keys.pop(group, None)
        self._rests_until = batch + self.rest

    def hot(self, tree: SplitTree, shares: Shares, partition_map: PartitionMap, load: Load) -> list[HotGroup]:
        """Return the groups that had too much load for long, and that no split can relieve."""
        found, mean = [], sum(load.per_group) / partition_map.n
        for group in self._ripe(load):
            along = directions(tree, shares, group)
            if along and all(self._stuck(group, one, partition_map, load) for one in along):
                key = next(one for one in self._keys[group] if one.along == along[0])
                found.append(HotGroup(group, load.per_group[group] / mean, key.share, key.key))
        return found

    def _ripe(self, load: Load) -> Iterable[int]:
        ripe = (group for group, batches in self._above.items() if batches >= self.patience and self._keys[group])
        return sorted(ripe, key=lambda group: (-load.per_group[group], group))

    def _stuck(self, group: int, along: int, partition_map: PartitionMap, load: Load) -> bool:
        """Return whether one key has more load than a partition should have."""
        share = next((one.share for one in self._keys[group] if one.along == along), 1.0)
        return share * load.per_group[group] > self.threshold * sum(load.per_group) / partition_map.n

"""The partition of each key group.

Rows belong to key groups: the cells of the grid in `eddy/placement/shares.py`, and the groups that splits make of cells
(`split_tree.py`). Key groups belong to partitions; this assignment changes. A group moves as a whole, with its engine,
windows and plan. There are many more groups than partitions, so that load moves in small pieces. Zhu and Rundensteiner
("Adapting Partitioned Continuous Query Processing in Distributed Systems", sec. 1.1), and Flux before them, split
stateful operators in this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eddy.spark.errors import SparkJoinError


class KeyGroupMove(NamedTuple):
    """A move of a key group from one partition to another."""

    group: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class PartitionMap:
    """A partition for each key group.

    partitions  per key group, its partition, from 0 to n - 1; a partition may have no group
    n           number of partitions
    """

    partitions: tuple[int, ...]
    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SparkJoinError(f"{self.n} partitions: a join needs at least 1")
        if not self.partitions:
            raise SparkJoinError("a partition map needs at least 1 key group, and this one has none")
        for group, partition in enumerate(self.partitions):
            self._check_partition(group, partition)

    @classmethod
    def even(cls, groups: int, n: int) -> PartitionMap:
        """Return the map that gives each partition neighbouring groups, in numbers that differ by at most 1."""
        if n > groups:
            raise SparkJoinError(_too_many(groups, n))
        return cls(tuple(group * n // groups for group in range(groups)), n)

    @property
    def groups(self) -> int:
        """The number of key groups."""
        return len(self.partitions)

    def moved(self, other: PartitionMap) -> list[KeyGroupMove]:
        """Return the moves that turn this map into `other`, ascending by group. O(groups)."""
        if other.groups != self.groups:
            raise SparkJoinError(
                f"a map of {self.groups} key groups cannot become a map of {other.groups} by moves: only a split adds"
                " key groups"
            )
        pairs = zip(self.partitions, other.partitions, strict=True)
        return [
            KeyGroupMove(group, sender, receiver)
            for group, (sender, receiver) in enumerate(pairs)
            if sender != receiver
        ]

    def check_group(self, group: int) -> None:
        """Raise SparkJoinError for a key group that does not exist."""
        if not 0 <= group < self.groups:
            raise SparkJoinError(
                f"key group {group} does not exist; key groups are numbered from 0 to {self.groups - 1}"
            )

    def with_moves(self, moves: Mapping[int, int]) -> PartitionMap:
        """Return the map with some groups moved: `moves` maps groups to partitions."""
        partitions = list(self.partitions)
        for group, partition in moves.items():
            self.check_group(group)
            self._check_partition(group, partition)
            partitions[group] = partition
        return PartitionMap(tuple(partitions), self.n)

    def with_group(self, partition: int) -> PartitionMap:
        """Return the map with one more key group, in a partition."""
        return PartitionMap((*self.partitions, partition), self.n)

    def with_partitions(self, n: int) -> PartitionMap:
        """Return a map with `n` partitions whose numbers of groups differ by at most 1, with the fewest moves.

        Returns this map, even or not, if this map has `n` partitions already. O(groups + n log n).
        """
        if n == self.n:
            return self
        if n < 1:
            raise SparkJoinError(f"{n} partitions: a join needs at least 1")
        if n > self.groups:
            raise SparkJoinError(_too_many(self.groups, n))
        owned: list[list[int]] = [[] for _ in range(max(n, self.n))]
        for group, partition in enumerate(self.partitions):
            owned[partition].append(group)
        # The fullest partitions may keep one group more than the others, which saves moves.
        least, more = divmod(self.groups, n)
        fullest = sorted(range(n), key=lambda partition: -len(owned[partition]))[:more]
        room = [least + (partition in fullest) for partition in range(n)]
        homeless = [group for groups in owned[n:] for group in groups]
        for partition in range(n):
            homeless += owned[partition][room[partition] :]
        open_places = [partition for partition in range(n) for _ in range(room[partition] - len(owned[partition]))]
        placed = dict(zip(sorted(homeless), open_places, strict=True))
        return PartitionMap(tuple(placed.get(group, current) for group, current in enumerate(self.partitions)), n)

    def _check_partition(self, group: int, partition: int) -> None:
        if not 0 <= partition < self.n:
            raise SparkJoinError(
                f"key group {group} cannot be in partition {partition}; partitions are numbered from 0 to {self.n - 1}"
            )


def _too_many(groups: int, n: int) -> str:
    return (
        f"{n} partitions for {groups} key groups: a partition without a group would be idle; use at most {groups}"
        " partitions, or start a new checkpoint with more key groups"
    )

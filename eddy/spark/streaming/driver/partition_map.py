"""Which partition runs which key group.

Rows are dealt to key groups, the cells of the grid in `eddy.spark.partitioning.shares`, and that never changes; groups
are dealt to partitions, and that does. A group moves as a whole: its engine, its windows, its plan. There are many more
groups than partitions, so that load can be moved in small pieces; this is how Zhu and Rundensteiner ("Adapting
Partitioned Continuous Query Processing in Distributed Systems", sec. 1.1) and Flux before them split operators
with state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eddy.spark.errors import SparkJoinError


class Move(NamedTuple):
    """A key group that goes from one partition to another."""

    group: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class PartitionMap:
    """A partition for each key group.

    partitions  per key group, its partition, from 0 to n - 1; a partition may have no group
    n           how many partitions there are
    """

    partitions: tuple[int, ...]
    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SparkJoinError(f"{self.n} partitions: a join needs at least one")
        if not self.partitions:
            raise SparkJoinError("a partition map without key groups; a join has at least one")
        for group, partition in enumerate(self.partitions):
            self._check_partition(group, partition)

    @classmethod
    def even(cls, groups: int, n: int) -> PartitionMap:
        """Return the map that gives each partition a run of neighbouring groups, as many as any other or one more."""
        if n > groups:
            raise SparkJoinError(_too_many(groups, n))
        return cls(tuple(group * n // groups for group in range(groups)), n)

    @property
    def groups(self) -> int:
        """The number of key groups."""
        return len(self.partitions)

    def moved(self, other: PartitionMap) -> list[Move]:
        """Return what has to move, by group ascending, for this map to become `other`. O(groups)."""
        if other.groups != self.groups:
            raise SparkJoinError(
                f"a map of {self.groups} key groups cannot become one of {other.groups}: the number of key groups is"
                " fixed when a job begins"
            )
        pairs = zip(self.partitions, other.partitions, strict=True)
        return [Move(group, sender, receiver) for group, (sender, receiver) in enumerate(pairs) if sender != receiver]

    def with_moves(self, moves: Mapping[int, int]) -> PartitionMap:
        """Return the map with some groups elsewhere: `moves` maps groups to partitions."""
        partitions = list(self.partitions)
        for group, partition in moves.items():
            if not 0 <= group < self.groups:
                raise SparkJoinError(
                    f"there is no key group {group} to move; they are numbered from 0 to {self.groups - 1}"
                )
            self._check_partition(group, partition)
            partitions[group] = partition
        return PartitionMap(tuple(partitions), self.n)

    def with_partitions(self, n: int) -> PartitionMap:
        """Return a map with `n` partitions, each with as many groups as any other or one more, by the fewest moves.

        For the `n` there is now this is the map itself, even or not. O(groups + n log n).
        """
        if n == self.n:
            return self
        if n < 1:
            raise SparkJoinError(f"{n} partitions: a join needs at least one")
        if n > self.groups:
            raise SparkJoinError(_too_many(self.groups, n))
        held: list[list[int]] = [[] for _ in range(max(n, self.n))]
        for group, partition in enumerate(self.partitions):
            held[partition].append(group)
        # The partitions that may keep one more than the others are those with most to lose.
        least, more = divmod(self.groups, n)
        fullest = sorted(range(n), key=lambda partition: -len(held[partition]))[:more]
        room = [least + (partition in fullest) for partition in range(n)]
        homeless = [group for groups in held[n:] for group in groups]
        for partition in range(n):
            homeless += held[partition][room[partition] :]
        open_places = [partition for partition in range(n) for _ in range(room[partition] - len(held[partition]))]
        placed = dict(zip(sorted(homeless), open_places, strict=True))
        return PartitionMap(tuple(placed.get(group, own) for group, own in enumerate(self.partitions)), n)

    def _check_partition(self, group: int, partition: int) -> None:
        if not 0 <= partition < self.n:
            raise SparkJoinError(
                f"key group {group} cannot be in partition {partition}; partitions are numbered from 0 to {self.n - 1}"
            )


def _too_many(groups: int, n: int) -> str:
    return (
        f"{n} partitions for {groups} key groups: a partition without a group has nothing to do; take at most"
        f" {groups} partitions, or begin the job with more key groups"
    )

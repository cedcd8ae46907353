"""Rebalancing: when key groups change partitions, and which groups do.

The choice of groups follows Zhu and Rundensteiner, "Adapting Partitioned Continuous Query Processing in Distributed
Systems", sec. 3.2, steps 1 and 2: the fullest partition sends, the emptiest receives, and the groups that move are
those whose load is close to the excess. This module does not decide how a group moves (the PTLB of the paper, with two
parallel tracks, or its MSLB, with the state).

A move costs the receiver a rebuild of the group's windows. So a move needs a minimal gain, and loads are smoothed over
several batches; otherwise groups would move with every change of the load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.driver.partition_map import PartitionMap
from stairs.storage.json_form import FormError, fields, finite, integer, list_of

_FORM = fields({"per_group": list_of(finite(0)), "weight": finite(0), "batches": integer(0)})


@dataclass(frozen=True)
class Load:
    """Smoothed cost of each key group per batch, in seconds or rows; all values have the same unit.

    per_group  cost by group
    weight     weight of the newest batch, above 0 and at most 1; earlier batches share the rest
    batches    number of batches counted
    """

    per_group: tuple[float, ...]
    weight: float = 0.5
    batches: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise SparkJoinError(f"weight={self.weight}: give a weight above 0 and at most 1")
        _check_loads(dict(enumerate(self.per_group)), len(self.per_group))

    @classmethod
    def none(cls, groups: int, weight: float = 0.5) -> Load:
        """Return the load before the first batch."""
        return cls((0.0,) * groups, weight)

    def after(self, measured: Mapping[int, float]) -> Load:
        """Return the load after a batch with these costs by group; a group that is left out has cost 0.

        A batch without any cost is not counted.
        """
        _check_loads(measured, len(self.per_group))
        if not any(measured.values()):
            return self
        weight = self.weight if self.batches else 1.0
        smoothed = tuple(
            old + weight * (float(measured.get(group, 0.0)) - old) for group, old in enumerate(self.per_group)
        )
        return Load(smoothed, self.weight, self.batches + 1)

    def regrouped(self, old: Sequence[int], new: Sequence[int]) -> Load:
        """Return the load after groups were split, fragmented or gathered; the groups share the load evenly.

        old, new  the groups before and after; numbers in `new` above the existing groups are further groups
        """
        loads = [*self.per_group, *[0.0] * (max(new) + 1 - len(self.per_group))]
        total = sum(loads[group] for group in old)
        for group in old:
            loads[group] = 0.0
        for group in new:
            loads[group] = total / len(new)
        return Load(tuple(loads), self.weight, self.batches)

    def of_partitions(self, partition_map: PartitionMap) -> list[float]:
        """Return the load of each partition. O(groups)."""
        if partition_map.groups != len(self.per_group):
            raise SparkJoinError(
                f"the load of {len(self.per_group)} key groups does not fit a map of {partition_map.groups} key groups"
            )
        loads = [0.0] * partition_map.n
        for load, partition in zip(self.per_group, partition_map.partitions, strict=True):
            loads[partition] += load
        return loads

    def fullness(self, partition_map: PartitionMap) -> float:
        """Return the load of the fullest partition over the mean: 1.0 if all are equal, or no load is known."""
        loads = self.of_partitions(partition_map)
        return max(loads) * len(loads) / sum(loads) if any(loads) else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the load as JSON objects."""
        return {"per_group": list(self.per_group), "weight": self.weight, "batches": self.batches}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Load:
        """Return the load that `to_json` returned. Raises SparkJoinError for any other value."""
        try:
            _FORM(data, "load")
        except FormError as problem:
            raise SparkJoinError(
                f"not a load of key groups: {problem}; the file that holds it is damaged or of another version"
            ) from problem
        return cls(tuple(data["per_group"]), data["weight"], data["batches"])


def _check_loads(loads: Mapping[int, float], groups: int) -> None:
    for group, load in loads.items():
        if not 0 <= group < groups:
            raise SparkJoinError(f"a load for key group {group}; key groups are numbered from 0 to {groups - 1}")
        if not 0 <= load < math.inf:
            raise SparkJoinError(f"key group {group}: its load is {load}; loads must be finite and not negative")


class Rebalancer(Protocol):
    """Decides before each batch which partition runs each key group. Pass an object with this method to `join`.

    class Pinned:
        def plan(self, partition_map, load, batch):
            return partition_map.with_moves({0: 0})  # key group 0 always runs in partition 0
    """

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the map for `batch`; return `partition_map` itself if nothing moves.

        `partition_map` and `load` describe the last committed batch. A batch that failed is planned again.
        """
        ...


class Manual:
    """Moves groups on request, at the next batch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: dict[int, int] = {}
        self._seen: PartitionMap | None = None

    def move(self, moves: Mapping[int, int]) -> None:
        """Request moves, {group: partition}; a later request for a group replaces an earlier one.

        Raises SparkJoinError for a group or partition that does not exist. Before the first batch is planned, the first
        `plan` raises it instead.
        """
        with self._lock:
            if self._seen is not None:
                self._seen.with_moves(moves)
            self._asked.update(moves)

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the map with all requested moves. Requests stay until a committed map contains them."""
        with self._lock:
            self._seen = partition_map
            wanted = partition_map.with_moves(self._asked)
            if wanted == partition_map:
                self._asked.clear()
                return partition_map
            return wanted


class Automatic:
    """Moves a few groups after one partition was overloaded for several batches.

    threshold   a partition is overloaded above this multiple of the mean load
    patience    number of consecutive overloaded batches before a move
    max_moves   maximal number of groups that move at a time
    least_gain  a move must remove at least this share of its sender's load above the mean
    rest        number of batches for which a group stays after a move; doubles with each further move soon after

    `rest` bounds the number of moves if the load oscillates or changes with the moves: a group moves at most once in
    `rest` batches, and a group that always moves as soon as it may moves at most log2(batches / rest) + 2 times.
    """

    def __init__(
        self,
        threshold: float = 1.25,
        patience: int = 3,
        max_moves: int = 8,
        *,
        least_gain: float = 0.05,
        rest: int = 16,
    ) -> None:
        if not threshold > 1:
            raise SparkJoinError(
                f"threshold={threshold}: give more than 1, because the fullest partition has at least the mean load"
            )
        for name, value in (("patience", patience), ("max_moves", max_moves), ("rest", rest)):
            if value < 1:
                raise SparkJoinError(f"{name}={value}: give 1 or more")
        if not 0 < least_gain < 1:
            raise SparkJoinError(f"least_gain={least_gain}: give a share between 0 and 1")
        self.threshold = threshold
        self.patience = patience
        self.max_moves = max_moves
        self.least_gain = least_gain
        self.rest = rest
        self._above = 0
        self._batch: int | None = None
        self._given: PartitionMap | None = None
        self._answer: PartitionMap | None = None
        self._moved_in: dict[int, int] = {}
        self._rests: dict[int, int] = {}

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the map for `batch`. O(groups) if nothing moves, else O(max_moves * groups)."""
        if batch == self._batch and partition_map == self._given and self._answer is not None:
            return self._answer
        self._batch, self._given = batch, partition_map
        self._above = self._above + 1 if load.fullness(partition_map) > self.threshold else 0
        self._answer = partition_map
        if self._above >= self.patience:
            moves = self._moves(partition_map, load, batch)
            if moves:
                self._above = 0
                self._remember(moves, batch)
                self._answer = partition_map.with_moves(moves)
        return self._answer

    def _moves(self, partition_map: PartitionMap, load: Load, batch: int) -> dict[int, int]:
        loads = load.of_partitions(partition_map)
        mean = sum(loads) / len(loads)
        bound = self.threshold * mean
        free = [
            group for group, group_load in enumerate(load.per_group) if group_load > 0 and self._rested(group, batch)
        ]
        moves: dict[int, int] = {}
        while len(moves) < self.max_moves:
            sender, receiver = loads.index(max(loads)), loads.index(min(loads))
            if loads[sender] <= bound:
                break
            choice = self._choice(
                {group: load.per_group[group] for group in free if partition_map.partitions[group] == sender},
                loads[sender],
                loads[receiver],
                mean,
            )
            if choice is None:
                break
            free.remove(choice)
            moves[choice] = receiver
            loads[sender] -= load.per_group[choice]
            loads[receiver] += load.per_group[choice]
        return moves

    def _choice(self, groups: Mapping[int, float], sender: float, receiver: float, mean: float) -> int | None:
        """Return the group to move from a partition with load `sender` to one with load `receiver`; None for none."""
        bound = self.threshold * mean

        def fullest(group: int) -> float:
            return max(sender - groups[group], receiver + groups[group])

        worth = [group for group in groups if sender - fullest(group) >= self.least_gain * (sender - mean)]
        if not worth:
            return None
        best = min(worth, key=lambda group: (fullest(group), group))
        if fullest(best) <= bound:
            return best  # one move is enough
        fitting = [group for group in worth if receiver + groups[group] <= bound]
        # If a single group exceeds the bound, nothing fits: take the move with the least maximal load.
        return max(fitting, key=lambda group: (groups[group], -group)) if fitting else best

    def _rested(self, group: int, batch: int) -> bool:
        return group not in self._moved_in or batch - self._moved_in[group] >= self._rests[group]

    def _remember(self, moves: Mapping[int, int], batch: int) -> None:
        for group in moves:
            soon = group in self._moved_in and batch - self._moved_in[group] <= 4 * self._rests[group]
            self._rests[group] = 2 * self._rests[group] if soon else self.rest
            self._moved_in[group] = batch


def balanced(partition_map: PartitionMap, load: Load) -> PartitionMap:
    """Return a map with balanced loads by a greedy choice: largest group first, to the emptiest partition.

    The fullest partition has at most 4/3 - 1/(3n) times its load in the best map (Graham, "Bounds on multiprocessing
    timing anomalies", 1969). The numbering of the partitions then keeps groups in their partitions if possible; groups
    without load always stay. Returns `partition_map` itself if its fullest partition would not get emptier.
    O(groups * n).
    """
    now = load.of_partitions(partition_map)
    bins: list[list[int]] = [[] for _ in range(partition_map.n)]
    loads = [0.0] * partition_map.n
    for group in sorted(range(partition_map.groups), key=lambda group: -load.per_group[group]):
        if load.per_group[group]:
            emptiest = loads.index(min(loads))
            bins[emptiest].append(group)
            loads[emptiest] += load.per_group[group]
    if max(loads) >= max(now) * (1 - 1e-9):  # sums of the same loads in different orders differ by rounding
        return partition_map
    return partition_map.with_moves(
        {group: name for name, groups in zip(_names(bins, partition_map, load), bins, strict=True) for group in groups}
    )


def _names(bins: Sequence[Sequence[int]], partition_map: PartitionMap, load: Load) -> list[int]:
    """Return a partition for each bin; the bins that share the most load with a partition choose first."""
    shared: dict[tuple[int, int], float] = {}
    for number, groups in enumerate(bins):
        for group in groups:
            at = number, partition_map.partitions[group]
            shared[at] = shared.get(at, 0.0) + load.per_group[group]
    names: dict[int, int] = {}
    for number, partition in sorted(shared, key=lambda at: (-shared[at], at)):
        if number not in names and partition not in names.values():
            names[number] = partition
    left = (partition for partition in range(partition_map.n) if partition not in names.values())
    return [names[number] if number in names else next(left) for number in range(len(bins))]

"""Balancing: measures the load of groups, asks a policy, and makes the moves whose gain exceeds their cost.

The policies are those of streaming jobs on Spark (`eddy.spark.streaming.driver.rebalancing`), which need no Spark. A
policy smooths loads over periods and waits until a node was overloaded for several periods. So a lasting change of the
load triggers moves, and a short one does not. The simulation also compares a move with its cost: a move is made only if
it saves the fullest node, over `payback` seconds, more work than the move takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.simulated.cluster.hot_keys import HotKeys
from bench.simulated.cluster.moves import checked_how
from bench.simulated.cluster.work import Costs, WorkCounts
from eddy.errors import InputError
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Automatic, Load, Rebalancer


@dataclass
class Balance:
    """The way in which a simulation balances.

    policy   decides which group runs where; `Automatic` by default
    every    seconds between two decisions
    how      protocol of the moves: "parallel", "state" or "jit"
    measure  load of a group: "time", seconds of work per second, work that waits included; or "memory", rows
             in windows and queues, and entries of stored states
    weight   weight of the newest period in the smoothed load
    payback  seconds within which the gain of a move must exceed its cost; None = every planned move is made
    hot      a key with more than this multiple of the mean load of a node gets fragments; `math.inf` = no key does

    Loads in time are seconds of a machine of speed 1.
    """

    policy: Rebalancer = field(default_factory=Automatic)
    every: float = 1.0
    how: str = "jit"
    measure: str = "time"
    weight: float = 0.5
    payback: float | None = 60.0
    hot: float = 1.25

    def __post_init__(self) -> None:
        checked_how(self.how)
        if self.measure not in ("time", "memory"):
            raise InputError(f"measure={self.measure!r}: loads are measured in 'time' or in 'memory'")
        if not self.every > 0 or (self.payback is not None and not self.payback > 0):
            raise InputError(f"every={self.every}, payback={self.payback}: give seconds above 0")
        if not self.hot > 1:
            raise InputError(f"hot={self.hot}: give more than 1, the mean load of a node")


class PlannedMove(NamedTuple):
    """A move whose gain exceeds its cost.

    gain   load that the sender loses, in the unit of the loads
    cost   seconds of work of the move itself, at speed 1
    """

    groups: tuple[int, ...]
    sender: int
    receiver: int
    gain: float
    cost: float


class GroupMemory(NamedTuple):
    """The memory of a group: rows in its windows, entries of stored states."""

    rows: int
    entries: int


class Balancer:
    """The decisions of one simulation."""

    def __init__(self, balance: Balance, owners: list[int], nodes: int, costs: Costs) -> None:
        self.balance, self.costs = balance, costs
        self.load = Load.none(len(owners), balance.weight)
        self.period = 0
        self.hot_keys = HotKeys(balance.hot)
        self._nodes = nodes

    def plan(
        self, owners: list[int], measured: Mapping[int, float], states: Mapping[int, GroupMemory], busy: frozenset[int]
    ) -> list[PlannedMove]:
        """Return the moves to make after a period.

        owners     per group its node, -1 = the group has ended
        measured   load of the groups in the period
        states     memory of each group
        busy       moving groups, which are not moved again
        """
        known = [*self.load.per_group, *[0.0] * (len(owners) - len(self.load.per_group))]
        live = tuple(0.0 if node < 0 else load for load, node in zip(known, owners, strict=True))
        self.load = Load(live, self.load.weight, self.load.batches).after(measured)
        now = PartitionMap(tuple(max(node, 0) for node in owners), self._nodes)
        planned = self.balance.policy.plan(now, self.load, self.period)
        self.period += 1
        pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        for move in now.moved(planned):
            if move.group not in busy:
                pairs[move.sender, move.receiver].append(move.group)
        made = []
        for (sender, receiver), groups in sorted(pairs.items()):
            gain = sum(self.load.per_group[group] for group in groups)
            cost = sum(self._cost(states[group]) for group in groups)
            if self._pays(now, groups, receiver, cost):
                made.append(PlannedMove(tuple(groups), sender, receiver, gain, cost))
        return made

    def _pays(self, now: PartitionMap, groups: list[int], receiver: int, cost: float) -> bool:
        payback = self.balance.payback
        if payback is None or self.balance.measure == "memory":
            return True
        loads = self.load.of_partitions(now)
        after = self.load.of_partitions(now.with_moves(dict.fromkeys(groups, receiver)))
        return (max(loads) - max(after)) * payback > cost

    def _cost(self, state: GroupMemory) -> float:
        """Return the predicted seconds of work of moving a group."""
        rows = WorkCounts(packed=state.rows, loaded=state.rows)
        if self.balance.how == "state":
            rows += WorkCounts(packed=state.entries, entries=state.entries)
        elif self.balance.how == "parallel":
            # Both sides join the rows of one window, and the sender also joins the new rows of a second window.
            rows = WorkCounts(rows=2 * state.rows, entries=2 * state.entries)
        return self.costs.seconds(rows)


__all__ = ["Automatic", "Balance", "Balancer", "GroupMemory", "PlannedMove"]

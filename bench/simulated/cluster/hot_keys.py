"""The rule for hot keys: when a key gets fragments, and when its fragments are gathered.

The load of a key is its share of the rows of its group, times the load of the group, plus the load of its fragments. If
a key alone has more than `hot` times the mean load of a node, every node with its group is overloaded. Such a key gets
enough fragments to bring the load of each fragment below the mean, at the emptiest nodes. The fragments are gathered
when the load of the key is below half of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.simulated.cluster.split import SplitOperator


class Frequent(NamedTuple):
    """The most frequent key of a group in a period.

    key    hash of the key
    share  share of the key in the rows of the group
    deal   position of the stream with most rows of the key, among the streams with a window
    """

    key: int
    share: float
    deal: int


class Fragmenting(NamedTuple):
    """A key that gets a fragment at each of these nodes."""

    key: int
    deal: int
    nodes: tuple[int, ...]


def most_frequent(splits: Sequence[SplitOperator], group: int, deals: Sequence[int]) -> Frequent | None:
    """Return the most frequent key of a group in this period, None if no row came.

    deals   positions of the streams that may be dealt
    """
    recent = [split.recent(group) for split in splits]
    keys, counts = np.unique(np.concatenate(recent), return_counts=True)
    if not len(keys):
        return None
    key = int(keys[counts.argmax()])
    deal = max(deals, key=lambda i: int((recent[i] == np.uint64(key)).sum()))
    return Frequent(key, float(counts.max() / counts.sum()), deal)


@dataclass
class HotKeys:
    """The rule.

    hot       bound of the load of a key, over the mean load of a node
    patience  successive periods before a key gets fragments, or its fragments are gathered
    """

    hot: float
    patience: int = 3

    def __post_init__(self) -> None:
        self._above: dict[int, int] = {}
        self._below: dict[int, int] = {}

    def bound(self, loads: Sequence[float]) -> float:
        """Return the bound of the load of a key, given the loads of the nodes."""
        return self.hot * sum(loads) / len(loads) if any(loads) else math.inf

    def plan(
        self,
        groups: Sequence[float],
        owners: Sequence[int],
        nodes: Mapping[int, float],
        frequent: Mapping[int, Frequent],
        fragments: Mapping[int, Sequence[int]],
    ) -> tuple[list[Fragmenting], list[int]]:
        """Return the keys that get fragments, and those whose fragments are gathered.

        groups     load of each group
        nodes      load of each node that runs
        frequent   group -> its most frequent key
        fragments  key in fragments -> its groups, first the group of the key
        """
        mean = sum(nodes.values()) / len(nodes)
        bound = self.bound(list(nodes.values()))
        loads: dict[int, float] = {}
        for key, (first, *others) in fragments.items():
            known = frequent.get(first)
            share = known.share if known is not None and known.key == key else 0.0
            loads[key] = share * groups[first] + sum(groups[group] for group in others)
        hot = {
            candidate.key: group
            for group, candidate in frequent.items()
            if candidate.key not in fragments and candidate.share * groups[group] > bound
        }
        self._above = {key: self._above.get(key, 0) + 1 for key in hot}
        self._below = {key: self._below.get(key, 0) + 1 for key, load in loads.items() if load < bound / 2}
        emptiest = sorted(nodes, key=lambda node: (nodes[node], node))
        made = []
        for key, group in hot.items():
            if self._above[key] >= self.patience:
                count = math.ceil(frequent[group].share * groups[group] / mean) - 1
                to = [node for node in emptiest if node != owners[group]][: max(1, count)]
                if to:
                    made.append(Fragmenting(key, frequent[group].deal, tuple(to)))
        return made, [key for key, periods in self._below.items() if periods >= self.patience]

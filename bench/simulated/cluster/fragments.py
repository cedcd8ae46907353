"""A hot key in fragments: rows of one key divided among nodes, although no partitioning by key can divide them.

One stream of the join is *dealt*: each of its rows with the key goes to one fragment, in turn. Rows of the other
streams with the key are *replicated*: they go to all fragments. A result has exactly one row of the dealt stream, so
exactly one fragment emits the result. Fragment 0 is the partition group of the key; each other fragment is a separate
partition group, with a log, a track and moves like any other group.

    stream A (dealt)      a0 a1 a2 a3 a4      fragment 0: a0 a2 a4   fragment 1: a1 a3
    B, C (replicated)     b0 b1, c0           both: b0 b1, c0

A new fragment begins with the rows of the replicated streams that are still in a window, copied in the logs. The
fragment gets rows of the dealt stream only when all other splits replicate, so it never lacks a row. A fragment ends by
*gathering*: it gets no more rows of the dealt stream, and is deleted when none of its rows of this stream can join any
longer. Keys are distinguished by their hash; keys with the same hash are in fragments together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass
class Fragment:
    """The manager's record of a fragment.

    of     the partition group of the key
    key    hash of the key
    dealt  position of the dealt stream
    since  event time; no row that is older by more than its window can join a later row
    state  "replicated", "dealt", "gathering" or "gathered"
    """

    of: int
    key: int
    dealt: int
    since: int
    state: str = "replicated"


@dataclass
class _Target:
    of: int
    key: int
    dealt: bool
    deals: bool = False


class Fragments:
    """The fragments to which the split of one stream sends rows.

    >>> own = Fragments(lambda rows: rows.column("k").to_numpy().astype(np.uint64))
    >>> own.add(7, of=0, key=5, dealt=True)
    >>> own.deal(7, True)
    >>> found = own.spread({0: pa.record_batch({"k": [5, 3, 5, 5]})})
    >>> found[0].column("k").to_pylist(), found[7].num_rows
    ([5, 3, 5], 1)
    """

    def __init__(self, hashes: Callable[[pa.RecordBatch], npt.NDArray[np.uint64]]) -> None:
        self.hashes = hashes
        self._targets: dict[int, _Target] = {}
        self._turn = 0

    def __contains__(self, group: int) -> bool:
        return group in self._targets

    def add(self, group: int, *, of: int, key: int, dealt: bool) -> None:
        """Begin to replicate rows to a fragment, or prepare to deal them."""
        self._targets[group] = _Target(of, key, dealt)

    def deal(self, group: int, deals: bool) -> None:
        """Begin or cease to deal rows to a fragment."""
        self._targets[group].deals = deals

    def remove(self, group: int) -> None:
        """Stop sending rows to a fragment."""
        self._targets.pop(group, None)

    def hot(self, rows: pa.RecordBatch, key: int) -> pa.RecordBatch:
        """Return the rows with a key."""
        return rows.filter(pa.array(self.hashes(rows) == np.uint64(key)))

    def spread(self, pieces: Mapping[int, pa.RecordBatch]) -> Mapping[int, pa.RecordBatch]:
        """Return rows by group, those of keys in fragments with their fragments. O(rows of groups with such keys)."""
        if not self._targets:
            return pieces
        by_group = dict(pieces)
        targets: dict[tuple[int, int], list[int]] = defaultdict(list)
        for group, target in self._targets.items():
            if target.of in by_group:
                targets[target.of, target.key].append(group)
        for (of, key), groups in targets.items():
            rows = by_group[of]
            hot = np.flatnonzero(self.hashes(rows) == np.uint64(key))
            copies = [group for group in groups if not self._targets[group].dealt]
            if len(hot):
                by_group |= dict.fromkeys(copies, rows.take(pa.array(hot)))
            dealt = [group for group in groups if self._targets[group].deals]
            if dealt and len(hot):
                turns = (self._turn + np.arange(len(hot))) % (len(dealt) + 1)
                self._turn += len(hot)
                keep = np.ones(len(rows), np.bool_)
                keep[hot[turns > 0]] = False
                by_group[of] = rows.filter(pa.array(keep))
                for turn, group in enumerate(dealt, 1):
                    if (turns == turn).any():
                        by_group[group] = rows.take(pa.array(hot[turns == turn]))
        return {group: rows for group, rows in by_group.items() if len(rows)}

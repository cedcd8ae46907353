"""A copy of a stream's window at one node: its rows, its completeness, and its probes.

The rows of a copy come from the nodes where its stream arrives, its *origins*. An origin ships epoch by epoch from a
first epoch on. The rows before this epoch are the *base* of the copy, which comes from the origin's log.

    origin     base: epochs < 5           shipped: 5 6 7 . 9         upto = 7, early = {9}
               in whole, or by key

A tuple of epoch e may probe when every origin has sent its rows up to e ("insert everywhere first"), and when the copy
has the base: in whole, or for the keys of the tuple. The origins have sent the keys of the base; requested keys are
*attempted*, as in just-in-time completion. The tuple joins the rows that precede its head in (epoch, event time,
stream); two rows of one stream never join.

Invariants (check()): the rows of a copy differ; an epoch counts once, however often its rows come; the cached value of
`ready` is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from eddy.placement.tuples import Ints, Tuples, merged, without
from stairs.graph import FOREVER


@dataclass
class Origin:
    """The rows that one node has sent for a copy.

    first    the first epoch that it ships; rows logged before are the base
    newest   greatest event time in the base, None = no base
    upto     all epochs from `first` to this one have come
    early    later epochs that have come
    whole    whether the whole base has come
    """

    first: int
    newest: int | None
    upto: int = field(init=False)
    early: set[int] = field(default_factory=set)
    whole: bool = field(init=False)

    def __post_init__(self) -> None:
        self.upto = self.first - 1
        self.whole = self.newest is None

    def came(self, epoch: int) -> bool:
        """Record that the rows of an epoch have come; return whether they came for the first time."""
        if epoch <= self.upto or epoch in self.early:
            return False
        self.early.add(epoch)
        while self.upto + 1 in self.early:
            self.upto += 1
            self.early.remove(self.upto)
        return True


class KeysDue(NamedTuple):
    """Keys of a base, ascending, and for each the last tick at which a tuple may join one of its rows."""

    keys: Ints
    due: Ints


def _latest(keys: Ints, due: Ints) -> KeysDue:
    """Return each key once, with the latest of its ticks."""
    order = np.lexsort((due, keys))
    keys, due = keys[order], due[order]
    last = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), bool))
    return KeysDue(keys[last], due[last])


class WindowCopy:
    """A copy of the window of one stream.

    stream    position of the stream
    span      size of the window in ticks, FOREVER = without limit
    origins   the nodes where the stream arrives
    """

    def __init__(self, stream: int, span: int, origins: Iterable[int]) -> None:
        self.stream, self.span = stream, span
        self.origins: dict[int, Origin | None] = dict.fromkeys(origins)
        self.attempted: dict[int, Ints] = {}
        """Class -> the requested keys whose rows of the base have come, ascending."""
        self.base_keys: dict[int, dict[int, KeysDue]] = {}
        """Origin whose base is incomplete -> the keys of the base by class."""
        self._parts: list[tuple[Ints, Tuples]] = []
        self._sorted: dict[int, tuple[Ints, Ints]] = {}
        self._held: dict[int, KeysDue] = {}
        self._ready: tuple[int, bool] | None = None
        """The cached value of `ready`, None = not computed."""

    @property
    def size(self) -> int:
        """The number of rows held."""
        return sum(part.size for _, part in self._parts)

    @property
    def complete(self) -> bool:
        """Whether the whole base has come."""
        return all(origin is not None and origin.whole for origin in self.origins.values())

    @property
    def ready(self) -> tuple[int, bool]:
        """The epoch up to which all rows have been shipped or are part of the base, and whether the base is known.

        The base is known if the whole base, or all of its keys, have come. Tuples that wait for neither wait for its
        rows. O(1), after a change of either O(origins).
        """
        if self._ready is None:
            upto = min(-1 if origin is None else origin.upto for origin in self.origins.values())
            known = all(
                origin is not None and (origin.whole or node in self.base_keys) for node, origin in self.origins.items()
            )
            self._ready = upto, known
        return self._ready

    def origin(self, node: int, first: int, newest: int | None) -> Origin:
        """Return the record of an origin, which ships from epoch `first` on."""
        origin = self.origins.get(node)
        if origin is None:
            origin = self.origins[node] = Origin(first, newest)
            self._ready = None
        return origin

    def insert(self, node: int, epoch: int, tuples: Tuples) -> int:
        """Insert the rows that a known origin shipped in one epoch; return the number of inserted rows."""
        origin = self.origins[node]
        if origin is None:
            return 0
        before = origin.upto
        if not origin.came(epoch):
            return 0
        if before < origin.upto and self._ready is not None and self._ready[0] == before:
            self._ready = None
        return self._enter(np.full(tuples.size, epoch, np.int64), tuples)

    def fill(self, node: int, epochs: Ints, tuples: Tuples, whole: bool) -> int:
        """Insert the base of a known origin, or a part of it; return the number of inserted rows."""
        origin = self.origins[node]
        if origin is None or origin.whole:
            return 0
        known = self._rows()
        fresh = ~np.isin(tuples.rows[self.stream], known) if len(known) else np.ones(tuples.size, bool)
        if whole:
            self._whole(node, origin)
        return self._enter(epochs[fresh], tuples.take(fresh))

    def attempt(self, c: int, keys: Ints) -> None:
        """Record that the rows of the base with these keys of a class have come, from every origin."""
        self.attempted[c] = np.union1d(self.attempted.get(c, keys[:0]), keys)

    def missing(self, c: int, tuples: Tuples) -> Ints:
        """Return the keys of a class, ascending, whose rows of the base are missing and may be joined by tuples.

        The newest component of a tuple must not be younger than a row is due (`Tuples`).
        """
        keys = tuples.keys[c]
        if c not in self._held:
            told = [by_class[c] for by_class in self.base_keys.values() if c in by_class]
            none = keys[:0]
            self._held[c] = _latest(*map(np.concatenate, zip(*told, strict=True))) if told else KeysDue(none, none)
        held = self._held[c]
        if not len(held.keys):
            return keys[:0]
        at = np.minimum(np.searchsorted(held.keys, keys), len(held.keys) - 1)
        joined = keys[(held.keys[at] == keys) & (held.due[at] >= tuples.newest)]
        return without(joined, self.attempted.get(c, keys[:0]))

    def _whole(self, node: int, origin: Origin) -> None:
        origin.whole = True
        self._ready = None
        if self.base_keys.pop(node, None) is not None:
            self._held = {}

    def tell(self, node: int, keys: Sequence[tuple[int, Mapping[int, Ints]]]) -> None:
        """Record the keys of the base of a known origin, as in `BaseKeys`."""
        origin = self.origins[node]
        if origin is not None and not origin.whole:
            by_class: dict[int, list[KeysDue]] = {}
            for due, epoch in keys:
                for c, values in epoch.items():
                    by_class.setdefault(c, []).append(KeysDue(values, np.full(len(values), due)))
            self.base_keys[node] = {
                c: _latest(*map(np.concatenate, zip(*parts, strict=True))) for c, parts in by_class.items()
            }
            self._held, self._ready = {}, None

    def expire(self, horizon: int) -> None:
        """Drop the rows that no later tuple can join: those due before `horizon`, in ticks."""
        for node, origin in self.origins.items():
            if origin is not None and origin.newest is not None and origin.newest + self.span < horizon:
                self._whole(node, origin)
        for node, by_class in self.base_keys.items():
            self.base_keys[node] = {c: KeysDue(*(x[held.due >= horizon] for x in held)) for c, held in by_class.items()}
        self._held = {}
        if self.span < FOREVER and self._parts:
            self._fold()
            epochs, rows = self._parts[0]
            staying = rows.due >= horizon
            if not staying.all():
                self._parts, self._sorted = [(epochs[staying], rows.take(staying))], {}

    def probe(self, tuples: Tuples, head: int, epoch: int, c: int) -> Tuples:
        """Return the tuples joined with the rows of this window that precede their head.

        head    the head stream of the tuples
        epoch   epoch in which the heads arrived
        c       a common class, in which rows are looked up; other common classes are compared

        Cost: a sort of the window by its first probe after a change, O(log rows) per tuple, and the matches.
        """
        if not self._parts:
            return self._joined(tuples, np.zeros(0, np.int64), None, np.zeros(0, np.int64))
        self._fold()
        epochs, rows = self._parts[0]
        if c not in self._sorted:
            order = np.argsort(rows.keys[c], kind="stable")
            self._sorted[c] = order, rows.keys[c][order]
        order, keys = self._sorted[c]
        low, high = np.searchsorted(keys, tuples.keys[c], "left"), np.searchsorted(keys, tuples.keys[c], "right")
        counts = high - low
        left = np.repeat(np.arange(tuples.size), counts)
        if not len(left):
            return self._joined(tuples, left, None, left)
        right = order[np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts - low, counts)]
        time = rows.time[right]
        good = np.maximum(tuples.newest[left], time) <= np.minimum(tuples.due[left], rows.due[right])
        head_times = tuples.time[left]
        tied = time == head_times if self.stream < head else np.zeros(len(left), bool)
        good &= (epochs[right] < epoch) | ((epochs[right] == epoch) & ((time < head_times) | tied))
        for other in tuples.keys.keys() & rows.keys.keys() - {c}:
            good &= tuples.keys[other][left] == rows.keys[other][right]
        return self._joined(tuples, left[good], rows, right[good])

    def _joined(self, tuples: Tuples, left: Ints, rows: Tuples | None, right: Ints) -> Tuples:
        matched = tuples.take(left)
        if rows is None:
            return matched._replace(rows={**matched.rows, self.stream: right})
        return Tuples(
            {**matched.rows, self.stream: rows.rows[self.stream][right]},
            {**{c: values[right] for c, values in rows.keys.items()}, **matched.keys},
            matched.time,
            np.maximum(matched.newest, rows.time[right]),
            np.minimum(matched.due, rows.due[right]),
        )

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        rows = self._rows()
        assert len(np.unique(rows)) == len(rows), f"stream {self.stream}: a row is held twice"
        noted, self._ready = self._ready, None
        assert noted is None or noted == self.ready, f"stream {self.stream}: {noted} is noted, {self.ready} is true"

    def _rows(self) -> Ints:
        if not self._parts:
            return np.zeros(0, np.int64)
        return np.concatenate([part.rows[self.stream] for _, part in self._parts])

    def _enter(self, epochs: Ints, tuples: Tuples) -> int:
        if tuples.size:
            self._parts.append((epochs, tuples))
            self._sorted = {}
        return tuples.size

    def _fold(self) -> None:
        if len(self._parts) > 1:
            epochs = np.concatenate([stamps for stamps, _ in self._parts])
            self._parts = [(epochs, merged([part for _, part in self._parts]))]

"""States that are computed from the state modules, and the list of those that follow some modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from weakref import ref

import numpy as np

from stairs.memory.arena import Int64s


class VersionMove(NamedTuple):
    """New sequence numbers of the versions of one table.

    stream  the table
    low     its low mark before
    to      int64[versions from `low` on], the new number of each, -1 = it is dead
    first   its low mark after: the living versions have the numbers from here up to the next arrival
    """

    stream: int
    low: int
    to: Int64s
    first: int

    def moved(self, numbers: Int64s) -> Int64s:
        """Return the new numbers of versions; -1 for dead ones and those below the low mark."""
        if not len(self.to):
            return np.full(numbers.shape, -1, np.int64)
        renumbered = self.to[np.clip(numbers - self.low, 0, len(self.to) - 1)]
        return np.where(numbers >= self.low, renumbered, -1)

    def mark(self, mark: int) -> int:
        """Return the number from which on the versions lie that had the number `mark` or a later one."""
        return mark if mark <= self.low else self.first + int((self.to[: mark - self.low] >= 0).sum())


class Cache(ABC):
    """A state computed from the SteMs. The modules call its methods when something changes underneath.

    A cache that holds nothing by key id and stores no entries only has to define `renumbered` and `forget`.
    """

    @abstractmethod
    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow a renumbering: sequence number s of stream i is now s - shifts[i]."""

    @abstractmethod
    def forget(self) -> None:
        """Drop all contents: an undo removed tuples, or tuples that had left a window are live again."""

    def moved(self, move: VersionMove) -> None:
        """Follow the compaction of a table: drop all contents, unless the cache knows better."""
        self.forget()

    def follow(self) -> None:  # noqa: B027
        """Make room for the key ids that may occur. Called after a class grew and when a push begins."""

    def make_room(self) -> None:  # noqa: B027
        """Make room for the entries for which a kernel found none."""

    def wider(self, c: int, room: int) -> int:
        """Return the bytes that `follow` will add once class c has room for `room` key ids."""
        return 0

    @property
    def counted_bytes(self) -> int:
        """Bytes that count against the allowance of the modules."""
        return 0


class Caches:
    """The caches of some modules, in the order of their registration; registration keeps no cache alive.

    A `weakref.WeakSet` would do the same, but iterating over one takes microseconds, and each push iterates.
    """

    def __init__(self, caches: Iterable[Cache] = ()) -> None:
        self._refs = [ref(cache) for cache in caches]

    def add(self, cache: Cache) -> None:
        """Register a cache, and drop the entries of caches that no longer exist."""
        self._refs = [ref(other) for other in self] + [ref(cache)]

    def remove(self, cache: Cache) -> None:
        """Remove a cache: the modules no longer call it. Does nothing if the cache is not registered."""
        self._refs = [ref(other) for other in self if other is not cache]

    def clear(self) -> None:
        """Remove all caches."""
        self._refs = []

    def follow(self) -> None:
        """Let each cache follow. Each push calls this, and a generator would take longer than the caches."""
        for reference in self._refs:
            cache = reference()
            if cache is not None:
                cache.follow()

    def __iter__(self) -> Iterator[Cache]:
        for reference in self._refs:
            cache = reference()
            if cache is not None:
                yield cache

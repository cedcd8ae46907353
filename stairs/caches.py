"""What is computed from state modules and must follow them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol
from weakref import ref


class Cache(Protocol):
    """A state computed from the SteMs (a STAIR), told of what changes under it."""

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]."""

    def forget(self) -> None:
        """Hold nothing any more: tuples were taken back, or are live again."""

    def follow(self) -> None:
        """Make room for the key ids there may be: a class grew, or a push begins."""

    def make_room(self) -> None:
        """Make room for the entries that a kernel found none for."""

    def wider(self, c: int, room: int) -> int:
        """Return the bytes that `follow` will add once class c has room for so many key ids."""

    @property
    def counted_bytes(self) -> int:
        """Bytes that count against the allowance of the modules."""


class Caches:
    """The caches of some modules, in the order in which they came; none is kept alive by being here.

    A set of weak references would do; going through one takes microseconds, and every push does.
    """

    def __init__(self, caches: Iterable[Cache] = ()) -> None:
        self._refs = [ref(cache) for cache in caches]

    def add(self, cache: Cache) -> None:
        """Take one in, and forget those that are gone."""
        self._refs = [ref(own) for own in self] + [ref(cache)]

    def remove(self, cache: Cache) -> None:
        """Forget one: it is told of nothing any more. Nothing happens when it is not there."""
        self._refs = [ref(own) for own in self if own is not cache]

    def clear(self) -> None:
        """Forget all."""
        self._refs = []

    def __iter__(self) -> Iterator[Cache]:
        for reference in self._refs:
            cache = reference()
            if cache is not None:
                yield cache

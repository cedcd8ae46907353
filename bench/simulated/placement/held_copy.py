"""A copy of a window at a node, with the requests for its base and the tuples that wait for it.

After a change of program the base of a new copy comes just in time, key by key: tuples that probe the copy wait until
the rows with their keys have come. Keys are requested once, from the origins whose base has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bench.simulated.placement.pieces import TuplePiece
from bench.simulated.placement.windows import WindowCopy
from eddy.placement.tuples import Ints, common, without


@dataclass
class CopyRequests:
    """Keys of a class that were requested for a copy, and the origins that have not answered."""

    c: int
    keys: Ints
    origins: set[int]


@dataclass
class HeldCopy:
    """A copy of a window at a node.

    asked      requests without an answer by number; the keys of two requests of a class differ
    waiting    tuples whose next probe is of this copy
    lost       whether the copy is made again after a crash, so that rows of an origin wait for its base
    in_whole   whether the whole base was requested
    """

    window: WindowCopy
    asked: dict[int, CopyRequests] = field(default_factory=dict)
    waiting: list[TuplePiece] = field(default_factory=list)
    lost: bool = False
    in_whole: bool = False

    def request(self, number: int, c: int, keys: Ints) -> dict[int, Ints]:
        """Record a request for keys of a class; return by origin the keys that it has and that were not requested."""
        if self.in_whole:
            return {}
        pending = [request.keys for request in self.asked.values() if request.c == c]
        keys = without(keys, np.sort(np.concatenate(pending)) if pending else keys[:0])
        parts = {
            node: common(keys, by_class[c].keys)
            for node, by_class in sorted(self.window.base_keys.items())
            if c in by_class
        }
        parts = {node: part for node, part in parts.items() if part.size}
        if parts:
            self.asked[number] = CopyRequests(c, keys, set(parts))
        return parts

    def answered(self, number: int, origin: int) -> bool:
        """Record an answer to a request; return whether it was the last one, so that tuples may continue."""
        asked = self.asked.get(number)
        if asked is None:
            return False
        asked.origins.discard(origin)
        if asked.origins:
            return False
        self.window.attempt(asked.c, asked.keys)
        del self.asked[number]
        return True


def taken(copies: Iterable[HeldCopy]) -> list[TuplePiece]:
    """Remove the tuples that wait for these copies, and return them."""
    pieces: list[TuplePiece] = []
    for held in copies:
        pieces += held.waiting
        held.waiting = []
    return pieces

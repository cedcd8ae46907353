"""Messages that carry tuples between nodes, and messages of a change of program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eddy.placement.operators import StreamId
from eddy.placement.places import Place
from eddy.placement.program import Copy, Program
from eddy.placement.tuples import Ints, Tuples

FAN = 8
"""Nodes to which each node passes a program on."""


class Since(NamedTuple):
    """The first epoch that an origin ships to a copy, and the rows that its log had before.

    born     version of the copy
    first    the first shipped epoch
    newest   greatest event time logged before this epoch, None = no rows
    """

    born: int
    first: int
    newest: int | None


@dataclass(frozen=True, eq=False)
class TuplePiece:
    """Tuples of one source for one node.

    source    id of the tuples
    place     place of the receiver
    epoch     epoch in which the heads arrived
    version   version of the program under which the heads are processed
    known     newest version that the sender has; a receiver without this version waits
    origin    the sender
    copies    for rows of a stream, the copies at this place that they enter
    """

    source: StreamId
    place: Place
    epoch: int
    version: int
    known: int
    origin: int
    tuples: Tuples
    copies: tuple[Since, ...] = ()


@dataclass(frozen=True)
class Install:
    """Run this program next, besides the current one, and pass it on.

    root    the node that made the program. Programs spread along a tree of nodes, because one line would take long to
            send a program to many nodes
    track   whether the windows are copied first, and all nodes then switch together (two-phase migration); otherwise
            the node switches at once, and windows are completed just in time
    """

    program: Program
    track: bool
    root: int

    def children(self, node: int, nodes: int) -> list[int]:
        """Return the nodes to which a node passes the program on, given the number of nodes."""
        position = (node - self.root) % nodes
        return [
            (child + self.root) % nodes for child in range(position * FAN + 1, min(position * FAN + FAN + 1, nodes))
        ]


@dataclass(frozen=True, eq=False)
class BaseKeys:
    """The keys of the base of a new copy, from each of its origins, which a node may request.

    known   as in `TuplePiece`
    keys    by epoch of the base (due, by class int64): the keys that have no row of a later epoch, and the last tick at
            which a tuple may join a row of the epoch
    """

    copy: Copy
    origin: int
    known: int
    since: Since
    keys: Sequence[tuple[int, Mapping[int, Ints]]]


@dataclass(frozen=True, eq=False)
class Request:
    """Request the base of a copy, or only its rows for the keys of a class in `keys`.

    sender   the node that requests; `known` as in `TuplePiece`
    crashes  number of crashes of this node; an answer to a request of before a crash is dropped
    number   number of the request, repeated by its answers
    lost     whether the node has lost the copy, so that rows shipped to it must be sent again
    """

    copy: Copy
    sender: int
    crashes: int
    known: int
    number: int
    keys: tuple[int, Ints] | None = None
    lost: bool = False


@dataclass(frozen=True, eq=False)
class Base:
    """The whole base of a copy, or its part for some keys: the answer to a `Request`.

    epochs   int64[tuples], epochs in which the tuples arrived
    """

    copy: Copy
    origin: int
    crashes: int
    number: int
    since: Since
    epochs: Ints
    tuples: Tuples
    whole: bool


@dataclass(frozen=True)
class LocalReady:
    """The windows of the new program are full at this node."""

    version: int
    node: int


@dataclass(frozen=True)
class GlobalReady:
    """This node knows that all nodes are local-ready."""

    version: int
    node: int

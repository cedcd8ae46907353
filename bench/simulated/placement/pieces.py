"""Messages that carry tuples between nodes, and those of a change of program."""

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
    """From when on an origin ships its rows to a copy, and what its log had before.

    born     version of the copy
    first    the first epoch shipped
    newest   greatest event time logged before it, None = nothing
    """

    born: int
    first: int
    newest: int | None


@dataclass(frozen=True, eq=False)
class Piece:
    """Tuples of one source for one node.

    source    id of the tuples
    place     of which the receiver is a part
    epoch     in which their heads arrived
    version   of the program under which their heads are processed
    known     newest version that the sender has; a receiver without it waits
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

    root    the node that made it. Programs spread along a tree of nodes, as the line of one node would take long to
            send a program to each of many
    track   whether the windows are copied first, and all nodes then switch together (two-phase migration); otherwise
            the node switches at once, and windows are completed just in time
    """

    program: Program
    track: bool
    root: int

    def children(self, node: int, nodes: int) -> list[int]:
        """Return the nodes, of so many, to which a node passes the program on."""
        own = (node - self.root) % nodes
        return [(child + self.root) % nodes for child in range(own * FAN + 1, min(own * FAN + FAN + 1, nodes))]


@dataclass(frozen=True, eq=False)
class BaseKeys:
    """The keys of the base of a new copy, from each of its origins: what can be requested.

    known   as in `Piece`
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
    """Send the base of a copy; for some keys of a class only, if `keys` has them.

    sender   the node that asks; `known` as in `Piece`
    life     how often this node has crashed; an answer to an earlier life is of no use
    number   of the request, repeated by its answers
    lost     the node has lost the copy: send also what was shipped to it
    """

    copy: Copy
    sender: int
    life: int
    known: int
    number: int
    keys: tuple[int, Ints] | None = None
    lost: bool = False


@dataclass(frozen=True, eq=False)
class Base:
    """The base of a copy in whole, or its part for some keys: the answer to a `Request`.

    epochs   int64[tuples], in which they arrived
    """

    copy: Copy
    origin: int
    life: int
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

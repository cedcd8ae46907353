"""Messages of the nodes, apart from any carrier: an actor takes a message and returns the messages to send.

Every message is an immutable value. The carrier decides when a message arrives. The network repeats lost messages, so
an actor gets each message once, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from eddy.placement.costs import Flow, StreamStatistics
from eddy.placement.operators import NOS
from eddy.placement.plan import SEP


class Sent(NamedTuple):
    """A message and its destination node."""

    to: int
    message: Any


@dataclass(frozen=True)
class Changed:
    """The statistics of a stream have changed, to the central node (CNU)."""

    stream: int
    figures: StreamStatistics


@dataclass(frozen=True)
class NewOperators:
    """The new operator set of a node, from the central node (CNU).

    version    number of the plan
    affected   the nodes whose sets change
    """

    version: int
    operators: NOS
    affected: frozenset[int]


@dataclass(frozen=True)
class ModificationState:
    """The state of one modification of one plan, which travels with its messages (DNU).

    sep       the current plan
    stream    the stream that triggered the walk
    number    number of the walk, counted by the head
    step      changes of the plan made by the walk so far
    j         the position that is being decided
    """

    sep: SEP
    stream: int
    number: int
    step: int = 0
    j: int = 0


@dataclass(frozen=True)
class Trigger:
    """The figures of a stream have changed; to the head of a plan, which starts one walk after the other."""

    head: int
    stream: int


@dataclass(frozen=True)
class Begin:
    """The walk may begin; from the head to the triggering node."""

    walk: ModificationState


@dataclass(frozen=True)
class Seek:
    """Does the triggering stream cost less than yours? Algorithm 3, line 14, from the first stream of the order on.

    figures   figures of the triggering stream
    no_rise   whether no figure has risen
    """

    walk: ModificationState
    figures: StreamStatistics
    no_rise: bool


@dataclass(frozen=True)
class Compare:
    """Is your join cheaper than the cheapest so far? Algorithm 3, line 6, relayed to the end of the order.

    flow       the tuples that probe at position j
    best       (cost, stream) of the cheapest so far
    following  the position of the receiver
    """

    walk: ModificationState
    flow: Flow
    best: tuple[float, int]
    following: int


@dataclass(frozen=True)
class Take:
    """Take position j: your join is the cheapest; from the end of the order, or from the node that sought."""

    walk: ModificationState
    flow: Flow


@dataclass(frozen=True)
class Continue:
    """Decide your position, j of the walk; from the node of the position before it."""

    walk: ModificationState
    flow: Flow


@dataclass(frozen=True)
class Replace:
    """Your operators of one plan; after a swap or a change of placement (Algorithm 3, lines 7 and 8).

    at   (walk, step): of two such messages the later one counts
    """

    head: int
    operators: NOS
    at: tuple[int, int]


@dataclass(frozen=True)
class Done:
    """The walk has ended; to the head."""

    walk: ModificationState


@dataclass(frozen=True)
class Finished:
    """The plan of one head is settled; from the head to the triggering node."""

    stream: int
    sep: SEP

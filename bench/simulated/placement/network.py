"""The simulated network: links with latency and a rate, nodes that take time, a clock. Deterministic for a seed.

Every node has one outgoing and one incoming line (`cluster/links.py`), shared by all of its messages: a message of x
bytes leaves after the earlier messages of the node, takes x / c_r seconds on the outgoing line, c_l seconds in between,
and then the incoming line. A node handles one message after the other. Time is simulated, so no process waits.

Faults are part of the network: messages are lost or duplicated with a probability, and nodes are down for a time. In a
network with `Faults` every message is repeated until it is acknowledged, and passed on once to its receiver.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.simulated.cluster.links import Link, Links
from bench.simulated.placement.messages import Sent
from bench.simulated.placement.pieces import Base, BaseKeys, Install, Request, TuplePiece
from eddy.placement.costs import UnitCosts

HEADER_BYTES = 32
"""Bytes of a message in addition to its content."""
PLAN_BYTES = 16
"""Bytes of an operator."""


class Delivery(NamedTuple):
    """A message that was sent: its name, sender, receiver, bytes, and the seconds on the clock when it arrived."""

    name: str
    source: int
    to: int
    n_bytes: float
    at: float


@dataclass
class Faults:
    """Injected faults.

    loss, doubling   probabilities that a message is lost, or duplicated
    disorder         deliver in random order instead of by time
    resend_after     seconds after which an unacknowledged message is sent again; twice as long every next time
    seed             seed of lost, duplicated and reordered messages
    """

    loss: float = 0.0
    doubling: float = 0.0
    disorder: bool = False
    resend_after: float = 1.0
    seed: int = 0


class _Event(NamedTuple):
    """Events happen in the order of these fields; their numbers differ, so that calls are never compared."""

    at: float
    rank: float
    number: int
    call: Callable[[], None]


class Network:
    """Carries the messages of nodes.

    handle   takes (node, message), returns the messages to send and the seconds that the node was busy
    costs    costs of the links
    widths   returns the mean bytes of a row of each stream
    """

    def __init__(
        self,
        handle: Callable[[int, Any], tuple[list[Sent], float]],
        costs: UnitCosts,
        widths: Callable[[], list[float]],
        faults: Faults | None = None,
    ) -> None:
        self.now = 0.0
        """Seconds on the clock."""
        self.sent_bytes = 0.0
        self.cost = 0.0
        """Seconds of all shipments and of all nodes, added up: the cost that the paper measures."""
        self.repeated = 0
        self.deliveries: list[Delivery] = []
        """All messages except those with results and intermediate tuples, which are only counted."""
        self.pieces = 0
        self.down: set[int] = set()
        self._handle, self._costs, self._widths = handle, costs, widths
        self._faults = Faults() if faults is None else faults
        self._faulty = faults is not None
        self._random = random.Random(self._faults.seed)
        self._events: list[_Event] = []
        self._numbers = 0
        self._unacknowledged: set[int] = set()
        self._postponed: dict[int, list[Callable[[], None]]] = {}
        """Stopped node -> the calls that wait until the node runs again."""
        self._seen: set[int] = set()
        self._busy: dict[int, float] = {}
        self._out = Links(Link(costs.c_l, costs.c_r))
        self._in = Links(Link(0.0, costs.c_r))

    @property
    def repeats(self) -> bool:
        """Whether messages are repeated until they are acknowledged."""
        return self._faulty

    @property
    def quiet(self) -> bool:
        """Whether no message is in transit."""
        return not self._events

    def size(self, message: Any) -> float:
        """Return the bytes of a message."""
        widths = self._widths()
        if isinstance(message, TuplePiece):
            return HEADER_BYTES + message.tuples.n_bytes(widths)
        if isinstance(message, Base):
            return HEADER_BYTES + message.tuples.n_bytes(widths)
        if isinstance(message, BaseKeys):
            return HEADER_BYTES + sum(8 + sum(values.nbytes for values in keys.values()) for _, keys in message.keys)
        if isinstance(message, Request):
            return HEADER_BYTES + (0 if message.keys is None else message.keys[1].nbytes)
        if isinstance(message, Install):
            return HEADER_BYTES + PLAN_BYTES * sum(map(len, message.program.operators.values()))
        return 2 * HEADER_BYTES

    def send(self, source: int, sent: list[Sent], at: float | None = None) -> None:
        """Send messages, now or when the clock reaches `at`."""
        at = self.now if at is None else at
        for to, message in sent:
            self._transmit(source, to, message, at)

    def _transmit(self, source: int, to: int, message: Any, at: float) -> None:
        number = self._numbers = self._numbers + 1
        if source == to:
            self._at(at, lambda: self._deliver(number, source, to, message, 0.0))
            return
        n_bytes = self.size(message)
        if self._faulty:
            self._unacknowledged.add(number)
            self._try(number, source, to, message, n_bytes, at, self._faults.resend_after)
            return
        self._put(number, source, to, message, n_bytes, at)

    def _put(self, number: int, source: int, to: int, message: Any, n_bytes: float, at: float) -> None:
        """Send a message over the lines."""
        self.sent_bytes += n_bytes
        self.cost += self._costs.transfer(n_bytes)
        whole = int(n_bytes)
        out = self._out.arrival(f"node {source}", "out", whole, at)
        if to < 0:  # the site is no bottleneck
            self._at(out, lambda: self._deliver(number, source, to, message, n_bytes))
            return

        def begin() -> None:
            there = self._in.arrival("in", f"node {to}", whole, begins)
            self._at(there, lambda: self._deliver(number, source, to, message, n_bytes))

        begins = out - whole / self._costs.c_r
        self._at(begins, begin)

    def _try(self, number: int, source: int, to: int, message: Any, n_bytes: float, at: float, patience: float) -> None:
        """Send a message over a lossy network; repeat it at growing intervals until it is acknowledged."""
        if number not in self._unacknowledged:
            return
        if to in self.down:  # called when the node runs again; until then the network may become quiet
            self._until_up(to, lambda: self._try(number, source, to, message, n_bytes, self.now, patience))
            return
        for _ in range(1 + (self._random.random() < self._faults.doubling)):
            if self._random.random() >= self._faults.loss:
                self._put(number, source, to, message, n_bytes, at)
        again = at + patience

        def repeat() -> None:
            self.repeated += number in self._unacknowledged
            self._try(number, source, to, message, n_bytes, again, 2 * patience)

        self._at(again, repeat)

    def _deliver(self, number: int, source: int, to: int, message: Any, n_bytes: float) -> None:
        if to in self.down:
            if source == to:  # the node's own disk: the node finds the message when it runs again
                self._until_up(to, lambda: self._deliver(number, source, to, message, 0.0))
            return
        if self._random.random() >= self._faults.loss:  # otherwise the acknowledgement is lost
            self._unacknowledged.discard(number)
        if number in self._seen:
            return
        if self._faulty:
            self._seen.add(number)
        self._note(source, to, message, n_bytes)
        begin = max(self.now, self._busy.get(to, 0.0))
        sent, seconds = self._handle(to, message)
        self.cost += seconds
        self._busy[to] = begin + seconds
        self.send(to, sent, begin + seconds)

    def _until_up(self, node: int, call: Callable[[], None]) -> None:
        self._postponed.setdefault(node, []).append(call)

    def up(self, node: int) -> None:
        """Record that a node runs again: messages to it are repeated now."""
        self.down.discard(node)
        for call in self._postponed.pop(node, []):
            self._at(self.now, call)

    def _note(self, source: int, to: int, message: Any, n_bytes: float) -> None:
        if isinstance(message, TuplePiece):
            self.pieces += source != to
        elif source != to:
            self.deliveries.append(Delivery(type(message).__name__, source, to, n_bytes, self.now))

    def _at(self, at: float, call: Callable[[], None]) -> None:
        rank = self._random.random() if self._faults.disorder else 0.0
        self._numbers += 1
        heapq.heappush(self._events, _Event(rank if self._faults.disorder else at, at, self._numbers, call))

    def step(self) -> bool:
        """Process the next event; return whether there was an event."""
        if not self._events:
            return False
        event = heapq.heappop(self._events)
        at = event.rank if self._faults.disorder else event.at
        self.now = max(self.now, at)
        event.call()
        return True

    def run(self, most: int | None = None) -> None:
        """Process events until no event is left, or at most `most` events."""
        while (most is None or most > 0) and self.step():
            most = None if most is None else most - 1

    def finish_time(self, nodes: Mapping[int, object]) -> float:
        """Return the seconds on the clock at which the last node has done its work."""
        return max([self.now, *(at for node, at in self._busy.items() if node in nodes)])

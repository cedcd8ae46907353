"""A node of the join, which runs its operator set for the tuples that arrive, over copies of windows.

Tuples arrive as pieces with the id of their source and the place to which they are sent. The node runs all operators of
that place whose first argument is this id:

    update(S)      the rows enter the copy of the window of S
    join(A, S)     the tuples probe that copy; the matches are the next source, whose operators run at once
    ship(A, P)     the tuples are sent to the nodes of place P

Results are exact under any interleaving. A row is shipped to every copy of its window, stamped with its epoch, and a
tuple of epoch e probes a copy only when the copy has all rows up to e (`windows.py`). The tuple joins the rows that
precede its head. So each result is found once, by its last component, for any plan with which that component's row is
stamped. A change of program changes the stamp of later rows, and does not need a common moment of all nodes.

While two programs run, rows go to the copies of both. A node that does not know a program yet keeps the pieces from
nodes that know the program until it knows the program as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

import numpy as np

from bench.simulated.placement.held_copy import HeldCopy, taken
from bench.simulated.placement.messages import Sent
from bench.simulated.placement.migration import TwoPhase
from bench.simulated.placement.origin_log import OriginLog
from bench.simulated.placement.pieces import (
    Base,
    BaseKeys,
    GlobalReady,
    Install,
    LocalReady,
    Request,
    Since,
    TuplePiece,
)
from bench.simulated.placement.windows import WindowCopy
from eddy.placement.costs import UnitCosts
from eddy.placement.operators import SITE, Ship, StreamId
from eddy.placement.places import Place
from eddy.placement.program import FIRST_VERSION, Copy, Program
from eddy.placement.tuples import Ints, Tuples
from stairs.errors import StateError


@dataclass(frozen=True)
class QueryFacts:
    """The facts about the query that all nodes know.

    spans     per stream the ticks of its window
    classes   per stream the attribute classes in which it has a key
    arrival   per stream the nodes where its rows arrive
    nodes     number of nodes
    costs     seconds of the elementary steps
    """

    spans: tuple[int, ...]
    classes: tuple[frozenset[int], ...]
    arrival: tuple[tuple[int, ...], ...]
    nodes: int
    costs: UnitCosts


class JoiningNode:
    """One node. `handle` takes a message and returns the messages to send; `work` sums the seconds of the work."""

    def __init__(self, node: int, shape: QueryFacts, program: Program) -> None:
        self.node, self.shape = node, shape
        self.programs: dict[int, Program] = {}
        self.current = program.version
        """The version with which rows that arrive are stamped."""
        self.work = 0.0
        self.hops: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        """(head, joined stream) -> number of tuples that probed, and of resulting tuples."""
        self.copies: dict[Copy, HeldCopy] = {}
        self.migration: TwoPhase | None = None
        self.horizon: int | None = None
        self.log = OriginLog(node, [i for i, nodes in enumerate(shape.arrival) if node in nodes])
        self._starts = [Place(nodes) for nodes in shape.arrival]
        self._aside: list[Any] = []
        self._early: list[LocalReady | GlobalReady] = []
        self._crashes = self._requests = 0
        self._install(program)

    @property
    def newest(self) -> int:
        """The newest version that the node has."""
        return max(self.programs)

    @property
    def waits(self) -> bool:
        """Whether tuples wait at this node."""
        return bool(self._aside) or any(state.waiting for state in self.copies.values())

    # Rows of the node's own streams

    def arrive(self, stream: int, epoch: int, rows: Tuples) -> list[Sent]:
        """Take the rows of one epoch of a stream that arrives at this node; epochs come in order, without gaps."""
        self.log.append(stream, epoch, rows)
        source, start = StreamId(stream), self._starts[stream]
        stamped = self.programs[self.current]
        copies: dict[Place, list[Since]] = {ship.to: [] for ship in stamped.ships(start, source)}  # type: ignore[misc]
        for place, since in self.log.shipped(stream):
            copies.setdefault(place, []).append(since)
        if stamped.join(start, source):
            copies.setdefault(start, [])
        sent = []
        for place, announced in copies.items():
            # Joins of the head at the place of its arrival run at the node of the row; a copy at this place goes to all
            # nodes.
            probes = stamped.join(place, source) is not None
            parts = place.route(rows)
            for node, part in parts:
                if announced or (probes and part.size and (place != start or node == self.node)):
                    sent.append(Sent(node, self._piece(source, place, epoch, self.current, part, tuple(announced))))
        return self._in_turn(sent)

    def _in_turn(self, sent: list[Sent]) -> list[Sent]:
        """Return messages in the order in which they are sent: each node begins with the node after itself.

        If all nodes began with the same node, all of them would wait for its line.
        """
        return sorted(sent, key=lambda message: (message.to - self.node) % self.shape.nodes)

    def _piece(
        self, source: StreamId, place: Place, epoch: int, version: int, part: Tuples, copies: tuple[Since, ...] = ()
    ) -> TuplePiece:
        return TuplePiece(source, place, epoch, version, self.newest, self.node, part, copies)

    # Messages

    @singledispatchmethod
    def handle(self, message: Any) -> list[Sent]:
        """Take a message and return the messages to send."""
        raise TypeError(f"a joining node takes no {type(message).__name__}")

    @handle.register
    def _(self, message: TuplePiece) -> list[Sent]:
        if message.known > self.newest:
            self._aside.append(message)
            return []
        copies = [(since, (message.source.stream, message.place, since.born)) for since in message.copies]
        updated = [(since, self.copies[copy]) for since, copy in copies if copy in self.copies]
        if any(state.lost and state.window.origins[message.origin] is None for _, state in updated):
            self._aside.append(message)
            return []
        readier = []
        for since, state in updated:
            before = state.window.ready
            state.window.origin(message.origin, since.first, since.newest)
            entered = state.window.insert(message.origin, message.epoch, message.tuples)
            self.work += entered * self.shape.costs.c_u
            if state.window.ready != before:
                readier.append(state)
        # Tuples that wait for other copies, or for other origins of these copies, still wait.
        pieces = taken(readier)
        if message.tuples.size and self._joins_here(message):
            pieces.append(message)
        return self._run_all(pieces)

    def _joins_here(self, piece: TuplePiece) -> bool:
        """Return whether the tuples of a piece probe at this node, and do not only enter a copy."""
        if self.programs[piece.version].join(piece.place, piece.source) is None:
            return False
        return piece.source.head >= 0 or piece.origin == self.node or piece.place != self._starts[piece.source.stream]

    # Joins

    def _run_all(self, pieces: list[TuplePiece]) -> list[Sent]:
        """Run these tuples if copies are ready, and request missing rows in as few messages as possible."""
        lacking: dict[tuple[Copy, int], list[Ints]] = {}
        sent = [message for piece in pieces for message in self._run(piece, lacking)]
        sent += [
            message for (copy, c), keys in lacking.items() for message in self._request(copy, c, np.concatenate(keys))
        ]
        return [*sent, *self._full()]

    def _run(self, piece: TuplePiece, lacking: dict[tuple[Copy, int], list[Ints]]) -> list[Sent]:
        """Run the operators for the tuples of a piece and for the resulting tuples, if copies are ready.

        lacking   gets the keys of a class whose rows of the base of a copy are missing
        """
        program, place, tuples, source = self.programs[piece.version], piece.place, piece.tuples, piece.source
        head = source.stream if source.head < 0 else source.head
        while tuples.size:
            join = program.join(place, source)
            if join is None:
                # Rows of a stream are shipped when they arrive.
                return [
                    message for to in program.ships(place, source) for message in self._ship(to, piece, source, tuples)
                ]
            copy = join.stream, place, program.born[join.stream, place]
            state = self.copies[copy]
            c = self._probed_class(place, tuples, join.stream)
            upto, known = state.window.ready
            missing = state.window.missing(c, tuples) if known else tuples.keys[c][:0]
            if missing.size or not known or upto < piece.epoch:
                state.waiting.append(self._piece(source, place, piece.epoch, piece.version, tuples))
                if missing.size:
                    lacking.setdefault((copy, c), []).append(missing)
                return []
            probes, size = tuples.size, state.window.size
            tuples = state.window.probe(tuples, head, piece.epoch, c)
            self.work += self.shape.costs.probing(probes, size, tuples.size)
            count = self.hops[head, join.stream]
            count[0] += probes
            count[1] += tuples.size
            source = StreamId(join.stream, head)
        return []

    def _probed_class(self, place: Place, tuples: Tuples, stream: int) -> int:
        """Return the class in which tuples look up rows, preferably a class that assigns rows to nodes."""
        classes = self.shape.classes[stream] & tuples.keys.keys()
        return min(classes & place.classes or classes)

    def _ship(self, ship: Ship, piece: TuplePiece, source: StreamId, tuples: Tuples) -> list[Sent]:
        if not isinstance(ship.to, Place):
            place = piece.place
            return [Sent(SITE, self._piece(source, place, piece.epoch, piece.version, tuples))]
        return self._in_turn(
            [
                Sent(node, self._piece(source, ship.to, piece.epoch, piece.version, part))
                for node, part in ship.to.route(tuples)
                if part.size
            ]
        )

    # The base of a copy

    def _request(self, copy: Copy, c: int, keys: Ints) -> list[Sent]:
        """Request the rows of these keys from the origins that have them, unless they were requested before."""
        self._requests += 1
        return [
            Sent(node, Request(copy, self.node, self._crashes, self.newest, self._requests, (c, part)))
            for node, part in self.copies[copy].request(self._requests, c, keys).items()
        ]

    @handle.register
    def _(self, message: BaseKeys) -> list[Sent]:
        if message.known > self.newest:
            self._aside.append(message)
            return []
        state = self.copies.get(message.copy)
        if state is None or state.lost:  # a lost copy requests the whole base
            return []
        state.window.origin(message.origin, message.since.first, message.since.newest)
        state.window.tell(message.origin, message.keys)
        return self._run_all(taken([state]))

    @handle.register
    def _(self, message: Request) -> list[Sent]:
        if message.known > self.newest:
            self._aside.append(message)
            return []
        base = self.log.base(message)
        return [] if base is None else [Sent(message.sender, base)]

    @handle.register
    def _(self, message: Base) -> list[Sent]:
        state = self.copies.get(message.copy)
        if state is None or message.crashes != self._crashes:
            return []
        state.window.origin(message.origin, message.since.first, message.since.newest)
        entered = state.window.fill(message.origin, message.epochs, message.tuples, message.whole)
        self.work += entered * self.shape.costs.c_u
        # Waiting tuples can continue only if an origin has sent its whole base, or the last answer to a request comes.
        return self._retry([state]) if state.answered(message.number, message.origin) or message.whole else []

    def _retry(self, states: Iterable[HeldCopy]) -> list[Sent]:
        """Handle the kept pieces again, and run the tuples that wait for these copies."""
        aside, self._aside = self._aside, []
        sent = [answer for message in aside for answer in self.handle(message)]
        return [*sent, *self._run_all(taken(states))]

    # Changes of program

    @handle.register
    def _(self, message: Install) -> list[Sent]:
        program = message.program
        if program.version <= self.newest:
            return []
        if program.version > self.newest + 1:
            self._aside.append(message)
            return []
        made = self._install(program)
        sent = [Sent(node, message) for node in message.children(self.node, self.shape.nodes)]
        if message.track:
            self.migration = TwoPhase(program.version, self.node, frozenset(range(self.shape.nodes)))
            sent += self._request_whole()
            early, self._early = self._early, []
            sent += [answer for told in early for answer in self.handle(told)]
        else:
            self.current = program.version
            told = [notice for copy in made for notice in self.log.base_keys(copy, self.newest)]
            sent += self._in_turn(told)
        return [*sent, *self._retry(self.copies.values())]

    def _install(self, program: Program) -> list[Copy]:
        """Make the copies of a program; return the new copies with a base whose rows arrive at this node."""
        self.programs[program.version] = program
        made = []
        for copy in program.copies:
            stream, place, born = copy
            if self.log.announce(copy) and born != FIRST_VERSION:
                made.append(copy)
            if self.node in place.nodes and copy not in self.copies:
                self.copies[copy] = HeldCopy(self._window(stream))
                if born == FIRST_VERSION:
                    for origin in self.shape.arrival[stream]:
                        self.copies[copy].window.origin(origin, 0, None)
        return made

    def _window(self, stream: int) -> WindowCopy:
        return WindowCopy(stream, self.shape.spans[stream], self.shape.arrival[stream])

    def _request_whole(self) -> list[Sent]:
        """Request the whole base of every copy that is not complete."""
        sent = []
        for copy, state in self.copies.items():
            if not state.window.complete and not state.in_whole:
                state.in_whole = True
                origins = state.window.origins
                sent += [
                    Sent(node, Request(copy, self.node, self._crashes, self.newest, 0, None, state.lost))
                    for node in origins
                ]
        return sent

    def _full(self) -> list[Sent]:
        """Report when the windows of the new program are full."""
        migration = self.migration
        if migration is None or self.node in migration.local:
            return []
        if not all(state.window.complete for state in self.copies.values()):
            return []
        sent = migration.full()
        self._follow()
        return sent

    @handle.register(LocalReady)
    @handle.register(GlobalReady)
    def _(self, message: LocalReady | GlobalReady) -> list[Sent]:
        if message.version > self.newest:
            self._early.append(message)
            return []
        if self.migration is None or message.version != self.migration.version:
            return []
        sent = self.migration.handle(message)
        self._follow()
        return sent

    def _follow(self) -> None:
        if self.migration is not None and self.migration.switched:
            self.current = self.migration.version

    def retire(self, version: int) -> None:
        """Drop a program under which no tuple is processed any longer, with the copies that no other program needs."""
        if version == self.current or version not in self.programs:
            raise StateError(f"node {self.node} cannot retire version {version}; it runs {self.current}")
        del self.programs[version]
        needed = frozenset().union(*(program.copies for program in self.programs.values()))
        self.copies = {copy: state for copy, state in self.copies.items() if copy in needed}
        self.log.keep(needed)

    def settle(self, horizon: int | None) -> list[Sent]:
        """Drop rows that no later tuple can join: those due before `horizon`, in ticks; None = no rows."""
        if horizon is None or horizon == self.horizon:
            return []
        self.horizon = horizon
        for state in self.copies.values():
            state.window.expire(horizon)
        self.log.expire(horizon)
        return self._retry(self.copies.values())

    # Crashes

    def crash(self) -> list[Sent]:
        """Lose all windows and start again: request the windows from the logs of the origins.

        The log of the node's own streams, its instructions and its unfinished work are on disk.
        """
        self._crashes += 1
        for copy, state in self.copies.items():
            self.copies[copy] = HeldCopy(self._window(copy[0]), waiting=state.waiting, lost=True)
        return self._request_whole()

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for state in self.copies.values():
            state.window.check()
        assert self.current in self.programs

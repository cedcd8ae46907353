"""The carrier of a simulated cluster: it runs the processes, and brings what they send from one to another.

The processes are machines, splits, the manager and the union. None of them knows a clock or a link; each returns what
it sends (`messages.py`). The carrier has the clock and the events to come. Events happen in the order of
their times, and those of one time in the order in which they were scheduled, so a run is the same each time.

    a machine is lost           so are its queue, its work and what is on its way to it; it comes back empty
    a manager or split is down  its mail waits, and is delivered in order when it is back
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from bench.simulated.cluster.links import Links
from bench.simulated.cluster.loads import Loads
from bench.simulated.cluster.machine import Done, Machine
from bench.simulated.cluster.manager import Manager
from bench.simulated.cluster.messages import MANAGER, UNION, Commit, Message, Sent, processor
from bench.simulated.cluster.records import MessageLog, MoveLog
from bench.simulated.cluster.split import Split
from bench.simulated.cluster.union import Union


class Carrier:
    """Runs processes on a simulated clock and simulated links.

    machines   those of the nodes, by number; None = it is down
    splits     by address
    restarted  returns the machine of a node that is back, without groups
    """

    def __init__(
        self,
        links: Links,
        machines: Sequence[Machine],
        splits: Mapping[str, Split],
        manager: Manager,
        union: Union,
        restarted: Callable[[int], Machine],
    ) -> None:
        self.time = 0.0
        """The simulated time in seconds."""
        self._links = links
        self._number = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.machines: list[Machine | None] = list(machines)
        self._lives = [0] * len(machines)
        """Per node how often it was lost."""
        self.gone: set[int] = set()
        """Nodes that do not come back."""
        self.splits, self.manager, self.union = splits, manager, union
        self._restarted = restarted
        self.held: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        """Mail of a manager or split that is down."""
        self.log, self.moves, self.loads = MessageLog(), MoveLog(), Loads()

    # The clock

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call at a time that has not passed."""
        self._number += 1
        heappush(self._events, (time, self._number, call, arguments))

    @property
    def idle(self) -> bool:
        """Whether nothing is scheduled."""
        return not self._events

    def run(self, until: float | None = None) -> None:
        """Advance the clock to a time, or until nothing is left to do."""
        while self._events and (until is None or self._events[0][0] <= until):
            self.time, _, call, arguments = heappop(self._events)
            call(*arguments)
        if until is not None:
            self.time = max(self.time, until)

    # Messages

    def send(self, source: str, sent: Sequence[Sent]) -> None:
        """Put what an address sends now on the links."""
        for to, item in sent:
            if isinstance(item, Message) and source == MANAGER:
                self.moves.sent(item, self.manager.moves, self.time)
            nbytes = self.log.size(item)
            arrival = self._links.arrival(source, to, nbytes, self.time)
            self.log.note(item, self.manager.moves, source, to, nbytes, self.time, arrival)
            if to.startswith("node "):
                node = int(to[5:])
                self.at(arrival, self._put, to, item, node, self._lives[node])
            else:
                self.at(arrival, self.when_up, to, self._receive, source, to, item)

    def when_up(self, process: str, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function now, or when the manager or split that it is about is back."""
        if process in self.held:
            self.held[process].append((call, arguments))
        else:
            call(*arguments)

    def tell(self, event: str, *arguments: Any) -> None:
        """Tell the manager what has happened to a node: the name of a method of it, and its arguments."""
        self.when_up(MANAGER, lambda: self.send(MANAGER, getattr(self.manager, event)(*arguments)))

    def _receive(self, source: str, to: str, item: Any) -> None:
        """Have the manager, the union or a split receive what has arrived."""
        if to == MANAGER:
            self.send(MANAGER, self.manager.receive(source, item))
        elif to == UNION:
            if isinstance(item, Commit):
                self.union.commit(item)
            else:
                self.send(UNION, self.union.receive(item))
        else:
            if isinstance(item, Message):
                self.moves.at_split(item, self.time)
            self.send(to, self.splits[to].receive(item))

    # Machines

    def _put(self, to: str, item: Any, node: int, life: int) -> None:
        """Queue what has arrived at a node, unless the node was lost since it was sent."""
        machine = self.machines[node]
        if machine is None or self._lives[node] != life:
            return
        sent = machine.put(item)
        if machine.busy:
            # What the present turn sends comes first: links keep the order.
            machine.after += sent
        else:
            self.send(to, sent)
        self._wake(machine)

    def _wake(self, machine: Machine) -> None:
        """Begin a turn of a machine that has something to do, unless one is under way."""
        if machine.busy:
            return
        done = machine.turn()
        if done is None:
            return
        machine.busy = True
        self.moves.worked(machine.number, done, self.manager.moves, self.time)
        self.loads.turned(machine, done)
        self.at(self.time + done.seconds, self._finished, machine, done)

    def _finished(self, machine: Machine, done: Done) -> None:
        """End a turn: send what came of it."""
        if self.machines[machine.number] is not machine:
            return  # it was lost meanwhile, and what it would have sent
        machine.busy = False
        self.moves.finished(done, self.time)
        sent, machine.after = [*done.sent, *machine.after], []
        self.send(processor(machine.number), sent)
        self._wake(machine)

    # Losses

    def lose_node(self, node: int, restart: float | None) -> None:
        """Lose a node that runs. It is back after some seconds; None = never."""
        self.machines[node] = None
        self._lives[node] += 1
        self.tell("lost", node)
        if restart is None:
            self.gone.add(node)
            self.tell("removed", node, tuple(i for i, one in enumerate(self.machines) if one is not None))
        else:
            self.at(self.time + restart, self._restart, node)

    def _restart(self, node: int) -> None:
        self.machines[node] = self._restarted(node)
        self.tell("restarted", node)

    def hold(self, process: str, restart: float) -> None:
        """Lose the manager or a split that runs. It is back after some seconds."""
        self.held[process] = []
        self.at(self.time + restart, self._back, process)

    def _back(self, process: str) -> None:
        mail = self.held.pop(process)
        if process == MANAGER:
            self.manager, sent = self.manager.replayed()
            self.send(MANAGER, sent)
        for call, arguments in mail:
            call(*arguments)

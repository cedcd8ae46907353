"""The carrier of a simulated cluster, which runs the processes and delivers their messages.

The processes are machines, splits, the manager and the union. No process knows a clock or a link; each process returns
the messages that it sends (`messages.py`). The carrier has the clock and the scheduled events. Events are processed in
the order of their times, and events of the same time in the order in which they were scheduled, so a run is repeatable.

    a machine is lost           its queue, its work and messages in transit to it are lost; the machine returns empty
    a manager or split is down  its messages wait, and are delivered in order when it is back
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from bench.simulated.cluster.links import Links
from bench.simulated.cluster.loads import Loads
from bench.simulated.cluster.machine import Machine, MachineTurn
from bench.simulated.cluster.manager import Manager
from bench.simulated.cluster.messages import MANAGER, UNION, Message, ResultCommit, Sent, processor
from bench.simulated.cluster.records import MessageLog, MoveLog
from bench.simulated.cluster.split import SplitOperator
from bench.simulated.cluster.union import Union


class Carrier:
    """Runs processes on a simulated clock and simulated links.

    machines   machines of the nodes, by number; None = the node is down
    splits     splits by address
    restarted  returns the machine of a node that is back, without groups
    """

    def __init__(
        self,
        links: Links,
        machines: Sequence[Machine],
        splits: Mapping[str, SplitOperator],
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
        """Per node the number of its losses."""
        self.gone: set[int] = set()
        """Nodes that do not return."""
        self.splits, self.manager, self.union = splits, manager, union
        self._restarted = restarted
        self.held: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        """Messages to a manager or split that is down."""
        self.log, self.moves, self.loads = MessageLog(), MoveLog(), Loads()

    # The clock

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call at a time that has not passed."""
        self._number += 1
        heappush(self._events, (time, self._number, call, arguments))

    @property
    def idle(self) -> bool:
        """Whether no event is scheduled."""
        return not self._events

    def run(self, until: float | None = None) -> None:
        """Advance the clock to a time, or until no event is left."""
        while self._events and (until is None or self._events[0][0] <= until):
            self.time, _, call, arguments = heappop(self._events)
            call(*arguments)
        if until is not None:
            self.time = max(self.time, until)

    # Messages

    def send(self, source: str, sent: Sequence[Sent]) -> None:
        """Send the messages of an address over the links."""
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
        """Call a function now, or when the manager or split that it concerns is back."""
        if process in self.held:
            self.held[process].append((call, arguments))
        else:
            call(*arguments)

    def tell(self, event: str, *arguments: Any) -> None:
        """Report an event of a node to the manager: the name of a method of the manager, and its arguments."""
        self.when_up(MANAGER, lambda: self.send(MANAGER, getattr(self.manager, event)(*arguments)))

    def _receive(self, source: str, to: str, item: Any) -> None:
        """Pass an arrived message to the manager, the union or a split."""
        if to == MANAGER:
            self.send(MANAGER, self.manager.receive(source, item))
        elif to == UNION:
            if isinstance(item, ResultCommit):
                self.union.commit(item)
            else:
                self.send(UNION, self.union.receive(item))
        else:
            if isinstance(item, Message):
                self.moves.at_split(item, self.time)
            self.send(to, self.splits[to].receive(item))

    # Machines

    def _put(self, to: str, item: Any, node: int, losses: int) -> None:
        """Queue an arrived message at a node, unless the node was lost after the message was sent."""
        machine = self.machines[node]
        if machine is None or self._lives[node] != losses:
            return
        sent = machine.put(item)
        if machine.busy:
            # Messages of the current turn come first, because links keep the order.
            machine.after += sent
        else:
            self.send(to, sent)
        self._wake(machine)

    def _wake(self, machine: Machine) -> None:
        """Begin a turn of a machine that has work, unless a turn is running."""
        if machine.busy:
            return
        done = machine.turn()
        if done is None:
            return
        machine.busy = True
        self.moves.worked(machine.number, done, self.manager.moves, self.time)
        self.loads.turned(machine, done)
        self.at(self.time + done.seconds, self._finished, machine, done)

    def _finished(self, machine: Machine, done: MachineTurn) -> None:
        """End a turn: send its messages."""
        if self.machines[machine.number] is not machine:
            return  # the machine was lost in the meantime, and its messages with it
        machine.busy = False
        self.moves.finished(done, self.time)
        sent, machine.after = [*done.sent, *machine.after], []
        self.send(processor(machine.number), sent)
        self._wake(machine)

    # Losses

    def lose_node(self, node: int, restart: float | None) -> None:
        """Lose a node that runs. The node is back after some seconds; None = never."""
        self.machines[node] = None
        self._lives[node] += 1
        self.tell("lost", node)
        if restart is None:
            self.gone.add(node)
            self.tell("removed", node, tuple(i for i, machine in enumerate(self.machines) if machine is not None))
        else:
            self.at(self.time + restart, self._restart, node)

    def _restart(self, node: int) -> None:
        self.machines[node] = self._restarted(node)
        self.tell("restarted", node)

    def hold(self, process: str, restart: float) -> None:
        """Lose the manager or a split that runs. The process is back after some seconds."""
        self.held[process] = []
        self.at(self.time + restart, self._back, process)

    def _back(self, process: str) -> None:
        mail = self.held.pop(process)
        if process == MANAGER:
            self.manager, sent = self.manager.replayed()
            self.send(MANAGER, sent)
        for call, arguments in mail:
            call(*arguments)

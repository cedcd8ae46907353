"""A simulated machine: a processor with a queue that it works off at its speed."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from bench.simulated.cluster.messages import Message, RowsMessage, Sent
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.processor import Processor
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.work import Costs
from eddy.errors import InputError


class Node(NamedTuple):
    """A machine of the cluster.

    plan, strategy, policy   options of its engines, as in `eddy.Runtime`; None = the defaults
    speed                    work per second, relative to the machine for which the costs hold
    """

    plan: str | None = None
    strategy: str = "jisc"
    policy: str | None = None
    speed: float = 1.0


class MachineTurn(NamedTuple):
    """The outcome of one turn of a machine: its duration, its messages, and the seconds by group."""

    seconds: float
    sent: list[Sent]
    by_group: dict[int, float]
    rows: list[RowsMessage]
    message: Message | None


class Machine:
    """One node while it runs; it is replaced when it is lost.

    turn_rows   rows that it joins before it handles control messages again
    """

    def __init__(
        self,
        query: Partitioned,
        number: int,
        setting: EngineSetting,
        speed: float,
        costs: Costs,
        turn_rows: int,
        owners: list[int],
    ) -> None:
        if not speed > 0:
            raise InputError(f"node {number}: speed={speed}; give a speed above 0")
        self.number, self.speed, self.costs, self.turn_rows = number, speed, costs, turn_rows
        self.processor = Processor(query, number, setting, owners)
        self.processor.worked()
        self.messages: deque[Message] = deque()
        self.queue: deque[RowsMessage] = deque()
        self.busy = False
        self.after: list[Sent] = []
        """Messages that are sent after the results of the current turn."""

    @property
    def waiting_rows(self) -> int:
        """The number of rows in the queue."""
        return sum(rows.n_rows for rows in self.queue)

    def put(self, item: Message | RowsMessage) -> list[Sent]:
        """Queue an arriving message; return rows that are forwarded to another node at once."""
        if isinstance(item, Message):
            self.messages.append(item)
            return []
        rows, sent = self.processor.divert(item)
        self.queue.append(rows)
        return sent

    def turn(self) -> MachineTurn | None:
        """Do a part of the work: a control message, or queued rows; None without work."""
        message, handled = None, []
        sent: list[Sent] = []
        if self.messages:
            message = self.messages.popleft()
            sent = self.processor.receive(message)
            if message.kind == "SwitchPartitions":
                queue, self.queue = self.queue, deque()
                for rows in queue:
                    sent += self.put(rows)
        elif self.queue:
            taken = 0
            while self.queue and taken < self.turn_rows:
                rows = self.queue.popleft()
                taken += rows.n_rows
                handled.append(rows)
                sent += self.processor.handle(rows)
            sent += self.processor.flush()
        else:
            return None
        by_group = {g: self.costs.seconds(work) / self.speed for g, work in self.processor.worked().items()}
        seconds = sum(by_group.values()) + (self.costs.message / self.speed if message else 0.0)
        return MachineTurn(seconds, sent, by_group, handled, message)

"""The tasks' side of a meeting, in which the tasks of a micro-batch get their work. `driver/meeting.py` explains it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any


def connection_of(endpoint: socket.socket) -> Connection:
    """Return a connection that takes over a socket and sends each message at once."""
    # By default a second short message waits until the other side acknowledges the first one, which takes 40 ms.
    endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(endpoint.detach())


@dataclass(frozen=True)
class MeetingPlace:
    """The place of all meetings of a join.

    address  host and port of the driver
    key      secret of the join; Spark sends it to the workers, which write it to no file
    """

    address: tuple[str, int]
    key: bytes = field(repr=False)

    @contextlib.contextmanager
    def seat(self, meeting: str, task: int) -> Iterator[Seat]:
        """Join a meeting until the work of the task is done.

        Raises TurnedAwayError if the meeting is over, because another task failed before the decision, the query was
        stopped, or the driver has ended. The methods of the seat raise the same error.
        """
        try:
            opened = socket.create_connection(self.address)
            host = opened.getsockname()[0]
            connection = connection_of(opened)
        except OSError as problem:
            raise TurnedAwayError from problem
        with connection:
            with turned_away():
                answer_challenge(connection, self.key)
                deliver_challenge(connection, self.key)
                connection.send((meeting, task))
                orders = connection.recv()
            yield Seat(connection, orders, meeting, task, host)


class TurnedAwayError(Exception):
    """The meeting is over."""


@dataclass(frozen=True)
class TaskTrace:
    """The last message of a task that fails: its error with the trace."""

    text: str


class Seat:
    """The connection of a task in a meeting.

    orders   the first message of the driver
    meeting  the name of the meeting
    task     the number of the task
    host     the address of this host, as the driver sees it
    """

    def __init__(self, connection: Connection, orders: Any, meeting: str, task: int, host: str) -> None:
        self._connection = connection
        self.orders = orders
        self.meeting, self.task, self.host = meeting, task, host
        self.waited_s = 0.0
        """Seconds in which the task waited for others."""

    def say(self, said: Any) -> Any:
        """Send the report of this task, wait for the other tasks, and return the driver's answer."""
        with turned_away():
            self._connection.send(said)
            began = time.monotonic()
            answer = self._connection.recv()
        self.waited_s += time.monotonic() - began
        return answer

    def check(self) -> None:
        """Raise TurnedAwayError if the driver has disconnected. A task calls this while it waits for other tasks."""
        with turned_away():
            if self._connection.poll():
                raise EOFError  # between two messages of the task, the driver sends no message

    def fail(self, trace: str) -> None:
        """Tell the driver why this task fails."""
        with contextlib.suppress(OSError):
            self._connection.send(TaskTrace(trace))

    def leave(self) -> None:
        """Check after the work that the driver still waits for this task; raise TurnedAwayError otherwise."""
        self.say(None)


@contextlib.contextmanager
def turned_away() -> Iterator[None]:
    """Turn errors of a connection in the body into TurnedAwayError."""
    try:
        yield
    except (EOFError, OSError) as problem:
        raise TurnedAwayError from problem

"""The driver's side of a meeting: the tasks of a micro-batch get orders, report their engines and their logged rows,
and get their work.

The driver distributes the work when all tasks have reported. Spark's `BarrierTaskContext.allGather` takes about a
second for this, because it polls. Here each task connects to the driver, and the exchange takes about a millisecond.
Both sides prove that they know the secret of the join before either side reads a message of the other
(`multiprocessing.connection`).

If a task ends before its work is done, the meeting is over, and the driver refuses the other tasks, which would
otherwise wait for ever. A task stays connected until its work is done; the driver refuses a task for which it no longer
waits.
Each meeting has its own name, so the driver also refuses a task of an earlier meeting, which Spark has given up.

Tasks get the name of the meeting as a property of their Spark job, and all other orders in the meeting. So Spark plans
and pickles the job only once, which takes 15 ms.

Outside of a barrier stage, Spark may start some of the tasks only, repeat a task, or run a copy of a slow task. So a
meeting may have a limit on the time in which all tasks come. A second task with the same number gets no work. If Spark
copies slow tasks, the copy waits until the job has ended, since Spark takes the report that comes first; otherwise the
first task is lost, and the meeting is in vain.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from eddy.spark.streaming.worker.meeting import MeetingPlace, TaskTrace, connection_of

Decide = Callable[[Sequence[Any]], Sequence[Any]]
"""Takes the reports of the tasks, in the order of their numbers; returns the answer to each task."""
_PAUSE_S = 0.1
COPY_S = 10.0
"""Seconds after the end of a task in which Spark gets its report."""


@dataclass
class _Round:
    """One meeting.

    orders    the first message to each task
    said      number of a task -> its report
    sockets   number of a task -> its socket and its connection
    left      number of a task -> whether it has disconnected
    ended     whether the job of the tasks has ended
    problem   the error that `decide` raised, if any
    trace     the error of the first task that said why it fails
    patience  seconds after the first task in which all must come, None = no limit
    in_vain   called once if the meeting is in vain before the job has ended
    late      whether the meeting ended because not all tasks came in time
    over      whether the decision was made, or can no longer be made
    """

    name: str
    orders: Sequence[Any]
    decide: Decide
    patience: float | None
    in_vain: Callable[[], None] | None
    said: dict[int, Any] = field(default_factory=dict)
    sockets: dict[int, tuple[socket.socket, Connection]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    left: dict[int, threading.Event] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    late: bool = False
    problem: BaseException | None = None
    trace: str | None = None
    over: bool = False


class TooFewTasksError(Exception):
    """Not all tasks of a meeting came in time.

    came  the number of tasks that came
    """

    def __init__(self, came: int) -> None:
        super().__init__(f"only {came} tasks came in time")
        self.came = came


class Meetings:
    """The driver's side of all meetings of one join: a server on a port of this host.

    host    address at which the workers reach the driver
    key     secret of the join
    bind    address of this host to listen on; None = `host`
    copies  whether Spark runs copies of slow tasks
    """

    def __init__(self, host: str, key: bytes, bind: str | None = None, copies: bool = False) -> None:
        self._key, self._copies = key, copies
        self._closed = False
        self._server = socket.create_server((bind or host, 0), backlog=1024)
        self.place = MeetingPlace((host, self._server.getsockname()[1]), key)
        """The address at which the tasks meet."""
        self._lock = threading.Lock()
        self._rounds: dict[str, _Round] = {}
        threading.Thread(target=self._accept, name="eddy meetings", daemon=True).start()

    @contextlib.contextmanager
    def hold(
        self,
        orders: Sequence[Any],
        decide: Decide,
        patience_s: float | None = None,
        in_vain: Callable[[], None] | None = None,
    ) -> Iterator[str]:
        """Hold a meeting of one task for each of `orders`, and yield its name; the body of the `with` runs the tasks.

        patience_s  seconds after the first task in which all must come, None = no limit
        in_vain     called once, in any thread, if the meeting is in vain while the body runs

        If `decide` raises an error, the driver refuses the tasks and raises the error after the body; likewise a
        RuntimeError with the trace of a task that said why it fails (`Seat.fail`). If not all tasks
        come in time, the driver refuses those that came, and raises TooFewTasksError after the body.
        """
        current = _Round(uuid.uuid4().hex, orders, decide, patience_s, in_vain)
        with self._lock:
            self._rounds[current.name] = current
        try:
            yield current.name
        finally:
            with self._lock:
                del self._rounds[current.name]
                current.in_vain = None
            self._end(current, decided=True)
            current.ended.set()
            if current.problem is not None:
                raise current.problem
            if current.trace is not None:
                raise RuntimeError(current.trace)
            if current.late:
                raise TooFewTasksError(len(current.sockets))

    def give_up(self, name: str) -> None:
        """End a meeting, some of whose tasks are lost."""
        with self._lock:
            current = self._rounds.get(name)
        if current is not None:
            self._end(current, decided=True)

    def close(self) -> None:
        """Close the port. Idempotent."""
        self._closed = True
        # A thread that waits in `accept` does not notice `close` alone.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._server.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_PAUSE_S)  # for example too many open files; Spark repeats tasks that fail for this reason
                continue
            threading.Thread(target=self._serve, args=(accepted,), name="eddy meeting", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        """Serve one task, from its first message until it disconnects."""
        current: _Round | None = None
        left: threading.Event | None = None
        # Shutting the socket down wakes a thread that reads from the connection; closing the connection would not.
        with accepted, connection_of(accepted.dup()) as connection:
            try:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                name, task = connection.recv()
                with self._lock:
                    current = self._rounds.get(name)
                    first = None if current is None else current.left.get(task)
                    if current is None or (current.over and first is None):
                        return
                    if first is None:
                        left = current.left[task] = threading.Event()
                        current.sockets[task] = accepted, connection
                        limited = current.patience is not None and len(current.sockets) == 1
                if first is not None:
                    if self._copies:
                        copied, current = current, None  # the end of a copy does not end the meeting
                        first.wait()
                        copied.ended.wait(COPY_S)
                    return
                if limited:
                    threading.Thread(target=self._limit, args=(current,), name="eddy limit", daemon=True).start()
                connection.send(current.orders[task])
                said = self._heard(connection, current)
                with self._lock:
                    current.said[task] = said
                    complete = len(current.said) == len(current.orders) and not current.over
                if complete:
                    self._decide(current)
                self._heard(connection, current)  # the work is done
                with self._lock:
                    current.done.add(task)
                    waiting = current.name in self._rounds
                if waiting:
                    connection.send(None)
                    connection.recv_bytes()
            except (AuthenticationError, EOFError, OSError):
                pass
            finally:
                if left is not None:
                    left.set()
                if current is not None:
                    self._end(current, decided=task not in current.done)

    def _heard(self, connection: Connection, current: _Round) -> Any:
        """Return the next message of a task. Raises EOFError if it is the last one of a task that fails."""
        message = connection.recv()
        if isinstance(message, TaskTrace):
            with self._lock:
                current.trace = current.trace or message.text
            raise EOFError
        return message

    def _limit(self, current: _Round) -> None:
        """End a meeting to which not all tasks come in time."""
        current.ended.wait(current.patience)
        with self._lock:
            if len(current.sockets) < len(current.orders) and not current.over:
                current.late = current.over = True
        if current.late:
            self._end(current, decided=True)

    def _decide(self, current: _Round) -> None:
        try:
            answers = current.decide([current.said[task] for task in range(len(current.orders))])
        except BaseException as problem:
            current.problem = problem
            self._end(current)
            return
        with self._lock:
            current.over = True
        for task, answer in enumerate(answers):
            # If a task has died meanwhile, Spark reports the reason.
            with contextlib.suppress(OSError):
                current.sockets[task][1].send(answer)

    def _end(self, current: _Round, decided: bool = False) -> None:
        """Refuse the tasks of a meeting that is in vain.

        decided  whether the meeting is in vain even if the decision was made
        """
        with self._lock:
            if current.over and not decided:
                return
            current.over = True
            sockets = [connection for connection, _ in current.sockets.values()]
            in_vain, current.in_vain = current.in_vain, None
        if in_vain is not None:
            in_vain()
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

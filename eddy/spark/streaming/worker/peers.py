"""The other tasks of a meeting. Tasks send rows to each other in exchanges, in which all tasks take part.

Each task listens on its own port during a meeting; the driver sends the addresses of all tasks to each task. A task
sends over its own connection to each other task, and has a thread for each connection from another task. So two tasks
that send to each other never wait for each other, and a foreign process that connects and sends nothing delays no task.
Both sides prove that they know the secret of the join, and name the meeting: a task of an earlier meeting is refused.

An exchange is over for a task when every task has sent its END. If a task dies, the others are refused
(`meeting.TurnedAwayError`), like all tasks that wait in a meeting. Received messages wait in memory. If the messages
for a node exceed the memory that the node has left, the task drops the messages and fails.

    header   int32 exchange, kind, code, node
    body     body of an Arrow record batch, whose schema both sides know; empty if the kind is END
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import NamedTuple

import pyarrow as pa

from eddy.spark.streaming.worker.meeting import Seat, TurnedAwayError, connection_of, turned_away

ROWS, BASE, TUPLES, RESULTS, GROUPS, END = range(6)
"""Kinds of messages: rows of the micro-batch, rows of earlier ones, intermediate tuples; results for operators, groups
of such results; end of the exchange."""
_HEADER = struct.Struct("<iiii")
_LOOK_S = 0.5
"""Seconds after which a waiting task checks again whether the driver still waits for it."""


class Parcel(NamedTuple):
    """Rows or tuples that a node of this task has received.

    kind   ROWS, BASE, TUPLES, RESULTS or GROUPS
    code   number of the stream and class, or of the head, of the rows or tuples; of results and groups, that of their
           operator
    node   number of the node; of results and groups, -1 - the number of the part
    rows   the record batch if this task sent it; otherwise the body of the record batch
    """

    kind: int
    code: int
    node: int
    rows: pa.RecordBatch | pa.Buffer

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows."""
        return self.rows if isinstance(self.rows, pa.RecordBatch) else pa.ipc.read_record_batch(self.rows, schema)


class NoRoomError(Exception):
    """The messages that wait for a node take more bytes than the node has left.

    n_bytes      bytes of all waiting messages
    kind, code   kind and code of the messages that take most of them
    """

    def __init__(self, node: int, n_bytes: int, kind: int, code: int) -> None:
        super().__init__(node, n_bytes, kind, code)
        self.node, self.n_bytes, self.kind, self.code = node, n_bytes, kind, code


class Peers:
    """The other tasks of a meeting, from a task's point of view. A context manager."""

    def __init__(self, seat: Seat, key: bytes) -> None:
        self._seat, self._key = seat, key
        self._server = socket.create_server((seat.host, 0), backlog=1024)
        self.address: tuple[str, int] = (seat.host, self._server.getsockname()[1])
        """The address at which this task listens."""
        self.sent = 0
        """Bytes of all bodies that went to other tasks."""
        self.waited_s = 0.0
        """Seconds in which this task waited for the messages of others."""
        self._to: dict[int, Connection] = {}
        self._change = threading.Condition()
        self._inbox: dict[int, list[Parcel]] = defaultdict(list)
        self._ended: dict[int, int] = defaultdict(int)
        self._rooms: Mapping[int, int] = {}
        self._waiting: dict[int, Counter[tuple[int, int, int]]] = defaultdict(Counter)
        """Node with a limit -> bytes of the messages that wait for it, by (exchange, kind, code)."""
        self._refused: NoRoomError | None = None
        self._lost = self._closed = False
        self._exchanges = 0

    def meet(self, addresses: Sequence[tuple[str, int]], exchanges: int) -> None:
        """Connect to all other tasks. Call it once.

        addresses   address at which each task listens, by the number of the task
        exchanges   number of exchanges in this meeting
        """
        began, self._exchanges = time.monotonic(), exchanges
        others = [number for number in range(len(addresses)) if number != self._seat.task]
        threading.Thread(target=self._accept, name="eddy peers", daemon=True).start()
        for number in others:
            with turned_away():
                connection = connection_of(socket.create_connection(addresses[number]))
                self._to[number] = connection
                while not connection.poll(_LOOK_S):
                    self._look()
                answer_challenge(connection, self._key)
                deliver_challenge(connection, self._key)
                connection.send_bytes(self._seat.meeting.encode())
        self.waited_s += time.monotonic() - began

    def limit(self, rooms: Mapping[int, int]) -> None:
        """Set the bytes that may wait for each node from now on. Raises NoRoomError if more bytes wait already."""
        with self._change:
            self._rooms = rooms
            for node in rooms:
                self._check_room(node)
        self._give_up()

    def send(self, exchange: int, task: int, kind: int, code: int, node: int, rows: pa.RecordBatch) -> None:
        """Send rows to a node of a task, which may be this one. Raises TurnedAwayError or NoRoomError."""
        if task == self._seat.task:
            self._put(exchange, Parcel(kind, code, node, rows), rows.nbytes)
        self._give_up()
        if task == self._seat.task:
            return
        body = rows.serialize()
        self.sent += body.size
        with turned_away():
            self._to[task].send_bytes(_HEADER.pack(exchange, kind, code, node))
            self._to[task].send_bytes(memoryview(body))

    def end(self, exchange: int) -> None:
        """Tell all tasks that this task sends no more messages in an exchange."""
        for connection in self._to.values():
            with turned_away():
                connection.send_bytes(_HEADER.pack(exchange, END, 0, 0))

    def receive(self, exchange: int) -> list[Parcel]:
        """Wait until the exchange is over; return what this task received. Raises TurnedAwayError or NoRoomError."""
        began = time.monotonic()
        with self._change:
            while self._ended[exchange] < len(self._to):
                if self._lost or self._refused or not self._change.wait(_LOOK_S):
                    self._look()
            self.waited_s += time.monotonic() - began
            self._give_up()
            return self._inbox.pop(exchange, [])

    def let_go(self, exchange: int) -> None:
        """Record that the messages of an exchange no longer take memory."""
        with self._change:
            for node, waiting in self._waiting.items():
                self._waiting[node] = Counter({what: size for what, size in waiting.items() if what[0] != exchange})

    def _put(self, exchange: int, parcel: Parcel, n_bytes: int) -> None:
        """Keep a received message, unless its node has no memory left for it."""
        with self._change:
            if parcel.node in self._rooms:
                self._waiting[parcel.node][exchange, parcel.kind, parcel.code] += n_bytes
                self._check_room(parcel.node)
            if self._refused is None:
                self._inbox[exchange].append(parcel)
            self._change.notify_all()

    def _check_room(self, node: int) -> None:
        waiting = self._waiting[node]
        if self._refused is None and waiting.total() > self._rooms[node]:
            ((_, kind, code), _), *_ = waiting.most_common(1)
            self._refused = NoRoomError(node, waiting.total(), kind, code)

    def _give_up(self) -> None:
        if self._refused is not None:
            raise self._refused

    def _look(self) -> None:
        """Raise NoRoomError, or TurnedAwayError if another task is lost or the driver no longer waits."""
        self._give_up()
        if self._lost:
            raise TurnedAwayError
        self._seat.check()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        # A thread that waits in `accept` does not notice `close` alone.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._to.values():
            connection.close()

    def _accept(self) -> None:
        """Accept connections until this task has met."""
        while True:
            try:
                accepted, _ = self._server.accept()
            except OSError:
                if not self._closed:  # such as too many open files: no other task could connect
                    self._lose()
                return
            threading.Thread(target=self._serve, args=(accepted,), name="eddy peer", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        """Receive from another task; refuse a peer that does not know the secret or the meeting."""
        with connection_of(accepted) as connection:
            try:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                if connection.recv_bytes() == self._seat.meeting.encode():
                    self._read(connection)
            except (AuthenticationError, EOFError, OSError):
                return

    def _read(self, connection: Connection) -> None:
        """Receive the messages of another task until it has ended its last exchange."""
        exchange = kind = -1
        try:
            while kind != END or exchange < self._exchanges - 1:
                exchange, kind, code, node = _HEADER.unpack(connection.recv_bytes())
                if kind != END:
                    body = pa.py_buffer(connection.recv_bytes())
                    self._put(exchange, Parcel(kind, code, node, body), body.size)
                    continue
                with self._change:
                    self._ended[exchange] += 1
                    self._change.notify_all()
        except (EOFError, OSError, struct.error):
            self._lose()

    def _lose(self) -> None:
        """Wake this task from any wait, because the other tasks can no longer be reached."""
        with self._change:
            self._lost = True
            self._change.notify_all()

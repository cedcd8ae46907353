"""Records of a simulation: the messages of moves, and the moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bench.simulated.cluster.machine import MachineTurn
from bench.simulated.cluster.messages import END, STEPS, Message, ResultCommit, RowsMessage
from bench.simulated.cluster.moves import Move

MESSAGE_BYTES = 64
"""Bytes of a message without its rows and groups."""
MESSAGES = pa.schema(
    [
        ("move", pa.int64()),
        ("how", pa.string()),
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("from", pa.string()),
        ("to", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sent", pa.float64()),
        ("seconds", pa.float64()),
    ]
)
"""Columns of `ClusterSimulation.messages`.

step      number of the protocol's step (`STEPS`); flags and forwarded rows have the step of the
          message that caused them
rows      rows in the message; bytes includes the rows and stored states
sent      time at which the message was sent
seconds   time until the message arrived, or would have arrived at a lost node
"""
MOVES = pa.schema(
    [
        ("move", pa.int64()),
        ("how", pa.string()),
        ("groups", pa.list_(pa.int64())),
        ("sender", pa.int64()),
        ("receiver", pa.int64()),
        ("state", pa.string()),
        ("asked", pa.float64()),
        ("began", pa.float64()),
        ("ended", pa.float64()),
        ("pause", pa.float64()),
        ("sender_work", pa.float64()),
        ("receiver_work", pa.float64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("predicted_gain", pa.float64()),
        ("measured_gain", pa.float64()),
        ("predicted_cost", pa.float64()),
    ]
)
"""Columns of `ClusterSimulation.history`.

state          "waiting", "running", "done", "nothing" (no group to move) or "aborted" (by a loss; the map is the old
               one, or a recovery has finished the move)
asked … ended  times; `ended` is the time of the last message
pause          longest time during which rows of a moved group waited for the move: MSLB from the first split that holds
               rows until the receiver has joined those of the last one; JIT from the stop of the sender until the
               receiver has all; PTLB 0
sender_work    seconds that the sender worked for these groups and handled messages since the request
receiver_work  seconds that the receiver worked for these groups until the end of the move
messages       number of messages; bytes: their bytes
predicted_gain smoothed load that the sender was to lose, for moves by a policy (`Balance`), else null
measured_gain  load of the sender in the period before the decision, minus its load in the first whole period after the
               end of the move, other moves and changes of the input included
predicted_cost seconds of work of the move at speed 1; sender_work and receiver_work include
               the rows that the nodes would have joined anyway
"""

GROUPS = pa.schema(
    [
        ("group", pa.int64()),
        ("node", pa.int64()),
        ("rows", pa.int64()),
        ("entries", pa.int64()),
        ("waiting", pa.int64()),
        ("joined", pa.list_(pa.int64())),
        ("work", pa.float64()),
    ]
)
"""Columns of `ClusterSimulation.groups`.

node     the node that runs the group
rows     rows in its windows, entries: entries of its stored states; in both copies during a PTLB move
waiting  rows in the queues of nodes
joined   rows joined so far, by stream
work     seconds of work so far at speed 1, at all nodes
"""


class MessageLog:
    """All messages that belong to moves."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def size(self, item: object) -> int:
        """Return the bytes of a message of any kind."""
        if isinstance(item, Message):
            return MESSAGE_BYTES + 8 * len(item.groups) + item.nbytes
        if isinstance(item, RowsMessage):
            return MESSAGE_BYTES + sum(entry.rows.nbytes for entry in item.entries if entry.rows is not None)
        assert isinstance(item, ResultCommit)
        return MESSAGE_BYTES + (0 if item.results is None else item.results.nbytes)

    def note(
        self, item: object, moves: Sequence[Move], source: str, to: str, nbytes: int, now: float, arrival: float
    ) -> None:
        """Record a message, if it belongs to a move."""
        if isinstance(item, Message):
            self._row(item.move, item.kind, moves, source, to, (item.rows, nbytes, now, arrival - now))
        elif isinstance(item, RowsMessage):
            for move in sorted({entry.move for entry in item.entries if entry.end}):
                self._row(move, END, moves, source, to, (0, 0, now, arrival - now))

    def _row(self, number: int, kind: str, moves: Sequence[Move], source: str, to: str, rest: tuple[Any, ...]) -> None:
        move = moves[number]
        names = STEPS[move.how]
        step = names.index(kind) + 1 if kind in names else move.step
        self.rows.append((number, move.how, step, kind, source, to, *rest))

    def table(self) -> pa.Table:
        """Return the messages as a table."""
        columns = zip(*self.rows, strict=True) if self.rows else [[] for _ in MESSAGES]
        return pa.Table.from_arrays(
            [pa.array(list(column), field.type) for column, field in zip(columns, MESSAGES, strict=True)],
            schema=MESSAGES,
        )


@dataclass
class _Times:
    asked: float = 0.0
    began: float | None = None
    ended: float | None = None
    stopped: float | None = None
    resumed: float | None = None
    sender_work: float = 0.0
    receiver_work: float = 0.0
    predicted_gain: float | None = None
    measured_gain: float | None = None
    predicted_cost: float | None = None
    before: float = 0.0


@dataclass
class MoveLog:
    """Times and work of all moves."""

    times: dict[int, _Times] = field(default_factory=lambda: defaultdict(_Times))
    _senders: dict[tuple[int, int], int] = field(default_factory=dict)
    _receivers: dict[tuple[int, int], int] = field(default_factory=dict)
    _loads: dict[int, float] = field(default_factory=dict)
    """Load of each node in the last period."""
    _period: float = 0.0
    """The end of the last period."""
    _open: dict[int, int] = field(default_factory=dict)
    """Sender of each move whose gain is not measured yet."""

    def asked(self, move: int, now: float) -> None:
        """Record the time of a request."""
        self.times[move].asked = now

    def sent(self, message: Message, moves: Sequence[Move], now: float) -> None:
        """Record a message of the manager."""
        times = self.times[message.move]
        times.began = now if times.began is None else times.began
        times.ended = now
        move = moves[message.move]
        for group in move.groups if move.epochs else ():
            self._senders[move.sender, group] = message.move
            self._receivers[move.receiver, group] = message.move

    def at_split(self, message: Message, now: float) -> None:
        """Record that a split takes a message."""
        times = self.times[message.move]
        times.ended = now
        if message.kind == "DeactivatePartitions" and times.stopped is None:
            times.stopped = now

    def worked(self, node: int, done: MachineTurn, moves: Sequence[Move], now: float) -> None:
        """Record the beginning of a node's turn."""
        for group, seconds in done.by_group.items():
            number = self._senders.get((node, group))
            if number is not None:
                self.times[number].sender_work += seconds
            number = self._receivers.get((node, group))
            if number is not None and moves[number].state == "running":
                self.times[number].receiver_work += seconds
        if done.message is not None:
            times, move = self.times[done.message.move], moves[done.message.move]
            handled = done.seconds - sum(done.by_group.values())
            times.sender_work += handled if node == move.sender else 0.0
            times.receiver_work += handled if node == move.receiver else 0.0
            if done.message.kind == "SwitchPartitions":
                times.stopped = now

    def finished(self, done: MachineTurn, now: float) -> None:
        """Record the end of a node's turn."""
        moves = {entry.move for rows in done.rows for entry in rows.entries if entry.open == "state"}
        moves |= {item.move for _, item in done.sent if isinstance(item, Message) and item.kind == "Switched"}
        for move in moves:
            self.times[move].resumed = now
        if done.message is not None:
            self.times[done.message.move].ended = now
        for rows in done.rows:
            for entry in rows.entries:
                if entry.move >= 0:
                    self.times[entry.move].ended = now

    def measured(self, owners: Sequence[int], loads: Mapping[int, float], moves: Sequence[Move], now: float) -> None:
        """Record the loads of all groups in a period that ends now."""
        self._loads = defaultdict(float)
        for group, load in loads.items():
            self._loads[owners[group]] += load
        for number, sender in list(self._open.items()):
            times = self.times[number]
            if moves[number].state != "running" and times.ended is not None and times.ended <= self._period:
                times.measured_gain = times.before - self._loads[sender]
                del self._open[number]
        self._period = now

    def predicted(self, move: Move, gain: float, cost: float) -> None:
        """Record the prediction of a policy for a move that it has requested."""
        times = self.times[move.number]
        times.predicted_gain, times.predicted_cost, times.before = gain, cost, self._loads[move.sender]
        self._open[move.number] = move.sender

    def table(self, moves: Sequence[Move], log: MessageLog | None = None) -> pa.Table:
        """Return the moves as a table."""
        rows = []
        for move in moves:
            times = self.times[move.number]
            pause = 0.0 if times.stopped is None or times.resumed is None else times.resumed - times.stopped
            rows.append(
                {
                    "move": move.number,
                    "how": move.how,
                    "groups": list(move.groups),
                    "sender": move.sender,
                    "receiver": move.receiver,
                    "state": move.state,
                    "asked": times.asked,
                    "began": times.began,
                    "ended": times.ended,
                    "pause": pause,
                    "sender_work": times.sender_work,
                    "receiver_work": times.receiver_work,
                    "messages": 0 if log is None else sum(row[0] == move.number for row in log.rows),
                    "bytes": 0 if log is None else sum(row[7] for row in log.rows if row[0] == move.number),
                    "predicted_gain": times.predicted_gain,
                    "measured_gain": times.measured_gain,
                    "predicted_cost": times.predicted_cost,
                }
            )
        return pa.Table.from_pylist(rows, schema=MOVES)

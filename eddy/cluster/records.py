"""What a simulation records: the messages of moves, and the moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eddy.cluster.machine import Done
from eddy.cluster.manager import Move
from eddy.cluster.messages import END, STEPS, Commit, Message, Rows

MESSAGE_BYTES = 64
"""Bytes of a message beside its rows and groups."""
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
"""Columns of `Simulation.messages`.

step      number of the protocol's step (`eddy.cluster.messages.STEPS`); flags and forwarded rows have that of the
          message that caused them
rows      rows that it carries; bytes includes them, and stored states
sent      time at which it was sent
seconds   time until it arrived, or would have arrived at a lost node
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
    ]
)
"""Columns of `Simulation.history`.

state          "waiting", "running", "done", "nothing" (no group to move) or "aborted" (by a loss; the map is the old
               one, or a recovery has finished the move)
asked … ended  times; `ended` is the time of the last message
pause          longest time during which rows of a moved group waited for the move: MSLB from the first split that holds
               rows until the receiver has joined those of the last one; JIT from the stop of the sender until the
               receiver has all; PTLB 0
sender_work    seconds that the sender worked for these groups since the request, receiver_work the same
messages       number of messages; bytes: their bytes
"""


class MessageLog:
    """All messages that belong to moves."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def size(self, item: object) -> int:
        """Return the bytes of anything that is sent."""
        if isinstance(item, Message):
            return MESSAGE_BYTES + 8 * len(item.groups) + item.nbytes
        if isinstance(item, Rows):
            return MESSAGE_BYTES + sum(one.rows.nbytes for one in item.entries if one.rows is not None)
        assert isinstance(item, Commit)
        return MESSAGE_BYTES + (0 if item.results is None else item.results.nbytes)

    def note(
        self, item: object, moves: Sequence[Move], source: str, to: str, nbytes: int, now: float, arrival: float
    ) -> None:
        """Record what is sent, if it belongs to a move."""
        if isinstance(item, Message):
            self._row(item.move, item.kind, moves, source, to, (item.rows, nbytes, now, arrival - now))
        elif isinstance(item, Rows):
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
            [pa.array(list(own), field.type) for own, field in zip(columns, MESSAGES, strict=True)], schema=MESSAGES
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


@dataclass
class MoveLog:
    """Times and work of all moves."""

    times: dict[int, _Times] = field(default_factory=lambda: defaultdict(_Times))
    _senders: dict[tuple[int, int], int] = field(default_factory=dict)
    _receivers: dict[tuple[int, int], int] = field(default_factory=dict)

    def asked(self, move: int, now: float) -> None:
        """Note the time of a request."""
        self.times[move].asked = now

    def sent(self, message: Message, moves: Sequence[Move], now: float) -> None:
        """Note a message of the manager."""
        own = self.times[message.move]
        own.began = now if own.began is None else own.began
        own.ended = now
        move = moves[message.move]
        for group in move.groups if move.epochs else ():
            self._senders[move.sender, group] = message.move
            self._receivers[move.receiver, group] = message.move

    def at_split(self, message: Message, now: float) -> None:
        """Note that a split takes a message."""
        own = self.times[message.move]
        own.ended = now
        if message.kind == "DeactivatePartitions" and own.stopped is None:
            own.stopped = now

    def worked(self, node: int, done: Done, moves: Sequence[Move], now: float) -> None:
        """Note a turn of a node that begins."""
        for group, seconds in done.by_group.items():
            move = self._senders.get((node, group))
            if move is not None:
                self.times[move].sender_work += seconds
            move = self._receivers.get((node, group))
            if move is not None:
                self.times[move].receiver_work += seconds
        if done.message is not None and done.message.kind == "SwitchPartitions":
            self.times[done.message.move].stopped = now

    def finished(self, done: Done, now: float) -> None:
        """Note a turn of a node that ends."""
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

    def table(self, moves: Sequence[Move], log: MessageLog | None = None) -> pa.Table:
        """Return the moves as a table."""
        rows = []
        for move in moves:
            own = self.times[move.number]
            pause = 0.0 if own.stopped is None or own.resumed is None else own.resumed - own.stopped
            rows.append(
                {
                    "move": move.number,
                    "how": move.how,
                    "groups": list(move.groups),
                    "sender": move.sender,
                    "receiver": move.receiver,
                    "state": move.state,
                    "asked": own.asked,
                    "began": own.began,
                    "ended": own.ended,
                    "pause": pause,
                    "sender_work": own.sender_work,
                    "receiver_work": own.receiver_work,
                    "messages": 0 if log is None else sum(one[0] == move.number for one in log.rows),
                    "bytes": 0 if log is None else sum(one[7] for one in log.rows if one[0] == move.number),
                }
            )
        return pa.Table.from_pylist(rows, schema=MOVES)

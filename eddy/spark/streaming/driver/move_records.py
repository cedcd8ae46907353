"""Records of moves, splits and fragments: the messages between driver and partitions, and what each move gained.

The messages have the names and numbers of the protocol MSLB (Zhu, Rundensteiner, "Adapting Partitioned Continuous Query
Processing in Distributed Systems", sec. 4.2), in which the driver is the distribution manager:

        2  PartitionsToMove       a decision of the driver, which knows the loads, or a request of the user
    5  SendPartitions         to the worker that has the engine, to put it into a file
    6  ReceivePartitions      the engine in its file, or the rows of the log
    7  Received               the report of the receiver
    8  ReactivatePartitions   the manifest of the batch with the new assignment

Step 1 needs no message, as the driver measures the loads. The boundary of a micro-batch replaces steps 3 and 4
(DeactivatePartitions, Deactivated) and the drain of the queues, because no row is in transit between two batches. For a
split, the message SplitGroup replaces step 2, and the children then receive their rows from the log. Fragments of a
group after FragmentGroup, and a group after GatherFragments, also receive their rows from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, get_args

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.worker.tasks import LIVE, LOADED

How = Literal["state", "jit", "parallel"]
KEPT = 10_000
"""Number of messages, and of moves, that stay in memory."""
MEASURED_AFTER = 4
"""Number of batches after which the gain of a move is measured. The smoothed load needs this number to adapt."""

MESSAGES = pa.schema(
    [
        ("move", pa.int64()),
        ("batch", pa.int64()),
        ("group", pa.int32()),
        ("step", pa.int32()),
        ("kind", pa.string()),
        ("from", pa.string()),
        ("to", pa.string()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
HISTORY = pa.schema(
    [
        ("move", pa.int64()),
        ("batch", pa.int64()),
        ("kind", pa.string()),
        ("group", pa.int32()),
        ("from", pa.int32()),
        ("to", pa.int32()),
        ("child", pa.int32()),
        ("how", pa.string()),
        ("by", pa.string()),
        ("refused", pa.string()),
        ("fullness_before", pa.float64()),
        ("fullness_predicted", pa.float64()),
        ("fullness_measured", pa.float64()),
    ]
)


def check_how(how: str) -> None:
    """Raise SparkJoinError unless `how` names a method of moving key groups."""
    if how == "parallel":
        raise SparkJoinError(
            "move: how='parallel' (two tracks until the old rows are purged) is not possible: a micro-batch commits one"
            " engine for each key group, and no row is on its way when a group moves; use 'state', which takes the"
            " engine along, or 'jit', which loads its rows from the log"
        )
    if how not in get_args(How):
        raise SparkJoinError(f"move: how={how!r}; pass 'state' or 'jit'")


Kind = Literal["move", "split", "fragment", "gather"]
_ASKED: dict[Kind, str] = {
    "move": "PartitionsToMove",
    "split": "SplitGroup",
    "fragment": "FragmentGroup",
    "gather": "GatherFragments",
}
"""The message with which a change of each kind begins."""
_STEPS = {
    **dict.fromkeys(_ASKED.values(), 2),
    "SendPartitions": 5,
    "ReceivePartitions": 6,
    "Received": 7,
    "ReactivatePartitions": 8,
}
"""The step of each message of the protocol."""


@dataclass(frozen=True)
class KeyGroupChange:
    """A move of a key group that takes effect with a batch, or another change of it.

    by        "request" or "rule"
    sender    partition that had the group; of a fragment that is gathered, its partition
        receiver  partition that gets the group or the child
    child     group that a split made, or a fragment that is made or gathered; None for a move
    """

    kind: Kind
    group: int
    sender: int
    receiver: int
    how: How
    by: str
    child: int | None = None


class MoveRecords:
    """The messages and the gains of all changes of key groups since the start. Any thread may read them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._moves: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._made = 0
        self._awaited: dict[int, tuple[int, str]] = {}
        """Group that has not run since its move -> the move, and the partition that sends."""
        self._to_measure: deque[tuple[int, list[dict[str, Any]]]] = deque()

    def committed(
        self,
        batch: int,
        changes: tuple[KeyGroupChange, ...],
        ran: Mapping[int, Mapping[str, Any]],
        fullness: tuple[float, float, float],
        loads: int,
        commit_s: float,
    ) -> None:
        """Record a committed batch.

                changes   changes that took effect with the batch
        ran       key group that ran -> its row of metrics
        fullness  load of the fullest partition over the mean: before the changes, as predicted after them, and measured
                  after the batch
        loads     number of loads that were measured so far
        commit_s  seconds of the commit
        """
        before, predicted, measured = fullness
        with self._lock:
            made = []
            for change in changes:
                number, self._made = self._made, self._made + 1
                made.append(number)
                row = (
                    number,
                    batch,
                    change.kind,
                    change.group,
                    change.sender,
                    change.receiver,
                    change.child,
                    change.how,
                    change.by,
                    None,
                )
                self._moves.append(dict(zip(HISTORY.names, (*row, before, predicted, None), strict=True)))
                to = "driver" if change.child is None else f"key groups {change.group} and {change.child}"
                self._say(number, batch, change.group, _ASKED[change.kind], change.by, to)
                if change.child is None:
                    self._awaited[change.group] = number, f"partition {change.sender}"
                else:
                    self._awaited[change.group] = number, "log"
                    if change.kind == "gather":
                        self._awaited.pop(change.child, None)
                    else:
                        self._awaited[change.child] = number, "log"
            for group, metrics in sorted(ran.items()):
                if group in self._awaited:
                    self._receive(batch, group, metrics)
            for number, change in zip(made, changes, strict=True):
                self._say(number, batch, change.group, "ReactivatePartitions", "driver", "all partitions", 0, commit_s)
            if made:
                moves = [record for record in self._moves if record["move"] in made]
                self._to_measure.append((loads + MEASURED_AFTER, moves))
            while self._to_measure and self._to_measure[0][0] <= loads:
                for move in self._to_measure.popleft()[1]:
                    move["fullness_measured"] = measured

    def refused(self, batch: int, group: int, partition: int, why: str, fullness: float) -> None:
        """Record that a group with a hot key is not divided into fragments, and the reason."""
        with self._lock:
            row = (None, batch, "fragment", group, partition, None, None, None, "rule", why, fullness, None, None)
            self._moves.append(dict(zip(HISTORY.names, row, strict=True)))

    def _receive(self, batch: int, group: int, metrics: Mapping[str, Any]) -> None:
        """Record the origin of a group's engine when the group runs for the first time after its move."""
        number, sender = self._awaited.pop(group)
        receiver, size = f"partition {metrics['partition']}", metrics["received_bytes"]
        if metrics["source"] == LIVE and size:
            self._say(number, batch, group, "SendPartitions", "driver", sender)
        if metrics["source"] == LOADED:
            sender = "log"
        if size:
            self._say(number, batch, group, "ReceivePartitions", sender, receiver, size, metrics["ready_seconds"])
        self._say(number, batch, group, "Received", receiver, "driver")

    def _say(
        self,
        move: int,
        batch: int,
        group: int,
        kind: str,
        sender: str,
        receiver: str,
        size: int = 0,
        seconds: float | None = None,
    ) -> None:
        values = (move, batch, group, _STEPS[kind], kind, sender, receiver, size, seconds)
        self._messages.append(dict(zip(MESSAGES.names, values, strict=True)))

    def messages(self) -> pa.Table:
        """Return a row for each message."""
        with self._lock:
            return pa.Table.from_pylist(list(self._messages), schema=MESSAGES)

    def history(self) -> pa.Table:
        """Return a row for each change, and for each hot key without fragments."""
        with self._lock:
            return pa.Table.from_pylist(list(self._moves), schema=HISTORY)

    def newest(self, most: int) -> list[dict[str, Any]]:
        """Return the newest rows of `history`, at most `most`, oldest first."""
        with self._lock:
            return [dict(row) for row in list(self._moves)[-most:]]

"""The split of a stream: sends each row to the engines of its partition group.

Per group the split is in one of three states: it forwards to one processor; it *duplicates* to two (PTLB,
DuplicatePartitions to DeletePartitions); or it *holds* rows (MSLB, DeactivatePartitions to ReactivatePartitions). Its
log has all rows of the group, so the buffer of held rows is the end of the log, and a lost processor can be rebuilt.

The log and the state of the split are replicated with the source. A split that is lost resumes from them; only control
messages in transit to it are lost, and the manager sends these again. Each message can be repeated.

Rows of a hot key may also go to fragments (`bench/simulated/cluster/fragments.py`), which are further groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.simulated.cluster.fragments import Fragments
from bench.simulated.cluster.messages import MANAGER, Entry, Message, RowsMessage, Sent, processor
from bench.simulated.cluster.positions import ENDLESS, Positions
from stairs.graph import FOREVER

POSITION = "__position"
"""The column of positions that a split adds."""
TICKS = "__ticks"
"""The column of event times in ticks of the common time type that a split adds."""


class GroupRoute(NamedTuple):
    """The destination of a group's rows: a node, the track there, and whether the rows also go to a receiver."""

    node: int
    epoch: int
    new: bool = False


@dataclass
class _Group:
    routes: list[GroupRoute]
    count: int = 0
    log: list[pa.RecordBatch] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    sent: int = 0
    """Rows before this position have been sent."""
    first: int = 0
    """The first position of the track's rows; a receiver of a PTLB move has no earlier rows."""
    counted: int = 0
    """The first position of this period."""

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Log rows; return them with their positions."""
        positions = pa.array(np.arange(self.count, self.count + len(rows)))
        rows = rows.append_column(pa.field(POSITION, pa.int64(), False), positions)
        self.log.append(rows)
        self.starts.append(self.count)
        self.count += len(rows)
        return rows


class SplitOperator:
    """The split operator of one stream.

    stream   position of the stream in the query
    owners   per group, the node that runs it
    nodes    number of nodes
    hashes   returns the hash of the key of each row
    """

    def __init__(
        self,
        stream: int,
        owners: Sequence[int],
        nodes: int,
        hashes: Callable[[pa.RecordBatch], npt.NDArray[np.uint64]],
    ) -> None:
        self.stream = stream
        self.nodes = nodes
        self.progress = -FOREVER
        self.groups = [_Group([GroupRoute(node, 0)]) for node in owners]
        self.fragments = Fragments(hashes)
        self._done: set[tuple[int, str]] = set()

    def holds(self, group: int) -> bool:
        """Return whether the rows of a group wait at this split for ReactivatePartitions."""
        return not self.groups[group].routes

    def arrive(self, pieces: Mapping[int, pa.RecordBatch], progress: int) -> list[Sent]:
        """Take rows by group, in order of arrival; return the messages to send. All nodes get the progress."""
        self.progress = max(self.progress, progress)
        entries: dict[int, list[Entry]] = defaultdict(list)
        for number, new in self.fragments.spread(pieces).items():
            group, start = self.groups[number], self.groups[number].count
            rows = group.add(new)
            for route in group.routes:
                entries[route.node].append(Entry(number, route.epoch, rows, start, group.count, route.new))
            if group.routes:
                group.sent = group.count
        return [
            (processor(node), RowsMessage(self.stream, tuple(entries[node]), self.progress))
            for node in range(self.nodes)
        ]

    def recent(self, group: int) -> npt.NDArray[np.uint64]:
        """Return the hashes of the keys of the rows of a group since the last call of `counted`."""
        state = self.groups[group]
        rows = self.logged(group, Positions([[(state.counted, state.count)]]))
        return np.zeros(0, np.uint64) if rows is None else self.fragments.hashes(rows)

    def counted(self) -> None:
        """Begin a new period of `recent`."""
        for group in self.groups:
            group.counted = group.count

    def receive(self, message: Message) -> list[Sent]:
        """Take a control message and return the messages to send. A repeated message only causes its answer again."""
        outgoing: list[Sent] = []
        if message.kind == "ReplicateKey":
            self._replicate(message)
            outgoing.append((MANAGER, Message("Replicated", message.move)))
        elif message.kind == "CopyPartitions":
            outgoing.append(self._copied(message))
        elif (message.move, message.kind) not in self._done:
            entries: dict[int, list[Entry]] = defaultdict(list)
            handler = getattr(self, f"_{message.kind}")
            for number in message.groups:
                for node, entry in handler(number, self.groups[number], message):
                    entries[node].append(entry)
            for node, node_entries in entries.items():
                outgoing.append((processor(node), RowsMessage(self.stream, tuple(node_entries), self.progress)))
        self._done.add((message.move, message.kind))
        if message.kind == "DeactivatePartitions":
            outgoing.append((MANAGER, Message("Deactivated", message.move)))
        return outgoing

    # One method per message; each returns (node, entry or message) pairs.

    def _DuplicatePartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        (old,) = group.routes
        new = GroupRoute(message.content["receiver"], message.content["epochs"][number])
        group.routes = [old._replace(new=True), new]
        at = group.first = group.count
        return [
            (old.node, Entry(number, old.epoch, None, at, at, new=True, move=message.move)),
            (new.node, Entry(number, new.epoch, None, at, at, open="parallel", move=message.move)),
        ]

    def _DeletePartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        if message.content.get("gathered"):
            self.fragments.remove(number)
            return self._ended(number, group, message)
        old, new = group.routes
        group.routes = [new]
        return [(old.node, self._end(number, group, old, message.move))]

    def _DeactivatePartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        (old,) = group.routes
        group.routes = []
        return [(old.node, self._end(number, group, old, message.move))]

    def _ReactivatePartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        new = GroupRoute(message.content["receiver"], message.content["epochs"][number])
        start, group.routes, group.sent = group.sent, [new], group.count
        rows = self.logged(number, Positions([[(start, group.count)]]))
        opened = Entry(number, new.epoch, rows, start, group.count, open="state", move=message.move)
        return [(new.node, opened)]

    def _copied(self, message: Message) -> Sent:
        """Return the base windows of all groups of a move from the log, up to the rows that the sender has joined."""
        content = {name: message.content[name] for name in ("epochs", "known", "watermarks")}
        rows = {}
        for number in message.groups:
            least = message.content["watermarks"][number] - self._span(message)
            rows[number] = self.logged(number, Positions([content["known"][number].intervals[self.stream]]), least)
        kept = [batch for batch in rows.values() if batch is not None]
        base = Message(
            "BaseWindows",
            message.move,
            message.groups,
            {**content, "split": self.stream, "rows": rows},
            sum(map(len, kept)),
            sum(batch.nbytes for batch in kept),
        )
        return processor(message.content["receiver"]), base

    def _span(self, message: Message) -> int:
        span = message.content["spans"][self.stream]
        return FOREVER if span is None else int(span)

    def _SwitchPartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        (old,) = group.routes
        new = GroupRoute(message.content["receiver"], message.content["epochs"][number])
        start, group.routes = group.count, [new]
        rows = None
        if message.content["log"]:
            known = message.content["known"][number].intervals[self.stream]
            start = max(group.first, known[-1][1] if known else 0)
            rows = self.logged(number, Positions([[(start, group.count)]]))
        opened = Entry(number, new.epoch, rows, start, group.count, open="jit", move=message.move)
        return [(old.node, self._end(number, group, old, message.move)), (new.node, opened)]

    def _RecoverPartitions(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        new = GroupRoute(message.content["receiver"], message.content["epochs"][number])
        group.routes, group.sent, group.first = [new], group.count, 0
        least = message.content["watermarks"][number] - self._span(message)
        rows = self.logged(number, Positions([[(0, ENDLESS)]]), least)
        opened = Entry(number, new.epoch, rows, 0, group.count, open="recover", move=message.move)
        return [(new.node, opened)]

    def _replicate(self, message: Message) -> None:
        """Begin a fragment with a copy of the rows of its key that can still join, without rows of the dealt stream."""
        (number,), content = message.groups, message.content
        while len(self.groups) <= number:
            self.groups.append(_Group([]))
        if number in self.fragments:
            return
        dealt = content["dealt"] == self.stream
        self.fragments.add(number, of=content["of"], key=content["key"], dealt=dealt)
        least = content["since"] - self._span(message)
        rows = None if dealt else self.logged(content["of"], Positions([[(0, ENDLESS)]]), least)
        if rows is not None:
            self.groups[number].add(self.fragments.hot(rows.drop_columns([POSITION]), content["key"]))

    def _DealKey(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        self.fragments.deal(number, True)
        return []

    def _GatherKey(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        self.fragments.deal(number, False)
        return self._ended(number, group, message)

    def _ended(self, number: int, group: _Group, message: Message) -> list[tuple[int, Entry]]:
        """Stop sending rows of a fragment; return its flags."""
        routes, group.routes = group.routes, []
        return [(route.node, self._end(number, group, route, message.move)) for route in routes]

    def _end(self, number: int, group: _Group, route: GroupRoute, move: int) -> Entry:
        return Entry(number, route.epoch, None, group.count, group.count, end=True, move=move)

    def logged(self, number: int, positions: Positions, least: int | None = None) -> pa.RecordBatch | None:
        """Return logged rows at positions of a split, from event time `least` on; None without rows. O(rows)."""
        group, batches = self.groups[number], []
        low = min((start for start, _ in positions.intervals[0]), default=0)
        for start, batch in zip(group.starts, group.log, strict=True):
            if start + len(batch) > low:
                keep = positions.contain(0, np.arange(start, start + len(batch)))
                if least is not None:
                    keep &= batch.column(TICKS).to_numpy() >= least
                if keep.any():
                    batches.append(batch if keep.all() else batch.filter(pa.array(keep)))
        return pa.concat_batches(batches) if batches else None


def oldest(rows: pa.RecordBatch) -> int:
    """Return the least event time of rows in ticks."""
    return int(pc.min(rows.column(TICKS)).as_py())


def newest(rows: pa.RecordBatch) -> int:
    """Return the greatest event time of rows in ticks."""
    return int(pc.max(rows.column(TICKS)).as_py())

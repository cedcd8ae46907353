"""The processor of a node: runs the tracks of its groups, as sender and as receiver of partitions.

`handle` takes rows, and `receive` takes control messages and packages; both return the messages to send. Neither method
knows a clock: the carrier decides when a processor handles its messages, in the order of each link. Control messages
need not wait behind rows; flags that must keep their place among rows are sent with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.simulated.cluster.messages import Entry, Message, RowsMessage, Sent
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.receiver import Receiver
from bench.simulated.cluster.sender import Sender
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.tracks import Key, Tracks
from eddy.errors import InputError


class Processor(Tracks):
    """The processor of node number `node`.

    setting  options of the engines
    owners   per group, the node that runs it at the start
    """

    def __init__(self, query: Partitioned, node: int, setting: EngineSetting, owners: Sequence[int] = ()) -> None:
        super().__init__(query, node, setting)
        self.sender, self.receiver = Sender(self), Receiver(self)
        for group, host in enumerate(owners):
            if host == node:
                self.begin((group, 0)).start()
                self.tracks[group, 0].heard = set(range(self.splits))

    # Tracks

    def delete(self, key: Key) -> None:
        """Delete a track, if this node has it; the track does not return."""
        super().delete(key)
        self.sender.forget(key)
        self.receiver.forget(key)

    def receives(self, key: Key) -> bool:
        """Return whether a track is still in transit to this node."""
        return key in self.receiver.receiving

    # Rows

    def handle(self, rows: RowsMessage) -> list[Sent]:
        """Take rows and flags from a split; `flush` joins the rows."""
        self.progress[rows.split] = max(self.progress[rows.split], rows.progress)
        sent: list[Sent] = []
        for entry in rows.entries:
            sent += self._entry(rows.split, entry)
        return sent

    def _entry(self, split: int, entry: Entry) -> list[Sent]:
        key = entry.group, entry.epoch
        if entry.open and key not in self.tracks:
            if entry.epoch < self.least[entry.group]:
                return []
            self.receiver.opened(key, entry)
        track = self.tracks.get(key)
        if track is None:
            return []  # the track was deleted, or was lost and is built again from the logs
        held = self.receiver.hold(key, split, entry)
        if held is not None:
            return held
        self.take(key, split, entry)
        if entry.open:
            return self.receiver.settled(key)
        if entry.end:
            # Later progress of the split does not count, because later rows are held or go to the receiver.
            track.heard.discard(split)
            track.floor[split] = self.progress[split]
            self.ended[key].add(split)
            return self.flush() + self.sender.progressed(key)
        return []

    def flush(self) -> list[Sent]:
        """Join all rows taken since the last call; return the results for the union, and reports to the manager."""
        return super().flush() + self.sender.due()

    # Messages

    def receive(self, message: Message) -> list[Sent]:
        """Take a control message or a package, and return the messages to send."""
        handler: Callable[[Message], list[Sent]] | None = None
        for side in (self, self.sender, self.receiver):
            handler = handler or getattr(side, f"on_{message.kind}", None)
        if handler is None:
            raise InputError(f"node {self.node} does not know message {message.kind!r}")
        return self.flush() + handler(message)

    def divert(self, rows: RowsMessage) -> tuple[RowsMessage, list[Sent]]:
        """Return rows without those of switched tracks, and messages that forward these to their receivers.

        Call this with rows that wait at this node after SwitchPartitions, and with rows that come later.
        """
        return self.sender.divert(rows)

"""The processor of a node: runs the tracks of its groups, as sender and as receiver of partitions.

`handle` takes rows, `receive` control messages and packages; both return what to send. Neither knows a clock: the
carrier decides when a processor handles what it was sent, in the order of each link. Control messages need not wait
behind rows; flags that must keep their place among rows travel with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from eddy.cluster.messages import MANAGER, UNION, Commit, Entry, Message, Rows, Sent
from eddy.cluster.partitioning import Partitioned
from eddy.cluster.receiver import Receiver
from eddy.cluster.sender import Sender
from eddy.cluster.track import Setting, Track
from eddy.cluster.work import Work
from eddy.errors import InputError
from eddy.runtime import Runtime
from stairs.graph import FOREVER

Key = tuple[int, int]
"""Group and epoch: the name of a track."""


class Processor:
    """The processor of node number `node`.

    setting  how its engines run
    owners   per group, the node that runs it at the start
    """

    def __init__(self, query: Partitioned, node: int, setting: Setting, owners: Sequence[int] = ()) -> None:
        self.query, self.node, self.setting = query, node, setting
        self.splits = len(query.names)
        self.progress = [-FOREVER] * self.splits
        self.tracks: dict[Key, Track] = {}
        self.ended: dict[Key, set[int]] = defaultdict(set)
        """The splits that have set EndOfPartitions, by track."""
        self.least: dict[int, int] = defaultdict(int)
        """Per group the least epoch that may run here."""
        self.sender, self.receiver = Sender(self), Receiver(self)
        self._work: dict[int, Work] = defaultdict(Work)
        self._dirty: dict[Key, None] = {}
        self._open: dict[tuple[int, str], set[int]] = {}
        for group, owner in enumerate(owners):
            if owner == node:
                self.begin((group, 0)).start()
                self.tracks[group, 0].heard = set(range(self.splits))

    # Work

    def note(self, group: int, work: Work) -> None:
        """Count work for a group."""
        self._work[group] += work

    def worked(self) -> dict[int, Work]:
        """Return the work by group since the last call."""
        done, self._work = self._work, defaultdict(Work)
        return done

    # Tracks

    def begin(self, key: Key) -> Track:
        """Make a track without an engine."""
        self.tracks[key] = Track(self.query, self.setting, *key)
        return self.tracks[key]

    def delete(self, key: Key) -> None:
        """Delete a track, if it is here; it does not come back."""
        self.least[key[0]] = max(self.least[key[0]], key[1] + 1)
        self.tracks.pop(key, None)
        self.ended.pop(key, None)
        self._dirty.pop(key, None)
        self.sender.forget(key)
        self.receiver.forget(key)

    def newest(self, group: int) -> int | None:
        """Return the epoch of the newest track of a group here, None for none."""
        return max((epoch for own, epoch in self.tracks if own == group), default=None)

    def transition(self, plan: str) -> None:
        """Change the plan of this node: of all its tracks, and of those to come."""
        self.setting = self.setting._replace(plan=Runtime(self.query.inner, plan, strategy="mjoin").plan)
        for (group, _), track in self.tracks.items():
            track.setting = self.setting
            if track.runtime is not None and track.runtime.plan != self.setting.plan:
                done = track.runtime.transition(plan)
                self.note(group, Work(entries=0 if done is None else done.computed))

    # Rows

    def handle(self, rows: Rows) -> list[Sent]:
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
            return []  # a track that was deleted, or that was lost and is built again from the logs
        held = self.receiver.hold(key, split, entry)
        if held is not None:
            return held
        self.take(key, split, entry)
        if entry.open:
            return self.receiver.settled(key)
        if entry.end:
            # Later progress of the split does not count: rows that follow are held, or go to the receiver.
            track.heard.discard(split)
            track.floor[split] = self.progress[split]
            self.ended[key].add(split)
            return self.flush() + self.sender.progressed(key)
        return []

    def take(self, key: Key, split: int, entry: Entry) -> None:
        """Put an entry into the inbox of its track."""
        self.tracks[key].take(split, entry)
        if entry.open:
            self.tracks[key].heard.add(split)
        self._dirty[key] = None

    def flush(self) -> list[Sent]:
        """Join all rows taken since the last call; return the results for the union, and reports to the manager."""
        sent: list[Sent] = []
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            if key in self.tracks and self.tracks[key].runtime is not None:
                sent += self.join(key)
        return sent + self.sender.due()

    def join(self, key: Key, final: bool = False) -> list[Sent]:
        """Join the rows that a track has taken; return the results for the union.

        final   no more results of this track come
        """
        track = self.tracks[key]
        results, work = track.push(track.time(self.progress))
        self.note(key[0], work)
        if track.known == track.committed and not final:
            return []
        track.committed, track.final = track.known, track.final or final
        track.trim()
        if results is not None and not results.num_rows:
            results = None
        return [(UNION, Commit(*key, results, track.as_given()))]

    # Messages

    def receive(self, message: Message) -> list[Sent]:
        """Take a control message or a package, and return what to send."""
        handler: Callable[[Message], list[Sent]] | None = None
        for one in (self, self.sender, self.receiver):
            handler = handler or getattr(one, f"on_{message.kind}", None)
        if handler is None:
            raise InputError(f"node {self.node} does not know message {message.kind!r}")
        return self.flush() + handler(message)

    def divert(self, rows: Rows) -> tuple[Rows, list[Sent]]:
        """Return rows without those of tracks that were switched, and these as they go on to their receivers.

        To be called with rows that wait here after SwitchPartitions, and with rows that come later.
        """
        return self.sender.divert(rows)

    def expect(self, move: int, kind: str, groups: Sequence[int]) -> None:
        """Begin to wait for all of these groups before `report` sends a message."""
        self._open.setdefault((move, kind), set(groups))

    def report(self, move: int, kind: str, group: int) -> list[Sent]:
        """Count a group; return the message to the manager if it was the last one of the move."""
        left = self._open.get((move, kind))
        if left is None or group not in left:
            return []
        left.remove(group)
        return [] if left else [(MANAGER, Message(kind, move))]

    def on_DropPartitions(self, message: Message) -> list[Sent]:
        """Forget older tracks of groups: another processor has them."""
        for group in message.groups:
            epoch = message.content["epochs"][group]
            self.least[group] = max(self.least[group], epoch)
            for key in [key for key in self.tracks if key[0] == group and key[1] < epoch]:
                self.delete(key)
        return []

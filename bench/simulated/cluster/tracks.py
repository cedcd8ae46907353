"""The tracks of a node, on which the sending and the receiving side of its processor work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bench.simulated.cluster.messages import MANAGER, UNION, Entry, Message, ResultCommit, Sent
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.track import GroupTrack
from bench.simulated.cluster.work import WorkCounts
from eddy.runtime import Runtime
from stairs.graph import FOREVER

Key = tuple[int, int]
"""Group and epoch: the name of a track."""


class Tracks:
    """The tracks of node number `node`.

    setting  options of the engines
    """

    def __init__(self, query: Partitioned, node: int, setting: EngineSetting) -> None:
        self.query, self.node, self.setting = query, node, setting
        self.splits = len(query.names)
        self.progress = [-FOREVER] * self.splits
        self.tracks: dict[Key, GroupTrack] = {}
        self.ended: dict[Key, set[int]] = defaultdict(set)
        """The splits that have set EndOfPartitions, by track."""
        self.least: dict[int, int] = defaultdict(int)
        """Per group the least epoch that may run at this node."""
        self._work: dict[int, WorkCounts] = defaultdict(WorkCounts)
        self._dirty: dict[Key, None] = {}
        self._open: dict[tuple[int, str], set[int]] = {}

    # Work

    def note(self, group: int, work: WorkCounts) -> None:
        """Count work for a group."""
        self._work[group] += work

    def worked(self) -> dict[int, WorkCounts]:
        """Return the work by group since the last call."""
        done, self._work = self._work, defaultdict(WorkCounts)
        return done

    # Tracks

    def begin(self, key: Key) -> GroupTrack:
        """Make a track without an engine."""
        self.tracks[key] = GroupTrack(self.query, self.setting, *key)
        return self.tracks[key]

    def delete(self, key: Key) -> None:
        """Delete a track, if this node has it; the track does not return."""
        self.least[key[0]] = max(self.least[key[0]], key[1] + 1)
        self.tracks.pop(key, None)
        self.ended.pop(key, None)
        self._dirty.pop(key, None)

    def receives(self, key: Key) -> bool:
        """Return whether a track is still in transit to this node."""
        return False

    def newest(self, group: int) -> int | None:
        """Return the epoch of the newest track of a group at this node, None without a track."""
        return max((epoch for number, epoch in self.tracks if number == group), default=None)

    def transition(self, plan: str) -> None:
        """Change the plan of this node: of all its tracks, and of later tracks."""
        self.setting = self.setting._replace(plan=Runtime(self.query.inner, plan, strategy="mjoin").plan)
        for (group, _), track in self.tracks.items():
            track.setting = self.setting
            if track.runtime is not None and track.runtime.plan != self.setting.plan:
                done = track.runtime.transition(plan)
                self.note(group, WorkCounts(entries=0 if done is None else done.computed))

    # Rows

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
        return sent

    def join(self, key: Key, final: bool = False) -> list[Sent]:
        """Join the rows that a track has taken; return the results for the union.

        final   whether these are the last results of this track
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
        return [(UNION, ResultCommit(*key, results, track.as_given()))]

    # Messages

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
        """Drop older tracks of groups, which another processor has."""
        for group in message.groups:
            epoch = message.content["epochs"][group]
            self.least[group] = max(self.least[group], epoch)
            for key in [key for key in self.tracks if key[0] == group and key[1] < epoch]:
                self.delete(key)
        return []

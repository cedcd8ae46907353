"""The receiver's side of the protocols: tracks of moves, and tracks that are built again after a loss."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.simulated.cluster.messages import UNION, EmittedResults, Entry, Message, ResultCommit, Sent
from bench.simulated.cluster.package import Package
from bench.simulated.cluster.positions import Positions
from bench.simulated.cluster.split import POSITION, oldest

if TYPE_CHECKING:
    from bench.simulated.cluster.tracks import Key, Tracks


@dataclass
class Receiving:
    """A track that is not complete ("jit"), or must be built from the logs ("recover").

    held   entries by split that wait for earlier rows
    base   base windows by split, if the logs have sent them
    log    whether the base windows come from the logs
    known  whether RemainingPartitions or RecoverPartitions has come: the results of other tracks are then known
    ended  splits of which the sender has forwarded all rows
    """

    how: str
    move: int
    held: dict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    base: dict[int, Message] = field(default_factory=dict)
    log: bool = False
    known: bool = False
    watermark: int = 0
    ended: set[int] = field(default_factory=set)


class Receiver:
    """The receiving side of a processor."""

    def __init__(self, host: Tracks) -> None:
        self.host = host
        self.receiving: dict[Key, Receiving] = {}

    def forget(self, key: Key) -> None:
        """Drop the state of a track that was deleted."""
        self.receiving.pop(key, None)

    def opened(self, key: Key, entry: Entry) -> None:
        """Make the track that the first entry of a split begins; a track of MSLB or JIT must exist before."""
        if entry.open == "parallel":
            self.host.note(key[0], self.host.begin(key).start())
        elif entry.open == "recover":
            self._begin(key, "recover", entry.move)

    def _begin(self, key: Key, how: str, move: int) -> Receiving:
        self.host.begin(key)
        self.receiving[key] = Receiving(how, move)
        return self.receiving[key]

    def hold(self, key: Key, split: int, entry: Entry) -> list[Sent] | None:
        """Keep an entry that cannot be joined yet and return the messages to send; None if it can be joined."""
        receiving = self.receiving.get(key)
        if receiving is None:
            return None
        if receiving.how == "jit" and receiving.known and (receiving.log or split in receiving.ended):
            return None
        receiving.held[split].append(entry)
        return self._rebuilt(key, receiving) if receiving.how == "recover" else []

    def _release(self, key: Key, receiving: Receiving, split: int) -> None:
        for entry in receiving.held.pop(split, []):
            self.host.take(key, split, entry)

    # MSLB

    def on_ReceivePartitions(self, message: Message) -> list[Sent]:
        """Insert matching states, and compute the other states."""
        self.host.expect(message.move, "Received", message.groups)
        sent: list[Sent] = []
        for group, (package, given) in message.content["packages"].items():
            key = group, message.content["epochs"][group]
            if key[1] < self.host.least[group] or key in self.host.tracks:
                continue
            track = self.host.begin(key)
            self.host.note(group, track.start(package))
            track.before, track.given, track.committed = package.known, given, package.known
            sent += self.host.report(message.move, "Received", group)
        return sent

    # JIT

    def on_BaseWindows(self, message: Message) -> list[Sent]:
        """Load base windows, from the sender in one package or from the logs in one message per split."""
        host, content = self.host, message.content
        sent: list[Sent] = []
        host.expect(message.move, "Copied", message.groups)
        host.expect(message.move, "Switched", message.groups)
        for group in message.groups:
            key = group, content["epochs"][group]
            receiving = self.receiving.get(key)
            if key[1] < host.least[group] or (key in host.tracks and receiving is None):
                continue
            receiving = receiving or self._begin(key, "jit", message.move)
            if "packages" in content:
                package = content["packages"][group][0]
            else:
                receiving.log = True
                receiving.base[content["split"]] = message
                if len(receiving.base) < host.splits:
                    continue
                rows = [receiving.base[i].content["rows"][group] for i in range(host.splits)]
                package = Package(content["known"][group], rows, content["watermarks"][group])
            if host.tracks[key].runtime is None:
                host.note(group, host.tracks[key].start(package))
            sent += host.report(message.move, "Copied", group)
        return sent

    def on_RemainingPartitions(self, message: Message) -> list[Sent]:
        """Join the rows that the sender joined since the copy, without their results, and begin to emit results."""
        host = self.host
        sent: list[Sent] = []
        for group, (package, given) in message.content["packages"].items():
            key = group, message.content["epochs"][group]
            receiving, track = self.receiving.get(key), host.tracks.get(key)
            if receiving is None or track is None or receiving.known:
                continue
            track.before, track.given = package.known, given
            for i, rows in enumerate(package.rows):
                track.add(i, rows)
            if not receiving.log:
                track.known = package.known
            results, work = track.push(track.watermark)
            host.note(group, work)
            if results is not None and results.num_rows:
                sent.append((UNION, ResultCommit(*key, results, track.as_given())))
            if not receiving.log:
                # Rows that the sender has joined since the copy will still come from the logs.
                track.floor = [package.watermark] * host.splits
            receiving.known = True
            if receiving.log:
                for split in list(receiving.held):
                    self._release(key, receiving, split)
            sent += host.flush() + self.settled(key)
        return sent

    def on_ForwardedRows(self, message: Message) -> list[Sent]:
        """Take rows, or the flag after the last ones, that reached the sender after it had stopped."""
        split, live = message.content["split"], []
        for entry in message.content["entries"]:
            key = entry.group, entry.epoch
            receiving = self.receiving.get(key)
            if receiving is None or key not in self.host.tracks:
                continue
            live.append(key)
            if entry.end:
                receiving.ended.add(split)
                self._release(key, receiving, split)
            else:
                self.host.take(key, split, entry)
        return self.host.flush() + [answer for key in live for answer in self.settled(key)]

    on_EndOfPartitions = on_ForwardedRows

    def settled(self, key: Key) -> list[Sent]:
        """Report a group of a JIT move that is complete: all splits send to this node, and no row is missing."""
        receiving = self.receiving.get(key)
        if receiving is None or receiving.how != "jit" or not receiving.known:
            return []
        n = self.host.splits
        if len(self.host.tracks[key].heard) < n or (not receiving.log and len(receiving.ended) < n):
            return []
        del self.receiving[key]
        return self.host.flush() + self.host.report(receiving.move, "Switched", key[0])

    # After a loss

    def on_RecoverPartitions(self, message: Message) -> list[Sent]:
        """Drop older tracks of groups, and build the groups again from the logs of the splits."""
        sent = self.host.on_DropPartitions(message)
        self.host.expect(message.move, "Recovered", message.groups)
        for group in message.groups:
            key = group, message.content["epochs"][group]
            receiving = self.receiving.get(key)
            if receiving is None:
                if key in self.host.tracks:
                    continue
                receiving = self._begin(key, "recover", message.move)
            self.host.tracks[key].given = message.content["given"][group]
            receiving.known, receiving.watermark = True, message.content["watermarks"][group]
            sent += self._rebuilt(key, receiving)
        return sent

    def _rebuilt(self, key: Key, receiving: Receiving) -> list[Sent]:
        """Build a track when all rows have come: load rows whose results were emitted, and join the others."""
        host = self.host
        if not receiving.known or len(receiving.held) < host.splits:
            return []
        del self.receiving[key]
        track = host.tracks[key]
        done = complete(track.given, host.splits)
        first = [receiving.held[i][0] for i in range(host.splits)]
        loaded: list[pa.RecordBatch | None] = []
        watermark = receiving.watermark
        for i, entry in enumerate(first):
            loaded.append(None)
            if entry.rows is not None:
                have = done.contain(i, entry.rows.column(POSITION).to_numpy())
                loaded[i] = entry.rows.filter(pa.array(have)) if have.any() else None
                rest = entry.rows.filter(pa.array(~have)) if not have.all() else None
                receiving.held[i][0] = entry._replace(rows=rest)
                watermark = watermark if rest is None else min(watermark, oldest(rest))
        host.note(key[0], track.start(Package(done, loaded, watermark)))
        for split in range(host.splits):
            self._release(key, receiving, split)
        return host.flush() + host.report(receiving.move, "Recovered", key[0])


def complete(given: tuple[EmittedResults, ...], splits: int) -> Positions:
    """Return a large set of rows such that all results among these rows were emitted."""
    candidates: list[Positions] = []
    for record in given:
        known = record.known
        for region in record.elsewhere:
            if not any(other.covers(region) for other in candidates):
                known = known.without(region)
        candidates.append(known)
    return max(candidates, key=lambda positions: positions.rows, default=Positions.none(splits))


__all__ = ["Receiver", "Receiving", "complete"]

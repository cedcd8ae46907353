"""The sender's side of the protocols: choose groups, run beside the receiver, drain, pack, copy ahead, switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.simulated.cluster.messages import END, MANAGER, Entry, Message, RowsMessage, Sent, processor
from bench.simulated.cluster.package import Package, with_states
from bench.simulated.cluster.positions import Positions
from bench.simulated.cluster.work import WorkCounts
from eddy.errors import InputError

if TYPE_CHECKING:
    from bench.simulated.cluster.track import GroupTrack
    from bench.simulated.cluster.tracks import Key, Tracks


@dataclass
class Sending:
    """A track that a move takes away.

    asked    the manager has announced EndOfPartitions
    copied   the rows that were copied in advance (JIT)
    forwards whether rows that still come are forwarded to the receiver (JIT)
    """

    move: int
    how: str
    purge: str = "exact"
    asked: bool = False
    purged: bool = False
    copied: Positions | None = None
    forwards: bool = False
    receiver: int = -1
    epoch: int = -1
    dealt: int = -1
    """The dealt stream of a fragment that is gathered."""


class Sender:
    """The sending side of a processor."""

    def __init__(self, host: Tracks) -> None:
        self.host = host
        self.sending: dict[Key, Sending] = {}
        self._asked_for: list[Message] = []
        """Requests for groups that are not complete at this node."""

    def forget(self, key: Key) -> None:
        """Drop the state of a track that was deleted."""
        self.sending.pop(key, None)

    def _send(self, key: Key, move: int, how: str, purge: str = "exact") -> Sending:
        """Return the record of a track that this move takes away."""
        known = self.sending.get(key)
        if known is None or known.move != move:
            known = self.sending[key] = Sending(move, how, purge)
        return known

    def _tracks(self, message: Message) -> list[tuple[Key, GroupTrack]]:
        """Return the tracks at this node that a message names."""
        keys = [(group, message.content["old_epochs"][group]) for group in message.groups]
        return [(key, self.host.tracks[key]) for key in keys if key in self.host.tracks]

    def on_ComputePartitionsToMove(self, message: Message) -> list[Sent]:
        """Answer with the groups: the requested groups, or groups whose rows add up to about an amount.

        Requested groups may still be in transit to this node; the answer then waits for them.
        """
        keys = [(group, message.content["old_epochs"].get(group)) for group in message.groups]
        amount = message.content["amount"]
        if amount is None and not all(self._whole(key) for key in keys):
            if message not in self._asked_for and all(key[1] >= self.host.least[key[0]] for key in keys):
                self._asked_for.append(message)
            return []
        return self._chosen(message, amount)

    def _whole(self, key: Key) -> bool:
        """Return whether this node has a track, and all splits send to it."""
        track = self.host.tracks.get(key)
        return track is not None and len(track.heard) == self.host.splits and not self.host.receives(key)

    def due(self) -> list[Sent]:
        """Return answers and reports that waited for rows."""
        asked, self._asked_for = self._asked_for, []
        return [answer for message in asked for answer in self.on_ComputePartitionsToMove(message)] + self.purged()

    def _chosen(self, message: Message, amount: float | None) -> list[Sent]:
        host = self.host
        groups = list(message.groups)
        if amount is not None:
            live = [key for key in host.tracks if key[0] in message.groups and self._whole(key)]
            groups = closest({g: float(host.tracks[g, epoch].n_rows) for g, epoch in live}, amount)
        known, watermarks = {}, {}
        for g in groups:
            track = host.tracks[g, host.newest(g) or 0]
            track.watermark = track.time(host.progress)
            known[g], watermarks[g] = track.known, track.watermark
        content = {"known": known, "watermarks": watermarks}
        return [(MANAGER, Message("PartitionsToMove", message.move, tuple(groups), content))]

    # PTLB

    def on_DuplicatePartitions(self, message: Message) -> list[Sent]:
        """Wait until old rows are purged; the splits flag new rows."""
        self.host.expect(message.move, "AllOldPurged", message.groups)
        for key, _ in self._tracks(message):
            self._send(key, message.move, "parallel", message.content["purge"])
        return self.purged()

    def purged(self) -> list[Sent]:
        """Return AllOldPurged for moves in which no old row can be part of a later result."""
        sent: list[Sent] = []
        for key, sending in list(self.sending.items()):
            track = self.host.tracks[key]
            if sending.how == "gather" and not sending.purged and sending.dealt in self.host.ended[key]:
                # The time of the track stops at the flag of the dealt stream, so the progress of this stream is used
                # instead.
                sending.purged = min(self.host.progress) > track.purged_at[sending.dealt]
                if sending.purged:
                    sent += self.host.join(key, final=True)
                    sent += self.host.report(sending.move, "AllOldPurged", key[0])
            if sending.how != "parallel" or sending.purged or track.new is None or not all(track.new.intervals):
                continue
            # A joined tuple below the root stays for another window in the paper (sec. 3.1, case 2).
            spans = [span or 0 for span in self.host.query.spans]
            more = max(spans) if sending.purge == "paper" and len(spans) > 2 else 0
            if track.time(self.host.progress) > max(track.purged_at) + more:
                sending.purged = True
                sent += self.host.join(key, final=True)
                sent += self.host.report(sending.move, "AllOldPurged", key[0])
        return sent

    def on_DeletePartitions(self, message: Message) -> list[Sent]:
        """Delete tracks once EndOfPartitions has come from all splits."""
        return self._asked(message)

    # A fragment of a hot key

    def on_GatherKey(self, message: Message) -> list[Sent]:
        """Wait until no row of the dealt stream can be part of a later result."""
        self.host.expect(message.move, "AllOldPurged", message.groups)
        for key, _ in self._tracks(message):
            self._send(key, message.move, "gather").dealt = message.content["dealt"]
        return self.purged()

    # MSLB

    def on_DeactivatePartitions(self, message: Message) -> list[Sent]:
        """Report when EndOfPartitions has come from all splits, so that all rows in transit were joined."""
        self.host.expect(message.move, "Deactivated", message.groups)
        for key, _ in self._tracks(message):
            self._send(key, message.move, "state")
        return self._asked(message)

    def _asked(self, message: Message) -> list[Sent]:
        sent: list[Sent] = []
        for key, _ in self._tracks(message):
            if key in self.sending:
                self.sending[key].asked = True
                sent += self.progressed(key)
        return sent

    def progressed(self, key: Key) -> list[Sent]:
        """Continue the move of a track when all splits have set EndOfPartitions for it."""
        sending = self.sending.get(key)
        if sending is None or not sending.asked or len(self.host.ended[key]) < self.host.splits:
            return []
        if sending.how == "state":
            sending.asked = False
            return self.host.join(key, final=True) + self.host.report(sending.move, "Deactivated", key[0])
        self.host.delete(key)
        return []

    def on_SendPartitions(self, message: Message) -> list[Sent]:
        """Pack windows and states, and send them to the receiver."""
        packages = {}
        for key, track in self._tracks(message):
            packages[key[0]] = self._package(track, states=True), track.given
            self.host.delete(key)
        return [self._packed("ReceivePartitions", message, packages)] if packages else []

    def _package(self, track: GroupTrack, states: bool) -> Package:
        package = Package(track.known, track.rows(), track.watermark)
        if states and track.runtime is not None:
            package = with_states(package, track.runtime, self.host.setting)
        self.host.note(track.group, WorkCounts(packed=package.n_rows + package.entries))
        return package

    def _packed(self, kind: str, message: Message, packages: dict[int, Any]) -> Sent:
        content = {"packages": packages, "epochs": message.content["epochs"]}
        rows = sum(package.n_rows for package, *_ in packages.values())
        nbytes = sum(package.nbytes for package, *_ in packages.values())
        return processor(message.content["receiver"]), Message(
            kind, message.move, tuple(packages), content, rows, nbytes
        )

    # JIT

    def on_CopyPartitions(self, message: Message) -> list[Sent]:
        """Send the base windows in advance, and continue to work."""
        packages = {}
        for key, track in self._tracks(message):
            sending = self._send(key, message.move, "jit")
            if sending.copied is None:  # the manager may repeat the message
                track.watermark = track.time(self.host.progress)
                packages[key[0]] = self._package(track, states=message.content["states"]), track.given
                sending.copied = track.known
        return [self._packed("BaseWindows", message, packages)] if packages else []

    def on_SwitchPartitions(self, message: Message) -> list[Sent]:
        """Stop, and send the receiver the rows joined since the copy, and the positions of the stop."""
        host, log = self.host, message.content["log"]
        remaining: dict[int, Any] = {}
        sent: list[Sent] = []
        for key, track in self._tracks(message):
            sending = self._send(key, message.move, "jit")
            sending.receiver, sending.epoch = message.content["receiver"], message.content["epochs"][key[0]]
            sending.forwards = not log
            sent += host.join(key, final=True)
            rows = track.rows_outside(sending.copied or track.known) if not log else [None] * host.splits
            host.note(key[0], WorkCounts(packed=sum(len(batch) for batch in rows if batch is not None)))
            package = Package(track.known, rows, track.watermark)
            remaining[key[0]] = package, track.given
        if remaining:
            sent.append(self._packed("RemainingPartitions", message, remaining))
        for split in range(host.splits):
            ended = [key for key, _ in self._tracks(message) if split in host.ended[key] and not log]
            sent += self._forwarded(split, [Entry(*key, None, 0, 0, end=True) for key in ended])
        for key, _ in self._tracks(message):
            if log or len(host.ended[key]) == host.splits:
                host.delete(key)
        return sent

    def divert(self, rows: RowsMessage) -> tuple[RowsMessage, list[Sent]]:
        """Return rows without those of switched tracks, and messages that forward these to the receivers."""
        forwarded = {key for key, sending in self.sending.items() if sending.forwards}
        if not forwarded:
            return rows, []
        theirs = [entry for entry in rows.entries if (entry.group, entry.epoch) in forwarded]
        sent = self._forwarded(rows.split, theirs)
        for entry in theirs:
            key = entry.group, entry.epoch
            if entry.end:
                self.host.ended[key].add(rows.split)
                if len(self.host.ended[key]) == self.host.splits:
                    self.host.delete(key)
        kept = tuple(entry for entry in rows.entries if (entry.group, entry.epoch) not in forwarded)
        return rows._replace(entries=kept), sent

    def _forwarded(self, split: int, entries: list[Entry]) -> list[Sent]:
        """Return entries of tracks that were switched, in one message per move."""
        by_move: dict[int, list[Entry]] = {}
        receivers: dict[int, int] = {}
        for entry in entries:
            sending = self.sending[entry.group, entry.epoch]
            receivers[sending.move] = sending.receiver
            by_move.setdefault(sending.move, []).append(entry._replace(epoch=sending.epoch))
            self.host.note(entry.group, WorkCounts(packed=0 if entry.rows is None else len(entry.rows)))
        sent: list[Sent] = []
        for move, forwarded in by_move.items():
            rows = [entry.rows for entry in forwarded if entry.rows is not None]
            kind = END if any(entry.end for entry in forwarded) else "ForwardedRows"
            message = Message(
                kind,
                move,
                tuple(dict.fromkeys(entry.group for entry in forwarded)),
                {"split": split, "entries": forwarded},
                sum(map(len, rows)),
                sum(batch.nbytes for batch in rows),
            )
            sent.append((processor(receivers[move]), message))
        return sent


def closest(loads: dict[int, float], amount: float) -> list[int]:
    """Return groups whose loads add up to at most `amount`, heaviest first; a single group may exceed it.

    >>> closest({0: 5.0, 1: 3.0, 2: 1.0}, 4.2)
    [1, 2]
    """
    if not amount > 0:
        raise InputError(f"amount={amount}: give the load to move, above 0")
    chosen: list[int] = []
    left = amount
    for group in sorted(loads, key=lambda candidate: (-loads[candidate], candidate)):
        if 0 < loads[group] <= left:
            chosen.append(group)
            left -= loads[group]
    if not chosen:
        worth = [group for group in loads if loads[group] > 0]
        chosen = [min(worth, key=lambda candidate: (loads[candidate], candidate))] if worth else []
    return chosen

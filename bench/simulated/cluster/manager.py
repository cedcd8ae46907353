"""The distribution manager: runs the protocols of `protocols.py`, step by step, and the recovery of lost groups.

Moves of different groups run in parallel; a move of a group that is already moving waits until that move has ended.

The decisions of the manager depend only on the journal of the messages that it received. So a lost manager is replaced
by a manager that reads the journal again (`replayed`).

A node that is lost (`lost`) loses its memory and all messages in transit to it. Each of its groups gets a new track,
which is built from the logs of the splits: at the new node of a move that has passed its point of no return, otherwise
at the old node. Source: Zhu and Rundensteiner, sec. 3.2; recovery is an addition of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from bench.simulated.cluster.fragments import Fragment
from bench.simulated.cluster.messages import STEPS, Message, Sent, processor, split
from bench.simulated.cluster.moves import CHANGES, Answers, Move, MoveOptions, MoveStep, Steps

Protocols = Mapping[str, "Callable[[Manager, Move], Steps]"]
"""The steps of each protocol, by its name (`protocols.py`)."""


class Manager:
    """The distribution manager.

    owners   per group the node that runs it
    streams  names of the streams, each with a split
    """

    def __init__(
        self, owners: Sequence[int], nodes: int, streams: Sequence[str], options: MoveOptions, protocols: Protocols
    ) -> None:
        self._first, self._protocols = tuple(owners), protocols
        self.owners, self.nodes, self.options = list(owners), nodes, options
        self.current = [0] * len(owners)
        """Per group, the epoch of its track."""
        self.epochs = [0] * len(owners)
        """Per group, the last epoch that was given out."""
        self.splits = [split(name) for name in streams]
        self.fragments: dict[int, Fragment] = {}
        """Partition group -> the fragments of its hot key after the first one."""
        self.moves: list[Move] = []
        self.down: set[int] = set()
        self._locked: dict[int, int] = {}
        self._streams = tuple(streams)
        self.journal: list[tuple[str, tuple[Any, ...]]] = []

    # The journal

    def replayed(self) -> tuple[Manager, list[Sent]]:
        """Return a manager with the state of this journal, and the messages of its current steps, to repeat."""
        other = Manager(self._first, self.nodes, self._streams, self.options, self._protocols)
        for name, arguments in self.journal:
            getattr(other, name)(*arguments)
        return other, [message for move in other.running for message in (move.now.send if move.now else ())]

    @property
    def running(self) -> list[Move]:
        """The moves that are running."""
        return [move for move in self.moves if move.state == "running"]

    @property
    def idle(self) -> bool:
        """Whether no move is running or waiting."""
        return not any(move.state in ("running", "waiting") for move in self.moves)

    # Requests

    def request(
        self, how: str, sender: int, receiver: int, groups: tuple[int, ...] = (), amount: float | None = None
    ) -> list[Sent]:
        """Request a move of groups, or of an amount of rows in groups that the sender chooses.

        The move begins when none of the groups is in another move. A group that the sender does not run at that time
        stays.
        """
        self.journal.append(("request", (how, sender, receiver, groups, amount)))
        self.moves.append(Move(len(self.moves), how, sender, receiver, groups, amount))
        return self._begin()

    def fragment(self, of: int, key: int, dealt: int, to: int, since: int) -> list[Sent]:
        """Give a hot key another fragment at a node; see `bench/simulated/cluster/fragments.py` for the arguments."""
        self.journal.append(("fragment", (of, key, dealt, to, since)))
        group = len(self.owners)
        for numbers, first in ((self.owners, to), (self.current, 0), (self.epochs, 0)):
            numbers.append(first)
        self.fragments[group] = Fragment(of, key, dealt, since)
        self._again(group)
        return self._begin()

    def gather(self, group: int) -> list[Sent]:
        """End a fragment as soon as none of its rows of the dealt stream can join."""
        self.journal.append(("gather", (group,)))
        self.fragments[group].state = "gathering"
        self._again(group)
        return self._begin()

    def _again(self, group: int) -> None:
        """Request the next move of a fragment, if it waits for one that is not running."""
        how = {"replicated": "fragment", "gathering": "gather"}.get(self.fragments[group].state)
        asked = [move for move in self.moves if move.how == how and group in move.groups]
        known = any(move.state in ("waiting", "running") for move in asked)
        if how is not None and not known:
            self.moves.append(Move(len(self.moves), how, self.owners[group], self.owners[group], (group,)))

    def _begin(self) -> list[Sent]:
        sent: list[Sent] = []
        claimed: set[int] = set()
        for move in self.moves:
            if move.state != "waiting":
                continue
            if move.how in ("fragment", "gather"):
                move.sender = move.receiver = self.owners[move.groups[0]]
            free = not any(group in self._locked or group in claimed for group in move.groups)
            if free and move.sender not in self.down and move.receiver not in self.down:
                sent += self._start(move)
            else:
                claimed.update(move.groups)
        return sent

    def _start(self, move: Move) -> list[Sent]:
        move.state = "running"
        if move.amount is not None:
            groups: Iterable[int] = (g for g in range(len(self.owners)) if g not in self._locked)
        else:
            groups = move.groups
        move.groups = tuple(g for g in groups if self.owners[g] == move.sender and g != -1)
        if not move.groups or (move.sender == move.receiver and move.how in ("parallel", "state", "jit")):
            move.state = "nothing"
            return []
        if move.amount is None:
            self._lock(move)
        move.steps = self._protocols[move.how](self, move)
        return self._next(move, None)

    def _lock(self, move: Move) -> None:
        for group in move.groups:
            self._locked[group] = move.number
            move.old_epochs[group] = self.current[group]
            self.epochs[group] += 1
            move.epochs[group] = self.epochs[group]

    def _next(self, move: Move, answers: Answers | None) -> list[Sent]:
        assert move.steps is not None
        try:
            step = next(move.steps) if answers is None else move.steps.send(answers)
        except StopIteration:
            if move.state == "running":
                move.state = "done"
            self._unlock(move)
            return self._begin()
        move.now, move.missing, move.answers = step, set(step.answers), {}
        sent = list(step.send)
        return sent if move.missing else sent + self._next(move, {})

    def _unlock(self, move: Move) -> None:
        move.now = None
        for group in move.groups:
            if self._locked.get(group) == move.number:
                del self._locked[group]

    # Messages

    def receive(self, source: str, message: Message) -> list[Sent]:
        """Take an answer; return the messages to send. Answers for which no step waits are ignored."""
        self.journal.append(("receive", (source, message)))
        if not 0 <= message.move < len(self.moves):
            return []
        move = self.moves[message.move]
        key = source, message.kind
        if move.state != "running" or key not in move.missing:
            return []
        move.missing.discard(key)
        move.answers[key] = message
        return [] if move.missing else self._next(move, move.answers)

    # Losses

    def lost(self, node: int) -> list[Sent]:
        """Record that a node has lost its memory; its moves stop until `restarted` or `removed`."""
        self.journal.append(("lost", (node,)))
        self.down.add(node)
        return []

    def restarted(self, node: int) -> list[Sent]:
        """Rebuild the groups of a node that has returned empty."""
        self.journal.append(("restarted", (node,)))
        self.down.discard(node)
        return self._recover(node, None) + self._begin()

    def removed(self, node: int, heirs: tuple[int, ...]) -> list[Sent]:
        """Rebuild the groups of a node that will not return, at other nodes in turn."""
        self.journal.append(("removed", (node, heirs)))
        for move in self.moves:
            if move.state != "waiting" or node not in (move.sender, move.receiver):
                continue
            if move.how == "fragment":
                self.owners[move.groups[0]] = heirs[0]
            elif move.how != "gather":
                move.state = "aborted"
        return self._recover(node, heirs) + self._begin()

    def _recover(self, node: int, heirs: tuple[int, ...] | None) -> list[Sent]:
        """Start recoveries of all groups that a node ran, sent or received."""
        homes: dict[int, int] = {}
        drops: dict[int, set[int]] = {}
        sent: list[Sent] = []
        for move in self.running:
            if node not in (move.sender, move.receiver):
                continue
            move.state = "aborted"
            if move.steps is not None:
                move.steps.close()
            self._unlock(move)
            if node == move.receiver and move.step < CHANGES[move.how]:
                # The sender and the splits have not changed any state: the move is cancelled.
                epochs = {group: epoch + 1 for group, epoch in move.epochs.items()}
                calls = Message("DropPartitions", move.number, tuple(epochs), {"epochs": epochs})
                sent.append((processor(node), calls))
                continue
            for group in move.groups if move.epochs else ():
                homes[group] = move.receiver if move.committed or move.how == "recover" else move.sender
                drops[group] = {move.sender, move.receiver}
        waiting = {
            pending.groups[0] for pending in self.moves if pending.state == "waiting" and pending.how == "fragment"
        }
        for group, host in enumerate(self.owners):
            if host == node and group not in self._locked and group not in waiting:
                homes.setdefault(group, node)
                drops.setdefault(group, {node})
        if heirs is not None:
            turns = [group for group in sorted(homes) if homes[group] == node]
            for turn, group in enumerate(turns):
                others = [peer for peer in drops[group] if peer != node and peer not in self.down]
                homes[group] = others[0] if others else heirs[turn % len(heirs)]
        for home in sorted(set(homes.values())):
            groups = tuple(group for group in sorted(homes) if homes[group] == home)
            move = Move(len(self.moves), "recover", node, home, groups, state="running")
            self.moves.append(move)
            self._lock(move)
            self.settle(move)
            rest = {peer for group in groups for peer in drops[group]} - {home} - self.down
            move.steps = self._protocols["recover"](self, move)
            message = Message("DropPartitions", move.number, groups, {"epochs": dict(move.epochs)})
            sent += [(processor(peer), message) for peer in sorted(rest)]
            sent += self._next(move, None)
        return sent

    # Parts of the protocols

    def ask(self, move: Move, kind: str, to: Iterable[str], **content: Any) -> list[Sent]:
        """Return a message of the current step to some addresses; `step` is its number in `STEPS`."""
        move.step = STEPS[move.how].index(kind) + 1
        base = {
            "receiver": move.receiver,
            "epochs": dict(move.epochs),
            "old_epochs": dict(move.old_epochs),
            "spans": self.options.spans,
        }
        message = Message(kind, move.number, move.groups, {**base, **content})
        return [(address, message) for address in to]

    def chosen(self, move: Move) -> Generator[MoveStep, Answers, Mapping[str, Any] | None]:
        """Execute steps 1 and 2 of all protocols, in which the sender names the moving groups; None without groups."""
        sender = processor(move.sender)
        answers = yield MoveStep(
            self.ask(move, "ComputePartitionsToMove", [sender], amount=move.amount), {(sender, "PartitionsToMove")}
        )
        answer = answers[sender, "PartitionsToMove"]
        groups = [g for g in answer.groups if self.owners[g] == move.sender]
        if move.amount is not None:
            move.groups = tuple(g for g in groups if g not in self._locked)
            self._lock(move)
        if not move.groups:
            move.state = "nothing"
            return None
        return answer.content

    def settle(self, move: Move) -> None:
        """Pass the point of no return: the groups belong to the receiver."""
        move.committed = True
        for group in move.groups:
            self.owners[group], self.current[group] = move.receiver, move.epochs[group]

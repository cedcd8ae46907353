"""The protocols of moves on the side of the manager: generators, of which each `yield` sends the messages of a step and
waits for its answers.

Source: Zhu and Rundensteiner, sec. 3.2 and 4.2: their Algorithms 1 and 3 are `PROTOCOLS["parallel"]` and `["state"]`.
The others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eddy.cluster.messages import UNION, Given, Message, Sent, processor
from eddy.cluster.positions import ENDLESS
from stairs.errors import InputError
from stairs.graph import FOREVER

if TYPE_CHECKING:
    from eddy.cluster.manager import Manager

PURGES = ("exact", "paper")
CHANGES = {"parallel": 3, "state": 3, "jit": 6, "recover": 1, "fragment": 1, "gather": 1}
"""The first step of each protocol that changes where rows go."""


class Step(NamedTuple):
    """Messages to send, and the answers to wait for as (address, kind)."""

    send: list[Sent]
    answers: set[tuple[str, str]]


Answers = dict[tuple[str, str], Message]
Steps = Generator[Step, Answers, None]


@dataclass
class Move:
    """One move of groups, or one recovery.

    groups     empty until PartitionsToMove, if the sender chooses them
    amount     rows to move, if the sender chooses the groups
    state      "waiting", "running", "done", "nothing" (no group to move) or "aborted"
    committed  the point of no return: after a loss, the groups go to the receiver
    step       number of the present step in `STEPS`, from 1
    """

    number: int
    how: str
    sender: int
    receiver: int
    groups: tuple[int, ...]
    amount: float | None = None
    state: str = "waiting"
    committed: bool = False
    step: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    old_epochs: dict[int, int] = field(default_factory=dict)
    now: Step | None = None
    missing: set[tuple[str, str]] = field(default_factory=set)
    answers: Answers = field(default_factory=dict)
    steps: Steps | None = None


class Options(NamedTuple):
    """Options of the protocols.

    purge    PTLB: "exact" reports AllOldPurged when no old row can join any more; "paper" a window later, if the plan
             has more than one join
    log      JIT: base windows come from the logs of the splits, not from the sender
    spans    per stream the size of its window in ticks, None = unbounded
    states   JIT from the sender: says for a sender and a receiver whether stored states are taken along
    """

    purge: str = "exact"
    log: bool = True
    spans: tuple[int | None, ...] = ()
    states: Callable[[int, int], bool] = lambda sender, receiver: False


def _parallel(manager: Manager, move: Move) -> Steps:
    """Algorithm 1: PTLB, five steps."""
    sender, splits = processor(move.sender), manager.splits
    if (yield from manager.chosen(move)) is None:
        return
    duplicate = manager.ask(move, "DuplicatePartitions", [sender, *splits], purge=manager.options.purge)
    yield Step(duplicate, {(sender, "AllOldPurged")})
    manager.settle(move)
    yield Step(manager.ask(move, "DeletePartitions", [sender, *splits]), set())


def _state(manager: Manager, move: Move) -> Steps:
    """Algorithm 3: MSLB, eight steps; ReceivePartitions goes from the sender to the receiver."""
    sender, receiver, splits = processor(move.sender), processor(move.receiver), manager.splits
    if (yield from manager.chosen(move)) is None:
        return
    deactivated = {(one, "Deactivated") for one in (sender, *splits)}
    yield Step(manager.ask(move, "DeactivatePartitions", [sender, *splits]), deactivated)
    yield Step(manager.ask(move, "SendPartitions", [sender]), {(receiver, "Received")})
    manager.settle(move)
    yield Step(manager.ask(move, "ReactivatePartitions", splits), set())


def _jit(manager: Manager, move: Move) -> Steps:
    """JIT: copy base windows while the sender goes on, then switch; the receiver completes states on demand."""
    sender, receiver, splits = processor(move.sender), processor(move.receiver), manager.splits
    chosen = yield from manager.chosen(move)
    if chosen is None:
        return
    log = manager.options.log
    known, watermarks = chosen["known"], chosen["watermarks"]
    states = not log and manager.options.states(move.sender, move.receiver)
    copy = manager.ask(
        move, "CopyPartitions", splits if log else [sender], known=known, watermarks=watermarks, states=states
    )
    yield Step(copy, {(receiver, "Copied")})
    manager.settle(move)
    switch = manager.ask(move, "SwitchPartitions", [sender, *splits], log=log, known=known)
    yield Step(switch, {(receiver, "Switched")})


def _recover(manager: Manager, move: Move) -> Steps:
    """Fence what was given, and build the tracks again from the logs."""
    receiver, splits = processor(move.receiver), manager.splits
    answers = yield Step(manager.ask(move, "FencePartitions", [UNION]), {(UNION, "Fenced")})
    given = answers[UNION, "Fenced"].content["given"]
    watermarks = {group: needed_from(own) for group, own in given.items()}
    rebuild = manager.ask(move, "RecoverPartitions", [receiver, *splits], given=given, watermarks=watermarks)
    yield Step(rebuild, {(receiver, "Recovered")})
    for group in move.groups:
        if group in manager.fragments:
            manager._again(group)


def _fragment(manager: Manager, move: Move) -> Steps:
    """Replicate the key at all splits, build the track of the fragment from their logs, and then deal rows to it."""
    ((group,), receiver, splits) = move.groups, processor(move.receiver), manager.splits
    own = manager.fragments[group]
    replicate = manager.ask(move, "ReplicateKey", splits, of=own.of, key=own.key, dealt=own.dealt, since=own.since)
    yield Step(replicate, {(one, "Replicated") for one in splits})
    nothing: dict[int, tuple[Given, ...]] = {group: ()}
    build = manager.ask(
        move, "RecoverPartitions", [receiver, *splits], given=nothing, watermarks={group: needed_from(())}
    )
    yield Step(build, {(receiver, "Recovered")})
    manager.settle(move)
    if own.state == "replicated":
        own.state = "dealt"
    yield Step(manager.ask(move, "DealKey", [splits[own.dealt]]), set())


def _gather(manager: Manager, move: Move) -> Steps:
    """Deal no more rows to the fragment, and delete it when those that it has cannot join."""
    ((group,), receiver, splits) = move.groups, processor(move.receiver), manager.splits
    own = manager.fragments[group]
    gather = manager.ask(move, "GatherKey", [receiver, splits[own.dealt]], dealt=own.dealt)
    yield Step(gather, {(receiver, "AllOldPurged")})
    move.committed, own.state, manager.owners[group] = True, "gathered", -1
    yield Step(manager.ask(move, "DeletePartitions", [receiver, *splits], gathered=True), set())


def needed_from(given: tuple[Given, ...]) -> int:
    """Return an event time such that a result that was not given has a component of this time or younger.

    given   what the tracks of a group have given, in the order of their epochs
    """
    marks = []
    for k, one in enumerate(given):
        endless = any(own and own[-1][1] == ENDLESS for region in one.elsewhere for own in region.intervals)
        if endless and k == len(given) - 1:
            return -FOREVER  # the receiver of a PTLB move has not given anything
        if not one.final or k == len(given) - 1:
            marks.append(one.watermark)
    return min(marks, default=-FOREVER)


PROTOCOLS: dict[str, Callable[[Manager, Move], Steps]] = {
    "parallel": _parallel,
    "state": _state,
    "jit": _jit,
    "recover": _recover,
    "fragment": _fragment,
    "gather": _gather,
}
"""The steps of each protocol on the side of the manager."""


def checked_how(how: object) -> str:
    """Return the name of a protocol. Raises InputError for any other value."""
    names = ("parallel", "state", "jit")
    if how not in names:
        raise InputError(f"how={how!r}: a move is made by one of {', '.join(map(repr, names))}")
    return str(how)

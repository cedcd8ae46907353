"""The protocols of moves on the side of the manager: generators, of which each `yield` sends the messages of a step and
waits for its answers.

Source: Zhu and Rundensteiner, sec. 3.2 and 4.2: their Algorithms 1 and 3 are `PROTOCOLS["parallel"]` and `["state"]`.
The other protocols are additions of this project.
"""

from __future__ import annotations

from bench.simulated.cluster.manager import Manager, Protocols
from bench.simulated.cluster.messages import UNION, EmittedResults, processor
from bench.simulated.cluster.moves import Move, MoveStep, Steps
from bench.simulated.cluster.positions import ENDLESS
from stairs.graph import FOREVER


def _parallel(manager: Manager, move: Move) -> Steps:
    """Algorithm 1: PTLB, five steps."""
    sender, splits = processor(move.sender), manager.splits
    if (yield from manager.chosen(move)) is None:
        return
    duplicate = manager.ask(move, "DuplicatePartitions", [sender, *splits], purge=manager.options.variants.purge)
    yield MoveStep(duplicate, {(sender, "AllOldPurged")})
    manager.settle(move)
    yield MoveStep(manager.ask(move, "DeletePartitions", [sender, *splits]), set())


def _state(manager: Manager, move: Move) -> Steps:
    """Algorithm 3: MSLB, eight steps; ReceivePartitions goes from the sender to the receiver."""
    sender, receiver, splits = processor(move.sender), processor(move.receiver), manager.splits
    if (yield from manager.chosen(move)) is None:
        return
    deactivated = {(process, "Deactivated") for process in (sender, *splits)}
    yield MoveStep(manager.ask(move, "DeactivatePartitions", [sender, *splits]), deactivated)
    yield MoveStep(manager.ask(move, "SendPartitions", [sender]), {(receiver, "Received")})
    manager.settle(move)
    yield MoveStep(manager.ask(move, "ReactivatePartitions", splits), set())


def _jit(manager: Manager, move: Move) -> Steps:
    """JIT: copy base windows while the sender works, then switch; the receiver completes states on demand."""
    sender, receiver, splits = processor(move.sender), processor(move.receiver), manager.splits
    chosen = yield from manager.chosen(move)
    if chosen is None:
        return
    log = manager.options.variants.copy == "log"
    known, watermarks = chosen["known"], chosen["watermarks"]
    states = not log and manager.options.states(move.sender, move.receiver)
    copy = manager.ask(
        move, "CopyPartitions", splits if log else [sender], known=known, watermarks=watermarks, states=states
    )
    yield MoveStep(copy, {(receiver, "Copied")})
    manager.settle(move)
    switch = manager.ask(move, "SwitchPartitions", [sender, *splits], log=log, known=known)
    yield MoveStep(switch, {(receiver, "Switched")})


def _recover(manager: Manager, move: Move) -> Steps:
    """Fence the emitted results, and build the tracks again from the logs."""
    receiver, splits = processor(move.receiver), manager.splits
    answers = yield MoveStep(manager.ask(move, "FencePartitions", [UNION]), {(UNION, "Fenced")})
    given = answers[UNION, "Fenced"].content["given"]
    watermarks = {group: needed_from(records) for group, records in given.items()}
    rebuild = manager.ask(move, "RecoverPartitions", [receiver, *splits], given=given, watermarks=watermarks)
    yield MoveStep(rebuild, {(receiver, "Recovered")})
    for group in move.groups:
        if group in manager.fragments:
            manager._again(group)


def _fragment(manager: Manager, move: Move) -> Steps:
    """Replicate the key at all splits, build the track of the fragment from their logs, and then deal rows to it."""
    ((group,), receiver, splits) = move.groups, processor(move.receiver), manager.splits
    fragment = manager.fragments[group]
    replicate = manager.ask(
        move, "ReplicateKey", splits, of=fragment.of, key=fragment.key, dealt=fragment.dealt, since=fragment.since
    )
    yield MoveStep(replicate, {(split, "Replicated") for split in splits})
    nothing: dict[int, tuple[EmittedResults, ...]] = {group: ()}
    build = manager.ask(
        move, "RecoverPartitions", [receiver, *splits], given=nothing, watermarks={group: needed_from(())}
    )
    yield MoveStep(build, {(receiver, "Recovered")})
    manager.settle(move)
    if fragment.state == "replicated":
        fragment.state = "dealt"
    yield MoveStep(manager.ask(move, "DealKey", [splits[fragment.dealt]]), set())


def _gather(manager: Manager, move: Move) -> Steps:
    """Deal no more rows to the fragment, and delete the fragment when its rows can no longer join."""
    ((group,), receiver, splits) = move.groups, processor(move.receiver), manager.splits
    fragment = manager.fragments[group]
    gather = manager.ask(move, "GatherKey", [receiver, splits[fragment.dealt]], dealt=fragment.dealt)
    yield MoveStep(gather, {(receiver, "AllOldPurged")})
    move.committed, fragment.state, manager.owners[group] = True, "gathered", -1
    yield MoveStep(manager.ask(move, "DeletePartitions", [receiver, *splits], gathered=True), set())


def needed_from(given: tuple[EmittedResults, ...]) -> int:
    """Return an event time such that each result that was not emitted has a component of this time or younger.

    given   records of the results of a group's tracks, in the order of their epochs
    """
    marks = []
    for k, record in enumerate(given):
        endless = any(
            intervals and intervals[-1][1] == ENDLESS for region in record.elsewhere for intervals in region.intervals
        )
        if endless and k == len(given) - 1:
            return -FOREVER  # the receiver of a PTLB move has emitted no results
        if not record.final or k == len(given) - 1:
            marks.append(record.watermark)
    return min(marks, default=-FOREVER)


PROTOCOLS: Protocols = {
    "parallel": _parallel,
    "state": _state,
    "jit": _jit,
    "recover": _recover,
    "fragment": _fragment,
    "gather": _gather,
}
"""The steps of each protocol on the side of the manager."""

"""Moves of partition groups: their options, their state, and the messages and answers of a step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.simulated.cluster.messages import Message, Sent
from stairs.errors import InputError

CHANGES = {"parallel": 3, "state": 3, "jit": 6, "recover": 1, "fragment": 1, "gather": 1}
"""The first step of each protocol that changes the destination of rows."""


class MoveStep(NamedTuple):
    """Messages to send, and the answers to wait for as (address, kind)."""

    send: list[Sent]
    answers: set[tuple[str, str]]


Answers = dict[tuple[str, str], Message]
Steps = Generator[MoveStep, Answers, None]


@dataclass
class Move:
    """One move of groups, or one recovery.

    groups     empty until PartitionsToMove, if the sender chooses them
    amount     rows to move, if the sender chooses the groups
    state      "waiting", "running", "done", "nothing" (no group to move) or "aborted"
    committed  the point of no return: after a loss, the groups go to the receiver
    step       number of the current step in `STEPS`, from 1
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
    now: MoveStep | None = None
    missing: set[tuple[str, str]] = field(default_factory=set)
    answers: Answers = field(default_factory=dict)
    steps: Steps | None = None


@dataclass(frozen=True)
class Variants:
    """The variants of the protocols.

    purge    end of a PTLB move: "exact", when no old row can join any longer; "paper", a window later if the plan has
             more than one join
    copy     source of base windows in a JIT move: "log", the replicated logs of the splits, or "sender"
    """

    purge: str = "exact"
    copy: str = "log"

    def __post_init__(self) -> None:
        if self.purge not in ("exact", "paper"):
            raise InputError(f"purge={self.purge!r}: choose one of 'exact', 'paper'")
        if self.copy not in ("log", "sender"):
            raise InputError(f"copy={self.copy!r}: base windows come from the 'log' or from the 'sender'")


class MoveOptions(NamedTuple):
    """The options of the protocols for the manager.

    variants the variants of the protocols
    spans    per stream the size of its window in ticks, None = unbounded
    states   for JIT from the sender: returns for a sender and a receiver whether a move includes stored states
    """

    variants: Variants = Variants()
    spans: tuple[int | None, ...] = ()
    states: Callable[[int, int], bool] = lambda sender, receiver: False


def checked_how(how: object) -> str:
    """Return the name of a protocol. Raises InputError for any other value."""
    names = ("parallel", "state", "jit")
    if how not in names:
        raise InputError(f"how={how!r}: a move is made by one of {', '.join(map(repr, names))}")
    return str(how)

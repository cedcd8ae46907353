"""Join execution plans: for each head stream, the order of its one-way joins and the placement of each.

A tuple of its *head* stream probes the windows of the other streams one after the other. Each of these one-way joins
happens at one of two places: at its *source*, where the intermediate tuples are (a copy of the window is kept there),
or at its *destination*, the node of the window's stream (the intermediate tuples are shipped there).

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 2.1 and definition 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stairs.errors import PlanError
from stairs.nearest import no_stream

SOURCE, DESTINATION = 0, 1
"""Placements: the value 0 or 1 of the paper's p."""
PLACEMENTS = {"window": SOURCE, "ship": DESTINATION}
"""Placements as users write them, by what travels: the window's tuples, or the intermediate tuples are shipped."""


@dataclass(frozen=True)
class SEP:
    """A per-stream execution plan: how a tuple of one stream, the head, joins all other streams.

    head        position of the head stream
    order       positions of the other streams, in the order in which they are joined
    placement   per one-way join, SOURCE or DESTINATION

    Raises PlanError for an order that is no permutation of the other streams, and for an unknown placement.

    >>> SEP(0, (1, 2), (DESTINATION, SOURCE)).text(("R", "S", "T"))
    'R: ship S, window T'
    """

    head: int
    order: tuple[int, ...]
    placement: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted((self.head, *self.order)) != list(range(len(self.order) + 1)):
            raise PlanError(
                f"the plan of head stream {self.head} joins the streams {list(self.order)}; it must join each of the"
                f" other streams of 0 to {len(self.order)} once"
            )
        if len(self.placement) != len(self.order) or not set(self.placement) <= {SOURCE, DESTINATION}:
            raise PlanError(
                f"the plan of head stream {self.head} has {len(self.order)} one-way joins and the placements"
                f" {list(self.placement)}; give 0 (source) or 1 (destination) for each"
            )

    def text(self, names: Sequence[str]) -> str:
        """Return the plan in words: per join what travels, and the stream that is joined."""
        ways = {value: word for word, value in PLACEMENTS.items()}
        hops = ", ".join(f"{ways[p]} {names[j]}" for j, p in zip(self.order, self.placement, strict=True))
        return f"{names[self.head]}: {hops}"


@dataclass(frozen=True)
class JEP:
    """A join execution plan: one SEP for each stream, in the order of the streams.

    Raises PlanError if a SEP is missing or at the wrong position.
    """

    seps: tuple[SEP, ...]

    def __post_init__(self) -> None:
        heads = [sep.head for sep in self.seps]
        if heads != list(range(len(heads))) or any(len(sep.order) != len(heads) - 1 for sep in self.seps):
            raise PlanError(f"a join execution plan has one plan per stream, in their order; its heads are {heads}")

    def text(self, names: Sequence[str]) -> str:
        """Return one line for each head stream."""
        return "\n".join(sep.text(names) for sep in self.seps)

    def replaced(self, *seps: SEP) -> JEP:
        """Return this plan with other plans for some of the heads."""
        plans = list(self.seps)
        for sep in seps:
            plans[sep.head] = sep
        return JEP(tuple(plans))


def seps(given: Mapping[str, Iterable[tuple[str, str]]], names: Sequence[str]) -> dict[int, SEP]:
    """Return by head, in the order given, the plans that a user writes as {head: [(stream, "ship" or "window"), …]}.

    Raises PlanError for an unknown stream or placement, and for a plan that leaves a stream out or names one twice.
    """
    at, words = {name: i for i, name in enumerate(names)}, tuple(PLACEMENTS)

    def stream(name: object) -> int:
        if not isinstance(name, str) or name not in at:
            raise PlanError(f"placement: {no_stream(name, names)}")
        return at[name]

    plans = {}
    for head, hops in given.items():
        order: list[int] = []
        placement = []
        if not isinstance(hops, Iterable):
            raise PlanError(f'placement of head {head}: {hops!r} is no list of pairs (stream, "ship" or "window")')
        for hop in hops:
            if not isinstance(hop, tuple) or len(hop) != 2 or hop[1] not in words:
                raise PlanError(f'placement of head {head}: {hop!r} is no pair (stream, "ship" or "window")')
            if stream(hop[0]) in (stream(head), *order):
                raise PlanError(f"placement of head {head}: {hop[0]} comes twice; join each of the other streams once")
            order.append(stream(hop[0]))
            placement.append(PLACEMENTS[hop[1]])
        plans[stream(head)] = SEP(stream(head), tuple(order), tuple(placement))
    return plans


def jep(given: Mapping[str, Iterable[tuple[str, str]]], names: Sequence[str]) -> JEP:
    """Return the plan of all heads that a user writes as {head: [(stream, "ship" or "window"), …]}.

    Raises PlanError for an unknown stream or placement, and for a head without a plan.

    >>> plan = jep({"R": [("S", "ship")], "S": [("R", "window")]}, ["R", "S"])
    >>> plan.seps[1]
    SEP(head=1, order=(0,), placement=(0,))
    """
    plans = seps(given, names)
    missing = [name for i, name in enumerate(names) if i not in plans]
    if missing:
        raise PlanError(f"placement: stream {missing[0]} has no plan; give one for each stream as head")
    return JEP(tuple(plans[i] for i in range(len(names))))

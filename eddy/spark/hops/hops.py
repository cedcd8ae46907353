"""The plan of a join in several hops: the steps of each round, and the place of each step.

The plan of each head stream is a list of steps. Each step has a *place*: all partitions, which share the work by the
keys of one class. Successive steps at the same place are a *leg*: they run in one task. After a leg the intermediate
tuples are shuffled to the place of the next leg.

    head R: S by a, T by b      round 1: R, S dealt by a            -> intermediate tuples R S
                                round 2: R S, T dealt by b          -> results
    head T: S by b, R by b      round 2: T, S dealt by b, R to all  -> results

Heads with fewer legs begin later, so that the last round emits all results.

In a batch join a round is one shuffle; the rows of a stream are read again in each round that needs them. With windows,
each row is a head and joins the rows that precede it in (event time, stream). Without windows every order of arrival
gives the same results, so one stream is the head of all results, and its rows join all other streams.

In a streaming join each row is a head. The partitions of a streaming join are called nodes. A node keeps *copies* of
windows, one copy for each stream and each class by whose keys the stream is partitioned. The rows of a micro-batch
enter all copies before the first round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eddy.placement.keys import classes_of
from eddy.placement.operators import NOS
from eddy.placement.places import Place, by_class
from eddy.placement.plan import DESTINATION, SEP, seps
from eddy.placement.program import Steps, place_operators
from eddy.query.query import Query
from eddy.spark.partitioning.operators import homes
from stairs.errors import PlanError


@dataclass(frozen=True)
class Leg:
    """Steps of one head that run in one task: their place, and the streams that they join in turn."""

    place: Place
    joins: tuple[int, ...]


@dataclass(frozen=True)
class Hops:
    """The plan of a join in hops.

    partitions   number of partitions that share the work
    starts       per stream its home: the partitions by its first key
    routes       by head its steps; heads without results are left out
    timed        whether rows of several streams are heads, and join only rows that precede them
    """

    partitions: int
    starts: tuple[Place, ...]
    routes: Mapping[int, Steps]
    timed: bool

    @cached_property
    def legs(self) -> dict[int, list[Leg]]:
        """Head -> its legs, one for each round in which the head joins."""
        legs: dict[int, list[Leg]] = {}
        for head, steps in self.routes.items():
            head_legs: list[Leg] = []
            for j, place in steps:
                if head_legs and head_legs[-1].place == place:
                    head_legs[-1] = Leg(place, (*head_legs[-1].joins, j))
                else:
                    head_legs.append(Leg(place, (j,)))
            legs[head] = head_legs
        return legs

    @property
    def rounds(self) -> int:
        """The number of shuffles."""
        return max(map(len, self.legs.values()))

    def leg(self, head: int, number: int) -> Leg | None:
        """Return the leg of a head in a round, counted from 0; None before the head begins."""
        legs = self.legs[head]
        at = number - self.rounds + len(legs)
        return legs[at] if at >= 0 else None

    def beginning(self, number: int) -> list[int]:
        """Return the heads that begin in a round."""
        return [head for head, legs in self.legs.items() if len(legs) == self.rounds - number]

    def bound(self, head: int, number: int) -> tuple[int, ...]:
        """Return the streams that the tuples of a head have joined before a round, the head first."""
        legs = self.legs[head]
        return (head, *(j for leg in legs[: max(0, number - self.rounds + len(legs))] for j in leg.joins))

    def dealt(self, number: int) -> dict[int, tuple[int, ...]]:
        """Return by stream the classes by whose keys its rows are partitioned in a round, without other streams.

        The rows are those of its windows, and its heads in the round in which it begins.
        """
        by_stream: dict[int, set[int]] = {}
        for head in self.legs:
            leg = self.leg(head, number)
            if leg is not None:
                begins = (head,) if head in self.beginning(number) else ()
                for stream in (*leg.joins, *begins):
                    by_stream.setdefault(stream, set()).add(key_class(leg.place))
        return {stream: tuple(sorted(classes)) for stream, classes in sorted(by_stream.items())}

    @cached_property
    def copies(self) -> frozenset[tuple[int, int]]:
        """The copies of windows that a streaming join keeps: (stream, class)."""
        return frozenset((j, key_class(leg.place)) for legs in self.legs.values() for leg in legs for j in leg.joins)

    @cached_property
    def entries(self) -> dict[int, int]:
        """Head -> the class by whose keys the rows of the head are partitioned for the first leg."""
        return {head: key_class(legs[0].place) for head, legs in self.legs.items()}

    def operators(self) -> dict[Place, NOS]:
        """Return the operators of each place."""
        return place_operators(self.starts, self.routes)

    def lines(self, names: Sequence[str], labels: Sequence[str]) -> list[str]:
        """Return lines of text with the steps of each head."""
        lines = []
        for head, steps in self.routes.items():
            hops = ", ".join(f"{names[j]} at {place.text(labels)}" for j, place in steps)
            lines.append(f"  {names[head]}: {hops}")
        return lines


def key_class(place: Place) -> int:
    """Return the class whose keys assign rows to a place; with one partition any class works."""
    return place.shares[0][0] if place.shares else 0


def own_hops(query: Query, plan: Mapping[str, Sequence[tuple[str, str]]], partitions: int, timed: bool) -> Hops:
    """Return the hops of a plan that a user wrote as {head: [(stream, "ship" or "window"), …]}.

    "ship" shuffles the intermediate tuples by a key that they share with the stream, if possible by another key than
    before. "window" leaves the tuples in their partitions: the stream is partitioned by their key, or goes to all
    partitions if it lacks this key. The rows of a head begin at its home. Without windows the plan of one head is
    enough, and the first plan counts. Raises PlanError for a plan that does not fit the query.
    """
    names = query.graph.names
    given = seps(plan, names)
    for head, sep in given.items():
        if len(sep.order) != len(names) - 1:
            raise PlanError(f"placement of head {names[head]}: it must join each of the other streams once")
    if timed:
        missing = [name for i, name in enumerate(names) if i not in given]
        if missing:
            raise PlanError(f"placement: stream {missing[0]} has no plan; give one for each stream as head")
    elif given:
        head = next(iter(given))
        given = {head: given[head]}
    else:
        raise PlanError("placement: give the plan of one head stream at least")
    starts = homes(query, partitions)
    return Hops(
        partitions, starts, {head: _steps(query, sep, starts[head], partitions) for head, sep in given.items()}, timed
    )


def _steps(query: Query, sep: SEP, start: Place, partitions: int) -> Steps:
    names, classes = query.graph.names, classes_of(query)
    bound, reached, at, steps = classes[sep.head], [sep.head], start, []
    for j, placement in zip(sep.order, sep.placement, strict=True):
        common = sorted(bound & classes[j])
        if not common:
            raise PlanError(
                f"placement of head {names[sep.head]}: no predicate connects {names[j]} with"
                f" {', '.join(names[i] for i in reached)}; put a stream that is connected first"
            )
        if placement == DESTINATION:
            at = by_class(range(partitions), next((c for c in common if c != key_class(at)), common[0]))
        steps.append((j, at))
        bound |= classes[j]
        reached.append(j)
    return tuple(steps)

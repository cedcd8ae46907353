"""Programs: a plan as the operators of each place, ready to run.

A program says for each head stream the steps of its plan, (stream, place) in order. Two kinds of plan become programs:
a join execution plan with one node per stream, and one whose steps happen at places of several nodes (`routes.py`).

A *copy* is a window that an operator update(S) keeps at a place. Copies have the version that made them (`born`). A
copy that the next version also needs is kept; a copy that a later version makes again is a different copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eddy.placement.operators import (
    NOS,
    NOTHING,
    JoinOperator,
    Operator,
    Ship,
    StreamId,
    Update,
    route_operators,
    steps_of,
)
from eddy.placement.places import Place
from eddy.placement.plan import JEP
from stairs.errors import PlanError

FIRST_VERSION = 1
"""The version of the program with which a cluster starts, and of copies made before the first row: without a base."""
Steps = tuple[tuple[int, Place], ...]
Copy = tuple[int, Place, int]
"""A copy of a window: (stream, place, version that made it)."""


def place_operators(starts: Sequence[Place], routes: Mapping[int, Steps]) -> dict[Place, NOS]:
    """Return the operators of each place: the union over the steps of these heads."""
    operators: dict[Place, NOS] = {}
    for head, steps in routes.items():
        for place, operator_set in route_operators(head, dict(enumerate(starts)), steps).items():
            operators[place] = operators.get(place, NOTHING) | operator_set
    return operators


@dataclass(frozen=True)
class Program:
    """A program, which all nodes run.

    starts    per stream the place where its rows arrive
    routes    per head its steps
    version   number of the program; later ones are greater
    born      by (stream, place), the version that made the copy
    """

    starts: tuple[Place, ...]
    routes: tuple[Steps, ...]
    version: int
    born: Mapping[tuple[int, Place], int]

    @cached_property
    def operators(self) -> dict[Place, NOS]:
        """The operators of each place."""
        return place_operators(self.starts, dict(enumerate(self.routes)))

    @cached_property
    def by_source(self) -> dict[tuple[Place, StreamId], tuple[Operator, ...]]:
        """The operators that a place runs for tuples with the id of a stream: those whose first argument it is."""
        operators: dict[tuple[Place, StreamId], tuple[Operator, ...]] = {}
        for place, operator_set in self.operators.items():
            for operator in sorted(operator_set, key=str):
                operators[place, operator.source] = (*operators.get((place, operator.source), ()), operator)
        return operators

    @cached_property
    def _known_steps(self) -> dict[tuple[Place, StreamId], tuple[JoinOperator | None, list[Ship]]]:
        return {
            at: (
                next((operator for operator in operators if isinstance(operator, JoinOperator)), None),
                [o for o in operators if isinstance(o, Ship)],
            )
            for at, operators in self.by_source.items()
        }

    def _steps(self, place: Place, source: StreamId) -> tuple[JoinOperator | None, list[Ship]]:
        return self._known_steps.get((place, source), (None, []))

    @cached_property
    def copies(self) -> frozenset[Copy]:
        """All copies of windows."""
        return frozenset((*copy, version) for copy, version in self.born.items())

    def join(self, place: Place, source: StreamId) -> JoinOperator | None:
        """Return the join of these tuples at a place; None if the tuples are only shipped."""
        return self._steps(place, source)[0]

    def ships(self, place: Place, source: StreamId) -> list[Ship]:
        """Return the shipments of these tuples from a place."""
        return self._steps(place, source)[1]

    def at_node(self, node: int) -> dict[Place, NOS]:
        """Return the operator set of a node, by the place of which the node is a part."""
        return {place: operator_set for place, operator_set in self.operators.items() if node in place.nodes}


def program(
    starts: Sequence[Place], routes: Sequence[Steps], before: Program | None = None, *, bare: bool = False
) -> Program:
    """Return the program of these steps, which follows another one.

    bare   whether no row has arrived and no row arrives before all nodes have the program; its copies have no base then

    Raises PlanError if a head does not join each other stream once.
    """
    version = FIRST_VERSION if before is None else before.version + 1
    old = {} if before is None else before.born
    born = FIRST_VERSION if bare else version
    for head, steps in enumerate(routes):
        if sorted((head, *(j for j, _ in steps))) != list(range(len(starts))):
            raise PlanError(f"the steps of head {head} join {[j for j, _ in steps]}; they must join each other stream")
    made = Program(tuple(starts), tuple(routes), version, {})
    windows = {
        (operator.stream, p)
        for p, operator_set in made.operators.items()
        for operator in operator_set
        if isinstance(operator, Update)
    }
    return Program(made.starts, made.routes, version, {copy: old.get(copy, born) for copy in windows})


def sited_routes(plan: JEP) -> list[Steps]:
    """Return the steps of a plan with one node per stream."""
    return [tuple((j, Place((node,))) for j, node in steps_of(sep)) for sep in plan.seps]

"""Node operator sets: the operators that each node runs as its share of a join execution plan.

    join(A, S)   tuples of A probe the window of S
    update(S)    tuples of S enter its window
    ship(A, N)   tuples of A travel to node N

A node runs, for tuples that arrive with the id of A, all operators whose first argument is A. The id of a stream is its
name; S^R stands for the results of joining S in the plan headed by R. One ship(S, N) serves all plans that need it:
those that S heads and that probe at N, and those that keep a copy of the window of S at N.

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 4.1, definition 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from eddy.placement.places import Place
from eddy.placement.plan import DESTINATION, JEP, SEP

SITE = -1
"""The node that receives the results: N_0 of the paper."""
Location = int | Place
"""The location of an operator: the node of a stream, or a place of several nodes, which all run the operator."""


Where = TypeVar("Where", int, Place)


class StreamId(NamedTuple):
    """The tuples of a stream (head = -1), or the results of joining it in the plan of a head."""

    stream: int
    head: int = -1

    def text(self, names: Sequence[str]) -> str:
        """Return the name of the stream, as in "S" or "S^R"."""
        return names[self.stream] if self.head < 0 else f"{names[self.stream]}^{names[self.head]}"


class JoinOperator(NamedTuple):
    """Tuples of `source` probe the window of `stream`."""

    source: StreamId
    stream: int

    def text(self, names: Sequence[str]) -> str:
        """Return join(source, stream)."""
        return f"join({self.source.text(names)}, {names[self.stream]})"


class Update(NamedTuple):
    """Tuples of `stream` enter its window. Its source is the stream itself."""

    stream: int

    @property
    def source(self) -> StreamId:
        """The id of the tuples that enter."""
        return StreamId(self.stream)

    def text(self, names: Sequence[str]) -> str:
        """Return update(stream)."""
        return f"update({names[self.stream]})"


class Ship(NamedTuple):
    """Tuples of `source` travel to a location, or to the site of the query."""

    source: StreamId
    to: Location

    def text(self, names: Sequence[str], labels: Sequence[str] = ()) -> str:
        """Return ship(source, node); the node of stream S is written N(S). `labels` names the classes of places."""
        if isinstance(self.to, Place):
            where = self.to.text(labels)
        else:
            where = "site" if self.to == SITE else f"N({names[self.to]})"
        return f"ship({self.source.text(names)}, {where})"


Operator = JoinOperator | Update | Ship
NOS = frozenset[Operator]
"""A node operator set."""
NOTHING: NOS = frozenset()


def route_operators(head: int, start: Mapping[int, Where], steps: Iterable[tuple[int, Where]]) -> dict[Where, NOS]:
    """Return by location the operators of one plan; locations without any are left out.

    start   by stream, the location where its tuples arrive
    steps   the streams in the order in which they are joined, and where
    """
    operators: dict[Where, set[Operator]] = {}

    def add(where: Where, operator: Operator) -> None:
        operators.setdefault(where, set()).add(operator)

    at, tuples = start[head], StreamId(head)
    for j, where in steps:
        if where != at:
            add(at, Ship(tuples, where))
            at = where
        if start[j] != at:
            add(start[j], Ship(StreamId(j), at))
        add(at, JoinOperator(tuples, j))
        add(at, Update(j))
        tuples = StreamId(j, head)
    add(at, Ship(tuples, SITE))
    return {where: frozenset(operator_set) for where, operator_set in operators.items()}


def steps_of(sep: SEP) -> list[tuple[int, int]]:
    """Return the streams in the order in which they are joined, each with the node of its join."""
    steps, at = [], sep.head
    for j, p in zip(sep.order, sep.placement, strict=True):
        at = j if p == DESTINATION else at
        steps.append((j, at))
    return steps


def sep_operators(sep: SEP) -> dict[int, NOS]:
    """Return by node the operators that one plan needs there; nodes without any are left out. O(streams)."""
    return route_operators(sep.head, {i: i for i in range(len(sep.order) + 1)}, steps_of(sep))


def node_operator_sets(plan: JEP) -> list[NOS]:
    """Return the operator set of each node: the union over all plans (definition 2). O(streams²)."""
    parts = [sep_operators(sep) for sep in plan.seps]
    return [frozenset().union(*(part.get(node, NOTHING) for part in parts)) for node in range(len(plan.seps))]


def windows_at(operators: NOS) -> frozenset[int]:
    """Return the streams whose windows a node keeps."""
    return frozenset(operator.stream for operator in operators if isinstance(operator, Update))


def texts(operators: NOS, names: Sequence[str], labels: Sequence[str] = ()) -> list[str]:
    """Return the operators as text, sorted; `labels` names the classes of places."""
    return sorted(
        operator.text(names, labels) if isinstance(operator, Ship) else operator.text(names) for operator in operators
    )

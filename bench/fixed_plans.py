"""Fixed plans for comparison: left-deep plans without a cross product, one of each kind of work.

Leaf hops that are bound at the same time are looked up together, in any order. So plans whose routes have the same
trunk hops in the same order, and the same leaf hops after each trunk hop, do the same work.

The best fixed plan, and the best plan of each phase, are known only afterwards. The least of several measurements is
less than the time of the best plan, since noise favours one of them. So a plan is chosen by its times on every second
push and counted by its times on the other pushes, and vice versa. A plan that was chosen because of noise then counts
with its real time. The best plan of each phase has no cost of changes of plan, because it is an ideal and not a
contender.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from jisc.plan.routes import Hop, route
from jisc.plan.tree import default_plan, left_deep
from stairs.graph import JoinGraph

Floats = npt.NDArray[np.float64]
Order = tuple[int, ...]
Work = tuple[tuple[tuple[Hop, ...], frozenset[Hop]], ...]
MOST_LISTED = 2_000
"""Maximal number of left-deep orders that are examined."""


def texts(orders: list[Order], graph: JoinGraph) -> list[str]:
    """Return left-deep plans as text."""
    return [left_deep(order).text(graph.names) for order in orders]


def extensions(order: Order, graph: JoinGraph) -> list[int]:
    """Return the streams that a predicate connects with the streams of an order. O(streams * classes)."""
    done = frozenset(order)
    return [j for j in range(graph.n_streams) if j not in done and graph.shared(done, frozenset([j]))]


def from_the_end(graph: JoinGraph) -> Order:
    """Return the order that begins with the last stream and always takes the last connected stream."""
    order: Order = (graph.n_streams - 1,)
    while len(order) < graph.n_streams:
        order = (*order, extensions(order, graph)[-1])
    return order


def all_orders(graph: JoinGraph) -> Iterator[Order]:
    """Yield the left-deep orders without a cross product, without orders that only swap the first two streams."""
    waiting: list[Order] = [(i,) for i in reversed(range(graph.n_streams))]
    while waiting:
        order = waiting.pop()
        if len(order) == graph.n_streams:
            yield order
        for j in reversed(extensions(order, graph)):
            # (R S) and (S R) are one join.
            if len(order) > 1 or j > order[0]:
                waiting.append((*order, j))


def work(order: Order, graph: JoinGraph) -> Work:
    """Return the work of a left-deep plan; plans that do the same work have equal values."""
    tree, done = left_deep(order), []
    for i in range(graph.n_streams):
        hops = route(tree, i, graph)
        done.append((tuple(hop for hop in hops if not hop.leaf), frozenset(hop for hop in hops if hop.leaf)))
    return tuple(done)


def fixed_plans(graph: JoinGraph, most: int = 50) -> list[Order]:
    """Return one left-deep plan of each kind of work, at most `most`, the default order first."""
    default = tuple(default_plan(graph).leaves())
    if graph.n_classes == 1:  # every hop is bound by the arrival
        return [default]
    kinds: dict[Work, Order] = {work(default, graph): default}
    for order in islice(all_orders(graph), MOST_LISTED):
        kinds.setdefault(work(order, graph), order)
    return list(kinds.values())[:most]


@dataclass(frozen=True)
class Times:
    """Seconds of each contender on each push.

    seconds   float64[contenders, pushes]
    phases    the name of the phase of each push
    """

    names: list[str]
    seconds: Floats
    phases: list[str]

    def total(self, name: str) -> float:
        """Return the seconds of one contender."""
        return float(self.seconds[self.names.index(name)].sum())

    def rows(self, names: list[str]) -> Floats:
        """Return the seconds of some contenders, float64[names, pushes]."""
        return self.seconds[[self.names.index(name) for name in names]]


def crossed(seconds: Floats, phases: list[str]) -> float:
    """Return the seconds of the best row; each half of the pushes counts for the row that is best on the other half.

    Each phase is halved separately, so that no plan is chosen by one phase and counted on another. A push that is a
    whole phase counts half in each half.

    >>> crossed(np.array([[2.0, 2.0, 2.0, 2.0], [1.0, 3.5, 1.0, 3.5]]), ["a"] * 4)  # 4 + 7, not the lucky 1.0s
    11.0
    """
    names, halves = np.array(phases), np.zeros((2, len(seconds)))
    for phase in dict.fromkeys(phases):
        of_phase = seconds[:, names == phase]
        if of_phase.shape[1] == 1:
            halves += of_phase.T / 2
        else:
            halves += np.array([of_phase[:, ::2].sum(axis=1), of_phase[:, 1::2].sum(axis=1)])
    even, odd = halves
    return float(even[odd.argmin()] + odd[even.argmin()])


def best_fixed(times: Times, fixed: list[str]) -> float:
    """Return the seconds of the best fixed plan."""
    return crossed(times.rows(fixed), times.phases)


def best_per_phase(times: Times, fixed: list[str]) -> float:
    """Return the seconds of the best plan of each phase, summed; phases of one name have one plan."""
    phases, seconds = np.array(times.phases), times.rows(fixed)
    names = dict.fromkeys(times.phases)
    return sum(crossed(seconds[:, phases == phase], [phase] * times.phases.count(phase)) for phase in names)


def in_the_running(times: Times, fixed: list[str], slack: float) -> list[str]:
    """Return the plans that take at most `slack` times the least time in some phase."""
    near, phases, seconds = np.zeros(len(fixed), bool), np.array(times.phases), times.rows(fixed)
    for phase in dict.fromkeys(times.phases):
        totals = seconds[:, phases == phase].sum(axis=1)
        near |= totals <= slack * totals.min()
    return [name for name, kept in zip(fixed, near.tolist(), strict=True) if kept]

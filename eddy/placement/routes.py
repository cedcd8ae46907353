"""One round or several hops: the two kinds of plan over nodes that share all steps, and the predicted time of each.

    grid    every row goes to one or several cells of a hypercube, and each cell joins the rows that it gets. One
            round; rows are copied along the classes that they lack
    hops    an intermediate tuple travels to the node that has its key in the next window, hop by hop. Every window has
            a copy for each class by which it is probed; if shipping the window costs less, it goes to all nodes where
            the intermediate tuples are

The faster kind depends on the data. The grid copies rows; the number of copies grows with the length of the chain and
the number of nodes. Hops ship intermediate tuples; their number grows with the number of partners of a tuple.
`predicted` compares the two kinds from measured figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eddy.placement.costs import UnitCosts
from eddy.placement.places import Place, by_class, grid
from eddy.placement.program import Steps
from eddy.placement.shares import choose
from eddy.placement.synopses import Distribution, Synopsis
from eddy.query.query import Query


@dataclass(frozen=True)
class PrefixTuples:
    """The tuples of a prefix: per epoch their number, their bytes each, and the distribution of their keys."""

    rate: float
    tuple_bytes: float
    keys: Mapping[int, Distribution]

    def joined(self, other: Synopsis) -> PrefixTuples:
        """Return the tuples after a join with the window of a stream."""
        rate, keys = self.rate * other.preceding, {**other.keys, **self.keys}
        for c in self.keys.keys() & other.keys.keys():
            chance, keys[c] = self.keys[c].meet(other.keys[c])
            rate *= chance
        return PrefixTuples(rate, self.tuple_bytes + other.tuple_bytes, keys)


@dataclass(frozen=True)
class HeadStep:
    """A step of a head.

    before, after   its tuples, those copied to several nodes as often as they are copied
    stream, place   what they join, and where
    moves           whether they travel there
    """

    before: PrefixTuples
    stream: int
    place: Place
    moves: bool
    after: PrefixTuples


@dataclass
class _Load:
    """Predicted use of the cluster per epoch.

    out     bytes that leave each node with rows of streams
    moved   bytes of intermediate tuples and results, over all nodes
    work    seconds of all nodes
    rounds  shipments one after the other, in the longest plan
    """

    out: list[float]
    moved: float = 0.0
    work: float = 0.0
    rounds: int = 1


@dataclass(frozen=True)
class Planner:
    """Plans over nodes that share all steps.

    starts   per stream the place where its rows arrive
    """

    query: Query
    nodes: int
    starts: tuple[Place, ...]
    costs: UnitCosts

    def grid_routes(self, figures: Sequence[Synopsis]) -> list[Steps]:
        """Return the steps of one round: all joins of all heads in the cells of the grid with the fewest copies."""
        names = self.query.graph.names
        shipped = {name: synopsis.rate * synopsis.tuple_bytes for name, synopsis in zip(names, figures, strict=True)}
        shares = choose(self.query, self.nodes, shipped)
        place = grid(range(self.nodes), dict(enumerate(shares.counts)))
        return [tuple((j, place) for j in self.order(head, figures)) for head in range(len(figures))]

    def order(self, head: int, figures: Sequence[Synopsis]) -> list[int]:
        """Return the order in which the next stream is always the stream with the fewest matches."""
        flow, left, order = _head(figures[head]), set(range(len(figures))) - {head}, []
        while left:
            near = [j for j in left if flow.keys.keys() & figures[j].keys.keys()]
            after = {j: flow.joined(figures[j]) for j in near}
            j = min(near, key=lambda j: (after[j].rate, j))
            order.append(j)
            left.remove(j)
            flow = after[j]
        return order

    def hop_routes(self, figures: Sequence[Synopsis]) -> list[Steps]:
        """Return the steps of several hops: greedy per head, by the bytes and seconds of the next step.

        A copy of a window counts once, for the first head that needs it.
        """
        paid: set[tuple[int, Place]] = set()
        routes = []
        for head in range(len(figures)):
            flow, left = _head(figures[head]), set(range(len(figures))) - {head}
            at, steps = self.starts[head], list[tuple[int, Place]]()
            while left:
                candidates = [
                    (*self._step(flow, j, figures[j], at, place, paid), j, place)
                    for j in left
                    for place in self._places(flow, j, figures, at)
                ]
                *_, j, at = min(candidates, key=lambda candidate: (candidate[0], candidate[1], candidate[2]))
                paid.add((j, at))
                steps.append((j, at))
                left.remove(j)
                flow = flow.joined(figures[j])
            routes.append(tuple(steps))
        return routes

    def _places(self, flow: PrefixTuples, j: int, figures: Sequence[Synopsis], at: Place) -> list[Place]:
        common = sorted(flow.keys.keys() & figures[j].keys.keys())
        return [at, *(by_class(range(self.nodes), c) for c in common)] if common else []

    def _step(
        self, flow: PrefixTuples, j: int, synopsis: Synopsis, at: Place, place: Place, paid: set[tuple[int, Place]]
    ) -> tuple[float, float]:
        """Return the predicted seconds of a step, all nodes together, and the matches, to choose the next one by."""
        after = flow.joined(synopsis)
        seconds = self.costs.probing(flow.rate, synopsis.preceding, after.rate)
        if place != at:
            seconds += flow.rate * flow.tuple_bytes / self.costs.c_r
        if (j, place) not in paid:
            copies = place.copies(frozenset(synopsis.keys))
            seconds += copies * synopsis.rate * (synopsis.tuple_bytes / self.costs.c_r + self.costs.c_u)
        # The resulting tuples are shipped or probe again, so many results of an early step also raise the cost of later
        # steps.
        seconds += after.rate * after.tuple_bytes / self.costs.c_r
        return seconds, after.rate

    def predicted(self, routes: Sequence[Steps], figures: Sequence[Synopsis]) -> float:
        """Return the predicted seconds of an epoch.

        Rows go to all copies, then the heads go through their steps, and results leave for the site of the query.
        """
        load = _Load([0.0] * self.nodes)
        copies = {(j, place) for steps in routes for j, place in steps}
        for j, place in copies:
            synopsis = figures[j]
            n = place.copies(frozenset(synopsis.keys))
            self._leaves(load, j, n * synopsis.rate * synopsis.tuple_bytes)
            load.work += n * synopsis.rate * self.costs.c_u
        for head, steps in enumerate(routes):
            self._walk(load, head, steps, figures, copies)
        lines = max(load.out) + load.moved / self.nodes
        return load.rounds * self.costs.c_l + lines / self.costs.c_r + load.work / self.nodes

    def moving(self, old: Sequence[Steps], new: Sequence[Steps], figures: Sequence[Synopsis]) -> float:
        """Return the predicted seconds in which the windows of the new copies travel, over all lines at once."""
        copies = {step for steps in new for step in steps} - {step for steps in old for step in steps}
        n_bytes = sum(
            place.copies(frozenset(figures[j].keys)) * figures[j].window * figures[j].tuple_bytes for j, place in copies
        )
        return n_bytes / self.nodes / self.costs.c_r

    def _leaves(self, load: _Load, stream: int, n_bytes: float) -> None:
        nodes = self.starts[stream].nodes
        for node in nodes:
            load.out[node] += n_bytes / len(nodes)

    def hops(self, head: int, steps: Steps, figures: Sequence[Synopsis]) -> Iterator[HeadStep]:
        """Yield the predicted work of each step of a head per epoch, over all nodes."""
        flow, at = _head(figures[head]), self.starts[head]
        for k, (j, place) in enumerate(steps):
            if k == 0:
                n = place.copies(frozenset(flow.keys)) if place != at else 1
                flow = replace(flow, rate=flow.rate * n)
            after = flow.joined(figures[j])
            # A cell holds only a part of the window. Over all cells that a tuple was copied to, matches are met once
            # for each way in which the classes joined so far leave it open.
            if place.classes:
                thinned = place.copies(frozenset(after.keys)) / place.copies(frozenset(flow.keys))
                after = replace(after, rate=after.rate * thinned)
            yield HeadStep(flow, j, place, place != at, after)
            flow, at = after, place

    def _walk(
        self, load: _Load, head: int, steps: Steps, figures: Sequence[Synopsis], copies: set[tuple[int, Place]]
    ) -> None:
        rounds = 1
        for k, hop in enumerate(self.hops(head, steps, figures)):
            if k == 0:
                if hop.moves and (head, hop.place) not in copies:
                    self._leaves(load, head, hop.before.rate * hop.before.tuple_bytes)
            elif hop.moves:
                load.moved += hop.before.rate * hop.before.tuple_bytes
                rounds += 1
            load.work += self.costs.probing(hop.before.rate, figures[hop.stream].preceding, hop.after.rate)
        # Results leave for the site of the query.
        load.moved += hop.after.rate * hop.after.tuple_bytes
        load.rounds = max(load.rounds, rounds + 1)


def _head(synopsis: Synopsis) -> PrefixTuples:
    return PrefixTuples(synopsis.rate, synopsis.tuple_bytes, synopsis.keys)

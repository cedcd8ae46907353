"""The view of a policy: the query as a graph, the current plan, and figures of the current data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from eddy.routing.costs import ARRIVAL, ATTRIBUTE, Benefit, Climb, climb_costs, climb_of, virtual_cost
from jisc.plan.bushy import Bushy
from jisc.plan.routes import Preference, compile_routes
from jisc.plan.states import Masks, StateId
from jisc.plan.stored_routes import StoredPlan, compile_stored
from jisc.plan.tree import Tree, check_connected, left_deep, parse
from stairs.descriptors import H_CLASS, H_TARGET
from stairs.graph import JoinGraph
from stairs.memory.arena import Int64s, Routes
from stairs.samples import PICKS, Floats, Neighbour, Samples

BUDGET = 3000
"""Upper bound of the steps of the trial of one plan."""
FEW = 64
"""Recent tuples on which plans are tried while the data drift."""
PLANS = 256
"""Plans whose routes are cached."""
KIND_BYTES = 16
NOTHING: frozenset[StateId] = frozenset()


class RouteCache:
    """Cached routes of plans, because the same plans are tried repeatedly, and the sets that bushy plans may join."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self._virtual: dict[tuple[Tree, Preference | None], tuple[Routes, bytes]] = {}
        self._climbs: dict[Tree, Climb] = {}

    @cached_property
    def bushy(self) -> Bushy:
        """The sets that bushy plans of the query may join."""
        return Bushy(self.masks)

    def virtual(self, tree: Tree, prefer: Preference | None) -> tuple[Routes, bytes]:
        """Return the routes over SteMs only, and a digest that is equal for plans that route alike."""
        known = self._virtual.get((tree, prefer))
        if known is None:
            if len(self._virtual) >= PLANS:
                self._virtual.clear()
            routes = compile_routes(tree, self.masks.graph, prefer)
            # The streams probed, in order, and the classes probed by define a route.
            taken = routes.span.tobytes() + routes.hops[:, [H_TARGET, H_CLASS]].tobytes()
            alike = hashlib.blake2b(taken, digest_size=KIND_BYTES).digest()
            known = self._virtual[tree, prefer] = routes, alike
        return known

    def climb(self, tree: Tree) -> Climb:
        """Return the climb of the tree with no state stored."""
        known = self._climbs.get(tree)
        if known is None:
            if len(self._climbs) >= PLANS:
                self._climbs.clear()
            routes = compile_stored([StoredPlan(tree, {})], self.masks)[0]
            known = self._climbs[tree] = climb_of(tree, self.masks, routes)
        return known


@lru_cache(maxsize=32)
def tables_of(graph: JoinGraph) -> RouteCache:
    """Return the tables for a query, shared by all its engines in this process."""
    return RouteCache(Masks(graph))


@dataclass
class View:
    """The join at one moment. Streams and classes are numbers, as in `graph`.

    tree       the present plan; `plan` is its text
    stored     its inner states that are stored
    storing    whether states may be stored
    position   arrivals so far
    shares     float64[streams], share of each stream in recent arrivals
    rows       float64[streams], live tuples
    probed     float64[streams, 2], since the last decision: chains of each stream looked up, tuples that matched
    measured   nanoseconds of CPU per arrival since the last decision; nan = too few arrivals
    settled    whether the plan ran unchanged during the time that `measured` covers
    drifting   whether an arrival costs more than it usually does under this plan; then plans are tried on the most
               recent tuples only
    turning    whether it drifts, or the windows still turn over after a drift: sizes of states are no predictions then
    room       bytes that stored states may take; inf = no bound
    prefer     classes by which the next plan will probe;  preferred   classes by which the current plan probes
               (`jisc.plan.routes`)
    rng        random numbers, the same in each run
    kept       returns the states that a plan has by the strategy's own rule, all or none
    """

    graph: JoinGraph
    tree: Tree
    stored: frozenset[StateId]
    storing: bool
    position: int
    shares: Floats
    rows: Floats
    probed: Floats
    measured: float
    settled: bool
    drifting: bool
    turning: bool
    room: float
    prefer: Preference | None
    preferred: Preference | None
    rng: np.random.Generator
    kept: Callable[[Tree], frozenset[StateId]]
    masks: Masks
    samples: Samples
    tables: RouteCache
    considered: dict[tuple[Tree, frozenset[StateId]], float] = field(default_factory=dict)
    """Predicted costs of the plans and stored states considered so far."""
    _checked: set[Tree] = field(default_factory=set)
    _tried: dict[bytes, float] = field(default_factory=dict)
    _picks: Int64s | None = None
    _climbs: dict[Tree, tuple[float, list[Benefit]]] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """The present plan as text."""
        return self.tree.text(self.graph.names)

    def tree_of(self, plan: str | Tree) -> Tree:
        """Return a plan given as text or as a tree. Raises PlanError if it does not fit the query."""
        if not isinstance(plan, str) and plan in self._checked:
            return plan
        tree = parse(plan, self.graph.names) if isinstance(plan, str) else plan
        check_connected(tree, self.graph)
        self._checked.add(tree)
        return tree

    # Figures of the data

    def neighbours(self, i: int) -> list[Neighbour]:
        """Return the probes possible from stream i as (class, stream), in the order of the columns of its profile."""
        return self.samples.neighbours[i]

    def profile(self, i: int) -> Floats:
        """Return the numbers of partners of recent tuples of stream i: float64[tuples, neighbours(i)]."""
        return self.samples.profile(i)

    def fanout(self, i: int, j: int, by: int | None = None) -> float:
        """Return the mean number of partners in stream j of recent tuples of stream i; nan without a sample.

        by   the class; None = the first that the two streams share. Raises ValueError if they share none
        """
        return self._mean(i, j, by, hits=False)

    def hit(self, i: int, j: int, by: int | None = None) -> float:
        """Return the share of recent tuples of stream i with a partner in stream j; see `fanout`."""
        return self._mean(i, j, by, hits=True)

    def _mean(self, i: int, j: int, by: int | None, hits: bool) -> float:
        for k, near in enumerate(self.samples.neighbours[i]):
            if near.stream == j and by in (None, near.by):
                column = self.samples.profile(i)[:, k]
                if not len(column):
                    return float("nan")
                return float((column > 0).mean() if hits else column.mean())
        raise ValueError(f"{self.graph.names[i]} and {self.graph.names[j]} share no such class")

    # Trying plans

    @property
    def base(self) -> float:
        """Predicted nanoseconds of an arrival before its first probe, under any plan."""
        return ARRIVAL + ATTRIBUTE * sum(
            float(share) * len(classes) for share, classes in zip(self.shares, self.graph.attributes, strict=True)
        )

    @property
    def picks(self) -> Int64s:
        """The recent tuples on which plans are tried: int64[n, 2]."""
        if self._picks is None:
            self._picks = self.samples.picks(FEW if self.drifting else PICKS)
        return self._picks

    def cost(self, plan: str | Tree) -> float:
        """Return the predicted nanoseconds per arrival of a plan whose states no policy chose; nan without a sample.

        Nothing is stored, or the states that the strategy stores by its own rule; inf = these take more than `room`.
        The plan is tried on recent tuples over the live state, for at most BUDGET steps. Cached.
        """
        tree = self.tree_of(plan)
        if kept := self.kept(tree):
            taken = sum(benefit.n_bytes for benefit in self.benefits(tree)[1] if benefit.state in kept)
            return self.stored_cost(tree, kept) if taken <= self.room or tree == self.tree else float("inf")
        known = self.considered.get((tree, NOTHING))
        if known is None:
            known = self.considered[tree, NOTHING] = self._try(tree, self.prefer)
        return known

    def _try(self, tree: Tree, prefer: Preference | None) -> float:
        routes, alike = self.tables.virtual(tree, prefer)
        if alike not in self._tried:
            self._tried[alike] = self.base + virtual_cost(self.samples.trace(routes, self.picks, BUDGET))
        return self._tried[alike]

    @property
    def present(self) -> float:
        """Predicted nanoseconds per arrival of the present plan with its stored states."""
        if self.pipelined or self.stored:
            return self.stored_cost(self.tree, self.stored)
        return self._try(self.tree, self.preferred)

    @property
    def pipelined(self) -> bool:
        """Whether the strategy stores inner states by its own rule."""
        return bool(self.kept(self.tree))

    def kind(self, plan: str | Tree) -> bytes:
        """Return a digest that is equal for plans under which tuples take the same routes.

        While nothing is stored, several plans may route alike; plans that store their states differ by these.
        """
        tree = self.tree_of(plan)
        if kept := self.kept(tree):
            return hashlib.blake2b(repr(sorted(kept)).encode(), digest_size=KIND_BYTES).digest()
        return self.tables.virtual(tree, self.prefer)[1]

    def benefits(self, plan: str | Tree) -> tuple[float, list[Benefit]]:
        """Return the predicted nanoseconds per arrival of climbing a plan with nothing stored, and benefits of states.

        The cost with some states stored is the first value minus the net benefits of these states.
        """
        tree = self.tree_of(plan)
        known = self._climbs.get(tree)
        if known is None:
            climb = self.tables.climb(tree)
            trace = self.samples.trace(climb.routes, self.picks, 2 * BUDGET, pruned=False)
            taken = self.picks[: int(trace.work[0]), 0]
            walked = np.bincount(taken, minlength=self.graph.n_streams).astype(np.float64)
            cost, benefits = climb_costs(climb, trace, self.rows, walked, self.samples.keys())
            known = self._climbs[tree] = self.base + cost, benefits
        return known

    def stored_cost(self, plan: str | Tree, store: Iterable[StateId]) -> float:
        """Return the predicted nanoseconds per arrival of a plan with these states stored."""
        chosen = frozenset(store)
        if not chosen:
            return self.cost(plan)
        cost, benefits = self.benefits(plan)
        cost -= sum(benefit.net for benefit in benefits if benefit.state in chosen)
        self.considered[self.tree_of(plan), chosen] = cost
        return cost

    def worth_storing(self, plan: str | Tree) -> frozenset[StateId]:
        """Return the states of a plan with a positive net benefit, largest first as far as they fit into `room`."""
        chosen, left = set[StateId](), self.room
        for benefit in sorted(self.benefits(plan)[1], key=lambda gain: -gain.net):
            if benefit.net > 0 and benefit.n_bytes <= left:
                chosen.add(benefit.state)
                left -= benefit.n_bytes
        return frozenset(chosen)

    def again(self) -> View:
        """Return this view with plans tried on other tuples, drawn from the newest ones now."""
        return replace(self, considered={}, _tried={}, _climbs={}, _picks=self.samples.newest(self.shares))

    def left_deep(self, order: Iterable[int]) -> Tree:
        """Return the left-deep plan that joins the streams in this order."""
        return left_deep(tuple(order))

"""The cost of a plan per unit of time, the greedy plan, and the invariant whose violation requires a new plan.

A one-way join from the tuples of a prefix to stream j costs, per unit of time (equations 1 and 2 of the paper),

    at its source        T(r_j t_j)  +  r_j c_u  +  probes      the tuples of j travel
    at its destination   T(r t)      +  r_j c_u  +  probes      the r intermediate tuples of t bytes travel

with T(x) = c_l + x / c_r. The cost of the join is the smaller of the two (equation 3); in case of a tie the join is at
its source. Probing is a nested loop in the paper and costs r w_j c_p; a hash join, which this library uses, costs r c_p
and c_m for each match. A join step has r · w_j · min(f, f_j) matches per unit of time, and the selectivity of its
result is max(f, f_j); both hold for each attribute class that the stream shares with the prefix.

The paper charges each one-way join for its window. With `shared=True` a copy of a window at a node is charged once, to
the first plan that needs it: the copies that several plans need are one copy.

Among joins of equal cost the join with the smaller stream number comes first, so every way to compute the greedy plan
yields the same plan.

Source: Tran, Lee, "Distributed adaptive windowed stream join processing", sec. 2.2, 3 (algorithm 1, equation 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eddy.placement.plan import DESTINATION, JEP, SEP, SOURCE
from stairs.errors import PlanError

NEVER = float("inf")
"""The cost of a join with a stream that no predicate connects with the prefix."""


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of the elementary steps. The defaults of c_l and c_r are those of the paper's experiments.

    c_l      latency of a link, seconds per shipment
    c_r      transmission rate of a link, bytes per second
    c_u      seconds to insert a tuple into a window (its expiry included)
    c_p      seconds to probe: of each tuple of the window if `nested`, else of each probing tuple
    c_m      seconds of each match of a hash join
    nested   whether joins are nested loops, as in the paper
    """

    c_l: float = 5e-3
    c_r: float = 1024e3 / 8
    c_u: float = 2e-6
    c_p: float = 2e-7
    c_m: float = 0.0
    nested: bool = True

    def __post_init__(self) -> None:
        for name in ("c_l", "c_u", "c_p", "c_m"):
            if not getattr(self, name) >= 0:
                raise PlanError(f"{name}={getattr(self, name)!r}: a unit cost is a number of seconds of 0 or more")
        if not self.c_r > 0:
            raise PlanError(f"c_r={self.c_r!r}: the rate of a link is a number of bytes per second above 0")

    def transfer(self, n_bytes: float) -> float:
        """Return T(x): the seconds to transmit x bytes between two nodes."""
        return self.c_l + n_bytes / self.c_r

    def probing(self, probes: float, window: float, matches: float) -> float:
        """Return the seconds of probing a window of `window` tuples."""
        return probes * window * self.c_p if self.nested else probes * self.c_p + matches * self.c_m


@dataclass(frozen=True)
class StreamStatistics:
    """Figures of one stream.

    rate          r, tuples per unit of time
    window        w, tuples in the window
    tuple_bytes   t, bytes of a tuple
    selectivity   f per attribute class: the mean fraction of the tuples that share a value; None = the stream is not
                  in the class. The paper has a single class
    """

    rate: float
    window: float
    tuple_bytes: float
    selectivity: tuple[float | None, ...]


@dataclass(frozen=True)
class Flow:
    """The intermediate tuples of a prefix of a plan, per unit of time.

    rate, tuple_bytes   as of a stream
    selectivity         per class, None = no stream of the prefix has the class
    streams             the streams of the prefix
    """

    rate: float
    tuple_bytes: float
    selectivity: tuple[float | None, ...]
    streams: frozenset[int]


def head_flow(head: int, figures: StreamStatistics) -> Flow:
    """Return the flow of the tuples of a head stream."""
    return Flow(figures.rate, figures.tuple_bytes, figures.selectivity, frozenset((head,)))


def _shared(flow: Flow, figures: StreamStatistics) -> list[tuple[float, float]]:
    """Return (f of the flow, f of the stream) for each class that both have."""
    pairs = zip(flow.selectivity, figures.selectivity, strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def joined(flow: Flow, stream: int, figures: StreamStatistics, measured: float | None = None) -> Flow:
    """Return the flow after a join with a stream.

    measured   measured fraction of the window that matches a tuple of the flow, None = by the selectivities
    """
    fraction = 1.0
    for a, b in _shared(flow, figures):
        fraction *= min(a, b)
    if measured is not None:
        fraction = measured
    both = tuple(
        b if a is None else a if b is None else max(a, b)
        for a, b in zip(flow.selectivity, figures.selectivity, strict=True)
    )
    rate = flow.rate * fraction * figures.window
    return Flow(rate, flow.tuple_bytes + figures.tuple_bytes, both, flow.streams | {stream})


def placements(
    flow: Flow,
    stream: int,
    figures: StreamStatistics,
    costs: UnitCosts,
    *,
    at_source: bool = False,
    at_home: bool = False,
) -> tuple[float, float]:
    """Return the cost of a one-way join at its source and at its destination; NEVER if no class connects them.

    at_source, at_home   whether the copy of the window there is already paid for
    """
    if not _shared(flow, figures):
        return NEVER, NEVER
    probing = costs.probing(flow.rate, figures.window, joined(flow, stream, figures).rate)
    update = figures.rate * costs.c_u
    source = probing if at_source else costs.transfer(figures.rate * figures.tuple_bytes) + update + probing
    destination = costs.transfer(flow.rate * flow.tuple_bytes) + (0.0 if at_home else update) + probing
    return source, destination


def chosen(pair: tuple[float, float]) -> tuple[float, int]:
    """Return (cost, placement) of the cheaper of two placements (equation 3)."""
    return (pair[0], SOURCE) if pair[0] <= pair[1] else (pair[1], DESTINATION)


@dataclass(frozen=True)
class Model:
    """The cost model over figures of all streams of a query.

    streams   one for each stream; all have as many classes
    shared    charge a copy of a window at a node once
    """

    streams: tuple[StreamStatistics, ...]
    costs: UnitCosts = field(default_factory=UnitCosts)
    shared: bool = False

    def __post_init__(self) -> None:
        if len({len(stream.selectivity) for stream in self.streams}) > 1:
            raise PlanError("the statistics of two streams have different numbers of attribute classes")

    def changed(self, figures: Mapping[int, StreamStatistics]) -> Model:
        """Return the model with new figures of some streams."""
        return replace(self, streams=tuple(figures.get(i, stream) for i, stream in enumerate(self.streams)))

    def flows(self, head: int, order: Sequence[int]) -> list[Flow]:
        """Return the flow before each one-way join of a plan, and the flow of its results: len(order) + 1 flows."""
        flows = [head_flow(head, self.streams[head])]
        for j in order:
            flows.append(joined(flows[-1], j, self.streams[j]))
        return flows

    def check(self, plan: JEP) -> None:
        """Raise PlanError if a step of a plan joins a stream that no predicate connects with those before it."""
        for sep in plan.seps:
            for flow, j in zip(self.flows(sep.head, sep.order), sep.order, strict=False):
                if not _shared(flow, self.streams[j]):
                    raise PlanError(
                        f"the plan of head stream {sep.head} joins stream {j} after {sorted(flow.streams)}, and no"
                        " predicate connects it with them; put a stream that is connected first"
                    )

    def greedy(self) -> JEP:
        """Return the plan of algorithm 1: each head repeatedly joins the stream with the cheapest one-way join.

        Only streams that share a class with the prefix are candidates. O(streams³). Raises PlanError if no predicate
        connects the streams.
        """
        paid: set[tuple[int, int]] = set()
        return JEP(tuple(self.greedy_sep(head, paid) for head in range(len(self.streams))))

    def greedy_sep(self, head: int, paid: set[tuple[int, int]] | None = None) -> SEP:
        """Return the greedy plan of one head. `paid` holds the copies (stream, node) that others pay for; it grows."""
        paid = set() if paid is None else paid
        flow, at = head_flow(head, self.streams[head]), head
        left = set(range(len(self.streams))) - {head}
        order, placement = [], []
        while left:
            cost, j, p = min(self._candidate(flow, j, at, paid) for j in left)
            if cost == NEVER:
                raise PlanError(f"no predicate connects the streams {sorted(left)} with {sorted(flow.streams)}")
            order.append(j)
            placement.append(p)
            at = at if p == SOURCE else j
            paid.add((j, at))
            flow = joined(flow, j, self.streams[j])
            left.remove(j)
        return SEP(head, tuple(order), tuple(placement))

    def _candidate(self, flow: Flow, j: int, at: int, paid: set[tuple[int, int]]) -> tuple[float, int, int]:
        source, home = (self.shared and (j, node) in paid for node in (at, j))
        cost, p = chosen(placements(flow, j, self.streams[j], self.costs, at_source=source, at_home=home))
        return cost, j, p

    def cost(self, plan: JEP) -> float:
        """Return the seconds per unit of time that a plan takes over all nodes and links."""
        paid: set[tuple[int, int]] = set()
        return sum(self.sep_cost(sep, paid) for sep in plan.seps)

    def sep_cost(self, sep: SEP, paid: set[tuple[int, int]] | None = None) -> float:
        """Return the cost of the plan of one head; `paid` as in `greedy_sep`."""
        paid = set() if paid is None else paid
        total, at = 0.0, sep.head
        for flow, j, p in zip(self.flows(sep.head, sep.order), sep.order, sep.placement, strict=False):
            source, home = (self.shared and (j, node) in paid for node in (at, j))
            total += placements(flow, j, self.streams[j], self.costs, at_source=source, at_home=home)[p]
            at = at if p == SOURCE else j
            paid.add((j, at))
        return total

    def violation(self, plan: JEP) -> float:
        """Return the factor by which the worst one-way join exceeds its cheapest alternative; 1.0 = no excess.

        The factor is 1.0 exactly if the invariant (equation 4) holds for every head and every placement is the cheaper
        placement. Adaptation is due once the factor exceeds a threshold.
        """
        worst = 1.0
        paid: set[tuple[int, int]] = set()
        for sep in plan.seps:
            flow, at = head_flow(sep.head, self.streams[sep.head]), sep.head
            for k, (j, p) in enumerate(zip(sep.order, sep.placement, strict=True)):
                source, home = (self.shared and (j, node) in paid for node in (at, j))
                pair = placements(flow, j, self.streams[j], self.costs, at_source=source, at_home=home)
                least = min(self._candidate(flow, other, at, paid)[0] for other in sep.order[k:])
                if pair[p] > least:
                    worst = max(worst, pair[p] / least if least else NEVER)
                at = at if p == SOURCE else j
                paid.add((j, at))
                flow = joined(flow, j, self.streams[j])
        return worst

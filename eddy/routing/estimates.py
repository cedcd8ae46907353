"""Plans with costs predicted from a table of statistics, without a running join: the result of `eddy.plans`.

The policy "cost" tries plans on recent tuples over the live state (`eddy.routing.view`). This module has only the
figures of `Runtime.stats`: the number of partners of a tuple of one stream in another stream, class by class. So the
numbers of partners along a route are multiplied as if they were independent, which correlated attributes are not;
comparisons are assumed to be always true. The weights of the steps are the same (`eddy.routing.costs`). No state is
stored. Source of the product of fan-outs: Selinger et al., "Access path selection in a relational database management
system", SIGMOD 1979.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eddy.query.query import Query
from eddy.routing.costs import ARRIVAL, ATTRIBUTE, CHECK, LEAF, LEAF_VISIT, PROBE, VISIT
from jisc.plan.orders import random_order
from jisc.plan.routes import Hop, route
from jisc.plan.states import Masks
from jisc.plan.tree import Tree, default_plan, join, left_deep
from stairs.errors import InputError
from stairs.graph import JoinGraph

ALL = 6
"""Number of streams up to which all plans are listed, left-deep and bushy; above it, DRAWN random left-deep plans."""
DRAWN = 500
SCHEMA = pa.schema([("plan", pa.string()), ("ns", pa.float64()), ("times", pa.float64()), ("results", pa.float64())])
"""The columns of `eddy.plans`."""


class PartnerEstimate(NamedTuple):
    """The partners of a tuple in another stream by one class: their mean number, and the share of tuples with any."""

    fanout: float
    hit: float


class Statistics:
    """The statistics of a query, read from a table of `Runtime.stats`.

    Raises InputError for a table of another form or of other streams, and for one without pairs of live tuples.
    """

    def __init__(self, table: pa.Table, graph: JoinGraph) -> None:
        names, needed = graph.names, {"kind", "from", "to", "classes", "share", "rows", "fanout", "hit"}
        if not isinstance(table, pa.Table) or not needed <= set(table.column_names):
            raise InputError("plans: stats is the table of Runtime.stats(), or one that was saved and read again")
        rows = table.select(sorted(needed)).to_pylist()
        streams = {row["from"]: row for row in rows if row["kind"] == "stream"}
        if set(streams) != set(names):
            raise InputError(
                f"plans: stats describes the streams {', '.join(sorted(streams)) or 'none'}, the query has"
                f" {', '.join(names)}"
            )
        number = {name: i for i, name in enumerate(names)}
        shares = np.array([streams[name]["share"] or 0.0 for name in names])
        self.shares = shares / shares.sum() if shares.sum() else np.full(len(names), 1 / len(names))
        self.rows = np.array([streams[name]["rows"] or 0 for name in names], np.float64)
        self.pairs: dict[tuple[int, int, int], PartnerEstimate] = {
            (number[row["from"]], number[row["to"]], row["classes"][0] - 1): PartnerEstimate(row["fanout"], row["hit"])
            for row in rows
            if row["kind"] == "pair" and row["fanout"] is not None and row["hit"] is not None
        }
        if not self.pairs:
            raise InputError("plans: stats has no figures of pairs of streams; take it once rows have arrived")


class _Work(NamedTuple):
    """The predicted work of an arrival of one stream: nanoseconds of its probes, and results."""

    ns: float
    results: float


def plans(query: Query, stats: pa.Table, most: int = 20) -> pa.Table:
    """Return the plans of a query with the least predicted cost under given statistics, cheapest first.

    stats   the table of `Runtime.stats()`, of this run or of an earlier one
    most    upper bound on the plans returned; of plans that route rows alike there is one

    Columns: plan; ns, the predicted nanoseconds per arrival with no state stored; times, ns relative to the cheapest
    plan; results, the predicted results per arrival. All plans of up to 6 streams are tried, of more 500 random
    left-deep ones. `Runtime.explain` has the costs of plans tried over live rows. Raises InputError for a table of
    another form or of other streams, and for a query with branches.
    """
    if query.tree is not None:
        raise InputError(
            "plans: a query with branches or as-of joins may have several inner joins, each with a plan of its own;"
            " write one of them as a Query without branches"
        )
    graph = query.graph
    known = Statistics(stats, graph)
    base = ARRIVAL + ATTRIBUTE * sum(
        float(s) * len(classes) for s, classes in zip(known.shares, graph.attributes, strict=True)
    )
    rows, seen = list[dict[str, Any]](), set()
    for tree in plans_of(graph):
        routes = [route(tree, i, graph) for i in range(graph.n_streams)]
        kind = tuple(tuple((hop.stream, hop.by) for hop in hops) for hops in routes)
        if kind in seen:
            continue
        seen.add(kind)
        work = [_walk(i, hops, graph, known) for i, hops in enumerate(routes)]
        ns = base + sum(float(share) * walk.ns for share, walk in zip(known.shares, work, strict=True))
        results = sum(float(share) * walk.results for share, walk in zip(known.shares, work, strict=True))
        rows.append({"plan": tree.text(graph.names), "ns": ns, "results": results})
    rows.sort(key=lambda row: (row["ns"], row["plan"]))
    least = rows[0]["ns"]
    return pa.Table.from_pylist([{**row, "times": row["ns"] / least} for row in rows[:most]], schema=SCHEMA)


def plans_of(graph: JoinGraph) -> Iterator[Tree]:
    """Yield plans without cross products: the default plan first, then all plans, or many random plans (ALL).

    Several plans may have the same routes.
    """
    yield default_plan(graph)
    if graph.n_streams <= ALL:
        yield from _trees((1 << graph.n_streams) - 1, graph, {})
        return
    masks, rng = Masks(graph), np.random.default_rng(0)
    for _ in range(DRAWN):
        yield left_deep(random_order(masks, rng))


def _trees(mask: int, graph: JoinGraph, known: dict[int, list[Tree]]) -> list[Tree]:
    """Return all trees over some streams, each pair of children in one order."""
    if mask in known:
        return known[mask]
    if not mask & (mask - 1):
        return [Tree(mask.bit_length() - 1)]
    trees, first = list[Tree](), mask & -mask
    part = (mask - 1) & mask
    while part:
        # The side with the first stream is the left one.
        if part & first and _meet(part, mask ^ part, graph):
            lefts, rights = _trees(part, graph, known), _trees(mask ^ part, graph, known)
            trees += [join(left, right) for left in lefts for right in rights]
        part = (part - 1) & mask
    known[mask] = trees
    return trees


def _meet(left: int, right: int, graph: JoinGraph) -> bool:
    sides = []
    for mask in (left, right):
        classes = 0
        for i, bits in enumerate(graph.class_bits):
            if mask >> i & 1:
                classes |= bits
        sides.append(classes)
    return bool(sides[0] & sides[1])


def _walk(stream: int, hops: list[Hop], graph: JoinGraph, known: Statistics) -> _Work:
    """Return the expected work of an arrival along its route: trunk hops nest, leaf hops multiply and may end it."""
    trunk = [hop for hop in hops if not hop.leaf]
    binder = dict.fromkeys(graph.attributes[stream], stream)
    spent, tuples, product = 0.0, 1.0, 1.0
    for level in range(len(trunk) + 1):
        if level:
            hop = trunk[level - 1]
            estimate = _partners(binder, hop, known)
            visits = tuples * estimate.fanout
            spent += PROBE * tuples + VISIT * visits + CHECK * visits * (len(hop.checks) + len(hop.compares))
            for c in hop.checks:
                # Of all tuples in the window, those with the key are the fan-out of the other class.
                other = known.pairs.get((binder[c], hop.stream, c), _NONE)
                visits *= min(other.fanout / max(known.rows[hop.stream], 1.0), 1.0)
            tuples = visits
            for c in hop.binds:
                binder.setdefault(c, hop.stream)
        for hop in hops:
            if hop.leaf and hop.after == level:
                estimate = _partners(binder, hop, known)
                spent += tuples * (LEAF + LEAF_VISIT * estimate.fanout)
                product *= estimate.fanout / estimate.hit if estimate.hit else 0.0
                tuples *= estimate.hit
    return _Work(spent, tuples * product)


_NONE = PartnerEstimate(0.0, 0.0)


def _partners(binder: Mapping[int, int], hop: Hop, known: Statistics) -> PartnerEstimate:
    return known.pairs.get((binder[hop.by], hop.stream, hop.by), _NONE)

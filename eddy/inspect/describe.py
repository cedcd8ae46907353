"""The description of a running join: its plan as a tree, with the figures of its states, keys and routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eddy.aggregates.ring_tree import served
from eddy.inspect.hops import HopFigures, hop_figures
from eddy.inspect.metrics import metrics
from eddy.inspect.reasons import reasons_of
from eddy.query.query import Query
from eddy.show.description import (
    ChangeDescription,
    HopDescription,
    JoinPlan,
    Pushes,
    Reasons,
    RouteDescription,
)
from eddy.show.planned import Live, Probed, comparisons_of, keys_of, node_of
from eddy.show.text import bytes_text
from eddy.tops.tops import Tops
from jisc.strategies import Strategy
from jisc.strategies.history import SECONDS, History
from stairs.descriptors import M_PRESENCE, VIRTUAL

if TYPE_CHECKING:
    from eddy.aggregates.groups import Groups
    from eddy.join.join import Join
    from eddy.pipeline.pipeline import Pipeline
    from eddy.routing.router import Router
    from stairs.modules import Modules


def described(pipeline: Pipeline, join: Join, title: str = "", predict: bool = True) -> JoinPlan:
    """Return the description of a join that runs; `predict` adds predicted costs (`eddy.inspect.reasons`)."""
    figures = metrics(pipeline)
    join_figures = figures["joins"][join.title] if "joins" in figures else figures
    reasons = reasons_of(join.strategy, join.router, join.bound, predict)
    return join_plan(join.query, join.modules, join.strategy, join.router, join_figures, title, reasons)


def group_lines(join: Join, groups: Groups | None) -> tuple[str, ...]:
    """Return a line on what computes the groups of a query: ring values, or the joined rows."""
    if groups is None:
        return ()
    rings = join.rings
    if rings is None:
        return (f"groups by enumeration: {served(groups.query).reason}",)
    choice, roots = rings.choice, ", ".join(join.query.graph.names[i] for i in rings.roots)
    costs = {way: f"{1e6 * cost:,.2f} µs per arrival" for way, cost in choice.costs.items() if cost < float("inf")}
    if choice.on:
        known = f"{rings.known:,} rows known, {bytes_text(rings.nbytes)}"
        spent = f", {costs[True]}, enumeration {1e6 * choice.predicted:,.2f}" if len(costs) == 2 else ""
        return (f"groups by ring values from {roots}: {known}{spent}",)
    spent = f", {costs[False]}" if False in costs else ""
    other = f", with ring values {costs[True]}" if True in costs else ""
    return (f"groups by enumeration{spent}{other}",)


def top_lines(tops: Tops | None) -> tuple[str, ...]:
    """Return a line on the first rows of groups that a query keeps."""
    if tops is None:
        return ()
    forest = tops.forest
    return (f"{tops.ranking.top}: {len(forest):,} rows of {len(forest.groups):,} groups, {bytes_text(tops.nbytes)}",)


def join_plan(
    query: Query,
    modules: Modules,
    strategy: Strategy,
    router: Router,
    figures: Mapping[str, Any],
    title: str,
    reasons: Reasons,
) -> JoinPlan:
    """Return the description of a running join, given its figures in the form of `eddy.inspect.metrics`."""
    names = query.graph.names
    # While several plans run, the last state of some streams and the last routes belong to the newest.
    hops = [hop for hop in hop_figures(modules, strategy) if hop.plan == len(strategy.trees) - 1]
    spent = sum(hop.ns for hop in hops)
    arrived = sum(state["arrivals"] for state in figures["states"].values())
    shares = dict(zip(names, router.shares_now.tolist(), strict=True)) if router.sampling and arrived else {}
    live = Live(
        figures["states"],
        {
            frozenset(names[j] for j in stair.streams): {
                "by": stair.by + 1,
                "entries": stair.rows,
                "pending": stair.pending,
                "bytes": stair.nbytes,
            }
            for stair in strategy.stairs
        },
        _probed(hops, spent),
        shares,
        bool(modules.meta[M_PRESENCE]) and strategy.entries is None,
    )
    newest = strategy.history.newest
    return JoinPlan(
        title=title,
        plan=strategy.tree.text(names),
        strategy=strategy.name,
        streams=names,
        old_plans=tuple(other.text(names) for other in strategy.trees[:-1]),
        tree=node_of(query, strategy.tree, live, True),
        keys=keys_of(query, figures["classes"]),
        comparisons=comparisons_of(query),
        where=tuple(condition.title for condition in query.conditions),
        routes=tuple(_routes(names, hops, spent, strategy.mode == VIRTUAL, figures["states"])),
        arrivals=figures["arrivals"],
        results=figures["results"],
        bytes=figures["bytes"],
        pushes=_pushes(strategy.history),
        memory=_memory(figures),
        changes=strategy.history.count,
        last=None
        if newest is None
        else ChangeDescription(newest.position, newest.old, newest.new, newest.stored, newest.reason),
        reasons=reasons,
    )


def _probed(hops: Iterable[HopFigures], spent: float) -> dict[frozenset[str], Probed]:
    totals: dict[frozenset[str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for hop in hops:
        total = totals[frozenset(hop.to)]
        total[0] += hop.probes
        total[1] += hop.matches
        total[2] += hop.ns
    return {
        to: Probed(int(probes), int(matches), ns / spent if spent else None)
        for to, (probes, matches, ns) in totals.items()
    }


def _routes(
    names: Iterable[str], hops: list[HopFigures], spent: float, virtual: bool, states: Mapping[str, Mapping[str, Any]]
) -> Iterable[RouteDescription]:
    for name in names:
        route_hops = tuple(
            HopDescription(hop.to, hop.probes, hop.matches, hop.ns / spent if spent else None)
            for hop in hops
            if hop.stream == name
        )
        state = states[name]
        walked = state["walked"] / state["arrivals"] if virtual and state["arrivals"] else None
        yield RouteDescription(name, route_hops, walked, virtual)


def _pushes(history: History) -> Pushes | None:
    pushes = history.recent
    if not pushes:
        return None
    results, arrivals, seconds = zip(*pushes, strict=True)
    *counts, total = accumulate(history.buckets)
    buckets = tuple(zip(SECONDS, counts, strict=True))
    spent = history.seconds
    return Pushes(len(pushes), sum(arrivals), sum(results), sum(seconds), max(seconds), buckets, total, spent)


def _memory(figures: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the parts of the bytes of a join; the parts add up to its total."""
    if figures["bytes"] is None:
        return ()
    parts = {
        "windows of the streams, with payload": sum(state["bytes"] for state in figures["states"].values()),
        "key directories": sum(key_class["bytes"] for key_class in figures["classes"]),
        "stored states": sum(stair["bytes"] for stair in figures["stairs"]),
        "late rows": figures.get("late_bytes", 0),
    }
    rest = figures["bytes"] - sum(parts.values())
    return (*parts.items(), ("room for input and results, groups, tables", rest))

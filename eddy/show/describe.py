"""Makes the description of a join: its plan as a tree, with the figures of its states, keys and routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from eddy.aggregates.ring_tree import served
from eddy.inspect.hops import HopFigures, hop_figures
from eddy.inspect.metrics import metrics
from eddy.query.query import Query
from eddy.show.description import (
    Change,
    Compared,
    Hop,
    Join,
    JoinPlan,
    Key,
    Node,
    Pushes,
    Reasons,
    Route,
    Stair,
    Stem,
    StemFigures,
)
from eddy.show.reasons import reasons_of
from eddy.show.text import bytes_text
from jisc.plan.tree import Tree, default_plan
from jisc.strategies import Strategy
from jisc.strategies.history import SECONDS, History
from stairs.descriptors import S_BASE, S_LO, S_NEXT, S_WALKED, VIRTUAL

if TYPE_CHECKING:
    from eddy.join_engine import JoinEngine
    from eddy.queries.shared_join import SharedJoin
    from eddy.routing.router import Router
    from stairs.modules import Modules


class _Probed(NamedTuple):
    """Probes, matches and nanoseconds of all hops to a state, and the share of these in the time of all hops."""

    probes: int
    matches: int
    time: float | None


class _Live(NamedTuple):
    """The figures of a plan that runs: those of SteMs and stored states, and of the hops to each of them."""

    states: Mapping[str, Mapping[str, Any]]
    stairs: Mapping[frozenset[str], Mapping[str, Any]]
    probed: Mapping[frozenset[str], _Probed]
    shares: Mapping[str, float]


def planned(query: Query, tree: Tree | None = None, strategy: str = "", title: str = "") -> JoinPlan:
    """Return the description of a plan that does not run; None is the default plan. O(streams)."""
    chosen = default_plan(query.graph) if tree is None else tree
    return JoinPlan(
        title=title,
        plan=chosen.text(query.graph.names),
        strategy=strategy,
        streams=query.graph.names,
        old_plans=(),
        tree=_node(query, chosen, None, True),
        keys=_keys(query, None),
        comparisons=_comparisons(query),
        where=tuple(one.title for one in query.conditions),
    )


def described(engine: JoinEngine, title: str = "", predict: bool = True) -> JoinPlan:
    """Return the description of a running join; `predict` adds predicted costs (`eddy.show.reasons`)."""
    figures = metrics(engine)
    reasons = reasons_of(engine.strategy, engine.router, engine.bound, predict)
    return _running(engine.query, engine.modules, engine.strategy, engine.router, figures, title, reasons)


def group_lines(engine: JoinEngine) -> tuple[str, ...]:
    """Return a line on what computes the groups of a query: ring values, or the joined rows."""
    if engine.groups is None:
        return ()
    rings = engine.rings
    if rings is None:
        return (f"groups by enumeration: {served(engine.query).reason}",)
    choice, roots = rings.choice, ", ".join(engine.query.graph.names[i] for i in rings.roots)
    costs = {way: f"{1e6 * cost:,.2f} µs per arrival" for way, cost in choice.costs.items() if cost < float("inf")}
    if choice.on:
        known = f"{rings.known:,} rows known, {bytes_text(rings.nbytes)}"
        spent = f", {costs[True]}, enumeration {1e6 * choice.predicted:,.2f}" if len(costs) == 2 else ""
        return (f"groups by ring values from {roots}: {known}{spent}",)
    spent = f", {costs[False]}" if False in costs else ""
    other = f", with ring values {costs[True]}" if True in costs else ""
    return (f"groups by enumeration{spent}{other}",)


def described_share(join: SharedJoin, title: str = "", predict: bool = True) -> JoinPlan:
    """Return the description of a join over shared SteMs, whose bytes belong to no single join."""
    share, graph = join.share, join.query.graph
    states: dict[str, dict[str, Any]] = {
        name: {
            "arrivals": int(share.streams[i, S_NEXT] + share.streams[i, S_BASE]),
            "expired": int(share.streams[i, S_LO] + share.streams[i, S_BASE]),
            "walked": int(share.streams[i, S_WALKED]),
            "rows": share.rows(i),
            "late": None,
            "bytes": None,
            "marks": 0,
        }
        for i, name in enumerate(graph.names)
    }
    figures = {
        "arrivals": sum(one["arrivals"] for one in states.values()),
        "results": None,
        "bytes": None,
        "states": states,
        "classes": [{"keys": share.keys(c)} for c in range(graph.n_classes)],
    }
    reasons = reasons_of(join.strategy, join.router, None, predict)
    return _running(join.query, share, join.strategy, join.router, figures, title, reasons)


def _running(
    query: Query,
    modules: Modules,
    strategy: Strategy,
    router: Router,
    figures: Mapping[str, Any],
    title: str,
    reasons: Reasons,
) -> JoinPlan:
    names = query.graph.names
    # While several plans run, the last state of some streams and the last routes belong to the newest.
    hops = [one for one in hop_figures(modules, strategy) if one.plan == len(strategy.trees) - 1]
    spent = sum(one.ns for one in hops)
    arrived = sum(one["arrivals"] for one in figures["states"].values())
    shares = dict(zip(names, router.shares_now.tolist(), strict=True)) if router.sampling and arrived else {}
    live = _Live(
        figures["states"],
        {
            frozenset(names[j] for j in one.streams): {
                "by": one.by + 1,
                "entries": one.rows,
                "pending": one.pending,
                "bytes": one.nbytes,
            }
            for one in strategy.stairs
        },
        _probed(hops, spent),
        shares,
    )
    newest = strategy.history.newest
    return JoinPlan(
        title=title,
        plan=strategy.tree.text(names),
        strategy=strategy.name,
        streams=names,
        old_plans=tuple(other.text(names) for other in strategy.trees[:-1]),
        tree=_node(query, strategy.tree, live, True),
        keys=_keys(query, figures["classes"]),
        comparisons=_comparisons(query),
        where=tuple(one.title for one in query.conditions),
        routes=tuple(_routes(names, hops, spent, strategy.mode == VIRTUAL, figures["states"])),
        arrivals=figures["arrivals"],
        results=figures["results"],
        bytes=figures["bytes"],
        pushes=_pushes(strategy.history),
        memory=_memory(figures),
        changes=strategy.history.count,
        last=None if newest is None else Change(newest.position, newest.old, newest.new, newest.stored, newest.reason),
        reasons=reasons,
    )


def _probed(hops: Iterable[HopFigures], spent: float) -> dict[frozenset[str], _Probed]:
    totals: dict[frozenset[str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for one in hops:
        own = totals[frozenset(one.to)]
        own[0] += one.probes
        own[1] += one.matches
        own[2] += one.ns
    return {
        to: _Probed(int(probes), int(matches), ns / spent if spent else None)
        for to, (probes, matches, ns) in totals.items()
    }


def _node(query: Query, tree: Tree, live: _Live | None, root: bool) -> Node:
    graph = query.graph
    streams = tuple(graph.names[i] for i in tree.leaves())
    probed = _NEVER if live is None else live.probed.get(frozenset(streams), _NEVER)
    if not tree.children:
        stream = query.streams[tree.stream]
        figures = None
        if live is not None:
            state = live.states[stream.name]
            counts = {name: state[name] for name in ("rows", "arrivals", "expired", "late", "bytes", "marks")}
            figures = StemFigures(**counts, **probed._asdict(), share=live.shares.get(stream.name))
        return Stem(stream.name, str(stream.window), stream.name in query.derived, figures)
    left, right = tree.children
    found = None if live is None else live.stairs.get(frozenset(streams))
    return Join(
        streams,
        tuple(c + 1 for c in graph.shared(left.streams, right.streams)),
        _node(query, left, live, False),
        _node(query, right, live, False),
        root,
        None if found is None else Stair(**found, **probed._asdict()),
    )


_NEVER = _Probed(0, 0, None)


def _keys(query: Query, figures: Iterable[Mapping[str, int]] | None) -> tuple[Key, ...]:
    known = [{}] * query.graph.n_classes if figures is None else list(figures)
    scans = [(f"{a} × {b}, scanned: every tuple has its own key", (a, b)) for a, b in query.scans]
    equal = [(str(one), tuple(one.columns)) for one in query.classes]
    return tuple(
        Key(c + 1, text, streams, c >= len(equal), **own)
        for c, ((text, streams), own) in enumerate(zip([*equal, *scans], known, strict=True))
    )


def _comparisons(query: Query) -> tuple[Compared, ...]:
    # A `between` is two comparisons of one text.
    return tuple(dict.fromkeys(Compared(one.left[0], one.right[0], str(one)) for one in query.comparisons))


def _routes(
    names: Iterable[str], hops: list[HopFigures], spent: float, virtual: bool, states: Mapping[str, Mapping[str, Any]]
) -> Iterable[Route]:
    for name in names:
        own = tuple(
            Hop(one.to, one.probes, one.matches, one.ns / spent if spent else None)
            for one in hops
            if one.stream == name
        )
        state = states[name]
        walked = state["walked"] / state["arrivals"] if virtual and state["arrivals"] else None
        yield Route(name, own, walked, virtual)


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
    """Return what the bytes of a join are taken by; they add up to its total."""
    if figures["bytes"] is None:
        return ()
    parts = {
        "windows of the streams, with payload": sum(one["bytes"] for one in figures["states"].values()),
        "key directories": sum(one["bytes"] for one in figures["classes"]),
        "stored states": sum(one["bytes"] for one in figures["stairs"]),
        "late rows": figures["late_bytes"],
    }
    rest = figures["bytes"] - sum(parts.values())
    return (*parts.items(), ("room for input and results, groups, tables", rest))


def time_text(ticks: int | None, kind: pa.DataType | None) -> str | None:
    """Return ticks of a time type as text; None where they are no timestamp.

    >>> time_text(86_400, pa.timestamp("s"))
    '1970-01-02 00:00:00'
    """
    if ticks is None or kind is None or not pa.types.is_timestamp(kind):
        return None
    try:
        return str(pa.scalar(ticks, pa.int64()).cast(kind))
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # there is no such date


def time_seconds(ticks: int | None, kind: pa.DataType | None) -> float | None:
    """Return ticks of a time type as Unix time; None where they are no timestamp.

    >>> time_seconds(1_500, pa.timestamp("ms"))
    1.5
    """
    if ticks is None or kind is None or not pa.types.is_timestamp(kind):
        return None
    return ticks / {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]

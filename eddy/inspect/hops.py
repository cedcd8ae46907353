"""Figures of the probes of the routes that run: the common part of `Runtime.metrics`, `stats` and `explain`."""

from __future__ import annotations

from typing import NamedTuple

from eddy.routing.costs import CLIMB_PROBE, CLIMB_VISIT, LEAF, LEAF_VISIT, PROBE, VISIT, entry_cost
from jisc.strategies import Strategy
from jisc.strategies.base import COUNTERS
from stairs.descriptors import (
    H_CLASS,
    H_STATE,
    H_STORE,
    H_TARGET,
    R_END,
    R_LEAF,
    R_TRUNK,
    ROUTED,
    VIRTUAL,
)
from stairs.modules import Modules


class HopFigures(NamedTuple):
    """One probe of a route, since its plan began.

    plan     the number of the plan, in the order in which the plans that run began
    stream   the stream whose tuples take it
    to       the stream probed, or the streams of the STAIR probed
    by       the class probed by; None where an eddy chooses the class tuple by tuple (SteMs)
    probes   chains walked;  matches  tuples in them that passed the checks
    ns       nanoseconds, by the weights of `eddy.routing.costs`
    """

    plan: int
    stream: str
    to: tuple[str, ...]
    by: int | None
    probes: int
    matches: int
    ns: float


def hop_figures(modules: Modules, strategy: Strategy) -> list[HopFigures]:
    """Return the hops of all plans that run, oldest plan first, then by stream, then in the order of the route."""
    names, routes = modules.graph.names, strategy.routes
    stairs = {stair.row: stair for stair in strategy.stairs}
    virtual, figures = strategy.mode == VIRTUAL, list[HopFigures]()
    for route in range(len(strategy.trees) * len(names)):
        span = routes.span[route]
        for h in range(int(span[R_TRUNK]), int(span[R_END])):
            hop = routes.hops[h]
            state, (probes, matches) = int(hop[H_STATE]), routes.counts[COUNTERS, h].tolist()
            to = (names[int(hop[H_TARGET])],) if state < 0 else tuple(names[j] for j in stairs[state].streams)
            by = None if strategy.mode == ROUTED and state < 0 else int(hop[H_CLASS])
            stair = stairs.get(int(hop[H_STORE]))
            stored = 0.0 if stair is None else entry_cost(len(stair.streams), stair.nbytes)
            ns = _spent(virtual, virtual and h >= span[R_LEAF], probes, matches, stored)
            figures.append(HopFigures(route // len(names), names[route % len(names)], to, by, probes, matches, ns))
    return figures


def _spent(virtual: bool, leaf: bool, probes: int, matches: int, stored: float) -> float:
    if leaf:
        return LEAF * probes + LEAF_VISIT * matches
    if virtual:
        return PROBE * probes + VISIT * matches
    return CLIMB_PROBE * probes + (CLIMB_VISIT + stored) * matches

"""Strategies: how a plan is executed, and how one plan replaces another.

One file each (the two over STAIRs under an eddy share one), and one line in STRATEGIES.

name             stores              computes a state
mjoin            nothing             never: inner nodes are virtual, routes are compiled
cacq             nothing             never: an eddy routes tuples hop by hop
symmetric-hash   every inner state   from the first tuple on; the plan cannot change
moving-state     every inner state   at the transition, state by state; output waits
stairs           every inner state   at the transition, key by key; output waits
eddy-stairs      every inner state   as stairs; an eddy routes tuples hop by hop over STAIRs
parallel-track   two plans           never: the old plan runs on until the windows have passed
jisc             every inner state   key by key, on the first probe of each
eddy-jisc        every inner state   as jisc; an eddy routes tuples hop by hop over STAIRs
eddy             the chosen states   key by key, on the first probe of each

In joins of many streams on one key, symmetric-hash, moving-state, jisc and eddy-jisc store nothing: presence
words stand for their states (`jisc.strategies.stored`).
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Literal

from jisc.strategies.base import Strategy
from jisc.strategies.transition import Transition

StrategyName = Literal[
    "eddy",
    "mjoin",
    "jisc",
    "moving-state",
    "parallel-track",
    "cacq",
    "stairs",
    "eddy-stairs",
    "eddy-jisc",
    "symmetric-hash",
]
"""The names of the strategies, so that a type checker finds a typo."""

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in map(
        resolve_name,
        (
            "jisc.strategies.eddy:Eddy",
            "jisc.strategies.mjoin:MJoin",
            "jisc.strategies.jisc:Jisc",
            "jisc.strategies.moving_state:MovingState",
            "jisc.strategies.parallel_track:ParallelTrack",
            "jisc.strategies.cacq:Cacq",
            "jisc.strategies.stairs:Stairs",
            "jisc.strategies.eddy_stairs:EddyStairs",
            "jisc.strategies.eddy_stairs:EddyJisc",
            "jisc.strategies.symmetric_hash:SymmetricHash",
        ),
    )
}
"""Every strategy by its name."""

__all__ = ["STRATEGIES", "Strategy", "StrategyName", "Transition"]

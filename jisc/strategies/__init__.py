"""The strategies by which one plan takes over from another, side by side behind one protocol (`base.Strategy`).

name             stores              computes a state
mjoin            nothing             never: inner nodes are virtual, routes compiled
cacq             nothing             never: routed hop by hop through an eddy
symmetric-hash   every inner state   from the first tuple on; the plan cannot change
moving-state     every inner state   at the transition, state by state; output waits
stairs           every inner state   at the transition, key by key; output waits
parallel-track   two plans           never: the old plan runs on until the windows have passed
jisc             every inner state   key by key, on the first probe of each
eddy             the states chosen   key by key, on the first probe of each
"""

from __future__ import annotations

from jisc.strategies.base import Strategy, Transition
from jisc.strategies.cacq import Cacq
from jisc.strategies.eddy import Eddy
from jisc.strategies.jisc import Jisc
from jisc.strategies.mjoin import MJoin
from jisc.strategies.moving_state import MovingState
from jisc.strategies.parallel_track import ParallelTrack
from jisc.strategies.stairs import Stairs
from jisc.strategies.symmetric_hash import SymmetricHash

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (Eddy, MJoin, Jisc, MovingState, ParallelTrack, Cacq, Stairs, SymmetricHash)
}
"""Every strategy by its name."""

__all__ = [
    "STRATEGIES",
    "Cacq",
    "Eddy",
    "Jisc",
    "MJoin",
    "MovingState",
    "ParallelTrack",
    "Stairs",
    "Strategy",
    "SymmetricHash",
    "Transition",
]

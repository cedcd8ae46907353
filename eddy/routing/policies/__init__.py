"""Policies: how the runtime finds its plan. One file each, behind one small protocol (`base.Policy`).

name       proposes                                   by
fixed      nothing
lottery    a random order                             tickets: tuples taken, less those returned
rank       one greedy order                           partners and cost, pair by pair
a-greedy   one greedy order                           partners of the tuples that get so far
cost       left-deep and bushy plans, stored states   trying them on recent tuples over live state (the default)
bandit     one of a few plans                         what they cost when they ran
"""

from __future__ import annotations

from collections.abc import Callable

from eddy.routing.policies.a_greedy import AGreedy
from eddy.routing.policies.bandit import Bandit
from eddy.routing.policies.base import Decision, Learning, Policy
from eddy.routing.policies.cost import Cost
from eddy.routing.policies.fixed import Fixed
from eddy.routing.policies.lottery import Lottery
from eddy.routing.policies.rank import Rank
from eddy.routing.view import View

POLICIES: dict[str, Callable[[], Policy]] = {
    "fixed": Fixed,
    "lottery": Lottery,
    "rank": Rank,
    "a-greedy": AGreedy,
    "cost": Cost,
    "bandit": Bandit,
}
"""Every policy by its name."""

__all__ = [
    "POLICIES",
    "AGreedy",
    "Bandit",
    "Cost",
    "Decision",
    "Fixed",
    "Learning",
    "Lottery",
    "Policy",
    "Rank",
    "View",
]

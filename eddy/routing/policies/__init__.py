"""Policies, which choose the plan of a runtime. Each has a file and a line in POLICIES; `base.Policy` is the protocol.

name       proposes                                   by
fixed      nothing
lottery    a random order                             tickets: tuples taken minus tuples returned
rank       one greedy order                           partners and cost, pair by pair
a-greedy   one greedy order                           partners of the tuples that pass the earlier probes
cost       left-deep and bushy plans, stored states   trial on recent tuples over the live state (the default)
bandit     one of a few plans                         their measured costs
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Literal

from eddy.routing.policies.base import Decision, Learning, Policy
from eddy.routing.view import View

PolicyName = Literal["fixed", "lottery", "rank", "a-greedy", "cost", "bandit"]
"""The names of the policies, so that a type checker finds a typo."""

POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind
    for kind in map(
        resolve_name,
        (
            "eddy.routing.policies.fixed:Fixed",
            "eddy.routing.policies.lottery:Lottery",
            "eddy.routing.policies.rank:Rank",
            "eddy.routing.policies.a_greedy:AGreedy",
            "eddy.routing.policies.cost:Cost",
            "eddy.routing.policies.bandit:Bandit",
        ),
    )
}
"""Every policy by its name."""

__all__ = ["POLICIES", "Decision", "Learning", "Policy", "PolicyName", "View"]

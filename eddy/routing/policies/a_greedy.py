"""A-Greedy: the greedy order by conditional selectivities, maintained from a profile of recent tuples.

The profile has the joint outcome of the probes of a tuple, so the second stream is chosen by the tuples that pass the
first. An order stays until it violates the greedy invariant by more than the margin.
Source: Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of pipelined stream filters", SIGMOD 2004. There
the stages are filters; here a stage may also multiply tuples, so stages are compared by rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from eddy.routing.policies.rank import Rank


@dataclass
class AGreedy(Rank):
    """As `rank`, with partners counted for the tuples that pass the earlier probes."""

    name: str = "a-greedy"
    conditional = True

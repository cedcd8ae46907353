"""A-Greedy: the greedy order by conditional selectivities, kept up from a profile of recent tuples.

The profile has the joint outcome of a tuple's probes, so the second stream is chosen by what the first lets through. An
order is kept until it violates the greedy invariant by more than the margin.
Source: Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of pipelined stream filters", SIGMOD 2004. There
stages are filters; here a stage multiplies tuples as well, and what counts is the rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from eddy.routing.policies.rank import Rank


@dataclass
class AGreedy(Rank):
    """As `rank`, with partners counted for the tuples that get so far."""

    name: str = "a-greedy"
    conditional = True

"""A pipeline of symmetric hash joins: every inner state is stored and complete from the first tuple on.

Its plan cannot change. It is the baseline for the price of being able to change plans.
Source: Wilschut, Apers, "Dataflow query execution in a parallel main-memory environment", Distributed and Parallel
Databases, 1993.
"""

from __future__ import annotations

from jisc.strategies.eager import EagerStrategy


class SymmetricHash(EagerStrategy):
    """The strategy that stores all states of one plan, which cannot change."""

    name = "symmetric-hash"
    changes = False

"""Joins of each row with each other one: CROSS JOIN, and conditions that make no key.

Such a join has a key that all rows share, since each join has keys: (a.k IS NULL OR TRUE) = (b.k IS NULL OR TRUE).
"""

from __future__ import annotations

from sqlglot import exp

from eddy.expressions.trees import Place, column


def product(place: Place, other: Place) -> exp.Expression:
    """Return a condition that is true for each row of two occurrences, given a column of each."""
    return exp.EQ(this=_always(place), expression=_always(other))


def _always(place: Place) -> exp.Expression:
    test = exp.Is(this=column(place, ""), expression=exp.Null())
    return exp.Paren(this=exp.Or(this=test, expression=exp.true()))

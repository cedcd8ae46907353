"""The names of aggregate functions in SQL, and their calls in a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from eddy import agg
from eddy.expressions.trees import in_subquery
from eddy.query.aggregation import Aggregate

AGGREGATES: dict[str, Callable[..., Aggregate]] = {
    "COUNT": agg.count,
    "SUM": agg.sum,
    "AVG": agg.avg,
    "MIN": agg.min,
    "MAX": agg.max,
    "FIRST_VALUE": agg.first,
    "FIRST": agg.first,
    "LAST_VALUE": agg.last,
    "LAST": agg.last,
}
"""The aggregate functions of one argument, by name."""
BY: dict[str, Callable[..., Aggregate]] = {
    "MAX_BY": agg.last,
    "ARG_MAX": agg.last,
    "MIN_BY": agg.first,
    "ARG_MIN": agg.first,
}
"""The aggregate functions of a value and of the expression that orders the rows, by name."""
TURNED: dict[Callable[..., Aggregate], Callable[..., Aggregate]] = {agg.first: agg.last, agg.last: agg.first}
"""The functions that depend on an order, each with the function of the opposite order."""


def called(node: exp.Expression) -> str:
    """Return the name of a function that is called, "" for other trees."""
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else ""


def is_aggregate(node: exp.Expression) -> bool:
    """Return whether a tree is the call of an aggregate function, with or without FILTER."""
    name = called(node.this if isinstance(node, exp.Filter) else node)
    return name in AGGREGATES or name in BY


def aggregates_in(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the calls of aggregate functions in a tree, those of subqueries left out."""
    for call in node.find_all(exp.Anonymous):
        if is_aggregate(call) and not in_subquery(call, node):
            yield call

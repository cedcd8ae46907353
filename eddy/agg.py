"""Aggregate functions for `Query(aggregates=…)`: count, sum, avg, min, max, first, last, count_distinct.

    from eddy import Query, agg

    Query(streams, on, group_by=["users.country"], aggregates={"n": agg.count(), "revenue": agg.sum("orders.amount")})

An argument is a column, "stream.column", or a pyarrow expression over columns of such names. Every function except
`count()` ignores nulls, and is null for a group without other values; counts are then 0. docs/guide/semantics.md
defines each function.
"""

from __future__ import annotations

from eddy.query.aggregation import Aggregate, Argument

__all__ = ["Aggregate", "avg", "count", "count_distinct", "first", "last", "max", "min", "sum"]


def count(column: Argument | None = None) -> Aggregate:
    """Return the number of results as int64; with a column, the number of results in which it is not null.

    >>> count()
    count()
    """
    return Aggregate("count", column)


def sum(column: Argument) -> Aggregate:
    """Return the exact sum. Integers, decimals and durations keep their kind, floats give float64.

    int64 for signed integers and uint64 for unsigned integers; a group whose sum is beyond this range fails.
    decimal(38, s) for decimals, decimal(76, s) for decimals of 256 bits. For floats: the exact sum of the values,
    rounded once.

    >>> sum("orders.amount")
    sum(orders.amount)
    """
    return Aggregate("sum", column)


def avg(column: Argument) -> Aggregate:
    """Return the mean of numbers as float64: the exact sum as float64, divided by the number of values."""
    return Aggregate("avg", column)


def min(column: Argument) -> Aggregate:
    """Return the least value of a column of any type that can be a key. NaN is greater than all other floats."""
    return Aggregate("min", column)


def max(column: Argument) -> Aggregate:
    """Return the greatest value of a column of any type that can be a key. NaN is greater than all other floats."""
    return Aggregate("max", column)


def count_distinct(column: Argument) -> Aggregate:
    """Return the exact number of different values as int64. Memory: each value of each group, once."""
    return Aggregate("count_distinct", column)


def first(column: Argument, by: Argument | None = None) -> Aggregate:
    """Return the value of the result with the least `by`; of several such results, the least value.

    by   None = the event time of the result

    >>> first("clicks.page", by="clicks.at")
    first(clicks.page by clicks.at)
    """
    return Aggregate("first", column, by)


def last(column: Argument, by: Argument | None = None) -> Aggregate:
    """Return the value of the result with the greatest `by`; of several such results, the greatest value.

    by   None = the event time of the result
    """
    return Aggregate("last", column, by)

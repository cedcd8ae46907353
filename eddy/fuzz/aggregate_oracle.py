"""Aggregates over results by definition: lists of values, sorted and added up. It imports nothing of ours.

Written from `docs/guide/semantics.md`. A result is a mapping from column names to plain Python values, with its event
time under TIME. Groups are found anew from all results that count, so nothing drifts, or is taken back wrongly.

>>> rows = [{"k": 1, "x": 2.0, TIME: 0}, {"k": 1, "x": None, TIME: 5}]
>>> grouped(rows, ["k"], [OracleAggregate("count"), OracleAggregate("sum", "x")])
{(1,): (2, 2.0)}
>>> windowed(rows, ["k"], [OracleAggregate("count")], OracleWindow(size=4, hop=2))
{(-2, 2, 1): (1,), (0, 4, 1): (1,), (2, 6, 1): (1,), (4, 8, 1): (1,)}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

TIME = "\0time"
Row = Mapping[str, Any]
Key = tuple[Any, ...]
Argument = str | Callable[[Row], Any]


@dataclass(frozen=True)
class OracleAggregate:
    """A function of the values of a column, or of the results if there is none."""

    function: str
    column: Argument | None = None
    by: Argument = TIME


@dataclass(frozen=True)
class OracleWindow:
    """A window of `size` every `hop`, or a session that a pause of `gap` ends."""

    size: int = 0
    hop: int = 0
    gap: int = 0


def grouped(
    rows: Iterable[Row], keys: Sequence[Argument], functions: Sequence[OracleAggregate]
) -> dict[Key, tuple[Any, ...]]:
    """Return the aggregates of each group by its key; without keys, of the one group that is always there."""
    groups: dict[Key, list[Row]] = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(_unified(_value(row, key)) for key in keys), []).append(row)
    return {key: tuple(_aggregate(members, function) for function in functions) for key, members in groups.items()}


def windowed(
    rows: Sequence[Row], keys: Sequence[Argument], functions: Sequence[OracleAggregate], window: OracleWindow
) -> dict[Key, tuple[Any, ...]]:
    """Return the aggregates of each group in each window, by (start, end, *key)."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        key = tuple(_unified(_value(row, argument)) for argument in keys)
        for start, end in _sessions(row, key, rows, keys, window) if window.gap else _windows(row[TIME], window):
            groups.setdefault((start, end, *key), []).append(row)
    return {key: tuple(_aggregate(members, function) for function in functions) for key, members in groups.items()}


def _windows(t: int, window: OracleWindow) -> Iterable[tuple[int, int]]:
    first = t - window.size + 1
    for start in range(first, t + 1):
        if start % window.hop == 0:
            yield start, start + window.size


def _sessions(
    row: Row, key: Key, rows: Sequence[Row], keys: Sequence[Argument], window: OracleWindow
) -> Iterable[tuple[int, int]]:
    times = sorted({other[TIME] for other in rows if tuple(_unified(_value(other, k)) for k in keys) == key})
    at = times.index(row[TIME])
    low = high = at
    while low > 0 and times[low] - times[low - 1] < window.gap:
        low -= 1
    while high + 1 < len(times) and times[high + 1] - times[high] < window.gap:
        high += 1
    yield times[low], times[high] + window.gap


def _value(row: Row, argument: Argument) -> Any:
    return row[argument] if isinstance(argument, str) else argument(row)


def _unified(value: Any) -> Any:
    """Return a value such that Python's `==` says which values are in one group."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def _order(value: Any) -> tuple[bool, Any]:
    """Return what sorts NaN behind all other floats."""
    return (True, 0) if isinstance(value, float) and value != value else (False, value)


def _aggregate(rows: Sequence[Row], aggregate: OracleAggregate) -> Any:
    if aggregate.column is None:
        if aggregate.function != "count":
            raise ValueError(f"{aggregate.function} needs a column")
        return len(rows)
    values = [_value(row, aggregate.column) for row in rows]
    values = [value for value in values if value is not None]
    match aggregate.function:
        case "count":
            return len(values)
        case "count_distinct":
            return len({_unified(value) for value in values})
        case "sum":
            return _sum(values) if values else None
        case "avg":
            return _as_float(_sum(values)) / len(values) if values else None
        case "min":
            return min(values, key=_order, default=None)
        case "max":
            return max(values, key=_order, default=None)
        case "first":
            return next(iter(_in_order(rows, aggregate.column, aggregate.by)), None)
        case "last":
            return next(reversed(_in_order(rows, aggregate.column, aggregate.by)), None)
    raise ValueError(f"the oracle does not know {aggregate.function}")


def _in_order(rows: Sequence[Row], column: Argument, by: Argument) -> list[Any]:
    """Return values in the order of `by`, then in their own; rows in which one of both is null do not count."""
    pairs = [(_value(row, by), _value(row, column)) for row in rows]
    known = [(_order(place), _order(value), value) for place, value in pairs if place is not None and value is not None]
    return [value for _, _, value in sorted(known)]


def _as_float(total: Any) -> float:
    """Return a sum as a float; a decimal as its digits, divided by the power of ten of its point."""
    if not isinstance(total, Decimal):
        return float(total)
    scale = -int(total.as_tuple().exponent)
    return float(int(total.scaleb(scale))) / 10.0**scale


def _sum(values: Sequence[Any]) -> Any:
    if not isinstance(values[0], float):
        return sum(values[1:], values[0])
    odd = [value for value in values if not math.isfinite(value)]
    return sum(odd) if odd else math.fsum(values)

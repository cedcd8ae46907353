"""Comparisons of two streams: predicates with <, <=, >, >=, <> or BETWEEN, and their values as int64.

A comparison of columns x and y is brought to the form `y + low <= x <= y + high`, or `x <> y + low`. The values are
numbers of one type per comparison: integers, ticks of time, digits of decimals, or floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import pyarrow as pa
import pyarrow.types as pt

from eddy.expressions.parser import TURNED, Amount, Column, Term, WrittenComparison
from eddy.query.predicates import AttributeClass
from eddy.streams.key_types import comparable
from eddy.streams.key_types.times import units_per
from eddy.streams.stream import Stream, no_input
from stairs.errors import QueryError
from stairs.graph import FOREVER, ComparedValue, Comparison
from stairs.nearest import no_column

NUMBERS = "integers, floats, decimals, dates, times, timestamps and durations"


@dataclass(frozen=True)
class ColumnComparison:
    """A comparison of two columns: right + low <= left <= right + high; or left <> right + low, if `differs`.

    kind      the type in which the values are compared
    low, high in units of `kind`: int, or float for floats; None = no bound
    excluded  of floats: 1 = the low bound is excluded, 2 = the high one, 3 = both
    texts     the predicates as the user wrote them
    """

    left: Column
    right: Column
    kind: pa.DataType
    low: float | None
    high: float | None
    differs: bool = False
    excluded: int = 0
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " AND ".join(self.texts)

    @property
    def canonical(self) -> str:
        """A text that is the same for all ways to write the comparison."""
        # A sum of floats is rounded, so it is another one on the other side.
        if self.right < self.left and not (self.floats and any((self.low, self.high))):
            return self._turned().canonical
        left, right = (".".join(map(repr, column)) for column in self.columns)
        if self.differs:
            return f"{left} <> {right} + {self.low} ({self.kind})"
        low = "" if self.low is None else f"{right} + {self.low} <{'' if self.excluded & 1 else '='} "
        high = "" if self.high is None else f" <{'' if self.excluded & 2 else '='} {right} + {self.high}"
        return f"{low}{left}{high} ({self.kind})"

    def _turned(self) -> ColumnComparison:
        """Return the comparison with its sides exchanged."""
        low, high = (None if bound is None else 0 - bound for bound in (self.high, self.low))
        if self.differs:
            low, high = high, low
        excluded = (self.excluded & 1) << 1 | self.excluded >> 1
        return replace(self, left=self.right, right=self.left, low=low, high=high, excluded=excluded)

    @property
    def floats(self) -> bool:
        """Whether the values are floats."""
        return pt.is_floating(self.kind)

    @property
    def columns(self) -> tuple[Column, Column]:
        """The two columns."""
        return self.left, self.right

    def in_graph(self, left: ComparedValue, right: ComparedValue) -> Comparison:
        """Return the comparison of two values of tuples in the form for the state modules."""
        none = float("inf") if self.floats else 2 * FOREVER
        low = -none if self.low is None else self.low
        high = none if self.high is None else self.high
        return Comparison(left, right, low, high, self.floats, self.differs, self.excluded)


def comparisons(
    streams: Sequence[Stream], written: Sequence[WrittenComparison], time_type: pa.DataType | None
) -> tuple[ColumnComparison, ...]:
    """Return the comparisons of a query; comparisons of the same two columns become one, except for floats.

    Sums of floats are rounded: y + 2 may equal y + 1, so no bound makes another bound redundant.

    time_type   the type of event times

    Raises QueryError for unknown or equal streams, types that cannot be compared, amounts that do not fit them, and
    comparisons that no values fulfil.
    """
    by_name = {stream.name: stream for stream in streams}
    order = list(by_name)
    merged: dict[object, ColumnComparison] = {}
    for predicate in written:
        sides = predicate.left.column, predicate.right.column
        kind = _kind(by_name, predicate)
        if time_type is not None and all(by_name[name].time == column for name, column in sides):
            kind = time_type
        turned = _turned(predicate, order, pt.is_floating(kind))
        comparison = _comparison(turned, kind)
        same: tuple[object, ...] = (
            turned.left.column,
            turned.right.column,
            comparison.low if comparison.differs else None,
        )
        if comparison.floats:
            same = (*same, turned.operator, comparison.low, comparison.high)
        before = merged.get(same)
        merged[same] = comparison if before is None else _both(before, comparison)
    return tuple(merged.values())


def _kind(by_name: dict[str, Stream], predicate: WrittenComparison) -> pa.DataType:
    """Return the type in which the columns of a comparison are compared."""
    sides = predicate.left.column, predicate.right.column
    for name, column in sides:
        if name not in by_name:
            raise QueryError(f"predicate {predicate.text!r}: {no_input(name, [*by_name.values()])}")
        if column not in by_name[name].schema.names:
            missing = no_column(by_name[name].place, column, by_name[name].schema.names)
            raise QueryError(f"predicate {predicate.text!r}: {missing}")
    if sides[0][0] == sides[1][0]:
        raise QueryError(
            f"predicate {predicate.text!r} compares columns of {by_name[sides[0][0]].place}"
            " only; write it as its filter:"
            f" {by_name[sides[0][0]].filter_form}"
        )
    types = [by_name[name].type_of(column) for name, column in sides]
    kind = comparable(types)
    if kind is None:
        listed = ", ".join(
            f"{name}.{column} is {column_type}" for (name, column), column_type in zip(sides, types, strict=True)
        )
        raise QueryError(
            f"predicate {predicate.text!r}: values of these types cannot be compared: {listed};"
            f" {NUMBERS} can, with values of"
            " the same kind: cast one of them, or write a Predicate in where="
        )
    return kind


def _turned(predicate: WrittenComparison, order: list[str], floats: bool) -> WrittenComparison:
    """Return the same comparison with its columns in a canonical order, or for floats without an amount on the left."""
    amounts = [bool(term.amount.value) for term in (predicate.left, predicate.right)]
    if floats and all(amounts):
        raise QueryError(
            f"predicate {predicate.text!r} adds to both sides, and floats are rounded; add to one side only"
        )
    turn = order.index(predicate.left.column[0]) < order.index(predicate.right.column[0])
    if floats and any(amounts):
        turn = amounts[0]
    return (
        WrittenComparison(predicate.right, TURNED[predicate.operator], predicate.left, predicate.text)
        if turn
        else predicate
    )


def _comparison(predicate: WrittenComparison, kind: pa.DataType) -> ColumnComparison:
    amount = _units(predicate, predicate.right, kind) - _units(predicate, predicate.left, kind)
    left, right, texts = predicate.left.column, predicate.right.column, (predicate.text,)
    if pt.is_floating(kind):
        try:
            bound = float(amount)
        except OverflowError as error:
            raise QueryError(f"predicate {predicate.text!r}: an amount is beyond the range of float64") from error
        low = bound if predicate.operator in (">", ">=", "=", "!=") else None
        high = bound if predicate.operator in ("<", "<=", "=") else None
        excluded = {">": 1, "<": 2}.get(predicate.operator, 0)
        return ColumnComparison(left, right, kind, low, high, predicate.operator == "!=", excluded, texts)
    # Between two units lies no value, so an inequality with a part of a unit is one with whole units.
    if abs(amount) > FOREVER or (amount.denominator != 1 and predicate.operator in ("=", "!=")):
        raise QueryError(
            f"predicate {predicate.text!r}: an amount is not a whole number within ±2^61 of the"
            f" units of {kind}, the type in"
            " which the columns are compared"
        )
    low = {">": floor(amount) + 1, ">=": ceil(amount), "=": ceil(amount), "!=": ceil(amount)}.get(predicate.operator)
    high = {"<": ceil(amount) - 1, "<=": floor(amount), "=": floor(amount)}.get(predicate.operator)
    return ColumnComparison(left, right, kind, low, high, predicate.operator == "!=", 0, texts)


def _units(predicate: WrittenComparison, term: Term, kind: pa.DataType) -> Fraction:
    """Return the amount of a term in units of the type in which it is compared."""
    amount: Amount = term.amount
    per_second = units_per(kind)
    if not amount.value:
        return Fraction(0)
    if amount.is_span:
        if per_second is None:
            raise QueryError(
                f"predicate {predicate.text!r} adds a span of time to {'.'.join(term.column)},"
                f" which is compared as {kind};"
                " give a number without a unit"
            )
        return amount.value * per_second
    if pt.is_decimal(kind):
        return amount.value * Fraction(10) ** kind.scale
    if per_second is None or pt.is_date(kind):
        return amount.value
    number = f"{float(abs(amount.value)):g}"
    raise QueryError(
        f"predicate {predicate.text!r}: the number {number} has no unit, and"
        f" {'.'.join(term.column)} is compared as {kind};"
        f" give it one, as in {number + ' s'!r} or {number + ' min'!r}"
    )


def _both(comparison: ColumnComparison, other: ColumnComparison) -> ColumnComparison:
    """Return the conjunction of two comparisons of the same columns."""
    low, low_out = max((_low(comparison), _low(other)))
    high, high_out = min((_high(comparison), _high(other)), key=lambda bound: (bound[0], -bound[1]))
    texts = tuple(dict.fromkeys((*comparison.texts, *other.texts)))
    if low > high or (low == high and (low_out or high_out)):
        raise QueryError(f"no values fulfil {' AND '.join(map(repr, texts))}; correct one of the bounds")
    infinite = float("inf")
    return ColumnComparison(
        comparison.left,
        comparison.right,
        comparison.kind,
        None if low == -infinite else low,
        None if high == infinite else high,
        comparison.differs,
        low_out | 2 * high_out,
        texts,
    )


def _low(comparison: ColumnComparison) -> tuple[float, int]:
    return (-float("inf") if comparison.low is None else comparison.low), comparison.excluded & 1


def _high(comparison: ColumnComparison) -> tuple[float, int]:
    return (float("inf") if comparison.high is None else comparison.high), comparison.excluded >> 1


def scanned_pairs(
    names: Sequence[str], classes: Sequence[AttributeClass], compared: Sequence[ColumnComparison]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of streams that comparisons connect and no chain of equalities, each once, in query order."""
    part = {name: name for name in names}
    for attribute_class in classes:
        roots = {part[name] for name in attribute_class.columns}
        part = {name: min(roots) if root in roots else root for name, root in part.items()}
    pairs = (tuple(sorted((comparison.left[0], comparison.right[0]), key=names.index)) for comparison in compared)
    return tuple(dict.fromkeys((a, b) for a, b in pairs if part[a] != part[b]))

"""Conditions as predicates of a query: equalities and comparisons of columns of two streams, plus or minus a constant.

`a.x - b.y < 5`, `a.x BETWEEN b.y - 5 AND b.y + 5` and `ABS(a.x - b.y) <= 5` are such bands. Terms change sides where
that is exact: not for floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from eddy.expressions.grammar import EddyDialect
from eddy.expressions.kinds import family
from eddy.expressions.scalars import Scalars
from eddy.expressions.source import StatementText
from eddy.expressions.spans import seconds_of
from eddy.expressions.trees import Place, bare, place_of, reads
from eddy.streams.key_types import comparable, unified
from eddy.streams.key_types.times import UNITS, units_per
from stairs.graph import FOREVER

OPERATORS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_INEQUALITIES = ("<", "<=", ">", ">=")
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Linear:
    """A sum of columns, each added or subtracted, and a constant: a number, or a span in seconds.

    columns  those added, and those subtracted
    amount   None = no constant
    """

    plus: tuple[Place, ...] = ()
    minus: tuple[Place, ...] = ()
    amount: Fraction | None = None
    is_span: bool = False

    def turned(self) -> Linear:
        """Return the sum with all signs changed."""
        return Linear(self.minus, self.plus, None if self.amount is None else -self.amount, self.is_span)

    def added(self, other: Linear) -> Linear | None:
        """Return the sum of two, None if their constants are of two kinds."""
        if self.amount is not None and other.amount is not None and self.is_span != other.is_span:
            return None
        amounts = [addend.amount for addend in (self, other) if addend.amount is not None]
        total = sum(amounts, Fraction(0)) if amounts else None
        return Linear(self.plus + other.plus, self.minus + other.minus, total, self.is_span or other.is_span)


def linear(node: exp.Expression, source: StatementText) -> Linear | None:
    """Return a tree as a sum of columns and a constant, None for any other tree."""
    node = bare(node)
    place = place_of(node)
    if place is not None:
        return Linear(plus=(place,))
    if isinstance(node, exp.Literal) and not node.is_string and "e" not in str(node.this).lower():
        return Linear(amount=Fraction(str(node.this)))
    if isinstance(node, exp.Interval):
        return Linear(amount=seconds_of(node, source), is_span=True)
    if isinstance(node, exp.Neg):
        inner = linear(node.this, source)
        return None if inner is None else inner.turned()
    if isinstance(node, exp.Add | exp.Sub):
        left, other = linear(node.left, source), linear(node.right, source)
        if left is None or other is None:
            return None
        return left.added(other if isinstance(node, exp.Add) else other.turned())
    return None


def bands(node: exp.Expression) -> list[exp.Expression]:
    """Return a condition, or |x - y| < c as the two comparisons that it stands for."""
    if not isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
        return [node]
    left, right, kind = bare(node.left), bare(node.right), type(node)
    if kind in (exp.GT, exp.GTE):
        left, right, kind = right, left, exp.LT if kind is exp.GT else exp.LTE
    if not (isinstance(left, exp.Anonymous) and str(left.this).upper() == "ABS" and len(left.expressions) == 1):
        return [node]
    inner = left.expressions[0]
    other = exp.GT if kind is exp.LT else exp.GTE
    least = exp.Neg(this=exp.Paren(this=right.copy()))
    return [kind(this=inner.copy(), expression=right.copy()), other(this=inner.copy(), expression=least)]


def implied(node: exp.Expression) -> list[exp.Expression]:
    """Return the intervals that follow from a condition: times in one tumbling window are less than its size apart."""
    if not isinstance(node, exp.EQ):
        return []
    sides = [bare(node.left), bare(node.right)]
    names = {str(side.this).upper() if isinstance(side, exp.Anonymous) else "" for side in sides}
    if (
        len(names) != 1
        or not names <= {"TUMBLE_START", "TUMBLE_END"}
        or any(len(side.expressions) != 2 for side in sides)
    ):
        return []
    (time, size), (other, also) = (side.expressions for side in sides)
    if size != also or place_of(time) is None or place_of(other) is None:
        return []
    above = exp.Add(this=other.copy(), expression=size.copy())
    below = exp.Sub(this=other.copy(), expression=size.copy())
    return [exp.LT(this=time.copy(), expression=above), exp.GT(this=time.copy(), expression=below)]


Type = Callable[[Place], pa.DataType]


def predicate(
    node: exp.Expression, type_of: Type, name_of: Callable[[Place], str], source: StatementText
) -> str | None:
    """Return a condition as a predicate of a query, None if it is none: then Arrow evaluates it on joined rows.

    type_of, name_of   the type of a column, and its text in predicates
    """
    operator = OPERATORS.get(type(node))
    if operator is None:
        return None
    left, right = linear(node.args["this"], source), linear(node.args["expression"], source)
    if left is None or right is None:
        return None
    places = list(chain(left.plus, left.minus, right.plus, right.minus))
    if len(places) != 2 or places[0][0] == places[1][0]:
        return None
    types = [type_of(place) for place in places]
    plain = len(left.plus) == len(right.plus) == 1
    if plain and operator == "=" and not left.amount and not right.amount:
        if unified(types) is None:
            return None
        return f"{name_of(left.plus[0])} = {name_of(right.plus[0])}"
    kind = comparable(types)
    if kind is None:
        return None
    amounts = [left.amount, right.amount]
    is_span = left.is_span or right.is_span
    if family(kind) == "float" and not (plain and not (amounts[0] and amounts[1])):
        # Sums of floats are rounded, so terms stay on their sides.
        return None
    moved = left.added(right.turned())
    if moved is None or len(moved.plus) != 1 or len(moved.minus) != 1:
        return None
    if family(kind) == "float":
        first, second, amount = moved.plus[0], moved.minus[0], right.amount or Fraction(0)
        if left.amount:
            first, second, operator, amount = second, first, _TURNED[operator], left.amount
        if Fraction(float(amount)) != amount:
            # The parser of predicates reads decimal digits.
            amount = Fraction(repr(float(amount)))
        return f"{name_of(first)} {operator} {name_of(second)}{_added(amount, False)}"
    amount = -(moved.amount or Fraction(0))
    if not _fits(amount, is_span, kind, operator):
        return None
    return f"{name_of(moved.plus[0])} {operator} {name_of(moved.minus[0])}{_added(amount, is_span)}"


def null_safe(node: exp.NullSafeEQ, type_of: Callable[[Place], pa.DataType]) -> list[exp.Expression]:
    """Return two equalities that mean IS NOT DISTINCT FROM, for columns whose type has a literal; none for others.

    COALESCE(a.k, 0) = COALESCE(b.k, 0) AND (a.k IS NULL) = (b.k IS NULL)
    """
    sides = [bare(node.left), bare(node.right)]
    places = [place_of(side) for side in sides]
    if places[0] is None or places[1] is None or places[0][0] == places[1][0]:
        return []
    kinds = {type_of(place) for place in places if place is not None}
    if len(kinds) > 1:
        return []
    (kind,) = kinds
    some = _some_value(kind)
    if some is None:
        return []
    filled = [exp.Anonymous(this="COALESCE", expressions=[side.copy(), some.copy()]) for side in sides]
    absent = [exp.Paren(this=exp.Is(this=side.copy(), expression=exp.Null())) for side in sides]
    return [exp.EQ(this=pair[0], expression=pair[1]) for pair in (filled, absent)]


def _some_value(kind: pa.DataType) -> exp.Expression | None:
    """Return a literal of a type, None for a type without one."""
    if pt.is_integer(kind):
        return exp.Literal.number(0)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return exp.Literal.string("")
    if pt.is_boolean(kind):
        return exp.false()
    if pt.is_decimal(kind):
        decimal = exp.DataType.build(f"DECIMAL({kind.precision}, {kind.scale})", dialect=EddyDialect)
        return exp.Cast(this=exp.Literal.number(0), to=decimal)
    if pt.is_date32(kind):
        to = "DATE"
    elif pt.is_timestamp(kind) and kind.tz is None:
        to = f"TIMESTAMP({3 * UNITS.index(kind.unit)})"
    else:
        return None
    return exp.Cast(this=exp.Literal.string("1970-01-01"), to=exp.DataType.build(to, dialect=EddyDialect))


def key_sides(node: exp.Expression, scalars: Scalars) -> tuple[exp.Expression, exp.Expression] | None:
    """Return the sides of an equality that expressions of one stream each can make a key, None for other conditions.

    A side whose values are compared in another type has a CAST to it.
    """
    if not isinstance(node, exp.EQ):
        return None
    sides = [bare(node.left), bare(node.right)]
    read = [reads(side) for side in sides]
    if any(len(occurrences) != 1 for occurrences in read) or read[0] == read[1]:
        return None
    kinds = [scalars.value(side).kind for side in sides]
    _, common = scalars.same(node, *sides)
    if unified([common]) is None:
        return None
    if unified(kinds) is None:
        if family(common) not in ("float", "timestamp"):
            return None
        to = "DOUBLE" if family(common) == "float" else f"TIMESTAMP({3 * UNITS.index(common.unit)})"
        target = exp.DataType.build(to, dialect=EddyDialect)
        sides = [
            side if family(kind) == family(common) else exp.Cast(this=side.copy(), to=target.copy())
            for side, kind in zip(sides, kinds, strict=True)
        ]
    return sides[0], sides[1]


def why_no_key(node: exp.Expression) -> str:
    """Return why a condition connects no streams: they have no key by it, and no order in which to search."""
    if isinstance(node, exp.NullSafeEQ):
        return "it is true of two NULLs, and a NULL is no key; write = of COALESCE(…, a value that is none)"
    if isinstance(node, exp.Or):
        return "OR has no key"
    if isinstance(node, exp.EQ):
        if all(place_of(bare(side)) is not None for side in (node.left, node.right)):
            return "values of the types of these columns cannot be equal"
        return "a key needs an expression of one stream on each side"
    if isinstance(node, exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        if all(place_of(bare(side)) is not None for side in (node.left, node.right)):
            return "values of these types are not searched in order"
        return "a search in order needs a column, or a column plus a constant, on each side"
    return "it is a function of both streams"


def _fits(amount: Fraction, is_span: bool, kind: pa.DataType, operator: str) -> bool:
    """Return whether a predicate may add an amount to a column; an inequality takes parts of units as well."""
    per_second = units_per(kind)
    if is_span != (per_second is not None) and amount:
        # A number added to times has no unit in SQL; dates count days.
        return bool(not is_span and family(kind) == "date" and amount.denominator == 1)
    units = amount * per_second if is_span and per_second is not None else amount
    if family(kind) == "decimal":
        units *= Fraction(10) ** kind.scale
    # Predicates are written in nanoseconds at the finest.
    parts = operator in _INEQUALITIES and (not is_span or (amount * 10**9).denominator == 1)
    return (units.denominator == 1 or parts) and abs(units) <= FOREVER


def _added(amount: Fraction, is_span: bool) -> str:
    """Return an amount as predicates have it: + 5, - 90 s."""
    if not amount:
        return ""
    unit = ""
    if is_span:
        unit = " s"
        for name, per in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
            if amount.denominator == 1:
                break
            unit, scale = f" {name}", per
            if (amount * scale).denominator == 1:
                amount = amount * scale
                break
    return f" {'-' if amount < 0 else '+'} {digits(abs(amount))}{unit}"


def digits(amount: Fraction) -> str:
    """Return a decimal fraction with all its digits."""
    if amount.denominator == 1:
        return str(amount.numerator)
    scale = 0
    while (amount * 10**scale).denominator != 1:
        scale += 1
    whole = str((amount * 10**scale).numerator).rjust(scale + 1, "0")
    return f"{whole[:-scale]}.{whole[-scale:]}"

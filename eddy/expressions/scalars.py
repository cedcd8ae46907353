"""Scalar expressions: a tree whose names are resolved, as an Arrow expression with a checked type.

Nulls follow SQL: operators and functions of a null are null unless docs/guide/sql.md says otherwise, AND and OR are
three-valued, and IN is a chain of equalities. Division by zero is null. Every row evaluates all branches of CASE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import permutations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from sqlglot import exp

from eddy.expressions.arithmetic import ARITHMETIC
from eddy.expressions.functions import CALLS, call
from eddy.expressions.grammar import printed, shown
from eddy.expressions.kinds import NUMBERS, TIMES, family, name_of, wide
from eddy.expressions.over import REFUSED, nearest_form
from eddy.expressions.patterns import like, regular
from eddy.expressions.source import StatementText
from eddy.expressions.spans import span
from eddy.expressions.trees import is_presence
from eddy.expressions.types import type_of
from eddy.expressions.values import (
    Value,
    cast,
    constant,
    is_text,
    null,
    number,
    of_column,
    unified,
    widened,
)
from eddy.streams.key_types import UNCOMPARED
from stairs.nearest import nearest

Field = Callable[[exp.Column], tuple[str, pa.DataType]]
"""Returns the name of a column in Arrow, and its type."""

_COMPARED: dict[type, Callable[..., pc.Expression]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}


class Scalars:
    """Makes Arrow expressions from trees, with the columns of one place: a stream, the results, or the groups."""

    def __init__(self, source: StatementText, field: Field) -> None:
        self.source, self._field = source, field

    def error(self, node: exp.Expression, message: str) -> Exception:
        """Return the error about a node."""
        return self.source.error(node, message)

    def value(self, node: exp.Expression) -> Value:
        """Return the value of a tree. Raises SqlError for types that do not fit, and for what the dialect lacks."""
        for kind in type(node).__mro__:
            make = _MAKERS.get(kind)
            if make is not None:
                return make(self, node)
        raise self.error(node, f"{shown(node)} is not supported here; docs/guide/sql.md lists the expressions")

    def condition(self, node: exp.Expression) -> pc.Expression:
        """Return a tree that must be a BOOLEAN."""
        return self.boolean(node).arrow

    def boolean(self, node: exp.Expression) -> Value:
        """Return the value of a tree, which must be a BOOLEAN."""
        value = self.value(node)
        if value.family == "null":
            return Value(null(pa.bool_()), pa.bool_())
        if value.family != "boolean":
            raise self.error(node, f"a condition is expected, but {printed(node)} is {name_of(value.kind)}")
        return value

    def numbers(self, node: exp.Expression, *parts: exp.Expression) -> list[Value]:
        """Return the values of trees, which must be numbers."""
        values = [self.value(part) for part in parts]
        for part, value in zip(parts, values, strict=True):
            if value.family not in (*NUMBERS, "null"):
                raise self.error(part, f"{shown(node)} needs numbers, but {printed(part)} is {name_of(value.kind)}")
        return values

    def text(self, node: exp.Expression, part: exp.Expression) -> Value:
        """Return the value of a tree, which must be a STRING."""
        value = widened(self.value(part))
        if value.family == "null":
            return Value(null(pa.string()), pa.string())
        if not is_text(value.kind):
            raise self.error(
                part, f"{shown(node)} needs a string, but {printed(part)} is {name_of(value.kind)}: CAST it"
            )
        return value

    def same(self, node: exp.Expression, *parts: exp.Expression) -> tuple[list[Value], pa.DataType]:
        """Return the values of trees in their common type."""
        values = [self.value(part) for part in parts]
        values = _as_times(values)
        common = unified(values)
        if common is None:
            listed = ", ".join(f"{printed(p)} is {name_of(v.kind)}" for p, v in zip(parts, values, strict=True))
            raise self.error(node, f"the types do not fit together: {listed}; {_remedy(values)}")
        return common

    # Leaves

    def _column(self, node: exp.Column) -> Value:
        name, kind = self._field(node)
        if pt.is_run_end_encoded(kind):
            raise self.error(
                node, f"{printed(node)} is run-end encoded, and Arrow has no functions for it; select it alone"
            )
        return of_column(name, kind)

    def _literal(self, node: exp.Literal) -> Value:
        return constant(str(node.this), pa.string()) if node.is_string else self.number(node, str(node.this))

    def number(self, node: exp.Expression, text: str) -> Value:
        """Return the value of a number by its text."""
        value = number(text)
        if value is None:
            raise self.error(node, f"{text[:50]!r} is no number that a DECIMAL(38) or a DOUBLE holds")
        return value

    def _boolean(self, node: exp.Boolean) -> Value:
        return constant(bool(node.this), pa.bool_())

    def _null(self, node: exp.Null) -> Value:
        return Value(null(pa.null()), pa.null())

    def _paren(self, node: exp.Paren) -> Value:
        return self.value(node.this)

    def _span(self, node: exp.Interval) -> Value:
        return span(node, self.source)

    # Conditions

    def _not(self, node: exp.Not) -> Value:
        return Value(pc.invert(self.condition(node.this)), pa.bool_())

    def _and(self, node: exp.And) -> Value:
        return Value(pc.and_kleene(self.condition(node.left), self.condition(node.right)), pa.bool_())

    def _or(self, node: exp.Or) -> Value:
        return Value(pc.or_kleene(self.condition(node.left), self.condition(node.right)), pa.bool_())

    def compared(self, node: exp.Expression, left: exp.Expression, right: exp.Expression, kind: type) -> pc.Expression:
        """Return a comparison of two trees."""
        if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
            raise self.error(node, "rows in parentheses are compared with = at the top of ON or WHERE only")
        values = _narrow([self.value(left), self.value(right)])
        if values is not None:
            return _COMPARED[kind](values[0].arrow, values[1].arrow)
        for part in (left, right):
            value = self.value(part)
            if value.family == "other":
                raise self.error(node, f"{printed(part)} is {value.kind}, {UNCOMPARED}")
        (left_value, other), common = self.same(node, left, right)
        if family(common) == "null":
            return null(pa.bool_())
        return _COMPARED[kind](left_value.arrow, other.arrow)

    def _comparison(self, node: exp.Binary) -> Value:
        return Value(self.compared(node, node.left, node.right, type(node)), pa.bool_())

    def _between(self, node: exp.Between) -> Value:
        low = self.compared(node, node.this, node.args["low"], exp.GTE)
        high = self.compared(node, node.this, node.args["high"], exp.LTE)
        return Value(pc.and_kleene(low, high), pa.bool_())

    def _same_or_null(self, node: exp.Binary) -> Value:
        """IS NOT DISTINCT FROM, and its negation."""
        (left, other), common = self.same(node, node.left, node.right)
        both = pc.and_kleene(pc.is_null(left.arrow), pc.is_null(other.arrow))
        equal = both if family(common) == "null" else pc.coalesce(pc.equal(left.arrow, other.arrow), both)
        return Value(equal if isinstance(node, exp.NullSafeEQ) else pc.invert(equal), pa.bool_())

    def _is(self, node: exp.Is) -> Value:
        if isinstance(node.expression, exp.Null):
            return Value(pc.is_null(self.value(node.this).arrow), pa.bool_())
        if isinstance(node.expression, exp.Boolean):
            truth = pc.coalesce(self.condition(node.this), pc.scalar(not node.expression.this))
            return Value(truth if node.expression.this else pc.invert(truth), pa.bool_())
        raise self.error(node, "IS is followed by [NOT] NULL, TRUE, FALSE or DISTINCT FROM")

    def _in(self, node: exp.In) -> Value:
        if node.args.get("query") is not None:
            raise self.error(
                node, "IN (SELECT …) is supported as a condition of WHERE joined by AND; else write EXISTS"
            )
        parts = node.expressions
        if not parts:
            raise self.error(node, "IN needs a list of values")
        (subject, *others), common = self.same(node, node.this, *parts)
        if family(common) == "null":
            return Value(null(pa.bool_()), pa.bool_())
        return Value(reduce(pc.or_kleene, (pc.equal(subject.arrow, other.arrow) for other in others)), pa.bool_())

    def _like(self, node: exp.Expression) -> Value:
        inner, escape = (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        if not isinstance(inner, exp.Like | exp.ILike):
            raise self.error(node, "ESCAPE belongs to LIKE")
        pattern = inner.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise self.error(pattern, "the pattern of LIKE must be a constant: Arrow compiles it once")
        if escape is not None and not (isinstance(escape, exp.Literal) and len(str(escape.this)) == 1):
            raise self.error(escape, "ESCAPE is followed by one character")
        text = self.text(inner, inner.this).arrow
        matches = like(text, str(pattern.this), escape and str(escape.this), isinstance(inner, exp.ILike))
        if matches is None:
            raise self.error(
                pattern, "the escape character stands at the end of the pattern, or before a character that needs none"
            )
        return Value(pc.invert(matches) if inner.args.get("negate") else matches, pa.bool_())

    def _matches(self, node: exp.RegexpLike) -> Value:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise self.error(pattern, "a regular expression must be a constant: Arrow compiles it once")
        fault = regular(str(pattern.this))
        if fault is not None:
            raise self.error(pattern, f"Arrow does not accept the regular expression: {fault}")
        text = self.text(node, node.this).arrow
        return Value(pc.match_substring_regex(text, str(pattern.this)), pa.bool_())

    # Texts, choices, conversions, functions

    def _joined(self, node: exp.DPipe) -> Value:
        return self.concatenated(node, [node.left, node.right])

    def concatenated(self, node: exp.Expression, parts: list[exp.Expression]) -> Value:
        """Return texts joined; null if one of them is null."""
        texts = []
        for part in parts:
            value = self.value(part)
            texts.append(cast(value, pa.string()) if value.family == "integer" else self.text(node, part))
        common = unified([text for text in texts if text is not None])
        assert common is not None
        values, kind = common
        return Value(pc.binary_join_element_wise(*(v.arrow for v in values), pc.scalar(pa.scalar("", kind))), kind)

    def _case(self, node: exp.Case | exp.If) -> Value:
        cases = node.args["ifs"] if isinstance(node, exp.Case) else [node]
        rest = node.args.get("default" if isinstance(node, exp.Case) else "false") or exp.Null()
        subject = node.this if isinstance(node, exp.Case) else None
        values, kind = self.same(node, *(when.args["true"] for when in cases), rest)
        result = values[-1].arrow
        for case, value in reversed(list(zip(cases, values, strict=False))):
            test = self.condition(case.this) if subject is None else self.compared(case, subject, case.this, exp.EQ)
            result = pc.if_else(pc.coalesce(test, pc.scalar(False)), value.arrow, result)
        return Value(result, kind)

    def _cast(self, node: exp.Cast) -> Value:
        if isinstance(node, exp.TryCast):
            raise self.error(
                node,
                "TRY_CAST is not supported, because Arrow has none: write CAST, which fails the push for"
                " values that do not fit, or keep such rows out with a filter of the stream",
            )
        kind = type_of(node.args["to"], self.source)
        value = self.value(node.this)
        if isinstance(node.this, exp.Literal) and node.this.is_string and family(kind) in TIMES:
            return self._time(node, str(node.this.this), kind)
        cast_value = cast(value, kind)
        if cast_value is None:
            raise self.error(
                node, f"{printed(node.this)} is {name_of(value.kind)}, which cannot become {name_of(kind)}"
            )
        return cast_value

    def _time(self, node: exp.Expression, text: str, kind: pa.DataType) -> Value:
        """A constant date or timestamp."""
        stamp = pa.scalar(text.strip())
        try:
            if family(kind) == "date":
                stamp = stamp.cast(pa.timestamp("s")).cast(pa.date32())
            else:
                stamp = stamp.cast(pa.timestamp("us", kind.tz)).cast(kind)
        except pa.ArrowInvalid:
            raise self.error(
                node, f"{text!r} is no {name_of(kind)}; write '2026-01-31' or '2026-01-31 23:59:59'"
            ) from None
        return Value(pc.scalar(stamp), kind, literal=stamp.as_py())

    def _extract(self, node: exp.Extract) -> Value:
        return call(self, node, "EXTRACT", [exp.Literal.string(str(node.this.this)), node.expression])

    def _substring(self, node: exp.Substring) -> Value:
        return call(self, node, "SUBSTRING", [node.this, node.args.get("start"), node.args.get("length")])

    def _trim(self, node: exp.Trim) -> Value:
        side = str(node.args.get("position") or "BOTH").upper()
        name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(side, "TRIM")
        return call(self, node, name, [node.this, node.expression])

    def _position(self, node: exp.StrPosition) -> Value:
        return call(self, node, "STRPOS", [node.this, node.args["substr"]])

    def _floor(self, node: exp.Floor | exp.Ceil) -> Value:
        if node.args.get("to") is not None and isinstance(node, exp.Floor):
            return call(self, node, "DATE_TRUNC", [exp.Literal.string(str(node.args["to"].name)), node.this])
        return call(
            self, node, "FLOOR" if isinstance(node, exp.Floor) else "CEIL", [node.this, node.args.get("decimals")]
        )

    def _call(self, node: exp.Anonymous) -> Value:
        name = str(node.this).upper()
        if is_presence(node):
            return self._presence(node)
        if name not in CALLS:
            raise self.error(
                node, f"there is no function {name}{nearest(name, CALLS)}; docs/guide/sql.md lists the functions"
            )
        return call(self, node, name, node.expressions)

    def _presence(self, node: exp.Anonymous) -> Value:
        if len(node.expressions) != 1 or not isinstance(node.expressions[0], exp.Column):
            raise self.error(node, "PRESENT takes the name of a relation")
        name, kind = self._field(node.expressions[0])
        return Value(pc.field(name), kind)

    def _window(self, node: exp.Window) -> Value:
        raise self.error(node, f"{REFUSED}; {nearest_form(node)}")

    def _exists(self, node: exp.Expression) -> Value:
        raise self.error(
            node, "[NOT] EXISTS (…) and x IN (SELECT …) are conditions of WHERE, joined by AND; write a join elsewhere"
        )

    def _subquery(self, node: exp.Expression) -> Value:
        raise self.error(
            node,
            "a subquery as a value is not supported here; write it in the SELECT list or in WHERE",
        )


def _narrow(values: list[Value]) -> list[Value] | None:
    """Return an integer column and a constant of its own type, so that filters know the comparison as a range."""
    for column, other in (values, values[::-1]):
        if column.family == "integer" == other.family and column.literal is None and isinstance(other.literal, int):
            try:
                narrow = constant(other.literal, column.kind)
            except (pa.ArrowInvalid, OverflowError):
                return None
            return [narrow if value is other else value for value in values]
    return None


def _as_times(values: list[Value]) -> list[Value]:
    """Return values, constant texts among times read as times."""
    kinds = [value.kind for value in values if value.family in TIMES]
    if not kinds:
        return values
    changed = []
    for value in values:
        if value.family == "string" and isinstance(value.literal, str):
            try:
                stamp = pa.scalar(value.literal.strip()).cast(pa.timestamp("us", getattr(kinds[0], "tz", None)))
            except pa.ArrowInvalid:
                return values
            value = Value(pc.scalar(stamp), stamp.type)
        changed.append(value)
    return changed


def _remedy(values: list[Value]) -> str:
    """Return what to do about values whose types do not fit together."""
    pairs = [pair for pair in permutations(values, 2) if pair[0].family != pair[1].family]
    if any(cast(value, wide(other.kind)) is not None for value, other in pairs):
        return "CAST one of them"
    if {value.family for value in values} <= {*TIMES, "null"}:
        return "a time with a zone is a moment, and one without is none: declare both with a zone, or both without"
    return "there is no CAST from one to another"


_MAKERS: dict[type, Callable[[Scalars, Any], Value]] = {
    exp.Column: Scalars._column,
    exp.Literal: Scalars._literal,
    exp.Boolean: Scalars._boolean,
    exp.Null: Scalars._null,
    exp.Paren: Scalars._paren,
    exp.Interval: Scalars._span,
    exp.Not: Scalars._not,
    exp.And: Scalars._and,
    exp.Or: Scalars._or,
    **dict.fromkeys(_COMPARED, Scalars._comparison),
    exp.Between: Scalars._between,
    exp.NullSafeEQ: Scalars._same_or_null,
    exp.NullSafeNEQ: Scalars._same_or_null,
    exp.Is: Scalars._is,
    exp.In: Scalars._in,
    exp.Like: Scalars._like,
    exp.ILike: Scalars._like,
    exp.Escape: Scalars._like,
    exp.RegexpLike: Scalars._matches,
    **ARITHMETIC,
    exp.DPipe: Scalars._joined,
    exp.Case: Scalars._case,
    exp.If: Scalars._case,
    exp.Cast: Scalars._cast,
    exp.Extract: Scalars._extract,
    exp.Substring: Scalars._substring,
    exp.Trim: Scalars._trim,
    exp.StrPosition: Scalars._position,
    exp.Floor: Scalars._floor,
    exp.Ceil: Scalars._floor,
    exp.Anonymous: Scalars._call,
    exp.Window: Scalars._window,
    exp.Exists: Scalars._exists,
    exp.Subquery: Scalars._subquery,
    exp.Select: Scalars._subquery,
}

"""Spans of time: INTERVAL '30' MINUTE and its other forms, and the units of time."""

from __future__ import annotations

import re
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from eddy.expressions.parser import unit_seconds
from eddy.expressions.source import StatementText
from eddy.expressions.values import Value, constant
from eddy.streams.key_types.times import UNITS

_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,9})?")


def seconds_of(node: exp.Expression, source: StatementText) -> Fraction:
    """Return the seconds of an INTERVAL. Raises SqlError for one without a fixed length."""
    this, unit = node.this, node.args.get("unit")
    sign, this = (-1, this.this) if isinstance(this, exp.Neg) else (1, this)
    if not isinstance(this, exp.Literal) or not isinstance(unit, exp.Var):
        raise source.error(
            node,
            "an interval is a constant with one unit: INTERVAL '90' MINUTE; for columns write x * INTERVAL '1' MINUTE",
        )
    name = str(unit.this).lower()
    length = unit_seconds(name)
    if length is not None and _NUMBER.fullmatch(str(this.this).strip()):
        return sign * Fraction(str(this.this).strip()) * length
    if name.removesuffix("s") in ("month", "quarter", "year"):
        raise source.error(node, f"a {name.removesuffix('s')} has no fixed length; write days: INTERVAL '30' DAY")
    raise source.error(node, "an interval has a number and a unit of SECOND, MINUTE, HOUR, DAY or WEEK, or below")


def span(node: exp.Expression, source: StatementText) -> Value:
    """Return an INTERVAL as a duration in the coarsest unit that holds it."""
    seconds = seconds_of(node, source)
    for unit in UNITS:
        ticks = seconds * 10 ** (3 * UNITS.index(unit))
        if ticks.denominator == 1:
            return constant(int(ticks), pa.duration(unit))._replace(literal=seconds)
    raise source.error(node, "an interval is a whole number of nanoseconds")

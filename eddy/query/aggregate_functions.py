"""The table of aggregate functions: arguments, results, and the form in which a group holds the value.

A function of a form that exists needs a row here and a call in `eddy/agg.py`. A new form needs a rule wherever a
`match` ends with `assert_never`: mypy names these places, and a query with the function fails there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types import key_type_of
from stairs.plain_types import plain

Form = Literal["count", "distinct", "sum", "mean", "least", "greatest"]
"""The form of a function: how its value follows from the values of its argument that are not null.

"count"     the number of values; the only form that a function without an argument may have
"distinct"  the number of different values
"sum"       the exact sum of the values
"mean"      the exact sum of the values, divided by their number
"least"     the least value; of an ordered function, the value with the least `by`
"greatest"  the greatest value; of an ordered function, the value with the greatest `by`
"""


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate function.

    form       how the value follows from the values of the argument
    result     type of the argument -> type of the result; None = the argument does not fit
    arguments  columns that fit, in the words of an error message
    ordered    whether it has an argument `by`, the event time of a result if none is given
    """

    form: Form
    result: Callable[[pa.DataType], pa.DataType | None]
    arguments: str
    ordered: bool = False

    @property
    def nullable(self) -> bool:
        """Whether the value is null in a group without values that are not null; a count is 0 there."""
        return self.form not in ("count", "distinct")

    @property
    def summed(self) -> bool:
        """Whether the value follows from the exact sum."""
        return self.form in ("sum", "mean")


def is_value(kind: pa.DataType) -> bool:
    """Return whether values of a type can be compared: it can be a key."""
    try:
        key_type_of(plain(kind))
    except LookupError:
        return False
    return True


def _count(kind: pa.DataType) -> pa.DataType:
    return pa.int64()


def _sum(kind: pa.DataType) -> pa.DataType | None:
    inner = plain(kind)
    if pt.is_unsigned_integer(inner):
        return pa.uint64()
    if pt.is_integer(inner):
        return pa.int64()
    if pt.is_floating(inner):
        return pa.float64()
    if pt.is_decimal256(inner):
        return pa.decimal256(76, inner.scale)
    if pt.is_decimal(inner):
        return pa.decimal128(38, inner.scale)
    return inner if pt.is_duration(inner) else None


def _mean(kind: pa.DataType) -> pa.DataType | None:
    inner = plain(kind)
    return pa.float64() if pt.is_integer(inner) or pt.is_floating(inner) or pt.is_decimal(inner) else None


def _value(kind: pa.DataType) -> pa.DataType | None:
    return kind if is_value(kind) else None


def _number_of_values(kind: pa.DataType) -> pa.DataType | None:
    return pa.int64() if is_value(kind) else None


_VALUES = "columns that can be keys"
FUNCTIONS: dict[str, AggregateFunction] = {
    "count": AggregateFunction("count", _count, "any columns"),
    "sum": AggregateFunction("sum", _sum, "integers, decimals, floats and durations"),
    "avg": AggregateFunction("mean", _mean, "integers, decimals and floats"),
    "min": AggregateFunction("least", _value, _VALUES),
    "max": AggregateFunction("greatest", _value, _VALUES),
    "first": AggregateFunction("least", _value, _VALUES, ordered=True),
    "last": AggregateFunction("greatest", _value, _VALUES, ordered=True),
    "count_distinct": AggregateFunction("distinct", _number_of_values, _VALUES),
}
"""The aggregate functions by name."""

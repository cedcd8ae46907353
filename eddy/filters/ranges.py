"""Sets of values, read out of expressions that compare one column with constants.

    (pc.field("x") >= 5) & (pc.field("x") < 9)        x in [5, 9)
    pc.field("x").isin([3, 4, 8])                     x in [3, 4), [4, 5), [8, 9)
    pc.field("price") != 0.1                          below the code of 0.1, and from the next code on
    pc.starts_with(pc.field("symbol"), "ED")          from "ED" to before "EE"

A set is a list of ranges, closed at their start and open at their end. A column of booleans, integers, floats,
decimals, dates or timestamps becomes *codes*: int64 in the order of the values, so that every comparison with a
constant is a range. The end of a range of texts is a pair: (t, 0) lies before the text t, and (t, 1) after it. Null is
a value before all others.

Arrow gives the constants of an expression as text only, those of long lists only when it pickles them. So the module
reads an expression from its text, makes the expression again, and compares the result with the original. An expression
of any other form has no ranges, and Arrow evaluates the expression.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.filters.conditions import Predicate
from eddy.filters.faults import FAILURES
from stairs.plain_types import plain

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
EXACT = 1 << 53
"""Whole numbers up to this one are doubles without loss."""
INFINITE = 0x7FF0000000000000
"""The code of infinity. NaN has the code GREATEST: it is in no range of a comparison, but in the complement of one."""
DIGITS = 18
"""Decimals of up to this precision have codes."""
DEEPEST = 200
"""Greatest depth of an expression that is read."""
Codes = npt.NDArray[np.int64]
TextEnd: TypeAlias = tuple[bytes, int]
Ranges: TypeAlias = tuple[tuple[Any, Any], ...]
"""Ranges of a column, ascending, not empty, apart from each other; of codes, or of texts (`TextEnd`)."""
ALL: Ranges = ((LEAST, GREATEST + 1),)
"""All values but null."""
ALL_TEXTS: Ranges = (((b"", 0), (b"\xff", 0)),)
"""All texts but null; no byte of UTF-8 is 0xff."""
NULL: Ranges = ((LEAST - 1, LEAST),)
NULL_TEXT: Ranges = (((b"", -1), (b"", 0)),)
_LEAF = re.compile(r"\((.+?) (>=|<=|==|!=|>|<) (.+)\)", re.DOTALL)
_CALL = re.compile(r"(is_valid|is_null|invert|is_in|match_like|starts_with)\((.+)\)", re.DOTALL)
_NAN_IS_NO_NULL = ", {nan_is_null=false}"
_PATTERN = re.compile(r"(.+), \{pattern=\"(.*)\", ignore_case=false\}", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], pc.Expression]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_TURNED = {">=": "<=", "<=": ">=", "==": "==", "!=": "!=", ">": "<", "<": ">"}


class ColumnSet(NamedTuple):
    """A condition on one column: the value is in one of some ranges."""

    column: str
    ranges: Ranges


def within(low: int, high: int) -> Ranges:
    """Return the range of the codes from low to high, both included. The result is empty if low is above high."""
    low, high = max(low, LEAST), min(high, GREATEST)
    return ((low, high + 1),) if low <= high else ()


def both(ranges: Ranges, other: Ranges) -> Ranges:
    """Return the intersection of two sets. O(ranges)."""
    common, i, j = [], 0, 0
    while i < len(ranges) and j < len(other):
        low, high = max(ranges[i][0], other[j][0]), min(ranges[i][1], other[j][1])
        if low < high:
            common.append((low, high))
        if ranges[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def either(*sets: Ranges) -> Ranges:
    """Return the union of sets. O(ranges log ranges)."""
    union: list[tuple[Any, Any]] = []
    for low, high in sorted(interval for ranges in sets for interval in ranges):
        if union and low <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], high)
        else:
            union.append((low, high))
    return tuple(union)


def outside(ranges: Ranges, everything: Ranges) -> Ranges:
    """Return the complement of a set. O(ranges)."""
    ((least, greatest),) = everything
    ends = [least, *(end for interval in ranges for end in interval), greatest]
    return tuple((low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low < high)


def ranges_of(condition: Predicate, schema: pa.Schema) -> list[ColumnSet] | None:
    """Return the sets, of different columns, that hold together exactly where a condition does; None for a condition of
    another form.

    >>> ranges_of(Predicate(pc.field("a") > 3), pa.schema([("a", pa.int8())]))
    [ColumnSet(column='a', ranges=((4, 9223372036854775808),))]
    """
    expression = condition.function
    if not isinstance(expression, pc.Expression):
        return None
    text = str(expression)
    for literal in (_natural, _of_column, _double):
        made = _Reader(schema, literal, expression).read(text, DEEPEST)
        if made is not None and made.expression.equals(expression):
            return [ColumnSet(column, ranges) for column, ranges in made.sets.items()]
    return None


def without_null(ranges: Ranges) -> tuple[bool, Ranges]:
    """Return whether null is in a set, and the set without it."""
    if not ranges or ranges[0][0] not in (NULL[0][0], NULL_TEXT[0][0]):
        return False, ranges
    (low, end), *others = ranges
    ((_, least),) = NULL_TEXT if isinstance(low, tuple) else NULL
    return True, (*(((least, end),) if least < end else ()), *others)


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a type are texts."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def codes(column: pa.Array) -> tuple[Codes, npt.NDArray[np.bool_] | None]:
    """Return the codes of a column, int64[rows], and whether each row has a code; None if all rows have codes."""
    valid = None if not column.null_count else np.asarray(column.is_valid())
    kind = column.type
    if pt.is_floating(kind):
        values = np.asarray(column.fill_null(0.0)).astype(np.float64) + 0.0  # -0.0 is equal to 0.0
        bits = values.view(np.int64)
        coded = np.where(bits < 0, bits ^ GREATEST, bits)
        coded[np.isnan(values)] = GREATEST
        return coded, valid
    if pt.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :: 2][: len(column)]
        return (words if valid is None else np.where(valid, words, 0)), valid
    if pt.is_boolean(kind):
        return np.asarray(column.fill_null(False)).astype(np.int64), valid
    if pt.is_uint64(kind):
        # From the least code on.
        return (np.asarray(column.fill_null(0)) ^ np.uint64(1 << 63)).view(np.int64), valid
    if not pt.is_integer(kind):
        column = column.view(pa.int32() if pt.is_date32(kind) else pa.int64())
    return np.asarray(column.fill_null(0)).astype(np.int64, copy=False), valid


# Reading


class _Read(NamedTuple):
    """An expression that was made again.

    sets     by column, the sets that hold together exactly where the expression is true
    at_null  what an expression on one column is where the column is null: true, false or null (None)
    """

    expression: pc.Expression
    sets: dict[str, Ranges]
    at_null: bool | None = None


class _Reader:
    """Reads an expression from its text.

    literal   makes a constant of a text
    """

    def __init__(self, schema: pa.Schema, literal: _Literal, expression: pc.Expression) -> None:
        self._schema, self._literal = schema, literal
        self._lists = _lists_of(expression)
        """The lists of the calls of `is_in`, in the order of their text."""

    def read(self, text: str, deepest: int) -> _Read | None:
        """Return the expression with this text; None if the expression has no ranges."""
        if not deepest:
            return None
        for left, word, right in _halves(text):
            left_read = self.read(left, deepest - 1)
            other = None if left_read is None else self.read(right, deepest - 1)
            if left_read is not None and other is not None:
                return _joined(left_read, word, other)
        call = _CALL.fullmatch(text)
        if call is not None:
            return self._read_call(call[1], call[2], deepest)
        match = _LEAF.fullmatch(text)
        return self._read_column(text) if match is None else self._read_comparison(*match.groups())

    def _kind(self, name: str) -> pa.DataType | None:
        """Return the type of the values of a column, which are decoded first; None for no single column."""
        return plain(self._schema.field(name).type) if self._schema.names.count(name) == 1 else None

    def _read_column(self, name: str) -> _Read | None:
        kind = self._kind(name)
        return _Read(pc.field(name), {name: within(1, 1)}) if kind is not None and pt.is_boolean(kind) else None

    def _read_comparison(self, name: str, op: str, constant: str) -> _Read | None:
        turned = name not in self._schema.names
        if turned:
            name, constant = constant, name
        kind = self._kind(name)
        value = None if kind is None else self._literal(constant, kind)
        if kind is None or value is None:
            return None
        ranges = _compared(kind, _TURNED[op] if turned else op, value)
        if ranges is None:
            return None
        sides = (pc.scalar(value), pc.field(name)) if turned else (pc.field(name), pc.scalar(value))
        return _Read(_COMPARE[op](*sides), {name: ranges})

    def _read_call(self, function: str, given: str, deepest: int) -> _Read | None:
        if function == "invert":
            inner = self.read(given, deepest - 1)
            if inner is None or len(inner.sets) != 1:
                return None
            ((name, ranges),) = inner.sets.items()
            everything, null = _values(self._kind(name))
            rest = outside(without_null(ranges)[1], everything)
            if inner.at_null is False:
                rest = either(null, rest)
            return _Read(~inner.expression, {name: rest}, None if inner.at_null is None else not inner.at_null)
        if function in ("is_valid", "is_null"):
            name = given.removesuffix(_NAN_IS_NO_NULL)
            kind = self._kind(name)
            return None if kind is None else _present(name, kind, function == "is_valid")
        if function == "is_in":
            return self._read_list(given.partition(", {value_set=")[0])
        match = _PATTERN.fullmatch(given)
        kind = None if match is None else self._kind(match[1])
        if match is None or kind is None or not is_text(kind):
            return None
        name, pattern = match.groups()
        if function == "starts_with":
            return _Read(pc.starts_with(pc.field(name), pattern), {name: _beginning(pattern)})
        plain = pattern.removesuffix("%")
        if any(sign in plain for sign in "%_\\"):
            return None
        return _Read(
            pc.match_like(pc.field(name), pattern), {name: _text(plain) if plain == pattern else _beginning(plain)}
        )

    def _read_list(self, name: str) -> _Read | None:
        kind = self._kind(name)
        if kind is None or not self._lists:
            return None
        values = self._lists.pop(0)
        # Arrow finds -0.0 and NaN in a list in other ways than it compares them.
        if pt.is_floating(kind):
            return None
        with_null = bool(values.null_count)
        sets = [_listed(kind, value) for value in values.drop_null()]
        if any(single is None for single in sets):
            return None
        if with_null:
            sets.append(_values(kind)[1])
        ranges = either(*(single for single in sets if single is not None))
        return _Read(pc.field(name).isin(values), {name: ranges}, with_null)


def _joined(left: _Read, word: str, other: _Read) -> _Read | None:
    """Return the conjunction or the disjunction of two expressions; the latter if both read one column, and the same
    one."""
    decides = word == "or"  # either side alone, as false does for "and"
    at_nulls = (left.at_null, other.at_null)
    at_null = decides if decides in at_nulls else None if None in at_nulls else not decides
    if word == "and":
        sets = dict(left.sets)
        for name, ranges in other.sets.items():
            sets[name] = both(sets[name], ranges) if name in sets else ranges
        return _Read(left.expression & other.expression, sets, at_null)
    if len(left.sets) != 1 or left.sets.keys() != other.sets.keys():
        return None
    ((name, ranges),) = left.sets.items()
    return _Read(left.expression | other.expression, {name: either(ranges, other.sets[name])}, at_null)


def _halves(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the sides of "(left and right)" and of "(left or right)", if the text may have this form."""
    if not text.startswith("("):
        return
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 1 and letter == " ":
            for word in ("and", "or"):
                if text.startswith(f" {word} ", at):
                    yield text[1:at], word, text[at + len(word) + 2 : -1]


def _lists_of(expression: pc.Expression) -> list[pa.Array]:
    """Return the lists of values in an expression, in the order of its calls; none if Arrow pickles in another way."""
    if "is_in(" not in str(expression):
        return []
    try:
        (pickled,) = expression.__reduce__()[1]
        table = pa.ipc.open_file(pickled).read_all()
    except FAILURES:
        return []
    options = [column.combine_chunks() for column in table.columns if pt.is_struct(column.type)]
    return [option.field("value_set").flatten() for option in options if option.type.get_field_index("value_set") >= 0]


_Literal = Callable[[str, pa.DataType], pa.Scalar | None]


def _natural(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant as Arrow makes the constant of a Python value; `kind` is the type of the column."""
    try:
        if pt.is_timestamp(kind):
            return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(pa.timestamp("us", _zone(text)))
        if pt.is_date32(kind):
            return pa.scalar(text).cast(kind)
        if pt.is_decimal128(kind):
            return pa.scalar(Decimal(text))
        value = json.loads(text)
        return pa.scalar(value) if type(value) in (bool, int, float, str) else None
    except (ValueError, ArithmeticError, *FAILURES):
        return None


def _double(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant as a double, for a column of any floats."""
    try:
        return pa.scalar(float(text)) if pt.is_floating(kind) else None
    except ValueError:
        return None


def _of_column(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant that has the type of the column."""
    try:
        value = pa.scalar(json.loads(text) if text.startswith('"') else text.removesuffix("Z"))
        if pt.is_timestamp(kind) and kind.tz is not None:
            return value.cast(pa.timestamp(kind.unit)).cast(kind)
        return value.cast(kind)
    except (ValueError, *FAILURES):
        return None


def _zone(text: str) -> str | None:
    return "UTC" if text.endswith("Z") else None


# The values of a comparison


def _values(kind: pa.DataType | None) -> tuple[Ranges, Ranges]:
    """Return all values of a column but null, and null."""
    return (ALL_TEXTS, NULL_TEXT) if kind is not None and is_text(kind) else (ALL, NULL)


def _present(name: str, kind: pa.DataType, valid: bool) -> _Read | None:
    """Return the expression that is true where a column has a value, or else where it has none; None without codes."""
    if not (is_text(kind) or _has_codes(kind)):
        return None
    values, null = _values(kind)
    expression = pc.field(name).is_valid() if valid else pc.field(name).is_null()
    return _Read(expression, {name: values if valid else null}, not valid)


def _listed(kind: pa.DataType, value: pa.Scalar) -> Ranges | None:
    """Return the values of a column that are equal to a value of a list; None if they have no codes."""
    if pt.is_uint64(kind) and pt.is_integer(value.type) and value.as_py() >= 0:
        value = value.cast(kind)  # Arrow casts the list
    return _compared(kind, "==", value)


def _has_codes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_boolean(kind)
        or pt.is_float32(kind)
        or pt.is_float64(kind)
        or pt.is_integer(kind)
        or (pt.is_decimal128(kind) and kind.precision <= DIGITS)
        or pt.is_date32(kind)
        or pt.is_timestamp(kind)
    )


def _compared(kind: pa.DataType, op: str, value: pa.Scalar) -> Ranges | None:
    """Return the values of a column for which a comparison with a constant holds; None if they have no codes."""
    if is_text(kind):
        if not is_text(value.type):
            return None
        text = value.as_py().encode()
        return _ordered(op, (text, 0), (text, 1), *ALL_TEXTS[0])
    code = _code(value, kind)
    if code is None:
        return None
    if op == "!=":
        return outside(within(code, code), ALL)
    greatest = INFINITE if pt.is_floating(kind) else GREATEST
    return _ordered(op, code, code + 1, LEAST, greatest + 1)


def _ordered(op: str, at: Any, after: Any, least: Any, end: Any) -> Ranges:
    """Return the ranges of a comparison with a value, which begins at `at` and ends before `after`."""
    match op:
        case "!=":
            return outside(((at, after),), ((least, end),))
        case "==":
            low, high = at, after
        case "<" | "<=":
            low, high = least, at if op == "<" else after
        case _:
            low, high = at if op == ">=" else after, end
    return ((low, high),) if low < high else ()


def _text(text: str) -> Ranges:
    return (((text.encode(), 0), (text.encode(), 1)),)


def _beginning(prefix: str) -> Ranges:
    """Return the texts with a prefix."""
    begun = prefix.encode()
    return (((begun, 0), (begun[:-1] + bytes([begun[-1] + 1]), 0)),) if begun else ALL_TEXTS


def _code(value: pa.Scalar, kind: pa.DataType) -> int | None:
    """Return the code of a constant in a column; None where Arrow might compare the constant in another way."""
    if not _has_codes(kind):
        return None
    given = value.as_py()
    if pt.is_floating(kind):
        if type(given) not in (int, float) or given != given or (type(given) is int and abs(given) > EXACT):
            return None
        return int(codes(pa.array([given], pa.float64()))[0][0])
    if pt.is_boolean(kind):
        return int(given) if type(given) is bool else None
    if pt.is_decimal128(kind):
        value_type = value.type
        # Of other types, Arrow may find no common one.
        fits = (
            pt.is_decimal128(value_type)
            and value_type.scale <= kind.scale
            and value_type.precision - value_type.scale <= kind.precision - kind.scale
        )
        return int(given.scaleb(kind.scale)) if fits else None
    if pt.is_uint64(kind):
        # Arrow compares it with a signed number only if all values of the column are signed numbers as well.
        return given + LEAST if pt.is_uint64(value.type) else None
    if pt.is_integer(kind):
        return given if pt.is_integer(value.type) else None
    try:
        return int(value.cast(kind).value)
    except FAILURES:
        return None


def as_sets(sets: Sequence[ColumnSet]) -> dict[str, Ranges]:
    """Return the sets of several conditions that all hold, by column."""
    by_column: dict[str, Ranges] = {}
    for column, ranges in sets:
        by_column[column] = both(by_column[column], ranges) if column in by_column else ranges
    return by_column

"""Functions of texts. Patterns, widths and other options of Arrow's kernels are constants."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.calls import Call, Operands, Parts, constant_text, whole_number
from eddy.expressions.patterns import position, regular
from eddy.expressions.values import Value


def _text(make: Callable[[pc.Expression], pc.Expression], kind: pa.DataType | None = None) -> Call:
    """A function of one text; its result is a text unless `kind` says otherwise."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value = operands.text(node, parts[0])
        arrow = make(value.arrow)
        return Value(arrow, value.kind) if kind is None else Value(arrow.cast(kind), kind)

    return Call(1, 1, made)


def _part(make: Callable[[pc.Expression, str], pc.Expression], kind: pa.DataType) -> Call:
    """A function of a text and a constant part of it."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value = operands.text(node, parts[0])
        return Value(make(value.arrow, constant_text(operands, parts[1], "the part to find")), kind)

    return Call(2, 2, made)


def _substring(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value = operands.text(node, parts[0])
    start = whole_number(operands, parts[1], "the start of SUBSTRING")
    length = whole_number(operands, parts[2], "the length of SUBSTRING") if len(parts) > 2 else None
    if start == 0:
        raise operands.error(parts[1], "characters are counted from 1; a negative start counts from the end")
    if length is not None and length < 0:
        raise operands.error(parts[2], "the length of SUBSTRING must not be negative")
    return Value(_slice(value.arrow, start, length), value.kind)


def _slice(text: pc.Expression, start: int, length: int | None) -> pc.Expression:
    if start > 0:
        stop = None if length is None else start - 1 + length
        return pc.utf8_slice_codeunits(text, start=start - 1, stop=stop)
    tail = pc.utf8_slice_codeunits(text, start=start, stop=None)
    return tail if length is None else pc.utf8_slice_codeunits(tail, start=0, stop=length)


def _left(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value, count = operands.text(node, parts[0]), whole_number(operands, parts[1], "the number of characters")
    if count < 0:
        raise operands.error(parts[1], "the number of characters must not be negative")
    return Value(pc.utf8_slice_codeunits(value.arrow, start=0, stop=count), value.kind)


def _right(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value, count = operands.text(node, parts[0]), whole_number(operands, parts[1], "the number of characters")
    if count < 0:
        raise operands.error(parts[1], "the number of characters must not be negative")
    if count == 0:
        return Value(pc.utf8_slice_codeunits(value.arrow, start=0, stop=0), value.kind)
    return Value(pc.utf8_slice_codeunits(value.arrow, start=-count, stop=None), value.kind)


def _trimmed(make: Callable[..., pc.Expression]) -> Call:
    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value = operands.text(node, parts[0])
        characters = constant_text(operands, parts[1], "the characters to trim") if len(parts) > 1 else " "
        return Value(make(value.arrow, characters=characters), value.kind)

    return Call(1, 2, made)


def _padded(make: Callable[..., pc.Expression]) -> Call:
    """LPAD and RPAD, which cut a text that is too long, as in SQL; Arrow's do not."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value, width = operands.text(node, parts[0]), whole_number(operands, parts[1], "the width")
        padding = constant_text(operands, parts[2], "the padding") if len(parts) > 2 else " "
        if len(padding) != 1:
            raise operands.error(parts[2], "the padding must be one character")
        if width < 0:
            raise operands.error(parts[1], "the width must not be negative")
        cut = pc.utf8_slice_codeunits(value.arrow, start=0, stop=width)
        return Value(make(cut, width=width, padding=padding), value.kind)

    return Call(2, 3, made)


def _replace(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value = operands.text(node, parts[0])
    old, new = (constant_text(operands, part, "REPLACE: the text") for part in parts[1:])
    if not old:
        return value
    return Value(pc.replace_substring(value.arrow, old, new), value.kind)


def _repeat(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value, count = operands.text(node, parts[0]), whole_number(operands, parts[1], "the number of times")
    if count < 0:
        raise operands.error(parts[1], "the number of times must not be negative")
    return Value(pc.binary_repeat(value.arrow, pc.scalar(count)), value.kind)


def _concat(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    return operands.concatenated(node, list(parts))


def _regexp_like(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    return operands.value(exp.RegexpLike(this=parts[0].copy(), expression=parts[1].copy()))


def _regexp_replace(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value = operands.text(node, parts[0])
    pattern, new = (constant_text(operands, part, "REGEXP_REPLACE: the pattern or text") for part in parts[1:])
    fault = regular(pattern)
    if fault is not None:
        raise operands.error(parts[1], f"Arrow does not accept the regular expression: {fault}")
    return Value(pc.replace_substring_regex(value.arrow, pattern, new), value.kind)


def _regexp_extract(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    """The text of a group, or "" without a match, as in Spark."""
    value = operands.text(node, parts[0])
    pattern = constant_text(operands, parts[1], "REGEXP_EXTRACT: the pattern")
    group = whole_number(operands, parts[2], "the number of the group") if len(parts) > 2 else 1
    fault = regular(pattern)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        fault, groups = fault or str(error), 0
    if fault is not None:
        raise operands.error(parts[1], f"this regular expression is not accepted: {fault}")
    if not 0 <= group <= groups:
        raise operands.error(node, f"the pattern has {groups} groups, and group {group} is asked for")
    # Arrow extracts named groups only; this replaces the whole text by the group.
    whole = f"(?s)^.*?(?-s:{pattern}).*$" if group else f"(?s)^.*?((?-s:{pattern})).*$"
    extracted = pc.replace_substring_regex(value.arrow, whole, f"\\{group or 1}", max_replacements=1)
    empty = pc.scalar(pa.scalar("", value.kind))
    return Value(pc.if_else(pc.match_substring_regex(value.arrow, pattern), extracted, empty), value.kind)


_LENGTH = _text(pc.utf8_length, pa.int64())
_STARTS = _part(lambda text, part: pc.starts_with(text, part), pa.bool_())
_ENDS = _part(lambda text, part: pc.ends_with(text, part), pa.bool_())
_STRPOS = _part(position, pa.int64())
_SUBSTRING = Call(2, 3, _substring)

TEXT_FUNCTIONS = {
    "UPPER": _text(pc.utf8_upper),
    "LOWER": _text(pc.utf8_lower),
    "REVERSE": _text(pc.utf8_reverse),
    "LENGTH": _LENGTH,
    "CHAR_LENGTH": _LENGTH,
    "CHARACTER_LENGTH": _LENGTH,
    "SUBSTRING": _SUBSTRING,
    "SUBSTR": _SUBSTRING,
    "LEFT": Call(2, 2, _left),
    "RIGHT": Call(2, 2, _right),
    "TRIM": _trimmed(pc.utf8_trim),
    "BTRIM": _trimmed(pc.utf8_trim),
    "LTRIM": _trimmed(pc.utf8_ltrim),
    "RTRIM": _trimmed(pc.utf8_rtrim),
    "LPAD": _padded(pc.utf8_lpad),
    "RPAD": _padded(pc.utf8_rpad),
    "REPLACE": Call(3, 3, _replace),
    "REPEAT": Call(2, 2, _repeat),
    "CONCAT": Call(1, None, _concat),
    "STARTS_WITH": _STARTS,
    "STARTSWITH": _STARTS,
    "ENDS_WITH": _ENDS,
    "ENDSWITH": _ENDS,
    "CONTAINS": _part(lambda text, part: pc.match_substring(text, part), pa.bool_()),
    "STRPOS": _STRPOS,
    "INSTR": _STRPOS,
    "REGEXP_LIKE": Call(2, 2, _regexp_like),
    "REGEXP_REPLACE": Call(3, 3, _regexp_replace),
    "REGEXP_EXTRACT": Call(2, 3, _regexp_extract),
}
"""The functions by name."""

"""The key of a table whose rows a query finds: columns in which each value equals itself, null and NaN included.

A column of the key that may be null, or NaN, has two hidden columns: its value, with another one in place of null and
NaN, and what stands there. A key without columns has one hidden column with one value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from stairs.plain_types import Column, plain, to_plain

HIDDEN = "\0"
"""The first character of the names of hidden columns."""
_ONLY = f"{HIDDEN}only row"


def hidden(name: str) -> bool:
    """Return whether a column is hidden: `select` leaves it out unless it is named."""
    return name.startswith(HIDDEN)


def _parts(name: str) -> tuple[str, str]:
    return f"{HIDDEN}value of {name}", f"{HIDDEN}kind of {name}"


def _whole(field: pa.Field) -> bool:
    """Return whether each value of a column equals itself."""
    return not field.nullable and not pt.is_floating(plain(field.type))


def with_key(schema: pa.Schema, key: Sequence[str]) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a table with hidden ones, and the columns of its key.

    >>> with_key(pa.schema([pa.field("a", pa.int8(), False), ("b", pa.int8())]), ["a"])[1]
    ('a',)
    """
    names: list[str] = []
    for name in key:
        field = schema.field(name)
        if _whole(field):
            names.append(name)
            continue
        for part, kind in zip(_parts(name), (plain(field.type), pa.int8()), strict=True):
            schema = schema.append(pa.field(part, kind, False))
            names.append(part)
    if not names:
        schema, names = schema.append(pa.field(_ONLY, pa.int8(), False)), [_ONLY]
    return schema, tuple(names)


def with_key_columns(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows with the hidden columns of a key, whose names `with_key` has returned."""
    for name in key:
        if not hidden(name) or name in rows.schema.names:
            continue
        if name == _ONLY:
            rows = rows.append_column(name, pa.array(np.zeros(len(rows), np.int8)))
            continue
        column = next(candidate for candidate in rows.schema.names if name in _parts(candidate))
        for part, values in zip(_parts(column), _divided(rows.column(column)), strict=True):
            rows = rows.append_column(part, values)
    return rows


def _divided(column: pa.ChunkedArray) -> tuple[Column, Column]:
    """Return the values of a column without nulls and NaN, and 0 for values, 1 for null, 2 for NaN."""
    values = pa.chunked_array([to_plain(chunk) for chunk in column.chunks], plain(column.type))
    kinds = values.is_null().cast(pa.int8())
    if pt.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), False)
        kinds = pc.add(kinds, pc.multiply(nan.cast(pa.int8()), pa.scalar(2, pa.int8())))
        values = pc.if_else(nan, pa.scalar(0, values.type), values)
    return (values.fill_null(_some(values.type)) if values.null_count else values), kinds


def _some(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a plain type."""
    if pt.is_boolean(kind):
        return pa.scalar(False)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return pa.scalar("", kind)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return pa.scalar(b"", kind)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(64))])[0]

"""Plain types: the representation of columns whose type is an encoding, a view or an extension.

Arrow's kernels support few of these types. Arrow cannot take from views and run-end-encoded arrays; concatenated
dictionaries keep every value ever seen, and concatenated list views keep lists without references. So a column is
converted to its plain type on input, and to the type that the user declared on output:

    dictionary<int8, string>           string
    run_end_encoded<int32, int64>      int64
    string_view, binary_view           large_string, large_binary    (a view may refer to more than 2 GiB)
    list_view<T>, large_list_view<T>   large_list<plain T>
    an extension type                  its storage type
    list<T>, struct<T>, map<T>, …      the same of plain T
    anything else                      itself

One array of a type with 32-bit offsets holds 2 GiB of text, and one dictionary with 8-bit indices holds 128 values. A
longer column becomes several arrays, a `pyarrow.ChunkedArray`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

TOO_LONG = (pa.ArrowInvalid, pa.ArrowCapacityError)
"""Exceptions that Arrow raises when an array would exceed the range of its offsets or indices."""

MOST_BYTES = (1 << 31) - 1
"""Upper bound on the bytes of an array whose offsets may have 32 bits."""

Rows = npt.NDArray[np.int64]
Column: TypeAlias = pa.Array | pa.ChunkedArray
Taken = TypeVar("Taken", pa.RecordBatch, pa.Array, pa.ChunkedArray)


def _is_list_view(kind: pa.DataType) -> bool:
    return pt.is_list_view(kind) or pt.is_large_list_view(kind)


def _is_encoded(kind: pa.DataType) -> bool:
    return pt.is_dictionary(kind) or pt.is_run_end_encoded(kind)


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the plain type of a type.

    >>> plain(pa.dictionary(pa.int8(), pa.string_view()))
    DataType(large_string)
    """
    if _is_encoded(kind):
        return plain(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    if pt.is_string_view(kind):
        return pa.large_string()
    if pt.is_binary_view(kind):
        return pa.large_binary()
    if _is_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pt.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if pt.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pt.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pt.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if pt.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the same names and the plain types."""
    return pa.schema([(field.name, plain(field.type)) for field in schema])


def unfit(kind: pa.DataType) -> str | None:
    """Return why columns of a type cannot be kept, None when they can."""
    if pt.is_union(kind):
        if kind.mode == "dense":
            return "arrays of dense unions keep values that no row refers to; use a sparse union, or a struct"
        parts = [kind.field(i).type for i in range(kind.num_fields)]
        encoded = [part for part in parts if plain(part) != part]
        if encoded:
            return f"a union of {encoded[0]} cannot be converted; use a union of {plain(encoded[0])}"
    elif _is_encoded(kind):
        parts = [kind.value_type]
    elif isinstance(kind, pa.BaseExtensionType):
        parts = [kind.storage_type]
    elif pt.is_nested(kind):
        parts = [kind.field(i).type for i in range(kind.num_fields)]
    else:
        parts = []
    return next((fault for fault in map(unfit, parts) if fault is not None), None)


def no_rows(kind: pa.DataType) -> pa.Array:
    """Return an array of any type without rows; `pa.array([], kind)` does not support every type."""
    return from_plain(pa.nulls(0, plain(kind)), kind)


# Input


def to_plain(column: pa.Array) -> pa.Array:
    """Return a column in its plain type; the column itself if it is plain. Raises `TOO_LONG`."""
    kind = column.type
    if pt.is_dictionary(kind):
        return picked(to_plain(column.dictionary), column.indices)
    if pt.is_run_end_encoded(kind):
        return _decoded(column)
    if isinstance(kind, pa.BaseExtensionType):
        return to_plain(column.storage)
    wanted = plain(kind)
    if wanted == kind:
        return column
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        return column.cast(wanted)
    return _rebuilt(column, wanted, lambda child, _: to_plain(child))


def _decoded(column: pa.Array) -> pa.Array:
    if not len(column):
        return pa.nulls(0, plain(column.type))
    rows = np.arange(column.offset, column.offset + len(column))
    runs = np.searchsorted(np.asarray(column.run_ends), rows, "right")
    first, last = int(runs[0]), int(runs[-1])
    return picked(to_plain(column.values.slice(first, last + 1 - first)), pa.array(runs - first))


# Output


def declared(column: Column, kind: pa.DataType) -> Column:
    """Return a plain column in the type that the user declared; in several arrays if it does not fit in one."""
    if column.type == kind:
        return column
    chunks = [part for chunk in getattr(column, "chunks", [column]) for part in _declared_parts(chunk, kind)]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, kind)


def _declared_parts(column: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    try:
        return [from_plain(column, kind)]
    except TOO_LONG:
        if len(column) < 2:
            raise
    half = len(column) // 2
    return _declared_parts(column.slice(0, half), kind) + _declared_parts(column.slice(half), kind)


def from_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a plain column in type `kind`, whose plain type is `column.type`. Raises `TOO_LONG`."""
    if column.type == kind:
        return column
    if pt.is_dictionary(kind):
        indices, values = _distinct(column)
        values = from_plain(values, kind.value_type)
        return pa.DictionaryArray.from_arrays(indices.cast(kind.index_type), values, ordered=kind.ordered)
    if pt.is_run_end_encoded(kind):
        ends, values = _runs(column)
        values = from_plain(values, kind.value_type)
        return pa.RunEndEncodedArray.from_arrays(ends.cast(kind.run_end_type), values, type=kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, from_plain(column, kind.storage_type))
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        return column.cast(kind)
    return _rebuilt(column, kind, from_plain)


def _as_bits(column: pa.Array) -> pa.Array:
    """Return floats as integers with the same bits, so that -0.0 differs from 0.0 and NaN equals itself."""
    if not pt.is_floating(column.type):
        return column
    return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width])


def _distinct(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return (index of each row or null, values); the values are distinct if Arrow can compare them."""
    try:
        encoded = _as_bits(column).dictionary_encode()
    except pa.ArrowNotImplementedError:
        return pa.array(np.arange(len(column)), mask=np.asarray(column.is_null().cast(pa.uint8())) != 0), column
    return encoded.indices, encoded.dictionary.view(column.type)


def _runs(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return (end of each run, its value); runs have one row each if Arrow cannot compare the values."""
    try:
        encoded = pc.run_end_encode(_as_bits(column), run_end_type=pa.int64())
    except pa.ArrowNotImplementedError:
        return pa.array(np.arange(1, len(column) + 1)), column
    return encoded.run_ends, encoded.values.view(column.type)


# Input and output


def _valid_bits(column: pa.Array) -> pa.Buffer | None:
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(np.asarray(column.is_valid().cast(pa.uint8())), bitorder="little"))


def _rebuilt(column: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return a nested column in another nested type of the same shape, with converted children."""
    n, bits = len(column), _valid_bits(column)
    if pt.is_struct(kind):
        children = [convert(column.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, n, [bits], children=children)
    if pt.is_fixed_size_list(kind):
        size = kind.list_size
        children = [convert(column.values.slice(column.offset * size, n * size), kind.value_type)]
        return pa.Array.from_buffers(kind, n, [bits], children=children)
    lengths = np.asarray(pc.list_value_length(_as_list(column)).fill_null(0)).astype(np.int64)
    values = _as_list(column).flatten()
    if pt.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        child = _rebuilt(values, entries, convert)
    else:
        child = convert(values, kind.value_type)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    wide = pt.is_large_list(kind) or pt.is_large_list_view(kind)
    if not wide and ends[-1] > MOST_BYTES:
        raise pa.ArrowInvalid(f"{ends[-1]} values are too many for the offsets of one {kind}")
    number = np.int64 if wide else np.int32
    if _is_list_view(kind):
        buffers = [bits, pa.py_buffer(ends[:-1].astype(number)), pa.py_buffer(lengths.astype(number))]
    else:
        buffers = [bits, pa.py_buffer(ends.astype(number))]
    return pa.Array.from_buffers(kind, n, buffers, children=[child])


def _as_list(column: pa.Array) -> pa.Array:
    """Return a map as a list of its entries, and any other list unchanged."""
    kind = column.type
    if not pt.is_map(kind):
        return column
    entries = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), False)
    return column.cast(pa.list_(entries))


# Rows and arrays


def picked(column: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return rows of a plain column by number, null for a null. Raises `TOO_LONG` if they do not fit in one array."""
    if pt.is_nested(column.type):
        # Arrow's take checks the bytes of strings, but not the values of lists, whose offsets would wrap around.
        rows = np.asarray(numbers.fill_null(0).cast(pa.int64()) if numbers.null_count else numbers.cast(pa.int64()))
        if len(column) and _longest(column, rows, rows + 1) > MOST_BYTES:
            raise pa.ArrowInvalid(f"{len(rows)} rows have too many values for the offsets of one {column.type}")
    return column.take(numbers)


def _longest(column: pa.Array, starts: Rows, ends: Rows) -> int:
    """Return the most values that a nested list has, over rows starts[k] .. ends[k] - 1 of a column for all k."""
    kind = column.type
    if pt.is_struct(kind):
        return max((_longest(column.field(i), starts, ends) for i in range(kind.num_fields)), default=0)
    if pt.is_fixed_size_list(kind):
        starts, ends = ((bounds + column.offset) * kind.list_size for bounds in (starts, ends))
        return _longest(column.values, starts, ends)
    if pt.is_list(kind) or pt.is_map(kind):
        offsets = np.asarray(column.offsets).astype(np.int64, copy=False)
        starts, ends = offsets[starts], offsets[ends]
        return max(int((ends - starts).sum()), _longest(column.values, starts, ends))
    return 0


def taken(rows: Taken, numbers: Rows) -> Taken:
    """Return rows of a batch or column of any type by number; ascending numbers for a chunked array."""
    if isinstance(rows, pa.ChunkedArray):
        if not rows.num_chunks:
            return rows
        lengths = np.array([len(chunk) for chunk in rows.chunks])
        ends = np.cumsum(lengths)
        parts = np.split(numbers, np.searchsorted(numbers, ends[:-1]))
        before = ends - lengths
        chunks = [taken(chunk, part - n) for chunk, part, n in zip(rows.chunks, parts, before, strict=True)]
        return pa.chunked_array(chunks, rows.type)
    try:
        return rows.take(pa.array(numbers))
    except pa.ArrowNotImplementedError:
        if isinstance(rows, pa.RecordBatch):
            return pa.RecordBatch.from_arrays([taken(column, numbers) for column in rows.columns], schema=rows.schema)
        return from_plain(picked(to_plain(rows), pa.array(numbers)), rows.type)


def require_room(n_bytes: int, rows: int = 2) -> None:
    """Raise `TOO_LONG` if `n_bytes` are too many for one array; a single row is never split."""
    if n_bytes > MOST_BYTES and rows > 1:
        raise pa.ArrowInvalid(f"{n_bytes:,} bytes are more than the limit of {MOST_BYTES:,} for one array")


def merged(parts: Sequence[pa.Array]) -> pa.Array:
    """Return a copy of arrays of one type as one array. Raises `TOO_LONG` if they do not fit."""
    try:
        # With the empty slice Arrow copies even a single array.
        return pa.concat_arrays([*parts, parts[0].slice(0, 0)])
    except (pa.ArrowNotImplementedError, *TOO_LONG):
        kind = parts[0].type
        if plain(kind) == kind:
            raise
        # Different dictionaries may have nested values, or too many unused values.
        return from_plain(pa.concat_arrays([to_plain(part) for part in parts]), kind)


def packed(parts: Sequence[pa.Array]) -> Column:
    """Return a copy of arrays of one type as one array, or as several if they do not fit in one."""
    pieces = [merged(parts[:1])]
    for part in parts[1:]:
        try:
            require_room(pieces[-1].nbytes + part.nbytes)
            pieces[-1] = merged([pieces[-1], part])
        except TOO_LONG:
            pieces.append(merged([part]))
    return pieces[0] if len(pieces) == 1 else pa.chunked_array(pieces)

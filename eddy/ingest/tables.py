"""Converts the object that a user pushes for a stream to a record batch with the declared columns.

Such an object is an Arrow batch or table; an object with the PyCapsule interface of Arrow, such as a DataFrame of
pandas or Polars, a relation of DuckDB or a record batch reader; a sequence of dicts; or a dict of columns. A column of
another width or unit is cast if that changes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddy.ingest.soundness import Loose, loose_columns, require_sound, require_sound_arrays
from eddy.ingest.values import array_of, cast_exactly
from stairs.errors import InputError
from stairs.plain_types import TOO_LONG, from_plain, merged, no_rows, plain, to_plain

Read = TypeVar("Read")


def checked_rows(rows: object, schema: pa.Schema, place: str, loose: Loose | None = None) -> pa.RecordBatch:
    """Return the columns that a stream declares, in its order and with its types.

    Raises InputError for rows that cannot be read, and for a column that is missing, occurs twice, or has a type or a
    value that does not fit, or is no valid Arrow array.

    loose   the `loose_columns` of the schema, which a caller with many pushes computes once
    """
    if isinstance(rows, pa.RecordBatch) and rows.schema.equals(schema):
        require_sound(rows, loose_columns(schema) if loose is None else loose, place)
        return rows
    table = arrow_table(rows, place)
    if table is None:
        if _is_pandas(rows):
            return _from_pandas(rows, schema, place)
        return _from_values(rows, schema, place)
    columns = []
    for field in schema:
        index = _single(table.schema.get_all_field_indices(field.name), field, table.schema.names, place)
        columns.append(_fitted(_merged_column(table.column(index), field, place), field, place))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_table(rows: object, place: str) -> pa.RecordBatch | pa.Table | None:
    """Return rows that have Arrow columns as these columns, which are not checked; None for other rows."""
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return rows
    if _is_pandas(rows):
        return None
    if hasattr(rows, "__arrow_c_stream__"):
        return _read(pa.table, rows, place)
    return _read(pa.record_batch, rows, place) if hasattr(rows, "__arrow_c_array__") else None


def _is_pandas(rows: object) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _single(indices: Sequence[int], field: pa.Field, names: Sequence[str], place: str) -> int:
    """Return the index of a column. Raises InputError unless it occurs once."""
    if len(indices) != 1:
        problem = "is missing" if not indices else f"occurs {len(indices)} times"
        raise InputError(f"{place}: column {field.name!r} {problem} in the columns {names}")
    return indices[0]


def _read(read: Callable[[Any], Read], rows: object, place: str) -> Read:
    """Return Arrow data read from an object of another library. Raises InputError from its exceptions."""
    try:
        return read(rows)
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(f"{place}: the rows in a {type(rows).__name__} cannot be read: {error}") from error


# Arrow columns


def _merged_column(column: pa.Array | pa.ChunkedArray, field: pa.Field, place: str) -> pa.Array:
    require_sound_arrays([column] if isinstance(column, pa.Array) else column.chunks, field.name, place)
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks < 2:
        return column.chunk(0) if column.num_chunks else no_rows(column.type)
    try:
        return merged(column.chunks)
    except TOO_LONG as error:
        raise InputError(
            f"{place}: column {field.name!r} has {column.nbytes:,} bytes in {column.num_chunks} chunks, more than"
            f" one array of {field.type} can hold; push fewer rows at a time, or declare a type with 64-bit offsets"
        ) from error


def _family(kind: pa.DataType) -> Hashable:
    """Return the family of a type, which types share that differ only in width, unit or encoding."""
    kind = plain(kind)
    tests = {
        "integer": pt.is_integer,
        "float": pt.is_floating,
        "date": pt.is_date,
        "time": pt.is_time,
        "duration": pt.is_duration,
        "decimal": pt.is_decimal,
        "string": lambda data_type: pt.is_string(data_type) or pt.is_large_string(data_type),
        "binary": lambda data_type: pt.is_binary(data_type) or pt.is_large_binary(data_type),
        # A time without a zone is not an instant.
        "timestamp": lambda data_type: pt.is_timestamp(data_type) and data_type.tz is None,
        "timestamp with a zone": lambda data_type: pt.is_timestamp(data_type) and data_type.tz is not None,
    }
    family = next((family for family, test in tests.items() if test(kind)), None)
    if family is not None or not pt.is_nested(kind) or pt.is_union(kind):
        return family or kind
    # A nested float keeps its width, since Arrow rounds floats without an error.
    parts = [kind.field(k) for k in range(kind.num_fields)]
    families = [part.type if pt.is_floating(part.type) else _family(part.type) for part in parts]
    if pt.is_struct(kind):
        return "struct", *zip([part.name for part in parts], families, strict=True)
    return "map" if pt.is_map(kind) else getattr(kind, "list_size", "list"), *families


def _fitted(column: pa.Array, field: pa.Field, place: str) -> pa.Array:
    """Return a column in the declared type. Raises InputError if the type is of another family or a value is lost."""
    wanted = field.type
    if column.type == wanted:
        return column
    types = f"{place}: column {field.name!r} is {column.type}, the query declares {wanted}"
    if not pt.is_null(column.type) and _family(column.type) != _family(wanted):
        raise InputError(f"{types}; cast it first")
    try:
        return from_plain(cast_exactly(to_plain(column), plain(wanted)), wanted)
    except (pa.ArrowNotImplementedError, *TOO_LONG) as error:
        raise InputError(
            f"{types}, and a value does not fit: {error}; declare the wider type or cast it first"
        ) from error


# Frames of pandas


def _from_pandas(frame: Any, schema: pa.Schema, place: str) -> pa.RecordBatch:
    """Return a batch of a frame. Columns of objects contain Python values, which pandas' own conversion truncates."""
    if levels := [level for level in frame.index.names if level in schema.names and level not in frame.columns]:
        frame = frame.reset_index(levels)
    columns = []
    for field in schema:
        indices = [k for k, column in enumerate(frame.columns) if column == field.name]
        column = frame.iloc[:, _single(indices, field, [*frame.columns], place)]
        values = _objects(column) if column.dtype == "object" else column
        columns.append(_column(values, field, place))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _objects(column: Any) -> list[Any]:
    """Return the values of a column of objects, with None for values that pandas treats as missing."""
    try:
        return list(column.astype(object).where(column.notna(), None))
    except ArithmeticError:  # a signalling NaN among decimals
        return list(column)


# Python values


def _from_values(rows: object, schema: pa.Schema, place: str) -> pa.RecordBatch:
    """Return a batch of a dict of columns, or of a sequence of dicts."""
    if isinstance(rows, Mapping):
        missing = [field.name for field in schema if field.name not in rows]
        if missing:
            raise InputError(f"{place}: column {missing[0]!r} is missing in the columns {[*rows]}")
        values = {field.name: rows[field.name] for field in schema}
    elif isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and all(isinstance(r, Mapping) for r in rows):
        for k, row in enumerate(rows):
            missing = [field.name for field in schema if field.name not in row]
            if missing:
                raise InputError(f"{place}: column {missing[0]!r} is missing in row {k} of the push, {row}")
        values = {field.name: [row[field.name] for row in rows] for field in schema}
    else:
        raise InputError(
            f"{place}: cannot read rows from {type(rows).__name__}; push a pyarrow RecordBatch or Table, a"
            " DataFrame, a sequence of dicts or a dict of columns"
        )
    columns = [_column(values[field.name], field, place) for field in schema]
    lengths = {field.name: len(column) for field, column in zip(schema, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{place}: the columns have different lengths: {lengths}")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: Any, field: pa.Field, place: str) -> pa.Array:
    """Return the values of a column in the declared type."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _fitted(_merged_column(values, field, place), field, place)
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _fitted(_merged_column(_read(pa.chunked_array, values, place), field, place), field, place)
    if isinstance(values, str | bytes):
        raise InputError(f"{place}: column {field.name!r} is {values!r}; give a sequence with a value for each row")
    if isinstance(values, np.ndarray) and values.dtype.kind in "SU":
        values = values.tolist()  # Arrow ends a text of NumPy at its first NUL
    if getattr(values, "dtype", "object") != "object":
        # The type of the elements of a NumPy array or a pandas series determines their meaning.
        read = pa.array if isinstance(values, np.ndarray) else pa.Array.from_pandas  # NaN is a null in pandas only
        return _fitted(_merged_column(_read(read, values, place), field, place), field, place)
    try:
        return from_plain(array_of(values, plain(field.type)), field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow does not say which integer is too large.
        large = [
            number for number in values if isinstance(number, int) and abs(number) >= 1 << 63 and "large" in str(error)
        ]
        what = f"{large[0]} does not fit; declare a wider type" if large else error
        raise InputError(f"{place}: column {field.name!r} of type {field.type}: {what}") from error

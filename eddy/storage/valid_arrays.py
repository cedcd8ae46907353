"""Whether Arrow arrays are what the format says: offsets and indices that lead out of an array would end the process.

Arrow validates arrays on request only. Its full validation also reads all text, to see whether it is UTF-8, and whether
decimals have their digits and times lie within a day. Users can have such values, and they lead out of no buffer. So
columns are viewed in a type of the same layout that accepts any bytes, for which Arrow validates offsets, lengths and
indices alone: 0.5 ns for each string and 1 µs for a column, where text would take 20 ns for each string.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

UNSOUND = (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowNotImplementedError)
"""Exceptions by which Arrow says that an array is not valid."""


def layout(kind: pa.DataType) -> pa.DataType:
    """Return a type of the same memory layout that accepts any bytes as values; a type with runs as it is.

    Arrow gives a view of sliced runs within another array a wrong length.
    """

    def field(member: pa.Field) -> pa.Field:
        return member.with_type(layout(member.type))

    if isinstance(kind, pa.BaseExtensionType):
        return layout(kind.storage_type)
    if _has_runs(kind):
        return kind
    if pt.is_string(kind):
        return pa.binary()
    if pt.is_large_string(kind):
        return pa.large_binary()
    if pt.is_string_view(kind):
        return pa.binary_view()
    if pt.is_date64(kind) or pt.is_time64(kind):
        return pa.int64()
    if pt.is_time32(kind):
        return pa.int32()
    if pt.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, layout(kind.value_type), kind.ordered)
    if pt.is_list(kind):
        return pa.list_(field(kind.value_field))
    if pt.is_large_list(kind):
        return pa.large_list(field(kind.value_field))
    if pt.is_list_view(kind):
        return pa.list_view(field(kind.value_field))
    if pt.is_large_list_view(kind):
        return pa.large_list_view(field(kind.value_field))
    if pt.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    if pt.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field), kind.keys_sorted)
    if pt.is_struct(kind):
        return pa.struct([field(member) for member in kind])
    if pt.is_union(kind):
        return pa.union([field(kind.field(i)) for i in range(kind.num_fields)], kind.mode, kind.type_codes)
    return kind


def _has_runs(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_runs(kind.storage_type)
    if pt.is_dictionary(kind):
        return _has_runs(kind.value_type)
    parts = (kind.field(i).type for i in range(kind.num_fields)) if pt.is_nested(kind) else ()
    return pt.is_run_end_encoded(kind) or any(map(_has_runs, parts))


def check_array(column: pa.Array, kind: pa.DataType) -> None:
    """Raise one of UNSOUND for an array whose buffers are too small, or whose offsets or indices lead out of it.

    kind  the layout of its type
    """
    column.validate()
    stored = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    (stored if stored.type == kind else stored.view(kind)).validate(full=True)

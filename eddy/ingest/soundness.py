"""Refuses pushed columns that are no valid Arrow arrays, which would end the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from eddy.storage.valid_arrays import UNSOUND, check_array, layout
from stairs.errors import InputError

Loose: TypeAlias = tuple[tuple[int, pa.DataType], ...]
"""The columns whose values offsets or indices lead to: their positions, and the layouts of their types."""


def _is_loose(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_loose(kind.storage_type)
    fixed = pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind) or pt.is_null(kind)
    return not fixed


def loose_columns(schema: pa.Schema) -> Loose:
    """Return the columns of a schema that `require_sound` looks into."""
    return tuple((k, layout(field.type)) for k, field in enumerate(schema) if _is_loose(field.type))


def require_sound(batch: pa.RecordBatch, loose: Loose, place: str) -> None:
    """Raise InputError, with the column, unless the arrays of a batch of `place` are valid.

    loose   those of `loose_columns`
    """
    try:
        batch.validate()
        for k, kind in loose:
            check_array(batch.column(k), kind)
    except UNSOUND:
        for column, field in zip(batch.columns, batch.schema, strict=True):
            require_sound_arrays([column], field.name, place)
        raise


def require_sound_arrays(arrays: Sequence[pa.Array], column: str, place: str) -> None:
    """Raise InputError unless the arrays of one column of `place` are valid."""
    try:
        for array in arrays:
            if _is_loose(array.type):
                check_array(array, layout(array.type))
            else:
                array.validate()
    except UNSOUND as error:
        raise InputError(
            f"{place}: column {column!r} is no valid Arrow array: {error}; its rows cannot be read, make them"
            " again where they come from"
        ) from error

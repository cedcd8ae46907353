"""Rows as JSON objects, for sinks that send text."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from stairs.plain_types import to_plain


def json_rows(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as a JSON object in UTF-8, with all columns, including nulls.

    Timestamps, dates, times and durations are text in the form of ISO 8601, decimals are text, binary values are text
    in base64. A float that is not finite is the text "NaN", "Infinity" or "-Infinity", as in Spark. A map is an array
    of pairs, because its keys may be of any type.

    Polars writes the rows, except rows with a float that is not finite. In a batch with columns that Polars cannot
    write in this form (maps, wide decimals, nested values that JSON lacks), Python's json writes all rows, at about a
    tenth of the speed.
    """
    if not all(map(_written_by_polars, rows.schema.types)):
        yield from map(_encoded, rows.to_pylist())
        return
    finite = _finite_rows(rows)
    if finite is not None:
        # Arrow cannot filter views of texts.
        rows = pa.record_batch([to_plain(column) for column in rows.columns], rows.schema.names)
    lines = iter(_lines(rows if finite is None else rows.filter(finite)))
    if finite is None:
        yield from lines
        return
    others = map(_encoded, rows.filter(pc.invert(finite)).to_pylist())
    for plain in finite.to_pylist():
        yield next(lines if plain else others)


def json_text(value: object) -> bytes:
    """Return one value in the form of `json_rows`; return text and binary values unchanged, without quotes."""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else _STRICT.encode(_finite(value)).strip('"')).encode()


def _written_by_polars(kind: pa.DataType) -> bool:
    """Return whether Polars writes values of a type in the required form, after the conversions of `_lines`."""
    if pt.is_dictionary(kind):
        return _written_by_polars(kind.value_type)
    if pt.is_nested(kind):
        # A float within a nested value may be infinite, but `_lines` converts only columns.
        parts = [kind.field(k).type for k in range(kind.num_fields)]
        floats = any(pt.is_floating(part) or pt.is_timestamp(part) or _is_bytes(part) for part in parts)
        return not floats and not pt.is_map(kind) and not pt.is_union(kind) and all(map(_written_by_polars, parts))
    return not pt.is_decimal256(kind) and not pt.is_interval(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)


def _finite_rows(rows: pa.RecordBatch) -> pa.BooleanArray | None:
    """Return which rows have only finite floats and nulls; None = all rows."""
    mask = None
    for column in rows.columns:
        if pt.is_floating(column.type):
            # `is_finite` is null for null.
            finite = pc.is_finite(column).fill_null(True)
            if not pc.all(finite).as_py():
                mask = finite if mask is None else pc.and_(mask, finite)
    return mask


def _lines(rows: pa.RecordBatch) -> list[bytes]:
    """Return each row as a JSON object, written by Polars."""
    import polars as pl
    import polars.selectors as cs

    if not len(rows):
        return []
    wide = [
        # In JSON a float is a float64.
        column.cast(pa.float64())
        if pt.is_floating(column.type)
        else column.cast(pa.binary())
        if _is_bytes(column.type)
        else column
        for column in rows.columns
    ]
    frame = pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(wide, rows.schema.names)))
    frame = frame.with_columns(
        cs.datetime(time_zone=None).dt.strftime("%Y-%m-%dT%H:%M:%S%.f"), cs.binary().bin.encode("base64")
    )
    return frame.write_ndjson().encode().splitlines()


def _encoded(row: dict[str, Any]) -> bytes:
    try:
        return _STRICT.encode(row).encode()
    except ValueError:  # some float in the row is not finite
        return _STRICT.encode(_finite(row)).encode()


def _plain(value: object) -> str:
    """Return the text for a value of a type that JSON lacks."""
    match value:
        case datetime() | time():
            # Three, six or no digits of the fraction, as Polars writes them; a pandas Timestamp has nanoseconds.
            units = "auto" if value.microsecond % 1000 or getattr(value, "nanosecond", 0) else "milliseconds"
            return value.isoformat(timespec=units if value.microsecond else "auto")
        case date():
            return value.isoformat()
        case timedelta():
            seconds = Decimal(abs(value) // timedelta(microseconds=1)).scaleb(-6).normalize()
            return f"{'-' if value < timedelta() else ''}PT{seconds:f}S"
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"JSON has no form for {value!r}")


def _finite(value: Any) -> Any:
    """Return a value with texts in place of the floats that are not finite."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: _finite(part) for name, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
    return value


_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)

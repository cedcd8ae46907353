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


def json_rows(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as a JSON object in UTF-8, with all columns, also those that are null.

    Timestamps, dates, times and durations are text in the form of ISO 8601, decimals are text, binary values are text
    in base64. A float that is not finite is the text "NaN", "Infinity" or "-Infinity", as in Spark. A map is an array
    of pairs, because its keys may be of any type.

    Python's json encodes row by row: pyarrow does not write JSON, and no other dependency does.
    """
    for row in rows.to_pylist():
        try:
            yield _STRICT.encode(row).encode()
        except ValueError:  # some float in it is not finite
            yield _STRICT.encode(_finite(row)).encode()


def json_text(value: object) -> bytes:
    """Return one value in the form that it has in `json_rows`; text and binary values without quotes, as they are."""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else _STRICT.encode(_finite(value)).strip('"')).encode()


def _plain(value: object) -> str:
    """Return the text for a value of a type that JSON lacks."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return f"PT{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}S"
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

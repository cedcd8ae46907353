"""Key types: the Arrow types that can be equal, the type in which they are compared, and the words of their values.

To add a key type, write a subclass of `KeyType` in a file of this package and enter it in KEY_TYPES.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types.base import KeyType
from eddy.streams.key_types.numbers import Booleans, ExactNumbers, Floats
from eddy.streams.key_types.texts import Binaries, Strings
from eddy.streams.key_types.times import Dates, Durations, TimesOfDay, Timestamps, finest
from stairs.plain_types import plain

MOST_DIGITS = 18
"""Number of digits of a decimal that fit an int64. A type may have more digits, but a value may not."""
KEY_TYPES: tuple[KeyType, ...] = (
    ExactNumbers(),
    Floats(),
    Booleans(),
    Strings(),
    Binaries(),
    Dates(),
    Timestamps(),
    Durations(),
    TimesOfDay(),
)
"""The registry of key types."""


UNCOMPARED = (
    "whose values cannot be keys or be compared; keys are"
    f" {', '.join(key_type.names for key_type in KEY_TYPES)}, or a dictionary"
    " or run-end encoding of these"
)
"""The text for a type that is none of these, for errors."""


def key_type_of(kind: pa.DataType) -> KeyType:
    """Return the key type of a plain type. Raises LookupError for a type that cannot be a key."""
    for key_type in KEY_TYPES:
        if key_type.covers(kind):
            return key_type
    raise LookupError(f"{kind} cannot be a key")


def unified(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which values of these types are compared exactly, None if they cannot be equal.

    >>> unified([pa.int8(), pa.int64()])
    DataType(int64)
    >>> unified([pa.int64(), pa.string()]) is None
    True
    """
    given = list(types)
    extensions = [_extension(kind) for kind in given]
    if any(extension != extensions[0] for extension in extensions):
        # Two extension types may use the same storage for different values.
        return None
    kinds = [plain(kind) for kind in given]
    for key_type in KEY_TYPES:
        if all(map(key_type.covers, kinds)):
            return key_type.unified(kinds)
    return None


def comparable(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which values of these types are compared, None if they cannot be compared.

    >>> comparable([pa.timestamp("ms"), pa.timestamp("us")])
    TimestampType(timestamp[us])
    >>> comparable([pa.int64(), pa.float64()]) is None
    True
    """
    kinds = [plain(kind) for kind in types]
    if all(map(pt.is_integer, kinds)):
        return pa.int64()
    if all(map(pt.is_floating, kinds)):
        return pa.float64()
    if all(pt.is_integer(kind) or pt.is_decimal(kind) for kind in kinds):
        scales = [kind.scale if pt.is_decimal(kind) else 0 for kind in kinds]
        wholes = [kind.precision - kind.scale if pt.is_decimal(kind) else MOST_DIGITS for kind in kinds]
        scale, whole = max(scales), min(max(wholes), MOST_DIGITS - max(scales))
        return pa.decimal128(whole + scale, scale) if whole >= 0 else None
    if all(map(pt.is_timestamp, kinds)) and len({kind.tz is None for kind in kinds}) == 1:
        return pa.timestamp(finest(kinds), None if kinds[0].tz is None else "UTC")
    if all(map(pt.is_date, kinds)):
        return pa.date32()
    if all(map(pt.is_duration, kinds)):
        return pa.duration(finest(kinds))
    if all(map(pt.is_time, kinds)):
        return pa.time64("ns" if finest(kinds) == "ns" else "us")
    return None


def _extension(kind: pa.DataType) -> pa.DataType | None:
    """Return the extension type of a column's values, behind dictionaries and runs, None for any other type."""
    while pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind if isinstance(kind, pa.BaseExtensionType) else None


def word_count(kind: pa.DataType) -> int:
    """Return the number of words of a value of a unified type."""
    return key_type_of(kind).word_count(kind)


def text_words(types: Sequence[pa.DataType]) -> tuple[int, ...]:
    """Return which words of a key with components of these unified types stand for byte strings."""
    positions, at = [], 0
    for kind in types:
        if key_type_of(kind).interned:
            positions.append(at)
        at += word_count(kind)
    return tuple(positions)

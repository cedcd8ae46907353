"""Keys as words: how the values of an attribute become int64 words that are equal exactly when the values are.

A component of a key takes one word (integers, booleans, dates, times, floats, strings by interned id), two (decimals)
or four (decimals of more than 38 digits). Nulls and NaN equal nothing; their rows are marked dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.query.query import Query
from eddy.query.types import SECONDS, is_text, word_count
from stairs.bytes_directory import BytesDirectory, read_only
from stairs.errors import InputError
from stairs.kernels.byte_strings import hash_rows, mix_words
from stairs.plain_types import TOO_LONG, to_plain

Words = npt.NDArray[np.int64]
Dead = npt.NDArray[np.uint8]


def _exact_seconds(column: pa.Array) -> pa.Array:
    """Return a timestamp or duration column as decimal seconds, every value kept."""
    scale = ("s", "ms", "us", "ns").index(column.type.unit) * 3
    ticks = column.cast(pa.int64()).cast(pa.decimal128(19, 0))
    # The same digits, read with the decimal point in another place.
    moved = pa.Array.from_buffers(
        pa.decimal128(19 + scale, scale), len(ticks), ticks.buffers(), ticks.null_count, ticks.offset
    )
    return moved.cast(SECONDS)


def unified_column(column: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Return the column in its class's unified type. Raises InputError when a value is out of its range."""
    if column.type == kind:
        return column
    try:
        column = to_plain(column)
        if column.type == kind:
            return column
        if kind == SECONDS and (pt.is_timestamp(column.type) or pt.is_duration(column.type)):
            return _exact_seconds(column)
        if pt.is_timestamp(kind) and kind.tz is not None:
            return column.cast(pa.timestamp(kind.unit, column.type.tz)).cast(kind)
        return column.cast(kind)
    except TOO_LONG as error:
        raise InputError(f"{where}: a value does not fit {kind}, the type it is compared in: {error}") from error


def _as_int64(column: pa.Array) -> Words:
    """Return the words of a column of one word a value; those of nulls are undefined."""
    kind = column.type
    if pt.is_boolean(kind):
        return np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.int64)
    width = kind.bit_width // 8
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return raw.view(np.int64) if width == 8 else raw.view(np.int32).astype(np.int64)


def _mark_nulls(column: pa.Array, dead: Dead) -> None:
    if column.null_count:
        dead |= np.asarray(pc.is_null(column).cast(pa.uint8()))


def fixed_words(column: pa.Array, dead: Dead) -> Words:
    """Return int64[n, words] for a column of a unified type that is no byte string, marking nulls and NaN dead."""
    _mark_nulls(column, dead)
    n = len(column)
    if not n:
        return np.zeros((0, word_count(column.type)), np.int64)
    if pt.is_decimal(column.type):
        width = column.type.byte_width
        return np.frombuffer(column.buffers()[1], np.int64, n * width // 8, column.offset * width).reshape(n, -1)
    words = _as_int64(column)
    if pt.is_floating(column.type):
        values = words.view(np.float64)
        lost = np.isnan(values)
        if lost.any():
            dead |= lost
        # Adding 0.0 makes -0.0 to 0.0, so that equal floats have equal bits. A signalling NaN is no error.
        with np.errstate(invalid="ignore"):
            words = (values + 0.0).view(np.int64)
    return words.reshape(n, 1)


_NO_TEXT = np.frombuffer(b"\0", np.uint8)


def text_buffers(column: pa.Array) -> tuple[Words, npt.NDArray[np.uint8]]:
    """Return (offsets int64[n + 1], bytes) of a large string or binary column. No copy."""
    _, offsets, text = column.buffers()
    if offsets is None or not len(column):
        return np.frombuffer(bytes(8 * len(column) + 8), np.int64), _NO_TEXT
    places = read_only(np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8))
    if text is None or text.size == 0:
        return places, _NO_TEXT
    return places, read_only(np.frombuffer(text, np.uint8))


class KeyEncoder:
    """Turns the columns of one attribute of one stream into words."""

    def __init__(self, stream: str, components: Sequence[Sequence[str]], types: Sequence[pa.DataType]) -> None:
        self.stream = stream
        self.components = tuple(tuple(component) for component in components)
        self.types = tuple(types)
        self.width = sum(map(word_count, types))
        single = len(self.components) == 1 and len(self.components[0]) == 1
        self.plain = self.components[0][0] if single and pt.is_int64(self.types[0]) else None
        """The column of a key that is one integer column, whose values are the words."""

    def columns(self, batch: pa.RecordBatch) -> list[list[pa.Array]]:
        """Return the columns of each component, unified."""
        return [
            [unified_column(batch.column(name), kind, f"stream {self.stream}, column {name}") for name in component]
            for component, kind in zip(self.components, self.types, strict=True)
        ]

    def encode(self, batch: pa.RecordBatch, words: Words, dead: Dead, texts: Mapping[int, BytesDirectory]) -> None:
        """Write the key of each row: words int64[rows * width], dead uint8[rows] (only ever set, to 1).

        texts holds the directory of byte strings for each word that stands for one.
        """
        table = words.reshape(len(batch), self.width)
        at = 0
        for columns, kind in zip(self.columns(batch), self.types, strict=True):
            for k, column in enumerate(columns):
                if is_text(kind):
                    _mark_nulls(column, dead)
                    own = texts[at].intern(*text_buffers(column), dead).reshape(-1, 1)
                else:
                    own = fixed_words(column, dead)
                if k == 0:
                    table[:, at : at + own.shape[1]] = own
                else:
                    # Columns of one stream in one component must be equal for the row to join anything.
                    dead |= (table[:, at : at + own.shape[1]] != own).any(axis=1)
            at += word_count(kind)

    def hashes(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return (hash uint64[rows], whether the row can join anything bool[rows]) without any directory.

        Equal keys have equal hashes in every stream of the class and in every process.
        """
        dead = np.zeros(len(batch), np.uint8)
        hashes = np.full(len(batch), 0x9E3779B97F4A7C15, np.uint64)
        for columns, kind in zip(self.columns(batch), self.types, strict=True):
            first: Words | None = None
            for column in columns:
                if is_text(kind):
                    _mark_nulls(column, dead)
                    own = np.zeros((len(batch), 1), np.int64)
                    hash_rows(*text_buffers(column), own[:, 0])
                else:
                    own = fixed_words(column, dead)
                if first is None:
                    first = own
                    for word in range(own.shape[1]):
                        mix_words(np.array(own[:, word]), hashes)
                elif is_text(kind):
                    equal = pc.equal(column, columns[0]).fill_null(False)
                    dead |= ~np.asarray(equal.cast(pa.uint8())).astype(bool)
                else:
                    dead |= (first != own).any(axis=1)
        hashes[dead != 0] = 0
        return hashes, dead == 0


def key_hash(
    query: Query, class_index: int, stream: str, batch: pa.RecordBatch
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return (hashes uint64[rows], joinable bool[rows]) of a stream's keys in a class, for partitioning by key.

    Equal keys have equal hashes over all streams of the class, whatever their types, and in every process. Rows that
    cannot join (a null, NaN, unequal columns of one component) have hash 0 and are not joinable.
    """
    one = query.classes[class_index]
    return KeyEncoder(stream, one.columns[stream], one.types).hashes(batch)

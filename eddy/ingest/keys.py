"""Keys as words: int64 words of the key columns of a batch, which are equal exactly when the values are.

`eddy.streams.key_types` defines the words of each type. A byte string has the id under which it is interned. Rows with
a null or NaN in a key are dead: they equal nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.expressions.derived import Derived, column_of
from eddy.query.query import Query
from eddy.streams.event_time import in_words, reach
from eddy.streams.key_types import key_type_of
from eddy.streams.key_types.base import Dead, KeyType, Words
from stairs.bytes_directory import BytesDirectory, read_only
from stairs.errors import InputError
from stairs.graph import FOREVER
from stairs.kernels.stable_hashes import hash_rows, mix_words
from stairs.plain_types import TOO_LONG, plain, to_plain


def unified_column(column: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Return a column in the unified type of its class. Raises InputError for a value out of the range of the type."""
    if column.type == kind:
        return column
    try:
        column = to_plain(column)
        return column if column.type == kind else key_type_of(column.type).cast(column, kind)
    except TOO_LONG as error:
        raise InputError(
            f"{where}: a value does not fit {kind}, the type in which it is compared ({error}); filter out such rows"
        ) from error


def _mark_nulls(column: pa.Array, dead: Dead) -> None:
    if column.null_count:
        dead |= np.asarray(pc.is_null(column).cast(pa.uint8()))


def _fixed_words(key_type: KeyType, column: pa.Array, dead: Dead) -> Words:
    """Return int64[rows, words] of a column that is not interned; marks nulls and NaN dead."""
    _mark_nulls(column, dead)
    if not len(column):
        return np.zeros((0, key_type.word_count(column.type)), np.int64)
    return key_type.words(column, dead)


def compared_values(place: str, name: str, batch: pa.RecordBatch, kind: pa.DataType, dead: Dead) -> Words:
    """Return the values of a column as comparisons read them, int64[rows]; floats as their bits.

    Rows with a null or NaN are marked dead, as they fulfil no comparison; their value is 0. Raises InputError for a
    value beyond ±2^61.
    """
    where = f"{place}, column {name}"
    column, missing = batch.column(name), np.zeros(len(batch), np.uint8)
    if pt.is_decimal(kind) and pt.is_integer(plain(column.type)):
        # Arrow casts integers only to decimals that hold all integers of the type.
        column = to_plain(column).cast(pa.decimal128(20, 0))
    column = unified_column(column, kind, where)
    values = np.ascontiguousarray(_fixed_words(key_type_of(kind), column, missing)[:, 0])
    if missing.any():
        values = np.where(missing != 0, np.int64(0), values)
        dead |= missing
    if not pt.is_floating(kind) and len(values) and (values.min() < -FOREVER or values.max() > FOREVER):
        row = int(np.flatnonzero((values < -FOREVER) | (values > FOREVER))[0])
        raise InputError(
            f"{where}: the value of row {row} of the push is {in_words(int(values[row]), kind)}; compared values must"
            f" lie {reach(kind)}"
        )
    return values


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
    """Encodes the key of one stream in one class as words.

    place       the stream as errors name it
    components  per component of the key the columns of the stream that must be equal
    types       the unified type of each component
    """

    def __init__(self, place: str, components: Sequence[Sequence[str]], types: Sequence[pa.DataType]) -> None:
        self.place = place
        self.components = tuple(tuple(component) for component in components)
        self.types = tuple(types)
        self._key_types = tuple(map(key_type_of, types))
        self._widths = tuple(key_type.word_count(kind) for key_type, kind in zip(self._key_types, types, strict=True))
        self.width = sum(self._widths)
        """Words of a key."""
        single = len(self.components) == 1 and len(self.components[0]) == 1
        first = self.components[0][0]
        self.plain = first if single and pt.is_int64(self.types[0]) and not isinstance(first, Derived) else None
        """The column of a key that is one int64 column, whose values are the words."""

    def columns(self, batch: pa.RecordBatch) -> list[list[pa.Array]]:
        """Return the columns of each component, in its unified type."""
        return [
            [
                unified_column(column_of(batch, name, self.place), kind, f"{self.place}, column {name}")
                for name in component
            ]
            for component, kind in zip(self.components, self.types, strict=True)
        ]

    def encode(self, batch: pa.RecordBatch, words: Words, dead: Dead, texts: Mapping[int, BytesDirectory]) -> None:
        """Write the key of each row: words int64[rows * width], dead uint8[rows] (1 is added, never removed).

        texts   by word that stands for a byte string, the directory that interns it
        """
        table = words.reshape(len(batch), self.width)
        at = 0
        for columns, key_type, width in zip(self.columns(batch), self._key_types, self._widths, strict=True):
            for k, column in enumerate(columns):
                if key_type.interned:
                    _mark_nulls(column, dead)
                    key_words = texts[at].intern(*text_buffers(column), dead).reshape(-1, 1)
                else:
                    key_words = _fixed_words(key_type, column, dead)
                if k == 0:
                    table[:, at : at + width] = key_words
                else:
                    # A row joins only if the columns of a component are equal to each other.
                    dead |= (table[:, at : at + width] != key_words).any(axis=1)
            at += width

    def hashes(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return (hash uint64[rows], whether the row can join bool[rows]), without interning anything.

        Equal keys have equal hashes in every stream of the class and in every process.
        """
        dead = np.zeros(len(batch), np.uint8)
        hashes = np.full(len(batch), 0x9E3779B97F4A7C15, np.uint64)
        for columns, key_type in zip(self.columns(batch), self._key_types, strict=True):
            first: Words | None = None
            for column in columns:
                if key_type.interned:
                    _mark_nulls(column, dead)
                    words = np.zeros((len(batch), 1), np.int64)
                    hash_rows(*text_buffers(column), words[:, 0])
                else:
                    words = _fixed_words(key_type, column, dead)
                if first is None:
                    first = words
                    for word in range(words.shape[1]):
                        mix_words(np.array(words[:, word]), hashes)
                elif key_type.interned:
                    equal = pc.equal(column, columns[0]).fill_null(False)
                    dead |= ~np.asarray(equal.cast(pa.uint8())).astype(bool)
                else:
                    dead |= (first != words).any(axis=1)
        hashes[dead != 0] = 0
        return hashes, dead == 0


def key_hash(
    query: Query, class_index: int, stream: str, batch: pa.RecordBatch
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return (hash uint64[rows], joinable bool[rows]) of a stream's keys in a class, for partitioning by key.

    class_index   a class of `Query.partition_classes`

    Equal keys have equal hashes in all streams of the class, whatever their types, and in every process. Rows that
    cannot join (a null, NaN, unequal columns of one component) have hash 0 and are not joinable.
    """
    key_class = query.partition_classes[class_index]
    return KeyEncoder(query.stream(stream).place, key_class.columns[stream], key_class.types).hashes(batch)


def key_bytes(
    place: str, columns: Sequence[str], kinds: Sequence[pa.DataType], batch: pa.RecordBatch
) -> tuple[Words, npt.NDArray[np.uint8]]:
    """Return a key of each row as bytes, (offsets int64[rows + 1], uint8[]), which are equal exactly when the keys are.

    kinds   the unified type of each column of the key

    The keys have no nulls and NaN.
    """
    fixed, texts = list[Words](), list[pa.Array]()
    for name, kind in zip(columns, kinds, strict=True):
        column, key_type = unified_column(batch.column(name), kind, f"{place}, column {name}"), key_type_of(kind)
        if key_type.interned:
            offsets, _ = text_buffers(column)
            # With the length of each text, the bytes after one another have one meaning.
            fixed.append(np.diff(offsets).reshape(-1, 1))
            texts.append(column.cast(pa.large_binary()))
        else:
            fixed.append(_fixed_words(key_type, column, np.zeros(len(batch), np.uint8)))
    words = np.ascontiguousarray(np.concatenate(fixed, axis=1))
    ends = np.arange(len(batch) + 1, dtype=np.int64) * (8 * words.shape[1])
    if not texts:
        return ends, words.reshape(-1).view(np.uint8)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(words)]
    first = pa.Array.from_buffers(pa.large_binary(), len(batch), buffers)
    return text_buffers(pc.binary_join_element_wise(first, *texts, pa.scalar(b"", pa.large_binary())))

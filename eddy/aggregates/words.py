"""Values as int64 words whose order is that of the values, and words as values.

A value of up to 64 bits is one word. A byte string, and a decimal of more than 18 digits, is the id under which a
`BytesDirectory` keeps its bytes; their order is that of the bytes. Null has word 0, and a mask of its own.

    integers, dates, times, timestamps, durations   themselves; uint64 with the first bit turned
    floats      their bits as float64, turned if negative; one NaN, greater than all others; -0.0 is 0.0
    booleans    0 and 1
    decimals    the number without its point, or that as bytes, most significant first
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from stairs.bytes_directory import BytesDirectory
from stairs.plain_types import Column, plain, to_plain

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_TURN = np.int64(-(1 << 63))
_WORD_DIGITS = 18
"""Decimals of so many digits fit in a word."""
_NAN = np.int64(0x7FF8 << 48)


def valid_rows(column: Column) -> Mask:
    """Return which values are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid().cast(pa.uint8())).view(np.bool_)


def plain_chunks(column: Column) -> list[pa.Array]:
    """Return the arrays of a column, in its plain type."""
    return [to_plain(chunk) for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]


def raw_words(column: pa.Array) -> Int64s:
    """Return the bits of a plain column of a type of 8 to 64 bits as numbers, as they are under nulls."""
    kind = column.type
    width, unsigned = kind.bit_width // 8, pt.is_unsigned_integer(kind)
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), np.int64)
    raw = np.frombuffer(data, np.dtype(f"{'u' if unsigned else 'i'}{width}"), len(column), column.offset * width)
    return raw.view(np.int64).copy() if width == 8 else raw.astype(np.int64)


def float_values(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a plain column of floats as float64; a signalling NaN becomes a quiet one."""
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column))
    with np.errstate(invalid="ignore"):
        return np.frombuffer(data, np.dtype(f"f{width}"), len(column), column.offset * width).astype(np.float64)


def decimal_words(column: pa.Array) -> Int64s:
    """Return int64[n, words] of a plain column of decimals, the least significant word first, the last one signed."""
    width = column.type.bit_width // 8
    words, number = max(width // 8, 1), np.dtype("i4" if width == 4 else "i8")
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros((len(column), words), np.int64)
    raw = np.frombuffer(data, number, len(column) * words, column.offset * width)
    return raw.astype(np.int64).reshape(len(column), -1)


def decimal_array(words: Int64s, kind: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Return words as `decimal_words` gives them as an array of decimals."""
    width = kind.bit_width // 8
    raw = words.astype(np.int32) if width == 4 else np.ascontiguousarray(words)
    return pa.Array.from_buffers(kind, len(words), [_bits(valid), pa.py_buffer(raw.tobytes())])


def _bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


class Words:
    """The words of one type of values.

    kind  the type, which may be an encoding, a view or an extension: values are those of its plain type
    text  whether words are ids of byte strings
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind, self.inner = kind, plain(kind)
        inner = self.inner
        self.wide = pt.is_decimal(inner) and inner.precision > _WORD_DIGITS
        strings = pt.is_string(inner) or pt.is_large_string(inner)
        binary = pt.is_binary(inner) or pt.is_large_binary(inner) or pt.is_fixed_size_binary(inner)
        self.text = self.wide or strings or (binary and not pt.is_decimal(inner))

    # Values to words

    def of(self, column: Column, texts: BytesDirectory) -> Int64s:
        """Return a word for each value, int64[n], 0 for null."""
        parts = [self._of(chunk, texts) for chunk in plain_chunks(column)]
        words = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
        if column.null_count:
            words[~valid_rows(column)] = 0
        return words

    def _of(self, column: pa.Array, texts: BytesDirectory) -> Int64s:
        inner = self.inner
        if self.text:
            offsets, data = self._bytes(column)
            dead = (~valid_rows(column)).astype(np.uint8)
            return texts.intern(offsets, data, dead)
        if pt.is_boolean(inner):
            return np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.int64)
        if pt.is_floating(inner):
            return ordered_floats(float_values(column))
        if pt.is_decimal(inner):
            return np.ascontiguousarray(decimal_words(column)[:, 0])
        words = raw_words(column)
        return words ^ _TURN if pt.is_uint64(inner) else words

    def _bytes(self, column: pa.Array) -> tuple[Int64s, npt.NDArray[np.uint8]]:
        """Return the bytes of each value: (offsets int64[n + 1], uint8[])."""
        n = len(column)
        if self.wide:
            width = self.inner.byte_width
            numbers = decimal_words(column)
            numbers[:, -1] ^= _TURN
            data = np.ascontiguousarray(numbers[:, ::-1].astype(">i8")).view(np.uint8).reshape(-1)
            return np.arange(n + 1, dtype=np.int64) * width, data
        if pt.is_fixed_size_binary(self.inner):
            width = self.inner.byte_width
            raw = column.buffers()[1]
            data = np.zeros(0, np.uint8) if raw is None else np.frombuffer(raw, np.uint8)
            return (np.arange(n + 1, dtype=np.int64) + column.offset) * width, data
        buffers = column.buffers()
        if buffers[1] is None or not n:
            return np.zeros(n + 1, np.int64), np.zeros(1, np.uint8)
        wide = pt.is_large_string(self.inner) or pt.is_large_binary(self.inner)
        width = 8 if wide else 4
        offsets = np.frombuffer(buffers[1], np.dtype(f"i{width}"), n + 1, column.offset * width).astype(np.int64)
        data = np.zeros(1, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        return offsets, data

    # Words to values

    def array(self, words: Int64s, valid: Mask, texts: BytesDirectory) -> pa.Array:
        """Return words as a plain array, null where they are not valid."""
        inner, n = self.inner, len(words)
        if self.text:
            ids = np.where(valid, words, 0)
            if not valid.any():
                return pa.nulls(n, inner)
            # A null has the place of some other value.
            ids[~valid] = ids[int(np.argmax(valid))]
            offsets, data = texts.read(ids)
            return self._from_bytes(offsets, data, valid)
        if pt.is_boolean(inner):
            return pa.array(words != 0, mask=~valid)
        if pt.is_floating(inner):
            values = floats_of(words).astype(np.dtype(f"f{inner.bit_width // 8}"))
            return pa.Array.from_buffers(inner, n, [_bits(valid), pa.py_buffer(values.tobytes())])
        if pt.is_decimal(inner):
            count = max(inner.bit_width // 64, 1)
            numbers = np.repeat((words >> 63)[:, None], count, axis=1)
            numbers[:, 0] = words
            return decimal_array(numbers, inner, valid)
        words = words ^ _TURN if pt.is_uint64(inner) else words
        raw = words.astype(np.dtype(f"{'u' if pt.is_unsigned_integer(inner) else 'i'}{inner.bit_width // 8}"))
        return pa.Array.from_buffers(inner, n, [_bits(valid), pa.py_buffer(raw.tobytes())])

    def _from_bytes(self, offsets: Int64s, data: npt.NDArray[np.uint8], valid: Mask) -> pa.Array:
        inner, n = self.inner, len(valid)
        sized = self.wide or pt.is_fixed_size_binary(inner)
        if sized and (np.diff(offsets) != inner.byte_width).any():
            raise pa.ArrowInvalid(f"a value of {inner} has another size")
        if self.wide:
            numbers = data.view(">i8").astype(np.int64).reshape(n, -1)[:, ::-1].copy()
            numbers[:, -1] ^= _TURN
            return decimal_array(numbers, inner, valid)
        if pt.is_fixed_size_binary(inner):
            return pa.Array.from_buffers(inner, n, [_bits(valid), pa.py_buffer(data)])
        large = pa.large_string() if pt.is_string(inner) or pt.is_large_string(inner) else pa.large_binary()
        array = pa.Array.from_buffers(large, n, [_bits(valid), pa.py_buffer(offsets), pa.py_buffer(data)])
        return array.cast(inner) if inner != large else array

    def order(self, words: Int64s, texts: BytesDirectory) -> Int64s:
        """Return numbers in the order of the values of words, none of them null; O(n log n) for byte strings."""
        if not self.text or not len(words):
            return words
        ids, places = np.unique(words, return_inverse=True)
        offsets, data = texts.read(ids)
        strings = pa.Array.from_buffers(pa.large_binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        ranks = np.empty(len(ids), np.int64)
        ranks[np.asarray(pc.sort_indices(strings))] = np.arange(len(ids))
        return ranks[places.reshape(-1)]


def ordered_floats(values: npt.NDArray[np.float64]) -> Int64s:
    """Return words of floats in the order of the floats."""
    with np.errstate(invalid="ignore"):
        bits = (values + 0.0).view(np.int64)
    words = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    words[np.isnan(values)] = _NAN
    return words


def floats_of(words: Int64s) -> npt.NDArray[np.float64]:
    """Return the floats of `ordered_floats`."""
    return np.where(words < 0, words ^ np.int64(0x7FFFFFFFFFFFFFFF), words).view(np.float64)


def encode(arrays: list[tuple[Words, Column]], texts: BytesDirectory, n: int) -> Int64s:
    """Return int64[n, k + 1], the words of k columns of n values, then one with a bit for each null."""
    words = np.zeros((n, len(arrays) + 1), np.int64)
    for k, (word_type, column) in enumerate(arrays):
        words[:, k] = word_type.of(column, texts)
        if column.null_count:
            words[:, -1] |= (~valid_rows(column)).astype(np.int64) << k
    return words

"""Key types of numbers and booleans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types.base import Dead, KeyType, Words


class ExactNumbers(KeyType):
    """Integers and decimals, compared exactly: as int64, uint64 or decimals of two or four words."""

    names = "integers, decimals"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_integer(kind) or pt.is_decimal(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        unsigned = [pt.is_uint64(kind) for kind in kinds]
        if all(unsigned):
            return pa.uint64()
        if not any(unsigned) and all(pt.is_integer(kind) for kind in kinds):
            return pa.int64()
        before = after = 0
        for kind in kinds:
            scale = kind.scale if pt.is_decimal(kind) else 0
            digits = kind.precision - scale if pt.is_decimal(kind) else 20 if pt.is_uint64(kind) else 19
            before, after = max(before, digits), max(after, scale)
        if before + after <= 38:
            return pa.decimal128(before + after, after)
        return pa.decimal256(before + after, after) if before + after <= 76 else None

    def word_count(self, kind: pa.DataType) -> int:
        return kind.byte_width // 8 if pt.is_decimal(kind) else 1

    def words(self, column: pa.Array, dead: Dead) -> Words:
        if not pt.is_decimal(column.type):
            return super().words(column, dead)
        n, width = len(column), column.type.byte_width
        return np.frombuffer(column.buffers()[1], np.int64, n * width // 8, column.offset * width).reshape(n, -1)


class Floats(KeyType):
    """Floats, compared as float64; NaN equals nothing, -0.0 equals 0.0."""

    names = "floats"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_floating(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.float64()

    def words(self, column: pa.Array, dead: Dead) -> Words:
        values = super().words(column, dead).view(np.float64)
        lost = np.isnan(values[:, 0])
        if lost.any():
            dead |= lost
        # Adding 0.0 turns -0.0 into 0.0, so that equal floats have equal bits. A signalling NaN must not warn.
        with np.errstate(invalid="ignore"):
            return (values + 0.0).view(np.int64)


class Booleans(KeyType):
    """Booleans, as 0 and 1."""

    names = "booleans"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_boolean(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.bool_()

    def words(self, column: pa.Array, dead: Dead) -> Words:
        return np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.int64).reshape(-1, 1)

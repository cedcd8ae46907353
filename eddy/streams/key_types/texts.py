"""Key types of byte strings, whose words are interned ids."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types.base import KeyType


class Strings(KeyType):
    """Strings, compared byte by byte."""

    names = "strings"
    interned = True

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_string(kind) or pt.is_large_string(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.large_string()


class Binaries(KeyType):
    """Binary values of any or of fixed size, compared byte by byte."""

    names = "binary"
    interned = True

    def covers(self, kind: pa.DataType) -> bool:
        sized = pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind)
        return pt.is_binary(kind) or pt.is_large_binary(kind) or sized

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.large_binary()

"""The base class of key types."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.int64]
Dead = npt.NDArray[np.uint8]


class KeyType:
    """A family of Arrow types whose values can be equal: the type in which they are compared, and their words.

    A subclass defines `names`, `covers` and `unified`; the other methods have defaults for types of 32 or 64 bits whose
    bits are equal exactly when the values are. All types here are plain (`stairs.plain_types`).

    names     the types in the plural, for error messages
    interned  whether values are byte strings, whose words are ids; then `words` is not called
    """

    names: ClassVar[str]
    interned: ClassVar[bool] = False

    def covers(self, kind: pa.DataType) -> bool:
        """Return whether a type belongs to the family."""
        raise NotImplementedError

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        """Return the type that holds all values of these types of the family exactly, or None if no type does.

        The type may belong to another family, which then makes the words.
        """
        raise NotImplementedError

    def cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return a column of the family in a unified type. Raises pyarrow.ArrowInvalid for a value out of its range."""
        return column.cast(kind)

    def word_count(self, kind: pa.DataType) -> int:
        """Return the number of int64 words of a value of a unified type of the family."""
        return 1

    def words(self, column: pa.Array, dead: Dead) -> Words:
        """Return int64[rows, words] for one or more rows of a unified type of the family; no copy for 64 bits.

        Marks rows whose value equals nothing in `dead` uint8[rows]; the words of nulls are undefined.
        """
        width = column.type.bit_width // 8
        raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
        words = raw.view(np.int64) if width == 8 else raw.view(np.int32).astype(np.int64)
        return words.reshape(-1, 1)

"""The number of the lowest set bit of a word, as one machine instruction."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import config
from numba.extending import intrinsic

if config.DISABLE_JIT:

    def lowest_bit(word: int) -> int:
        """Return the number of the lowest set bit of a word other than 0."""
        return (int(word) & -int(word)).bit_length() - 1

else:

    @intrinsic
    def lowest_bit(typing_context: Any, word: Any) -> Any:
        """Return the number of the lowest set bit of a word other than 0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

        return types.int64(types.int64), generate

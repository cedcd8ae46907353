"""Operations on words that are one or two machine instructions, and that NumPy lacks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic
from numpy import uint64 as u64


def folded_plain(left: Any, right: Any) -> Any:
    """Return the folded product of two words in plain Python."""
    product = int(left) * int(right)
    return u64((product ^ (product >> 64)) & 0xFFFFFFFFFFFFFFFF)


if config.DISABLE_JIT:

    def lowest_bit(word: int) -> int:
        """Return the number of the lowest set bit of a word other than 0."""
        return (int(word) & -int(word)).bit_length() - 1

    folded_product = folded_plain

else:

    @intrinsic
    def lowest_bit(typing_context: Any, word: Any) -> Any:
        """Return the number of the lowest set bit of a word other than 0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

        return types.int64(types.int64), generate

    @intrinsic
    def folded_product(typing_context: Any, left: Any, right: Any) -> Any:
        """Multiply two words to 128 bits; return the lower half XOR the upper one."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, wide = ir.IntType(64), ir.IntType(128)
            product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
            return builder.xor(builder.trunc(product, word), builder.trunc(builder.lshr(product, wide(64)), word))

        return types.uint64(types.uint64, types.uint64), generate

"""Memory by address, for kernels that copy between Arrow buffers and the arena.

An Arrow column reaches a kernel as the address of its values: one integer in a table, where an array object would cost
a microsecond to make and more to pass, which decides the speed of small pushes. Whoever puts an address in a table
keeps its buffer alive until the kernel has returned.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import config
from numba.extending import intrinsic

Peek = Callable[[int], int]
Poke = Callable[[int, int], None]


def _plain(kind: Any) -> tuple[Peek, Poke]:
    """Return the accessors of one width for kernels that run as plain Python."""

    def peek(address: int) -> int:
        return int(kind.from_address(int(address)).value)

    def poke(address: int, value: int) -> None:
        kind.from_address(int(address)).value = int(value)

    return peek, poke


def _compiled(kind: Any) -> tuple[Peek, Poke]:
    """Return the accessors of one width: a load and a store of the machine."""

    @intrinsic
    def peek(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = context.get_value_type(kind).as_pointer()
            return builder.load(builder.inttoptr(arguments[0], pointer))

        return kind(types.int64), generate

    @intrinsic
    def poke(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = context.get_value_type(kind).as_pointer()
            builder.store(arguments[1], builder.inttoptr(arguments[0], pointer))
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return peek, poke


if config.DISABLE_JIT:
    peek8, poke8 = _plain(ctypes.c_uint8)
    peek16, poke16 = _plain(ctypes.c_uint16)
    peek32, poke32 = _plain(ctypes.c_uint32)
    peek64, poke64 = _plain(ctypes.c_uint64)
    peek_int32, poke_int32 = _plain(ctypes.c_int32)
else:
    peek8, poke8 = _compiled(types.uint8)
    peek16, poke16 = _compiled(types.uint16)
    peek32, poke32 = _compiled(types.uint32)
    peek64, poke64 = _compiled(types.uint64)
    peek_int32, poke_int32 = _compiled(types.int32)

"""Memory by address, for kernels that copy between Arrow buffers and the arena.

An Arrow column reaches a kernel as the address of its values: one integer in a table, where an array object would cost
a microsecond to make and more to pass, which decides the speed of small pushes. Whoever puts an address in a table
keeps its buffer alive until the kernel has returned.

`prefetch` asks for a cache line ahead, where what kernels touch is more than `NEAR` bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

Peek = Callable[[int], int]
Poke = Callable[[int, int], None]
Ask = Callable[[int], None]

NEAR = 1 << 20
"""Bytes that stay in a core's own cache: asking for them ahead would cost more than it saves."""


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


def _nothing(address: int) -> None:
    """Ask for nothing: plain Python cannot."""


def _prefetch() -> Ask:
    """Return what asks the machine for the cache line at an address, which will be read and written soon.

    Any address will do: one that is not the process's own is passed over.
    """

    @intrinsic
    def prefetch(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            name = "llvm.prefetch.p0i8"
            ask = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), name
            )
            # For writing, to be kept in all caches, data.
            builder.call(ask, [builder.inttoptr(arguments[0], byte), word(1), word(3), word(1)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return prefetch


prefetch: Ask
if config.DISABLE_JIT:
    peek8, poke8 = _plain(ctypes.c_uint8)
    peek16, poke16 = _plain(ctypes.c_uint16)
    peek32, poke32 = _plain(ctypes.c_uint32)
    peek64, poke64 = _plain(ctypes.c_uint64)
    peek_int32, poke_int32 = _plain(ctypes.c_int32)
    prefetch = _nothing
else:
    peek8, poke8 = _compiled(types.uint8)
    peek16, poke16 = _compiled(types.uint16)
    peek32, poke32 = _compiled(types.uint32)
    peek64, poke64 = _compiled(types.uint64)
    peek_int32, poke_int32 = _compiled(types.int32)
    prefetch = _prefetch()

"""Memory by address, for kernels that copy between Arrow buffers and the arena.

An Arrow column reaches a kernel as the address of its values, one integer in a table. An array object would cost a
microsecond to create and more to pass, which would dominate small pushes. The code that writes an address to a table
keeps its buffer alive until the kernel has returned.

`prefetch` requests a cache line ahead; kernels use it if the memory that they access exceeds `NEAR` bytes.
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

ARROW_NULLS, ARROW_OFFSET, ARROW_BUFFERS, ARROW_CHILDREN, ARROW_RELEASE = 8, 16, 40, 48, 64
ARROW_WORDS = 10
"""Fields of an ArrowArray of Arrow's C data interface, in bytes from its start, and its int64s; its length is first."""
NEAR = 1 << 20
"""Bytes that fit in a core's own cache, for which a prefetch costs more than it saves."""


def _plain(kind: Any) -> tuple[Peek, Poke]:
    """Return the accessors of one width for kernels that run as plain Python."""

    def peek(address: int) -> int:
        return int(kind.from_address(int(address)).value)

    def poke(address: int, value: int) -> None:
        kind.from_address(int(address)).value = int(value)

    return peek, poke


def _compiled(kind: Any) -> tuple[Peek, Poke]:
    """Return the accessors of one width, each one machine instruction."""

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
    """Do nothing: plain Python cannot prefetch."""


def _prefetch() -> Ask:
    """Return the function that prefetches the cache line at an address, for reading and writing.

    Any address is allowed; the machine ignores addresses outside of the process.
    """

    @intrinsic
    def prefetch(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            name = "llvm.prefetch.p0i8"
            ask = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), name
            )
            # Arguments: for writing, to all cache levels, data.
            builder.call(ask, [builder.inttoptr(arguments[0], byte), word(1), word(3), word(1)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return prefetch


def _release_plain(array: int) -> None:
    """Release an ArrowArray of Arrow's C data interface."""
    function = ctypes.c_uint64.from_address(int(array) + ARROW_RELEASE).value
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(int(array))


def _release() -> Ask:
    """Return the function that releases an ArrowArray: it calls the function of which the array has the address."""

    @intrinsic
    def release(typing_context: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(64)
            kind = ir.FunctionType(ir.VoidType(), [byte]).as_pointer()
            at = builder.inttoptr(builder.add(arguments[0], word(ARROW_RELEASE)), kind.as_pointer())
            builder.call(builder.load(at), [builder.inttoptr(arguments[0], byte)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return release


prefetch: Ask
release: Ask
if config.DISABLE_JIT:
    peek8, poke8 = _plain(ctypes.c_uint8)
    peek16, poke16 = _plain(ctypes.c_uint16)
    peek32, poke32 = _plain(ctypes.c_uint32)
    peek64, poke64 = _plain(ctypes.c_uint64)
    peek_int32, poke_int32 = _plain(ctypes.c_int32)
    peek_int64, poke_int64 = _plain(ctypes.c_int64)
    prefetch, release = _nothing, _release_plain
else:
    peek8, poke8 = _compiled(types.uint8)
    peek16, poke16 = _compiled(types.uint16)
    peek32, poke32 = _compiled(types.uint32)
    peek64, poke64 = _compiled(types.uint64)
    peek_int32, poke_int32 = _compiled(types.int32)
    peek_int64, poke_int64 = _compiled(types.int64)
    prefetch, release = _prefetch(), _release()

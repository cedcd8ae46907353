"""Named tuples of arrays that Python passes to a kernel as one number, the address of their description.

Python would unwrap some fifty arrays at each call of a kernel of pushes, which takes longer than the work on a few
rows. But the arrays of an engine stay where they are for many pushes. So a tuple is described once: the address of each
array, then its length along each axis. The kernel *opens* the description.

A kernel cannot see whether an address is right. So `TupleDescription` refuses other arrays than the class declares, and
keeps its own alive; `Descriptions` returns the address for exactly the tuple that is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from stairs.kernels.accelerate import Bundle

__all__ = ["Descriptions", "opened"]

T = TypeVar("T")
Arrays = Any
"""A named tuple of arrays, such as an Arena."""


class ArrayKind(NamedTuple):
    """The type and the number of axes of an array."""

    dtype: np.dtype[Any]
    axes: int


def _resolved(hint: Any) -> Any:
    """Return a type without aliases: numpy's `NDArray` is one of the statement `type` since numpy 2.5."""
    while hasattr(alias := get_origin(hint) or hint, "__value__"):
        hint = alias.__value__[arguments] if (arguments := get_args(hint)) else alias.__value__
    return hint


@cache
def kinds_of(cls: type) -> list[ArrayKind]:
    """Return the kinds of the arrays of a class of named tuples, from its annotations; `NDArray` has one axis."""
    kinds = []
    for hint in get_type_hints(cls).values():
        shape, dtype = map(_resolved, get_args(_resolved(hint)))
        # The shape of `NDArray` is `tuple[Any, ...]`, and `Any` before numpy 2.2.
        axes = [axis for axis in get_args(shape) if axis is not Ellipsis] or [Any]
        kinds.append(ArrayKind(np.dtype(get_args(dtype)[0]), len(axes)))
    return kinds


class TupleDescription:
    """The description of a named tuple of arrays, at `address`."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        words = []
        for name, array, kind in zip(type(arrays)._fields, arrays, kinds_of(type(arrays)), strict=True):
            if ArrayKind(array.dtype, array.ndim) != kind or not (array.flags.c_contiguous and array.flags.writeable):
                raise TypeError(f"{name} of a {type(arrays).__name__} is no writable array of {kind} in one piece")
            words += [array.ctypes.data, *array.shape]
        self._words = np.array(words, np.int64)
        self.address = self._words.ctypes.data


class Descriptions:
    """The newest description of each class of named tuples."""

    def __init__(self) -> None:
        self._known: dict[type, TupleDescription] = {}

    def address(self, arrays: Arrays) -> int:
        """Return the address of the description of a named tuple; it holds until the next call with another one."""
        known = self._known.get(type(arrays))
        if known is None or known.arrays is not arrays:
            known = self._known[type(arrays)] = TupleDescription(arrays)
        return known.address


def _plain(cls: type[T], address: int, first: tuple[np.ndarray, ...]) -> T:
    """Return what `opened` returns, for kernels that run as plain Python."""
    words, arrays = address, list(first)
    for dtype, axes in kinds_of(cls)[len(first) :]:
        at, *shape = np.ctypeslib.as_array((ctypes.c_int64 * (1 + axes)).from_address(words)).tolist()
        n_bytes = dtype.itemsize * int(np.prod(shape))
        memory = (ctypes.c_uint8 * n_bytes).from_address(at) if n_bytes else bytearray()
        arrays.append(np.frombuffer(memory, dtype).reshape(shape))
        words += 8 * (1 + axes)
    return cls(*arrays)


def _compiled() -> Callable[..., Any]:
    """Return `opened` for compiled kernels: loads from the description, of which the compiler keeps those it needs."""

    @intrinsic
    def opened(typing_context: Any, cls: Any, address: Any, first: Any) -> Any:
        given = list(first)
        kinds = [types.Array(from_dtype(dtype), axes, "C") for dtype, axes in kinds_of(cls.instance_class)]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, word = list(cgutils.unpack_tuple(builder, arguments[2])), ir.IntType(64)
            words, at = builder.inttoptr(arguments[1], word.as_pointer()), 0
            for kind in kinds[len(given) :]:
                array = context.make_array(kind)(context, builder)
                places = range(at, at + 1 + kind.ndim)
                data, *shape = (builder.load(cgutils.gep_inbounds(builder, words, k)) for k in places)
                at += 1 + kind.ndim
                itemsize = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
                strides = [itemsize]
                for length in shape[:0:-1]:
                    strides.insert(0, builder.mul(strides[0], length))
                data = builder.inttoptr(data, array.data.type)
                populate_array(array, data, shape, strides, itemsize, None)
                values.append(array._getvalue())
            return context.make_tuple(builder, signature.return_type, values)

        return Bundle(tuple(kinds), cls.instance_class)(cls, address, first), generate

    return opened


opened: Callable[..., Any] = _plain if config.DISABLE_JIT else _compiled()
"""Return a named tuple of arrays: opened(class, address of the rest, arrays that come first)."""

"""Plain parts (`stairs.storage.parts`) as JSON with the arrays apart: an array becomes a place in a block.

    null, true, 7, 0.5, "text", […], {"name": …}        as they are
    {"values": [1, 2], "shape": [2]}                    an array of few numbers
    {"block": 3, "start": 0, "shape": [100, 2]}         any other array; `start` in bytes
    {"length": 5, "nulls": 0, "offset": 0, "buffers": [null, [4, 0, 40]], "children": [], "dictionary": null}
                                                        an Arrow array; a buffer is a block, a start, a length

No type is written: the reader states the type that it expects. An array that already lies in the file keeps its block.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.storage.arrays import ALIGNMENT, Block, numbers_in
from stairs.errors import StateError
from stairs.storage.parts import Memory

Array = npt.NDArray[Any]
FEW = 32
"""An array of at most this many numbers is in the JSON and has no block."""
_NUMBERS = {"i": int, "u": int, "f": float, "b": bool}


class PartsWriter:
    """A writer of plain parts as JSON values, which collects the blocks of their arrays.

    place_of  block in which an address lies, and bytes from its beginning; None for memory that is in no block yet
    reused    old block number -> new number, of the blocks that are still used
    fresh     (number, memory) of each new block
    count     blocks numbered so far
    """

    def __init__(self, place_of: Callable[[int], tuple[int, int] | None]) -> None:
        self._place_of = place_of
        self.count = 0
        self.reused: dict[int, int] = {}
        self.fresh: list[tuple[int, memoryview]] = []

    def to_json(self, value: object) -> Any:
        """Return a part as JSON values. Raises TypeError for a value that is not a plain part."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic):
            return self.to_json(value.item())
        if isinstance(value, int | float):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, pa.Array):
            return self._arrow(value.__reduce__()[1][0])
        if isinstance(value, list | tuple):
            return [self.to_json(one) for one in value]
        if isinstance(value, dict):
            if not all(type(name) is str for name in value):
                raise TypeError(f"the names of parts must be strings, not {list(value)}")
            return {name: self.to_json(one) for name, one in value.items()}
        raise TypeError(f"{type(value).__name__} {value!r} is not a JSON value")

    def _array(self, array: Array) -> dict[str, Any]:
        if array.size <= FEW:
            return {"values": array.reshape(-1).tolist(), "shape": list(array.shape)}
        array = np.ascontiguousarray(array)
        block, start, _ = self._place(array.ctypes.data, array.data.cast("B"))
        return {"block": block, "start": start, "shape": list(array.shape)}

    def _arrow(self, data: tuple[Any, ...]) -> dict[str, Any]:
        _, length, nulls, offset, buffers, children, dictionary = data
        return {
            "length": length,
            "nulls": nulls,
            "offset": offset,
            "buffers": [one if one is None else self._buffer(one) for one in buffers],
            "children": [self._arrow(child) for child in children],
            "dictionary": None if dictionary is None else self._arrow(dictionary),
        }

    def _buffer(self, buffer: pa.Buffer) -> list[int]:
        if not buffer.size:
            return [0, 0, 0]
        return list(self._place(buffer.address, memoryview(buffer).cast("B")))

    def _place(self, address: int, memory: memoryview) -> tuple[int, int, int]:
        found = self._place_of(address)
        if found is None:
            self.fresh.append((self._next_number(), memory))
            return self.count - 1, 0, memory.nbytes
        k, start = found
        if k not in self.reused:
            self.reused[k] = self._next_number()
        return self.reused[k], start, memory.nbytes

    def _next_number(self) -> int:
        self.count += 1
        return self.count - 1


class MappedArrays(Memory):
    """The arrays of written parts, read in place from mapped memory.

    blocks  by number, within the memory
    """

    def __init__(self, memory: mmap.mmap, blocks: list[Block]) -> None:
        self._memory = memoryview(memory)
        self._blocks = blocks

    def array(self, place: object, dtype: np.dtype[Any]) -> Array:
        """Return an array over the file, or a new one of few numbers."""
        if not isinstance(place, dict) or not _naturals(place.get("shape")):
            raise StateError(f"{str(place)[:100]} is no array")
        shape, size = tuple(place["shape"]), math.prod(place["shape"])
        if "values" in place:
            values, kind = place["values"], _NUMBERS[dtype.kind]
            if type(values) is not list or len(values) != size or not all(type(value) is kind for value in values):
                raise StateError(f"{str(place)[:100]} is no array of {dtype} and shape {shape}")
            try:
                return np.array(values, dtype).reshape(shape)
            except OverflowError:
                raise StateError(f"{str(place)[:100]} holds numbers that are no {dtype}") from None
        found = self._range([place.get("block"), place.get("start"), size * dtype.itemsize])
        return numbers_in(found, dtype, shape)

    def arrow(self, place: object, kind: pa.DataType) -> pa.Array:
        """Return an Arrow array over the file."""
        try:
            array = pa.lib._restore_array(self._arrow_data(place, pa.nulls(0, kind).__reduce__()[1][0]))
            array.validate()
        except pa.ArrowException as fault:
            raise StateError(f"no array of {kind}: {fault}") from fault
        return array

    def _arrow_data(self, place: object, like: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the fields from which Arrow makes an array; `like` has those of an empty array of the type."""
        kind, _, _, _, buffers, children, dictionary = like
        values: dict[str, Any] = place if isinstance(place, dict) else {}
        numbers = [values.get(name) for name in ("length", "offset")]
        nulls, own, below, words = (values.get(name) for name in ("nulls", "buffers", "children", "dictionary"))
        # A view type may have any number of further buffers.
        views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
        fits = (
            _naturals(numbers)
            and type(nulls) is int
            and type(own) is list
            and (len(own) == len(buffers) or (views and len(own) > len(buffers)))
            and type(below) is list
            and len(below) == len(children)
            and (words is None) == (dictionary is None)
        )
        if not fits or own is None or below is None:
            raise StateError(f"{str(place)[:100]} is no array of {kind}")
        return (
            kind,
            numbers[0],
            nulls,
            numbers[1],
            [None if one is None else self._arrow_buffer(one) for one in own],
            [self._arrow_data(one, child) for one, child in zip(below, children, strict=True)],
            None if dictionary is None else self._arrow_data(words, dictionary),
        )

    def _arrow_buffer(self, place: Any) -> pa.Buffer:
        if place == [0, 0, 0]:
            return pa.py_buffer(b"")
        return pa.py_buffer(self._range(place))

    def _range(self, place: Any) -> memoryview:
        """Return the bytes at a place: block, bytes from its beginning, length in bytes. Raises StateError."""
        if _naturals(place) and len(place) == 3:
            block, start, size = place
            if block < len(self._blocks) and start % ALIGNMENT == 0 and start + size <= self._blocks[block].size:
                at = self._blocks[block].start + start
                return self._memory[at : at + size]
        raise StateError(f"there are no bytes {place} in {len(self._blocks)} blocks")


def _naturals(values: object) -> bool:
    return type(values) is list and all(type(value) is int and value >= 0 for value in values)

"""Plain parts (`stairs.storage.parts`) as blocks and an index, and back: the one form of state as bytes.

    blocks   each from a multiple of 64 on: an array, a buffer of an Arrow column, or a record batch
    index    int64[n, 2]: start and length of each block in the file; then the values as JSON

Files differ in the header before them, and in where the blocks lie: one after the other in a file that is written as a
whole (`eddy.storage.file_kind`), or in gaps of a mapped file, where they stay in place (`eddy.live.file`).

    null, true, 7, 0.5, "text", […], {"name": …}        as they are
    [3, 0, 800]                                         an array or a batch: block, bytes from its beginning, length
    {"values": [1, 2]}                                  an array of few numbers, where blocks stay in place
    {"length": 5, "nulls": 0, "offset": 0, "buffers": [null, [4, 0, 40]], "children": [], "dictionary": null}
                                                        an Arrow array; a buffer is a place like that of an array

No type and no shape is written: the reader states what it expects. Numbers are little-endian. An array that already
lies in the file keeps its block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.storage.arrow_bytes import read_batch
from stairs.memory.arena import Int64s
from stairs.storage.json_form import FormError, parse, shown
from stairs.storage.parts import Memory, Plain

Array = npt.NDArray[Any]
ALIGNMENT = 64
"""Blocks begin at multiples of it, the widest alignment that Arrow asks for."""
PLACE_BYTES = 16
"""Bytes of the index for each block: start and length, int64."""
FEW = 32
"""Where blocks stay in place, an array of at most this many numbers is in the JSON and has no block."""
_NUMBERS = {"i": int, "u": int, "f": float, "b": bool}


class Block(NamedTuple):
    """A range of a file, in bytes."""

    start: int
    size: int


def aligned(n: int) -> int:
    """Return the first multiple of ALIGNMENT that is not below n."""
    return -(-n // ALIGNMENT) * ALIGNMENT


class Encoded:
    """Plain parts as JSON text, with the blocks of their arrays. Raises TypeError for a value that is no plain part.

    text    the JSON
    reused  old block number -> new number, of the blocks that are still used
    fresh   (number, memory) of each new block
    count   number of blocks
    """

    def __init__(self, values: Plain, place_of: Callable[[int], tuple[int, int] | None] | None = None) -> None:
        """Encode; `place_of` is the block in which an address lies and the offset in it, None for other memory."""
        self._place_of = place_of
        self.count = 0
        self.reused: dict[int, int] = {}
        self.fresh: list[tuple[int, memoryview]] = []
        self.text = json.dumps(values, default=self._json, sort_keys=True, separators=(",", ":")).encode()

    def index(self, places: Int64s) -> bytes:
        """Return the index, given start and length of each block: int64[count, 2]."""
        return places.tobytes() + self.text

    def _json(self, value: object) -> Any:
        """Return a value that JSON does not have as JSON values."""
        if isinstance(value, np.ndarray):
            if value.size <= FEW and self._place_of is not None:
                return {"values": value.reshape(-1).tolist()}
            array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            return self._place(array.ctypes.data, array.reshape(-1).view(np.uint8).data)
        if isinstance(value, pa.Array):
            return self._arrow(value.__reduce__()[1][0])
        if isinstance(value, memoryview):
            return self._place(pa.py_buffer(value).address, value)
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} {value!r} is not a JSON value")

    def _arrow(self, data: tuple[Any, ...]) -> Plain:
        _, length, nulls, offset, buffers, children, dictionary = data
        return {
            "length": length,
            "nulls": nulls,
            "offset": offset,
            "buffers": [
                None if buffer is None else self._place(buffer.address, memoryview(buffer).cast("B"))
                for buffer in buffers
            ],
            "children": [self._arrow(child) for child in children],
            "dictionary": None if dictionary is None else self._arrow(dictionary),
        }

    def _place(self, address: int, memory: memoryview) -> list[int]:
        if not memory.nbytes:
            return [0, 0, 0]
        location = None if self._place_of is None else self._place_of(address)
        if location is not None and location[0] in self.reused:
            return [self.reused[location[0]], location[1], memory.nbytes]
        self.count += 1
        if location is None:
            self.fresh.append((self.count - 1, memory))
            return [self.count - 1, 0, memory.nbytes]
        self.reused[location[0]] = self.count - 1
        return [self.count - 1, location[1], memory.nbytes]


def places_in(index: bytes | memoryview, n: int, begin: int, end: int) -> Int64s:
    """Return start and length of each of n blocks, int64[n, 2].

    Raises FormError unless they lie within begin .. end, start at multiples of ALIGNMENT and do not overlap.
    """
    places = np.frombuffer(index, np.int64, 2 * n).reshape(-1, 2)
    starts, sizes = places[np.argsort(places[:, 0])].T
    ends = starts + sizes + -sizes % ALIGNMENT
    # `ends` may overflow where a start or a size is beyond the file.
    inside = (starts >= begin) & (starts <= end) & (sizes > 0) & (sizes <= end) & (ends <= end)
    if not inside.all() or (starts % ALIGNMENT).any() or (starts[1:] < ends[:-1]).any():
        raise FormError(f"blocks lie at {places[:20].tolist()} in a file of {end} bytes")
    return places


def values_in(index: bytes | memoryview, n: int, infinite: bool = False) -> Any:
    """Return the JSON values after the places of n blocks. Raises FormError; see `parse`."""
    return parse(memoryview(index)[n * PLACE_BYTES :], infinite)


class Blocks(Memory):
    """The arrays of encoded parts: in place, or copied if the memory is read-only.

    Numba would compile each kernel again for read-only memory.

    places  the blocks within the memory, by number
    """

    def __init__(self, memory: memoryview, places: Int64s) -> None:
        self._memory, self.blocks = memory, [Block(*place) for place in places.tolist()]

    def array(self, place: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over the file, or a new one."""
        known, kind = math.prod(n for n in shape if n >= 0), dtype.newbyteorder("<")
        if isinstance(place, dict):
            values, number = place.get("values"), _NUMBERS[dtype.kind]
            if type(values) is not list or not all(type(value) is number for value in values):
                raise FormError(f"{shown(place)} is no array of {dtype}")
            try:
                array = np.array(values, dtype)
            except OverflowError:
                raise FormError(f"{shown(place)} holds numbers that are no {dtype}") from None
        else:
            memory = self._range(place)
            if memory.nbytes % kind.itemsize:
                raise FormError(f"{memory.nbytes} bytes are no array of {dtype}")
            array = np.ndarray((memory.nbytes // kind.itemsize,), kind, memory)
            if memory.readonly:
                array = array.astype(dtype)
        if array.size % max(1, known) if -1 in shape else array.size != known:
            raise FormError(f"{array.size} numbers are no array of shape {shape}")
        return array.reshape(shape)

    def batch(self, place: object, schema: pa.Schema) -> pa.RecordBatch:
        """Return a record batch, every array validated."""
        memory = self._range(place)
        return read_batch(pa.py_buffer(bytes(memory) if memory.readonly else memory), schema)

    def arrow(self, place: object, kind: pa.DataType) -> pa.Array:
        """Return an Arrow array over the file."""
        try:
            array = pa.lib._restore_array(self._arrow_data(place, pa.nulls(0, kind).__reduce__()[1][0]))
            array.validate()
        except pa.ArrowException as fault:
            raise FormError(f"no array of {kind}: {fault}") from fault
        return array

    def _arrow_data(self, place: object, like: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the fields from which Arrow makes an array; `like` has those of an empty array of the type."""
        kind, _, _, _, buffers, children, dictionary = like
        values: dict[str, Any] = place if isinstance(place, dict) else {}
        numbers = [values.get(name) for name in ("length", "offset")]
        nulls, extents, below, words = (values.get(name) for name in ("nulls", "buffers", "children", "dictionary"))
        # A view type may have any number of further buffers.
        views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
        fits = (
            _naturals(numbers)
            and type(nulls) is int
            and type(extents) is list
            and (len(extents) == len(buffers) or (views and len(extents) > len(buffers)))
            and type(below) is list
            and len(below) == len(children)
            and (words is None) == (dictionary is None)
        )
        if not fits or extents is None or below is None:
            raise FormError(f"{shown(place)} is no array of {kind}")
        return (
            kind,
            numbers[0],
            nulls,
            numbers[1],
            [None if extent is None else pa.py_buffer(self._range(extent)) for extent in extents],
            [self._arrow_data(part, child) for part, child in zip(below, children, strict=True)],
            None if dictionary is None else self._arrow_data(words, dictionary),
        )

    def _range(self, place: Any) -> memoryview:
        """Return the bytes at a place: block, bytes from its beginning, length in bytes. Raises FormError."""
        if place == [0, 0, 0]:
            return memoryview(bytearray())
        if _naturals(place) and len(place) == 3:
            block, start, size = place
            if block < len(self.blocks) and start % ALIGNMENT == 0 and start + size <= self.blocks[block].size:
                at = self.blocks[block].start + start
                return self._memory[at : at + size]
        raise FormError(f"there are no bytes {shown(place)} in {len(self.blocks)} blocks")


def _naturals(values: object) -> bool:
    return type(values) is list and all(type(value) is int and value >= 0 for value in values)

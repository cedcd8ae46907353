"""Parts come back from blocks and an index as they were, in place or copied, and damaged ones are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.storage.codec import ALIGNMENT, FEW, Blocks, Encoded, places_in, values_in
from eddy.storage.file_kind import SNAPSHOT
from stairs.errors import SnapshotError, StateError
from stairs.storage.json_form import FormError
from stairs.storage.parts import Parts, Plain

DTYPES = (np.int64, np.int32, np.uint8, np.float64, np.bool_)
ARRAYS = st.builds(
    lambda dtype, n, width: (np.arange(n * width) % 2).astype(dtype).reshape(n, width),
    st.sampled_from(DTYPES),
    st.sampled_from((0, 1, 3, FEW, 1000)),
    st.integers(1, 3),
)


def laid(values: Plain, in_place: bool, writable: bool) -> tuple[bytes, int, memoryview]:
    """Return an index, the number of its blocks, and a memory with the blocks from 64 on, as a mapped file has them."""
    encoded = Encoded(values, (lambda _: None) if in_place else None)
    memory, places = bytearray(ALIGNMENT), []
    for _, block in encoded.fresh:
        places.append([len(memory), block.nbytes])
        memory += bytes(block) + bytes(-block.nbytes % ALIGNMENT)
    index = encoded.index(np.array(places, np.int64).reshape(-1, 2))
    return index, encoded.count, memoryview(memory if writable else bytes(memory))


def read(index: bytes, n: int, memory: memoryview) -> Parts:
    return Parts(values_in(index, n, True), Blocks(memory, places_in(index, n, ALIGNMENT, memory.nbytes)), "parts")


@given(st.lists(ARRAYS, max_size=4), st.booleans(), st.booleans())
def test_arrays_come_back(arrays: list[np.ndarray], in_place: bool, writable: bool) -> None:
    names = [f"array {k}" for k in range(len(arrays))]
    parts = read(*laid(dict(zip(names, arrays, strict=True)), in_place, writable))
    for name, array in zip(names, arrays, strict=True):
        for shape in (array.shape, (-1, array.shape[1])):
            loaded = parts.array(name, array.dtype, shape)
            assert loaded.dtype == array.dtype
            assert loaded.tolist() == array.tolist()
            assert loaded.flags.writeable
            assert loaded.flags.c_contiguous
            assert loaded.flags.aligned
        with pytest.raises(StateError, match=f"parts: {name}: .* no array of shape"):
            parts.array(name, array.dtype, (len(array) + 1, array.shape[1]))
    parts.check_read()


def test_mapped_memory_is_read_in_place_and_other_memory_is_copied() -> None:
    numbers, text = np.arange(1000), pa.array(["a text", None] * 500)
    values = {"numbers": numbers, "text": text, "rows": [memoryview(pa.record_batch([text], ["s"]).serialize())]}
    schema = pa.schema([("s", pa.string())])
    for writable in (True, False):
        index, n, memory = laid(values, True, writable)
        whole, parts = np.frombuffer(memory, np.uint8), read(index, n, memory)
        array, loaded = parts.array("numbers", np.int64, (-1,)), parts.arrow("text", pa.string())
        (rows,) = parts.batches("rows", schema, 1000)
        assert loaded.equals(text)
        assert rows.column(0).equals(text)
        assert np.shares_memory(array, whole) == writable
        addresses = range(whole.ctypes.data, whole.ctypes.data + whole.nbytes)
        assert loaded.buffers()[2].address in addresses
        assert (rows.column(0).buffers()[2].address in addresses) == writable


def test_blocks_that_are_used_again_stay_where_they_are() -> None:
    held = np.arange(2000)
    address = held.ctypes.data

    def place_of(at: int) -> tuple[int, int] | None:
        return (7, at - address) if 0 <= at - address < held.nbytes else None

    encoded = Encoded({"a": held[:800], "b": np.arange(50), "c": held[800:]}, place_of)
    assert json.loads(encoded.text) == {"a": [0, 0, 6400], "b": [1, 0, 400], "c": [0, 6400, 9600]}
    assert (encoded.reused, [number for number, _ in encoded.fresh], encoded.count) == ({7: 0}, [1], 2)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", pa.schema([])])
def test_what_is_no_part(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a JSON value"):
        Encoded({"a": [value]})


@pytest.mark.parametrize(
    "place", [[1, 0, 8], [0, 8, 8], [0, 0, 72], [0, 0, -8], [-1, 0, 8], [0, 0], [True, 0, 8], "x", None, 7, [0, 64, 8]]
)
def test_places_stay_in_their_block(place: Any) -> None:
    blocks = Blocks(memoryview(bytes(128)), np.array([[64, 64]]))
    with pytest.raises(FormError, match="there are no bytes"):
        blocks.array(place, np.dtype(np.int64), (-1,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "x"], "is no array of int8"),
        ([1.5], "is no array of int8"),
        ([300], "holds numbers that are no int8"),
        ({}, "is no array of int8"),
        ([1, 2, 3], "3 numbers are no array of shape"),
    ],
)
def test_few_numbers_are_checked(values: Any, message: str) -> None:
    with pytest.raises(FormError, match=message):
        Blocks(memoryview(b""), np.zeros((0, 2), np.int64)).array({"values": values}, np.dtype(np.int8), (-1, 2))


def test_parts_that_nobody_asks_for_are_refused() -> None:
    parts = SNAPSHOT.unpack(SNAPSHOT.pack({"a": 1, "below": {"b": np.arange(3), "c": None}}))
    parts.integer("a")
    with pytest.raises(SnapshotError, match="'below' is unknown"):
        parts.check_read()
    parts.part("below").array("b", np.int64, (3,))
    with pytest.raises(SnapshotError, match="the snapshot contradicts itself: below: 'c' is unknown; it was not"):
        parts.check_read()

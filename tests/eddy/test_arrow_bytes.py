"""Record batches as bytes: every type is read back unchanged, and damage is detected."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from eddy.storage.arrow_bytes import ArrowBytesError, read_batch, write_rows
from eddy.storage.codec import Blocks, Encoded
from stairs.errors import StateError
from stairs.plain_types import plain
from stairs.storage.parts import Parts

COLUMNS = [
    pa.array([1, None, 3], pa.int8()),
    pa.array([True, None, False]),
    pa.nulls(3),
    pa.array(["a", None, "ä"]),
    pa.array(["a", None, "ä"], pa.large_string()),
    pa.array(["a", None, "much longer than a view holds"], pa.string_view()),
    pa.array([b"a", None, b"c"], pa.binary(1)),
    pa.array([Decimal("1.5"), None, Decimal("-2.25")], pa.decimal256(40, 2)),
    pa.array([datetime.date(2000, 1, 1), None, datetime.date(2001, 1, 1)], pa.date64()),
    pa.array([1, None, 3], pa.time32("s")),
    pa.array([1, None, 3], pa.time64("ns")),
    pa.array([1, None, 3], pa.duration("us")),
    pa.array(["x", None, "x"]).dictionary_encode(),
    pa.array([["x"], None, ["y", "x"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.array([["x"], None, ["y", "x"]], pa.large_list(pa.string())),
    pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    pa.array([{"a": "x", "b": [["k"]]}, None, {"a": None, "b": []}]),
    pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.large_string())),
    pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["x", "y"])),
    pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]),
]


# A batch is one message, so it has no dictionaries: rows are saved in plain types (`stairs.plain_types`).
WRITTEN = [column for column in COLUMNS if "dictionary" not in str(column.type)]


@pytest.mark.parametrize("column", WRITTEN, ids=lambda column: str(column.type))
def test_every_type_comes_back(column: pa.Array) -> None:
    schema = pa.schema([("c", column.type)], metadata={"some": "thing"})
    written = write_rows(schema, [[column], [column.slice(1, 1)]], "rows")
    again = [read_batch(pa.py_buffer(data), schema) for data in written]
    assert [batch.schema for batch in again] == [schema] * 2
    assert again[0].column(0).equals(column)
    assert again[1].column(0).equals(column.slice(1, 1))


def test_every_type_is_plain_or_becomes_so() -> None:
    kinds = {plain(column.type) for column in COLUMNS if not pa.types.is_union(column.type)}
    assert not [kind for kind in kinds if "dictionary" in str(kind)]


@given(st.integers(0, 1 << 32))
def test_bytes_altered_at_random_are_refused_or_safe(seed: int) -> None:
    rng = random.Random(seed)
    column = rng.choice(WRITTEN)
    schema = pa.schema([("c", column.type)])
    (written,) = write_rows(schema, [[column]], "rows")
    data = bytearray(written)
    for _ in range(rng.choice((1, 2, 4))):
        at = rng.randrange(len(data))
        data[at : at + 4] = rng.choice((rng.randbytes(4), bytes(4), b"\xff" * 4, bytes([data[at] ^ 1])))
    try:
        batch = read_batch(pa.py_buffer(bytes(data)), schema)
    except ArrowBytesError:
        event("refused")
        return
    event("read")
    if len(batch) <= 1000:
        # The concatenation reads every offset and index.
        pa.concat_arrays([batch.column(0), batch.column(0)]).nbytes  # noqa: B018


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_are_refused_unread(compression: str) -> None:
    batch = pa.record_batch({"c": ["x"] * 1000})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()[batch.schema.serialize().size :]
    with pytest.raises(ArrowBytesError, match="it is compressed"):
        read_batch(body, batch.schema)


def test_a_dictionary_is_refused() -> None:
    batch = pa.record_batch({"c": pa.array(["x"] * 1000).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(ArrowBytesError, match="a message of type 'dictionary', which this library does not write"):
        read_batch(sink.getvalue()[batch.schema.serialize().size :], batch.schema)


def test_more_rows_than_there_may_be() -> None:
    schema = pa.schema([("c", pa.null())])
    encoded = Encoded({"rows": write_rows(schema, [[pa.nulls(1 << 30)], [pa.nulls(1)]], "rows")})
    memory = b"".join(bytes(block).ljust(1 << 10, b"\0") for _, block in encoded.fresh)
    places = np.array([[k << 10, block.nbytes] for k, block in encoded.fresh])
    parts = Parts(json.loads(encoded.text), Blocks(memoryview(memory), places), "parts")
    assert sum(map(len, parts.batches("rows", schema, (1 << 30) + 1))) == (1 << 30) + 1
    with pytest.raises(StateError, match="parts: rows: it has 1073741825 rows, at most 5 were written"):
        parts.batches("rows", schema, 5)


@pytest.mark.parametrize("data", [b"", b"\0" * 3, b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff" * 64])
def test_what_is_no_batch(data: bytes) -> None:
    schema = pa.schema([("c", pa.int64())])
    with pytest.raises(ArrowBytesError):
        read_batch(pa.py_buffer(data), schema)

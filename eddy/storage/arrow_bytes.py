"""Record batches as bytes, and bytes as record batches of which every array has been validated.

The bytes are one message of Arrow IPC without its schema; the reader has the schema. Therefore no schema comes from a
file, and no extension type whose class would deserialize something.

Arrow does not validate what it reads: offsets of strings and lists, indices of dictionaries and sizes of buffers can
have any value, and the compute functions follow them unchecked. The reader here validates all of them. It refuses
compressed batches, which this library does not write, before it decompresses anything: a few bytes could ask for any
amount of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa

from eddy.storage.valid_arrays import check_array, layout
from stairs.errors import EddyError, StateError
from stairs.storage.json_form import FormError

_BATCH = 3
"""The type of the message of a record batch in Arrow's Message.fbs."""


class ArrowBytesError(FormError):
    """The bytes, or the arrays to write, are no valid batch of the schema."""


def write_rows(
    schema: pa.Schema, batches: Iterable[Sequence[pa.Array]], what: str, error: type[EddyError] = StateError
) -> list[memoryview]:
    """Return batches, each given as its columns in types without dictionaries, as bytes. O(bytes).

    Raises `error`, which begins with `what`, for an invalid array.
    """
    written = []
    for columns in batches:
        batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
        try:
            validate(batch)
        except ArrowBytesError as problem:
            raise error(
                f"{what}, {problem}: such a value was pushed, and what is saved with it could not be restored; filter"
                " it out or correct it before it is pushed"
            ) from problem
        written.append(memoryview(batch.serialize()))
    return written


def read_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch that `RecordBatch.serialize` wrote, in place, every array validated. O(bytes).

    Raises ArrowBytesError for any other bytes.
    """
    try:
        message = pa.ipc.read_message(body)
        if message.type != "record batch":
            raise ArrowBytesError(f"it holds a message of type {message.type!r}, which this library does not write")
        if is_compressed(message.metadata.to_pybytes()):
            raise ArrowBytesError("it is compressed, and this library does not write compressed batches")
        batch = pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, OSError, EOFError, MemoryError) as problem:
        raise ArrowBytesError(f"Arrow cannot read it ({problem})") from problem
    validate(batch)
    return batch


def validate(batch: pa.RecordBatch) -> None:
    """Raise ArrowBytesError unless all offsets, indices and sizes stay within the buffers of the columns. O(bytes).

    Text that is not UTF-8, a decimal beyond its precision and a time beyond its day are accepted: users can push them,
    and they cannot lead out of a buffer.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            check_array(column, layout(column.type))
        except (pa.ArrowException, OSError) as problem:
            raise ArrowBytesError(f"column {field.name!r}: {problem}") from problem


def is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a batch, a flatbuffer, names a compression. Raises ArrowBytesError if damaged.

    Tables of Arrow's Message.fbs: field 1 of a Message is the type of its header, 2 the header; field 3 of a
    RecordBatch is the compression.
    """
    try:
        message = _follow(metadata, 0)
        kind = metadata[message + _field(metadata, message, 1)]
        if kind != _BATCH:
            raise ArrowBytesError(f"it holds a message of type {kind}, which this library does not write")
        return bool(_field(metadata, _follow(metadata, message + _field(metadata, message, 2)), 3))
    except (struct.error, IndexError) as problem:
        raise ArrowBytesError(f"the metadata of a message is damaged ({problem})") from problem


def _follow(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field from the beginning of its table, 0 = the field is absent."""
    entries = table - int(struct.unpack_from("<i", data, table)[0])
    if entries < 0:
        raise ArrowBytesError("the metadata of a message is damaged")
    (size,) = struct.unpack_from("<H", data, entries)
    at = 4 + 2 * number
    return int(struct.unpack_from("<H", data, entries + at)[0]) if at < size else 0

"""Record batches as bytes, and bytes as record batches of which every array has been validated.

The bytes are an Arrow IPC stream without the schema at its beginning; the reader has the schema and prepends it.
Therefore no schema comes from a file, and no extension type whose class would deserialize something.

Arrow does not validate what it reads: offsets of strings and lists, indices of dictionaries and sizes of buffers can
have any value, and the compute functions follow them unchecked. The readers here validate all of them. They refuse
compressed batches, which this library does not write, before they decompress anything: a few bytes could ask for any
amount of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa

from eddy.storage.valid_arrays import check_array, layout

_DICTIONARY, _BATCH = 2, 3
"""Types of messages in Arrow's Message.fbs."""


class ArrowBytesError(ValueError):
    """The bytes, or the arrays to write, are not valid batches of the schema."""


def write_batches(schema: pa.Schema, batches: Iterable[Sequence[pa.Array]]) -> memoryview:
    """Return batches, each given as its columns, as bytes. Raises ArrowBytesError for an invalid array. O(bytes)."""
    schema = schema.remove_metadata()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for columns in batches:
            batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
            validate(batch)
            writer.write_batch(batch)
    return memoryview(sink.getvalue())[schema.serialize().size :]


def read_batches(section: memoryview, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
    """Return the batches that `write_batches` wrote, copied, every array validated. O(bytes).

    most   upper bound on the rows of all batches together

    Raises ArrowBytesError for any other bytes.
    """
    begin = schema.remove_metadata().serialize().to_pybytes()
    data = pa.py_buffer(b"".join([begin, section]))
    try:
        _check_messages(data.slice(len(begin)))
        with pa.ipc.open_stream(data) as reader:
            if reader.schema.types != schema.types:
                raise ArrowBytesError(
                    f"Arrow reads {reader.schema.types}, not {schema.types}; register the extension types that it was"
                    " written with"
                )
            batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader]
    except (pa.ArrowException, OSError, MemoryError) as problem:
        raise ArrowBytesError(f"Arrow cannot read it ({problem})") from problem
    rows = sum(batch.num_rows for batch in batches)
    if rows > most:
        raise ArrowBytesError(f"it has {rows} rows, at most {most} were written")
    for batch in batches:
        validate(batch)
    return batches


def read_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch that `RecordBatch.serialize` wrote, in place, every array validated. O(bytes).

    Raises ArrowBytesError for any other bytes.
    """
    try:
        message = pa.ipc.read_message(body)
        _check_message(message)
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


def _check_messages(data: pa.Buffer) -> None:
    """Check the metadata of all messages, without reading their bodies."""
    reader = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        _check_message(message)


def _check_message(message: pa.ipc.Message) -> None:
    if message.type not in ("record batch", "dictionary"):
        raise ArrowBytesError(f"it holds a message of type {message.type!r}, which this library does not write")
    if is_compressed(message.metadata.to_pybytes()):
        raise ArrowBytesError("it is compressed, and this library does not write compressed batches")


def is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a message, a flatbuffer, names a compression. Raises ArrowBytesError if damaged.

    Tables of Arrow's Message.fbs: field 1 of a Message is the type of its header, 2 the header; field 1 of a
    DictionaryBatch is a RecordBatch, and field 3 of that the compression.
    """
    try:
        message = _follow(metadata, 0)
        kind = metadata[message + _field(metadata, message, 1)]
        batch = _follow(metadata, message + _field(metadata, message, 2))
        if kind == _DICTIONARY:
            batch = _follow(metadata, batch + _field(metadata, batch, 1))
        elif kind != _BATCH:
            raise ArrowBytesError(f"it holds a message of type {kind}, which this library does not write")
        return bool(_field(metadata, batch, 3))
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

"""Record batches as bytes in a file, and back again with all of it validated.

What is written is an Arrow IPC stream without the schema at its beginning: who reads has the schema, and puts it there
again. So no schema comes from a file, and with it no extension type whose class would be asked to read something.

Arrow does not validate what it reads: the offsets of strings and lists, the indices of dictionaries and the sizes of
buffers may say anything, and whatever works on the arrays follows them without a look. Compressed batches, which
this library does not write, are refused before they are read: a few bytes could ask for any amount of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

_DICTIONARY, _BATCH = 2, 3
"""Numbers of messages in Arrow's Message.fbs."""


class ArrowBytesError(ValueError):
    """The bytes, or the arrays to be written, are no valid batches of the schema."""


def write_batches(schema: pa.Schema, batches: Iterable[Sequence[pa.Array]]) -> memoryview:
    """Return batches, given as their columns, as bytes. Raises ArrowBytesError for an array that is invalid."""
    schema = schema.remove_metadata()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for columns in batches:
            batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
            validate(batch)
            writer.write_batch(batch)
    return memoryview(sink.getvalue())[schema.serialize().size :]


def read_batches(section: memoryview, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
    """Return the batches of `write_batches`, in memory of their own, every array validated. O(bytes).

    most   rows that they have at most, all together

    Raises ArrowBytesError for bytes that are anything else.
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
        raise ArrowBytesError(f"it has {rows} rows, there are {most} at most")
    for batch in batches:
        validate(batch)
    return batches


def read_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch that `RecordBatch.serialize` wrote, where it lies, every array validated. O(bytes).

    Raises ArrowBytesError for bytes that are anything else.
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
    """Raise ArrowBytesError unless nobody who works on the columns can leave their buffers. O(bytes).

    A text that is not UTF-8, a decimal beyond its precision and a time beyond its day pass: they may have been pushed,
    and their bytes are safe.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            column.view(_layout(column.type)).validate(full=True)
        except (pa.ArrowException, OSError) as problem:
            raise ArrowBytesError(f"column {field.name!r}: {problem}") from problem


def _layout(kind: pa.DataType) -> pa.DataType:
    """Return a type whose values lie in memory alike, and may be any bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return _layout(kind.storage_type)
    if pt.is_string(kind):
        return pa.binary()
    if pt.is_large_string(kind):
        return pa.large_binary()
    if pt.is_string_view(kind):
        return pa.binary_view()
    if pt.is_date64(kind) or pt.is_time64(kind):
        return pa.int64()
    if pt.is_time32(kind):
        return pa.int32()
    if pt.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _layout(kind.value_type))
    if pt.is_struct(kind):
        return pa.struct([own.with_type(_layout(own.type)) for own in kind])
    if pt.is_map(kind):
        return pa.map_(_layout(kind.key_type), kind.item_field.with_type(_layout(kind.item_type)))
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_layout(kind.value_type)))
    if pt.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_layout(kind.value_type)))
    return kind


def _check_messages(data: pa.Buffer) -> None:
    """Look at the messages without reading what they hold."""
    reader = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        _check_message(message)


def _check_message(message: pa.ipc.Message) -> None:
    if message.type not in ("record batch", "dictionary"):
        raise ArrowBytesError(f"it holds a message of type {message.type!r}, which is not written")
    if is_compressed(message.metadata.to_pybytes()):
        raise ArrowBytesError("it is compressed, which is not written")


def is_compressed(metadata: bytes) -> bool:
    """Say whether the metadata of a message, a flatbuffer, names a compression. Raises ArrowBytesError for no message.

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
            raise ArrowBytesError(f"it holds a message of type {kind}, which is not written")
        return bool(_field(metadata, batch, 3))
    except (struct.error, IndexError) as problem:
        raise ArrowBytesError(f"the metadata of a message is damaged ({problem})") from problem


def _follow(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return where in a table a field lies, counted from its beginning, 0 = it is left out."""
    entries = table - int(struct.unpack_from("<i", data, table)[0])
    if entries < 0:
        raise ArrowBytesError("the metadata of a message is damaged")
    (size,) = struct.unpack_from("<H", data, entries)
    at = 4 + 2 * number
    return int(struct.unpack_from("<H", data, entries + at)[0]) if at < size else 0

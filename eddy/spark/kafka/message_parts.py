"""The parts of a message other than its value, as columns: key, headers, timestamp, partition and offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from confluent_kafka import Message

MessagePart = Literal["key", "headers", "timestamp", "partition", "offset"]
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", "UTC"),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""The type of each part in the schema of a stream."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_parts(schema: pa.Schema, parts: Mapping[str, MessagePart]) -> pa.Schema:
    """Return the schema with a column for each part; `parts` has the part of a column.

    A key may be a column of text in the schema. Raises SparkJoinError for a part that does not exist, and for a column
    of another type.
    """
    for name, part in parts.items():
        if part not in TYPES:
            raise SparkJoinError(f"message: {name!r} is {part!r}; the parts of a message are {', '.join(TYPES)}")
        if name not in schema.names:
            schema = schema.append(pa.field(name, TYPES[part]))
        allowed = [TYPES[part], *([pa.string()] if part == "key" else [])]
        if schema.field(name).type not in allowed:
            types = " or ".join(map(str, allowed))
            raise SparkJoinError(f"message: column {name!r} has type {schema.field(name).type}; a {part} is {types}")
    return schema


def part_column(messages: Sequence[Message], part: str, kind: pa.DataType) -> pa.Array:
    """Return a part of each message. Raises ArrowInvalid for a key that is no text, if the column has text."""
    return pa.array([_part(message, part) for message in messages], TYPES[part]).cast(kind)


def _part(message: Message, part: str) -> Any:
    match part:
        case "key":
            return message.key()
        case "headers":
            headers: Any = message.headers()  # pairs, unlike the annotation
            return None if headers is None else [{"name": name, "value": value} for name, value in headers]
        case "timestamp":
            available, milliseconds = message.timestamp()
            return _EPOCH + timedelta(milliseconds=milliseconds) if available else None
        case "partition":
            return message.partition()
    return message.offset()

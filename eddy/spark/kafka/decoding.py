"""Messages as rows: JSON objects, or Arrow IPC streams of any number of rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.json

from eddy.spark.types import spark_type

Decode = Callable[[Sequence[bytes], pa.Schema], pa.Table]


_LONGEST = 200
"""Maximal number of characters of a reason: a message may have megabytes, and a decoder may quote it."""


def shortened(why: str) -> str:
    """Return the reason of a failure in one line of bounded length."""
    line = " ".join(why.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


class NotDecodedError(Exception):
    """A message cannot be decoded. `message` is its position among the given messages."""

    def __init__(self, message: int, why: str) -> None:
        super().__init__(why)
        self.message = message


def decode_json(messages: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Return a row for each message, a JSON object.

    Fields that the schema lacks are ignored, and fields that a message lacks are null. Times and dates are text in the
    form of ISO 8601, decimals numbers or text. Raises NotDecodedError.
    """
    if not messages:
        return schema.empty_table()
    try:
        return _json_rows(b"\n".join(messages), len(messages), schema)
    except pa.ArrowException as problem:
        for number, message in enumerate(messages):
            try:
                _json_rows(message, 1, schema)
            except pa.ArrowException as why:
                raise NotDecodedError(number, str(why)) from why
        raise NotDecodedError(0, str(problem)) from problem


def _json_rows(text: bytes, rows: int, schema: pa.Schema) -> pa.Table:
    # Arrow reads only numbers as dates; dates as text must be cast.
    wire = pa.schema([(f.name, pa.string() if pa.types.is_date(f.type) else f.type) for f in schema])
    table = pyarrow.json.read_json(
        io.BytesIO(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(wire, newlines_in_values=True, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{rows} messages hold {table.num_rows} objects; each message must hold one")
    return table.cast(schema)


def decode_arrow(messages: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Return the rows of messages that are Arrow IPC streams, with at least the columns of the schema.

    Raises NotDecodedError.
    """
    tables = [schema.empty_table()]
    for number, message in enumerate(messages):
        try:
            table = pa.ipc.open_stream(message).read_all().select(schema.names)
            table.validate(full=True)
            for wanted, given in zip(schema, table.schema, strict=True):
                if spark_type(given.type) != wanted.type:
                    raise pa.ArrowInvalid(f"column {wanted.name!r} has type {given.type}, not {wanted.type}")
            tables.append(table.cast(schema))
        except (pa.ArrowException, KeyError) as why:
            raise NotDecodedError(number, str(why)) from why
    return pa.concat_tables(tables)


DECODERS: dict[str, Decode] = {"json": decode_json, "arrow": decode_arrow}
"""Encodings by name."""

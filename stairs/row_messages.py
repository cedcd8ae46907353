"""Tables of few rows, each made from one message of Arrow's IPC format.

An array object costs a microsecond, and a table another for each of its arrays, more than the values of few rows. A
message has all columns in one buffer, after a header that depends on the schema and the number of rows only, and Arrow
reads it in one call, without a copy. So headers are kept, for numbers of rows that are multiples of 64; a table is a
slice of the rows that its message has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.gathered import ColumnId
from stairs.kernels.payload import gather_message
from stairs.payload import Payload, aligned

FEW = 4096
"""Rows beyond which a table costs much less than its values."""


class Header(NamedTuple):
    """The part of a message before its values: its bytes, their address and number, and the size of the whole message.

    It depends on the number of rows.
    """

    array: npt.NDArray[np.uint8]
    address: int
    header_bytes: int
    message_bytes: int


class RowMessages:
    """Makes tables of some columns of a payload: `columns` are those of `schema`, in the types of `Payload.kinds`."""

    def __init__(self, payload: Payload, columns: Sequence[ColumnId], schema: pa.Schema) -> None:
        self._payload, self._columns, self._schema = payload, tuple(columns), schema
        self._streams = len(payload.kinds)
        self._known: tuple[int, npt.NDArray[np.int64] | None] = -1, None
        """The layout of the payload, and what describes the columns in it."""
        self._headers: dict[int, Header] = {}

    def table(self, ids: npt.NDArray[np.int32], n: int) -> pa.Table | None:
        """Return the columns of the components of n results; `ids` as in `Payload.gather`.

        None if there are too many rows, or if a column is no plain ring now (`Payload.described`).
        """
        payload = self._payload
        if self._known[0] != payload.laid_out:
            self._known = payload.laid_out, payload.described(self._columns)
        described = self._known[1]
        if described is None or n > FEW:
            return None
        room = aligned(n)
        header = self._headers.get(room) or self._header(room)
        memory = pa.allocate_buffer(header.message_bytes)
        gather_message(described, ids, self._streams, n, header.address, header.header_bytes, memory.address, room)
        rows = pa.ipc.read_record_batch(memory, self._schema)
        return pa.Table.from_batches([rows if n == room else rows.slice(0, n)])

    def _header(self, room: int) -> Header:
        """Return the header of messages of `room` rows, padded so that the values begin at a cache line."""
        sizes = [room * kind.bit_width // 8 for kind in self._schema.types]
        columns = [
            pa.Array.from_buffers(kind, room, [None, pa.py_buffer(bytes(size))])
            for kind, size in zip(self._schema.types, sizes, strict=True)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize()
        header = np.frombuffer(message, np.uint8, message.size - sum(sizes))
        # A message begins with its mark and the length of its metadata, which may end with any padding.
        padded = np.zeros(aligned(len(header)), np.uint8)
        padded[: len(header)] = header
        padded[4:8].view(np.int32)[:] += len(padded) - len(header)
        known = Header(padded, padded.ctypes.data, len(padded), len(padded) + sum(sizes))
        self._headers[room] = known
        return known

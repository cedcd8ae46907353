"""Tables of few rows: slices of a *block*, which has room for the rows of several tables.

An array object costs a microsecond, and a table another for each of its arrays, more than the values of few rows. A
slice of a table costs one microsecond in all. So a table is made with room for the rows of about SHARED tables like the
one that is asked for, and each of these gets the next rows of it, from a multiple of 64 on. Nobody sees the rows that
are still to be written. A table keeps its block in memory: SHARED times its own bytes or so.

A block is one message of Arrow's IPC format, which has all columns in one buffer, after a header that depends on the
schema and the number of rows only. Arrow reads it in one call, without a copy, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.gathered import ColumnId
from stairs.kernels.payload import gather
from stairs.payload import Payload
from stairs.rings import aligned

FEW = 4096
"""Rows beyond which a table costs much less than its values."""
SHARED, MOST = 8, 2 * FEW
"""Tables that share a block; rows of a block at most."""


class MessageHeader(NamedTuple):
    """The part of a message before its values: its bytes, their number, and the size of the whole message.

    It depends on the number of rows.
    """

    array: npt.NDArray[np.uint8]
    header_bytes: int
    message_bytes: int


@dataclass(slots=True)
class ResultBlock:
    """Room for the rows of several tables.

    rows     the table of all rows
    address  where the values of the first column begin; those of the others follow
    room     number of rows
    taken    rows that tables have
    """

    rows: pa.Table
    address: int
    room: int
    taken: int = 0


class ResultBlocks:
    """Makes tables of some columns of a payload: `columns` are those of `schema`, in the types of `Payload.kinds`."""

    def __init__(self, payload: Payload, columns: Sequence[ColumnId], schema: pa.Schema) -> None:
        self._payload, self._columns, self._schema = payload, tuple(columns), schema
        self._streams = len(payload.kinds)
        self._known: tuple[int, npt.NDArray[np.int64] | None] = -1, None
        """The layout of the payload, and what describes the columns in it."""
        self._headers: dict[int, MessageHeader] = {}
        # Arrow cannot make empty arrays of every type.
        self._block = ResultBlock(pa.Table.from_batches([], schema), 0, 0)

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
        block, room = self._block, aligned(n)
        if block.taken + room > block.room:
            self._block = block = self._new_block(min(SHARED * room, MOST))
        at = block.taken
        gather(described, ids, self._streams, n, block.address, block.room, at)
        block.taken = at + room
        return block.rows.slice(at, n)

    def _new_block(self, room: int) -> ResultBlock:
        header = self._headers.get(room) or self._header(room)
        memory = pa.allocate_buffer(header.message_bytes)
        np.frombuffer(memory, np.uint8)[: header.header_bytes] = header.array
        rows = pa.Table.from_batches([pa.ipc.read_record_batch(memory, self._schema)])
        return ResultBlock(rows, memory.address + header.header_bytes, room)

    def _header(self, room: int) -> MessageHeader:
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
        known = MessageHeader(padded, len(padded), len(padded) + sum(sizes))
        self._headers[room] = known
        return known

"""Tables of few rows, each made from one message of Arrow's IPC format.

An array object costs a microsecond, and a table another for each of its arrays, more than the values of few rows. A
message has all columns in one buffer, after a header that depends on the schema and the number of rows only, and Arrow
reads it in one call, without a copy. So headers are kept, for numbers of rows that are multiples of 64; a table is a
slice of the rows that its message has room for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.gathered import ColumnId
from stairs.kernels.payload import gather
from stairs.payload import Payload, aligned

FEW = 4096
"""Rows beyond which a table costs much less than its values."""


class RowMessages:
    """Makes tables of some columns of a payload: `columns` are those of `schema`, in the types of `Payload.kinds`."""

    def __init__(self, payload: Payload, columns: Sequence[ColumnId], schema: pa.Schema) -> None:
        self._payload, self._columns, self._schema = payload, tuple(columns), schema
        self._streams = len(payload.kinds)
        self._known: tuple[int, npt.NDArray[np.int64] | None] = -1, None
        """The layout of the payload, and what describes the columns in it."""
        self._headers: dict[int, tuple[memoryview, int, int]] = {}

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
        header, start, size = self._headers.get(room) or self._header(room)
        memory = pa.allocate_buffer(size)
        memoryview(memory)[: len(header)] = header
        gather(described, ids, self._streams, n, memory.address + len(header), room)
        rows = pa.ipc.read_record_batch(memory.slice(start), self._schema)
        return pa.Table.from_batches([rows.slice(0, n)])

    def _header(self, room: int) -> tuple[memoryview, int, int]:
        """Return what precedes the values in messages of `room` rows, where the message starts, and its end.

        It starts so that its values begin at a cache line.
        """
        sizes = [room * kind.bit_width // 8 for kind in self._schema.types]
        columns = [
            pa.Array.from_buffers(kind, room, [None, pa.py_buffer(bytes(size))])
            for kind, size in zip(self._schema.types, sizes, strict=True)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize()
        header = message.slice(0, message.size - sum(sizes)).to_pybytes()
        start = -len(header) % 64
        # As Arrow's memory is seen from Python: signed bytes.
        padded = memoryview(bytes(start) + header).cast("b")
        self._headers[room] = known = padded, start, start + message.size
        return known

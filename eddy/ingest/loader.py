"""Loads the rows of a push to where the kernels read them: keys as words, event times and payload in their rings.

Columns whose memory already has the layout of their target (64-bit integer keys and payload of fixed width, both
without nulls) are copied by one kernel call for each batch, which reads their addresses from Arrow's C data interface:
an array object for each column would cost more than the rows of a small push. The other columns go through Arrow, one
by one. What depends on the query or on the layout of the rings alone is computed once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Times
from eddy.ingest.keys import KeyEncoder, compared_values
from eddy.query.query import Query
from stairs.errors import InputError
from stairs.kernels.payload import I_FIELDS, I_LEFT, copy_batch, copy_in
from stairs.memory.arena import Int64s
from stairs.modules import Modules
from stairs.payload import Payload, fixed_width, value_buffer
from stairs.plain_types import TOO_LONG

# Arrow's C data interface: the address in a capsule named "arrow_array".
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True)
class _Key:
    """A key of a stream: attribute, class, encoder, and the column whose values are the words (-1 = none)."""

    attribute: int
    by: int
    encoder: KeyEncoder
    plain: int


class Source:
    """The layout of one stream: its keys, and its payload columns.

    keys      the keys of the stream
    payload   positions of the payload columns in the schema
    widths    per payload column its bytes a value, 0 = stored as Arrow arrays
    bools     per payload column whether it is boolean
    scans     the scan classes of the stream, each with its position in the class
    compared  rings of values that comparisons read, other than event times: (ring, column, type)
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        payload: Sequence[str],
        keys: Iterable[tuple[int, int, KeyEncoder]],
        scans: Sequence[tuple[int, int]] = (),
        compared: Sequence[tuple[int, str, pa.DataType]] = (),
    ) -> None:
        self.name, self.scans, self.compared = name, scans, compared
        self.keys = []
        for attribute, by, encoder in keys:
            plain = -1
            if encoder.plain is not None and schema.field(encoder.plain).type == encoder.types[0]:
                plain = schema.get_field_index(encoder.plain)
            self.keys.append(_Key(attribute, by, encoder, plain))
        self.payload = [schema.get_field_index(column) for column in payload]
        self.widths = [fixed_width(schema.field(k).type) for k in self.payload]
        self.bools = [pa.types.is_boolean(schema.field(k).type) for k in self.payload]


def sources_of(query: Query, columns: list[list[str]]) -> list[Source]:
    """Return the layout of each stream of a query; `columns[i]` are the names of the payload columns of stream i."""
    graph, found, x = query.graph, [], 0
    for i, stream in enumerate(query.streams):
        keys = []
        for c in graph.attributes[i]:
            if c not in graph.scans:
                keys.append(
                    (x, c, KeyEncoder(stream.name, query.classes[c].columns[stream.name], query.classes[c].types))
                )
            x += 1
        scans = [(c, graph.members[c].index(i)) for c in graph.attributes[i] if c in graph.scans]
        compared = [
            (value.ring, column, kind)
            for (name, column, kind), value in query.values.items()
            if name == stream.name and not (graph.timed and value.ring == 0)
        ]
        found.append(Source(stream.name, stream.schema, columns[i], keys, scans, compared))
    return found


class _Columns(NamedTuple):
    """Keys and payload columns of one stream, as they are loaded in one layout of the payload.

    copies   int64[n, I_FIELDS], those that one call copies
    copied   the same as keys, or numbers of payload columns
    others   those that go through Arrow, one by one
    """

    copies: Int64s
    copied: list[_Key | int]
    others: list[_Key | int]


class Loader:
    """The loader of some streams, each with its layout."""

    def __init__(self, sources: Sequence[Source], modules: Modules, payload: Payload) -> None:
        self._modules, self._payload = modules, payload
        self._sources = sources
        self._known: tuple[int, list[_Columns]] = -1, []
        """The layout of the payload, and the columns of each stream in it."""

    def load(self, arrivals: Arrivals) -> None:
        """Write the rows of the current push. Raises InputError for a value that does not fit the type of its class."""
        for i, batch in enumerate(arrivals.batches):
            if batch is not None:
                self._stream(i, batch, arrivals.times[i])

    def _columns(self, i: int) -> _Columns:
        """Return the columns of stream i in the present layout."""
        source, payload, copies = self._sources[i], self._payload, []
        copied: list[_Key | int] = []
        others: list[_Key | int] = []
        for key in source.keys:
            if key.plain >= 0:
                copies.append((key.plain, 8, 0, self._modules.words_before[key.attribute], 0))
            (copied if key.plain >= 0 else others).append(key)
        for k, (at, width) in enumerate(zip(source.payload, source.widths, strict=True)):
            plain = width and not source.bools[k] and not payload.keeps_nulls(i, k)
            if plain:
                copies.append((at, width, payload.addresses[i, k], payload.room[i] - 1, 0))
            (copied if plain else others).append(k)
        return _Columns(np.array(copies, np.int64).reshape(-1, I_FIELDS), copied, others)

    def _stream(self, i: int, batch: pa.RecordBatch, times: Times | None) -> None:
        modules, source, rows = self._modules, self._sources[i], len(batch)
        for ring, name, kind in source.compared:
            values = compared_values(source.name, name, batch, kind, modules.dead_rows(i))
            modules.set_values(i, ring, values, modules.ring_slices(i, rows))
        for c, side in source.scans:
            # Arrival numbers identify the tuples of one stream.
            np.copyto(modules.key_words(i, c), 2 * (modules.first_arrival(i) + np.arange(rows)) + side)
        if times is not None:
            modules.set_values(i, 0, times, modules.ring_slices(i, rows))
        if self._known[0] != self._payload.laid_out:
            # Also within a push: the first null of a column moves the rings.
            self._known = self._payload.laid_out, [self._columns(j) for j in range(len(self._sources))]
        copies, copied, others = self._known[1][i]
        if copied:
            _, exported = batch.__arrow_c_array__()
            own = modules.input_of(i) if source.keys else 0
            if copy_batch(copies, _pointer(exported, b"arrow_array"), own, modules.following[i], rows):
                others = others + [copied[k] for k in np.flatnonzero(copies[:, I_LEFT]).tolist()]
        for one in others:
            if isinstance(one, _Key):
                words, dead = modules.words_of(one.attribute), modules.dead_of(one.attribute)
                one.encoder.encode(batch, words, dead, modules.texts_of[one.by])
            else:
                self._column(i, one, batch)

    def _column(self, i: int, k: int, batch: pa.RecordBatch) -> None:
        """Store payload column k of stream i."""
        modules, payload, source = self._modules, self._payload, self._sources[i]
        column, width, rows = batch.column(source.payload[k]), source.widths[k], len(batch)
        if not width:
            try:
                payload.append_log(i, k, column, modules.first_arrival(i))
            except TOO_LONG as error:
                raise InputError(
                    f"stream {source.name}: column {batch.schema.names[source.payload[k]]!r} decodes to more than"
                    f" one array of {payload.kinds[i][k]} can hold; push fewer rows at a time"
                ) from error
            return
        if column.null_count or payload.keeps_nulls(i, k):
            payload.append_marks(i, k, column, modules.ring_slices(i, rows))
        values = value_buffer(column)
        address = values.buffers()[1].address + width * values.offset
        copy_in(address, payload.addresses[i, k], width, payload.room[i] - 1, modules.following[i], rows)

"""Loads the rows of a push into the memory of the kernels: keys as words, event times and payload in their rings.

Columns whose memory already has the layout of their target (64-bit integer keys and payload of fixed width, both
without nulls) are copied by one kernel call, which reads their addresses from Arrow's C data interface:
an array object for each column would cost more than the rows of a small push. The other columns go through Arrow, one
by one. Values that depend only on the query or on the layout of the rings are computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Deletes
from eddy.ingest.keys import KeyEncoder, compared_values
from eddy.query.query import Query
from eddy.streams.table import Table
from stairs.descriptors import J_FIRST
from stairs.errors import InputError
from stairs.graph import FOREVER
from stairs.kernels.payload import G_FIELDS, I_FIELDS, I_LEFT, copy_batches, release_all
from stairs.kernels.versions import DELETE
from stairs.memory.arena import Int64s
from stairs.modules import Modules
from stairs.payload import Payload, fixed_width
from stairs.plain_types import TOO_LONG, from_plain, merged, plain, taken


@dataclass(frozen=True)
class _Key:
    """A key of a stream: attribute, class, encoder, and the column whose values are the words (-1 = none)."""

    attribute: int
    by: int
    encoder: KeyEncoder
    plain: int


class StreamLayout:
    """The layout of one stream: its keys, and its payload columns.

    place     the stream as errors name it
    keys      the keys of the stream
    payload   positions of the payload columns in the schema
    widths    per payload column its bytes a value, 0 = stored as Arrow arrays
    bools     per payload column whether it is boolean
    scans     the scan classes of the stream, each with its position in the class
    compared  rings of values that comparisons read, other than event times: (ring, column, type)
    primary   the columns of the primary key, if it is a table
    """

    def __init__(
        self,
        place: str,
        schema: pa.Schema,
        payload: Sequence[str],
        keys: Iterable[tuple[int, int, KeyEncoder]],
        scans: Sequence[tuple[int, int]] = (),
        compared: Sequence[tuple[int, str, pa.DataType]] = (),
        primary: Sequence[str] = (),
    ) -> None:
        self.place, self.scans, self.compared, self.primary = place, scans, compared, primary
        self.keys = []
        for attribute, by, encoder in keys:
            plain = -1
            if encoder.plain is not None and schema.field(encoder.plain).type == encoder.types[0]:
                plain = schema.get_field_index(encoder.plain)
            self.keys.append(_Key(attribute, by, encoder, plain))
        self.payload = [schema.get_field_index(column) for column in payload]
        self.widths = [fixed_width(schema.field(k).type) for k in self.payload]


def sources_of(query: Query, columns: list[list[str]]) -> list[StreamLayout]:
    """Return the layout of each stream of a query; `columns[i]` are the names of the payload columns of stream i."""
    graph, layouts, x = query.graph, [], 0
    for i, stream in enumerate(query.streams):
        keys = []
        for c in graph.attributes[i]:
            if c not in graph.scans:
                keys.append(
                    (x, c, KeyEncoder(stream.place, query.classes[c].columns[stream.name], query.classes[c].types))
                )
            x += 1
        primary = query.primary[i]
        if primary is not None:
            encoder = KeyEncoder(stream.place, primary.columns[stream.name], primary.types)
            keys.append((x, graph.indexed[i][-1], encoder))
            x += 1
        scans = [(c, graph.members[c].index(i)) for c in graph.attributes[i] if c in graph.scans]
        compared = [
            (value.ring, column, kind)
            for (name, column, kind), value in query.values.items()
            if name == stream.name and not (graph.timed and value.ring == 0)
        ]
        layouts.append(
            StreamLayout(
                stream.place,
                stream.schema,
                columns[i],
                keys,
                scans,
                compared,
                stream.keys if isinstance(stream, Table) else (),
            )
        )
    return layouts


def _without_values(batch: pa.RecordBatch, deletes: Deletes, primary: Sequence[str]) -> pa.RecordBatch:
    """Return changes with nulls in place of the values of deletes, of which only the primary key has a meaning."""
    places = np.where(deletes, len(batch), np.arange(len(batch)))
    columns = [
        column
        if field.name in primary
        else taken(merged([column, from_plain(pa.nulls(1, plain(field.type)), field.type)]), places)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class _Columns(NamedTuple):
    """Keys and payload columns of all streams for one layout of the payload.

    copies   int64[n, I_FIELDS], columns that one call copies
    copied   the same columns as (stream, key or number of a payload column)
    others   per stream the columns that go through Arrow, one by one
    more     whether a stream has other columns, or values that scans and comparisons read
    """

    copies: Int64s
    copied: list[tuple[int, _Key | int]]
    others: list[list[_Key | int]]
    more: bool


class Loader:
    """The loader of some streams, each with its layout."""

    def __init__(self, sources: Sequence[StreamLayout], modules: Modules, payload: Payload) -> None:
        self._modules, self._payload = modules, payload
        self._sources = sources
        self._known: tuple[int, _Columns] | None = None
        """The layout of the payload, and the columns in it."""
        self._batches = np.zeros((len(sources), G_FIELDS), np.int64)
        self._addresses = [self._batches.ctypes.data + 8 * G_FIELDS * i for i in range(len(sources))]
        self._exported = False
        """Whether an exception may have left batches that are not released."""

    def load(self, arrivals: Arrivals) -> None:
        """Write the rows of the current push. Raises InputError for a value that does not fit the type of its class."""
        if self._known is None or self._known[0] != self._payload.laid_out:
            self._known = self._payload.laid_out, self._columns()
        columns, others = self._known[1], self._known[1].others
        batches: Sequence[pa.RecordBatch | None] = arrivals.batches
        if any(ticks is not None and len(ticks) for ticks in arrivals.times):
            rows = zip(arrivals.times, arrivals.rows, strict=True)
            times = [np.full(n, -FOREVER) if ticks is None else ticks for ticks, n in rows if n]
            self._modules.set_times(np.concatenate(times))
        if columns.copied and self._copy(columns.copies, batches):
            others = [list(stream_columns) for stream_columns in others]
            for i, column in (columns.copied[k] for k in np.flatnonzero(columns.copies[:, I_LEFT]).tolist()):
                others[i].append(column)
        elif not columns.more:
            batches = ()
        for i, batch in enumerate(batches):
            if batch is not None:
                read = batch
                reads = bool(self._sources[i].compared) or any(isinstance(column, _Key) for column in others[i])
                if reads and i in arrivals.deletes:
                    read = _without_values(batch, arrivals.deletes[i], self._sources[i].primary)
                self._values(i, read)
                for column in others[i]:
                    if isinstance(column, _Key):
                        self._encode(column, read)
                    else:
                        self._store(i, column, batch)
        for i, deletes in arrivals.deletes.items():
            self._modules.dead_rows(i)[deletes] = DELETE

    def _columns(self) -> _Columns:
        """Return the columns in the present layout of the payload."""
        payload, copies = self._payload, []
        copied: list[tuple[int, _Key | int]] = []
        others: list[list[_Key | int]] = [[] for _ in self._sources]
        for i, source in enumerate(self._sources):
            for key in source.keys:
                if key.plain >= 0:
                    copies.append((i, key.plain, 8, 0, self._modules.words_before[key.attribute], 0))
                    copied.append((i, key))
                else:
                    others[i].append(key)
            for k, (at, width) in enumerate(zip(source.payload, source.widths, strict=True)):
                if (i, k) in payload.addresses:
                    copies.append((i, at, width, payload.addresses[i, k], payload.room[i] - 1, 0))
                    copied.append((i, k))
                else:
                    others[i].append(k)
        more = any(others) or any(source.compared or source.scans for source in self._sources)
        return _Columns(np.array(copies, np.int64).reshape(-1, I_FIELDS), copied, others, more)

    def _copy(self, copies: Int64s, batches: Sequence[pa.RecordBatch | None]) -> int:
        """Copy the columns that one call copies; return the number of columns that the call left out."""
        if self._exported:
            release_all(self._batches)
        self._exported = True
        for batch, address in zip(batches, self._addresses, strict=True):
            if batch is not None:
                batch._export_to_c(address)
        left: int = copy_batches(copies, self._batches, self._modules.opening.rows)
        self._exported = False
        return left

    def _values(self, i: int, batch: pa.RecordBatch) -> None:
        """Write what scans and comparisons of stream i read, apart from event times."""
        modules, source, rows = self._modules, self._sources[i], len(batch)
        for ring, name, kind in source.compared:
            values = compared_values(source.place, name, batch, kind, modules.dead_rows(i))
            modules.set_values(i, ring, values, modules.ring_slices(i, rows))
        for c, side in source.scans:
            # Arrival numbers identify the tuples of one stream.
            np.copyto(modules.key_words(i, c), 2 * (modules.first_arrival(i) + np.arange(rows)) + side)

    def _encode(self, key: _Key, batch: pa.RecordBatch) -> None:
        """Write the words of a key."""
        words, dead = self._modules.words_of(key.attribute), self._modules.dead_of(key.attribute)
        key.encoder.encode(batch, words, dead, self._modules.texts_of[key.by])

    def _store(self, i: int, k: int, batch: pa.RecordBatch) -> None:
        """Store payload column k of stream i."""
        modules, payload, source = self._modules, self._payload, self._sources[i]
        column = batch.column(source.payload[k])
        if source.widths[k]:
            payload.append(i, k, column, int(modules.opening.rows[J_FIRST, i]) & (payload.room[i] - 1))
            return
        try:
            payload.append_log(i, k, column, modules.first_arrival(i))
        except TOO_LONG as error:
            raise InputError(
                f"{source.place}: column {batch.schema.names[source.payload[k]]!r} decodes to more than one array"
                f" of {payload.kinds[i][k]} can hold; push fewer rows at a time"
            ) from error

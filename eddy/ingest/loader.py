"""Loads the rows of a push to where the kernels read them: keys as words, event times and payload in their rings.

A column whose memory already has the layout of its target (64-bit integer keys without nulls, payload of fixed width)
is copied by address, all of them in one kernel call; the other columns go through Arrow. The loader computes whatever
depends on the query alone once, so that a small push costs no more than a few Arrow calls per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Times
from eddy.ingest.keys import KeyEncoder, compared_values
from eddy.query.query import Query
from stairs.errors import InputError
from stairs.kernels.payload import J_FIELDS, J_TARGET, copy_in
from stairs.modules import Modules
from stairs.payload import Payload, fixed_width, value_buffer
from stairs.plain_types import TOO_LONG

_NO_RING = (1 << 60) - 1
"""Mask of a target that is not a ring: slots are rows."""


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
    columns   positions of all columns that are copied, ascending
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
        self.columns = sorted({key.plain for key in self.keys if key.plain >= 0} | set(self.payload))


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


class _Work(NamedTuple):
    """Copies of one push: jobs (rows of J_FIELDS), (job, ring) pairs, and the arrays that the jobs point into."""

    jobs: list[tuple[int, int, int, int, int, int]]
    rings: list[tuple[int, tuple[int, int]]]
    alive: list[pa.Array]


class Loader:
    """The loader of some streams, each with its layout."""

    def __init__(self, sources: Sequence[Source], modules: Modules, payload: Payload) -> None:
        self._modules, self._payload = modules, payload
        self._sources = sources
        most = sum(len(source.keys) + len(source.payload) for source in self._sources)
        self._jobs = np.zeros((most, J_FIELDS), np.int64)

    def load(self, arrivals: Arrivals) -> None:
        """Write the rows of the current push. Raises InputError for a value that does not fit the type of its class."""
        work = _Work([], [], [])
        moved = self._payload.laid_out
        for i, batch in enumerate(arrivals.batches):
            if batch is not None:
                self._stream(i, batch, arrivals.times[i], work)
        if not work.jobs:
            return
        jobs = self._jobs[: len(work.jobs)]
        jobs[:] = work.jobs
        if self._payload.laid_out != moved:
            # The first null of a column has moved the rings; the jobs made before have old addresses.
            for k, place in work.rings:
                jobs[k, J_TARGET] = self._payload.addresses[place]
        copy_in(jobs)

    def _stream(self, i: int, batch: pa.RecordBatch, times: Times | None, work: _Work) -> None:
        modules, payload, source, rows = self._modules, self._payload, self._sources[i], len(batch)
        columns = {k: batch.column(k) for k in source.columns}
        first, mask = modules.following[i], modules.capacity[i] - 1
        for ring, name, kind in source.compared:
            values = compared_values(source.name, name, batch, kind, modules.dead_rows(i))
            modules.set_values(i, ring, values, modules.ring_slices(i, rows))
        for c, side in source.scans:
            # Arrival numbers identify the tuples of one stream.
            np.copyto(modules.key_words(i, c), 2 * (modules.first_arrival(i) + np.arange(rows)) + side)
        for key in source.keys:
            column = columns.get(key.plain)
            if column is not None and not column.null_count:
                address = column.buffers()[1].address + 8 * column.offset
                work.jobs.append((address, modules.address_of(key.attribute), 8, 0, _NO_RING, rows))
            else:
                words, dead = modules.words_of(key.attribute), modules.dead_of(key.attribute)
                key.encoder.encode(batch, words, dead, modules.texts_of[key.by])
        if times is not None:
            modules.set_values(i, 0, times, modules.ring_slices(i, rows))
        for k, column in enumerate(columns[at] for at in source.payload):
            width = source.widths[k]
            if not width:
                try:
                    payload.append_log(i, k, column, modules.first_arrival(i))
                except TOO_LONG as error:
                    raise InputError(
                        f"stream {source.name}: column {batch.schema.names[source.payload[k]]!r} decodes to more than"
                        f" one array of {payload.kinds[i][k]} can hold; push fewer rows at a time"
                    ) from error
                continue
            if column.null_count or payload.keeps_nulls(i, k):
                payload.append_marks(i, k, column, modules.ring_slices(i, rows))
            if source.bools[k]:
                column = value_buffer(column)
            address = column.buffers()[1].address + width * column.offset
            work.rings.append((len(work.jobs), (i, k)))
            work.jobs.append((address, payload.addresses[i, k], width, first, mask, rows))
            work.alive.append(column)

"""A runtime as bytes: its live windows, its counters and what it was made with; nothing that can be computed again.

Indexes, intermediate states and hops are left out: they follow from the windows and the plan, and so a snapshot can be
restored into another plan. Layout of the bytes: docs/snapshots.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.query import Query
from eddy.query_text import difference, query_text
from eddy.snapshot_file import pack, unpack
from stairs.arena import Bytes, Int64s
from stairs.errors import SnapshotError
from stairs.fields import S_BASE, S_LO, S_NEXT
from stairs.kinds import Column, plain
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.snapshot import Windows, fill, live_windows

Sections = dict[str, memoryview]


@dataclass
class Held:
    """What a runtime holds of its streams, in the objects that hold it.

    kept     per stream the columns in `payload`, by name
    late     per stream the late rows not yet collected
    counts   counters that are nobody else's: "results", "deleted", and "late", one a stream
    """

    query: Query
    modules: Modules
    payload: Payload
    kept: list[list[str]]
    late: list[list[pa.RecordBatch]]
    counts: dict[str, Any]


def write(held: Held, options: dict[str, Any], schedule: Sequence[tuple[int, str, list[str] | None]]) -> bytes:
    """Return a snapshot of what is held. Changes nothing. O(live tuples).

    options    what the runtime was made with, as JSON can say it
    schedule   transitions to come: (position, plan, states to store)
    """
    query, modules = held.query, held.modules
    if modules.pushing:
        raise SnapshotError("a push is under way; a snapshot is taken between two pushes")
    windows = live_windows(modules)
    sections: Sections = {}
    for c, words in enumerate(windows.words):
        sections[f"class {c} keys"] = _bytes(words, "<i8")
    for (c, word), (offsets, text) in windows.texts.items():
        sections[f"class {c} word {word} offsets"] = _bytes(offsets, "<i8")
        sections[f"class {c} word {word} text"] = _bytes(text, "<u1")
    for (i, c), x in modules.attribute_rows.items():
        sections[f"stream {i} class {c}"] = _bytes(windows.numbers[x], "<i4")
    for i, times in enumerate(windows.times):
        sections[f"stream {i} times"] = _bytes(times, "<i8")
    for i, schema in enumerate(_kept_schemas(held)):
        if windows.rows[i] and schema.names:
            low, following, base = modules.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
            columns = held.payload.window(i, low, following, base)
            sections[f"stream {i} payload"] = _ipc(pa.Table.from_arrays(columns, schema=schema).to_batches())
    for i, batches in enumerate(held.late):
        if batches:
            schema = query.streams[i].schema.remove_metadata()
            rows = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches]
            sections[f"stream {i} late"] = _ipc(rows)
    header = {
        "query": query_text(query),
        "options": options,
        "schedule": [list(one) for one in schedule],
        "counts": {**held.counts, "arrivals": windows.arrivals, "combinations": windows.combinations},
        "streams": [{"first": first, "rows": rows} for first, rows in zip(windows.firsts, windows.rows, strict=True)],
        "watermark": windows.watermark,
        "given": windows.given,
    }
    return pack(header, sections)


class Snapshot:
    """A snapshot read: whole, undamaged, and of this query. Raises SnapshotError for any other."""

    def __init__(self, data: object, query: Query) -> None:
        self._header, self._sections = unpack(data)
        found = difference(self._header["query"], query)
        if found is not None:
            raise SnapshotError(f"the snapshot is of another query: {found}")

    @property
    def options(self) -> dict[str, Any]:
        """What the runtime was made with."""
        return dict(self._header["options"])

    @property
    def schedule(self) -> list[tuple[int, str, list[str] | None]]:
        """Transitions to come: (position, plan, states to store or None)."""
        return [(at, plan, store) for at, plan, store in self._header["schedule"]]

    @property
    def counts(self) -> dict[str, Any]:
        """The counters, those of `Held.counts` among them."""
        return dict(self._header["counts"])

    def fill(self, held: Held) -> None:
        """Put everything into the objects of a runtime just made for the same query. O(live tuples)."""
        modules, graph, sections = held.modules, held.query.graph, self._sections
        firsts = [stream["first"] for stream in self._header["streams"]]
        windows = Windows(
            firsts=firsts,
            rows=[stream["rows"] for stream in self._header["streams"]],
            watermark=self._header["watermark"],
            given=self._header["given"],
            arrivals=self.counts["arrivals"],
            combinations=self.counts["combinations"],
            words=[_int64s(sections[f"class {c} keys"], "<i8") for c in range(graph.n_classes)],
            texts={
                (c, word): (
                    _int64s(sections[f"class {c} word {word} offsets"], "<i8"),
                    _text(sections[f"class {c} word {word} text"]),
                )
                for c, word in modules.texts
            },
            numbers=[_int64s(sections[f"stream {i} class {c}"], "<i4") for i, c in modules.attribute_rows],
            times=[_int64s(sections[f"stream {i} times"], "<i8") for i in range(graph.n_streams * graph.timed)],
        )
        fill(modules, windows)
        columns: list[list[Column]] = []
        for i, (stream, schema) in enumerate(zip(held.query.streams, _kept_schemas(held), strict=True)):
            payload = self._batches(f"stream {i} payload", schema)
            whole = pa.Table.from_batches(payload) if len(payload) > 1 else payload[0] if payload else None
            columns.append([] if whole is None else whole.columns)
            for batch in self._batches(f"stream {i} late", stream.schema):
                held.late[i].append(batch)
        held.payload.fill(modules.capacity, firsts, columns)

    def _batches(self, name: str, schema: pa.Schema) -> list[pa.RecordBatch]:
        if name not in self._sections:
            return []
        # Arrays that stay as they are read must not keep all of the snapshot alive.
        with pa.ipc.open_stream(pa.py_buffer(bytes(self._sections[name]))) as reader:
            if reader.schema.types != schema.types:
                raise SnapshotError(
                    f"{name}: Arrow reads {reader.schema.types}, not {schema.types}; register the extension types"
                    " that the snapshot was written with"
                )
            return [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader]


def _kept_schemas(held: Held) -> list[pa.Schema]:
    """Return the schema of each stream's payload as it is kept: every column in its plain type."""
    return [
        pa.schema([(name, plain(stream.type_of(name))) for name in names])
        for stream, names in zip(held.query.streams, held.kept, strict=True)
    ]


def to_stream(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches of one schema, one or more, as an Arrow stream."""
    return bytes(_ipc(batches))


def from_stream(data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return list(reader)


def _ipc(batches: list[pa.RecordBatch]) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _bytes(numbers: npt.NDArray[Any], dtype: str) -> memoryview:
    return np.ascontiguousarray(numbers, dtype).view(np.uint8).data


# Copies: the kernels take writable memory only, and each would be compiled once more for any other.


def _int64s(section: memoryview, dtype: str) -> Int64s:
    return np.frombuffer(section, dtype).astype(np.int64)


def _text(section: memoryview) -> Bytes:
    return np.frombuffer(section, np.uint8).copy()

"""A runtime as bytes: its live windows, its counters and what it was made with; nothing that can be computed again.

Indexes, intermediate states and hops are left out: they follow from the windows and the plan, and so a snapshot can be
restored into another plan. Layout of the bytes: docs/guide/snapshots.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.query.query import Query
from eddy.query.text import QUERY_FORM, difference, query_text
from eddy.routing.strategies import check_background, check_store
from eddy.storage.arrow_bytes import ArrowBytesError, read_batches, write_batches
from eddy.storage.json_form import Form, boolean, fields, integer, list_of, mapping, one_of, optional, row_of, text
from eddy.storage.sections import SNAPSHOT, pack, unpack
from jisc.plan.tree import Tree, check_connected, parse
from jisc.strategies import STRATEGIES
from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.errors import InputError, PlanError, SnapshotError
from stairs.graph import FOREVER, WindowKind
from stairs.memory.arena import Bytes, Int64s
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.plain_types import Column, plain, plain_schema
from stairs.snapshot import Windows, fill, live_windows
from stairs.stems import RENUMBER_AT

Sections = dict[str, memoryview]

OUTPUTS = ("append", "changelog")
"""What `Runtime(output=…)` may be."""
_COUNT = integer(0, 1 << 62)
_STORE = optional(list_of(text))
_POSITIVE = optional(integer(1, 1 << 1000))
_HEADER: Form = fields(
    {
        "query": mapping,
        "options": fields(
            {
                "plan": text,
                "policy": text,
                "strategy": one_of(STRATEGIES),
                "store": _STORE,
                "max_bytes": _POSITIVE,
                "decide_every": _POSITIVE,
                "statistics": boolean,
                "background": _COUNT,
                "output": one_of(OUTPUTS),
                "count_only": boolean,
                "ids_only": boolean,
                "renumber_at": integer(1, RENUMBER_AT),
            }
        ),
        "schedule": list_of(row_of(_COUNT, text, _STORE)),
        "counts": fields(
            {
                "results": _COUNT,
                "deleted": _COUNT,
                "late": list_of(_COUNT),
                "late_dropped": list_of(_COUNT),
                "arrivals": _COUNT,
                "combinations": _COUNT,
            }
        ),
        "streams": list_of(fields({"first": _COUNT, "rows": integer(0, RENUMBER_AT)})),
        "watermark": integer(-FOREVER, FOREVER),
        "given": boolean,
    }
)


@dataclass
class Held:
    """What a runtime holds of its streams, in the objects that hold it.

    kept     per stream the columns in `payload`, by name
    late     per stream the late rows not yet collected, in plain types
    counts   counters that are nobody else's: "results", "deleted", and "late" and "late_dropped", one a stream
    """

    query: Query
    modules: Modules
    payload: Payload
    kept: list[list[str]]
    late: list[list[pa.RecordBatch]]
    counts: dict[str, Any]


def write(held: Held, options: dict[str, Any], schedule: Sequence[tuple[int, str, list[str] | None]]) -> bytes:
    """Return a snapshot of what is held. Changes nothing. O(live tuples).

    Raises SnapshotError while a push is under way, and for a payload that Arrow finds invalid (text that is not UTF-8).

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
    for (c, word), (offsets, heap) in windows.texts.items():
        sections[f"class {c} word {word} offsets"] = _bytes(offsets, "<i8")
        sections[f"class {c} word {word} text"] = _bytes(heap, "<u1")
    for (i, c), x in modules.attribute_rows.items():
        sections[f"stream {i} class {c}"] = _bytes(windows.numbers[x], "<i4")
    for i, times in enumerate(windows.times):
        sections[f"stream {i} times"] = _bytes(times, "<i8")
    for i, schema in enumerate(_kept_schemas(held)):
        if windows.rows[i] and schema.names:
            low, following, base = modules.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
            columns = held.payload.window(i, low, following, base)
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"stream {i} payload"] = _arrow(query, i, schema, [batch.columns for batch in batches])
    for i, batches in enumerate(held.late):
        if batches:
            late = plain_schema(query.streams[i].schema)
            sections[f"stream {i} late"] = _arrow(query, i, late, [batch.columns for batch in batches])
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
    """A snapshot read: whole, undamaged, of this query, and in agreement with itself. SnapshotError for any other.

    The digest tells damage, and not who wrote the bytes; so nothing in them is used before it was looked at. The header
    is validated here, the sections in `fill`, before any memory is asked for that is not of the size of the snapshot.
    """

    def __init__(self, data: object, query: Query) -> None:
        self._header, self._sections = unpack(data)
        SNAPSHOT.check(self._header, fields({"query": QUERY_FORM}, ignored=True))
        found = difference(self._header["query"], query)
        if found is not None:
            raise SnapshotError(f"the snapshot is of another query: {found}")
        SNAPSHOT.check(self._header, _HEADER)
        self._check_options(query)
        self._check_counts(query)

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

    def _check_options(self, query: Query) -> None:
        """Raise SnapshotError for options that no runtime of this query has."""
        options = self._header["options"]
        kind, graph = STRATEGIES[options["strategy"]], query.graph
        _require(not (options["count_only"] and options["ids_only"]), "results are both counted and numbered")
        _require(kind.changes or not self.schedule, f"strategy {kind.name!r} keeps its plan, but changes are to come")
        for at, _, _ in self.schedule:
            _require(at >= self.counts["arrivals"], f"a transition was to come at {at}, which is past")
        try:
            for plan, store in ((options["plan"], options["store"]), *(one[1:] for one in self.schedule)):
                check_store(kind, _tree(plan, query), graph, store)
            check_background(kind, options["background"])
        except (PlanError, InputError) as problem:
            raise SNAPSHOT.wrong(str(problem)) from problem

    def _check_counts(self, query: Query) -> None:
        """Raise SnapshotError for counts that do not fit each other or the windows of the query."""
        graph, header, counts = query.graph, self._header, self._header["counts"]
        m, streams = graph.n_streams, header["streams"]
        whole = len(streams) == len(counts["late"]) == len(counts["late_dropped"]) == m
        _require(whole, f"the query has {m} streams, it has counts of others")
        fits = all(lost <= late for lost, late in zip(counts["late_dropped"], counts["late"], strict=True))
        _require(fits, "more late rows were dropped than there were")
        for name, window, stream in zip(graph.names, graph.windows, streams, strict=True):
            first, rows = stream["first"], stream["rows"]
            if window.kind == WindowKind.ROWS:
                full = rows == window.size or (first == 0 and rows < window.size)
                _require(full, f"stream {name} has {rows} tuples from {first} on in a window of {window.size} rows")
            elif window.kind == WindowKind.UNBOUNDED:
                _require(first == 0, f"stream {name} has lost {first} tuples from a window without end")
        arrived = sum(stream["first"] + stream["rows"] for stream in streams)
        _require(arrived == counts["arrivals"], f"{counts['arrivals']} arrivals were taken, {arrived} by their streams")
        found, told = counts["combinations"], counts["results"] + counts["deleted"]
        _require(told <= found, f"{told} results were told of {found} combinations")
        timeless = header["watermark"] == -FOREVER and not header["given"]
        _require(graph.timed or timeless, "it has a watermark, and the query no Range window")

    def fill(self, held: Held) -> None:
        """Put everything into the objects of a runtime just made for the same query. O(live tuples).

        Raises SnapshotError for sections that do not fit the header or the query; then the objects are of no use.
        """
        modules, graph = held.modules, held.query.graph
        firsts = [stream["first"] for stream in self._header["streams"]]
        rows = [stream["rows"] for stream in self._header["streams"]]
        self._check_names(held, rows)
        windows = Windows(
            firsts=firsts,
            rows=rows,
            watermark=self._header["watermark"],
            given=self._header["given"],
            arrivals=self.counts["arrivals"],
            combinations=self.counts["combinations"],
            words=[self._int64s(f"class {c} keys", "<i8") for c in range(graph.n_classes)],
            texts={
                (c, word): (
                    self._int64s(f"class {c} word {word} offsets", "<i8"),
                    _text(self._sections[f"class {c} word {word} text"]),
                )
                for c, word in modules.texts
            },
            numbers=[self._int64s(f"stream {i} class {c}", "<i4") for i, c in modules.attribute_rows],
            times=[self._int64s(f"stream {i} times", "<i8") for i in range(graph.n_streams * graph.timed)],
        )
        columns: list[list[Column]] = []
        late: list[list[pa.RecordBatch]] = []
        for i, (stream, schema) in enumerate(zip(held.query.streams, _kept_schemas(held), strict=True)):
            payload = self._batches(f"stream {i} payload", schema, rows[i])
            whole = sum(batch.num_rows for batch in payload) == rows[i] * bool(schema.names)
            _require(whole, f"stream {stream.name} has {rows[i]} tuples, and payload of others")
            table = pa.Table.from_batches(payload) if len(payload) > 1 else payload[0] if payload else None
            columns.append([] if table is None else table.columns)
            late.append(self._batches(f"stream {i} late", plain_schema(stream.schema), self.counts["late"][i]))
        fill(modules, windows)
        held.payload.fill(modules.capacity, firsts, columns)
        for i, batches in enumerate(late):
            held.late[i].extend(batches)

    def _check_names(self, held: Held, rows: list[int]) -> None:
        """Raise SnapshotError unless there are the sections that this query and these windows make, and no other."""
        graph, modules = held.query.graph, held.modules
        wanted = {f"class {c} keys" for c in range(graph.n_classes)}
        wanted |= {f"class {c} word {word} {what}" for c, word in modules.texts for what in ("offsets", "text")}
        wanted |= {f"stream {i} class {c}" for i, c in modules.attribute_rows}
        wanted |= {f"stream {i} times" for i in range(graph.n_streams * graph.timed)}
        wanted |= {f"stream {i} payload" for i, names in enumerate(held.kept) if rows[i] and names}
        late = {f"stream {i} late" for i in range(graph.n_streams * graph.timed)}
        for name in sorted(wanted ^ (self._sections.keys() - late)):
            raise SNAPSHOT.wrong(f"section {name!r} {'is missing' if name in wanted else 'is unknown'}")

    def _int64s(self, name: str, dtype: str) -> Int64s:
        """Return the numbers of a section, copied: the kernels take writable memory only, and each would be compiled
        once more for any other.
        """
        section = self._sections[name]
        _require(section.nbytes % np.dtype(dtype).itemsize == 0, f"section {name!r} has a part of a number")
        return np.frombuffer(section, dtype).astype(np.int64)

    def _batches(self, name: str, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
        if name not in self._sections:
            return []
        try:
            return read_batches(self._sections[name], schema, most)
        except ArrowBytesError as problem:
            raise SnapshotError(f"{name}: {problem}") from problem


def _tree(plan: str, query: Query) -> Tree:
    tree = parse(plan, query.graph.names)
    check_connected(tree, query.graph)
    return tree


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise SNAPSHOT.wrong(what)


def _kept_schemas(held: Held) -> list[pa.Schema]:
    """Return the schema of each stream's payload as it is kept: every column in its plain type."""
    return [
        pa.schema([(name, plain(stream.type_of(name))) for name in names])
        for stream, names in zip(held.query.streams, held.kept, strict=True)
    ]


def to_stream(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches of one schema, one or more, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def from_stream(data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return list(reader)


def _arrow(query: Query, i: int, schema: pa.Schema, batches: list[list[pa.Array]]) -> memoryview:
    try:
        return write_batches(schema, batches)
    except ArrowBytesError as problem:
        raise SnapshotError(
            f"stream {query.streams[i].name}, {problem}: such a value was pushed, and a snapshot of it could not be"
            " restored; filter it out or correct it before it is pushed"
        ) from problem


def _bytes(numbers: npt.NDArray[Any], dtype: str) -> memoryview:
    return np.ascontiguousarray(numbers, dtype).view(np.uint8).data


def _text(section: memoryview) -> Bytes:
    return np.frombuffer(section, np.uint8).copy()

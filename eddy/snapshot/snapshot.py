"""A runtime as bytes: its live windows, its counters and its options; nothing that follows from them.

Indexes, stored intermediate states and hops are left out: they follow from the windows and the plan. Therefore a
snapshot can be restored into another plan. Layout of the bytes: docs/internals/snapshot_format.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.ingest.clock import behind_in
from eddy.join_engine import JoinEngine
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.results.failed_rows import FAILED
from eddy.results.late_rows import LateRows
from eddy.snapshot.checked_sections import CheckedSections
from eddy.snapshot.groups import fill_groups, groups_names, groups_sections
from eddy.snapshot.header import check_header
from eddy.storage.arrays import number_bytes
from eddy.storage.arrow_bytes import ArrowBytesError, write_batches
from eddy.storage.sections import SNAPSHOT, pack, unpack
from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.errors import SnapshotError
from stairs.graph import FOREVER
from stairs.plain_types import Column, plain, plain_schema
from stairs.snapshot import Windows, fill, live_windows


def snapshot_of(engine: JoinEngine) -> bytes:
    """Return a snapshot of an engine, which does not change. O(live tuples).

    Raises SnapshotError during a push, and for a payload that Arrow finds invalid.
    """
    query, modules, late_rows = engine.query, engine.modules, engine.late.rows
    if modules.pushing:
        raise SnapshotError("a push is under way; take the snapshot between two pushes")
    windows = live_windows(modules)
    sections: dict[str, memoryview] = {}
    for c, words in enumerate(windows.words):
        sections[f"class {c} keys"] = number_bytes(words, "<i8")
    for (c, word), (offsets, heap) in windows.texts.items():
        sections[f"class {c} word {word} offsets"] = number_bytes(offsets, "<i8")
        sections[f"class {c} word {word} text"] = number_bytes(heap, "<u1")
    for (i, c), x in modules.attribute_rows.items():
        sections[f"stream {i} class {c}"] = number_bytes(windows.numbers[x], "<i4")
    for i, rings in enumerate(windows.values):
        for k, values in enumerate(rings):
            sections[f"stream {i} values {k}"] = number_bytes(values, "<i8")
    for i, schema in enumerate(payload_schemas(query, engine.columns)):
        if windows.rows[i] and schema.names:
            low, following, base = modules.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
            columns = engine.payload.window(i, low, following, base)
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"stream {i} payload"] = batch_bytes(query, i, schema, batches)
    for i in range(len(query.streams)):
        batches = late_rows.batches(i)
        if batches:
            sections[f"stream {i} late"] = batch_bytes(query, i, plain_schema(query.streams[i].schema), batches)
    failed_rows = engine.failed.rows
    if failed_rows.batches(0):
        sections["failed"] = failed_bytes(failed_rows)
    groups = None
    if engine.groups is not None:
        groups, own_sections = groups_sections(engine.groups)
        sections.update(own_sections)
    header = {
        "query": query_text(query),
        "options": engine.present_options(),
        "schedule": [
            [one.at, one.tree.text(query.graph.names), engine.state_texts(one.store)] for one in engine.schedule
        ],
        "counts": {
            "results": engine.n_results,
            "deleted": engine.n_deleted,
            "late": list(late_rows.counts),
            "late_dropped": list(late_rows.dropped),
            "failed": failed_rows.counts[0],
            "failed_dropped": failed_rows.dropped[0],
            "arrivals": windows.arrivals,
            "combinations": windows.combinations,
        },
        "streams": [
            {"first": first, "rows": rows, "columns": columns}
            for first, rows, columns in zip(windows.firsts, windows.rows, engine.columns, strict=True)
        ],
        "clock": None if engine.clock is None else engine.clock.contents(),
        "groups": groups,
        "finished": engine.finished,
    }
    return pack(header, sections)


class Snapshot:
    """A snapshot that was read: whole, undamaged, of this query, with a header that was checked.

    The constructor raises SnapshotError for any other bytes. `fill` checks the sections. Neither allocates memory
    beyond the size of the snapshot before its checks have passed.
    """

    def __init__(self, data: object, query: Query) -> None:
        self._header, sections = unpack(data)
        self._sections = CheckedSections(sections, SNAPSHOT)
        check_header(self._header, query)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the runtime."""
        return dict(self._header["options"])

    @property
    def schedule(self) -> list[tuple[int, str, list[str] | None]]:
        """The scheduled transitions: (position, plan, states to store or None)."""
        return [(at, plan, store) for at, plan, store in self._header["schedule"]]

    def fill(self, engine: JoinEngine) -> None:
        """Restore the windows, counters and late rows into a new engine of the same query. O(live tuples).

        Raises SnapshotError for sections that do not fit the header or the query; then the engine cannot be used.
        """
        modules, graph, counts = engine.modules, engine.query.graph, self._header["counts"]
        sections = self._sections
        firsts = [stream["first"] for stream in self._header["streams"]]
        rows = [stream["rows"] for stream in self._header["streams"]]
        kept = [stream["columns"] for stream in self._header["streams"]]
        self._check_columns(engine, kept)
        self._check_names(engine, rows, kept)
        windows = Windows(
            firsts=firsts,
            rows=rows,
            watermark=-FOREVER if self._header["clock"] is None else self._header["clock"]["watermark"],
            arrivals=counts["arrivals"],
            combinations=counts["combinations"],
            words=[sections.numbers(f"class {c} keys") for c in range(graph.n_classes)],
            texts={
                (c, word): (
                    sections.numbers(f"class {c} word {word} offsets"),
                    sections.numbers(f"class {c} word {word} text", "<u1", np.uint8),
                )
                for c, word in modules.texts
            },
            numbers=[sections.numbers(f"stream {i} class {c}", "<i4") for i, c in modules.attribute_rows],
            values=[[sections.numbers(f"stream {i} values {k}") for k in range(n)] for i, n in enumerate(graph.rings)],
        )
        columns: list[list[Column]] = []
        late: list[list[pa.RecordBatch]] = []
        for i, (stream, schema) in enumerate(
            zip(engine.query.streams, payload_schemas(engine.query, kept), strict=True)
        ):
            payload = sections.batches(f"stream {i} payload", schema, rows[i])
            whole = sum(batch.num_rows for batch in payload) == rows[i] * bool(schema.names)
            SNAPSHOT.require(whole, f"stream {stream.name} has {rows[i]} tuples, and payload for another number")
            table = pa.Table.from_batches(payload) if len(payload) > 1 else payload[0] if payload else None
            columns.append([] if table is None else [table.column(name) for name in engine.columns[i]])
            late.append(sections.batches(f"stream {i} late", plain_schema(stream.schema), counts["late"][i]))
        fill(modules, windows)
        if engine.clock is not None:
            engine.clock.resume(self._header["clock"], behind_in(modules), SNAPSHOT.require)
            if engine.clock.greatest > -FOREVER:
                # The clock of a join within a query with branches has seen no rows.
                for name, rings, newest in zip(graph.names, windows.values, engine.clock.newest, strict=True):
                    known = not len(rings[0]) or rings[0].max() <= newest
                    SNAPSHOT.require(bool(known), f"stream {name} has event times beyond its newest one")
        engine.payload.fill(modules.capacity, firsts, columns)
        engine.late.rows = LateRows.restored(late, counts["late"], counts["late_dropped"])
        engine.failed.rows = failed_from(sections, counts)
        engine.n_results, engine.n_deleted = counts["results"], counts["deleted"]
        engine.finished = self._header["finished"]
        if engine.groups is not None:
            ended = self._header["groups"]["finished"] == engine.finished
            SNAPSHOT.require(ended, "only groups have seen the end, or not")
            fill_groups(engine.groups, self._header["groups"], sections, engine.watermark, SNAPSHOT)

    def _check_columns(self, engine: JoinEngine, kept: list[list[str]]) -> None:
        """Raise SnapshotError unless the snapshot has the columns that the query needs."""
        for stream, names, needed in zip(engine.query.streams, kept, engine.columns, strict=True):
            fits = len(set(names)) == len(names) and set(names) <= set(stream.schema.names)
            SNAPSHOT.require(fits, f"stream {stream.name} has the columns {', '.join(names)}")
            lacking = [f"{stream.name}.{name}" for name in needed if name not in names]
            if lacking:
                raise SnapshotError(
                    f"select and where of the query need {', '.join(lacking)}, which the query of the snapshot did not"
                    f" need: of stream {stream.name} the snapshot has {', '.join(names) or 'no column'}"
                )

    def _check_names(self, engine: JoinEngine, rows: list[int], kept: list[list[str]]) -> None:
        """Raise SnapshotError unless the sections are exactly those of this query and these windows."""
        graph, modules = engine.query.graph, engine.modules
        wanted = {f"class {c} keys" for c in range(graph.n_classes)}
        wanted |= {f"class {c} word {word} {what}" for c, word in modules.texts for what in ("offsets", "text")}
        wanted |= {f"stream {i} class {c}" for i, c in modules.attribute_rows}
        wanted |= {f"stream {i} values {k}" for i, n in enumerate(graph.rings) for k in range(n)}
        wanted |= {f"stream {i} payload" for i, names in enumerate(kept) if rows[i] and names}
        wanted |= groups_names(engine.groups)
        optional = {"failed", *(f"stream {i} late" for i in range(graph.n_streams * graph.timed))}
        self._sections.check_names(wanted, optional)


def payload_schemas(query: Query, columns: list[list[str]]) -> list[pa.Schema]:
    """Return the schema of each stream's payload: every column in its plain type."""
    return [
        pa.schema([(name, plain(stream.type_of(name))) for name in names])
        for stream, names in zip(query.streams, columns, strict=True)
    ]


def batch_bytes(query: Query, i: int, schema: pa.Schema, batches: list[pa.RecordBatch]) -> memoryview:
    """Return rows of stream i as the bytes of a section. Raises SnapshotError for a value that is not valid."""
    try:
        return write_batches(schema, [batch.columns for batch in batches])
    except ArrowBytesError as problem:
        raise SnapshotError(
            f"stream {query.streams[i].name}, {problem}: such a value was pushed, and a snapshot of it could not be"
            " restored; filter it out or correct it before it is pushed"
        ) from problem


def failed_bytes(rows: LateRows) -> memoryview:
    """Return failed rows as the bytes of a section."""
    return write_batches(plain_schema(FAILED), [batch.columns for batch in rows.batches(0)])


def failed_from(sections: CheckedSections, counts: Mapping[str, Any]) -> LateRows:
    """Return the failed rows of a section, given their numbers. Raises the error of the kind of file."""
    batches = sections.batches("failed", plain_schema(FAILED), counts["failed"])
    return LateRows.restored([batches], [counts["failed"]], [counts["failed_dropped"]])

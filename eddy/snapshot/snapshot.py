"""A pipeline as bytes: its live windows, its counters and its options; nothing that follows from them.

Indexes, stored intermediate states and hops are left out: they follow from the windows and the plan. Therefore a
snapshot can be restored into another plan. Layout of the bytes: docs/internals/snapshot_format.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.ingest.clock import behind_in
from eddy.join.join import Join
from eddy.partners.partners import Partners
from eddy.partners.tree import TreeNode
from eddy.pipeline.pipeline import Pipeline
from eddy.query.branch_nodes import Path
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.results.failed_rows import FAILED
from eddy.results.side_rows import LateRows
from eddy.snapshot.checked_sections import CheckedSections
from eddy.snapshot.groups import fill_groups, groups_names, groups_sections
from eddy.snapshot.header import check_header
from eddy.storage.arrays import number_bytes
from eddy.storage.arrow_bytes import ArrowBytesError, write_batches
from eddy.storage.sections import SNAPSHOT, pack, unpack
from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.errors import SnapshotError, StateError
from stairs.graph import FOREVER
from stairs.plain_types import Column, plain, plain_schema
from stairs.snapshot import Windows, fill, live_windows

Sections = dict[str, memoryview]


def snapshot_of(pipeline: Pipeline) -> bytes:
    """Return a snapshot of a pipeline, which does not change. O(live tuples + entries of ledgers).

    Raises SnapshotError during a push, and for a payload that Arrow finds invalid.
    """
    query, late, failed = pipeline.query, pipeline.late.rows, pipeline.failed.rows
    sections: Sections = {}
    joins = [_join(one, _prefix(pipeline, k), sections) for k, one in enumerate(pipeline.joins.values())]
    partners = None if pipeline.partners is None else _partners(pipeline.partners, sections)
    for i, stream in enumerate(query.streams):
        if late.batches(i):
            sections[f"stream {i} late"] = batch_bytes(query, i, plain_schema(stream.schema), late.batches(i))
    if failed.batches(0):
        sections["failed"] = failed_bytes(failed)
    groups = None
    if pipeline.groups is not None:
        groups, own_sections = groups_sections(pipeline.groups)
        sections.update(own_sections)
    header = {
        "query": query_text(query),
        "options": pipeline.present_options(),
        "counts": {
            "arrivals": pipeline.position,
            "results": pipeline.n_results,
            "deleted": pipeline.n_deleted,
            "late": list(late.counts),
            "late_dropped": list(late.dropped),
            "failed": failed.counts[0],
            "failed_dropped": failed.dropped[0],
        },
        "joins": joins,
        "partners": partners,
        "clock": None if pipeline.clock is None else pipeline.clock.contents(),
        "groups": groups,
        "finished": pipeline.finished,
    }
    return pack(header, sections)


def _prefix(pipeline: Pipeline, k: int) -> str:
    """Return the beginning of the names of the sections of a join."""
    return "" if pipeline.partners is None else f"join {k} "


def _join(join: Join, prefix: str, sections: Sections) -> dict[str, Any]:
    """Return the header of a join, and add its sections."""
    query, modules = join.query, join.modules
    if modules.pushing:
        raise SnapshotError("a push is under way; take the snapshot between two pushes")
    windows = live_windows(modules)
    for c, words in enumerate(windows.words):
        sections[f"{prefix}class {c} keys"] = number_bytes(words, "<i8")
    for (c, word), (offsets, heap) in windows.texts.items():
        sections[f"{prefix}class {c} word {word} offsets"] = number_bytes(offsets, "<i8")
        sections[f"{prefix}class {c} word {word} text"] = number_bytes(heap, "<u1")
    for (i, c), x in modules.attribute_rows.items():
        sections[f"{prefix}stream {i} class {c}"] = number_bytes(windows.numbers[x], "<i4")
    for i, rings in enumerate(windows.values):
        for k, values in enumerate(rings):
            sections[f"{prefix}stream {i} values {k}"] = number_bytes(values, "<i8")
    for i, schema in enumerate(payload_schemas(query, join.columns)):
        if windows.rows[i] and schema.names:
            low, following, base = modules.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
            columns = join.payload.window(i, low, following, base)
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"{prefix}stream {i} payload"] = batch_bytes(query, i, schema, batches)
    names = query.graph.names
    return {
        "options": join.present_options(),
        "schedule": [[one.at, one.tree.text(names), join.state_texts(one.store)] for one in join.schedule],
        "counts": {
            "arrivals": windows.arrivals,
            "combinations": windows.combinations,
            "results": join.n_results,
            "deleted": join.n_deleted,
        },
        "streams": [
            {"first": first, "rows": rows, "columns": columns}
            for first, rows, columns in zip(windows.firsts, windows.rows, join.columns, strict=True)
        ],
    }


def _partners(partners: Partners, sections: Sections) -> list[dict[str, int]]:
    """Return the header of the rows that branches keep, and add their sections."""
    query, shelf = partners.query, partners.shelf
    # Rows that are not needed any more are left out: how many there are depends on when the shelf last looked.
    lows = partners.lows().tolist()
    for i, schema in enumerate(payload_schemas(query, shelf.columns)):
        times, columns = shelf.window(i, lows[i])
        if query.graph.timed:
            sections[f"stream {i} times"] = number_bytes(times, "<i8")
        if schema.names and shelf.following[i] > lows[i]:
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"stream {i} payload"] = batch_bytes(query, i, schema, batches)
    for k, ledger in enumerate(partners.ledgers):
        entries, options = ledger.contents()
        sections[f"ledger {k} entries"] = number_bytes(entries, "<i8")
        sections[f"ledger {k} options"] = number_bytes(options, "<i8")
    return [
        {"first": low, "rows": end - low, "live": live}
        for low, end, live in zip(lows, shelf.following, partners.live, strict=True)
    ]


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
        """The options of the whole."""
        return dict(self._header["options"])

    @property
    def join_options(self) -> list[dict[str, Any]]:
        """The options of each join."""
        return [dict(one["options"]) for one in self._header["joins"]]

    @property
    def schedules(self) -> list[list[tuple[int, str, list[str] | None]]]:
        """The scheduled transitions of each join: (position, plan, states to store or None)."""
        return [[(at, plan, store) for at, plan, store in one["schedule"]] for one in self._header["joins"]]

    def fill(self, pipeline: Pipeline) -> None:
        """Restore the windows, counters and rows into a new pipeline of the same query. O(live tuples).

        Raises SnapshotError for sections that do not fit the header or the query; then the pipeline cannot be used.
        """
        counts, query, sections = self._header["counts"], pipeline.query, self._sections
        for one, join in zip(self._header["joins"], pipeline.joins.values(), strict=True):
            _check_columns(join, [stream["columns"] for stream in one["streams"]])
        self._check_names(pipeline)
        for k, (path, join) in enumerate(pipeline.joins.items()):
            self._fill_join(self._header["joins"][k], join, _prefix(pipeline, k), path)
        late = [
            sections.batches(f"stream {i} late", plain_schema(stream.schema), counts["late"][i])
            for i, stream in enumerate(query.streams)
        ]
        pipeline.late.rows = LateRows.restored(late, counts["late"], counts["late_dropped"])
        pipeline.failed.rows = failed_from(sections, counts)
        if pipeline.clock is not None:
            timed = [one.modules for one in pipeline.joins.values() if one.query.graph.timed]
            behind = max(map(behind_in, timed), default=0)
            pipeline.clock.resume(self._header["clock"], behind, SNAPSHOT.require)
        if pipeline.partners is not None:
            self._fill_partners(pipeline.partners)
        pipeline.position, pipeline.finished = counts["arrivals"], self._header["finished"]
        pipeline.n_results, pipeline.n_deleted = counts["results"], counts["deleted"]
        if pipeline.groups is not None:
            ended = self._header["groups"]["finished"] == pipeline.finished
            SNAPSHOT.require(ended, "only groups have seen the end, or not")
            fill_groups(pipeline.groups, self._header["groups"], sections, pipeline.watermark, SNAPSHOT)

    def _fill_join(self, one: Mapping[str, Any], join: Join, prefix: str, path: Path) -> None:
        modules, graph, sections, clock = join.modules, join.query.graph, self._sections, self._header["clock"]
        firsts, rows = ([stream[name] for stream in one["streams"]] for name in ("first", "rows"))
        windows = Windows(
            firsts=firsts,
            rows=rows,
            watermark=clock["watermark"] if graph.timed else -FOREVER,
            arrivals=one["counts"]["arrivals"],
            combinations=one["counts"]["combinations"],
            words=[sections.numbers(f"{prefix}class {c} keys") for c in range(graph.n_classes)],
            texts={
                (c, word): (
                    sections.numbers(f"{prefix}class {c} word {word} offsets"),
                    sections.numbers(f"{prefix}class {c} word {word} text", "<u1", np.uint8),
                )
                for c, word in modules.texts
            },
            numbers=[sections.numbers(f"{prefix}stream {i} class {c}", "<i4") for i, c in modules.attribute_rows],
            values=[
                [sections.numbers(f"{prefix}stream {i} values {k}") for k in range(n)]
                for i, n in enumerate(graph.rings)
            ],
        )
        columns: list[list[Column]] = []
        kept = [stream["columns"] for stream in one["streams"]]
        for i, schema in enumerate(payload_schemas(join.query, kept)):
            table = self._payload(f"{prefix}stream {i} payload", graph.names[i], schema, rows[i])
            columns.append([] if table is None else [table.column(name) for name in join.columns[i]])
        fill(modules, windows)
        if graph.timed and max(clock["newest"], default=-FOREVER) > -FOREVER:
            for name, rings, i in zip(graph.names, windows.values, path, strict=True):
                known = not len(rings[0]) or rings[0].max() <= clock["newest"][i]
                SNAPSHOT.require(bool(known), f"stream {name} has event times beyond its newest one")
        join.payload.fill(modules.capacity, firsts, columns)
        join.n_results, join.n_deleted = one["counts"]["results"], one["counts"]["deleted"]

    def _payload(self, section: str, stream: str, schema: pa.Schema, rows: int) -> pa.Table | pa.RecordBatch | None:
        """Return the payload of a stream, None if it has none."""
        batches = self._sections.batches(section, schema, rows)
        whole = sum(batch.num_rows for batch in batches) == rows * bool(schema.names)
        SNAPSHOT.require(whole, f"stream {stream} has {rows} tuples, and payload for another number")
        return pa.Table.from_batches(batches) if len(batches) > 1 else batches[0] if batches else None

    def _fill_partners(self, partners: Partners) -> None:
        query, streams = partners.query, self._header["partners"]
        firsts, rows = ([one[name] for one in streams] for name in ("first", "rows"))
        columns, times, timed = [], [], query.graph.timed
        for i, schema in enumerate(payload_schemas(query, partners.shelf.columns)):
            table = self._payload(f"stream {i} payload", query.streams[i].name, schema, rows[i])
            columns.append([] if table is None else table.columns)
            own = self._sections.numbers(f"stream {i} times", shape=(rows[i],)) if timed else np.zeros(0, np.int64)
            SNAPSHOT.require(bool((np.abs(own) <= FOREVER).all()), f"stream {i} has event times out of range")
            times.append(own)
        partners.shelf.fill(firsts, rows, times, columns)
        partners.live = [one["live"] for one in streams]
        ends = [first + n for first, n in zip(firsts, rows, strict=True)]
        for k, node in enumerate(partners.nodes):
            self._fill_ledger(k, node, firsts, ends)

    def _fill_ledger(self, k: int, node: TreeNode, firsts: list[int], ends: list[int]) -> None:
        ledger, m, n = node.ledger, len(firsts), len(node.below)
        assert ledger is not None
        entries = self._sections.numbers(f"ledger {k} entries", shape=(-1, 2 * n + m))
        options = self._sections.numbers(f"ledger {k} options", shape=(-1, 2 + m))
        for components in (entries[:, 2 * n :], options[:, 2:]):
            there = components >= 0
            fits = ((components >= np.array(firsts)) & (components < np.array(ends))) | ~there
            SNAPSHOT.require(bool(fits.all()), f"ledger {k} has rows that are not kept")
        try:
            serials = ledger.fill(entries, options, node.changelog)
        except StateError as problem:
            raise SNAPSHOT.wrong(f"ledger {k}: {problem}") from problem
        if not node.changelog:
            node.wait(np.ascontiguousarray(entries[:, 2 * n :]), serials)

    def _check_names(self, pipeline: Pipeline) -> None:
        """Raise SnapshotError unless the sections are exactly those of this query and these windows."""
        wanted = groups_names(pipeline.groups)
        for k, (one, join) in enumerate(zip(self._header["joins"], pipeline.joins.values(), strict=True)):
            prefix, graph, modules = _prefix(pipeline, k), join.query.graph, join.modules
            wanted |= {f"{prefix}class {c} keys" for c in range(graph.n_classes)}
            wanted |= {f"{prefix}class {c} word {word} {what}" for c, word in modules.texts for what in TEXT}
            wanted |= {f"{prefix}stream {i} class {c}" for i, c in modules.attribute_rows}
            wanted |= {f"{prefix}stream {i} values {k}" for i, n in enumerate(graph.rings) for k in range(n)}
            own = enumerate(one["streams"])
            wanted |= {f"{prefix}stream {i} payload" for i, stream in own if stream["rows"] and stream["columns"]}
        streams, timed = range(len(pipeline.query.streams)), pipeline.query.graph.timed
        if pipeline.partners is not None:
            kept = zip(streams, self._header["partners"], pipeline.partners.shelf.columns, strict=True)
            wanted |= {f"stream {i} payload" for i, stream, names in kept if stream["rows"] and names}
            wanted |= {f"stream {i} times" for i in streams if timed}
            ledgers = range(len(pipeline.partners.nodes))
            wanted |= {f"ledger {k} {what}" for k in ledgers for what in ("entries", "options")}
        self._sections.check_names(wanted, {"failed", *(f"stream {i} late" for i in streams if timed)})


TEXT = ("offsets", "text")
"""The sections of the strings behind a word of keys: where each string begins, and their bytes."""


def _check_columns(join: Join, kept: list[list[str]]) -> None:
    """Raise SnapshotError unless the snapshot has the columns that the query needs."""
    for stream, names, needed in zip(join.query.streams, kept, join.columns, strict=True):
        fits = len(set(names)) == len(names) and set(names) <= set(stream.schema.names)
        SNAPSHOT.require(fits, f"stream {stream.name} has the columns {', '.join(names)}")
        lacking = [f"{stream.name}.{name}" for name in needed if name not in names]
        if lacking:
            raise SnapshotError(
                f"select and where of the query need {', '.join(lacking)}, which the query of the snapshot did not"
                f" need: of stream {stream.name} the snapshot has {', '.join(names) or 'no column'}"
            )


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

"""A pipeline as bytes: its live windows, its counters and its options; nothing that follows from them.

Indexes, stored intermediate states and hops are left out: they follow from the windows and the plan. Therefore a
snapshot can be restored into another plan. Layout of the bytes: docs/internals/snapshot_format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.clock import behind_in
from eddy.join.compaction import compact_tables
from eddy.join.join import Join
from eddy.partners.partners import Partners
from eddy.partners.rows import Int64s
from eddy.partners.tree import TreeNode
from eddy.pipeline.pipeline import Pipeline
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.results.failed_rows import FAILED
from eddy.results.side_rows import LateRows
from eddy.snapshot.header import COUNTS
from eddy.snapshot.versions import load_versions, versions_parts
from eddy.storage.arrow_bytes import write_rows
from eddy.storage.file_kind import SNAPSHOT
from stairs.descriptors import A_CLASS, S_BASE, S_KEY, S_LO, S_NEXT
from stairs.errors import SnapshotError, StateError
from stairs.graph import FOREVER
from stairs.memory.spill import SpillDirectory
from stairs.plain_types import Column, plain
from stairs.snapshot import WindowContents, fill, live_windows
from stairs.storage.parts import Parts, Plain


def snapshot_of(pipeline: Pipeline) -> bytes:
    """Return a snapshot of a pipeline, which does not change. O(live tuples + entries of ledgers).

    Raises SnapshotError during a push, and for a payload that Arrow finds invalid.
    """
    return SNAPSHOT.pack(snapshot_parts(pipeline))


def save_snapshot(pipeline: Pipeline, path: Path) -> None:
    """Write a snapshot of a pipeline to a file, as a whole or not at all. Raises SnapshotError, also for the system."""
    try:
        SNAPSHOT.write(snapshot_parts(pipeline), path)
    except OSError as error:
        raise SnapshotError(f"{path}: the snapshot was not written ({error.strerror or error})") from error


def read_snapshot(path: str | PathLike[str], spill: SpillDirectory | None) -> Parts:
    """Return the parts of a snapshot in a file: a copy of it in memory, or in another file. Raises SnapshotError."""
    try:
        # Not the file itself: it might change after its digest was computed.
        data = memoryview(Path(path).read_bytes()) if spill is None else spill.copy_of(path)
    except OSError as error:
        raise SnapshotError(f"{path}: the snapshot cannot be read ({error.strerror or error})") from error
    return SNAPSHOT.unpack_view(data)


def snapshot_parts(pipeline: Pipeline) -> Plain:
    """Return the parts of a snapshot; see `snapshot_of`."""
    query, joins, groups = pipeline.query, [_join(join) for join in pipeline.joins.values()], pipeline.groups
    partners = None if pipeline.partners is None else _partners(pipeline.partners)
    header = {
        "query": query_text(query),
        "options": pipeline.present_options(),
        "counts": {"arrivals": pipeline.position, "results": pipeline.n_results, "deleted": pipeline.n_deleted},
        "joins": [join_header for join_header, _ in joins],
        "partners": None if partners is None else partners[0],
        "clock": None if pipeline.clock is None else pipeline.clock.contents(),
        "finished": pipeline.finished,
    }
    try:
        late, failed = pipeline.late.rows.to_parts(), pipeline.failed.rows.to_parts()
        tops = {} if pipeline.tops is None else {"tops": pipeline.tops.to_parts()}
    except StateError as problem:
        raise SnapshotError(str(problem)) from problem
    return {
        "header": header,
        "joins": [arrays for _, arrays in joins],
        **({} if partners is None else {"partners": partners[1]}),
        **({} if groups is None else {"groups": groups.to_parts()}),
        **tops,
        "late": late,
        "failed": failed,
        **versions_parts(pipeline),
        **({"derived": [snapshot_parts(derived) for derived in pipeline.derived.values()]} if pipeline.derived else {}),
    }


def _join(join: Join) -> tuple[Plain, Plain]:
    """Return the header of a join, and its arrays."""
    modules = join.modules
    if modules.pushing:
        raise SnapshotError("a push is under way; take the snapshot between two pushes")
    compact_tables(join)
    windows = live_windows(modules)
    arrays: Plain = {f"class {c} keys": words for c, words in enumerate(windows.words)}
    for (c, word), (offsets, heap) in windows.texts.items():
        arrays |= {f"class {c} word {word} offsets": offsets, f"class {c} word {word} text": heap}
    for (i, c), x in modules.attribute_rows.items():
        arrays[f"stream {i} class {c}"] = windows.numbers[x].astype(np.int32)
    for i, rings in enumerate(windows.values):
        arrays |= {f"stream {i} values {k}": values for k, values in enumerate(rings)}
    for i, schema in enumerate(payload_schemas(join.query, join.columns)):
        if windows.rows[i] and schema.names:
            low, following, base = modules.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
            columns = join.payload.windows(i, low, following, base)
            arrays[f"stream {i} payload"] = _payload_rows(join.query, i, schema, columns, join.payload.spill)
    names = join.query.graph.names
    header = {
        "options": join.present_options(),
        "schedule": [
            [transition.at, transition.tree.text(names), join.state_texts(transition.store)]
            for transition in join.schedule
        ],
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
    return header, arrays


def _partners(partners: Partners) -> tuple[list[Plain], Plain]:
    """Return the header of the rows that branches keep, and their arrays."""
    arrays: Plain = {}
    query, row_store = partners.query, partners.row_store
    # Rows that are not needed any more are left out: how many there are depends on when the row store last looked.
    partners.compact()
    lows = partners.lows().tolist()
    for i, schema in enumerate(payload_schemas(query, row_store.columns)):
        times, columns = row_store.window(i, lows[i])
        if query.graph.timed:
            arrays[f"stream {i} times"] = times
        if schema.names and row_store.following[i] > lows[i]:
            arrays[f"stream {i} payload"] = _payload_rows(query, i, schema, columns, row_store.payload.spill)
    for i in row_store.numbers:
        arrays[f"stream {i} numbers"] = row_store.kept(i)
    for k, ledger in enumerate(partners.ledgers):
        arrays[f"ledger {k} entries"], arrays[f"ledger {k} options"] = ledger.contents()
    if partners.as_of is not None:
        arrays["as_of"] = partners.as_of.to_parts(np.array(lows, np.int64))
    header = [
        {"first": low, "rows": end - low, "live": live}
        for low, end, live in zip(lows, row_store.following, partners.live, strict=True)
    ]
    return header, arrays


def _payload_rows(
    query: Query, i: int, schema: pa.Schema, pieces: Iterator[list[Column]], spill: SpillDirectory | None
) -> list[memoryview]:
    """Return the payload of stream i as bytes, in a file if rows are. Raises SnapshotError for an invalid value."""
    what = f"stream {query.streams[i].name}"
    tables = (pa.Table.from_arrays(columns, schema=schema) for columns in pieces)
    batches = (batch.columns for table in tables for batch in table.to_batches())
    if spill is None:
        return write_rows(schema, batches, what, SnapshotError)
    return spill.kept(block for columns in batches for block in write_rows(schema, [columns], what, SnapshotError))


def fill_pipeline(pipeline: Pipeline, header: Mapping[str, Any], parts: Parts) -> None:
    """Restore the windows, counters and rows into a new pipeline of the same query. O(live tuples).

    header   what `read_header` returned for these parts

    Raises SnapshotError for parts that do not fit the header or the query; then the pipeline cannot be used. Allocates
    no memory beyond the size of the snapshot before its checks have passed.
    """
    query, clock = pipeline.query, header["clock"]
    joins, newest = pipeline.joins.values(), [] if clock is None else clock["newest"]
    newest = newest if max(newest, default=-FOREVER) > -FOREVER else []
    for i in query.timeless if newest else ():
        # A change has no event time, and no place in the clock.
        newest = [*newest[:i], -FOREVER, *newest[i:]]
    for saved, join in zip(header["joins"], joins, strict=True):
        _check_columns(join, [stream["columns"] for stream in saved["streams"]], parts)
    keys: dict[int, list[pa.Array]] = {}
    for part, saved, (path, join) in zip(
        parts.items("joins", len(joins)), header["joins"], pipeline.joins.items(), strict=True
    ):
        watermark = clock["watermark"] if clock and join.query.graph.timed else -FOREVER
        windows = _fill_join(part, saved, join, watermark, [newest[i] for i in path] if newest else [])
        for k, i in enumerate(path):
            if i in query.tables_at:
                # A change ends the version with its key, which has to be the same version in all joins.
                primary_keys = _primary_keys(join, windows, k)
                same = all(map(pa.Array.equals, primary_keys, keys.setdefault(i, primary_keys)))
                parts.require(same, f"joins differ in the keys of table {query.streams[i].name}")
    pipeline.late.rows = LateRows.from_parts(parts.part("late"), [stream.late_schema for stream in query.streams])
    pipeline.failed.rows = LateRows.from_parts(parts.part("failed"), [FAILED])
    if pipeline.clock is not None:
        timed = [inner.modules for inner in joins if inner.query.graph.timed]
        pipeline.clock.resume(clock, max(map(behind_in, timed), default=0), parts.require)
    if pipeline.partners is not None:
        _fill_partners(parts.part("partners"), header["partners"], pipeline.partners, pipeline.watermark)
    counts, pipeline.finished = header["counts"], header["finished"]
    pipeline.position, pipeline.n_results, pipeline.n_deleted = (counts[name] for name in COUNTS)
    if pipeline.groups is not None:
        pipeline.groups.load_parts(parts.part("groups"), pipeline.watermark)
        ended = pipeline.groups.progress.finished == pipeline.finished
        parts.require(ended, "only groups have seen the end, or not")
    if pipeline.tops is not None:
        pipeline.tops.load_parts(parts.part("tops"), pipeline.watermark)
    load_versions(pipeline, parts)
    parts.check_read()


def _primary_keys(join: Join, windows: WindowContents, i: int) -> list[pa.Array]:
    """Return the primary keys of the living versions of table i: which have one, then a column for each word."""
    x = int(join.modules.streams[i, S_KEY])
    c, numbers = int(join.modules.attrs[x, A_CLASS]), windows.numbers[x]
    words = windows.words[c].reshape(-1, join.query.graph.widths[c])[numbers[numbers >= 0]]
    columns = [pa.array(numbers >= 0)]
    for word, values in enumerate(words.T):
        column = pa.array(values)
        if (c, word) in windows.texts:
            offsets, text = windows.texts[c, word]
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
            column = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers).take(column)
        columns.append(column)
    return columns


def _fill_join(parts: Parts, saved: Mapping[str, Any], join: Join, watermark: int, newest: list[int]) -> WindowContents:
    """Fill the modules of a join, and return what its windows contain.

    newest   the newest event time of each stream, if there is a clock
    """
    modules, graph = join.modules, join.query.graph
    firsts, rows = ([stream[name] for stream in saved["streams"]] for name in ("first", "rows"))

    def numbers(name: str, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
        return parts.array(name, dtype, (-1,))

    windows = WindowContents(
        firsts=firsts,
        rows=rows,
        watermark=watermark,
        arrivals=saved["counts"]["arrivals"],
        combinations=saved["counts"]["combinations"],
        words=[numbers(f"class {c} keys") for c in range(graph.n_classes)],
        texts={
            (c, word): (
                numbers(f"class {c} word {word} offsets"),
                numbers(f"class {c} word {word} text", np.uint8),
            )
            for c, word in modules.texts
        },
        numbers=[numbers(f"stream {i} class {c}", np.int32).astype(np.int64) for i, c in modules.attribute_rows],
        values=[[numbers(f"stream {i} values {k}") for k in range(n)] for i, n in enumerate(graph.rings)],
    )
    columns: list[list[Column]] = []
    kept = [stream["columns"] for stream in saved["streams"]]
    for i, schema in enumerate(payload_schemas(join.query, kept)):
        table = _payload(parts, i, graph.names[i], schema, rows[i])
        columns.append([] if table is None else [table.column(name) for name in join.columns[i]])
    fill(modules, windows, parts.require)
    if graph.timed and newest:
        for name, rings, at in zip(graph.names, windows.values, newest, strict=True):
            known = not len(rings[0]) or rings[0].max() <= at
            parts.require(bool(known), f"stream {name} has event times beyond its newest one")
    join.payload.fill(modules.capacity, firsts, columns)
    join.n_results, join.n_deleted = saved["counts"]["results"], saved["counts"]["deleted"]
    return windows


def _payload(parts: Parts, i: int, stream: str, schema: pa.Schema, rows: int) -> pa.Table | pa.RecordBatch | None:
    """Return the payload of a stream, None if it has none."""
    if not rows or not schema.names:
        return None
    batches = parts.batches(f"stream {i} payload", schema, rows)
    whole = sum(batch.num_rows for batch in batches) == rows
    parts.require(whole, f"stream {stream} has {rows} tuples, and payload for another number")
    return pa.Table.from_batches(batches) if len(batches) > 1 else batches[0]


def _fill_partners(parts: Parts, streams: list[dict[str, int]], partners: Partners, watermark: int | None) -> None:
    query = partners.query
    firsts, rows = ([stream[name] for stream in streams] for name in ("first", "rows"))
    columns, times, timed = [], [], query.graph.timed
    for i, schema in enumerate(payload_schemas(query, partners.row_store.columns)):
        table = _payload(parts, i, query.streams[i].name, schema, rows[i])
        columns.append([] if table is None else table.columns)
        stream_times = parts.array(f"stream {i} times", np.int64, (rows[i],)) if timed else np.zeros(0, np.int64)
        parts.require(bool((np.abs(stream_times) <= FOREVER).all()), f"stream {i} has event times out of range")
        times.append(stream_times)
    ends = [first + n for first, n in zip(firsts, rows, strict=True)]
    kept: list[range | Int64s] = [range(first, end) for first, end in zip(firsts, ends, strict=True)]
    for i in partners.row_store.numbers:
        living = partners.living(i)
        kept[i] = parts.array(f"stream {i} numbers", np.int64, (rows[i],))
        parts.require(np.array_equal(kept[i], living), f"stream {i} keeps other versions than those that live")
    partners.row_store.fill(firsts, rows, times, columns, {i: np.asarray(kept[i]) for i in partners.row_store.numbers})
    partners.live = [stream["live"] for stream in streams]
    for k, node in enumerate(partners.nodes):
        _fill_ledger(parts, k, node, kept)
    if partners.as_of is not None:
        partners.as_of.load_parts(parts.part("as_of"), watermark)


def _among(numbers: Int64s, kept: range | Int64s) -> npt.NDArray[np.bool_]:
    """Return which numbers are among those kept."""
    if isinstance(kept, range):
        return (numbers >= kept.start) & (numbers < kept.stop)
    return np.isin(numbers, kept)


def _fill_ledger(parts: Parts, k: int, node: TreeNode, kept: list[range | Int64s]) -> None:
    """Fill the ledger of a node, whose components are among the rows kept of each stream."""
    ledger, m, n = node.ledger, len(kept), len(node.below)
    assert ledger is not None
    entries = parts.array(f"ledger {k} entries", np.int64, (-1, 2 * n + m))
    options = parts.array(f"ledger {k} options", np.int64, (-1, 2 + m))
    for components in (entries[:, 2 * n :], options[:, 2:]):
        fits = (components == -1).T | [_among(column, rows) for column, rows in zip(components.T, kept, strict=True)]
        parts.require(bool(fits.all()), f"ledger {k} has rows that are not kept")
    try:
        serials = ledger.fill(entries, options, node.changelog)
    except StateError as problem:
        raise parts.wrong(f"ledger {k}: {problem}") from problem
    if not node.changelog:
        node.wait(np.ascontiguousarray(entries[:, 2 * n :]), serials)


def _check_columns(join: Join, kept: list[list[str]], parts: Parts) -> None:
    """Raise SnapshotError unless the snapshot has the columns that the query needs."""
    for stream, names, needed in zip(join.query.streams, kept, join.columns, strict=True):
        fits = len(set(names)) == len(names) and set(names) <= set(stream.schema.names)
        parts.require(fits, f"stream {stream.name} has the columns {', '.join(names)}")
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

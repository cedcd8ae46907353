"""A runtime of a query with branches as bytes: its inner joins, its ledgers, and the rows that these need."""

from __future__ import annotations

import pyarrow as pa

from eddy.branches.engine import BranchedEngine
from eddy.query.text import query_text
from eddy.snapshot.groups import groups_sections
from eddy.snapshot.snapshot import batch_bytes, failed_bytes, payload_schemas, snapshot_of
from eddy.storage.arrays import number_bytes
from eddy.storage.sections import FileKind, pack
from stairs.errors import SnapshotError
from stairs.plain_types import plain_schema

KIND = FileKind("snapshot of a query with branches", b"eddybrnc", 5, SnapshotError, "Runtime.snapshot()", "restore")


def branched_snapshot(engine: BranchedEngine) -> bytes:
    """Return a snapshot of an engine, which does not change. O(live tuples + entries of ledgers)."""
    query, shelf, late = engine.query, engine.shelf, engine.late.rows
    # Rows that are not needed any more are left out: how many there are depends on when the shelf last looked.
    lows = engine.lows().tolist()
    sections: dict[str, memoryview] = {}
    for k, one in enumerate(engine.joins.values()):
        sections[f"join {k}"] = memoryview(snapshot_of(one))
    for i, schema in enumerate(payload_schemas(query, engine.columns)):
        times, columns = shelf.window(i, lows[i])
        if query.graph.timed:
            sections[f"stream {i} times"] = number_bytes(times, "<i8")
        if schema.names and shelf.following[i] > lows[i]:
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"stream {i} payload"] = batch_bytes(query, i, schema, batches)
        if late.batches(i):
            own = plain_schema(query.streams[i].schema)
            sections[f"stream {i} late"] = batch_bytes(query, i, own, late.batches(i))
    failed = engine.failed.rows
    if failed.batches(0):
        sections["failed"] = failed_bytes(failed)
    for k, node in enumerate(engine.nodes):
        assert node.ledger is not None
        entries, options = node.ledger.contents()
        sections[f"ledger {k} entries"] = number_bytes(entries, "<i8")
        sections[f"ledger {k} options"] = number_bytes(options, "<i8")
    groups = None
    if engine.groups is not None:
        groups, own_sections = groups_sections(engine.groups)
        sections.update(own_sections)
    header = {
        "query": query_text(query),
        "options": {
            "output": engine.options.output,
            "count_only": engine.options.count_only,
            "ids_only": engine.options.ids_only,
            "bounded": engine.bounded,
            "max_bytes": engine.max_bytes,
        },
        "counts": {
            "arrivals": engine.position,
            "results": engine.n_results,
            "deleted": engine.n_deleted,
            "late": list(late.counts),
            "late_dropped": list(late.dropped),
            "failed": failed.counts[0],
            "failed_dropped": failed.dropped[0],
        },
        "streams": [
            {"first": low, "rows": end - low, "live": live}
            for low, end, live in zip(lows, shelf.following, engine.live, strict=True)
        ],
        "clock": None if engine.clock is None else engine.clock.contents(),
        "finished": engine.finished,
        "groups": groups,
    }
    return pack(header, sections, KIND)

"""An engine as bytes: its rows, and its queries by their text, versions and changes under way.

Joins are left out: they follow from the rows that the engine keeps, as when a query starts on earlier rows. Queries are
saved as text (`eddy/query/text.py`), from which no query can be made: `Engine.restore` gets the queries, and they are
compared with the text. Layout of the bytes: docs/internals/snapshot_format.md.
"""

from __future__ import annotations

from typing import Any, get_args

import pyarrow as pa

from eddy.ingest.clock import CLOCK_FORM
from eddy.queries.changes import CHANGES
from eddy.queries.drain import DrainByArrivals, DrainByWindows
from eddy.queries.lone_join import LoneJoin
from eddy.queries.query import QueryHost, RunningQuery
from eddy.queries.sources import Sources
from eddy.queries.version import Version
from eddy.query.clock_rule import WatermarkOf
from eddy.query.text import QUERY_FORM, query_text, type_text
from eddy.results.modes import OUTPUTS
from eddy.snapshot.snapshot import snapshot_parts
from eddy.storage.arrow_bytes import write_rows
from eddy.storage.file_kind import FileKind
from eddy.streams.table import Table
from jisc.strategies import STRATEGIES
from stairs.errors import SnapshotError
from stairs.graph import FOREVER, WindowKind
from stairs.plain_types import plain_schema, to_plain
from stairs.storage.json_form import Form, boolean, fields, integer, list_of, one_of, optional, row_of, text

KIND = FileKind("snapshot of an engine", b"eddyengn", 8, SnapshotError, "Engine.snapshot()", "restore")
OPTIONS: dict[str, Form] = {
    "strategy": one_of(STRATEGIES),
    "policy": text,
    "statistics": boolean,
    "decide_every": integer(1, 1 << 62),
    "bounded": boolean,
}
"""Options of the joins, and the form of each; None for those of which an engine has the default."""
_COUNT = integer(0, 1 << 62)
_NUMBER = integer(0, 1 << 30)
_TICK = integer(-FOREVER, FOREVER)
FORM = fields(
    {
        "streams": list_of(
            fields(
                {
                    "name": text,
                    "columns": list_of(row_of(text, text)),
                    "time": optional(text),
                    "table": optional(text),
                    "window": optional(row_of(one_of(WindowKind.__members__), _COUNT)),
                    "count": _COUNT,
                    "end": _COUNT,
                    "complete_from": _COUNT,
                    "rows": _COUNT,
                    "newest": _TICK,
                    "lateness": integer(0, FOREVER),
                }
            )
        ),
        "watermark": one_of(get_args(WatermarkOf)),
        "idle_after": optional(integer(0, FOREVER)),
        "clock": optional(CLOCK_FORM),
        "share": boolean,
        "max_bytes": optional(integer(1, 1 << 62)),
        "options": fields({name: optional(form) for name, form in OPTIONS.items()}),
        "position": _COUNT,
        "finished": boolean,
        "queries": list_of(
            fields(
                {
                    "name": text,
                    "output": one_of(OUTPUTS),
                    "results": _COUNT,
                    "element": _COUNT,
                    "paused": boolean,
                    "ordered": boolean,
                    "versions": list_of(
                        fields(
                            {
                                "number": _NUMBER,
                                "query": QUERY_FORM,
                                "start": optional(_COUNT),
                                "warm": boolean,
                                "complete_from": _COUNT,
                                "replaces": list_of(_NUMBER),
                                "stop": optional(_COUNT),
                                "drain": optional(
                                    row_of(_COUNT, list_of(row_of(boolean, _TICK, _COUNT, optional(_COUNT))))
                                ),
                                "ended": optional(_COUNT),
                                "held": optional(_COUNT),
                                "begun": optional(boolean),
                                "after": optional(_TICK),
                                "greatest": optional(_TICK),
                            }
                        )
                    ),
                    "successions": list_of(row_of(_NUMBER, _NUMBER, one_of(CHANGES), _COUNT)),
                }
            )
        ),
        "plans": list_of(row_of(text, _NUMBER, text)),
        "history": list_of(row_of(_COUNT, text, _NUMBER, text, _COUNT)),
    }
)
"""The form of the header.

streams   each with the figures of its rows (`eddy/queries/kept.py`); `rows` are those in its batches; `table` says
          how changes are read
queries   those that have not stopped, in the order of their starts; `held` are rows in batches, `begun` says whether a
          join of its own has had arrivals (None: the version has no such join); `after` and `greatest` bound the starts
          of the windows of groups (None: the start or the drain is to come, or the version has no such windows)
plans     the plan of each join, by a query and a version that it serves
history   the control elements, as in `Engine.history`
"""


def streams_text(sources: Sources) -> list[dict[str, Any]]:
    """Return the streams of an engine as JSON values, with windows in ticks."""
    windows = [sources.windows.get(stream.name) for stream in sources.streams]
    return [
        {
            "name": stream.name,
            "columns": [[field.name, type_text(field)] for field in stream.schema],
            "time": stream.time,
            "table": _changes_text(stream) if isinstance(stream, Table) else None,
            "window": None if window is None else [WindowKind(window.kind).name, window.size],
        }
        for stream, window in zip(sources.streams, windows, strict=True)
    ]


def _changes_text(table: Table) -> str:
    """Return how the changes of a table are read, as text."""
    span = table.tombstone_ticks
    keys = ", ".join(table.keys)
    return f"by {keys}; ops {table.ops}; version {table.version}; tombstones {span}"


def needed_versions(query: RunningQuery) -> list[Version]:
    """Return the versions of a query that decide what comes of it: live ones, the newest, and those of changes."""
    changing = {version for link in query.successions for version in (link.old, link.new)}
    return [
        version
        for version in query.versions
        if version.ended is None or version is query.versions[-1] or version in changing
    ]


def engine_snapshot(engine: QueryHost) -> bytes:
    """Return a snapshot of an engine, which does not change. O(rows kept).

    Raises SnapshotError for rows that Arrow finds invalid.
    """
    streams, rule, rows = streams_text(engine.sources), engine.sources.clock_rule, {}
    for i, (known, kept) in enumerate(zip(streams, engine.joins.kept, strict=True)):
        batches = kept.batches
        known |= {"count": kept.count, "end": kept.end, "complete_from": kept.complete_from}
        known |= {"rows": sum(map(len, batches)), "newest": engine.newest[i]}
        known["lateness"] = rule.lateness[i]
        name = known["name"]
        rows[name] = _rows(engine.sources.kept_schemas[i], batches, f"stream {name}")
    ongoing = [query for query in engine.queries.values() if query.live or query.paused]
    queries, arrays = [], []
    for query in ongoing:
        versions, joins, groups, waiting = [], {}, {}, {}
        changing = {(link.new, link.old) for link in query.successions}
        for version in needed_versions(query):
            replaced = [old.number for old in version.replaces if (version, old) in changing]
            held, lone = query.held.get(version), engine.joins.alone.get(version)
            if lone is not None:
                joins[str(version.number)] = snapshot_parts(lone.runtime._pipeline)
            grouping = engine.joins.grouping_of(version)
            if grouping is not None:
                groups[str(version.number)] = grouping.to_parts()
            after = None if grouping is None else grouping.after
            versions.append(
                _version(version, None if held is None else held.num_rows, lone, after) | {"replaces": replaced}
            )
            if held is not None:
                place = f"query {query.name}, results that wait"
                waiting[str(version.number)] = _rows(held.schema, held.combine_chunks().to_batches(), place)
        failed = query.failures.rows.to_parts()
        arrays.append({"joins": joins, "groups": groups, "held": waiting, "failed": failed})
        links = [[link.old.number, link.new.number, link.how, link.at] for link in query.successions]
        queries.append(
            {
                "name": query.name,
                "output": query.output,
                "results": query.n_results,
                "element": query.last_element,
                "paused": query.paused,
                "ordered": query.ordered,
                "versions": versions,
                "successions": links,
            }
        )
    policy = engine.options.get("policy")
    header = {
        "streams": streams,
        "watermark": "slowest" if rule.slowest else "fastest",
        "idle_after": rule.idle_after,
        "clock": None if engine.clock is None else engine.clock.contents(),
        "share": engine.share,
        "max_bytes": engine.joins.bound.max_bytes,
        "options": {
            **{name: engine.options.get(name) for name in OPTIONS},
            "policy": policy if policy is None or isinstance(policy, str) else policy.name,
        },
        "position": engine.position,
        "finished": engine.finished,
        "queries": queries,
        "plans": _plans(engine, ongoing),
        "history": [list(event.values()) for event in engine.history().to_pylist()],
    }
    versions = [table_versions.to_parts() for table_versions in engine.sources.versions.values()]
    late = engine.late_output.rows.to_parts()
    return KIND.pack({"header": header, "rows": rows, "late": late, "queries": arrays, "versions": versions})


def _version(version: Version, held: int | None, lone: LoneJoin | None, after: int | None) -> dict[str, Any]:
    drain = version.drain
    drained = drain.contents() if isinstance(drain, DrainByArrivals) else []
    return {
        "number": version.number,
        "query": query_text(version.query),
        "start": version.start,
        "warm": version.warm,
        "complete_from": version.complete_from,
        "stop": version.stop,
        "drain": None if drain is None else [drain.at, drained],
        "ended": version.ended,
        "held": held,
        "begun": None if lone is None else lone.begun,
        "after": after,
        "greatest": drain.greatest if isinstance(drain, DrainByWindows) else None,
    }


def _plans(engine: QueryHost, running: list[RunningQuery]) -> list[list[Any]]:
    """Return the plan of each join, with the first query and version that it serves."""
    plans: dict[Any, list[Any]] = {}
    for query in running:
        for version in [live for live in query.live if live in engine.joins.readers]:
            family = engine.joins.readers[version].family
            plans.setdefault(family, [query.name, version.number, engine.joins.plan_of(family)])
    return list(plans.values())


def _rows(schema: pa.Schema, batches: list[pa.RecordBatch], place: str) -> list[memoryview]:
    """Return rows as bytes, in plain types. Raises SnapshotError for a value that is not valid."""
    columns = (list(map(to_plain, batch.columns)) for batch in batches)
    return write_rows(plain_schema(schema), columns, place, SnapshotError)

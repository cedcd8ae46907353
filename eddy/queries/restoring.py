"""Restoring an engine from a snapshot: every value is checked before it is used, and nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.arrivals import Times
from eddy.ingest.clock import behind_of
from eddy.ingest.validation import checked_times
from eddy.queries.alone import changes_alone, is_alone, is_plain
from eddy.queries.changes import CHANGES
from eddy.queries.drain import DrainByArrivals, DrainByWindows
from eddy.queries.history import Event
from eddy.queries.lineage import Succession
from eddy.queries.lone_join import LoneJoin
from eddy.queries.query import QueryHost, RunningQuery
from eddy.queries.snapshot import FORM, KIND, streams_text
from eddy.queries.sources import DELETE, POSITION, UPSERT
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.query.text import difference
from eddy.results.failed_rows import FAILED
from eddy.results.side_rows import LateRows
from eddy.routing.policies import POLICIES, Policy
from eddy.runtime import Runtime
from eddy.snapshot.restore import Choices
from eddy.snapshot.restore import restored as restored_pipeline
from eddy.streams.event_time import Units, ticks
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import Stream
from jisc.plan.tree import read_plan
from stairs.errors import InputError, PlanError, SnapshotError
from stairs.graph import FOREVER
from stairs.plain_types import from_plain, plain_schema
from stairs.storage.parts import Parts

Queries = Mapping[str, Query | Sequence[Query]]
Restored = TypeVar("Restored", bound=QueryHost)
_require = KIND.require


def restored(
    make: Callable[..., Restored],
    data: object,
    streams: Sequence[Stream],
    queries: Queries,
    policy: str | Policy | None,
    max_bytes: int | None,
    **late: Any,
) -> Restored:
    """Return an engine that resumes where a snapshot was taken; see `Engine.restore`.

    make   the class of the engine
    late   its options of late rows
    """
    parts = KIND.unpack(data)
    header = parts.value("header", FORM)
    options = {name: value for name, value in header["options"].items() if value is not None}
    every = options.pop("decide_every", None)
    if policy is not None:
        options["policy"] = policy
    elif options.get("policy") not in (None, *POLICIES):
        raise SnapshotError(
            f"the snapshot was taken under policy {options['policy']!r}, which is none of {', '.join(POLICIES)}: give"
            " that policy, or another one, to restore (policy=…)"
        )
    idle, watermark = header["idle_after"], header["watermark"]
    _require(idle is None or (watermark == "slowest" and header["clock"] is not None), "an idle_after without effect")
    engine = make(
        _with_lateness(streams, header),
        watermark=watermark,
        idle_after=None if idle is None else Units(idle),
        share=header["share"],
        max_bytes=header["max_bytes"] if max_bytes is None else max_bytes,
        **late,
        **options,
    )
    if every is not None:
        engine.options["decide_every"] = every
    _check_streams(header, engine)
    _check_lateness(streams, header, engine)
    reader = _EngineReader(header, parts, engine)
    version_queries = _matched(header, queries)
    reader.rows()
    reader.resume(version_queries)
    parts.check_read()
    return engine


def _with_lateness(streams: Sequence[Stream], header: Mapping[str, Any]) -> list[Stream]:
    """Return streams with the lateness that they had."""
    saved = {stream["name"]: stream["lateness"] for stream in header["streams"]}
    return [
        replace(stream, lateness=Units(saved.get(stream.name, 0))) if stream.time is not None else stream
        for stream in streams
    ]


def _check_lateness(streams: Sequence[Stream], header: Mapping[str, Any], engine: QueryHost) -> None:
    """Raise SnapshotError for a stream that was given another lateness than it had."""
    for stream, saved in zip(streams, header["streams"], strict=True):
        if stream.lateness is None or engine.sources.time_type is None:
            continue
        lateness = ticks(stream.lateness, engine.sources.time_type, None, f"stream {stream.name}, lateness")
        if lateness != saved["lateness"]:
            raise SnapshotError(
                f"stream {stream.name}, lateness: {saved['lateness']} ticks in the snapshot,"
                f" {lateness} given; an engine is"
                " restored with the same streams"
            )


def _check_streams(header: Mapping[str, Any], engine: QueryHost) -> None:
    """Raise SnapshotError unless the snapshot is of the streams of an engine, and its counts fit each other."""
    given = streams_text(engine.sources)
    names, saved = [stream["name"] for stream in given], [stream["name"] for stream in header["streams"]]
    if names != saved:
        raise SnapshotError(f"streams: {', '.join(saved)} in the snapshot, {', '.join(names)} given")
    for mine, theirs in zip(given, header["streams"], strict=True):
        for what in ("columns", "time", "table", "window"):
            if mine[what] != theirs[what]:
                raise SnapshotError(
                    f"stream {mine['name']}, {what}: {theirs[what]} in the snapshot, {mine[what]} given; an engine is"
                    " restored with the same streams"
                )
    timed = engine.sources.graph.timed
    _require(timed == (header["clock"] is not None), "there is a clock without event times, or the other way round")
    _require(
        sum(stream["count"] for stream in header["streams"]) == header["position"], "the streams have other arrivals"
    )
    for stream in header["streams"]:
        name = stream["name"]
        _require(
            stream["complete_from"] <= stream["end"] <= header["position"], f"stream {name} ends at {stream['end']}"
        )
        _require(stream["rows"] <= stream["count"] <= stream["end"], f"stream {name} has {stream['count']} arrivals")
        _require(timed or stream["newest"] == -FOREVER, f"stream {name} has no event times, but a newest one")


def _matched(header: Mapping[str, Any], queries: Queries) -> list[list[Query]]:
    """Return the query of each version of each query. Raises SnapshotError for versions without one."""
    saved = [entry["name"] for entry in header["queries"]]
    _require(len(set(saved)) == len(saved), "two queries have one name")
    unknown = sorted(set(queries) - set(saved))
    if unknown:
        raise SnapshotError(f"the snapshot has no query {unknown[0]!r}; it has {', '.join(saved) or 'none'}")
    version_queries = []
    for entry in header["queries"]:
        name = entry["name"]
        if name not in queries:
            raise SnapshotError(f"the snapshot has a query {name!r}: give it to restore, queries={{{name!r}: …}}")
        given = queries[name]
        candidates = [given] if isinstance(given, Query) else list(given)
        if not candidates or not all(isinstance(query, Query) for query in candidates):
            raise InputError(f"restore: query {name!r} is an eddy.Query, or several, not {given!r}")
        version_queries.append([_match(name, version, candidates) for version in entry["versions"]])
    return version_queries


def _match(name: str, version: Mapping[str, Any], given: Sequence[Query]) -> Query:
    for query in given:
        what = difference(version["query"], query)
        if what is None:
            return query
    raise SnapshotError(
        f"query {name!r}: version {version['number']} of the snapshot is another query: {what}. While a query changes,"
        " give the queries of all its versions in a list"
    )


class _EngineReader:
    """Fills an engine without rows and queries from the checked header and the other parts of a snapshot."""

    def __init__(self, header: Mapping[str, Any], parts: Parts, engine: QueryHost) -> None:
        self._header, self._parts, self._engine = header, parts, engine
        self._queries = parts.items("queries", len(header["queries"]))
        self._joins = [query.part("joins") for query in self._queries]
        self._groups = [query.part("groups") for query in self._queries]

    def rows(self) -> None:
        """Restore the rows that are kept, and the figures of the streams."""
        engine, header, places, behind = self._engine, self._header, [np.zeros(0, np.int64)], 0
        kept = self._parts.part("rows")
        for i, (stream, saved) in enumerate(zip(engine.sources.streams, header["streams"], strict=True)):
            batches = _batches(kept, stream.name, engine.sources.kept_schemas[i], saved["rows"])
            positions = [
                np.asarray(batch.column(POSITION)) for batch in batches if not batch.column(POSITION).null_count
            ]
            _require(
                len(positions) == len(batches) and all(map(len, positions)),
                f"stream {stream.name} has rows without positions",
            )
            if i in engine.sources.keyed:
                _check_changes(engine.sources.keyed[i], batches)
            place = np.concatenate([places[0], *positions])
            fits = not len(place) or (saved["complete_from"] <= place[0] and place[-1] < saved["end"])
            _require(bool(fits and (np.diff(place) > 0).all()), f"stream {stream.name} has rows at other positions")
            places.append(place)
            times: list[Times | None] = [None] * len(batches)
            if stream.time is not None:
                try:
                    times = [checked_times(stream, batch, engine.sources.time_type) for batch in batches]
                except InputError as problem:
                    raise KIND.wrong(str(problem)) from problem
                known = [ticks for ticks in times if ticks is not None]
                _require(all(int(ticks.max()) <= saved["newest"] for ticks in known), "a row is newer than all")
                behind = max(behind, behind_of(np.concatenate(known))) if known else behind
            engine.joins.kept[i].resume(batches, times, saved["count"], saved["end"], saved["complete_from"])
        versions = list(engine.sources.versions.values())
        for own_versions, part in zip(versions, self._parts.items("versions", len(versions)), strict=True):
            own_versions.load_parts(part)
        if engine.clock is not None:
            engine.clock.resume(header["clock"], behind, _require)
        every = np.concatenate(places)
        _require(len(np.unique(every)) == len(every), "two rows have one position")
        engine.resume_at(
            header["position"],
            [saved["newest"] for saved in header["streams"]],
            LateRows.from_parts(self._parts.part("late"), list(engine.late_output.schemas.values())),
            [Event(*event) for event in header["history"]],
            header["finished"],
        )
        _require(not (header["finished"] and header["queries"]), "a query runs after the end of the input")

    def resume(self, queries: list[list[Query]]) -> None:
        """Restore the queries, given those of their versions, and their joins."""
        engine = self._engine
        running = [self._running(q, entry, queries[q]) for q, entry in enumerate(self._header["queries"])]
        plans = {(name, number): plan for name, number, plan in self._header["plans"]}
        for q, query in enumerate(running):
            if query.paused:
                try:
                    engine.joins.keep_for(query.name, query.query, query.output)
                except InputError as problem:
                    raise KIND.wrong(str(problem)) from problem
            for version, saved in zip(query.versions, self._header["queries"][q]["versions"], strict=True):
                if saved["begun"] is not None:
                    self._resume_alone(q, query, version, saved["begun"])
            for version in query.live:
                if is_alone(version.query, query.output):
                    where = f"query {query.name!r}, version {version.number}"
                    _require(version in engine.joins.alone, f"{where} has no join")
                    continue
                family, _ = engine.joins.serve(version)
                self._resume_groups(q, query, version)
                plan = plans.pop((query.name, version.number), None)
                if plan is not None:
                    try:
                        family.tree = read_plan(plan, family.query.graph)
                    except PlanError as problem:
                        raise KIND.wrong(str(problem)) from problem
        _require(not plans, "there is a plan of an unknown version")
        engine.resume(running)

    def _resume_groups(self, q: int, query: RunningQuery, version: Version) -> None:
        """Restore the groups of a version that takes results from a shared join."""
        entries = self._header["queries"][q]["versions"]
        (after,) = [entry["after"] for entry in entries if entry["number"] == version.number]
        grouping, where = self._engine.joins.grouping_of(version), f"query {query.name!r}, version {version.number}"
        begun = version.start is not None and version.start <= self._header["position"]
        _require(after is None or (grouping is not None and begun), f"{where} has groups before its start")
        if grouping is not None:
            grouping.load_parts(self._groups[q].part(str(version.number)), after, self._engine.watermark)

    def _resume_alone(self, q: int, query: RunningQuery, version: Version, begun: bool) -> None:
        """Restore the join of a version that has one of its own."""
        engine, where = self._engine, f"query {query.name!r}, version {version.number}"
        lone_join = LoneJoin(version, query.output, engine.sources, engine.options, engine.joins.bound)
        policy = engine.options.get("policy")
        parts = self._joins[q].part(str(version.number))
        runtime = Runtime._running(lone_join.query, restored_pipeline(parts, lone_join.query, Choices(policy=policy)))
        position = self._header["position"]
        due = version.start is not None and version.start <= position
        _require(is_alone(version.query, query.output), f"{where} has a join of its own")
        _require(begun <= due and (begun or not due or version.start == position), f"{where} began at another position")
        _require(runtime.output_schema.equals(lone_join.runtime.output_schema), f"{where} has other columns")
        _require(begun or not runtime.position, f"{where} has rows from before its start")
        _require(runtime.max_bytes == self._header["max_bytes"], f"{where} has another bound on its bytes")
        _require(not runtime._pipeline.finished, f"the input of {where} has ended")
        kept = runtime._pipeline.options
        _require(kept.ordered == version.ordered, f"{where} has results in another order")
        _require(kept.bounded == bool(engine.options.get("bounded")), f"{where} waits for another end")
        timed = begun and runtime._pipeline.clock is not None
        over = version.ended is not None
        _require(over or runtime.watermark == (engine.watermark if timed else None), f"{where} has another watermark")
        lone_join.resume(runtime, begun)
        engine.joins.serve_alone(lone_join)

    def _running(self, q: int, saved: Mapping[str, Any], queries: Sequence[Query]) -> RunningQuery:
        """Return a query with its versions and changes under way."""
        name, versions, links = saved["name"], [], saved["successions"]
        numbers = [entry["number"] for entry in saved["versions"]]
        _require(bool(numbers) and numbers == sorted(set(numbers)), f"query {name!r} has the versions {numbers[:20]}")
        for old, new, _, _ in links:
            _require({old, new} <= set(numbers) and old < new, f"query {name!r} has a change from {old} to {new}")
        for entry, query in zip(saved["versions"], queries, strict=True):
            versions.append(self._version(name, entry, query, links))
            versions[-1].ordered = saved["ordered"]
        by_number = {version.number: version for version in versions}
        running_query = RunningQuery(self._engine, name, versions[-1], saved["output"])
        for resumed in versions:
            if is_alone(resumed.query, running_query.output):
                kinds = {how for _, _, how, _ in links} - set(changes_alone(resumed.query, running_query.output))
                _require(not kinds, f"query {name!r} has a change that its join does not have")
                _require(resumed.drain is None or is_plain(resumed.query), f"query {name!r} drains, and cannot")
            (numbers,) = [entry["replaces"] for entry in saved["versions"] if entry["number"] == resumed.number]
            changed = {old for old, new, how, _ in links if new == resumed.number and CHANGES[how].warm}
            _require(set(numbers) <= changed, f"query {name!r} replaces versions without a change")
            resumed.replaces = tuple(by_number[number] for number in numbers)
        ongoing = any(version.ended is None for version in versions)
        _require(ongoing or saved["paused"], f"query {name!r} has stopped")
        pauses = saved["output"] != "changelog" and all(v.ended is not None or v.stop is not None for v in versions)
        _require(pauses or not saved["paused"], f"query {name!r} is paused and runs")
        held, waiting = {}, self._queries[q].part("held")
        for entry, version in zip(saved["versions"], versions, strict=True):
            if entry["held"] is not None:
                _require(any(new == version.number and CHANGES[how].holds for _, new, how, _ in links), "results wait")
                schema = version.query.output_schema
                batches = _batches(waiting, str(version.number), schema, entry["held"])
                held[version] = pa.Table.from_batches(batches, schema)
        changes = [Succession(by_number[old], by_number[new], how, at) for old, new, how, at in links]
        failed = LateRows.from_parts(self._queries[q].part("failed"), [FAILED])
        running_query.resume_with(
            versions=versions,
            successions=changes,
            held=held,
            last_element=saved["element"],
            n_results=saved["results"],
            failed=failed,
            paused=saved["paused"],
        )
        return running_query

    def _version(self, name: str, saved: Mapping[str, Any], query: Query, links: Sequence[Any]) -> Version:
        engine, where, position = self._engine, f"query {name!r}, version {saved['number']}", self._header["position"]
        waits = any(new == saved["number"] and CHANGES[how].waits for _, new, how, _ in links)
        _require(saved["start"] is not None or (waits and saved["ended"] is None), f"{where} has no start")
        came = saved["ended"] is None or saved["ended"] <= position or saved["ended"] == saved["start"]
        _require(came, f"{where} ended at {saved['ended']}, which is to come")
        engine.sources.check(query)
        version = Version(saved["number"], query, saved["start"], saved["warm"], saved["complete_from"])
        version.stop, version.ended = saved["stop"], saved["ended"]
        _require(saved["greatest"] is None or saved["drain"] is not None, f"{where} has windows of a drain")
        if saved["drain"] is not None:
            at, windows = saved["drain"]
            if query.aggregation is not None:
                version.drain = DrainByWindows(at)
                version.drain.greatest = saved["greatest"]
                _require(not windows and (saved["greatest"] is None or at <= position), f"{where} drains rows")
                return version
            _require(len(windows) == len(query.streams), f"{where} drains {len(windows)} streams")
            _require(saved["greatest"] is None, f"{where} has windows of a drain")
            version.drain = DrainByArrivals(at, version, engine.sources, engine.newest, None)
            version.drain.fill(windows)
        return version


def _check_changes(table: KeyedInput, batches: Sequence[pa.RecordBatch]) -> None:
    """Raise SnapshotError for changes of a table without a key, or that say nothing."""
    for batch in batches:
        lacks = any(pc.any(batch.column(key).is_null(nan_is_null=True)).as_py() for key in table.keys)
        _require(not lacks, f"table {table.name} has a change without a key")
        if table.ops is not None:
            known = pc.is_in(batch.column(len(table.schema)), pa.array([UPSERT, DELETE]))
            _require(bool(pc.all(known).as_py()), f"table {table.name} has a change with an unknown operation")


def _batches(parts: Parts, name: str, schema: pa.Schema, rows: int) -> list[pa.RecordBatch]:
    """Return the rows of a part. Raises SnapshotError unless there are so many."""
    batches = parts.batches(name, plain_schema(schema), rows)
    parts.require(sum(map(len, batches)) == rows, f"{name} has other rows than the header says")
    for field in schema:
        nulls = not field.nullable and any(batch.column(field.name).null_count for batch in batches)
        parts.require(not nulls, f"{name} has a null in column {field.name!r}, which is not null")
    return [
        pa.RecordBatch.from_arrays(list(map(from_plain, batch.columns, schema.types)), schema=schema)
        for batch in batches
    ]

"""Narrows a query to the needs of a worker: fewer columns to move, filters before the shuffle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from eddy.expressions.computed import ComputedExpression
from eddy.expressions.derived import given_columns
from eddy.query.query import Query
from eddy.streams.keyed import OP_COLUMN
from eddy.streams.late_options import Failed, Late
from eddy.streams.stream import Stream, readable_name
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from stairs.plain_types import plain

OP_FIELD = pa.field(OP_COLUMN, pa.string())


def _flat(schema: pa.Schema, names: set[str]) -> pa.Schema:
    """Return the named columns in the schema's order and in plain types: rows are sent as values only."""
    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in schema if f.name in names])


def narrowed(
    query: Query, sequence: Sequence[str | None], *, timed: bool, whole: bool
) -> tuple[Query, tuple[pa.Schema, ...]]:
    """Return the query that a worker runs, and per stream the columns to read from the source.

    sequence   per stream, the column of the order of arrival, None without an order
    timed      whether the query keeps event times
    whole      whether the query keeps all columns

    The query keeps the columns of keys, of comparisons, of `sequence`, of `select` and of each `where`. The narrowed
    query has no filters: rows are filtered when they are read, so a column that only the filter reads is not sent to
    the worker. The arrivals are in order of event time or come with watermarks, so the query needs no lateness and
    waits for no stream. A table keeps its filter, because a change that the filter rejects is a delete. A
    versioned table keeps its columns as well, which order versions of one time. Functions for late and failed rows run
    on the driver: workers keep all of these rows until they have written them.
    """
    needed: dict[str, set[str]] = {stream.name: set() for stream in query.streams}
    joins = tuple(query.inner_joins().values())
    for key_class in (key_class for join in joins for key_class in join.classes):
        for name, components in key_class.columns.items():
            needed[name].update(column for component in components for column in given_columns(component))
    compared = [column for join in joins for comparison in join.comparisons for column in comparison.columns]
    conditions = [place for join in (query, *joins) for place in join.where_columns]
    probed = [(query.streams[key.stream].name, key.column) for join in query.as_of_joins for key in join.keys]
    compared += [(name, given) for name, column in probed for given in given_columns([column])]
    for name, column in (*query.select.values(), *conditions, *compared):
        needed[name].add(column)
    for stream, place in zip(query.streams, sequence, strict=True):
        if place is not None:
            needed[stream.name].add(place)
    streams, inputs, versions = list[Stream](), list[pa.Schema](), dict[str, VersionedTable]()
    for stream, choice in zip(query.streams, query.late_by_stream, strict=True):
        late: Late = "count" if choice == "count" else "keep"
        kept = set(stream.schema.names) if whole else needed[stream.name]
        read = kept.union(*(condition.read(stream.schema) for condition in stream.conditions))
        time = stream.time if timed else None
        window = None if stream.name in query.unwindowed else stream.window
        if isinstance(stream, VersionedTable):
            schema = _flat(stream.schema, set(stream.schema.names))
            versions[stream.name] = table = replace(stream, schema=schema, late=late, lateness=None, window=None)
            streams.append(table)
            inputs.append(pa.schema([*schema, *([OP_FIELD] if stream.ops is not None else [])]))
            continue
        if isinstance(stream, Table):
            kept, ops = read | {*stream.keys, *([stream.version] if stream.version else ())}, [OP_FIELD]
            schema = _flat(stream.schema, kept)
            streams.append(
                replace(stream, schema=schema, ops="column", late="count" if stream.version else None, window=None)
            )
            inputs.append(pa.schema([*schema, *(ops if stream.ops == "column" else [])]))
            continue
        streams.append(Stream(stream.name, _flat(stream.schema, kept), window, time, late=late))
        inputs.append(_flat(stream.schema, read))
    select = {
        name: output if isinstance(output, ComputedExpression) else readable_name(*output)
        for name, output in query.outputs.items()
    }
    failed: Failed = "count" if query.failed == "count" else "keep"
    more: dict[str, Any] = {"select": select, "where": query.where, "failed": failed, "failed_rows": sys.maxsize}
    more |= {"watermark": "fastest", "expiry": query.expiry}
    if query.tree is None:
        return Query(streams, query.on, **more), tuple(inputs)
    by_name = {stream.name: stream for stream in streams}
    as_of = [replace(join, table=versions[join.table.name]) for join in query.as_of]
    branches = [branch.of_streams(by_name) for branch in query.branches]
    core = [by_name[stream.name] for stream in query.core_streams]
    return Query(core, query.on, branches=branches, as_of=as_of, **more), tuple(inputs)

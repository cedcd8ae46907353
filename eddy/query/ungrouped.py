"""A query without its last operators: without `top` it has all rows, without aggregates the joined rows of groups."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from eddy.query.query import Query
from eddy.streams.stream import readable_name


def ungrouped(query: Query, more: Mapping[str, Any] | None = None) -> Query:
    """Return the query whose results a query with aggregates counts: the columns of `row_schema`, and `more`.

    more   output columns as in `Query(select=…)`
    """
    select = {name: readable_name(*place) for name, place in query.select.items()}
    same: dict[str, Any] = {
        "select": {**select, **(more or {})},
        "where": query.where,
        "lateness": query.lateness,
        "late": query.late,
        "late_rows": query.late_rows,
        "failed": query.failed,
        "failed_rows": query.failed_rows,
        "watermark": query.watermark,
        "idle_after": query.idle_after,
        "expiry": query.expiry,
    }
    if query.tree is not None:
        return Query(query.core_streams, query.on, branches=query.branches, as_of=query.as_of, **same)
    # Windows that followed from intervals are derived again.
    streams = [replace(stream, window=None) if stream.name in query.unwindowed else stream for stream in query.streams]
    return Query(streams, query.on, **same)


def without_top(query: Query) -> Query:
    """Return the query whose rows `top` of a query ranks: with all columns that it reads, selected or not."""
    other = copy(query)
    other.top = other.ranking = None
    other.outputs, other.hidden_outputs = {**query.outputs, **query.hidden_outputs}, {}
    other.group_outputs, other.output_schema = query.group_rows, query.row_schema
    if query.aggregation is not None:
        other.output_schema = query.aggregation.schema if query.group_rows is None else query.group_rows.schema
    return other

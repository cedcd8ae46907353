"""A query with aggregates, without these aggregates: its results are the joined rows of the groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eddy.query.query import Query
from eddy.streams.stream import readable_name


class ResultsQuery(Query):
    """A query whose results may be the rows of one stream, which another operator aggregates."""

    _least = 1


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
    streams = [replace(one, window=None) if one.name in query.derived else one for one in query.streams]
    return (ResultsQuery if len(streams) == 1 else Query)(streams, query.on, **same)

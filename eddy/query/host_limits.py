"""The limits of hosts: a host refuses queries with features that it lacks; a `Runtime` has all features."""

from __future__ import annotations

from eddy.query.query import Query
from eddy.streams.late_options import LATE_ROWS
from stairs.errors import QueryError


def check_sourceless(query: Query, host: str, remedy: str = "use a Runtime") -> None:
    """Raise QueryError for a query with inputs that are queries."""
    below = [stream.place for stream in query.streams if stream.source is not None]
    if below:
        raise QueryError(f"{below[0]} has the rows of a query, which {host} does not run; {remedy}")


def check_changeless(query: Query, host: str) -> None:
    """Raise QueryError for a query with tables, whose rows change, or with inputs that are queries."""
    check_sourceless(query, host)
    if query.as_of:
        raise QueryError(f"table {query.as_of[0].table.name}: {host} has no as-of joins; use a Runtime")
    if query.tables_changing:
        raise QueryError(
            f"table {query.tables_changing[0]}: {host} takes streams, whose rows are never replaced or deleted; use a"
            " Runtime"
        )


def check_all_rows(query: Query, host: str) -> None:
    """Raise QueryError for a query with tables, or with `top`: its answer changes."""
    check_changeless(query, host)
    check_topless(query, host)


def check_topless(query: Query, host: str) -> None:
    """Raise QueryError for a query with `top`, whose answer changes."""
    if query.top is not None:
        raise QueryError(f"{host} gives all rows of a query, and this query has top; use a Runtime")


def check_joined_rows(query: object, host: str) -> None:
    """Raise QueryError unless this is a query whose results are the rows of one inner join."""
    if not isinstance(query, Query):
        raise QueryError(f"{host} runs an eddy.Query, not {type(query).__name__}")
    check_all_rows(query, host)
    if query.branches:
        raise QueryError(f"{host} runs inner joins, and this query has branches; use a Runtime")
    if query.aggregation is not None:
        raise QueryError(
            f"{host} gives the rows of a join, and this query has groups or aggregates; leave them out and aggregate"
            " the results, or use a Runtime"
        )
    if len(query.streams) == 1:
        raise QueryError(f"{host} joins streams, and this query has one; use a Runtime")


def check_waits(query: Query, remedy: str) -> None:
    """Raise QueryError if the watermark of a query does not wait for its slowest stream, however long."""
    given = {"watermark='fastest'": query.watermark != "slowest", "idle_after": query.idle_after is not None}
    for what in [name for name, setting in given.items() if setting]:
        raise QueryError(f"Query({what}) is for a Runtime, where it goes by the event time of rows; {remedy}")


def check_counts_late(query: Query, host: str) -> None:
    """Raise QueryError if a query asks for more than the number of its late rows, which all hosts count."""
    remedy = f"{host} only counts late rows; leave it out, or use a Runtime"
    if query.late_rows != LATE_ROWS:
        raise QueryError(f"late_rows={query.late_rows}: {remedy}")
    if callable(query.late):
        raise QueryError(f"late is a function: {remedy}")
    for stream in query.streams:
        if stream.late not in (None, "count"):
            what = "'keep'" if stream.late == "keep" else "a function"
            raise QueryError(f"stream {stream.name}: late is {what}: {remedy}")


def check_failed_plainly(query: Query, remedy: str) -> None:
    """Raise QueryError if a query asks for more than to keep or to count its failed rows."""
    if query.failed_rows != LATE_ROWS:
        raise QueryError(f"failed_rows={query.failed_rows}: {remedy}")
    if callable(query.failed):
        raise QueryError(f"failed is a function: {remedy}")

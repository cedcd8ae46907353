"""Which versions of queries have a join of their own, and how these can change."""

from __future__ import annotations

from typing import Literal

from eddy.queries.changes import CHANGES, How
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from stairs.errors import InputError

Output = Literal["append", "changelog", "upsert"]


def is_alone(query: Query, output: Output) -> bool:
    """Return whether a version of a query has a join of its own."""
    if output != "append" or query.branches or query.as_of or query.top is not None or query.tables_changing:
        return True
    if reads_results(query):
        return True
    groups = query.aggregation
    return groups is not None and (groups.window is None or groups.window.slack is None)


def is_plain(query: Query) -> bool:
    """Return whether the results of a query are those of an inner join of streams, one by one."""
    derived = [query.aggregation, query.top, *query.branches, *query.as_of, *query.tables_changing]
    return not any(part is not None for part in derived) and not reads_results(query)


def reads_results(query: Query) -> bool:
    """Return whether a stream of a query, or of one below, has the final rows of another one."""
    derived = [(stream, stream.source) for stream in query.streams if isinstance(stream.source, Query)]
    return any(not isinstance(stream, Table) or reads_results(source) for stream, source in derived)


def keeps_look_ups(query: Query, output: Output) -> bool:
    """Return whether a row of a query may be shown later with what a look-up gave it at its arrival.

    A version that starts on earlier rows would look them up again, in tables that have changed since.
    """
    tables = {as_of.table.name for as_of in query.as_of}
    waits = any(isinstance(as_of.table, VersionedTable) for as_of in query.as_of)
    return bool(query.looks_up) and (output != "append" or waits or len(query.streams) > len(tables) + 1)


def changes_alone(query: Query, output: Output) -> tuple[How, ...]:
    """Return the kinds of change that are possible for a version with a join of its own.

    A drain of rows without partners, of groups or of rows of tables would need rows of both versions to decide. Upserts
    have no rows that end, which a handover takes back. Groups and first rows of append output are final: those of rows
    from before a handover have been given. So are results that stay when their rows leave (`expiry="final"`), of which
    the rows that are kept say nothing.
    """
    if reads_results(query) or keeps_look_ups(query, output):
        return ("immediate",)
    if output == "changelog":
        handover: tuple[How, ...] = () if _has_results_that_stay(query) else ("handover",)
        drain: tuple[How, ...] = ("drain-stream",) if is_plain(query) else ()
        return ("immediate", *handover, *drain)
    if output == "upsert" or query.aggregation is not None or query.top is not None:
        return ("immediate",)
    return ("immediate", "handover")


def _has_results_that_stay(query: Query) -> bool:
    below = [stream.source for stream in query.streams if isinstance(stream.source, Query)]
    return query.expiry == "final" or any(map(_has_results_that_stay, below))


def check_change(name: str, old: Query, new: Query, how: How, output: Output, sources: Sources) -> None:
    """Raise InputError for a kind of change that has no meaning for queries with joins of their own."""
    alone = [candidate for candidate in (old, new) if is_alone(candidate, output)]
    for query in alone:
        kinds = changes_alone(query, output)
        if how not in kinds:
            raise InputError(
                f"query {name!r}: {how!r} has no meaning for {noun_of(query, output)}; change it with"
                f" {' or '.join(map(repr, kinds))}"
            )
        if how == "handover" and output == "changelog":
            check_kept(f"query {name!r}: a handover", query, sources)
    if alone and CHANGES[how].drains:
        check_drain(name, old, f"{how!r}")


def check_drain(name: str, query: Query, what: str) -> None:
    """Raise InputError for a drain of a query whose results depend on more than the rows in them."""
    if not is_plain(query) and is_alone(query, "append"):
        raise InputError(
            f"query {name!r}: {what} has no meaning for {noun_of(query, 'append')}, because its rows depend on others"
            " from before and after; stop or change it with 'immediate'"
        )


def noun_of(query: Query, output: Output) -> str:
    """Return what a query is, in errors."""
    if reads_results(query):
        return "a query over final rows of another one"
    if keeps_look_ups(query, output):
        return "a query whose rows keep what was looked up at their arrival"
    if query.branches:
        return "a query with branches"
    if query.tables_changing or query.as_of:
        return "a query over tables"
    if query.aggregation is not None or query.top is not None:
        return "a query with groups or first rows"
    return "a changelog" if output == "changelog" else f"output={output!r}"


def check_kept(what: str, query: Query, sources: Sources) -> None:
    """Raise InputError unless the engine keeps all rows in the windows of a query."""
    missing = sources.unkept(query)
    if missing is not None:
        raise InputError(
            f"{what} of a changelog computes its answer from the rows in all windows, and the engine does not keep"
            f" those of stream {missing!r}: give the stream of the engine a window that is as long, Stream(…, window=…)"
        )

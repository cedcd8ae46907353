"""Checks of the queries of a hub and of their changes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eddy.queries.alone import changes_alone, check_change, check_drain, check_kept
from eddy.queries.changes import How
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.hub.sources import HubStreams
from stairs.errors import InputError, QueryError


def columns_of(rows: pa.Schema) -> list[tuple[str, str]]:
    """Return names and types of the columns of a query's rows."""
    return [(field.name, str(field.type)) for field in rows]


def check_columns(name: str, columns: Sequence[tuple[str, str]], rows: pa.Schema) -> None:
    """Raise QueryError if the rows of a new version have other columns: a sink has one schema."""
    plain = [(column, kind.removesuffix(" not null")) for column, kind in columns]
    if plain != columns_of(rows):
        raise QueryError(
            f"query {name!r}: the results of the new version have the columns"
            f" {', '.join(' '.join(pair) for pair in columns_of(rows))}, and those of the old one"
            f" {', '.join(' '.join(pair) for pair in plain)}; a sink takes one kind of rows: start the new query under"
            " another name, and stop the old one"
        )


def check_query(streams: HubStreams, name: str, query: Query, output: JoinOutput, warm: bool = False) -> None:
    """Raise QueryError for a query that the streams of a hub do not have, and InputError for a warm start of a query
    whose answer is not that of the rows that the log keeps."""
    streams.check(name, query)
    below = HubJoin(name, query, output)
    if not warm:
        return
    if below.above and not below.windows:
        raise InputError(
            f"query {name!r}: a warm start has no meaning for groups and first rows of all results, which come from"
            " rows before the start as well; leave warm out"
        )
    if below.output == "changelog":
        if "handover" not in changes_alone(below.query, below.output):
            raise InputError(
                f"query {name!r}: a warm start has no meaning for results that stay (expiry='final'); leave warm out"
            )
        check_kept(f"query {name!r}: a warm start", below.query, streams.sources)


def check_kind(name: str, how: How, old: Query, below: HubJoin, sources: Sources) -> None:
    """Raise InputError for a kind of change that has no meaning for the queries.

    below   the join below the new one, whose results have the form of those of the old one
    """
    check_stateless(name, how, HubJoin(name, old, below.asked), below)
    check_change(name, old, below.whole, how, below.output, sources)


def check_stop(name: str, query: Query, below: HubJoin) -> None:
    """Raise InputError for a drain that has no meaning for a query."""
    check_stateless(name, "drain", below)
    check_drain(name, query, "the drain")


def check_stateless(name: str, how: str, *joins: HubJoin, always: bool = False) -> None:
    """Raise InputError for a change that needs two versions at a time, or old rows, where there are none.

    always   whether one of the queries is known to have an operator above its join
    """
    if how == "immediate":
        return
    if always or any(join.above for join in joins):
        raise InputError(
            f"query {name!r}: {how!r} has no meaning for a query with aggregates or top on a hub, whose groups have one"
            " version at a time; stop or change it with 'immediate', or start the new one under another name"
        )
    if how != "handover" and any(join.output == "changelog" for join in joins):
        raise InputError(
            f"query {name!r}: {how!r} has no meaning for a changelog on a hub, whose answer has one version at a time;"
            " stop it with 'immediate', or change it with 'immediate' or 'handover'"
        )

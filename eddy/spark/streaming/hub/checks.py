"""Checks of the queries of a hub and of their changes."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.query.query import Query
from stairs.errors import InputError, QueryError


def columns_of(query: Query) -> list[tuple[str, str]]:
    """Return names and types of the result columns of a query."""
    return [(field.name, str(field.type)) for field in query.output_schema]


def check_columns(name: str, columns: Sequence[tuple[str, str]], query: Query) -> None:
    """Raise QueryError if the results of a new version have other columns: a sink has one schema."""
    plain = [(column, kind.removesuffix(" not null")) for column, kind in columns]
    if plain != columns_of(query):
        raise QueryError(
            f"query {name!r}: the results of the new version have the columns"
            f" {', '.join(' '.join(pair) for pair in columns_of(query))}, and those of the old one"
            f" {', '.join(' '.join(pair) for pair in plain)}; a sink takes one kind of rows: start the new query under"
            " another name, and stop the old one"
        )


def check_groups(name: str, how: str, *queries: Query, always: bool = False) -> None:
    """Raise InputError for a change of a query with aggregates that needs two versions at a time, or old rows.

    always   whether one of the queries is known to have aggregates
    """
    if how != "immediate" and (always or any(query.aggregation is not None for query in queries)):
        raise InputError(
            f"query {name!r}: {how!r} has no meaning for a query with aggregates on a hub, whose groups have one"
            " version at a time; stop or change it with 'immediate', or start the new one under another name"
        )

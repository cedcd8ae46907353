"""Validation of the arguments of a query: lists, predicates, streams and `select`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from eddy.streams.stream import Stream
from stairs.errors import QueryError
from stairs.graph import MAX_STREAMS

Select: TypeAlias = Sequence[str] | Mapping[str, Any]
"""The type of the argument `select`: a list of columns, or columns and expressions by output name."""


def listed(given: Iterable[Any], what: str, members: str) -> list[Any]:
    """Return a list of `members`. Raises QueryError if the argument `what` is no list."""
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise QueryError(f"{what} must be a list of {members}, not {type(given).__name__}")
    return list(given)


def predicate_texts(on: Any) -> tuple[Any, ...]:
    """Return the predicates of a query or branch. Raises QueryError for one string, and for a value that is no list."""
    if isinstance(on, str):
        raise QueryError(f"on must be a list of predicates, not one string: write [{on!r}]")
    return tuple(listed(on, "on", "predicates such as 'R.a = S.a'"))


def has_groups(group_by: Any, aggregates: Any, having: Any, group_window: Any) -> bool:
    """Return whether a query has groups. Raises QueryError for arguments that need groups."""
    grouped = bool(aggregates) or (bool(group_by) if isinstance(group_by, str | Mapping | Sequence) else True)
    if not grouped and (having is not None or group_window is not None):
        name = "group_window" if having is None else "having"
        raise QueryError(f"{name} is for groups: give group_by= or aggregates= too, or leave it out")
    return grouped


def check_streams(streams: Sequence[Any]) -> None:
    """Raise QueryError unless these are streams of different names, one or more, and no more than a join has."""
    for stream in streams:
        if not isinstance(stream, Stream):
            raise QueryError(f"streams must be eddy.Stream objects, not {stream!r}")
    names = [stream.name for stream in streams]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise QueryError(f"two streams are named {doubled[0]!r}; give each stream its own name")
    places = [(f"{stream.name}.{column}", stream.name) for stream in streams for column in stream.schema.names]
    owners: dict[str, str] = {}
    for column, name in places:
        if owners.setdefault(column, name) != name:
            raise QueryError(
                f"{column!r} is the name of a column of stream {owners[column]!r} and of one of stream {name!r};"
                " rename one of these streams"
            )
    if not 1 <= len(names) <= MAX_STREAMS:
        raise QueryError(f"a query has 1 to {MAX_STREAMS} streams, this one has {len(names)}")


def selected(select: Sequence[str] | Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the definition of each output column. Raises QueryError for a definition that is no column."""
    if isinstance(select, str):
        raise QueryError(f"select must be a list of columns or a mapping, not one string: write [{select!r}]")
    if not isinstance(select, Iterable):
        raise QueryError(f"select must be a list of columns or a mapping, not {type(select).__name__}")
    pairs: list[tuple[Any, Any]]
    pairs = list(select.items()) if isinstance(select, Mapping) else [(text, text) for text in select]
    if not pairs:
        raise QueryError("select is empty; leave it out for all columns, or use Runtime(…, count_only=True)")
    chosen: set[str] = set()
    for name, text in pairs:
        if not isinstance(name, str):
            raise QueryError(f"select: the name of an output column must be a string, not {name!r}")
        if name in chosen:
            raise QueryError(f"select: the output column {name!r} occurs twice")
        chosen.add(name)
        yield name, text

"""The key of the results of a query: the output columns that identify a row of the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from eddy.expressions.computed import ComputedExpression
from eddy.query.determined import Joined, determined, undetermined
from eddy.query.top import Ranking
from eddy.streams.key_columns import HIDDEN
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from stairs.errors import InputError


class Answered(Joined, Protocol):
    """The parts of a query that determine its results."""

    as_of: tuple[Any, ...]
    outputs: dict[str, tuple[str, str] | ComputedExpression]
    aggregation: Any
    group_outputs: Any
    ranking: Ranking | None
    output_schema: pa.Schema

    @property
    def shown(self) -> tuple[Stream, ...]:
        """The streams of whose columns results can have some."""


def result_key(query: Answered, what: str = "output='upsert'") -> tuple[str, ...]:
    """Return the output columns that identify a row; none if there is one row at most.

    what   what needs the key, for errors; another one than the output mode has no other mode

    Raises InputError for a query whose output columns contain no key.
    """
    if query.ranking is not None:
        return _key_of_top(query.ranking, query.output_schema.names, what)
    if query.aggregation is not None:
        return _key_of_groups(query, what)
    if query.as_of:
        raise InputError(f"{what} is for joins of tables, for groups and for top{_or_changelog(what)}")
    # A stream of a semi or anti branch decides which rows there are, and no row has its columns.
    stream = next((source.name for source in query.shown if not isinstance(source, Table)), None)
    if stream is not None:
        raise InputError(
            f"{what}: results have no key, because stream {stream} is no table; make it a Table{_or_changelog(what)}"
        )
    places = {place: name for name, place in query.outputs.items() if not isinstance(place, ComputedExpression)}
    columns, follow = [], determined(query)
    for source in query.shown:
        if source.name in follow:
            continue
        for key in source.shown_keys if isinstance(source, Table) else ():
            if (source.name, key) not in places:
                raise InputError(f"{what} needs the key of each table in select: add '{source.name}.{key}'")
            columns.append(places[source.name, key])
    return tuple(columns)


def key_lacks(query: Answered, key: Collection[str]) -> list[str]:
    """Return what a key of results lacks to identify them, as texts on columns; none if it identifies them.

    key   output columns. Those of a stream are taken to identify its rows, of which no more is known
    """
    ranking = query.ranking
    if ranking is not None and ranking.keyed:
        ranked = [*ranking.by, *([ranking.top.rank] if ranking.n > 1 and ranking.top.rank is not None else [])]
        return [f"{column.removeprefix(HIDDEN)!r} (key of top)" for column in ranked if column not in key]
    if query.aggregation is not None:
        return list(_groups_lack(query, key))
    places = {name: place for name, place in query.outputs.items() if not isinstance(place, ComputedExpression)}
    columns = {place for name, place in places.items() if name in key}
    lacking = [
        _lacking(places, place, ".".join(place), f"key of table {place[0]}") for place in undetermined(query, columns)
    ]
    streams = [stream.name for stream in query.shown if not isinstance(stream, Table)]
    mentioned = {name for name, _ in columns}
    return lacking + [
        f"columns that identify a row of stream {stream}" for stream in streams if stream not in mentioned
    ]


def _groups_lack(query: Answered, key: Collection[str]) -> Iterator[str]:
    """Yield the group columns that a key lacks, and a bound of the window."""
    groups, outputs = query.aggregation, query.group_outputs
    shown = {name: name for name in groups.schema.names} if outputs is None else outputs.outputs
    columns = [column for name, column in shown.items() if name in key]
    for name, _ in groups.keys:
        if name not in columns:
            yield _lacking(shown, name, name, "group column")
    window = groups.group_window
    bounds = [] if window is None else [bound for bound in (window.start, window.end) if bound is not None]
    if bounds and not any(bound in columns for bound in bounds):
        yield _lacking(shown, bounds[0], bounds[0], "bound of the window")
    elif window is not None and not bounds:
        yield "a bound of the window (start= of the group_window names its column)"


def _lacking(outputs: Mapping[str, Any], column: object, name: str, what: str) -> str:
    """Return the text on a column that a key lacks: the name of an output column, or that it is to be selected."""
    selected = next((output for output, other in outputs.items() if other == column), None)
    return f"{name!r} ({what}; select it, too)" if selected is None else f"{selected!r} ({what})"


def _key_of_groups(query: Answered, what: str) -> tuple[str, ...]:
    keys = [name for name, _ in query.aggregation.keys]
    if query.group_outputs is None:
        return tuple(keys)
    shown: Mapping[str, str] = {
        column: name for name, column in query.group_outputs.outputs.items() if isinstance(column, str)
    }
    missing = [name for name in keys if name not in shown]
    if missing:
        raise InputError(f"{what} needs each group column in select: add {missing[0]!r}")
    return tuple(shown[name] for name in keys)


def _key_of_top(ranking: Ranking, shown: Sequence[str], what: str) -> tuple[str, ...]:
    if not ranking.keyed:
        raise InputError(
            f"{what}: rows of top {ranking.n} have no key; give Top a rank column (rank='name'){_or_changelog(what)}"
        )
    lacking = next((name for name in ranking.by if name not in shown), None)
    if lacking is not None:
        raise InputError(f"{what} needs each column of top, by= in select: add {lacking.removeprefix(HIDDEN)!r}")
    return ranking.by if ranking.n == 1 or ranking.top.rank is None else (*ranking.by, ranking.top.rank)


def _or_changelog(what: str) -> str:
    """Return the other remedy for rows without a key: an output mode that needs none."""
    return ", or use output='changelog'" if what.startswith("output") else ""

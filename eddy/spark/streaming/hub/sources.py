"""The streams of a hub with their keys: the join that determines the form of the log, and the check of queries.

The rows of all streams are partitioned by one key, which is one or several columns of each stream. A query fits if its
equalities make the keys of its streams equal: then all components of a result are in one key group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.queries.sources import Sources, window_of
from eddy.query.as_of import AsOf
from eddy.query.host_limits import check_counts_late, check_failed_plainly
from eddy.query.query import Query
from eddy.spark.changes import plain_changes
from eddy.spark.columns import check_tables, check_versions
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.hub.keys import key_choices
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows, Unbounded
from stairs.errors import QueryError
from stairs.graph import WindowKind
from stairs.plain_types import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Source:
    """A stream or table of a hub.

    stream  a `Stream`, a `VersionedTable`, or a `Table` with a version: name, columns and time column. The log keeps
            these columns. A window keeps rows for queries that start later, whether or not a query needs them; None =
            only rows that the running queries need. No filter
    frame   streaming DataFrame with at least these columns
    key     the column or columns by which rows are partitioned; the equalities of each query must make the keys of its
            streams equal
    """

    stream: Stream
    frame: DataFrame
    key: str | Sequence[str]

    @property
    def plain(self) -> Source:
        """The source with plain changes in place of envelopes of Debezium."""
        if not isinstance(self.stream, Table) or self.stream.ops != "debezium":
            return self
        return Source(*plain_changes(self.stream, self.frame), self.key)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


class HubStreams:
    """The streams of a hub. Raises SparkJoinError for streams that do not fit together.

    sources  the streams in the form in which versions of queries are checked
    base     a join of all streams by key, with the columns of the log
    spans    per stream, the ticks for which rows are always kept; None = for ever
    """

    def __init__(self, given: Sequence[Source]) -> None:
        for candidate in given:
            _check(candidate)
        # As in `base`, whose tables of as-of joins come last.
        given = sorted(given, key=lambda source: isinstance(source.stream, VersionedTable))
        self.keys = {source.stream.name: source.keys for source in given}
        if len(given) < 2:
            raise SparkJoinError(f"a hub has 2 streams or more, not {len(given)}")
        if len({len(keys) for keys in self.keys.values()}) > 1:
            raise SparkJoinError(f"the keys of all streams of a hub have as many columns, not {self._listed()}")
        kinds = {
            source.stream.name: source.stream.type_of(source.stream.time)
            for source in given
            if source.stream.time is not None
        }
        if len(set(kinds.values())) > 1:
            raise SparkJoinError(
                "the time columns of all streams of a hub have one type, not"
                f" {', '.join(f'{name} {kind}' for name, kind in kinds.items())}; convert them"
            )
        self.sources = Sources([source.stream for source in given], place="Hub", alone=True)
        plain = [source.plain for source in given]
        self.frames = {source.stream.name: source.frame for source in plain}
        self._tables = {source.stream.name: source.stream for source in plain if isinstance(source.stream, KeyedInput)}
        streams = [
            source.stream if isinstance(source.stream, Table) else replace(source.stream, window=Range(0))
            for source in plain
            if not isinstance(source.stream, VersionedTable)
        ]
        versioned = [source.stream for source in plain if isinstance(source.stream, VersionedTable)]
        timed = [stream for stream in streams if stream.time is not None]
        if versioned and not timed:
            raise SparkJoinError("a hub has a stream beside its versioned tables, whose rows get their versions")
        quoted = {name: [_quoted(name, column) for column in keys] for name, keys in self.keys.items()}
        first, *others = (quoted[stream.name] for stream in streams)
        self.base = Query(
            streams,
            [_equality(first, other) for other in others],
            as_of=[
                AsOf(
                    table,
                    [_equality(quoted[timed[0].name], quoted[table.name])],
                    at=_quoted(timed[0].name, str(timed[0].time)),
                )
                for table in versioned
            ],
        )
        check_versions(self.base)
        kind = self.base.time_type
        self.spans = tuple(None if source.stream.name in self._tables else _span(source, kind) for source in given)

    def check(self, name: str, query: Query) -> None:
        """Raise QueryError for a query that cannot run on these streams."""
        if not isinstance(query, Query):
            raise QueryError(f"query {name!r}: a hub runs an eddy.Query, not {type(query).__name__}")
        below = [stream.place for stream in query.streams if stream.source is not None]
        if below:
            raise QueryError(
                f"query {name!r}: {below[0]} has the rows of a query, and a hub has no queries over queries; run this"
                " query as a join of its own over the published results"
            )
        check_counts_late(query, f"query {name!r}: a hub")
        self.sources.check(query)
        check_tables(self.served(query))
        check_failed_plainly(query, f"query {name!r}: a hub keeps failed rows for Hub.failed(), or counts them")
        for stream in query.streams:
            if isinstance(stream.window, Rows) and len(query.streams) > 1:
                raise QueryError(
                    f"query {name!r}, stream {stream.name!r}: a Rows window counts rows in order of arrival, which"
                    " micro-batches do not have; use a Range window"
                )
        if not self._equal_keys(query):
            raise QueryError(
                f"query {name!r}: its equalities do not make the keys of its streams equal ({self._listed(query)}), but"
                " a hub joins rows of one key only; add the equality, or start the query on a hub with other keys"
            )

    def served(self, query: Query) -> Query:
        """Return a query as it reads the log, which says of each change of a table what it does."""
        inputs: dict[str, Stream] = {}
        for stream in query.streams:
            table, schema = self._tables.get(stream.name), stream.schema
            if isinstance(stream, VersionedTable) and table is not None:
                inputs[stream.name] = replace(stream, ops=table.ops, late="count")
            elif isinstance(stream, Table) and isinstance(table, Table):
                assert table.version is not None
                if table.version not in schema.names:
                    schema = schema.append(table.schema.field(table.version))
                inputs[stream.name] = replace(
                    stream,
                    schema=schema,
                    ops="column",
                    version=table.version,
                    tombstones=table.tombstones,
                    late="count",
                )
        return query.with_inputs(inputs) if inputs else query

    def _equal_keys(self, query: Query) -> bool:
        """Return whether each column of the key is a choice: then so are all of them together."""
        choices = key_choices(query)
        width = len(next(iter(self.keys.values())))
        return all(
            any(all(self.keys[name][k] in columns for name, columns in choice.items()) for choice in choices)
            for k in range(width)
        )

    def _listed(self, query: Query | None = None) -> str:
        names = self.keys if query is None else [stream.name for stream in query.streams]
        return ", ".join(f"{name}.{column}" for name in names for column in self.keys[name])

    def ticks_of(self, value: object) -> int:
        """Return an event time in ticks. Raises SparkJoinError for a value of another type."""
        try:
            array = pa.array([value], self.base.time_type)
            return int(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())[0].as_py())
        except (pa.ArrowException, TypeError, ValueError) as problem:
            raise SparkJoinError(f"at_time={value!r} is no event time of type {self.base.time_type}") from problem


def _span(source: Source, kind: pa.DataType | None) -> int | None:
    """Return the ticks for which rows of a stream are always kept; None = for ever."""
    if source.stream.window is None:
        return 0
    window = window_of(source.stream, kind)
    return window.size if window.kind == WindowKind.RANGE else None


def _check(source: Source) -> None:
    """Raise SparkJoinError for a source whose parts do not fit together."""
    stream = source.stream
    where = f"stream {stream.name!r}"
    if stream.late is not None:
        raise SparkJoinError(f"{where}: leave late out: a hub only counts late rows")
    if stream.time is None and not isinstance(stream, Table):
        raise SparkJoinError(f"{where} has no time column; a hub needs one of each stream: Stream(…, time=…)")
    if not isinstance(stream.window, Range | Unbounded | None):
        raise SparkJoinError(f"{where}: the window of a stream of a hub is a Range or Unbounded, not {stream.window}")
    for field in stream.schema:
        if plain(field.type) != field.type:
            raise SparkJoinError(f"{where}, column {field.name!r}: declare it as {plain(field.type)}, not {field.type}")
    if not source.keys or len(set(source.keys)) < len(source.keys):
        raise SparkJoinError(f"{where}: key={source.key!r} is no column and no list of different columns")
    if isinstance(stream, VersionedTable) and set(source.keys) != set(stream.keys):
        raise SparkJoinError(
            f"{where}: a versioned table is dealt by its key: pass key={', '.join(stream.keys)}, and the columns of the"
            f" other sources that equal it, not {', '.join(source.keys)}"
        )
    for column in source.keys:
        if column not in stream.schema.names:
            raise SparkJoinError(f"{where}: its key {column!r} is no column of it: {', '.join(stream.schema.names)}")


def _quoted(name: str, column: str) -> str:
    return '"{}"."{}"'.format(name.replace('"', '""'), column.replace('"', '""'))


def _equality(left: list[str], right: list[str]) -> str:
    if len(left) == 1:
        return f"{left[0]} = {right[0]}"
    return f"({', '.join(left)}) = ({', '.join(right)})"

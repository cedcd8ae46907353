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
from eddy.query.host_limits import check_all_rows, check_failed_plainly
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.operators import grouped_join
from eddy.streams.stream import Stream
from eddy.streams.windows import Range, Rows, Unbounded
from stairs.errors import QueryError
from stairs.graph import WindowKind
from stairs.plain_types import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Source:
    """A stream of a hub.

    stream  name, columns and time column. The log keeps these columns. A window keeps rows for queries that start
            later, whether or not a query needs them; None = only rows that the running queries need. No filter
    frame   streaming DataFrame with at least these columns
    key     the column or columns by which rows are partitioned; the equalities of each query must make the keys of its
            streams equal
    """

    stream: Stream
    frame: DataFrame
    key: str | Sequence[str]

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
        self.keys = {source.stream.name: source.keys for source in given}
        if len(given) < 2:
            raise SparkJoinError(f"a hub has 2 streams or more, not {len(given)}")
        if len({len(keys) for keys in self.keys.values()}) > 1:
            raise SparkJoinError(f"the keys of all streams of a hub have as many columns, not {self._listed()}")
        kinds = {source.stream.name: source.stream.type_of(str(source.stream.time)) for source in given}
        if len(set(kinds.values())) > 1:
            raise SparkJoinError(
                "the time columns of all streams of a hub have one type, not"
                f" {', '.join(f'{name} {kind}' for name, kind in kinds.items())}; convert them"
            )
        self.sources = Sources([source.stream for source in given], place="Hub")
        streams = [replace(source.stream, window=Range(0)) for source in given]
        first, *others = ([_quoted(name, column) for column in keys] for name, keys in self.keys.items())
        self.base = Query(streams, [_equality(first, other) for other in others])
        kind = self.base.time_type
        windows = [window_of(source.stream, kind) if source.stream.window is not None else None for source in given]
        self.spans: tuple[int | None, ...] = tuple(
            0 if window is None else window.size if window.kind == WindowKind.RANGE else None for window in windows
        )

    def check(self, name: str, query: Query) -> None:
        """Raise QueryError for a query that cannot run on these streams."""
        if not isinstance(query, Query):
            raise QueryError(f"query {name!r}: a hub runs an eddy.Query, not {type(query).__name__}")
        check_all_rows(query, f"query {name!r}: a hub")
        if query.aggregation is not None:
            if query.aggregation.window is None:
                raise QueryError(
                    f"query {name!r}: the groups of a hub are those of windows, and these aggregates change for ever:"
                    " give the query a group_window, in SQL GROUP BY TUMBLE, HOP or SESSION; or run it as a streaming"
                    " join of its own (eddy.spark.join), whose groups are a changelog"
                )
            try:
                grouped_join(query)
            except SparkJoinError as problem:
                raise QueryError(f"query {name!r}: {problem}") from problem
        if query.branches:
            raise QueryError(
                f"query {name!r}: a hub runs queries without branches; run it as a streaming join of its own"
                " (eddy.spark.join)"
            )
        if len(query.streams) == 1:
            raise QueryError(
                f"query {name!r}: a hub joins streams, and the query has one; filter and select its rows with Spark,"
                " frame.where(…).select(…)"
            )
        self.sources.check(query)
        check_failed_plainly(query, f"query {name!r}: a hub keeps failed rows for Hub.failed(), or counts them")
        for stream in query.streams:
            if isinstance(stream.window, Rows):
                raise QueryError(
                    f"query {name!r}, stream {stream.name!r}: a Rows window counts rows in order of arrival, which"
                    " micro-batches do not have; use a Range window"
                )
        if not self._equal_keys(query):
            raise QueryError(
                f"query {name!r}: its equalities do not make the keys of its streams equal ({self._listed(query)}), but"
                " a hub joins rows of one key only; add the equality, or start the query on a hub with other keys"
            )

    def _equal_keys(self, query: Query) -> bool:
        by_stream = {stream.name: self.keys[stream.name] for stream in query.streams}
        candidates = [key_class.columns for key_class in query.classes if by_stream.keys() <= key_class.columns.keys()]

        def equal(columns: dict[str, tuple[str, ...]]) -> bool:
            return any(all(columns[name] in candidate[name] for name in columns) for candidate in candidates)

        width = len(next(iter(by_stream.values())))
        return equal(by_stream) or all(
            equal({name: (keys[j],) for name, keys in by_stream.items()}) for j in range(width)
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


def _check(source: Source) -> None:
    """Raise SparkJoinError for a source whose parts do not fit together."""
    stream = source.stream
    where = f"stream {stream.name!r}"
    if stream.time is None:
        raise SparkJoinError(f"{where} has no time column; a hub needs one of each stream: Stream(…, time=…)")
    if not isinstance(stream.window, Range | Unbounded | None):
        raise SparkJoinError(f"{where}: the window of a stream of a hub is a Range or Unbounded, not {stream.window}")
    for field in stream.schema:
        if plain(field.type) != field.type:
            raise SparkJoinError(f"{where}, column {field.name!r}: declare it as {plain(field.type)}, not {field.type}")
    if not source.keys or len(set(source.keys)) < len(source.keys):
        raise SparkJoinError(f"{where}: key={source.key!r} is no column and no list of different columns")
    for column in source.keys:
        if column not in stream.schema.names:
            raise SparkJoinError(f"{where}: its key {column!r} is no column of it: {', '.join(stream.schema.names)}")


def _quoted(name: str, column: str) -> str:
    return '"{}"."{}"'.format(name.replace('"', '""'), column.replace('"', '""'))


def _equality(left: list[str], right: list[str]) -> str:
    if len(left) == 1:
        return f"{left[0]} = {right[0]}"
    return f"({', '.join(left)}) = ({', '.join(right)})"

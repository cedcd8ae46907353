"""The join that the workers run: the narrowed query, its partitioning and its order of arrival.

Order of arrival. An engine needs one total order:
  time      every stream has a time column: by (event time, stream order in the query)
  sequence  `order_by` names one column per stream, with one numbering over all streams: by (number, stream order)
  any       all windows are unbounded: every order gives the same results, so Spark's order is used
The changes of a table come before the rows of streams, and their versions order them; so do the last rows of a table
in a batch join. They have no position.

With a `ROWS` window the order of rows at equal positions determines the rows of the window. So such rows are ordered by
content, column after column, and no column of the stream's schema is dropped. With `RANGE` and unbounded windows the
order of rows at equal positions has no influence, but on the versions of an as-of join: of two versions of one key and
time the one with the greater content counts, so these tables keep their columns as well.

A `ROWS` window counts the arrivals of a whole stream, but a partition has only a part of the stream. So a query with a
`ROWS` window runs in one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import Predicate
from eddy.ingest.keys import unified_column
from eddy.placement.shares import Shares, choose
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.engine import EngineOptions, signed
from eddy.spark.partitioning.last_rows import LastRows
from eddy.spark.partitioning.narrow import narrowed
from eddy.spark.types import sortable_type
from eddy.streams.event_time import unified_time
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows, Unbounded
from stairs.plain_types import plain

Arrival = Literal["time", "sequence", "any"]


@dataclass(frozen=True)
class Job:
    """The description of a join that Spark sends to the workers.

    query            with the needed columns only, and without filters, which the map side applies
    inputs           per stream, the columns to read: those of the query and those of the filter
    filters          per stream, the conditions of its filter; empty without a filter
    options          options of the engines
    sequence         per stream, the column that determines the order of arrival; None for all if `arrival` is "any"
    sequence_type    type in which these columns are compared, None if `arrival` is "any"
    breaks_ties      rows at equal positions are ordered by content
    keeps_null_keys  rows with null keys are sent as well, because a window counts them, or a branch needs no partner,
                     or an as-of join no version.
                     (Of a table, only nulls in its key would count, and a key has none.)
    """

    query: Query
    inputs: tuple[pa.Schema, ...]
    filters: tuple[tuple[Predicate, ...], ...]
    shares: Shares
    options: EngineOptions
    arrival: Arrival
    sequence: tuple[str | None, ...]
    sequence_type: pa.DataType | None
    breaks_ties: bool
    keeps_null_keys: bool

    @property
    def first(self) -> list[str]:
        """The inputs whose rows come before all others, although these have an order."""
        if not any(self.sequence):
            return []
        return [stream.name for stream, column in zip(self.query.streams, self.sequence, strict=True) if column is None]

    @property
    def changing(self) -> bool:
        """Whether results are a changelog, as with tables, so that the rows of a micro-batch are one push."""
        return bool(self.query.tables_changing) or self.options.output == "changelog"

    @property
    def waits(self) -> bool:
        """Whether rows of streams wait in a streaming join until the watermark has passed them.

        Rows leave windows in the order in which they came. In a changelog, this order decides which results begin and
        end; so it has to be that of event time, however the rows were divided into micro-batches.
        """
        return self.changing and self.query.graph.timed

    @property
    def logged(self) -> list[pa.Schema]:
        """The columns of the rows of each stream after the map side: of a table, with the operation of each change."""
        return [
            stream.schema.append(pa.field(OP_COLUMN, pa.string()))
            if isinstance(stream, KeyedInput) and stream.ops is not None
            else stream.schema
            for stream in self.query.streams
        ]

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the results."""
        return signed(self.query.output_schema, "changelog" if self.changing else "append")

    @cached_property
    def moving(self) -> tuple[tuple[int, ...], ...]:
        """Per stream, the classes along which its rows move: those of a table that its key does not determine."""
        classes = self.query.partition_classes
        return tuple(
            tuple(c for c, key_class in enumerate(classes) if stream.name in key_class.columns and c not in has)
            for stream, has in zip(self.query.streams, self.shares.has, strict=True)
        )

    def tied(self, stream: int) -> bool:
        """Return whether the content of rows of a stream orders those at equal positions."""
        return self.breaks_ties or isinstance(self.query.streams[stream], VersionedTable)

    def positions(self, rows: pa.RecordBatch | pa.Table, stream: int) -> np.ndarray | None:
        """Return the position of each row in the order of arrival, int64[n]; None without an order.

        Raises SparkJoinError for a row whose position is null.
        """
        name = self.sequence[stream]
        if name is None:
            return None
        column = rows.column(name)
        where = f"stream {self.query.streams[stream].name!r}, column {name!r}"
        if column.null_count:
            raise SparkJoinError(
                f"{where}: {column.null_count} rows are null, so they have no position in the order of arrival; drop or"
                " fill them before the join"
            )
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        column = unified_column(column, self.sequence_type, where)
        if pa.types.is_date32(column.type):
            column = column.view(pa.int32()).cast(pa.int64())
        return column.view(pa.int64()).to_numpy()


def _of_kind(query: Query, kind: type) -> list[str]:
    return [stream.name for stream in _streams(query) if isinstance(stream.window, kind)]


def _streams(query: Query) -> list[Stream]:
    """Return the inputs that are no tables: their rows have an order of arrival."""
    return [stream for stream in query.streams if not isinstance(stream, Table | LastRows)]


def _by_number(query: Query, order_by: Mapping[str, str]) -> tuple[tuple[str | None, ...], pa.DataType]:
    """Check `order_by`; return its columns in the order of the streams, and the type in which they are compared."""
    names = [stream.name for stream in _streams(query)]
    if query.as_of:
        raise SparkJoinError(
            f"order_by: rows get the versions of table {query.as_of[0].table.name!r} at their event times, which order"
            " the arrivals; leave order_by out"
        )
    timed = _of_kind(query, Range)
    if timed:
        raise SparkJoinError(
            f"order_by: stream {timed[0]!r} has a Range window, with which event time orders the arrivals; leave"
            " order_by out"
        )
    unknown = [name for name in order_by if name not in names]
    if unknown:
        raise SparkJoinError(f"order_by names {unknown[0]!r}, which is not a stream of the query ({', '.join(names)})")
    kinds = {}
    for stream in _streams(query):
        column = order_by.get(stream.name)
        if column is None:
            raise SparkJoinError(
                f"order_by names no column for stream {stream.name!r}; name one column per stream, with one numbering"
                " over all streams"
            )
        if column not in stream.schema.names:
            raise SparkJoinError(
                f"order_by: stream {stream.name!r} has no column {column!r}; its columns are"
                f" {', '.join(stream.schema.names)}"
            )
        kinds[f"{stream.name}.{column}"] = stream.type_of(column)
    common = unified_time(kinds.values())
    if common is None:
        listed = ", ".join(f"{column} is {kind}" for column, kind in kinds.items())
        raise SparkJoinError(f"order_by needs columns that are all integers, all timestamps or all dates, but {listed}")
    return tuple(order_by.get(stream.name) for stream in query.streams), common


def _arrival(
    query: Query, order_by: Mapping[str, str] | None
) -> tuple[Arrival, tuple[str | None, ...], pa.DataType | None]:
    if order_by is not None:
        columns, kind = _by_number(query, order_by)
        return "sequence", columns, kind
    if not query.as_of and all(isinstance(stream.window, Unbounded) for stream in query.streams):
        return "any", (None,) * len(query.streams), None
    if all(stream.time is not None for stream in _streams(query)):
        return "time", tuple(stream.time for stream in query.streams), query.time_type
    without = next(stream.name for stream in _streams(query) if stream.time is None)
    raise SparkJoinError(
        f"stream {_of_kind(query, Rows)[0]!r} has a Rows window, but the order of arrival is not defined: stream"
        f" {without!r} has no time column; name a time column on every stream, or pass order_by={{stream: column}} with"
        " one numbering over all streams"
    )


def _check_sortable(query: Query) -> None:
    """Raise SparkJoinError for a column without an order: the content of whole tuples orders equal positions."""
    for stream in query.streams:
        versions = isinstance(stream, VersionedTable)
        if not (versions or _of_kind(query, Rows)):
            continue
        what = "the versions of a table have" if versions else "a query with a Rows window has"
        for field in stream.schema:
            rows = pa.table({"": pa.nulls(0, sortable_type(plain(field.type)))})
            try:
                pc.sort_indices(rows, sort_keys=[("", "ascending")])
            except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
                raise SparkJoinError(
                    f"stream {stream.name!r}, column {field.name!r}: values of type {field.type} have no order,"
                    f" but {what} to order tuples of one time by content; leave the column out of the schema"
                ) from None


def make_job(
    query: Query,
    *,
    options: EngineOptions | None = None,
    partitions: int | None = None,
    parallelism: int = 1,
    weights: Mapping[str, float] | None = None,
    order_by: Mapping[str, str] | None = None,
    null_keys: bool = False,
) -> Job:
    """Return the job of a query.

    partitions   None = `parallelism`, or 1 if a window is `Rows`
    weights      stream -> expected size, in any unit; None = equal sizes
    null_keys    whether rows with null keys are sent, whatever the query needs

    Raises SparkJoinError if the query cannot run exactly as specified, PlanError for a bad plan.
    """
    counted = _of_kind(query, Rows)
    if partitions is None:
        partitions = 1 if counted else parallelism
    if partitions < 1:
        raise SparkJoinError(f"partitions={partitions}: give 1 or more")
    if counted and partitions > 1:
        raise SparkJoinError(
            f"stream {counted[0]!r} has a Rows window, which counts the arrivals of the whole stream, but with"
            f" partitions={partitions} it would count those of one partition; pass partitions=1, or use a Range window"
        )
    arrival, sequence, sequence_type = _arrival(query, order_by)
    _check_sortable(query)
    for_workers, inputs = narrowed(query, sequence, timed=arrival == "time", whole=bool(counted))
    return Job(
        query=for_workers,
        inputs=inputs,
        # What the filter of a table rejects is a delete, which the engine makes of it.
        filters=tuple(() if isinstance(stream, KeyedInput) else stream.conditions for stream in query.streams),
        shares=choose(query, partitions, weights),
        options=options or EngineOptions(),
        arrival=arrival,
        sequence=sequence,
        sequence_type=sequence_type,
        breaks_ties=bool(counted),
        keeps_null_keys=bool(null_keys or counted or query.branches or query.as_of),
    )

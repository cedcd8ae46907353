r"""Aggregates of a batch join: its results are dealt out by group, and each task aggregates whole groups.

    join -> results with their keys - shuffle by key - one operator for each partition -> rows of groups

The operator is the operator of a `Runtime` whose input ends, so types and exactness are those of a Runtime: sums of
floats do not depend on the distribution of rows by Spark. Spark's own groupBy would round each addition, and lacks some
of the types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.aggregates.groups import Groups
from eddy.filters.adaptive import AdaptiveFilter
from eddy.query.query import Query
from eddy.query.ungrouped import ungrouped
from eddy.results.failed_rows import failed_batch
from eddy.spark.batch.join import BatchJoin, HopJoin, prepare_batch
from eddy.spark.columns import check_texts, in_query_order, numbered
from eddy.spark.environment.session import parallelism
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import PartitionOptions
from eddy.spark.partitioning.engine import OUTPUT_ROWS, EngineOptions, as_spark
from eddy.spark.partitioning.failed import refuse_failed
from eddy.spark.partitioning.pieces import conform
from eddy.spark.types import spark_schema, struct_type
from stairs.memory.allowance import Allowance
from stairs.plain_types import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "#end"
"""The column that marks the one row by which a partition without results runs."""


def _keys(query: Query) -> dict[str, Any]:
    """Return the group columns as output columns of the join; Spark finds two values equal if eddy does."""
    assert query.aggregation is not None
    keys: dict[str, Any] = {}
    for k, (_, number) in enumerate(query.aggregation.keys):
        column = query.aggregation.inputs[number]
        value = pc.field(column.name) if column.expression is None else column.expression
        if pt.is_floating(plain(column.kind)):
            # Spark hashes -0.0 and 0.0, and the kinds of NaN, differently.
            value = pc.if_else(pc.equal(value, 0.0), 0.0, pc.if_else(pc.is_nan(value), float("nan"), value))
        keys[f"#key{k}"] = value
    return keys


def joined_rows(query: Query) -> Query:
    """Return the query whose results a query with aggregates groups, and its group columns."""
    return ungrouped(query, _keys(query))


def grouped(query: Query, joined: DataFrame, partitions: int | None) -> DataFrame:
    """Return the rows of groups, given the results of `joined_rows`."""
    from pyspark.sql import functions as sf

    assert query.aggregation is not None
    keys = [f"`#key{k}`" for k in range(len(query.aggregation.keys))]
    names = [*query.row_schema.names, *([] if keys else [MARK])]
    if keys:
        tasks = parallelism(joined.sparkSession) if partitions is None else partitions
        parted = joined.repartition(tasks, *keys)
    else:
        # A group without rows still has a result row, but Spark runs no task for a DataFrame that it knows to be empty.
        mark_row = joined.sparkSession.range(1).select(
            *(sf.lit(None).cast(field.dataType).alias(field.name) for field in joined.schema), sf.lit(True).alias(MARK)
        )
        parted = joined.withColumn(MARK, sf.lit(False)).union(mark_row).coalesce(1)
    rows = numbered(parted, names)
    return rows.mapInArrow(GroupPartition(query, not keys), struct_type(query.output_schema))


class GroupPartition:
    """The function that Spark runs on the results of one partition; if `marked`, their last column is MARK."""

    def __init__(self, query: Query, marked: bool) -> None:
        self._query, self._marked = query, marked
        assert query.aggregation is not None
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_groups[{len(query.aggregation.functions)} aggregates]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = Groups(self._query, "append", True, Allowance())
        schema = spark_schema(self._query.output_schema)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if self._marked:
                last = rows.column(rows.num_columns - 1)
                rows = rows.remove_column(rows.num_columns - 1).filter(pc.invert(last))
            _, done = groups.follow(as_rows(self._query.row_schema, rows), None, False)
            refuse_failed(self._query, done.failed)
            groups.settle(done)
        group_rows, done = groups.follow(as_rows(self._query.row_schema, None), None, True)
        refuse_failed(self._query, done.failed)
        for batch in as_spark(group_rows, schema).to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield batch


def as_rows(declared: pa.Schema, rows: pa.Table | None) -> pa.Table:
    """Return rows in Spark's types, in the order of their schema, for an operator; None = no rows."""
    schema = pa.schema([field.with_type(plain(field.type)) for field in declared])
    # Arrow cannot make empty arrays of every type.
    return pa.Table.from_batches([], schema=schema) if rows is None else rows.rename_columns(schema.names).cast(schema)


# Queries of one stream


class RowsOfStream:
    """The function that Spark runs on the rows of the one stream of a query: results, in the types of Spark."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.__name__ = "eddy_rows"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        query = self._query
        (stream,) = query.streams
        place = f"stream {stream.name}: its filter"
        accepts = AdaptiveFilter(stream.conditions, place=place) if stream.conditions else None
        where = AdaptiveFilter(query.conditions, place=query.where_place, rows="results") if query.conditions else None
        schema = spark_schema(query.output_schema)
        plain_schema = pa.schema([field.with_type(plain(field.type)) for field in stream.schema])
        for batch in batches:
            rows = conform(batch.rename_columns(plain_schema.names), plain_schema, stream.name)
            if accepts is not None:
                rows = accepts.filter(rows)
            names = [f"{stream.name}.{column}" for column in rows.schema.names]
            if where is not None:
                read = [column for _, column in query.where_columns]
                kept, failing = where.divided(
                    rows.select(read).rename_columns([f"{stream.name}.{column}" for column in read])
                )
                faults = where.faults(failing, "where")
                refuse_failed(query, failed_batch(faults, dict(zip(names, rows.columns, strict=True))))
                rows = rows.take(pa.array(kept))
            columns = [rows.column(column) for _, column in query.select.values()]
            made, faults = query.output(columns, rows.num_rows)
            refuse_failed(query, failed_batch(faults, dict(zip(names, rows.columns, strict=True))))
            results = pa.Table.from_arrays(made, names=query.output_schema.names)
            yield from results.cast(schema).to_batches(max_chunksize=OUTPUT_ROWS)


def rows_of_stream(query: Query, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the results of `joined_rows` of one stream: its rows that its filter and `where` accept."""
    (frame,) = in_query_order(query, frames)
    check_workers(frame.sparkSession)
    (stream,) = query.streams
    check_texts(query, [frame], [stream.schema.names])
    return numbered(frame, stream.schema.names).mapInArrow(RowsOfStream(query), struct_type(query.output_schema))


@dataclass(frozen=True)
class GroupedJoin:
    """Aggregates of a batch join that have not run.

    query       the query with its aggregates
    joined      the join; None = the query has one stream
    rows        makes the DataFrame of results
    partitions  number of partitions of groups; None = the number of tasks that run at a time
    """

    query: Query
    joined: BatchJoin | HopJoin | None
    rows: Callable[[], DataFrame]
    partitions: int | None

    def frame(self) -> DataFrame:
        """Return the DataFrame of the rows of groups."""
        return grouped(self.query, self.rows(), self.partitions)

    def explain(self) -> str:
        """Return a text on the join, and on how its results are aggregated. Reads no row."""
        assert self.query.aggregation is not None
        keys = ", ".join(name for name, _ in self.query.aggregation.keys)
        how = f"results are dealt out by {keys}" if keys else "one task aggregates all results"
        return "\n".join([*([] if self.joined is None else [self.joined.explain()]), f"aggregates: {how}"])


def check_alone(partitioning: PartitionOptions) -> None:
    """Raise SparkJoinError for options that a query of one stream cannot have."""
    if partitioning.order_by is not None:
        raise SparkJoinError("order_by= orders the rows of several streams, and the query has one; leave it out")
    if partitioning.placement not in (None, "grid"):
        raise SparkJoinError("placement= places the joins of several streams, and the query has one; leave it out")


def prepare_groups(
    query: Query, frames: Mapping[str, DataFrame], engines: EngineOptions, partitioning: PartitionOptions
) -> GroupedJoin:
    """Return aggregates of a join after all checks that are possible before a row is read; see `eddy.spark.join`."""
    struct_type(query.output_schema)
    inner = joined_rows(query)
    if len(query.streams) == 1:
        check_alone(partitioning)
        return GroupedJoin(query, None, partial(rows_of_stream, inner, frames), partitioning.partitions)
    joined = prepare_batch(inner, frames, engines, partitioning)
    return GroupedJoin(query, joined, joined.frame, partitioning.partitions)

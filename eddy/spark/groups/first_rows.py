r"""First rows of groups of a batch join: `Query(top=…)` over its results, or over the rows of its groups.

    join -> first rows of each task - shuffle by group - first rows of each group
    join -> groups                  /

The operator is that of a `Runtime` whose input ends. Rows of one order come in no order on Spark, so that of their
output columns decides: two rows that are equal in all of them are the same row in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddy.query.aggregate_functions import is_value
from eddy.query.query import Query
from eddy.query.top import MOST_COLUMNS, OrderColumn
from eddy.query.ungrouped import without_top
from eddy.results.results import NUMBER
from eddy.spark.batch.join import BatchJoin, HopJoin, prepare_batch
from eddy.spark.columns import numbered, quoted
from eddy.spark.environment.session import parallelism
from eddy.spark.groups.batch import GroupedJoin, as_rows, check_alone, prepare_groups, rows_of_stream
from eddy.spark.options import PartitionOptions
from eddy.spark.partitioning.engine import OUTPUT_ROWS, EngineOptions, as_spark
from eddy.spark.types import spark_schema, struct_type
from eddy.tops.modes import mode_of
from eddy.tops.tops import Tops
from stairs.errors import QueryError
from stairs.memory.allowance import Allowance
from stairs.plain_types import plain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIE = f"{NUMBER}0"
"""The column that tells rows apart that are equal in all output columns."""


def by_content(query: Query) -> Query:
    """Return a query with `top` that orders rows of one order by their output columns.

    Rows of groups have an order without it: that of their group columns. Raises QueryError for a column without an
    order, and for too many columns.
    """
    ranking, rows = query.ranking, query.row_schema
    assert ranking is not None
    if query.aggregation is not None:
        return query
    named = {term.name for term in ranking.order}
    more = [name for name in query.outputs if name not in named and name not in ranking.by]
    for name in more:
        if not is_value(rows.field(name).type):
            raise QueryError(
                f"top: on Spark, rows of one order come in the order of their output columns, and {name} is"
                f" {rows.field(name).type}, which has none; select another column"
            )
    order = (*ranking.order, *map(OrderColumn, more))
    if len(order) > MOST_COLUMNS:
        raise QueryError(
            f"top: on Spark, rows of one order come in the order of their output columns, of which there are at most"
            f" {MOST_COLUMNS} with those of order, not {len(order)}; select fewer"
        )
    other = copy(query)
    other.ranking = ranking._replace(order=order)
    return other


class TopPartition:
    """The function that Spark runs on rows of one partition, and which returns the first ones of each group.

    last  whether these are all rows of its groups, so that they have their numbers
    """

    def __init__(self, query: Query, last: bool) -> None:
        self._rows = without_top(query).output_schema
        if not last:
            ranking, query = query.ranking, copy(query)
            assert ranking is not None
            query.ranking, query.output_schema = ranking._replace(top=replace(ranking.top, rank=None)), self._rows
        self._query = query
        assert query.ranking is not None
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_top[{query.ranking.n}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = self._rows.append(pa.field(TIE, pa.int64(), False))
        tops = Tops(self._query, "append", True, rows, False, Allowance())
        tops.mode = "end"
        taken = 0
        for batch in batches:
            table = as_rows(self._rows, pa.Table.from_batches([batch]))
            table = table.append_column(TIE, pa.array(np.arange(taken, taken + len(table))))
            taken += len(table)
            tops.settle(tops.follow(table, False)[1])
        ranked, _ = tops.follow(as_rows(rows, None), True)
        for batch in as_spark(ranked, spark_schema(self._query.output_schema)).to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield batch


def first_rows(query: Query, rows: DataFrame, partitions: int | None) -> DataFrame:
    """Return the first rows of each group, given all rows, those of `without_top`."""
    ranking, schema = query.ranking, without_top(query).output_schema
    assert ranking is not None
    names = schema.names
    some = numbered(rows, names).mapInArrow(TopPartition(query, False), struct_type(schema))
    if ranking.by:
        tasks = parallelism(rows.sparkSession) if partitions is None else partitions
        parted = some.repartition(tasks, *(_hashed(some, schema.field(name)) for name in ranking.by))
    else:
        parted = some.coalesce(1)
    return numbered(parted, names).mapInArrow(TopPartition(query, True), struct_type(query.output_schema))


def _hashed(rows: DataFrame, field: pa.Field) -> Column:
    """Return a column of groups whose values Spark finds equal if eddy does."""
    from pyspark.sql import functions as F

    column = rows[quoted(field.name)]
    if not pt.is_floating(plain(field.type)):
        return column
    # Spark hashes -0.0 and 0.0, and the kinds of NaN, differently.
    return F.when(column == 0, F.lit(0.0)).when(F.isnan(column), F.lit(float("nan"))).otherwise(column)


@dataclass(frozen=True)
class TopJoin:
    """First rows of a batch join that has not run.

    query       the query with `top`
    joined      the join or the groups below it; None = the rows of one stream
    frames      the DataFrames of the streams
    partitions  number of partitions of groups; None = the number of tasks that run at a time
    """

    query: Query
    joined: BatchJoin | GroupedJoin | HopJoin | None
    frames: Mapping[str, DataFrame]
    partitions: int | None

    def frame(self) -> DataFrame:
        """Return the DataFrame of the first rows."""
        below = without_top(self.query)
        rows = rows_of_stream(below, self.frames) if self.joined is None else self.joined.frame()
        return first_rows(self.query, rows, self.partitions)

    def explain(self) -> str:
        """Return a text on the join, and on how its first rows are found. Reads no row."""
        assert self.query.ranking is not None
        by = ", ".join(self.query.ranking.top.by)
        how = f"first rows of each task are dealt out by {by}" if by else "one task has the first rows of all tasks"
        return "\n".join([*([] if self.joined is None else [self.joined.explain()]), f"top: {how}"])


def prepare_top(
    query: Query, frames: Mapping[str, DataFrame], engines: EngineOptions, partitioning: PartitionOptions
) -> TopJoin:
    """Return first rows of a join after all checks that are possible before a row is read; see `eddy.spark.join`."""
    query = by_content(query)
    mode_of(query, "append", True)  # a group without its window should fail here and not in a task
    struct_type(query.output_schema)
    below = without_top(query)
    joined: BatchJoin | GroupedJoin | HopJoin | None = None
    if query.aggregation is not None:
        joined = prepare_groups(below, frames, engines, partitioning)
    elif len(query.streams) > 1:
        joined = prepare_batch(below, frames, engines, partitioning)
    else:
        check_alone(partitioning)
    return TopJoin(query, joined, frames, partitioning.partitions)

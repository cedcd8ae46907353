"""`eddy.spark.sql`: SQL over temporary views of DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.statement import sql as read_sql
from eddy.dialect.statement import tables_of, unexplained
from eddy.dialect.union import UnionAll
from eddy.expressions.source import parse
from eddy.ingest.envelopes import AFTER
from eddy.query.expiry import Expiry
from eddy.query.query import Query
from eddy.spark.dataframe_join import explain, join
from eddy.spark.environment.spark_version import arrow_type
from eddy.spark.errors import SparkJoinError
from eddy.spark.session_zone import session_zone
from eddy.spark.watermark_delay import delays
from eddy.streams.keyed import OP_COLUMN
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField


def sql(
    spark: SparkSession,
    text: str,
    *,
    times: Mapping[str, str] | None = None,
    windows: Mapping[str, Window] | None = None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    lateness: int | timedelta = 0,
    expiry: Expiry = "retract",
    **options: Any,
) -> Any:
    """Join the temporary views that a statement names; docs/guide/sql.md describes the dialect.

    text      a SELECT, or EXPLAIN and a SELECT, for which `sql` returns a text
    times     view -> its column of event times; views left out: the column of `withWatermark`, if there is one
    windows   view -> its window; views left out: the window that the intervals require, or `Unbounded()`
    tables    view -> options of the `Table` that it is: {"key": "id", "version": "lsn"}, and `ops`, `tombstones`; its
              columns are those of the view without `op`, with ops="debezium" those of `after`; with "time" in place of
              "version" it is a `VersionedTable`, for as-of joins
    lateness  as in `Query`; 0 = for each streaming view the delay of its `withWatermark`
    expiry    as in `Query`: whether results stay when a row of a stream leaves its window
    options   options of `eddy.spark.join`: plan, policy, partitions, transport, and for streaming views checkpoint=, …

    Returns a DataFrame for batch views and a `StreamingJoin` for streaming views, as `eddy.spark.join` does. A view
    must not change while the query runs, because the statement reads the current DataFrame of the view. UNION ALL is
    for batch views. Dates and hours of a `timestamp` are those in the time zone of the session. Raises SqlError for the
    text, SparkJoinError for views and options.
    """
    frames = {name: _view(spark, name) for name in tables_of(text)}
    known = times or {}, windows or {}, tables or {}
    for what, by_view in zip(("times", "windows", "tables"), known, strict=True):
        unknown = sorted(set(by_view) - set(frames))
        if unknown:
            raise SparkJoinError(
                f"{what} names {unknown[0]!r}, which the statement does not read; it reads {', '.join(frames)}"
            )
    _check_known(text, frames)
    streams = [
        _stream(name, frame, *known[:2]) if name not in known[2] else _table(name, frame, known[2][name])
        for name, frame in frames.items()
    ]
    source, asked = unexplained(text)
    parsed = read_sql(source.text, streams, lateness=lateness, expiry=expiry)
    if asked:
        queries = parsed.queries if isinstance(parsed, UnionAll) else (parsed,)
        return "\nUNION ALL\n".join(explain(query, query.inputs(frames), **options) for query in queries)
    if isinstance(parsed, Query):
        return join(parsed, parsed.inputs(frames), **options)
    if any(frame.isStreaming for frame in frames.values()):
        raise SparkJoinError(
            "UNION ALL over streaming views is not one job; start each SELECT with a checkpoint of its own, or give the"
            " queries to an eddy.spark.Hub"
        )
    joined: list[DataFrame] = [join(query, query.inputs(frames), **options) for query in parsed.queries]
    return reduce(lambda frame, other: frame.union(other), joined)


def _view(spark: SparkSession, name: str) -> DataFrame:
    """Return the DataFrame of a view."""
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
    if not spark.catalog.tableExists(quoted):
        views = ", ".join(sorted(view.name for view in spark.catalog.listTables())) or "none"
        raise SparkJoinError(
            f"there is no view {name!r}; there are {views}; name a DataFrame with createOrReplaceTempView({name!r})"
        )
    return spark.table(quoted)


def _stream(name: str, frame: DataFrame, times: Mapping[str, str], windows: Mapping[str, Window]) -> Stream:
    """Return the stream of a view, without the columns of types that Arrow lacks (`_unknown`)."""
    time = times.get(name)
    if time is None:
        time = next(iter(delays(frame)), None)
    zone = session_zone(frame.sparkSession)
    fields = [(field.name, _arrow_type(field, zone), field.nullable) for field in frame.schema.fields]
    known = pa.schema([pa.field(column, kind, nullable) for column, kind, nullable in fields if kind is not None])
    return Stream(name, known, window=windows.get(name), time=time)


def _table(name: str, frame: DataFrame, options: Mapping[str, Any]) -> Table | VersionedTable:
    """Return the table of a view of changes, or of versions. Raises QueryError for options that do not fit."""
    if options.get("ops") == "debezium":
        frame = frame.select(f"{AFTER}.*")
    elif options.get("ops") == "column":
        frame = frame.drop(OP_COLUMN)
    known = ("key", "time", "ops") if "time" in options else ("key", "version", "ops", "tombstones")
    unknown = sorted(options.keys() - {*known})
    if unknown:
        raise SparkJoinError(
            f"tables: view {name!r} has the option {unknown[0]!r}; give {', '.join(known[:-1])} or {known[-1]}"
        )
    kind: Any = VersionedTable if "time" in options else Table
    table: Table | VersionedTable = kind(name, _stream(name, frame, {}, {}).schema, **options)
    return table


def _arrow_type(field: StructField, zone: str) -> pa.DataType | None:
    """Return the Arrow type of a column, None without an Arrow type."""
    from pyspark.errors import PySparkException

    try:
        return arrow_type(field.dataType, zone)
    except PySparkException:
        return None


def _check_known(text: str, frames: Mapping[str, DataFrame]) -> None:
    """Raise SparkJoinError if a statement reads a column, by name or *, whose type Arrow lacks."""
    unknown = {
        field.name.lower(): f"view {name!r}, column {field.name!r}: its type is {field.dataType.simpleString()}"
        for name, frame in frames.items()
        for field in frame.schema.fields
        if _arrow_type(field, "UTC") is None
    }
    if not unknown:
        return
    for node in parse(unexplained(text)[0]).find_all(exp.Column, exp.Star):
        is_all = isinstance(node, exp.Star) and isinstance(node.parent, exp.Select | exp.Column)
        used = next(iter(unknown.values())) if is_all else unknown.get(node.name.lower())
        if used is not None:
            raise SparkJoinError(f"{used}, which Arrow has no type for; CAST it in the view, or select other columns")

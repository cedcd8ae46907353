"""Columns of DataFrames: the check that they fit the streams of a query, and their names for a Python worker."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.query.query import Query
from eddy.spark.environment.spark_version import arrow_type
from eddy.spark.errors import SparkJoinError
from eddy.spark.types import why_unfit
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.table import Table
from stairs.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField


def check_frames(query: object, frames: object) -> None:
    """Raise a SparkJoinError that names the right arguments unless these are a query and Spark DataFrames by name."""
    if isinstance(query, str):
        raise SparkJoinError("the query is text: pass an eddy.Query, or the text to eddy.spark.sql(spark, …)")
    if not isinstance(query, Query):
        raise SparkJoinError(f"the query is {_article(query)}: pass an eddy.Query")
    check_tables(query)
    if not isinstance(frames, Mapping):
        names = ", ".join(f"{stream.name!r}: …" for stream in query.streams)
        raise SparkJoinError(
            f"the DataFrames are {_article(frames)}: pass a mapping from stream to DataFrame, {{{names}}}"
        )
    for name, frame in frames.items():
        check_frame(f"stream {name!r}", frame)


def check_tables(query: Query) -> None:
    """Raise QueryError for a query with look-ups, and for tables whose changes have no order."""
    if query.looks_up:
        raise QueryError(
            f"table {query.looks_up[0]}: rows look it up when they arrive, and on Spark rows and changes arrive in no"
            " order; make it a VersionedTable, for the version at an event time, or join it in `on` or as a left branch"
        )
    if query.as_of and query.tables_changing:
        raise QueryError(
            f"table {query.tables_changing[0]}: a join on Spark has no as-of joins beside tables, whose rows are"
            " replaced and deleted; make it a VersionedTable as well, or use a Runtime"
        )
    check_versions(query)


def check_versions(query: Query) -> None:
    """Raise QueryError for tables whose changes have no order."""
    for stream in query.streams:
        if not isinstance(stream, Table):
            continue
        if stream.version is None and stream.source is None:
            raise QueryError(
                f"{stream.place}: on Spark, changes arrive in no order; name the column that orders the changes of a"
                " key with version=…, such as the offset of a topic or the position in a log"
            )


def check_frame(where: str, frame: object) -> None:
    """Raise a SparkJoinError that names the right argument unless this is a Spark DataFrame."""
    if hasattr(frame, "isStreaming"):
        return
    if isinstance(frame, str):
        what, remedy = f"the text {frame!r}", f"for the table or view of this name spark.table({frame!r})"
    elif type(frame).__module__.partition(".")[0] in ("pandas", "pyarrow", "polars"):
        plain = "frame.to_arrow()" if type(frame).__module__.startswith("polars") else "frame"
        what, remedy = _article(frame), f"for its rows spark.createDataFrame({plain})"
    else:
        what, remedy = _article(frame), "such as spark.table(…) or spark.read.parquet(…)"
    raise SparkJoinError(f"{where}: a Spark DataFrame is needed, and this is {what}; pass {remedy}")


def _article(value: object) -> str:
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    return f"a {kind.__name__}" if root == "builtins" else f"a {root}.{kind.__name__}"


def check_names(frames: Mapping[str, DataFrame], known: Collection[str]) -> None:
    """Raise SparkJoinError for a DataFrame of none of the known streams."""
    unknown = next((name for name in frames if name not in known), None)
    if unknown is not None:
        raise SparkJoinError(
            f"a DataFrame is given for {unknown!r}, which is not a stream of the query ({', '.join(known)})"
        )


def in_query_order(query: Query, frames: Mapping[str, DataFrame]) -> list[DataFrame]:
    """Return the DataFrames in the order of the query's streams.

    Raises SparkJoinError for a DataFrame that is missing or does not fit its stream.
    """
    check_names(frames, [stream.name for stream in query.streams])
    for stream in query.streams:
        if stream.name not in frames:
            raise SparkJoinError(f"stream {stream.name!r} has no DataFrame; pass one under this name")
        frame = frames[stream.name]
        sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        ops = [pa.field(OP_COLUMN, pa.string())] if isinstance(stream, KeyedInput) and stream.ops == "column" else []
        for field in (*stream.schema, *ops):
            same = [column for column in frame.columns if _key(column, sensitive) == _key(field.name, sensitive)]
            if same != [field.name]:
                how = "" if sensitive or len(same) < 2 else ", as spark.sql.caseSensitive=false ignores case"
                raise SparkJoinError(
                    f"stream {stream.name!r}: the query needs column {field.name!r}, but the DataFrame does not have"
                    f" exactly one such column{how}; it has {', '.join(frame.columns)}; select or rename the column"
                )
            given = arrow_type(frame.schema[field.name].dataType)
            why = why_unfit(given, field.type)
            if why is not None:
                raise SparkJoinError(
                    f"stream {stream.name!r}, column {field.name!r}: the query says {field.type}, the DataFrame has "
                    f"{frame.schema[field.name].dataType.simpleString()}; {why}"
                )
    return [frames[stream.name] for stream in query.streams]


def _key(name: str, sensitive: bool) -> str:
    return name if sensitive else name.lower()


def check_texts(query: Query, frames: Sequence[DataFrame], columns: Sequence[Sequence[str]]) -> None:
    """Raise SparkJoinError if Spark compares a text that the query reads in another way than byte by byte.

    columns   columns that the query reads, per stream
    """
    for stream, frame, names in zip(query.streams, frames, columns, strict=True):
        schema = frame.schema
        for name in names:
            _check_text(stream.name, schema[name])


def _check_text(stream: str, field: StructField) -> None:
    kind = field.dataType.simpleString()
    declared = str((field.metadata or {}).get("__CHAR_VARCHAR_TYPE_STRING", ""))
    why = None
    if " collate " in kind:
        why = "its collation makes different texts equal"
    elif re.search(r"\bchar\(", declared):
        kind, why = declared, "Spark pads CHAR with blanks before it compares"
    if why is not None:
        raise SparkJoinError(
            f"stream {stream!r}, column {field.name!r}: the type is {kind}, and {why}; a join compares texts byte by"
            f" byte: make equal texts the same, such as by lower(…) or rtrim(…), and cast the column to string"
        )


def numbered(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the named columns of a DataFrame under the names c0, c1, …

    `mapInArrow` of pyspark 4.3 looks up columns by their unquoted names and fails if one contains a dot.
    """
    return frame.select(*(frame[quoted(name)].alias(f"c{k}") for k, name in enumerate(names)))


def quoted(column: str) -> str:
    """Return a column name in backticks, so that Spark does not interpret dots and backticks in it."""
    return "`" + column.replace("`", "``") + "`"

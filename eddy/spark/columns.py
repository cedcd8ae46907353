"""Columns of DataFrames: whether they fit the streams of a query, and their names on the way to a Python worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.types import why_unfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_query_order(query: Query, frames: Mapping[str, DataFrame]) -> list[DataFrame]:
    """Return the DataFrames in the order of the query's streams.

    Raises SparkJoinError for a DataFrame that is missing or does not fit its stream.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    names = [stream.name for stream in query.streams]
    unknown = [name for name in frames if name not in names]
    if unknown:
        raise SparkJoinError(
            f"a DataFrame is given for {unknown[0]!r}, which is not a stream of the query ({', '.join(names)})"
        )
    for stream in query.streams:
        if stream.name not in frames:
            raise SparkJoinError(f"stream {stream.name!r} has no DataFrame; pass one under this name")
        frame = frames[stream.name]
        for field in stream.schema:
            if frame.columns.count(field.name) != 1:
                raise SparkJoinError(
                    f"stream {stream.name!r}: the query needs column {field.name!r}, but the DataFrame does not have"
                    f" exactly one such column; it has {', '.join(frame.columns)}; select or rename the column"
                )
            given = to_arrow_type(frame.schema[field.name].dataType, timezone="UTC")
            why = why_unfit(given, field.type)
            if why is not None:
                raise SparkJoinError(
                    f"stream {stream.name!r}, column {field.name!r}: the query says {field.type}, the DataFrame has "
                    f"{frame.schema[field.name].dataType.simpleString()}; {why}"
                )
    return [frames[name] for name in names]


def numbered(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the named columns of a DataFrame under the names c0, c1, …

    `mapInArrow` of pyspark 4.3 looks up columns by their unquoted names and fails if one contains a dot.
    """
    return frame.select(*(frame[_quoted(name)].alias(f"c{k}") for k, name in enumerate(names)))


def _quoted(column: str) -> str:
    """Return a column name in backticks, so that Spark does not interpret dots and backticks in it."""
    return "`" + column.replace("`", "``") + "`"

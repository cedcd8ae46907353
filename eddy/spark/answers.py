"""Inputs of batch joins that have the rows of queries: such a query is joined first, and its results are the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.columns import check_names
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.last_rows import LastRows
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Unbounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frames = Mapping[str, "DataFrame"]


def names_of(query: Query) -> Iterator[str]:
    """Yield the names under which the rows of a query are given: R, and x.R for the stream R of the query of x."""
    for stream in query.streams:
        if not isinstance(stream.source, Query):
            yield stream.name
            continue
        for name in names_of(stream.source):
            yield name
            yield f"{stream.name}.{name}"


def with_answers(query: Query, frames: Frames, joined: Callable[[Query, Frames], DataFrame]) -> tuple[Query, Frames]:
    """Return a query without inputs that are queries, and its DataFrames, with those of their results.

    joined   makes the DataFrame of the results of a query

    A table that has the answer of a query has rows that are never taken back here, as the last rows of any table in a
    batch join. Raises SparkJoinError for a DataFrame of no stream, and for such a table beside Range windows.
    """
    derived = [(stream, stream.source) for stream in query.streams if isinstance(stream.source, Query)]
    if not derived:
        return query, frames
    check_names(frames, dict.fromkeys(names_of(query)))
    plain = {stream.name for stream in query.streams} - {stream.name for stream, _ in derived}
    inputs, new_frames = dict[str, Stream](), {name: frame for name, frame in frames.items() if name in plain}
    for stream, source in derived:
        below = {name: frames.get(f"{stream.name}.{name}", frames.get(name)) for name in names_of(source)}
        new_frames[stream.name] = joined(source, {name: frame for name, frame in below.items() if frame is not None})
        if not isinstance(stream, Table):
            inputs[stream.name] = replace(stream, schema=source.output_schema, source=None)
            continue
        if query.graph.timed:
            raise SparkJoinError(
                f"{stream.place}: a batch join with Range windows takes no table that has the"
                " answer of a query; join its"
                " rows in a second join, as a stream with a time column or without Range windows"
            )
        inputs[stream.name] = LastRows(stream.name, source.output_schema, window=Unbounded(), filter=stream.filter)
    return query.with_inputs(inputs), new_frames

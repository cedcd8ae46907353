"""`eddy.spark.join` and `explain`, for batch and for streaming DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from eddy.query.query import Query
from eddy.spark.answers import with_answers
from eddy.spark.batch.join import BatchJoin, HopJoin, prepare_batch
from eddy.spark.changes import with_last_rows, with_plain_changes
from eddy.spark.columns import check_frames
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.batch import GroupedJoin, prepare_groups
from eddy.spark.groups.first_rows import TopJoin, prepare_top
from eddy.spark.options import BatchKeywords, StreamingKeywords, options_of, takes_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.streaming.driver.writer import StreamingJoin


@overload
def join(query: Query, frames: Mapping[str, DataFrame], **options: Unpack[BatchKeywords]) -> DataFrame: ...


@overload
def join(query: Query, frames: Mapping[str, DataFrame], **options: Unpack[StreamingKeywords]) -> StreamingJoin: ...


@takes_options(BatchKeywords, StreamingKeywords)
def join(query: Query, frames: Mapping[str, DataFrame], **options: Any) -> DataFrame | StreamingJoin:
    """Join batch DataFrames to a DataFrame, or streaming DataFrames to a `StreamingJoin` that can be started.

        join(query, frames).write.parquet("results")
        join(query, frames, checkpoint="state").writeStream.format("parquet").start("results")

    query       2 to 128 streams, tables whose changes have versions (docs/guide/tables.md), and versioned tables of
                as-of joins, with their windows, predicates and filters; `select` names the columns of the results. With
                aggregates the results are groups (docs/guide/spark.md): of all results in a batch join, of windows of
                event time in a streaming join. With `top` they are the first rows of each group, in a streaming join
                as a changelog or of windows of event time. Inputs of a batch join may have the rows of queries
    frames      stream name -> DataFrame with at least the columns of the stream's schema, by name; all batch, or all
                streaming

    The options are the fields of three classes of `eddy.spark.options`, whose docstrings describe them:

    EngineOptions       plan, strategy, policy, store, background, purge, max_bytes; for streaming DataFrames output:
                        how each engine runs
    PartitionOptions    partitions, transport, placement; for batch DataFrames order_by; for streaming DataFrames
                        key_groups, rebalance, memory: how rows reach the tasks, and how work is spread over them
    StreamingOptions    for streaming DataFrames checkpoint (required), keep, change, watermark, lateness, idle_after:
                        where state is durable, and which rows are late

    A batch join returns, in no particular order, the results of one engine that receives all rows in the order that
    `eddy/spark/partitioning/job.py` defines. A streaming join of the same rows, without late rows, has the same
    results, each exactly once, for any micro-batches, faults and restarts; its windows are `Range` or `Unbounded`.
    docs/guide/streaming.md lists what may change from one start to the next, and the guarantees of each sink.

    The join does not run before an action or `writeStream…start()`. The call lets Spark analyse the plans and reads no
    rows, except the samples of placement="hops" and "auto": some rows of Parquet files, or a small job over other
    DataFrames.
    Raises SparkJoinError for DataFrames or arguments that do not fit, PlanError for a bad plan, InputError for an
    unknown strategy or policy.
    """
    prepared = _prepare(query, frames, options)
    return prepared.frame() if isinstance(prepared, BatchJoin | GroupedJoin | HopJoin | TopJoin) else prepared


@takes_options(BatchKeywords, StreamingKeywords)
def explain(query: Query, frames: Mapping[str, DataFrame], **options: Any) -> str:
    """Return a text on how `join` with the same arguments would run.

        print(eddy.spark.explain(query, {"R": r, "S": s}, partitions=4))

    For batch DataFrames: placement and its reason, partitions and their operators, transport, order of arrival, plan.
    For streaming DataFrames: key groups, tasks, transport, watermark, the state of the checkpoint, and the plan of a
    new engine; `StreamingJoinQuery.explain` describes a running join. Reads no rows, except the samples of
    placement="hops" and "auto", and writes nothing. Raises what `join` raises.
    """
    return _prepare(query, frames, options).explain()


def _prepare(
    query: Query, frames: Mapping[str, DataFrame], given: Mapping[str, Any]
) -> BatchJoin | GroupedJoin | HopJoin | TopJoin | StreamingJoin:
    check_frames(query, frames)
    engines, partitioning, streaming = options_of(given)
    streams = {name: frame.isStreaming for name, frame in frames.items()}
    query, frames = with_plain_changes(query, frames)
    if not any(streams.values()):
        if streaming.checkpoint is not None:
            raise SparkJoinError("checkpoint= is for streaming DataFrames, and these are batch ones; leave it out")
        if streaming.change is not None:
            raise SparkJoinError("change= is for a streaming join with a checkpoint; leave it out")
        if engines.output != "append":
            raise SparkJoinError(f"output={engines.output!r} is for streaming DataFrames: no result of batch ones ends")
        if partitioning.memory is not None:
            raise SparkJoinError("memory= is for streaming DataFrames; max_bytes= bounds each engine of a batch join")
        query, frames = with_answers(query, frames, partial(_below, given))
        query, frames = with_last_rows(query, frames)
        if query.ranking is not None:
            return prepare_top(query, frames, engines, partitioning)
        kind = prepare_batch if query.aggregation is None else prepare_groups
        return kind(query, frames, engines, partitioning)
    if not all(streams.values()):
        batch = next(name for name, streamed in streams.items() if not streamed)
        raise SparkJoinError(
            f"stream {batch!r}: its DataFrame is a batch one and others are streaming; read it with spark.readStream:"
            " all DataFrames of a join are of one kind"
        )
    if partitioning.order_by is not None:
        raise SparkJoinError("order_by= is for batch DataFrames; event time orders streaming ones; leave it out")
    from eddy.spark.groups.operators import check_changelog, ends, without_operators
    from eddy.spark.streaming.driver.prepare import prepare

    derived = [stream.place for stream in query.streams if stream.source is not None]
    if derived:
        raise SparkJoinError(
            f"{derived[0]} has the rows of a query: a streaming join has no queries over queries; run this query as a"
            " join of its own, publish its results with the sink 'transactions' or 'delta', and read them as a stream"
        )
    if streaming.change is not None and query.tables_changing:
        raise SparkJoinError(
            f"change= is for queries without tables, and {query.tables_changing[0]} is one: the new query would have to"
            " take back the results of the old one. Start the changed query with a checkpoint of its own"
        )
    if streaming.change is not None and query.as_of:
        raise SparkJoinError(
            f"change= is for queries without as-of joins, and rows wait for versions of {query.as_of[0].table.name}:"
            " they belong to the query that found them. Start the changed query with a checkpoint of its own"
        )
    if streaming.change is not None and query.ranking is not None:
        raise SparkJoinError(
            "change= is for queries without top: the rows that are ranked belong to the query that found them. Start"
            " the changed query with a checkpoint of its own"
        )
    if streaming.change is not None and query.aggregation is not None:
        raise SparkJoinError(
            "change= is for queries without aggregates: the windows that are open belong to the query that began them."
            " Start the changed query with a checkpoint of its own"
        )
    check_changelog(query, engines.output, streaming.change is not None)
    grouped, query = query, without_operators(query)
    if ends(grouped) and not query.tables_changing:
        engines = replace(engines, output="changelog")
    prepared = prepare(query, frames, engines, partitioning, streaming)
    return prepared if grouped is query else replace(prepared, grouped=grouped)


def _below(given: Mapping[str, Any], query: Query, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the results of a query that is an input of another one; its plan, states and placement are its own."""
    options = {name: value for name, value in given.items() if name not in ("plan", "store", "placement", "order_by")}
    prepared = _prepare(query, frames, options)
    assert isinstance(prepared, BatchJoin | GroupedJoin | HopJoin | TopJoin)
    return prepared.frame()

"""`eddy.spark.join`: one function for batch and for streaming DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from eddy.query.numbers import whole
from eddy.query.query import Query
from eddy.routing.policies import Policy
from eddy.spark.batch.dataframe import Transport, join_batch
from eddy.spark.batch.engine import EngineOptions
from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.streaming.driver.rebalancing import Rebalancer
    from eddy.spark.streaming.driver.writer import StreamingJoin


@overload
def join(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    plan: str | None = None,
    strategy: str = "eddy",
    policy: str | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: Transport = "auto",
    order_by: Mapping[str, str] | None = None,
) -> DataFrame: ...


@overload
def join(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    checkpoint: str | Path,
    plan: str | None = None,
    strategy: str = "eddy",
    policy: str | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: Transport = "auto",
    key_groups: int | None = None,
    watermark: Literal["slowest", "per-source"] = "slowest",
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None,
    idle_after: timedelta | float | None = None,
    rebalance: Literal["auto", "off"] | Rebalancer = "auto",
    keep: int = 10,
) -> StreamingJoin: ...


def join(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    plan: str | None = None,
    strategy: str = "eddy",
    policy: str | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: Transport = "auto",
    order_by: Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    key_groups: int | None = None,
    watermark: Literal["slowest", "per-source"] = "slowest",
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None,
    idle_after: timedelta | float | None = None,
    rebalance: Literal["auto", "off"] | Rebalancer = "auto",
    keep: int = 10,
) -> DataFrame | StreamingJoin:
    """Join DataFrames as `query` says: batch ones to a DataFrame, streaming ones to something that can be started.

        join(query, frames).write.parquet("results")
        join(query, frames, checkpoint="state").writeStream.format("parquet").start("results")

    query       2 to 128 streams with their windows, predicates, filters; `select` names the columns of the results
    frames      stream name -> DataFrame with at least the columns of the stream's schema, by name; all batch, or all
                streaming
    plan        join tree to begin with, "((R S) T) U"; None: the engine's choice
    strategy, policy, max_bytes   as in `eddy.Runtime`, for each engine: one per partition in a batch join, one per key
                group in a streaming one; max_bytes in bytes
    partitions  tasks that join; None: as many as run at a time, in a batch join one if a window is `Rows`
    transport   "packed": the workers read the Parquet files behind the DataFrames; "rows": any DataFrame; "auto":
                packed where it can

    Of batch DataFrames only:
    order_by    stream -> integer, date or timestamp column that numbers the rows over all streams; instead of time
                columns

    Of streaming DataFrames only:
    checkpoint  directory of the job's state that the driver and all workers see, on a POSIX file system with rename and
                locks; made if need be. What is in it is gone on from
    key_groups  parts of the key space, each with an engine and a plan of its own; fixed when a checkpoint begins. None:
                what the checkpoint has; else 64, or 8 when some stream lacks the key and is copied to several
    watermark   what is late: "slowest", rows behind the slowest source; "per-source", rows behind their own
    lateness    how far rows may be behind the greatest event time of the batches before: a timedelta, or ticks of the
                common time type; one for all streams, or by stream; None, and streams left out: that of the query
    idle_after  processing time without rows (a timedelta, or seconds) after which a source is not waited for; None: it
                is waited for however long it takes
    rebalance   how key groups change partitions: "auto", by load with hysteresis; "off", when asked only; or a
                `Rebalancer` of your own
    keep        how many old states are kept, 2 or more

    A batch join gives the results of one engine that gets all rows in the order that `eddy.spark.partitioning.job`
    defines, in no particular order. A streaming join of the same rows, none of them late, gives the same results, each
    once, whatever the micro-batches, the faults and restarts; its windows are `Range` or `Unbounded`. What may change
    from one start to the next, and what sinks promise: docs/guide/streaming.md.

    Nothing runs until an action or `writeStream…start()` does; the call has Spark analyse the plans and reads no row.
    Raises SparkJoinError for DataFrames or arguments that do not fit, PlanError for a bad plan, InputError for an
    unknown strategy or policy.
    """
    options = EngineOptions(plan, strategy, policy, max_bytes)
    partitions = None if partitions is None else _count("partitions", partitions)
    key_groups = None if key_groups is None else _count("key_groups", key_groups)
    keep = _count("keep", keep)
    streaming = {name: frame.isStreaming for name, frame in frames.items()}
    if not any(streaming.values()):
        if checkpoint is not None:
            raise SparkJoinError("checkpoint is for streaming DataFrames, and these are batch ones: leave it out")
        return join_batch(query, frames, options, partitions, transport, order_by)
    if not all(streaming.values()):
        batch = next(name for name, own in streaming.items() if not own)
        raise SparkJoinError(
            f"stream {batch!r}: its DataFrame is a batch one and others are streaming; read it as a stream "
            "(spark.readStream), all streams of a join are of one kind"
        )
    if order_by is not None:
        raise SparkJoinError("order_by is for batch DataFrames: streaming ones are ordered by event time; leave it out")
    if checkpoint is None:
        raise SparkJoinError("a streaming join needs checkpoint=, a directory that the driver and all workers see")
    from eddy.spark.streaming.driver.prepare import prepare
    from eddy.spark.streaming.sinks.staging import local_path

    return prepare(
        query,
        frames,
        options,
        local_path(checkpoint, "checkpoint"),
        partitions=partitions,
        transport=transport,
        key_groups=key_groups,
        watermark=watermark,
        lateness=lateness,
        idle_after=idle_after,
        rebalance=rebalance,
        keep=keep,
    )


def _count(what: str, value: int) -> int:
    number = whole(value)
    if number is None:
        raise SparkJoinError(f"{what}={value!r}: give a whole number")
    return number

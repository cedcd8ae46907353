"""`eddy.spark.join` and `explain`: for batch and for streaming DataFrames."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from eddy.query.numbers import whole
from eddy.query.query import Query
from eddy.routing.policies import Policy, PolicyName
from eddy.spark.batch.join import BatchJoin, HopJoin, prepare_batch
from eddy.spark.columns import check_frames
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.batch import GroupedJoin, prepare_groups
from eddy.spark.hops.placing import Placement
from eddy.spark.partitioning.engine import EngineOptions
from jisc.strategies import StrategyName

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
    strategy: StrategyName = "eddy",
    policy: PolicyName | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: str = "auto",
    order_by: Mapping[str, str] | None = None,
    placement: Placement | None = None,
) -> DataFrame: ...


@overload
def join(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    checkpoint: str | Path,
    plan: str | None = None,
    strategy: StrategyName = "eddy",
    policy: PolicyName | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: str = "auto",
    placement: Placement | None = None,
    key_groups: int | None = None,
    watermark: Literal["slowest", "per-source"] = "slowest",
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None,
    idle_after: timedelta | float | None = None,
    rebalance: Literal["auto", "off"] | Rebalancer = "auto",
    keep: int = 10,
    memory: int | str | None = None,
    change: Literal["handover", "immediate"] | None = None,
) -> StreamingJoin: ...


def join(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    plan: str | None = None,
    strategy: StrategyName = "eddy",
    policy: PolicyName | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: str = "auto",
    order_by: Mapping[str, str] | None = None,
    placement: Placement | None = None,
    checkpoint: str | Path | None = None,
    key_groups: int | None = None,
    watermark: Literal["slowest", "per-source"] = "slowest",
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None,
    idle_after: timedelta | float | None = None,
    rebalance: Literal["auto", "off"] | Rebalancer = "auto",
    keep: int = 10,
    memory: int | str | None = None,
    change: Literal["handover", "immediate"] | None = None,
) -> DataFrame | StreamingJoin:
    """Join DataFrames: batch ones to a DataFrame, streaming ones to a `StreamingJoin` that can be started.

        join(query, frames).write.parquet("results")
        join(query, frames, checkpoint="state").writeStream.format("parquet").start("results")

    query       2 to 128 streams with their windows, predicates and filters; `select` names the columns of the results.
                With aggregates the results are groups (docs/guide/spark.md): of all results in a batch join, of windows
                of event time in a streaming one
    frames      stream name -> DataFrame with at least the columns of the stream's schema, by name; all batch, or all
                streaming
    plan        first join tree, "((R S) T) U"; None: the engine chooses
    strategy, policy, max_bytes   as in `eddy.Runtime`, for each engine: one engine per partition in a batch join, one
                per key group in a streaming join; max_bytes in bytes, in hops of a streaming join for each node
    partitions  number of tasks that join; None: the number of tasks that run at a time, or 1 in a batch join with a
                `Rows` window
    transport   "packed": the workers read the Parquet files behind the DataFrames; "rows": any DataFrame; "auto":
                "packed" where possible. Fixed when a checkpoint begins

    placement   where the steps of a query without a common key run. "grid" (None): one round, rows are copied to a
                grid of partitions. {head: [(stream, "ship" or "window"), …]}: several rounds; to join a stream, the
                intermediate tuples travel by a key that they share with it ("ship"), or stay where they are, and a copy
                of the stream comes to them ("window"). One plan for each stream as head, or for one of them if no
                window is `Range`. "hops": such plans, chosen from samples of the rows. "auto": the grid or hops,
                whichever is predicted to take less time from samples. A batch join decides once; a streaming one anew
                for each micro-batch, and it needs a plan for each head. In a streaming join None is the placement that
                the checkpoint stores, and "hops" and "auto" begin with the hops that it stores

    For batch DataFrames only:
    order_by    stream -> integer, date or timestamp column that numbers the rows over all streams; replaces the time
                columns

    For streaming DataFrames only:
    checkpoint  directory of the job's state that the driver and all workers can reach, on a POSIX file system with
                rename and locks; created if missing. If it holds a state, the job resumes from it
    key_groups  number of parts of the key space, each with its own engine and plan; fixed when a checkpoint begins.
                None: the number in the checkpoint; without one 4 for each task that can run at a time, at least 8, or 8
                if some stream lacks the key and is copied to several groups
    watermark   which rows are late: "slowest", rows behind the slowest source; "per-source", rows behind their own
                source
    lateness    how far rows may be behind the greatest event time of earlier batches: a timedelta, or ticks of the
                common time type; one for all streams, or a mapping by stream; None, and streams left out: the query's;
                if that is 0, the delay that `withWatermark` set on the time column of the DataFrame
    idle_after  processing time without rows (a timedelta, or seconds) after which the watermark no longer waits for a
                source; None: it always waits
    rebalance   how key groups change partitions: "auto", by load with hysteresis, and a group that alone overloads a
                partition is split; "off", on request only; or your own `Rebalancer`
    keep        number of states to keep, 2 or more
    memory      bound on the bytes of all engines on each host, a number of bytes or text such as "2 GiB"; None: none.
                Engines of cold key groups are spilled to files of the host, from which they are mapped again when they
                have rows. It changes no result and refuses no row, unlike max_bytes
    change      how the join of the checkpoint changes if this is another one (docs/guide/streaming.md): "handover", the
                new query goes on with the rows in the log; "immediate", it starts without rows; None: it is refused

    A batch join gives the results of one engine that receives all rows in the order that
    `eddy/spark/partitioning/job.py` defines, in no particular order. A streaming join of the same rows, none of them
    late, gives the same results, each exactly once, whatever the micro-batches, faults and restarts; its windows are
    `Range` or `Unbounded`. docs/guide/streaming.md lists what may change from one start to the next, and the guarantees
    of each sink.

    Nothing runs before an action or `writeStream…start()`; the call has Spark analyse the plans and reads no row, but
    for the samples of placement="hops" and "auto": some rows of Parquet files, or a small job over other DataFrames.
    Raises SparkJoinError for DataFrames or arguments that do not fit, PlanError for a bad plan, InputError for an
    unknown strategy or policy.
    """
    prepared = _prepare(
        query,
        frames,
        plan=plan,
        strategy=strategy,
        policy=policy,
        max_bytes=max_bytes,
        partitions=partitions,
        transport=transport,
        order_by=order_by,
        placement=placement,
        checkpoint=checkpoint,
        key_groups=key_groups,
        watermark=watermark,
        lateness=lateness,
        idle_after=idle_after,
        rebalance=rebalance,
        keep=keep,
        memory=memory,
        change=change,
    )
    return prepared.frame() if isinstance(prepared, BatchJoin | GroupedJoin | HopJoin) else prepared


def explain(query: Query, frames: Mapping[str, DataFrame], **arguments: Any) -> str:
    """Return a text on how `join` with the same arguments would run.

        print(eddy.spark.explain(query, {"R": r, "S": s}, partitions=4))

    For batch DataFrames: placement and its reason, partitions and their operators, transport, order of arrival, plan.
    For streaming ones: key groups, tasks, transport, watermark, the state of the checkpoint, and the plan of a new
    engine; `StreamingJoinQuery.explain` says how a running join runs. Reads no row but samples of placement="hops" and
    "auto", and writes nothing. Raises what `join` raises.
    """
    given = inspect.signature(join).bind(query, frames, **arguments)
    given.apply_defaults()
    return _prepare(**given.arguments).explain()


def _prepare(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    plan: str | None,
    strategy: StrategyName,
    policy: PolicyName | Policy | None,
    max_bytes: int | None,
    partitions: int | None,
    transport: str,
    order_by: Mapping[str, str] | None,
    placement: Placement | None,
    checkpoint: str | Path | None,
    key_groups: int | None,
    watermark: Literal["slowest", "per-source"],
    lateness: timedelta | int | Mapping[str, timedelta | int] | None,
    idle_after: timedelta | float | None,
    rebalance: Literal["auto", "off"] | Rebalancer,
    keep: int,
    memory: int | str | None,
    change: Literal["handover", "immediate"] | None,
) -> BatchJoin | GroupedJoin | HopJoin | StreamingJoin:
    check_frames(query, frames)
    options = EngineOptions(plan, strategy, policy, max_bytes)
    partitions = None if partitions is None else _count("partitions", partitions)
    key_groups = None if key_groups is None else _count("key_groups", key_groups)
    keep = _count("keep", keep)
    streaming = {name: frame.isStreaming for name, frame in frames.items()}
    if not any(streaming.values()):
        if checkpoint is not None:
            raise SparkJoinError("checkpoint= is for streaming DataFrames, and these are batch ones; leave it out")
        if change is not None:
            raise SparkJoinError("change= is for a streaming join with a checkpoint; leave it out")
        if memory is not None:
            raise SparkJoinError("memory= is for streaming DataFrames; max_bytes= bounds each engine of a batch join")
        kind = prepare_batch if query.aggregation is None else prepare_groups
        return kind(
            query, frames, options, partitions=partitions, transport=transport, order_by=order_by, placement=placement
        )
    if not all(streaming.values()):
        batch = next(name for name, own in streaming.items() if not own)
        raise SparkJoinError(
            f"stream {batch!r}: its DataFrame is a batch one and others are streaming; read it with spark.readStream:"
            " all DataFrames of a join are of one kind"
        )
    if order_by is not None:
        raise SparkJoinError("order_by= is for batch DataFrames; event time orders streaming ones; leave it out")
    if checkpoint is None:
        raise SparkJoinError("a streaming join needs checkpoint=, a directory that the driver and all workers reach")
    from eddy.spark.groups.sink import without_groups
    from eddy.spark.streaming.driver.prepare import prepare
    from eddy.spark.streaming.sinks.staging import local_path

    if change is not None and query.aggregation is not None:
        raise SparkJoinError(
            "change= is for queries without aggregates: the windows that are open belong to the query that began them."
            " Start the changed query with a checkpoint of its own"
        )
    grouped, query = query, query if query.aggregation is None else without_groups(query)
    found = prepare(
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
        memory=memory,
        change=change,
        placement=placement,
    )
    return found if grouped is query else replace(found, grouped=grouped)


def _count(what: str, value: int) -> int:
    number = whole(value)
    if number is None:
        raise SparkJoinError(f"{what}={value!r}: give a whole number")
    return number

r"""`eddy.spark.join` of batch DataFrames.

    stream R  scan / any plan -> split \
    stream S  scan / any plan -> split  >- union - shuffle of blobs by part - sort by first - join
    stream T  scan / any plan -> split /                                     one engine per partition

See `blobs.py` for the blobs, `partitioning/shares.py` for the partitions, `partitioning/merge.py` for the order and
`transports/` for the ways in which rows reach the workers. `DataFrame.explain()` shows these steps as MapInArrow nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.routing.policies import Policy
from eddy.spark.batch.blobs import SplitRows
from eddy.spark.batch.partition_join import JoinPartition
from eddy.spark.columns import in_query_order
from eddy.spark.environment.session import parallelism
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.transports.base import Carried
from eddy.spark.transports.choice import AUTO, carry, check_transport
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNKNOWN_BYTES = 1 << 60  # without an estimate Spark reports the largest long


def _weights(query: Query, frames: list[DataFrame]) -> dict[str, float] | None:
    """Return Spark's estimate of each stream's size in bytes, None unless there is one for every stream."""
    sizes = {}
    for stream, frame in zip(query.streams, frames, strict=True):
        if not hasattr(frame, "_jdf"):
            return None
        size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        if not 0 < size < _UNKNOWN_BYTES:
            return None
        sizes[stream.name] = float(size)
    return sizes


def _prepare(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: EngineOptions,
    partitions: int | None,
    transport: str,
    order_by: Mapping[str, str] | None,
) -> tuple[Job, Carried]:
    """Check everything that can be checked before a row is read; return the job and the DataFrame of its blobs."""
    check_transport(transport)
    ordered = in_query_order(query, frames)
    streaming = [stream.name for stream, frame in zip(query.streams, ordered, strict=True) if frame.isStreaming]
    if streaming:
        raise SparkJoinError(
            f"stream {streaming[0]!r}: its DataFrame is a streaming one; pass batch DataFrames (spark.read)"
        )
    weights = _weights(query, ordered) if len(query.classes) > 1 else None
    job = make_job(
        query,
        options=options,
        partitions=partitions,
        parallelism=parallelism(ordered[0].sparkSession),
        weights=weights,
        order_by=order_by,
    )
    return job, carry(transport, SplitRows(job), ordered)


def join_batch(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: EngineOptions,
    partitions: int | None = None,
    transport: str = AUTO,
    order_by: Mapping[str, str] | None = None,
) -> DataFrame:
    """Join batch DataFrames; return a DataFrame with one row per result and the columns of the query's `select`.

    frames      stream name -> DataFrame with at least the columns of the stream's schema, by name
    options     of the engines
    partitions  number of engines, each in a task of its own; None: the number of tasks that run at a time, or 1 if a
                window is `Rows`
    transport   "packed": the workers read the Parquet files behind the DataFrames; "rows": any DataFrame; "auto":
                "packed" where possible
    order_by    stream -> integer, date or timestamp column that numbers the rows over all streams; replaces the time
                columns

    The results are exactly those of one engine that receives all rows in the order that `partitioning/job.py` defines,
    in no particular order. Nothing runs before an action, except that the first join of a session runs a small job that
    checks the Python of the workers. Types: as in `types.py`. Raises SparkJoinError for DataFrames that do not fit the
    query, `Rows` windows with more than one partition or no defined order, a transport that cannot be used, and workers
    that cannot import this package; PlanError for a bad plan.
    """
    job, blobs = _prepare(query, frames, options, partitions, transport, order_by)
    schema = struct_type(query.output_schema)
    options.runtime(job.query, bounded=True)  # a bad plan should fail here and not in a task
    check_workers(blobs.frame.sparkSession)
    parted = blobs.frame.repartitionById(job.shares.partitions, "part")
    if job.arrival != "any":
        parted = parted.sortWithinPartitions("first", "stream")
    return parted.mapInArrow(JoinPartition(job), schema)


def explain(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    plan: str | None = None,
    strategy: str = "eddy",
    policy: str | Policy | None = None,
    max_bytes: int | None = None,
    partitions: int | None = None,
    transport: str = AUTO,
    order_by: Mapping[str, str] | None = None,
) -> str:
    """Return a text on how `join` with the same arguments would run: partitions, transport, order of arrival, plan.

        print(eddy.spark.explain(query, {"R": r, "S": s}, partitions=4))

    Reads no row. Raises what `join` raises.
    """
    options = EngineOptions(plan, strategy, policy, max_bytes)
    job, blobs = _prepare(query, frames, options, partitions, transport, order_by)
    columns = ", ".join(f"{s.name}.{c}" for s, c in zip(job.query.streams, job.sequence, strict=True))
    order = {
        "time": f"by event time ({columns}), then stream order in the query",
        "sequence": f"by number ({columns}), then stream order in the query",
        "any": "undefined; every order gives the same results",
    }[job.arrival]
    if job.breaks_ties:
        order += ", then the content of the tuple"
    return "\n".join(
        [
            f"partitions: {job.shares.describe()}",
            f"transport: {blobs.remark}",
            f"arrivals: {order}",
            "one engine per partition:",
            options.runtime(job.query, bounded=True).explain(),
        ]
    )

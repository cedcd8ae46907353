r"""`eddy.spark.join` of batch DataFrames.

    stream R  scan / any plan -> split \
    stream S  scan / any plan -> split  >- union - shuffle of blobs by part - sort by first - join
    stream T  scan / any plan -> split /                                          one engine a partition

See `split.py` for the blobs, `shares.py` for the partitions, `merge.py` for the order, `packed.py` and `rows.py` for
the two ways in. The plan that Spark shows (`DataFrame.explain()`) names them in its MapInArrow nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from eddy.query.query import Query
from eddy.routing.policies import Policy
from eddy.spark.batch.engine import EngineOptions
from eddy.spark.batch.merge import join_blobs
from eddy.spark.batch.packed import NotPlain, Unit, blobs_of_files, plain_scan
from eddy.spark.batch.rows import blobs_of_rows
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.types import struct_type, why_unfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transport = Literal["auto", "rows", "packed"]
_UNKNOWN_BYTES = 1 << 60  # Spark's estimate where it has none is the largest long


class _JoinPartition:
    """What a worker does with one partition: a function from batches of blobs to batches of results."""

    def __init__(self, job: Job) -> None:
        self._job = job
        n = job.shares.partitions
        self.__name__ = f"eddy_join[{'1 partition' if n == 1 else job.shares.describe().splitlines()[0]}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_blobs(self._job, batches)


def in_query_order(query: Query, frames: Mapping[str, DataFrame]) -> list[DataFrame]:
    """Return the DataFrames as the query names them. Raises SparkJoinError for one that is missing or does not fit."""
    from pyspark.sql.pandas.types import to_arrow_type

    names = [stream.name for stream in query.streams]
    unknown = [name for name in frames if name not in names]
    if unknown:
        raise SparkJoinError(
            f"a DataFrame is given for {unknown[0]!r}, which is no stream of the query ({', '.join(names)})"
        )
    for stream in query.streams:
        if stream.name not in frames:
            raise SparkJoinError(f"stream {stream.name!r} has no DataFrame: pass one under that name")
        frame = frames[stream.name]
        for field in stream.schema:
            if frame.columns.count(field.name) != 1:
                raise SparkJoinError(
                    f"stream {stream.name!r}: the query has a column {field.name!r}, which is not, or not once, "
                    "among the "
                    f"DataFrame's ({', '.join(frame.columns)}); rename or select it"
                )
            given = to_arrow_type(frame.schema[field.name].dataType, timezone="UTC")
            why = why_unfit(given, field.type)
            if why is not None:
                raise SparkJoinError(
                    f"stream {stream.name!r}, column {field.name!r}: the query says {field.type}, the DataFrame has "
                    f"{frame.schema[field.name].dataType.simpleString()}; {why}"
                )
    return [frames[name] for name in names]


def _weights(query: Query, frames: list[DataFrame]) -> dict[str, float] | None:
    """Spark's estimates of the sizes, None unless it has one for every stream."""
    sizes = {}
    for stream, frame in zip(query.streams, frames, strict=True):
        if not hasattr(frame, "_jdf"):
            return None
        size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        if not 0 < size < _UNKNOWN_BYTES:
            return None
        sizes[stream.name] = float(size)
    return sizes


def _units(job: Job, frames: list[DataFrame]) -> list[Unit]:
    units: list[Unit] = []
    for i, (stream, frame) in enumerate(zip(job.query.streams, frames, strict=True)):
        try:
            units += plain_scan(frame, i, job.inputs[i].names)
        except NotPlain as why:
            raise NotPlain(f"the DataFrame of stream {stream.name!r} is no plain scan of Parquet files: {why}") from why
    return units


def _prepare(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: EngineOptions,
    partitions: int | None,
    transport: Transport,
    order_by: Mapping[str, str] | None,
) -> tuple[Job, list[DataFrame], list[Unit] | None, str]:
    """Check everything that can be checked before a row is read; units are None for the rows transport."""
    check_transport(transport)
    ordered = in_query_order(query, frames)
    streaming = [stream.name for stream, frame in zip(query.streams, ordered, strict=True) if frame.isStreaming]
    if streaming:
        raise SparkJoinError(
            f"stream {streaming[0]!r}: the DataFrame is a streaming one, and this is about joins of batch DataFrames"
        )
    parallelism = parallelism_of(ordered[0])
    weights = _weights(query, ordered) if len(query.classes) > 1 else None
    job = make_job(
        query, options=options, partitions=partitions, parallelism=parallelism, weights=weights, order_by=order_by
    )
    if transport == "rows":
        return job, ordered, None, "rows: as asked"
    try:
        units = _units(job, ordered)
    except NotPlain as why:
        if transport == "packed":
            raise SparkJoinError(f"transport='packed' cannot be used: {why}; pass transport='auto' or 'rows'") from why
        return job, ordered, None, f"rows: {why}"
    return job, ordered, units, f"packed: the workers read {len({u.uri for u in units})} Parquet files themselves"


def check_transport(transport: str) -> None:
    """Raise SparkJoinError unless there is such a transport."""
    if transport not in get_args(Transport):
        raise SparkJoinError(f"transport={transport!r}: say 'auto', 'rows' or 'packed'")


def parallelism_of(frame: DataFrame) -> int:
    """Return how many tasks run at a time."""
    session = frame.sparkSession
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context to ask
        return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def join_batch(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: EngineOptions,
    partitions: int | None = None,
    transport: Transport = "auto",
    order_by: Mapping[str, str] | None = None,
) -> DataFrame:
    """Join batch DataFrames as `query` says; return its results, one row each, with the query's projection.

    frames      stream name -> DataFrame with at least the columns of the stream's schema, by name
    options     what the engines are made with
    partitions  engines, each in a task of its own; None: as many as tasks run at a time, one if a window is `Rows`
    transport   "packed": the workers read the Parquet files behind the DataFrames; "rows": any DataFrame; "auto":
                packed where it can
    order_by    stream -> integer, date or timestamp column that numbers the rows over all streams; instead of time
    columns

    Results are those of one engine that gets all rows in the order `job.py` defines, exactly, in no particular order;
    where `DataFrame.explain()` and `explain` say how they are partitioned. Nothing runs until an action does, but a
    job for the first join of a session that checks the Python of the workers. Types: as in `types.py`. Raises
    SparkJoinError for DataFrames that do not fit the query, `Rows` windows with more than one partition or no defined
    order, a transport that cannot be, and workers that cannot import this package; PlanError for a bad plan.
    """
    job, ordered, units, _ = _prepare(query, frames, options, partitions, transport, order_by)
    schema = struct_type(query.output_schema)
    options.runtime(job.query)  # a bad plan should fail here and not in a task
    check_workers(ordered[0].sparkSession)
    if units is None:
        blobs = blobs_of_rows(job, ordered)
    else:
        blobs = blobs_of_files(job, ordered[0], units, 2 * parallelism_of(ordered[0]))
    parted = blobs.repartitionById(job.shares.partitions, "part")
    if job.arrival != "any":
        parted = parted.sortWithinPartitions("first", "stream")
    return parted.mapInArrow(_JoinPartition(job), schema)


def explain(
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
) -> str:
    """Say how `join` with the same arguments would run: partitions, transport and why, order of arrival, plan."""
    options = EngineOptions(plan, strategy, policy, max_bytes)
    job, _, _, way = _prepare(query, frames, options, partitions, transport, order_by)
    columns = ", ".join(f"{s.name}.{c}" for s, c in zip(job.query.streams, job.sequence, strict=True))
    order = {
        "time": f"by event time ({columns}), then stream order in the query",
        "sequence": f"by number ({columns}), then stream order in the query",
        "any": "undefined, as every order gives the same results",
    }[job.arrival]
    if job.breaks_ties:
        order += ", then the content of the tuple"
    return "\n".join(
        [
            f"partitions: {job.shares.describe()}",
            f"transport: {way}",
            f"arrivals: {order}",
            "engine, one per partition:",
            options.runtime(job.query).explain(),
        ]
    )

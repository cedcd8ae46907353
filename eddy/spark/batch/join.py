r"""`eddy.spark.join` of batch DataFrames.

    stream R  scan / any plan -> split \
    stream S  scan / any plan -> split  >- union - shuffle of blobs by part - sort by first - join
    stream T  scan / any plan -> split /                                     one engine per partition

See `blobs.py` for the blobs, `partitioning/shares.py` for the partitions, `partitioning/merge.py` for the order and
`transports/` for the ways in which rows reach the workers. `DataFrame.explain()` shows these steps as MapInArrow nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.batch.blobs import SplitRows
from eddy.spark.batch.partition_join import JoinPartition
from eddy.spark.columns import in_query_order
from eddy.spark.environment.session import parallelism
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.transports.base import Carried
from eddy.spark.transports.choice import carry, check_transport
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


@dataclass(frozen=True)
class BatchJoin:
    """A join of batch DataFrames that has not run.

    job      the query and the grid of partitions
    carried  the DataFrame of the blobs
    """

    job: Job
    carried: Carried

    def frame(self) -> DataFrame:
        """Return the DataFrame of the results. Checks the Python of the workers, by a small job once per session."""
        check_workers(self.carried.frame.sparkSession)
        parted = self.carried.frame.repartitionById(self.job.shares.partitions, "part")
        if self.job.arrival != "any":
            parted = parted.sortWithinPartitions("first", "stream")
        return parted.mapInArrow(JoinPartition(self.job), struct_type(self.job.query.output_schema))

    def explain(self) -> str:
        """Return a text on partitions, transport, order of arrival, and the plan of an engine. Reads no row."""
        job = self.job
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
                f"transport: {self.carried.remark}",
                f"arrivals: {order}",
                "one engine per partition:",
                job.options.runtime(job.query, bounded=True).explain(),
            ]
        )


def prepare_batch(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: EngineOptions,
    *,
    partitions: int | None,
    transport: str,
    order_by: Mapping[str, str] | None,
) -> BatchJoin:
    """Return the join after all checks that are possible before a row is read; see `eddy.spark.join`."""
    check_transport(transport)
    ordered = in_query_order(query, frames)
    weights = _weights(query, ordered) if len(query.classes) > 1 else None
    job = make_job(
        query,
        options=options,
        partitions=partitions,
        parallelism=parallelism(ordered[0].sparkSession),
        weights=weights,
        order_by=order_by,
    )
    struct_type(query.output_schema)
    options.runtime(job.query, bounded=True)  # a bad plan should fail here and not in a task
    return BatchJoin(job, carry(transport, SplitRows(job), ordered))

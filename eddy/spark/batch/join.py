r"""`eddy.spark.join` of batch DataFrames.

    stream R  scan / any plan -> split \
    stream S  scan / any plan -> split  >- union - shuffle of blobs by part - sort by first - join
    stream T  scan / any plan -> split /                                     one engine per partition

See `blobs.py` for the blobs, `eddy/placement/shares.py` for the partitions, `partitioning/merge.py` for the order and
`transports/` for the paths of rows to the workers. `DataFrame.explain()` shows these steps as MapInArrow nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.batch.blobs import BLOB_COLUMNS, SplitRows
from eddy.spark.batch.choice import asked_hops, may_pay, predicted
from eddy.spark.batch.hop_tasks import DealRows, JoinRound
from eddy.spark.batch.measure import measure
from eddy.spark.batch.partition_join import JoinPartition
from eddy.spark.columns import check_texts, in_query_order
from eddy.spark.environment.session import parallelism
from eddy.spark.environment.spark_version import dealt
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.hops.hops import Hops
from eddy.spark.hops.placing import why_one_round
from eddy.spark.options import PartitionOptions
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.partitioning.operators import grid_operators, operator_texts, why_unplaced
from eddy.spark.transports.base import Carried
from eddy.spark.transports.choice import carry
from eddy.spark.transports.parquet_source import BatchInput
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNKNOWN_BYTES = 1 << 60  # without an estimate Spark reports the largest long


def _weights(query: Query, frames: list[DataFrame]) -> dict[str, float] | None:
    """Return Spark's estimate of each stream's size in bytes, None unless every stream has an estimate."""
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
    """A join of batch DataFrames in one round that has not run.

    job      the query and the grid of partitions
    carried  the DataFrame of the blobs
    why      why the join runs in one round
    """

    job: Job
    carried: Carried
    why: str

    def frame(self) -> DataFrame:
        """Return the DataFrame of the results. Checks the Python of the workers, by a small job once per session."""
        check_workers(self.carried.frame.sparkSession)
        parted = dealt(self.carried.frame, self.job.shares.partitions, "part")
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
        placed = [] if why_unplaced(job.query) else _operator_lines(grid_operators(job.query, job.shares))
        return "\n".join(
            [
                f"placement: one round over a grid, {self.why}",
                f"partitions: {job.shares.describe()}",
                *placed,
                f"transport: {self.carried.remark}",
                f"arrivals: {order}",
                "one engine per partition:",
                job.options.runtime(job.query, bounded=True).explain(),
            ]
        )


@dataclass(frozen=True)
class HopJoin:
    """A join of batch DataFrames in several hops that has not run.

    job      the query; its grid gives the number of partitions only
    hops     the plan: the steps of each round, and their places
    carried  for each round the DataFrame of the blobs of its streams
    why      why the join runs in hops
    """

    job: Job
    hops: Hops
    carried: tuple[Carried, ...]
    why: str

    def frame(self) -> DataFrame:
        """Return the DataFrame of the results. Checks the Python of the workers, by a small job once per session."""
        check_workers(self.carried[0].frame.sparkSession)
        joined: DataFrame | None = None
        for number, carried in enumerate(self.carried):
            blobs = carried.frame if joined is None else carried.frame.unionAll(joined)
            parted = dealt(blobs, self.hops.partitions, "part").sortWithinPartitions("first")
            last = number == self.hops.rounds - 1
            made = struct_type(self.job.query.output_schema) if last else BLOB_COLUMNS
            joined = parted.mapInArrow(JoinRound(self.job, self.hops, number), made)
        assert joined is not None
        return joined

    def explain(self) -> str:
        """Return a text on the steps of each head, the operators of each partition, and transport. Reads no row."""
        query, shares = self.job.query, self.job.shares
        return "\n".join(
            [
                f"placement: {self.hops.rounds} rounds of hops over {self.hops.partitions} partitions, {self.why}",
                *self.hops.lines(query.graph.names, [f"[{key_class}]" for key_class in shares.classes]),
                *_operator_lines(operator_texts(query, shares, self.hops.operators())),
                f"transport: {self.carried[0].remark}",
            ]
        )


def _operator_lines(operators: Mapping[str, list[str]]) -> list[str]:
    """Return lines of text with the operator set of each partition, by place."""
    return ["operators of each partition:", *(f"  {place}: {', '.join(texts)}" for place, texts in operators.items())]


def prepare_batch(
    query: Query, frames: Mapping[str, DataFrame], engines: EngineOptions, partitioning: PartitionOptions
) -> BatchJoin | HopJoin:
    """Return the join after all checks that are possible before a row is read; see `eddy.spark.join`."""
    placement, transport = partitioning.placement, partitioning.transport
    ordered = in_query_order(query, frames)
    inputs = [BatchInput(frame) for frame in ordered]

    def made(weights: Mapping[str, float] | None) -> Job:
        return make_job(
            query,
            options=engines,
            partitions=partitioning.partitions,
            parallelism=workers,
            weights=weights,
            order_by=partitioning.order_by,
        )

    workers = parallelism(ordered[0].sparkSession)
    sizes = _weights(query, ordered) if len(query.partition_classes) > 1 else None
    job = made(sizes)
    check_texts(query, ordered, [schema.names for schema in job.inputs])
    struct_type(query.output_schema)
    engines.runtime(job.query, bounded=True)  # a bad plan should fail here and not in a task
    why, hops = "as asked" if placement == "grid" else "the default", None
    if placement is not None and placement != "grid":
        only = why_one_round(query, job)
        if only is not None and placement != "auto":
            raise SparkJoinError(f'placement={placement!r}: {only}; such a join runs in one round: pass "grid"')
        if isinstance(placement, Mapping):
            why, hops = "as asked", asked_hops(job, placement)
        elif only is not None:
            why = f"since {only}"
        elif placement == "auto" and not may_pay(job, sizes):
            why = (
                "whose copies cost less than a second round" if job.shares.volume() > 1 else "in which no row is copied"
            )
        else:
            check_workers(ordered[0].sparkSession)
            figures = measure(job, transport, inputs)
            measured = zip(query.streams, figures, strict=True)
            job = made({stream.name: sampled.rows * sampled.row_bytes for stream, sampled in measured})
            work = predicted(job, figures)
            why = f"predicted from samples: {work.grid_s:.2g} CPU seconds in one round, {work.hops_s:.2g} in hops"
            hops = work.hops if placement == "hops" or work.hops_s < work.grid_s else None
    if hops is None:
        return in_one_round(job, transport, inputs, why)
    return in_hops(job, hops, transport, inputs, why)


def in_one_round(job: Job, transport: str, inputs: Sequence[BatchInput], why: str) -> BatchJoin:
    """Return the join over the grid of the job."""
    return BatchJoin(job, carry(transport, SplitRows(job), inputs), why)


def in_hops(job: Job, hops: Hops, transport: str, inputs: Sequence[BatchInput], why: str) -> HopJoin:
    """Return the join in hops over the partitions of the job."""
    rounds = []
    for number in range(hops.rounds):
        dealt = hops.dealt(number)
        rounds.append(carry(transport, DealRows(job, dealt), [inputs[i] for i in dealt]))
    return HopJoin(job, hops, tuple(rounds), why)

"""The state of the driver from one start of a job to the next stop."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.sinks import Sink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.identity import QueryChange
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.transports.base import Carried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class JobContext:
    """The parts of a running job that do not change during the run.

    job         query and grid; `job.shares.partitions` is the number of key groups
    locations   directories of the tasks
    checkpoint  locked by this driver
    sink        destination of the results
        carried     the path of the rows to the workers, with the input of each stream that the workers read
    name        of the query, for Spark's UI and log records
    changes     changes of the query that may not have taken effect yet
    grouped     the query with aggregates or `top`, of which `job` has the join; None without
    key         secret of the live engines; a new one per start, so that engines of earlier starts are not used
    """

    spark: SparkSession
    job: Job
    locations: Locations
    checkpoint: Checkpoint
    sink: Sink
    carried: Carried
    name: str = "eddy"
    changes: tuple[QueryChange, ...] = ()
    grouped: Query | None = None
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

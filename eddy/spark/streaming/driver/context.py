"""What a job has from one start to the next stop."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.sinks import Sink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.locations import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Run:
    """What the driver runs a job with.

    job         query and grid; `job.shares.partitions` is the number of key groups
    places      where tasks find and leave things
    checkpoint  locked by this driver
    sink        where results go
    key         of live engines: those that another start left are not read
    name        of the query, as Spark's UI shows it with its jobs
    """

    spark: SparkSession
    job: Job
    places: Places
    checkpoint: Checkpoint
    sink: Sink
    name: str = "eddy"
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

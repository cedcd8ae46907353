"""Settings of a streaming join that may change from one start to the next."""

from __future__ import annotations

from dataclasses import dataclass

from eddy.spark.options import PartitionOptions, StreamingOptions
from eddy.spark.streaming.driver.rebalancing import Rebalancer
from eddy.spark.streaming.driver.watermarks import WatermarkRules
from eddy.streams.late_options import Failed, Late


@dataclass(frozen=True)
class Settings:
    """Settings that may change from one start of a job to the next.

    partitions    partitions of the key groups; a task joins one or more of them
    rules         how watermarks follow from event times
    rebalancer    decides which key groups change partitions
    late          per stream, what happens to its late rows
    failed        what happens to failed rows
        partitioning  the options as they were given; with placement None, that of the newest micro-batch continues
    streaming     the options as they were given
    """

    partitions: int
    rules: WatermarkRules
    rebalancer: Rebalancer
    late: tuple[Late, ...]
    failed: Failed
    partitioning: PartitionOptions
    streaming: StreamingOptions

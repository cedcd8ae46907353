"""Settings of a streaming join that may change from one start to the next."""

from __future__ import annotations

from dataclasses import dataclass

from eddy.query.lateness import Failed, Late
from eddy.spark.hops.placing import Placement
from eddy.spark.streaming.driver.rebalancing import Rebalancer
from eddy.spark.streaming.driver.watermarks import WatermarkRules
from eddy.spark.streaming.state.identity import How


@dataclass(frozen=True)
class Settings:
    """Settings that may change from one start of a job to the next.

    partitions  partitions of the key groups; a task joins one or more of them
    rules       how watermarks follow from event times
    rebalancer  decides which key groups change partitions
    keep        number of manifests to keep, with the files that they name
    late        per stream, what happens to its late rows
    failed      what happens to failed rows
    memory      bound on the bytes of the engines of each host, None = none
    change      how the query changes if it is another one than in the checkpoint
    placement   where the join steps run; None: where they ran before, and in the grid in a new checkpoint
    """

    partitions: int
    rules: WatermarkRules
    rebalancer: Rebalancer
    keep: int
    late: tuple[Late, ...]
    failed: Failed
    memory: int | None = None
    change: How | None = None
    placement: Placement | None = None

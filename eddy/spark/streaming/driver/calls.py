"""The calls of Spark for micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.streaming.driver.micro_batch import MicroBatches


class Calls:
    """A function that Spark calls for each micro-batch.

    Spark keeps the function after the end of a query, so `end` releases the micro-batches."""

    def __init__(self, batches: MicroBatches) -> None:
        self._batches: MicroBatches | None = batches

    def __call__(self, frame: DataFrame, batch: int) -> None:
        batches = self._batches
        if batches is None:
            raise SparkJoinError(f"the query has ended; batch {batch} does not run")
        batches(frame, batch)

    def end(self) -> None:
        """Release the micro-batches."""
        self._batches = None

"""Calls a function with the results of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.base import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CallbackSink(Sink):
    """Calls `function(dataframe, batch_id)` on the driver for each batch, with or without results.

    The call happens after the commit of the batch. If the driver dies before it records that the call returned, the
    next start calls the function again with the same id and exactly the same rows. So a function that stores the id
    together with its effect takes effect once. The rows are in files of the job: write a DataFrame elsewhere to keep
    the rows.
    """

    def __init__(self, function: Callable[[DataFrame, int], object]) -> None:
        if not callable(function):
            raise SparkJoinError(f"CallbackSink: {function!r} is not callable; pass a function(dataframe, batch_id)")
        self._function = function

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Call the function. Raises SparkJoinError from an exception of the function."""
        rows = self.frame(spark, batch, files)
        try:
            self._function(rows, batch)
        except Exception as problem:
            called = getattr(self._function, "__qualname__", repr(self._function))
            raise SparkJoinError(
                f"the callback {called} failed in batch {batch}: {type(problem).__name__}: {problem}; the batch is"
                " committed, and the next start of the job calls again with the same rows"
            ) from problem

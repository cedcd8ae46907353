"""Results given to a function, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.frames import FrameSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CallbackSink(FrameSink):
    """Calls `function(dataframe, batch_id)` on the driver for each batch, those without rows as well.

    The call is made after the batch was committed. If the job dies after the call and before it noted that the call was
    made, it is made again with the same id and the very same rows; a function that notes the id along with what it does
    thus does it once. The rows lie in files of the job: a DataFrame kept for later has to be written elsewhere.
    """

    name = "callback"

    def __init__(self, function: Callable[[DataFrame, int], object]) -> None:
        if not callable(function):
            raise SparkJoinError(
                f"CallbackSink: {function!r} cannot be called; give a function of (dataframe, batch_id)"
            )
        super().__init__()
        self._function = function

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Call the function. Raises SparkJoinError from what it raises."""
        rows = self._frame(spark, self._files(batch, files))
        try:
            self._function(rows, batch)
        except Exception as problem:
            called = getattr(self._function, "__qualname__", repr(self._function))
            raise SparkJoinError(
                f"the callback {called} failed in batch {batch}: {type(problem).__name__}: {problem}; the batch is"
                " committed, and the call will be made again with the same rows when the job is started again"
            ) from problem

"""The transport for any DataFrame: its rows reach a Python worker as Arrow batches.

Each stream has its own `mapInArrow`, so that no stream carries the columns of the other streams. Each row leaves the
JVM once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.columns import numbered
from eddy.spark.transports.base import Carried, RowTask, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.transports.parquet_source import BatchInput


class _RunOnStream:
    """The function that Spark runs on the rows of one stream. Its columns arrive as c0, c1, …"""

    def __init__(self, task: RowTask, stream: int) -> None:
        self._task = task
        self._stream = stream
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_{task.verb}[{task.job.query.streams[stream].name}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = self._task.job.inputs[self._stream].names
        return self._task(self._stream, (batch.rename_columns(names) for batch in batches))


class RowsTransport(Transport):
    """Carries the rows of any DataFrame, batch or streaming."""

    name = "rows"

    def carry_batch(self, task: RowTask, inputs: Sequence[BatchInput]) -> Carried:
        return self._carried(task, [source.frame for source in inputs])

    def carry_stream(self, task: RowTask, frames: Sequence[DataFrame], root: Path) -> Carried:
        return self._carried(task, frames)

    def _carried(self, task: RowTask, frames: Sequence[DataFrame]) -> Carried:
        carried = [
            numbered(frame, task.job.inputs[i].names).mapInArrow(_RunOnStream(task, i), task.columns)
            for i, frame in zip(task.streams, frames, strict=True)
        ]
        return Carried(reduce(lambda left, right: left.unionAll(right), carried))

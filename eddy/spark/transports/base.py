"""The contract of a transport, which carries the rows of all streams to the workers and runs one `RowTask` there.

A batch join splits rows into blobs (`batch/blobs.py`), a streaming join logs them (`streaming/worker/log_stage.py`).
Both tasks are row tasks, so each transport works for both kinds of join.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa

from eddy.spark.partitioning.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.transports.inputs import StreamInput
    from eddy.spark.transports.parquet_source import BatchInput


class RowTask(ABC):
    """The work on the rows of one stream within one Spark task. Spark pickles it and sends it to the workers.

    job      the join
    streams  streams whose rows the task takes, by position in the query; by default all streams
    verb     name of the work in the plans that Spark shows: "split" gives nodes such as `eddy_split[R]`
    columns  Spark schema of the batches that the task yields
    """

    verb: ClassVar[str]
    columns: ClassVar[str]

    def __init__(self, job: Job) -> None:
        self.job = job
        self.streams: Sequence[int] = range(len(job.inputs))

    @abstractmethod
    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the rows of a stream. `batches` have the columns `job.inputs[stream]` by name, in Spark's types."""


class Carried(NamedTuple):
    """A DataFrame that runs a row task on all streams when it runs, and a remark for `eddy.spark.explain`.

    inputs     only in a streaming join: the input of each stream, if the tasks of the join read it themselves. `frame`
               then yields no rows and only triggers the micro-batches
    transport  name of the transport, which `carry` fills in
    """

    frame: DataFrame
    remark: str = ""
    inputs: tuple[StreamInput, ...] = ()
    transport: str = ""


class Transport(ABC):
    """A path of rows to the workers.

    name   value of the argument `transport` of `eddy.spark.join`
    """

    name: ClassVar[str]

    @abstractmethod
    def carry_batch(self, task: RowTask, inputs: Sequence[BatchInput]) -> Carried:
        """Return a DataFrame that runs `task` on the rows of batch DataFrames, one for each of `task.streams`.

        Raises an UnsuitableError that names the stream if the transport cannot carry one of the DataFrames.
        """

    @abstractmethod
    def carry_stream(self, task: RowTask, frames: Sequence[DataFrame], root: Path) -> Carried:
        """Return a streaming DataFrame for streaming DataFrames; `root` is the directory of the checkpoint."""

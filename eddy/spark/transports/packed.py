"""The transport for Parquet files and topics: the workers read them, and no row passes through the JVM.

In a batch join Spark deals row groups to tasks. Neighbours stay together as far as an even split over the tasks allows,
so that files written in time order reach the reduce side as few overlapping runs.

In a streaming join one source finds what is new in all streams, files or messages (`streaming/inputs/source.py`), and
the tasks that join the rows read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.environment.session import parallelism
from eddy.spark.partitioning.pieces import PIECE_ROWS
from eddy.spark.transports.base import Carried, RowTask, Transport
from eddy.spark.transports.inputs import StreamInput, UnsuitableError
from eddy.spark.transports.parquet_source import BatchInput, FileInput, RowGroup, file_input, read_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK_BYTES = 128 << 20
_READ_BYTES = 32 << 20


class PackedTransport(Transport):
    """Reads the Parquet files behind plain scans on the workers."""

    name = "packed"

    def carry_batch(self, task: RowTask, inputs: Sequence[BatchInput]) -> Carried:
        groups: list[RowGroup] = []
        for i, source in zip(task.streams, inputs, strict=True):
            stream = task.job.query.streams[i]
            try:
                groups += source.row_groups(i, task.job.inputs[i].names)
            except UnsuitableError as why:
                raise UnsuitableError(
                    f"the DataFrame of stream {stream.name!r} is not a plain scan of Parquet files: {why}"
                ) from why
        session = inputs[0].frame.sparkSession
        dealt = deal(groups, 2 * parallelism(session))
        numbers = session.range(0, len(dealt), 1, max(1, len(dealt)))
        files = len({group.uri for group in groups})
        return Carried(
            numbers.mapInArrow(_ReadRowGroups(task, dealt), task.columns), f"the workers read {files} Parquet files"
        )

    def carry_stream(self, task: RowTask, frames: Sequence[DataFrame], root: Path) -> Carried:
        # Both subclass classes of pyspark, which the batch join on Spark Connect does not need.
        from eddy.spark.streaming.inputs.source import inputs_frame
        from eddy.spark.transports.topic_source import topic_input

        inputs: list[StreamInput] = []
        for i, (stream, frame) in enumerate(zip(task.job.query.streams, frames, strict=True)):
            names = task.job.inputs[i].names
            try:
                inputs.append(topic_input(frame, names) or file_input(frame, names))
            except UnsuitableError as why:
                raise UnsuitableError(
                    f"the DataFrame of stream {stream.name!r} is not a plain stream of Parquet files or a topic: {why}"
                ) from why
        places = {stream.name: source.place for stream, source in zip(task.job.query.streams, inputs, strict=True)}
        frame = inputs_frame(frames[0].sparkSession, root / "files", places)
        kinds = {"Parquet files" if isinstance(source, FileInput) else "topics" for source in inputs}
        return Carried(frame, f"the workers read the {' and the '.join(sorted(kinds))}", tuple(inputs))


class _ReadRowGroups:
    """The function that Spark runs on task numbers: it reads the row groups dealt to each and runs a row task."""

    def __init__(self, task: RowTask, dealt: Sequence[Sequence[RowGroup]]) -> None:
        self._task = task
        self._dealt = dealt
        self.__name__ = f"eddy_read_and_{task.verb}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for stream, groups in groupby(self._dealt[number], lambda group: group.stream):
                    yield from self._task(stream, chain.from_iterable(map(self._read, groups)))

    def _read(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        rows = max(1, min(PIECE_ROWS, _READ_BYTES * group.rows // max(1, group.stored_bytes)))
        return read_group(group, rows, self._task.job.inputs[group.stream].names)


def deal(groups: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """Split row groups into about `tasks` lists of even size in bytes, more if the lists would exceed 128 MB.

    Neighbours stay together.
    """
    total = sum(group.stored_bytes for group in groups)
    tasks = max(1, tasks, -(-total // _TASK_BYTES))
    share = max(1, total) / tasks
    dealt: list[list[RowGroup]] = [[] for _ in range(tasks)]
    before = 0
    for group in groups:
        middle = before + group.stored_bytes / 2
        dealt[min(tasks - 1, int(middle / share))].append(group)
        before += group.stored_bytes
    return [some for some in dealt if some]

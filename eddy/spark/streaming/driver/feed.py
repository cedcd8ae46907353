"""The input that the driver assigns to the tasks of a micro-batch: parts of files, and ranges of messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from eddy.spark.directories import File
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.inputs.file_log import FileLog
from eddy.spark.streaming.inputs.offsets import END, Position, position, read_starts
from eddy.spark.streaming.worker.input_reader import Part
from eddy.spark.transports.inputs import FilePart, StreamInput, TopicPart
from eddy.spark.transports.parquet_source import open_in
from stairs.storage.json_form import FormError, fields, parse

SPLIT_BYTES = 4 << 20
"""A larger file may be read by several tasks."""
MESSAGE_BYTES = 200
"""The assumed size of a message, by which tasks get their shares."""
Taken = tuple[Position, ...]
"""The position up to which each stream was read."""


class Feed:
    """The input of a join, from one start to the next stop.

    names   of the streams
    inputs  of the streams; empty if Spark carries the rows
    """

    def __init__(self, root: Path, names: Sequence[str], inputs: Sequence[StreamInput]) -> None:
        self._names = tuple(names)
        self._inputs = inputs
        self._offsets = root / "spark" / "offsets"
        self._directory = root / "files"
        self._log = FileLog(self._directory, len(names))
        self._form = fields(dict.fromkeys(names, position), others=(END,))

    def begin(self) -> Taken:
        """Return the position up to which each stream was read when the job began."""
        starts = read_starts(self._directory)
        return tuple(starts.get(name, 0) for name in self._names)

    def end(self, batch: int) -> tuple[Taken, bool]:
        """Return the position of each stream after a batch, as Spark planned it, and whether the input ends."""
        path = self._offsets / str(batch)
        try:
            offset = parse(path.read_bytes().splitlines()[-1])
            self._form(offset, "offset")
        except (OSError, FormError, IndexError) as problem:
            raise StreamingStateError(
                f"{path}: Spark planned the batch, and its offsets are not there: {problem!r}"
            ) from problem
        return tuple(offset[name] for name in self._names), END in offset

    def deal(self, start: Taken, end: Taken, tasks: int) -> list[list[Part]]:
        """Return the parts between two positions for each task, of about the same number of bytes."""
        self._log.refresh()
        for taken in (start, end):
            self._log.require([place if isinstance(place, int) else 0 for place in taken])
        self._log.forget([place if isinstance(place, int) else 0 for place in start])
        parts: list[tuple[int, Part]] = []
        for stream, (before, after) in enumerate(zip(start, end, strict=True)):
            if isinstance(after, int):
                assert isinstance(before, int)
                for file in self._log.between(stream, before, after):
                    n = self._parts(stream, file, tasks)
                    parts += [(file.bytes // n, FilePart(stream, file.path, k, n)) for k in range(n)]
            else:
                begins: dict[str, Any] = before if isinstance(before, dict) else {}
                ranges = (TopicPart(stream, name, begins.get(name, 0), last) for name, last in after.items())
                parts += [
                    ((topic_part.end - topic_part.start) * MESSAGE_BYTES, topic_part)
                    for topic_part in ranges
                    if topic_part.start < topic_part.end
                ]
        dealt: list[list[Part]] = [[] for _ in range(tasks)]
        load = [0] * tasks
        for size, part in sorted(parts, key=lambda sized: -sized[0]):
            least = min(range(tasks), key=load.__getitem__)
            dealt[least].append(part)
            load[least] += size + 1
        return [sorted(task_parts) for task_parts in dealt]

    def _parts(self, stream: int, file: File, tasks: int) -> int:
        """Return the number of tasks that read a file: at most the number of its row groups."""
        wanted = min(tasks, 1 + file.bytes // SPLIT_BYTES)
        if wanted == 1:
            return 1
        try:
            with open_in(self._inputs[stream].place.file_system(), file.path) as opened:
                return max(1, min(wanted, opened.metadata.num_row_groups))
        except (OSError, pa.ArrowException):
            return 1  # the task that reads the file names the problem

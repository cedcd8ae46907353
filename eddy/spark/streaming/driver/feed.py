"""The files that the driver gives to the tasks of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from eddy.spark.directories import File
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.files.file_log import FileLog
from eddy.spark.streaming.worker.file_reader import FilePart
from eddy.spark.transports.parquet_source import FileStream, open_in

SPLIT_BYTES = 4 << 20
"""A larger file may be read by several tasks."""
Counts = tuple[int, ...]
"""Per stream, a number of files."""


class Feed:
    """The files of a join, from one start to the next stop.

    names    of the streams
    sources  of the streams; empty if Spark carries the rows
    """

    def __init__(self, root: Path, names: Sequence[str], sources: Sequence[FileStream]) -> None:
        self._names = tuple(names)
        self._sources = sources
        self._offsets = root / "spark" / "offsets"
        self._log = FileLog(root / "files", len(names))

    def end(self, batch: int) -> Counts:
        """Return how many files of each stream were taken once a batch is over, as Spark planned it."""
        path = self._offsets / str(batch)
        try:
            *_, offset = path.read_text().splitlines()
            counts: Mapping[str, Any] = json.loads(offset)
            return tuple(int(counts[name]) for name in self._names)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise StreamingStateError(
                f"{path}: Spark planned the batch, and its files are not there: {problem!r}"
            ) from problem

    def deal(self, start: Counts, end: Counts, tasks: int) -> list[list[FilePart]]:
        """Return the parts of files between two offsets for each task, of about the same number of bytes."""
        self._log.refresh()
        self._log.require(end)
        parts: list[tuple[int, FilePart]] = []
        for stream, files in enumerate(self._log.files):
            for file in files[start[stream] : end[stream]]:
                n = self._parts(stream, file, tasks)
                parts += [(file.bytes // n, FilePart(stream, file.path, k, n)) for k in range(n)]
        dealt: list[list[FilePart]] = [[] for _ in range(tasks)]
        load = [0] * tasks
        for size, part in sorted(parts, key=lambda one: -one[0]):
            least = min(range(tasks), key=load.__getitem__)
            dealt[least].append(part)
            load[least] += size + 1
        return [sorted(own) for own in dealt]

    def _parts(self, stream: int, file: File, tasks: int) -> int:
        """Return how many tasks read a file: no more than it has row groups."""
        wanted = min(tasks, 1 + file.bytes // SPLIT_BYTES)
        if wanted == 1:
            return 1
        try:
            with open_in(self._sources[stream].directory.file_system(), file.path) as opened:
                return max(1, min(wanted, opened.metadata.num_row_groups))
        except (OSError, pa.ArrowException):
            return 1  # the task that reads it names the problem

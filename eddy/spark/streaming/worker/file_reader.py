"""Reads the files of a micro-batch in the tasks that join their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, groupby
from typing import NamedTuple

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.split import PIECE_ROWS
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.log_stage import StreamReport, log_rows, log_writer
from eddy.spark.transports.base import UnsuitableError
from eddy.spark.transports.parquet_source import check_file, open_in


class FilePart(NamedTuple):
    """A part of a file of a stream: its row groups, dealt evenly to `parts` parts, of which this is number `part`."""

    stream: int
    path: str
    part: int = 0
    parts: int = 1


class Logged(NamedTuple):
    """The rows that a task logged.

    reports  one for each stream
    rows     the rows of each segment
    """

    reports: tuple[StreamReport, ...]
    rows: dict[Segment, pa.RecordBatch]


@contextmanager
def logged_files(engines: Engines, batch: int, parts: Sequence[FilePart]) -> Iterator[Logged]:
    """Log the rows of some files, and yield them; they are durable when the context ends. `parts` ascend by stream.

    If all workers are on one host, the rows become durable while the body runs. Raises SparkJoinError for a file with
    other columns than the stream.
    """
    if not parts:
        yield Logged((), {})
        return
    with log_writer(engines.locations, batch, "files") as writer:
        reports, rows = [], {}
        for stream, own in groupby(parts, key=lambda part: part.stream):
            read = chain.from_iterable(_read(engines, part) for part in own)
            report, written = log_rows(engines.job, writer, stream, read)
            reports.append(report)
            rows.update(written)
        logged = Logged(tuple(reports), rows)
        if not engines.one_host:
            writer.finish()
            yield logged
            return
        writer.show()
        with ThreadPoolExecutor(1) as pool:
            durable = pool.submit(writer.sync)
            yield logged
            durable.result()


def _read(engines: Engines, part: FilePart) -> Iterator[pa.RecordBatch]:
    source, job = engines.files[part.stream], engines.job
    names = job.inputs[part.stream].names
    stream = job.query.streams[part.stream].name
    try:
        opened = open_in(source.directory.file_system(), part.path)
    except (OSError, pa.ArrowException) as problem:
        raise SparkJoinError(
            f"stream {stream!r}: {part.path} cannot be read ({problem}); the job has taken this file: restore"
            " it, or write it whole before it gets its name"
        ) from problem
    with opened as file:
        try:
            check_file(part.path, file.metadata, source.types)
        except UnsuitableError as why:
            raise SparkJoinError(
                f"stream {stream!r}: {why}; rewrite the file, or pass transport='rows' to a new checkpoint to let Spark"
                " read it"
            ) from why
        groups = file.metadata.num_row_groups
        own = range(groups * part.part // part.parts, groups * (part.part + 1) // part.parts)
        for batch in file.iter_batches(PIECE_ROWS, list(own), list(source.types), use_threads=False):
            yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in source.columns], names=names)

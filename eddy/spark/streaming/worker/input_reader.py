"""Reads the files and messages of a micro-batch in the tasks that join their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, groupby
from typing import NamedTuple

import pyarrow as pa

from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.log_stage import StreamReport, log_rows, log_writer
from eddy.spark.transports.inputs import FilePart, TopicPart

Part = FilePart | TopicPart


class Logged(NamedTuple):
    """The rows that a task logged.

    reports  one for each stream
    rows     the rows of each segment
    """

    reports: tuple[StreamReport, ...]
    rows: dict[Segment, pa.RecordBatch]


@contextmanager
def logged_inputs(engines: Engines, tree: SplitTree, batch: int, parts: Sequence[Part]) -> Iterator[Logged]:
    """Log the rows of some parts, and yield them; the rows are durable when the context ends. `parts` ascend by stream.

    If all workers are on one host, the rows become durable while the body runs. Raises what
    `StreamInput.read` raises.
    """
    if not parts:
        yield Logged((), {})
        return
    with log_writer(engines.locations, batch, "files") as writer:
        reports, rows = [], {}
        for stream, stream_parts in groupby(parts, key=lambda part: part.stream):
            read = chain.from_iterable(_read(engines, part) for part in stream_parts)
            report, written = log_rows(engines.job, engines.locations, batch, tree, writer, stream, read)
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


def _read(engines: Engines, part: Part) -> Iterator[pa.RecordBatch]:
    job = engines.job
    names = job.inputs[part.stream].names
    return engines.inputs[part.stream].read(part, job.query.streams[part.stream].name, names)

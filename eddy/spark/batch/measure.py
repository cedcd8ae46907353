"""Figures of the streams of a batch join, measured before it runs: rows, event times, and samples of keys.

Of Parquet files the driver reads some rows of a few row groups, which takes less time than any job; their number is in
the footers. Rows of any other DataFrame are counted by one small job, whose tasks sample them. Only key and time
columns, and those of filters, are read. The share of pairs of rows with the same key is the same in samples of both
streams, whatever their sizes, so no stream has to be read by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.keys import key_hash
from eddy.placement.keys import classes_of
from eddy.placement.synopses import Distribution, Synopsis
from eddy.query.query import Query
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import conform
from eddy.spark.transports.base import RowTask, UnsuitableError
from eddy.spark.transports.choice import carry
from eddy.spark.transports.parquet_source import read_group, row_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 1 << 15
"""At least half as many rows of a stream, if it has them, make the sample of a task, and at most so many."""
GROUPS, GROUP_ROWS = 4, 1 << 13
"""How many row groups of a stream the driver reads, and how many rows of each."""
TEXT_BYTES = 16
"""The assumed bytes of a value without a fixed width."""
_FIELDS = {"stream": pa.int32(), "rows": pa.int64(), "low": pa.int64(), "high": pa.int64(), "step": pa.int64()}
SAMPLED = pa.schema([*_FIELDS.items(), ("sample", pa.binary())])


def measured_job(job: Job) -> Job:
    """Return a job whose inputs are the columns that figures need: keys, event times, those of filters."""
    inputs = []
    for i, (stream, conditions) in enumerate(zip(job.query.streams, job.filters, strict=True)):
        needed = {job.sequence[i]}.union(*(one.read(job.inputs[i]) for one in conditions))
        for one in job.query.classes:
            needed.update(*(component for component in one.columns.get(stream.name, ())))
        inputs.append(pa.schema([field for field in job.inputs[i] if field.name in needed]))
    return replace(job, inputs=tuple(inputs))


class SampleRows(RowTask):
    """Counts the rows of a stream and samples their keys."""

    verb = "sample"
    columns = "stream int, rows bigint, low bigint, high bigint, step bigint, sample binary"

    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        query, name = self.job.query, self.job.query.streams[stream].name
        conditions = self.job.filters[stream]
        chosen = AdaptiveFilter(conditions, place=f"stream {name}: its filter") if conditions else None
        rows, step, low, high = 0, 1, None, None
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            batch = conform(batch, self.job.inputs[stream], name)
            batch = batch if chosen is None else chosen.filter(batch)
            if not batch.num_rows:
                continue
            positions = self.job.positions(batch, stream)
            if positions is not None:
                low = int(positions.min()) if low is None else min(low, int(positions.min()))
                high = int(positions.max()) if high is None else max(high, int(positions.max()))
            parts.append(batch.take(pa.array(np.arange(-rows % step, batch.num_rows, step))))
            rows += batch.num_rows
            while sum(map(len, parts)) > SAMPLE_ROWS:
                whole = pa.concat_batches(parts)
                parts, step = [whole.take(pa.array(np.arange(0, len(whole), 2)))], 2 * step
        if not rows:
            return
        whole, hashes = pa.concat_batches(parts), {}
        keep = np.ones(len(whole), np.bool_)
        for c in sorted(classes_of(query)[stream]):
            hashes[c], joinable = key_hash(query, c, name, whole)
            keep &= joinable
        numbers = np.stack([own.view(np.int64) for own in hashes.values()])[:, keep]
        values = {"stream": stream, "rows": rows, "low": low or 0, "high": high or 0, "step": step}
        yield pa.record_batch({**{k: [v] for k, v in values.items()}, "sample": [numbers.tobytes()]}, schema=SAMPLED)


@dataclass(frozen=True)
class Figures:
    """The known figures of one stream.

    rows         after its filter
    low, high    least and greatest event time, in ticks
    row_bytes    of the columns that the join needs
    hashes       by class hashes of the keys of a sample, int64[sampled]
    """

    rows: int
    low: int
    high: int
    row_bytes: float
    hashes: dict[int, np.ndarray]


def measure(job: Job, transport: str, frames: Sequence[DataFrame]) -> list[Figures]:
    """Return the figures of all streams. Reads some rows of each, or runs a job."""
    sample = SampleRows(measured_job(job))
    found = None
    if transport in ("auto", "packed"):
        with suppress(UnsuitableError):
            found = [row for i, frame in enumerate(frames) for row in _read_here(sample, i, frame)]
    if found is None:
        found = carry(transport, sample, frames).frame.toArrow().to_pylist()
    return [figures_of(job, i, [row for row in found if row["stream"] == i]) for i in range(len(frames))]


def _read_here(sample: SampleRows, stream: int, frame: DataFrame) -> list[dict[str, Any]]:
    """Return what the task gives for a part of the files of a stream, with the number of all rows.

    Raises UnsuitableError unless the DataFrame is a plain scan of Parquet files.
    """
    groups = row_groups(frame, stream, sample.job.inputs[stream].names)
    chosen = [groups[k] for k in sorted({round(k) for k in np.linspace(0, len(groups) - 1, GROUPS)})] if groups else []
    batches = [next(read_group(group, GROUP_ROWS, sample.job.inputs[stream].names)) for group in chosen]
    rows = [row for batch in sample(stream, iter(batches)) for row in batch.to_pylist()]
    part = sum(map(len, batches)) / max(1, sum(group.rows for group in groups))
    return [{**row, "rows": round(row["rows"] / part)} for row in rows]


def figures_of(job: Job, i: int, rows: list[dict[str, Any]]) -> Figures:
    own = sorted(classes_of(job.query)[i])
    parts = []
    coarsest = max((row["step"] for row in rows), default=1)
    for row in rows:
        numbers = np.frombuffer(row["sample"], np.int64).reshape(len(own), -1)
        parts.append(numbers[:, :: coarsest // row["step"]])
    hashes = np.concatenate(parts, axis=1) if parts else np.zeros((len(own), 0), np.int64)
    return Figures(
        sum(row["rows"] for row in rows),
        min((row["low"] for row in rows), default=0),
        max((row["high"] for row in rows), default=0),
        bytes_of_row(job.query.streams[i].schema),
        dict(zip(own, hashes, strict=True)),
    )


def bytes_of_row(schema: pa.Schema) -> float:
    """Return the bytes of a row, by the types of its columns."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> float:
    try:
        return max(kind.bit_width, 1) / 8
    except ValueError:
        return TEXT_BYTES


@dataclass(frozen=True)
class BatchSynopsis(Synopsis):
    """The figures of a stream for the planner: a whole batch is one epoch."""

    @property
    def preceding(self) -> float:
        """The rows that a head finds in the window, on average over the batch."""
        return self.window


def synopses(query: Query, figures: Sequence[Figures], single: bool) -> list[Synopsis]:
    """Return what the planner knows of the streams; with `single`, one head finds all rows of each other stream."""
    first, last = min(one.low for one in figures), max(one.high for one in figures)
    found: list[Synopsis] = []
    for one, span in zip(figures, query.spans, strict=True):
        live = float(one.rows)
        if not single:
            part = 1.0 if span is None or last == first else min(1.0, span / (last - first))
            live *= part - part * part / 2
        keys = {c: _distribution(hashes) for c, hashes in one.hashes.items()}
        found.append(BatchSynopsis(max(float(one.rows), 1.0), live, one.row_bytes, keys))
    return found


def _distribution(hashes: np.ndarray) -> Distribution:
    keys, counts = np.unique(hashes, return_counts=True)
    return Distribution(keys, counts / max(len(hashes), 1))

"""Figures of the streams of a batch join, measured before it runs: rows, event times, and samples of keys.

If the files are Parquet, the driver reads some rows of a few row groups, which takes less time than any job; the
footers have the number of rows. For any other DataFrame one small job counts the rows and samples them. Only key and
time columns, and columns of filters, are read. The share of pairs of rows with the same key is the same in samples of
both streams, whatever the sizes of the samples are, so no stream has to be read by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.expressions.derived import given_columns
from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.keys import key_hash
from eddy.placement.keys import classes_of
from eddy.spark.batch.figures import StreamFigures, figures_of
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.pieces import conform
from eddy.spark.transports.base import RowTask
from eddy.spark.transports.choice import carry
from eddy.spark.transports.inputs import UnsuitableError
from eddy.spark.transports.parquet_source import BatchInput, read_group

SAMPLE_ROWS = 1 << 15
"""Maximal number of rows in the sample of a task. A sample of a long stream has at least half this number."""
GROUPS, GROUP_ROWS = 4, 1 << 13
"""Number of row groups of a stream that the driver reads, and number of rows of each."""
_FIELDS = {"stream": pa.int32(), "rows": pa.int64(), "low": pa.int64(), "high": pa.int64(), "step": pa.int64()}
SAMPLED = pa.schema([*_FIELDS.items(), ("sample", pa.binary())])


def measured_job(job: Job) -> Job:
    """Return a job whose inputs are the columns that figures need: keys, event times, columns of filters."""
    inputs = []
    for i, (stream, conditions) in enumerate(zip(job.query.streams, job.filters, strict=True)):
        needed = {job.sequence[i]}.union(*(condition.read(job.inputs[i]) for condition in conditions))
        for key_class in job.query.partition_classes:
            needed.update(*(given_columns(component) for component in key_class.columns.get(stream.name, ())))
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
        numbers = np.stack([column.view(np.int64) for column in hashes.values()])[:, keep]
        values = {"stream": stream, "rows": rows, "low": low or 0, "high": high or 0, "step": step}
        yield pa.record_batch({**{k: [v] for k, v in values.items()}, "sample": [numbers.tobytes()]}, schema=SAMPLED)


def measure(job: Job, transport: str, inputs: Sequence[BatchInput]) -> list[StreamFigures]:
    """Return the figures of all streams. Reads some rows of each stream, or runs a job."""
    sample = SampleRows(measured_job(job))
    reports = None
    if transport in ("auto", "packed"):
        with suppress(UnsuitableError):
            reports = [row for i, source in enumerate(inputs) for row in _read_here(sample, i, source)]
    if reports is None:
        reports = carry(transport, sample, inputs).frame.toArrow().to_pylist()
    return [figures_of(job, i, [row for row in reports if row["stream"] == i]) for i in range(len(inputs))]


def _read_here(sample: SampleRows, stream: int, given: BatchInput) -> list[dict[str, Any]]:
    """Return the result of the task on a part of the files of a stream, with the number of all rows.

    Raises UnsuitableError unless the DataFrame is a plain scan of Parquet files.
    """
    groups = given.row_groups(stream, sample.job.inputs[stream].names)
    chosen = [groups[k] for k in sorted({round(k) for k in np.linspace(0, len(groups) - 1, GROUPS)})] if groups else []
    batches = [next(read_group(group, GROUP_ROWS, sample.job.inputs[stream].names)) for group in chosen]
    rows = [row for batch in sample(stream, iter(batches)) for row in batch.to_pylist()]
    part = sum(map(len, batches)) / max(1, sum(group.rows for group in groups))
    return [{**row, "rows": round(row["rows"] / part)} for row in rows]

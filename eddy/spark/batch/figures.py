"""Figures of the streams of a batch join, the input of its predictions: rows, event times, and samples of keys.

The share of pairs of rows with the same key is the same in samples of both streams, whatever the sizes of the samples
are, so no stream has to be read by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eddy.placement.keys import classes_of
from eddy.placement.synopses import SLICES, Distribution, Synopsis, distribution
from eddy.query.query import Query
from eddy.spark.hops.costs import bytes_of_row
from eddy.spark.partitioning.job import Job


@dataclass(frozen=True)
class StreamFigures:
    """The measured figures of one stream.

    rows         number of rows that the filter accepts
    low, high    least and greatest event time, in ticks
    row_bytes    bytes of a row in the columns that the join needs
    hashes       by class hashes of the keys of a sample, int64[sampled]
    """

    rows: int
    low: int
    high: int
    row_bytes: float
    hashes: dict[int, np.ndarray]

    @cached_property
    def keys(self) -> dict[int, Distribution]:
        """Class -> the distribution of the stream's keys in it."""
        return {c: distribution(hashes, most_keys=SLICES) for c, hashes in self.hashes.items()}


def figures_of(job: Job, i: int, rows: list[dict[str, Any]]) -> StreamFigures:
    """Return the figures of a stream from the reports of the tasks that sampled it."""
    classes = sorted(classes_of(job.query)[i])
    parts = []
    coarsest = max((row["step"] for row in rows), default=1)
    for row in rows:
        numbers = np.frombuffer(row["sample"], np.int64).reshape(len(classes), -1)
        parts.append(numbers[:, :: coarsest // row["step"]])
    hashes = np.concatenate(parts, axis=1) if parts else np.zeros((len(classes), 0), np.int64)
    return StreamFigures(
        sum(row["rows"] for row in rows),
        min((row["low"] for row in rows), default=0),
        max((row["high"] for row in rows), default=0),
        bytes_of_row(job.query.streams[i].schema),
        dict(zip(classes, hashes, strict=True)),
    )


@dataclass(frozen=True)
class BatchSynopsis(Synopsis):
    """The figures of a stream for the planner: a whole batch is one epoch."""

    @property
    def preceding(self) -> float:
        """The rows that a head finds in the window, on average over the batch."""
        return self.window


def synopses(query: Query, figures: Sequence[StreamFigures], single: bool) -> list[Synopsis]:
    """Return the figures for the planner; with `single`, one head finds all rows of each other stream."""
    first, last = min(stream.low for stream in figures), max(stream.high for stream in figures)
    batch_synopses: list[Synopsis] = []
    for stream, span in zip(figures, query.spans, strict=True):
        live = float(stream.rows)
        if not single:
            part = 1.0 if span is None or last == first else min(1.0, span / (last - first))
            live *= part - part * part / 2
        batch_synopses.append(BatchSynopsis(max(float(stream.rows), 1.0), live, stream.row_bytes, stream.keys))
    return batch_synopses

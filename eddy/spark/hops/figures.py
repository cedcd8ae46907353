"""Figures of the streams of a join: rows, event times, and samples of keys, from which the planner predicts.

The share of pairs of rows with the same key is the same in samples of both streams, whatever their sizes, so no stream
has to be read by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.placement.keys import classes_of
from eddy.placement.synopses import Distribution, Synopsis
from eddy.query.query import Query
from eddy.spark.partitioning.job import Job

TEXT_BYTES = 16
"""The assumed bytes of a value without a fixed width."""


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

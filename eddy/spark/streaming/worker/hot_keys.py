"""The most frequent key of a key group with too much load: a split cannot separate the rows of one key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.expressions.derived import column_of
from eddy.ingest.keys import key_hash
from eddy.spark.partitioning.job import Job

SAMPLED = 65_536
"""Number of rows of each batch and class that are counted. A sample of this size has an error below 0.4 % of the
rows."""
_LONGEST = 80


class HotKey(NamedTuple):
    """The most frequent key along an attribute class.

    along  the class
    share  rows with the key over all rows of the key group that have the class, from 0 to 1
    key    columns and values of the key, as readable text
    """

    along: int
    share: float
    key: str


def hot_keys(job: Job, arrivals: Iterable[tuple[int, pa.RecordBatch]]) -> list[HotKey]:
    """Return the most frequent key along each class, from a sample of (stream, rows). O(rows), at most of `SAMPLED`."""
    pairs = list(arrivals)
    frequent = []
    for along, key_class in enumerate(job.query.partition_classes):
        names = [stream.name for stream in job.query.streams]
        members = [
            (names[stream], rows) for stream, rows in pairs if names[stream] in key_class.columns and rows.num_rows
        ]
        step = 1 + sum(rows.num_rows for _, rows in members) // SAMPLED
        parts = []
        for name, rows in members:
            sampled = rows if step == 1 else rows.take(pa.array(np.arange(0, rows.num_rows, step)))
            hashes, valid = key_hash(job.query, along, name, sampled)
            parts.append((name, sampled, np.where(valid, hashes, 0)))
        hashes = np.concatenate([piece for *_, piece in parts]) if parts else np.empty(0, np.uint64)
        live = hashes[hashes != 0]
        if live.size:
            values, counts = np.unique(live, return_counts=True)
            most = int(counts.argmax())
            name, rows, own_hashes = next(part for part in parts if (part[2] == values[most]).any())
            at = int(np.flatnonzero(own_hashes == values[most])[0])
            # The names come from the same stream in each batch.
            shown = next(iter(key_class.columns))
            text = ", ".join(
                f"{shown}.{mine[0]} = {column_of(rows, theirs[0], job.query.stream(name).place)[at].as_py()!r}"
                for mine, theirs in zip(key_class.columns[shown], key_class.columns[name], strict=True)
            )
            frequent.append(HotKey(along, float(counts[most] / hashes.size), text[:_LONGEST]))
    return frequent

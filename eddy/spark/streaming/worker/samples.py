"""Samples of the keys of a micro-batch, from which the driver predicts the cost of each placement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from eddy.ingest.keys import key_hash
from eddy.placement.keys import classes_of
from eddy.placement.tuples import Ints
from eddy.query.query import Query
from stairs.plain_types import taken

Sample = dict[int, Ints]
"""Hashes of the keys of some rows of a stream: by class, int64[rows]."""


class StreamSampler:
    """Takes every n-th row of each stream.

    steps   n for each stream; None = no row is sampled
    """

    def __init__(self, query: Query, steps: Sequence[int] | None) -> None:
        self._query, self._steps = query, steps
        self._classes = classes_of(query)
        self._seen = [0] * len(query.streams)
        self._parts: dict[int, list[Sample]] = {}

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Sample rows of a stream; their keys are not null."""
        if self._steps is None or not len(rows):
            return
        numbers = np.arange(-self._seen[stream] % self._steps[stream], len(rows), self._steps[stream])
        self._seen[stream] += len(rows)
        if not len(numbers):
            return
        part, name = taken(rows, numbers), self._query.graph.names[stream]
        hashes = {c: key_hash(self._query, c, name, part)[0].view(np.int64) for c in self._classes[stream]}
        self._parts.setdefault(stream, []).append(hashes)

    def samples(self) -> dict[int, Sample]:
        """Return the samples by stream."""
        return {
            stream: {c: np.concatenate([part[c] for part in parts]) for c in parts[0]}
            for stream, parts in self._parts.items()
        }

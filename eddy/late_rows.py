"""Rows that came too late to join anything: kept until they are asked for, and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from eddy.snapshot import from_stream, to_stream
from stairs.parts import Parts, Plain


class LateRows:
    """The late rows of each stream.

    batches  per stream, those since the last `take`
    counts   per stream, how many there were since the start
    """

    def __init__(self, streams: int) -> None:
        self.batches: list[list[pa.RecordBatch]] = [[] for _ in range(streams)]
        self.counts = [0] * streams

    def add(self, rows: Mapping[int, pa.RecordBatch]) -> None:
        """Keep and count rows, by stream."""
        for i, batch in rows.items():
            self.batches[i].append(batch)
            self.counts[i] += len(batch)

    def take(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """Return what is kept, by the names of the streams (those without any left out), and keep nothing of it."""
        taken, self.batches = self.batches, [[] for _ in self.batches]
        return {name: pa.Table.from_batches(own) for name, own in zip(names, taken, strict=True) if own}

    # Kept for another process: rows are given away, so they must not lie in memory that others go on to write.

    def kept(self) -> Plain:
        """Return all that goes on."""
        written = [to_stream(own) if own else b"" for own in self.batches]
        return {"counts": self.counts, "batches": [np.frombuffer(one, np.uint8) for one in written]}

    def wake(self, parts: Parts, schemas: Sequence[pa.Schema]) -> None:
        """Go on from the late rows of streams with these schemas."""
        counts = parts.integers("counts", len(self.counts))
        written = parts.arrays("batches", np.uint8, (-1,))
        parts.require(len(written) == len(counts), f"batches of {len(written)} streams")
        batches = [from_stream(one.tobytes()) if len(one) else [] for one in written]
        for own, schema in zip(batches, schemas, strict=True):
            parts.require(all(batch.schema.equals(schema) for batch in own), "rows of another schema")
        self.counts, self.batches = counts, batches

"""Rows that came too late to join anything: kept until they are asked for, and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from eddy.snapshot import from_stream, to_stream


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

    def __getstate__(self) -> dict[str, Any]:
        return {"counts": self.counts, "batches": [own and to_stream(own) for own in self.batches]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]
        self.batches = [own and from_stream(own) for own in state["batches"]]

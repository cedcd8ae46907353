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

    def plus(self, rows: Mapping[int, pa.RecordBatch]) -> LateRows:
        """Return these late rows and others, by stream. This object stays as it is."""
        if not rows:
            return self
        more = LateRows(0)
        more.batches = [[*own, rows[i]] if i in rows else own for i, own in enumerate(self.batches)]
        more.counts = [n + len(rows.get(i, ())) for i, n in enumerate(self.counts)]
        return more

    def taken(self, names: Sequence[str]) -> tuple[dict[str, pa.Table], LateRows]:
        """Return what is kept, by the names of the streams (those without any left out), and the counts without it."""
        taken = {name: pa.Table.from_batches(own) for name, own in zip(names, self.batches, strict=True) if own}
        rest = LateRows(len(self.counts))
        rest.counts = self.counts
        return taken, rest

    # Kept for another process: rows are given away, so they must not lie in memory that others go on to write.

    def __getstate__(self) -> dict[str, Any]:
        return {"counts": self.counts, "batches": [own and to_stream(own) for own in self.batches]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]
        self.batches = [own and from_stream(own) for own in state["batches"]]

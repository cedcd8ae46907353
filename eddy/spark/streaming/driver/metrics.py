"""What a job tells of itself: a row for each key group of each micro-batch, and a row for each micro-batch.

Kept in memory for the newest batches and, a Parquet file a batch, under `metrics/` of the checkpoint. These are
figures, not state: nothing is made durable for them, and a file that is missing harms nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.durable import make_directories, private_opener
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.worker.split_stage import Told

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.watermarks import Watermarks

BATCHES_KEPT = 1000

GROUPS = pa.schema(
    [
        ("batch", pa.int64()),
        ("group", pa.int32()),
        ("partition", pa.int32()),
        ("source", pa.string()),
        ("rows", pa.int64()),
        ("late", pa.int64()),
        ("results", pa.int64()),
        ("state_bytes", pa.int64()),
        ("plan", pa.string()),
        ("transitions", pa.int64()),
        ("reason", pa.string()),
        ("ready_seconds", pa.float64()),
        ("join_seconds", pa.float64()),
        ("keep_seconds", pa.float64()),
    ]
)
"""A key group in a micro-batch.

source         where its engine came from: "live", found on the host; "loaded", from the log; "new", it had no rows yet
rows           rows that arrived, late ones not counted
transitions    changes of plan and of what is stored; `reason` is the last of them, null for none
ready_seconds  until the engine stood;  join_seconds  of joining;  keep_seconds  of leaving it for the next batch
"""

BATCHES = pa.schema(
    [
        ("batch", pa.int64()),
        ("rows", pa.int64()),
        ("late", pa.int64()),
        ("results", pa.int64()),
        ("log_bytes", pa.int64()),
        ("groups", pa.int32()),
        ("loaded", pa.int32()),
        ("moved", pa.int32()),
        ("transitions", pa.int64()),
        ("state_bytes", pa.int64()),
        ("slowest_group", pa.int32()),
        ("slowest_share", pa.float64()),
        ("watermark", pa.int64()),
        ("log_seconds", pa.float64()),
        ("join_seconds", pa.float64()),
        ("commit_seconds", pa.float64()),
        ("publish_seconds", pa.float64()),
    ]
)
"""A micro-batch.

groups, loaded, moved  key groups with rows; of them those whose engine came from the log; all that changed partition
slowest_share          the time of the slowest key group over that of the mean one, 1 = none stands out
watermark              what the engines may forget by, in ticks; null when nothing is known
"""


class Figures:
    """Collects the figures of a job; read from any thread."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "metrics"
        make_directories(self._directory)
        self._groups: deque[list[dict[str, Any]]] = deque(maxlen=BATCHES_KEPT)
        self._batches: deque[dict[str, Any]] = deque(maxlen=BATCHES_KEPT)
        self._lock = threading.Lock()

    def add(
        self,
        manifest: Manifest,
        told: Told,
        watermarks: Watermarks,
        groups: Sequence[dict[str, Any]],
        moved: int,
        seconds: Mapping[str, float],
    ) -> None:
        """Take the figures of a batch just published: of its groups, and the seconds of its steps by name."""
        busy = [one["ready_seconds"] + one["join_seconds"] + one["keep_seconds"] for one in groups]
        slowest = max(range(len(busy)), key=busy.__getitem__) if busy else None
        mean = sum(busy) / len(busy) if busy else 0.0
        row = {
            "batch": manifest.batch,
            "rows": sum(told.rows),
            "late": sum(one["late"] for one in groups),
            "results": sum(one["results"] for one in groups),
            "log_bytes": told.bytes,
            "groups": len(groups),
            "loaded": sum(one["source"] == "loaded" for one in groups),
            "moved": moved,
            "transitions": sum(one["transitions"] for one in groups),
            "state_bytes": sum(one["state_bytes"] for one in groups),
            "slowest_group": None if slowest is None else groups[slowest]["group"],
            "slowest_share": None if slowest is None else busy[slowest] / mean,
            "watermark": watermarks.engine,
            **{f"{step}_seconds": taken for step, taken in seconds.items()},
        }
        with self._lock:
            self._groups.append(list(groups))
            self._batches.append(row)
        # A full disk shall fail the job where it loses something, not here.
        with contextlib.suppress(OSError):
            name = f"{batch_name(manifest.batch)}.parquet"
            with open(self._directory / name, "wb", opener=private_opener) as file:
                pq.write_table(pa.Table.from_pylist(list(groups), schema=GROUPS), file)
            if manifest.batch >= BATCHES_KEPT:
                (self._directory / f"{batch_name(manifest.batch - BATCHES_KEPT)}.parquet").unlink(missing_ok=True)

    def groups(self) -> pa.Table:
        """Return a row for each key group of each of the newest batches since the job started, oldest first."""
        with self._lock:
            rows = [row for batch in self._groups for row in batch]
        return pa.Table.from_pylist(rows, schema=GROUPS)

    def batches(self) -> pa.Table:
        """Return a row for each of the newest batches since the job started, oldest first."""
        with self._lock:
            rows = list(self._batches)
        return pa.Table.from_pylist(rows, schema=BATCHES)

    def row(self, batch: int | None = None) -> dict[str, Any] | None:
        """Return the row of a batch, None if it is gone; of the newest if none is named."""
        with self._lock:
            found = (one for one in reversed(self._batches) if batch is None or one["batch"] == batch)
            return next((dict(one) for one in found), None)

"""Metrics of a job: a row for each key group of each micro-batch, and a row for each micro-batch.

Both stay in memory for the newest batches. The rows of key groups are also written to `metrics/` in the checkpoint, one
Parquet file per batch. Metrics are not part of the state: their files are not synced, and missing files have no effect.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.streaming.driver.memory import memory_figures
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.worker.log_stage import LogReport
from eddy.spark.streaming.worker.tasks import LIVE, LOADED, MAPPED, MemoryReport
from eddy.storage.durable import make_directories, private_opener

BATCHES_KEPT, BLOCK = 1000, 50
CHANGES_KEPT = 30
STEPS = ("log", "join", "commit", "publish")
"""The steps of a micro-batch; a column for each has its seconds."""
SOURCES = (LIVE, MAPPED, LOADED)
"""The sources of engines of key groups that had a state; a column for each has their number."""
EVICTIONS = ("trims", "spills", "drops")
"""The levels of evictions; see `worker.tasks.MemoryReport`."""
_SECONDS = tuple(f"{step}_seconds" for step in STEPS)
_SUMMED = (
    "rows",
    "late",
    "results",
    "log_bytes",
    "shipped_bytes",
    *SOURCES,
    "moved",
    "split",
    "transitions",
    *EVICTIONS,
    *_SECONDS,
)

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
        ("received_bytes", pa.int64()),
        ("key_share", pa.float64()),
    ]
)
"""Metrics of a key group in a micro-batch, or of a node of one in hops, whose `group` is null.

source         origin of its engine: "live", in the memory of a worker; "mapped", from the file of the host to which it
               was spilled; "loaded", from the log; "new", without earlier rows
rows           rows that arrived, without late rows
transitions    changes of the plan and of the stored states; `reason` explains the last one, null without any
ready_seconds  time to get the engine;  join_seconds  time to join
received_bytes of the file in which another worker passed the engine on, or of the log that was read; 0 if it was live
key_share      rows of the most frequent key over all rows, from a sample; null unless the group has too much load
"""

BATCHES = pa.schema(
    [
        ("batch", pa.int64()),
        ("rows", pa.int64()),
        ("late", pa.int64()),
        ("results", pa.int64()),
        ("log_bytes", pa.int64()),
        ("placement", pa.string()),
        ("tasks", pa.int32()),
        ("shipped_bytes", pa.int64()),
        ("groups", pa.int32()),
        ("live", pa.int32()),
        ("mapped", pa.int32()),
        ("loaded", pa.int32()),
        ("moved", pa.int32()),
        ("split", pa.int32()),
        ("fragments", pa.int32()),
        ("hot_keys", pa.int32()),
        ("transitions", pa.int64()),
        ("state_rows", pa.int64()),
        ("state_bytes", pa.int64()),
        ("memory_bytes", pa.int64()),
        ("memory_peak_bytes", pa.int64()),
        ("spilled_bytes", pa.int64()),
        *((name, pa.int64()) for name in EVICTIONS),
        ("slowest_group", pa.int32()),
        ("slowest_share", pa.float64()),
        ("watermark", pa.int64()),
        *((name, pa.float64()) for name in _SECONDS),
    ]
)
"""Metrics of a micro-batch.

placement      "grid", one round over the key groups, or "hops"
tasks          of the newest micro-batch that ran: with dynamic allocation their number follows the load
shipped_bytes  rows, intermediate tuples, and results for groups that tasks sent to each other; 0 in the grid without
               groups
groups         key groups with rows, or with rows that had waited, or the nodes of a batch in hops; live, mapped and
               loaded: those whose engine or copies were in memory, in a file, or had to be loaded from the log; the
               others are new
moved          key groups that changed partitions, with or without rows;  split  key groups that were split
fragments      into which key groups with a hot key are divided
hot_keys       key groups with most of their load from one key, which neither moves nor splits can divide, and which are
               not in fragments
state_rows     rows that the log keeps for the state of all key groups; both halves of a split group count the rows that
               were written before
state_bytes    bytes of the engines of the key groups that ran
memory_bytes   bytes of the engines in memory on the fullest host; memory_peak_bytes: the most during the batch
spilled_bytes  bytes of the files to which engines were spilled, on all hosts
trims, spills, drops   evictions by level (`worker.tasks.MemoryReport`)
slowest_share  time of the slowest key group over the mean time of a group
watermark      watermark of the engines in ticks; null while it is unknown
"""


class Metrics:
    """Collects the metrics of a job. Any thread may read them."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "metrics"
        make_directories(self._directory)
        self._groups: deque[pa.Table] = deque(maxlen=BATCHES_KEPT // BLOCK)
        """Rows of key groups, a table for each BLOCK batches: a table of one batch takes twenty times its own bytes."""
        self._fresh: list[pa.Table] = []
        """Rows of key groups of the batches after the newest block."""
        self._batches: deque[dict[str, Any]] = deque(maxlen=BATCHES_KEPT)
        self._logged: dict[int, LogReport] = {}
        self._totals: Counter[str] = Counter()
        self._newest: dict[int, dict[str, Any]] = {}
        self._nodes: list[dict[str, Any]] = []
        self._changes: deque[dict[str, Any]] = deque(maxlen=CHANGES_KEPT)
        self._lock = threading.Lock()
        self.memory: list[MemoryReport] = []
        """The engines of each worker after the newest micro-batch that ran."""
        self.published_at: float | None = None
        """Time of the newest publication, in seconds since the epoch; None before the first."""

    def add(
        self,
        manifest: Manifest,
        logged: LogReport,
        watermark: int | None,
        groups: Sequence[dict[str, Any]],
        figures: Mapping[str, Any],
        seconds: Mapping[str, float],
    ) -> None:
        """Add a batch that was published.

        figures  placement, late rows, moves, splits, fragments and hot keys
        groups   the rows of its key groups
        seconds  of its steps by name
        """
        busy = [group["ready_seconds"] + group["join_seconds"] for group in groups]
        slowest = max(range(len(busy)), key=busy.__getitem__) if busy else None
        mean = sum(busy) / len(busy) if busy else 0.0
        row = {
            "batch": manifest.batch,
            "rows": sum(logged.rows),
            "results": sum(group["results"] for group in groups),
            "log_bytes": logged.bytes,
            "tasks": len(self.memory),
            "groups": len(groups),
            **{source: sum(group["source"] == source for group in groups) for source in SOURCES},
            **figures,
            "transitions": sum(group["transitions"] for group in groups),
            "state_rows": sum(
                segment.rows for state in manifest.groups.values() for link in state.chain for segment in link.segments
            ),
            "state_bytes": sum(group["state_bytes"] for group in groups),
            **memory_figures(self.memory),
            "slowest_group": None if slowest is None else groups[slowest]["group"],
            "slowest_share": None if slowest is None else busy[slowest] / mean,
            "watermark": watermark,
            **{f"{step}_seconds": taken for step, taken in seconds.items()},
        }
        table = pa.Table.from_pylist(list(groups), schema=GROUPS)  # a tenth of the bytes of the dicts
        with self._lock:
            self._fresh.append(table)
            if len(self._fresh) == BLOCK:
                self._groups.append(pa.concat_tables(self._fresh).combine_chunks())
                self._fresh = []
            self._batches.append(row)
            self._nodes = [group for group in groups if group["group"] is None]
            self._newest.update({group["group"]: group for group in groups if group["group"] is not None})
            self._changes.extend(group for group in groups if group["transitions"])
            self._totals.update({"batches": 1} | {name: row[name] for name in _SUMMED})
            self.published_at = time.time()
            self._logged[manifest.batch] = replace(logged, segments=())  # a thousand batches have many segments
            self._logged.pop(manifest.batch - BATCHES_KEPT, None)
        # A full disk must not make the job fail because of metrics.
        with contextlib.suppress(OSError):
            name = f"{batch_name(manifest.batch)}.parquet"
            with open(self._directory / name, "wb", opener=private_opener) as file:
                pq.write_table(table, file)
            if manifest.batch >= BATCHES_KEPT:
                (self._directory / f"{batch_name(manifest.batch - BATCHES_KEPT)}.parquet").unlink(missing_ok=True)

    def groups(self) -> pa.Table:
        """Return a row for each key group of each of the newest batches since the job started, oldest first."""
        with self._lock:
            return pa.concat_tables([GROUPS.empty_table(), *self._groups, *self._fresh])

    def batches(self) -> pa.Table:
        """Return a row for each of the newest batches since the job started, oldest first."""
        with self._lock:
            rows = list(self._batches)
        return pa.Table.from_pylist(rows, schema=BATCHES)

    def newest_groups(self) -> list[dict[str, Any]]:
        """Return the newest row of each key group that has run since the job started, in no order."""
        with self._lock:
            return list(self._newest.values())

    def newest_nodes(self) -> list[dict[str, Any]]:
        """Return the row of each node in the newest micro-batch; none if it ran in one round."""
        with self._lock:
            return list(self._nodes)

    def newest_changes(self) -> list[dict[str, Any]]:
        """Return the newest CHANGES_KEPT rows of key groups whose plan or stored states changed, oldest first."""
        with self._lock:
            return list(self._changes)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the rows of the newest batches, oldest first."""
        with self._lock:
            return list(self._batches)[-count:]

    def row(self, batch: int | None = None) -> dict[str, Any] | None:
        """Return the row of a batch, or of the newest batch; None if the row is not in memory."""
        with self._lock:
            rows = (row for row in reversed(self._batches) if batch is None or row["batch"] == batch)
            return next((dict(row) for row in rows), None)

    def totals(self) -> dict[str, float]:
        """Return the number of batches since the start as "batches", and the sums of their figures by column."""
        with self._lock:
            return dict(self._totals)

    def hits(self) -> list[tuple[str, float]]:
        """Return the number of joins of a key group since the start by the origin of its engine."""
        totals = self.totals()
        return [(source, totals.get(source, 0)) for source in SOURCES]

    def logged(self, batch: int) -> LogReport | None:
        """Return the report on a batch's logged rows, without its segments; None if it is not in memory."""
        with self._lock:
            return self._logged.get(batch)

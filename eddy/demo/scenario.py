"""The scenario of the streaming demo, the record of its run, and the comparison of its results with exact counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery


@dataclass(frozen=True)
class Scenario:
    """The data, the settings and the faults of a run.

    batches, rows  number of batches of files, and rows of all streams in each; a micro-batch is about one batch
    pause_s        seconds between two batches of files; longer when the job lags behind
    key_groups     number of key groups, each with its own engine and plan
    partitions     number of partitions before and after the restart
    kill_after     a worker is killed in the micro-batch after this many
    stop_after     the job is stopped and restarted in the micro-batch after this many
    """

    batches: int = 12
    rows: int = 20_000
    pause_s: float = 1.0
    key_groups: int = 8
    partitions: tuple[int, int] = (2, 3)
    kill_after: int = 2
    stop_after: int = 8


@dataclass
class RunRecord:
    """The record of a run.

    rows          by micro-batch the row of `StreamingJoinQuery.batches()`
    groups        by micro-batch the rows of `StreamingJoinQuery.groups()`
    events        (current micro-batch, event in words)
    killed        process id of the worker that was killed last, None = none
    failed_tasks  number of tasks that failed because of the killed worker
    starts        number of starts of the job
    drift         the first micro-batch after the drift, None before it
    """

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    groups: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    events: list[tuple[int, str]] = field(default_factory=list)
    killed: int | None = None
    failed_tasks: int = 0
    starts: int = 0
    drift: int | None = None

    @property
    def next_batch(self) -> int:
        """The current or next micro-batch."""
        return max(self.rows, default=-1) + 1

    def note(self, event: str, batch: int | None = None) -> None:
        """Add an event of a micro-batch, None = the current or next one."""
        self.events.append((self.next_batch if batch is None else batch, event))

    def add(self, run: StreamingJoinQuery) -> None:
        """Add the figures of a query."""
        for row in run.batches().to_pylist():
            self.rows[row["batch"]] = row
        group_rows: dict[int, list[dict[str, Any]]] = {}
        for row in run.groups().to_pylist():
            group_rows.setdefault(row["batch"], []).append(row)
        self.groups.update(group_rows)

    def changes(self) -> list[dict[str, Any]]:
        """Return the rows of key groups whose plan has changed, with the previous plan as "before"."""
        plans: dict[int, str] = {}
        changed = []
        for batch in sorted(self.groups):
            for row in self.groups[batch]:
                before = plans.get(row["group"])
                if before is not None and before != row["plan"]:
                    changed.append({**row, "before": before})
                plans[row["group"]] = row["plan"]
        return changed


@dataclass(frozen=True)
class ScenarioOutcome:
    """The comparison of the results with the exact count.

    results   rows published
    expected  rows by the exact count
    wrong     the difference in words, None = exact
    """

    results: int
    expected: int
    wrong: str | None


def compare_counts(results: pa.Table, expected: np.ndarray) -> ScenarioOutcome:
    """Compare results with the expected number of results of each transfer. O(results log results)."""
    total = int(expected.sum())
    distinct = results.group_by(results.column_names).aggregate([([], "count_all")])
    repeated = results.num_rows - distinct.num_rows
    counts = np.bincount(results.column("transfers").to_numpy(), minlength=len(expected))
    wanted = np.pad(expected, (0, len(counts) - len(expected)))
    off = np.flatnonzero(counts != wanted)
    wrong = None
    if repeated:
        wrong = f"{repeated:,} results are duplicates"
    elif len(off):
        first = int(off[0])
        wrong = (
            f"{len(off):,} transfers have a wrong number of results: transfer {first} has {counts[first]} instead of"
            f" {wanted[first]}"
        )
    return ScenarioOutcome(results.num_rows, total, wrong)

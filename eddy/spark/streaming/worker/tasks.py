"""Messages of the join of a micro-batch: the work that the driver gives to each task, and the reports on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.state.segments import Segment

LIVE, LOADED, NEW = "live", "loaded", "new"
"""Sources of an engine: kept by a worker of the host; loaded from the log; new, as the key group had no rows before."""


@dataclass(frozen=True)
class GroupTask:
    """The work on one key group in a micro-batch.

    before    token of the state that the rows meet, None for a group without a state
    after     token of the state that the rows lead to
    segments  the rows
    plan      the group's last plan, from which an engine that is loaded resumes
    handed    whether another worker of the host hands the engine over
    """

    group: int
    before: str | None
    after: str
    segments: tuple[Segment, ...]
    plan: str | None
    handed: bool = False


@dataclass(frozen=True)
class PartitionTask:
    """The work on one partition in a micro-batch.

    previous    batch of the manifest that holds the state before; None for the first batch
    late_below  per stream, the event time below which rows of this batch are late
    forgotten   watermark of the engines before this batch
    watermark   watermark of the engines after this batch
    staging     directory of result files; None: results are only counted
    """

    batch: int
    partition: int
    previous: int | None
    late_below: tuple[int, ...] | None
    forgotten: int | None
    watermark: int | None
    staging: Path | None
    groups: tuple[GroupTask, ...]


@dataclass(frozen=True)
class Work:
    """The work of one Spark task in a micro-batch.

    partitions  partitions that its worker serves
    tasks       the work on those of them that have any
    hand_over   key groups whose engines other workers of the host want
    drop        key groups whose engines in this worker are out of date
    """

    partitions: tuple[int, ...]
    tasks: tuple[PartitionTask, ...]
    hand_over: tuple[int, ...]
    drop: tuple[int, ...]


class LateCount(NamedTuple):
    """Late rows of one stream: their number, and by how many ticks the oldest of them missed the watermark."""

    rows: int = 0
    behind: int = 0

    def plus(self, other: LateCount) -> LateCount:
        """Return the count of both."""
        return LateCount(self.rows + other.rows, max(self.behind, other.behind))


@dataclass
class PartitionReport:
    """Report on one partition.

    results    result files that it wrote
    late       files of late rows that it wrote
    late_rows  late rows per stream, copies counted once
    groups     a row of metrics for each of its key groups
    """

    results: list[OutputFile] = field(default_factory=list)
    late: list[OutputFile] = field(default_factory=list)
    late_rows: dict[int, LateCount] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)

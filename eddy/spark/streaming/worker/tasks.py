"""Messages of the second stage: the tasks that the driver sends, and the report that each returns."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.state.segments import Segment

LIVE, LOADED, NEW = "live", "loaded", "new"
"""Sources of an engine: found on the host; loaded from the log; new, because the key group had no rows before."""


@dataclass(frozen=True)
class GroupTask:
    """The work on one key group in a micro-batch.

    before    token of the state that the rows meet, None for a group without a state
    after     token of the state that the rows lead to
    segments  the rows
    plan      the group's last plan, from which an engine that is loaded resumes
    """

    group: int
    before: str | None
    after: str
    segments: tuple[Segment, ...]
    plan: str | None


@dataclass(frozen=True)
class PartitionTask:
    """The work of one task of the second stage.

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


class LateCount(NamedTuple):
    """Late rows of one stream: their number, and by how many ticks the oldest of them missed the watermark."""

    rows: int = 0
    behind: int = 0

    def plus(self, other: LateCount) -> LateCount:
        """Return the count of both."""
        return LateCount(self.rows + other.rows, max(self.behind, other.behind))


@dataclass
class PartitionReport:
    """Report of a task of the second stage.

    results    result files that it wrote
    late       files of late rows that it wrote
    late_rows  late rows per stream, copies counted once
    groups     a row of metrics for each of its key groups
    """

    results: list[OutputFile] = field(default_factory=list)
    late: list[OutputFile] = field(default_factory=list)
    late_rows: dict[int, LateCount] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)

    def packed(self) -> bytes:
        """Return the report as bytes for the driver."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def unpacked(data: bytes) -> PartitionReport:
        """Return the report that a worker packed."""
        report = json.loads(data)
        files = [[OutputFile(**file) for file in report[kind]] for kind in ("results", "late")]
        late_rows = {int(stream): LateCount(*count) for stream, count in report["late_rows"].items()}
        return PartitionReport(files[0], files[1], late_rows, report["groups"])

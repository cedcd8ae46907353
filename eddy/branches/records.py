"""The record of an engine with branches: its state after a push."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eddy.aggregates.groups import GroupsCommit
from eddy.push.records import CommitRecord, LastPush
from eddy.query.branch_nodes import Path
from eddy.results.failed_rows import FailedBatch
from eddy.results.late_rows import LateRows
from stairs.memory.arena import Int64s


class Commit(NamedTuple):
    """The engine after a push.

    joins     what commits the push in each inner join; empty at the end of the input
    position, results, deleted, pushes   counts since the start
    clock     the state of the clock after the push; None = the query has no clock, or its clock stays as it is
    late, failed, last, live, finished   as in `BranchedEngine`
    groups    what commits the groups of a query with aggregates; None = none
    new_failed   the failed rows of this push, which are in `failed` already
    """

    joins: dict[Path, CommitRecord]
    clock: Int64s | None
    position: int
    results: int
    deleted: int
    pushes: int
    late: LateRows
    failed: LateRows
    last: LastPush | None
    live: list[int]
    finished: bool
    groups: GroupsCommit | None
    new_failed: Mapping[int, FailedBatch]

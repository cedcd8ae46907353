"""The records from which `eddy.push.transaction` takes an interrupted push back, or completes it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from sortedcontainers import SortedKeyList

from eddy.aggregates.groups import GroupsCommit
from eddy.results.failed_rows import FailedBatch
from eddy.results.late_rows import LateRows
from jisc.strategies.base import Savepoint
from stairs.memory.arena import Int64s


class LastPush(NamedTuple):
    """A push that happened: the position after it, and its results."""

    position: int
    results: pa.Table


class UndoRecord(NamedTuple):
    """The state to which an exception takes the engine back.

    savepoint   the strategy before it
    loading     whether earlier arrivals are loaded into empty windows
    """

    savepoint: Savepoint
    loading: bool


class CommitRecord(NamedTuple):
    """The engine after a push, or after earlier arrivals were loaded (then `last` is None).

    position, results, deleted, pushes   counts since the start
    schedule, late, failed   transitions to come, late rows, failed rows
    new_failed          the failed rows of this push, which are in `failed` already
    arrivals, inserted  figures of this push
    savepoint           where its strategy starts again with empty states; None = states are as the push left them
    groups              what commits the groups of a query with aggregates; None = none
    clock               the state of the clock; None in a query without one
    finished            whether the input has ended
    """

    position: int
    results: int
    deleted: int
    schedule: SortedKeyList
    late: LateRows
    failed: LateRows
    last: LastPush | None = None
    pushes: int = 0
    arrivals: int = 0
    inserted: int = 0
    savepoint: Savepoint | None = None
    groups: GroupsCommit | None = None
    new_failed: Mapping[int, FailedBatch] = MappingProxyType({})
    clock: Int64s | None = None
    finished: bool = False

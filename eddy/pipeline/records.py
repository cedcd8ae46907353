"""The records of a push: the pipeline after it, from which an interrupted commit is completed; and the last push."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, NewVersions
from eddy.results.failed_rows import FailedBatch
from eddy.results.side_rows import LateRows
from stairs.memory.arena import Int64s


class LastPush(NamedTuple):
    """A push that happened: the position after it, and its results."""

    position: int
    results: pa.Table


class Commit(NamedTuple):
    """A pipeline after a push, or after earlier arrivals were loaded (then `last` is None).

    operators     records that settle the push in each operator, in their order
    position, results, deleted, pushes   counts since the start
    late, failed  late rows, failed rows
    new_failed    the failed rows of this push, which are in `failed` already
    clock         the state of the clock; None in a query without a clock
    finished      whether the input has ended
    derived       by table, the push in the query whose answer it has
    newest        by table with versions, those of its changes
    """

    operators: tuple[Any, ...]
    position: int
    results: int
    deleted: int
    pushes: int
    late: LateRows
    failed: LateRows
    last: LastPush | None = None
    new_failed: Mapping[int, FailedBatch] = MappingProxyType({})
    clock: Int64s | None = None
    finished: bool = False
    derived: Mapping[str, Prepared] = MappingProxyType({})
    newest: Mapping[int, NewVersions] = MappingProxyType({})


class Prepared(NamedTuple):
    """A push whose results are computed, and which has not happened yet.

    seconds   duration of the computation
    """

    arrivals: Arrivals
    commit: Commit
    seconds: float

    @property
    def results(self) -> pa.Table:
        """The results of the push."""
        assert self.commit.last is not None
        return self.commit.last.results

"""What a runtime notes so that a call happens in whole or not at all, wherever an exception comes.

    pending    set first: the way back. While it is the only one, what is under way has not happened
    happened   set in one statement when all is computed: from then on it has, and the way is forward only

Both ways consist of steps that may be done again, so whoever comes next goes the whole way (`Runtime._settle`).
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from sortedcontainers import SortedKeyList

from eddy.results.late_rows import LateRows
from jisc.strategies.base import Saved


class LastPush(NamedTuple):
    """A push that happened: the position after it, and its results."""

    position: int
    results: pa.Table


class Pending(NamedTuple):
    """The way back.

    saved     what takes the strategy back
    changes   changes of plan there had been
    loading   whether rows that arrived before are taken in, into empty windows
    """

    saved: Saved
    changes: int
    loading: bool


class Happened(NamedTuple):
    """What the runtime is to be after a push, or after rows were loaded (`last` is None).

    position, results, deleted, pushes   counts since the start
    schedule, late   transitions to come, late rows
    arrivals, inserted   of this push
    saved     how to begin its states anew; None = they are as the push has left them
    """

    position: int
    results: int
    deleted: int
    schedule: SortedKeyList
    late: LateRows
    last: LastPush | None = None
    pushes: int = 0
    arrivals: int = 0
    inserted: int = 0
    saved: Saved | None = None

"""What goes wrong between Spark and the engine."""

from __future__ import annotations

import re

from stairs.errors import CapacityError, EddyError, InputError, PlanError, QueryError, SnapshotError, StateError


class SparkJoinError(EddyError):
    """The join cannot run on Spark as asked: a missing or unfit column, windows that cannot be split, no Java, …"""


class StreamingStateError(SparkJoinError):
    """What a streaming job has on disk is damaged, incomplete, in use, or of another job. Nothing was joined."""


_OURS = {
    one.__name__: one
    for one in (
        CapacityError,
        EddyError,
        InputError,
        PlanError,
        QueryError,
        SnapshotError,
        StateError,
        SparkJoinError,
        StreamingStateError,
    )
}
_LAST_LINE = re.compile(r"^(?:stairs|eddy)[\w.]*\.(\w+): (.*)$", re.MULTILINE)


def error_of_worker(problem: BaseException) -> EddyError | None:
    """Return the error of this library that a task failed with, None if it failed for another reason.

    Spark passes an error of a Python worker on as text only: its trace, with Spark's own around it.

    >>> error_of_worker(RuntimeError("Traceback (most ...\\nstairs.errors.InputError: stream R: no\\n\\tat org..."))
    InputError('stream R: no')
    """
    if isinstance(problem, EddyError):
        return problem
    found = [one for one in _LAST_LINE.findall(str(problem)) if one[0] in _OURS]
    if not found:
        return None
    name, message = found[-1]
    return _OURS[name](message)

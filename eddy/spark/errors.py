"""Errors of joins on Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stairs.errors import EddyError


class SparkJoinError(EddyError):
    """A join cannot run on Spark as specified: a missing or unfit column, windows that cannot be split, no Java, …"""


class StreamingStateError(SparkJoinError):
    """The state of a streaming job is damaged, incomplete, in use, or belongs to another job. No rows were joined."""


class MalformedMessageError(SparkJoinError):
    """A message of a topic cannot be decoded. The error is permanent, so the task is not repeated."""


def _family(kind: type[EddyError] = EddyError) -> Iterator[type[EddyError]]:
    """Yield an error class and all classes derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _family(derived)


def first_line(problem: BaseException) -> str:
    """Return the first line of an error, or its type if it has no text; errors of Spark go on with traces."""
    lines = _text(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


def _text(problem: BaseException) -> str:
    """Return the text of an error, "" if it has none any more: that of an error of Java is in Spark's process."""
    try:
        return str(problem)
    except Exception:  # py4j has no common class for what it raises if this process has ended
        return ""


_LAST_LINE = re.compile(r"^(?:stairs|eddy)[\w.]*\.(\w+): (.*)$", re.MULTILINE)


def error_of_worker(problem: BaseException) -> EddyError | None:
    """Return the error of this library with which a task failed, None if the task failed for another reason.

    Spark passes on an error of a Python worker only as text: its trace, with Spark's own trace around it.

    >>> error_of_worker(RuntimeError("Traceback (most ...\\nstairs.errors.InputError: stream R: no\\n\\tat org..."))
    InputError('stream R: no')
    """
    if isinstance(problem, EddyError):
        return problem
    family = {kind.__name__: kind for kind in _family()}
    lines = [line for line in _LAST_LINE.findall(_text(problem)) if line[0] in family]
    if not lines:
        return None
    name, message = lines[-1]
    return family[name](message)

"""Logging for operators, under the logger "eddy"; the library installs no handler.

    WARNING  refused calls (push, transition, snapshot, checkpoint), recoveries (a state rebuilt from the log), and a
             query that starts with streams whose rows are kept forever; load shedding that finds no cheaper version,
             and steps that were refused
    INFO     start and end of streaming joins; steps of load shedding
    DEBUG    transitions between plans and stored states, each with its reason; micro-batches

A push logs a record only if one of these events happens in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from stairs.errors import SideOutputError

LOG = logging.getLogger("eddy")
LOG.addHandler(logging.NullHandler())

P = ParamSpec("P")
T = TypeVar("T")


def log_refusal(call: str, problem: Exception) -> None:
    """Log that a call was refused, unless the exception comes after a push that committed."""
    if not isinstance(problem, SideOutputError):
        LOG.warning("%s was refused: %s: %s", call, type(problem).__name__, problem)


_TOLD: ContextVar[bool] = ContextVar("told", default=False)


@contextmanager
def endless_told() -> Iterator[None]:
    """Suppress the records on endless streams of runtimes that are made in the body; their owner logs them once."""
    token = _TOLD.set(True)
    try:
        yield
    finally:
        _TOLD.reset(token)


def log_endless(what: str, streams: Sequence[str]) -> None:
    """Log the streams whose rows a starting query keeps for as long as it runs; no record without such streams."""
    if streams and not _TOLD.get():
        LOG.warning(
            "%s keeps all rows of %s for as long as it runs, so its memory grows without end; give the stream"
            " window=Rows(n) or Range(d), or bound its event times by those of another stream in a predicate, such as"
            " 'S.t BETWEEN R.t AND R.t + 1 h'",
            what,
            ", ".join(streams),
        )


def refusals(call: Callable[P, T]) -> Callable[P, T]:
    """Return the function with its exceptions logged before they propagate."""

    @wraps(call)
    def logged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except Exception as problem:
            log_refusal(call.__name__, problem)
            raise

    return logged


def log_changes(rows: Sequence[Mapping[str, Any]]) -> None:
    """Log transitions, given as rows of `Runtime.history`."""
    for row in rows:
        LOG.debug(
            "arrival %d: plan %s instead of %s, stored: %s, states dropped: %d; because: %s",
            row["position"],
            row["new"],
            row["old"],
            row["stored"] or "none",
            row["dropped"],
            row["reason"],
        )

"""Logging for operators, under the logger "eddy"; the library installs no handler.

    WARNING  refused calls (push, transition, snapshot, checkpoint) and recoveries (a state rebuilt from the log)
    INFO     start and end of streaming joins
    DEBUG    transitions between plans and stored states, each with its reason; micro-batches

A push logs nothing unless one of these happens in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from stairs.errors import LateRowsError

LOG = logging.getLogger("eddy")
LOG.addHandler(logging.NullHandler())

P = ParamSpec("P")
T = TypeVar("T")


def log_refusal(call: str, problem: Exception) -> None:
    """Log that a call was refused, unless the exception comes after a push that committed."""
    if not isinstance(problem, LateRowsError):
        LOG.warning("%s was refused: %s: %s", call, type(problem).__name__, problem)


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

"""Logging for operators, under the logger "eddy"; the library installs no handler.

    WARNING  refused calls (push, transition, snapshot, checkpoint) and recoveries (a state rebuilt from the log)
    INFO     start and end of streaming joins
    DEBUG    transitions between plans and stored states, each with its reason; micro-batches

A push logs nothing unless one of these happens in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from stairs.errors import LateRowsError

if TYPE_CHECKING:
    from eddy.runtime import Runtime

LOG = logging.getLogger("eddy")
LOG.addHandler(logging.NullHandler())

P = ParamSpec("P")
T = TypeVar("T")


def refusals(call: Callable[P, T]) -> Callable[P, T]:
    """Return the method with its exceptions logged before they propagate."""

    @wraps(call)
    def logged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except LateRowsError:
            # The push was not refused: it has committed.
            raise
        except Exception as problem:
            LOG.warning("%s was refused: %s: %s", call.__name__, type(problem).__name__, problem)
            raise

    return logged


def plan_changes(call: Callable[Concatenate[Runtime, P], T]) -> Callable[Concatenate[Runtime, P], T]:
    """Return the method of a runtime with its transitions logged. Costs nothing unless DEBUG is enabled."""

    @wraps(call)
    def logged(self: Runtime, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not LOG.isEnabledFor(logging.DEBUG):
            return call(self, *args, **kwargs)
        before = self.changes
        result = call(self, *args, **kwargs)
        if self.changes > before:
            for done in self.history().slice(before).to_pylist():
                LOG.debug(
                    "arrival %d: plan %s instead of %s, stored: %s, states dropped: %d; because: %s",
                    done["position"],
                    done["new"],
                    done["old"],
                    done["stored"] or "none",
                    done["dropped"],
                    done["reason"],
                )
        return result

    return logged

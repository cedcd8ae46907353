"""What the library tells an operator, under the logger "eddy"; it installs no handler.

    WARNING  refusals (a push, a change of plan, a snapshot, a checkpoint) and recoveries (a state rebuilt from the log)
    INFO     start and end of streaming joins
    DEBUG    decisions: changes of plan and of what is stored, each with its reason; micro-batches

Nothing is logged per push unless something happened in it.
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
    """Log what a method refuses: the exception that it raises, which passes on."""

    @wraps(call)
    def logged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except LateRowsError:
            # The push was not refused: it happened.
            raise
        except Exception as problem:
            LOG.warning("%s was refused: %s: %s", call.__name__, type(problem).__name__, problem)
            raise

    return logged


def plan_changes(call: Callable[Concatenate[Runtime, P], T]) -> Callable[Concatenate[Runtime, P], T]:
    """Log the changes of plan, and of what is stored, that a method of a runtime made. Costs nothing above DEBUG."""

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

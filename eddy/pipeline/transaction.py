"""The transaction of a call: the call happens in whole or not at all, whatever line an exception interrupts.

    _undo = …      noted first; from here on, an exception leads back to the state before the call
    _commit = …    the call has happened, in this one statement; from here on, an exception lets it be completed
    _undo = None, _commit = None    the last statements, when all is complete or undone

Pipelines and engines are transactions. The calls of a pipeline are pushes of rows to its operators; those of an engine
are pushes to its pipelines, and control elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

Record = TypeVar("Record")


class Transaction(ABC, Generic[Record]):
    """Something on which one call at a time works.

    _undo    what leads back to the state before the call; None if no call is at work
    _commit  the record of a call that has happened and is not complete
    """

    _undo: Any
    _commit: Record | None

    @property
    def _is_open(self) -> bool:
        """Whether a call is at work, or an exception has interrupted one."""
        return self._commit is not None or bool(self._undo)

    def _happen(self, record: Record, again: bool = False) -> None:
        """Let the call happen, and complete it; `again` as for `_complete`."""
        self._commit = record
        self._end(record, again)

    def _end(self, record: Record, again: bool) -> None:
        self._complete(record, again)
        # Last: until then an exception leads back here.
        self._undo = None
        self._commit = None

    def _recover(self) -> None:
        """Complete a call that has happened, or undo it otherwise. It may be repeated from any of its steps."""
        if self._commit is not None:
            self._end(self._commit, again=True)
        else:
            self._roll_back()

    @abstractmethod
    def _complete(self, record: Record, again: bool) -> None:
        """Do what is left of a call that has happened. Idempotent.

        again   whether an exception may have interrupted an earlier call of this method
        """

    @abstractmethod
    def _roll_back(self) -> None:
        """Return to the state before a call that has not happened, and forget `_undo` last. Idempotent."""

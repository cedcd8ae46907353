"""The exceptions of this library, one family. A message names the stream, the column, the value and the remedy."""

from __future__ import annotations


class EddyError(Exception):
    """Base class of every exception that this library raises deliberately."""


class QueryError(EddyError):
    """The query is invalid: an unknown stream or column, types that cannot be equal, a stream without a predicate, …"""


class SqlError(QueryError):
    """A statement in SQL is invalid, or has a construct that the dialect lacks; the message begins with its place.

    line, column   the place in the text, counted from 1
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class PlanError(EddyError):
    """The plan does not fit the query: a missing, repeated or unknown stream, or a cross product."""


class InputError(EddyError):
    """The input does not fit the query. The state is unchanged."""


class CapacityError(EddyError):
    """The call needs more room than the limits allow. The state is unchanged."""


class SideOutputError(EddyError):
    """A function that receives late or failed rows raised. The push before it has committed; do not repeat it."""


class LateRowsError(SideOutputError):
    """A function that receives late rows raised. The push before it has committed; do not repeat it."""


class FailedRowsError(SideOutputError):
    """A function that receives failed rows raised. The push before it has committed; do not repeat it."""


class SnapshotError(EddyError):
    """The bytes to restore are no snapshot, are damaged, or belong to another query. Nothing was restored."""


class StateError(EddyError):
    """An invariant of a state module fails (raised by checks): a defect of this library, or a damaged file."""

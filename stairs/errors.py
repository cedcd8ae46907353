"""The exceptions of this library, one family. A message names the stream, the column, the value and the remedy."""

from __future__ import annotations


class EddyError(Exception):
    """Base class of every exception that this library raises deliberately."""


class QueryError(EddyError):
    """Error of an invalid query: an unknown column, types that cannot be equal, a stream without a predicate, …"""


class SqlError(QueryError):
    """Error of a statement in SQL that is invalid or that the dialect lacks; the message begins with its place.

    line, column   the place in the text, counted from 1
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class PlanError(EddyError):
    """Error of a plan that does not fit the query: a missing, repeated or unknown stream, or a cross product."""


class InputError(EddyError):
    """Error of input that does not fit the query. The state is unchanged."""


class CapacityError(EddyError):
    """Error of a call that needs more room than the limits allow. The state is unchanged."""


class SideOutputError(EddyError):
    """Error of a function that receives late or failed rows. The push before it has committed; do not repeat it."""


class LateRowsError(SideOutputError):
    """Error of a function that receives late rows. The push before it has committed; do not repeat it."""


class FailedRowsError(SideOutputError):
    """Error of a function that receives failed rows. The push before it has committed; do not repeat it."""


class SnapshotError(EddyError):
    """Error of bytes that are no snapshot, are damaged, or belong to another query. Nothing was restored."""


class StateError(EddyError):
    """Error of checks: an invariant of the state fails, by a defect of this library or a damaged file."""

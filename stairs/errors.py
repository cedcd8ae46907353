"""The one family of exceptions. A message names the stream, the column, the value and what to do."""

from __future__ import annotations


class EddyError(Exception):
    """Base of every error this library raises on purpose."""


class QueryError(EddyError):
    """The query is wrong: an unknown stream or column, types that cannot be equal, a stream nothing joins, …"""


class PlanError(EddyError):
    """The plan is wrong for its query: a missing, repeated or unknown stream, or a cross product."""


class InputError(EddyError):
    """What was pushed does not fit the query. The state is as it was before the call."""


class CapacityError(EddyError):
    """There is no room for what the call needs. The state is as it was before the call."""


class LateRowsError(EddyError):
    """A function that takes late rows raised. The push before it has committed: it must not be repeated."""


class SnapshotError(EddyError):
    """What should be restored is no snapshot, is damaged, or is one of another query. Nothing was built."""


class StateError(EddyError):
    """An invariant of a state module does not hold (raised by `check()`): a defect of this library."""

"""The exceptions of the library, one family. A message names the stream, the column, the value and the remedy."""

from stairs.errors import (
    CapacityError,
    EddyError,
    FailedRowsError,
    InputError,
    LateRowsError,
    PlanError,
    QueryError,
    SideOutputError,
    SnapshotError,
    SqlError,
    StateError,
)

__all__ = [
    "CapacityError",
    "EddyError",
    "FailedRowsError",
    "InputError",
    "LateRowsError",
    "PlanError",
    "QueryError",
    "SideOutputError",
    "SnapshotError",
    "SqlError",
    "StateError",
]

"""The exceptions of the library, one family. A message names the stream, the column, the value and the remedy."""

from stairs.errors import (
    CapacityError,
    EddyError,
    InputError,
    LateRowsError,
    PlanError,
    QueryError,
    SnapshotError,
    SqlError,
    StateError,
)

__all__ = [
    "CapacityError",
    "EddyError",
    "InputError",
    "LateRowsError",
    "PlanError",
    "QueryError",
    "SnapshotError",
    "SqlError",
    "StateError",
]

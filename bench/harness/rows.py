"""Numbers out of rows."""

from __future__ import annotations

from bench.harness.figure import Row
from eddy import EddyError


class NotANumber(EddyError):
    """A column that is to be computed with or drawn holds something else."""


def number(row: Row, column: str) -> float:
    """Return a number of a row. Raises NotANumber."""
    value = row.get(column)
    if not isinstance(value, int | float):
        raise NotANumber(f"column {column!r} holds {value!r}, not a number")
    return float(value)

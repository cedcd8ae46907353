"""Numbers out of rows, where they are there."""

from __future__ import annotations

from bench.harness.figure import Row


def value(row: Row, column: str) -> float | None:
    """Return a number of a row, None where it has none."""
    found = row.get(column)
    return None if found is None else float(found)


def number(row: Row, column: str) -> float:
    """Return a number of a row; not a number where it has none."""
    found = value(row, column)
    return float("nan") if found is None else found

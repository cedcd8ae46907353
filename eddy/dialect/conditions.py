"""Conditions and output columns made from SQL: Arrow expressions that keep their text."""

from __future__ import annotations

from dataclasses import dataclass

from eddy.filters.conditions import Predicate


@dataclass(frozen=True, eq=False)
class SqlPredicate(Predicate):
    """A condition made from SQL, named by its text.

    sql   the text, with columns named stream.column
    """

    sql: str = ""

"""Conditions made from SQL: Arrow expressions that keep their text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from eddy.filters.conditions import Condition, Predicate


@dataclass(frozen=True, eq=False)
class SqlPredicate(Predicate):
    """A condition made from SQL, named by its text.

    sql    the text, with columns named stream.column
    known  the columns that it reads, by their names in Arrow
    why    the reason why a condition on joined rows is no predicate, "" for other conditions
    """

    sql: str = ""
    known: frozenset[str] = frozenset()
    why: str = ""

    def reads(self, stream: str) -> bool:
        """Return whether the condition reads a column of a stream."""
        return any(name.startswith(f"{stream}.") for name in self.known)

    def read(self, schema: pa.Schema) -> list[str]:
        """Return the columns of the schema that the condition reads, in order of the schema."""
        return [name for name in schema.names if name in self.known]


def unconnected(stream: str, conditions: Iterable[Condition]) -> str:
    """Return the reason why conditions do not connect a stream with other streams, and the remedy."""
    unkeyed = [
        condition
        for condition in conditions
        if isinstance(condition, SqlPredicate) and condition.why and condition.reads(stream)
    ]
    reasons = "".join(f"{condition.sql} does not: {condition.why}; " for condition in unkeyed[:2])
    return (
        f"{reasons}a join needs an equality of columns or of expressions of one stream each, or a comparison such as"
        " a.x BETWEEN b.y - 5 AND b.y + 5; any other condition may come in addition"
    )

"""Conditions made from SQL: Arrow expressions that keep their text."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from eddy.filters.conditions import Predicate


@dataclass(frozen=True, eq=False)
class SqlPredicate(Predicate):
    """A condition made from SQL, named by its text.

    sql    the text, with columns named stream.column
    known  the columns that it reads, by their names in Arrow
    """

    sql: str = ""
    known: frozenset[str] = frozenset()

    def read(self, schema: pa.Schema) -> list[str]:
        """Return the columns of the schema that it reads, in order of the schema."""
        return [name for name in schema.names if name in self.known]

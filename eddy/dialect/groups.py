"""GROUP BY."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from eddy.dialect.grammar import Source
from eddy.dialect.joins import Join, Joins
from eddy.dialect.relations import Block, Groups
from eddy.query.query import Query


def read_groups(select: exp.Select, block: Block, source: Source, inside: bool) -> Groups | None:
    """Return the groups."""
    return None


def grouped_query(block: Block, found: Join, joins: Joins, options: dict[str, Any]) -> Query:
    """Return the query."""
    raise NotImplementedError

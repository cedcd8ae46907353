"""EXPLAIN: how a statement maps to a query, and the plan of a new runtime."""

from __future__ import annotations

from collections.abc import Iterator

from eddy.dialect.union import UnionAll
from eddy.query.query import Query
from eddy.runtime import Runtime


def explained(statement: Query | UnionAll) -> str:
    """Return the text of EXPLAIN. Nothing is pushed."""
    queries = statement.queries if isinstance(statement, UnionAll) else (statement,)
    texts = ["\n".join(_lines(query)) for query in queries]
    return "\nUNION ALL\n".join(texts)


def _lines(query: Query) -> Iterator[str]:
    for stream in query.streams:
        table = query.tables.get(stream.name, stream.name)
        source = "" if table == stream.name else f" = {table}"
        derived = ", from the intervals" if stream.name in query.unwindowed else ""
        derived = ", no row is kept" if query.unretracted and stream.name in query.unwindowed else derived
        kept = " AND ".join(condition.title for condition in stream.conditions)
        yield f"stream {stream.name}{source} [{stream.extent}{derived}]{f' where {kept}' if kept else ''}"
    yield f"output {', '.join(f'{field.name} {field.type}' for field in query.output_schema)}"
    if query.tables_changing:
        yield Runtime(query, output="changelog").explain()
    else:
        # The options only permit an input that ends, because a query over unbounded windows also has a plan.
        yield Runtime(query, bounded=True).explain()

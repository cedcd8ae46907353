"""UNION ALL: several queries whose results form one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from eddy.queries.engine import Engine
from eddy.query.query import Query
from stairs.errors import QueryError


class UnionAll:
    """The queries of a statement with UNION ALL, whose results have the same types.

    queries         one for each SELECT, in order
    output_schema   the schema of the results: the names of the first SELECT

    Run each query in a separate `Runtime`, or all queries in one `Engine`, which shares their windows. Method
    `together` then returns the results as one table.

    >>> from eddy import Stream, Unbounded, sql
    >>> rows = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    >>> streams = [Stream(name, rows, window=Unbounded()) for name in "abc"]
    >>> text = "SELECT a.v FROM a JOIN b ON a.k = b.k UNION ALL SELECT c.v FROM c JOIN b ON c.k = b.k"
    >>> both = sql(text, streams)
    >>> engine = Engine(streams)
    >>> names = both.start(engine, "both")
    >>> pushed = {"a": [{"k": 1, "v": 2}], "b": [{"k": 1, "v": 3}], "c": [{"k": 1, "v": 4}]}
    >>> both.together(engine.push(pushed, [0, 1, 2]), names).to_pylist()
    [{'v': 2}, {'v': 4}]
    """

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = tuple(queries)
        first = self.queries[0].output_schema
        nullable = [any(query.output_schema.field(k).nullable for query in self.queries) for k in range(len(first))]
        self.output_schema = pa.schema(
            [field.with_nullable(nulls) for field, nulls in zip(first, nullable, strict=True)]
        )

    def __repr__(self) -> str:
        return " UNION ALL ".join(map(repr, self.queries))

    def start(self, engine: Engine, name: str, **options: Any) -> list[str]:
        """Start the queries in an engine, as `Engine.start` does; return their names, `name` and a number each.

        If the engine refuses a query, the queries started before are stopped again.
        """
        names = [f"{name}.{k + 1}" for k in range(len(self.queries))]
        started: list[Any] = []
        try:
            for query_name, query in zip(names, self.queries, strict=True):
                started.append(engine.start(query_name, query, **options))
        except BaseException:
            for running_query in started:
                running_query.stop()
            raise
        return names

    def together(self, results: Mapping[str, pa.Table] | Sequence[pa.Table], names: Sequence[str] = ()) -> pa.Table:
        """Return the results of the queries as one table.

        results   of `Engine.push`, with the names that `start` returned; or the tables of one runtime for each query

        Raises QueryError for another number of tables.
        """
        tables = [results[name] for name in names] if isinstance(results, Mapping) else list(results)
        if len(tables) != len(self.queries):
            raise QueryError(
                f"{len(self.queries)} queries have {len(tables)} tables of results; give one for each query"
            )
        return pa.concat_tables(
            [table.rename_columns(self.output_schema.names).cast(self.output_schema) for table in tables]
        )

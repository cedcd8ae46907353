"""Plays a case of random SQL, and compares the results with those of DuckDB."""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa

from eddy.dialect.printing import to_sql
from eddy.dialect.statement import sql
from eddy.fuzz.play import Tally
from eddy.fuzz.sql.case import SqlCase
from eddy.query.query import Query
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from stairs.errors import QueryError, SqlError

REFUSALS = (
    "would be kept forever",
    "may be missing",
    "no event times fulfil",
    "no values fulfil",
    "two streams and nothing else",
    "has conditions on rows of its outer join",
    "an outer join inside may lack",
    "DECIMAL has 38",
    "a result may have no row of stream",
)
"""Drawn statements that the dialect refuses: queries that cannot be one query, or whose windows have no end."""


def play(case: SqlCase) -> Tally:
    """Play a case. Raises AssertionError for results that differ."""
    tally = Tally(cases=1)
    try:
        query = sql(case.text, case.streams())
    except SqlError as error:
        if not any(known in str(error) for known in REFUSALS):
            raise
        tally.refused = 1
        return tally
    assert isinstance(query, Query)
    results = results_of(case, query)
    wanted = reference_of(case)
    _compare(case.text, rows_of(results), rows_of(wanted))
    if case.printed:
        _print(query)
    tally.results = results.num_rows
    tally.pushes = case.pushes
    tally.arrivals = sum(map(len, case.tables.values()))
    return tally


def _print(query: Query) -> None:
    """Print a query. Raises QueryError unless the text gives the same query, or has a form that the dialect refuses."""
    try:
        to_sql(query)
    except QueryError as error:
        # A column of a subquery that may be missing as a whole: its expression stands outside of the subquery.
        if not (isinstance(error.__cause__, SqlError) and "also where they are missing" in str(error)):
            raise


def results_of(case: SqlCase, query: Query) -> pa.Table:
    """Return all results of a query over the rows of a case, which are pushed by event time."""
    runtime = Runtime(query, strategy=strategy_name(case.strategy), bounded=True)
    times = sorted({row[-1] for rows in case.tables.values() for row in rows})
    step = max(1, -(-len(times) // case.pushes))
    outputs = [runtime.output_schema.empty_table()]
    tables = {name: case.rows(name) for name in case.tables}
    seconds = {name: [row[-1] for row in sorted(rows, key=lambda row: row[-1])] for name, rows in case.tables.items()}
    for start in range(0, len(times), step):
        chosen = set(times[start : start + step])
        part = {}
        for name, table in tables.items():
            places = [i for i, second in enumerate(seconds[name]) if second in chosen]
            part[name] = table.take(pa.array(places, pa.int64()))
        outputs.append(runtime.push(query.inputs(part)))
    outputs.append(runtime.finish())
    return pa.concat_tables(outputs)


def reference_of(case: SqlCase) -> pa.Table:
    """Return the rows that DuckDB has for a case."""
    connection = _connection()
    for name in case.tables:
        connection.register(name, case.rows(name))
    return connection.sql(case.reference).to_arrow_table()


@cache
def _connection() -> Any:
    import duckdb  # `eddy fuzz` asks for it where it is missing

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return a multiset of rows, in values that compare across types of numbers and units of time."""
    columns = [[_value(cell) for cell in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | decimal.Decimal):
        number = float(value)
        return "nan" if math.isnan(number) else round(number, 9) + 0.0
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return datetime.datetime(value.year, value.month, value.day)
    return value


def _compare(text: str, got: Counter[Any], wanted: Counter[Any]) -> None:
    if got != wanted:
        more, less = list((got - wanted).elements())[:5], list((wanted - got).elements())[:5]
        raise AssertionError(f"{text}\n  only in eddy: {more}\n  only in DuckDB: {less}")

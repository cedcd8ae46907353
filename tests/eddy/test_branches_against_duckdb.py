"""A large query with branches gives what DuckDB gives for the same query in SQL, in any pushes; and large fan-outs."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import eddy
from tests.branched import SQL, in_order, query, tables

ROWS = 3000


@pytest.mark.parametrize("batch_rows", [7, 400, ROWS])
def test_the_same_query_in_sql(batch_rows: int) -> None:
    made = tables(ROWS, 1)
    connection = duckdb.connect()
    for name, table in made.items():
        connection.register(name, table)
    expected = in_order(connection.sql(SQL).to_arrow_table())
    assert {None} < {row[2] for row in expected}
    assert {None} < {row[4] for row in expected}
    runtime = eddy.Runtime(query())
    answers = []
    for at in range(0, ROWS, batch_rows):
        # In one push for all streams, rows come in order of event time.
        end = int(made["R"]["at"][min(at + batch_rows, ROWS) - 1].as_py())
        start = int(made["R"]["at"][at - 1].as_py()) if at else -1
        last = at + batch_rows >= ROWS
        part = {
            name: table.filter([start < t and (last or t <= end) for t in table["at"].to_pylist()])
            for name, table in made.items()
        }
        answers.append(runtime.push(part))
        if at == batch_rows:
            runtime = eddy.Runtime.restore(runtime.snapshot(), runtime.query)
    answers.append(runtime.finish())
    runtime.check()
    assert in_order(pa.concat_tables(answers)) == expected
    assert runtime.metrics()["open"] == 0

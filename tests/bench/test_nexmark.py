"""NEXMark's queries over the streams of the generator give the rows that DuckDB has."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from bench.workloads.nexmark import MISSING, QUERIES, events, references, streams
from eddy import Runtime, sql
from eddy.fuzz.sql.play import rows_of


@pytest.mark.parametrize("name", QUERIES)
def test_results_are_those_of_duckdb(name: str) -> None:
    tables = events(4000, seed=3)
    query = sql(QUERIES[name], streams(name))
    runtime = Runtime(query, bounded=True)
    used = {stream.name: tables[query.tables[stream.name]] for stream in query.streams}
    found = pa.concat_tables([runtime.push(used), runtime.finish()])
    with duckdb.connect() as connection:
        for one, table in tables.items():
            connection.register(one, table)
        wanted = connection.sql(references(QUERIES[name])).to_arrow_table()
    assert rows_of(found) == rows_of(wanted)
    assert found.num_rows > 10


def test_queries_without_a_form_name_what_they_need() -> None:
    assert set(MISSING) == {"q4", "q6", "q9"}

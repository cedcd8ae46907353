"""NEXMark's queries over the streams of the generator give the rows that DuckDB has."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from bench.workloads.nexmark import CHANGING, MISSING, QUERIES, events, references, side_input, streams
from eddy import Runtime, sql

STREAMS = "person", "auction", "bid"


@pytest.mark.parametrize("name", QUERIES)
def test_results_are_those_of_duckdb(name: str) -> None:
    tables = {**events(4000, seed=3), "side_input": side_input()}
    query = sql(QUERIES[name], streams(name))
    runtime = Runtime(query, output="changelog") if name in CHANGING else Runtime(query, bounded=True)
    # The table that q13 looks up is there before the rows.
    runtime.push(query.inputs({"side_input": tables["side_input"]}))
    found, came = Counter[tuple[object, ...]](), 0
    for table in (runtime.push(query.inputs({one: tables[one] for one in STREAMS})), runtime.finish()):
        came += table.num_rows
        for row in table.to_pylist():
            sign = -1 if row.pop("op", "+I") in ("-D", "-U") else 1
            found.update({tuple(row.values()): sign})
    with duckdb.connect() as connection:
        for one, table in tables.items():
            connection.register(one, table)
        wanted = connection.sql(references(QUERIES[name])).to_arrow_table()
    assert +found == Counter(zip(*(column.to_pylist() for column in wanted.columns), strict=True))
    assert came > 7 or name == "q4"


def test_queries_without_a_form_name_what_they_need() -> None:
    assert set(MISSING) == {"q6"}

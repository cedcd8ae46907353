"""NEXMark's queries over the streams of the generator give the rows that DuckDB has."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from bench.workloads.nexmark import CHANGING, QUERIES, events, references, side_input, streams
from eddy import Runtime, SqlError, sql

STREAMS = "person", "auction", "bid"


@pytest.mark.parametrize("name", QUERIES)
def test_results_are_those_of_duckdb(name: str) -> None:
    tables = {**events(4000, seed=3), "side_input": side_input()}
    query = sql(QUERIES[name], streams(name))
    runtime = Runtime(query, output="changelog") if name in CHANGING else Runtime(query, bounded=True)
    # The table that q13 looks up is there before the rows.
    runtime.push(query.inputs({"side_input": tables["side_input"]}))
    counts, came = Counter[tuple[object, ...]](), 0
    for table in (runtime.push(query.inputs({stream: tables[stream] for stream in STREAMS})), runtime.finish()):
        came += table.num_rows
        for row in table.to_pylist():
            sign = -1 if row.pop("op", "+I") in ("-D", "-U") else 1
            counts.update({tuple(row.values()): sign})
    with duckdb.connect() as connection:
        for table_name, table in tables.items():
            connection.register(table_name, table)
        wanted = connection.sql(references(QUERIES[name])).to_arrow_table()
    assert +counts == Counter(zip(*(column.to_pylist() for column in wanted.columns), strict=True))
    assert came > 7 or name == "q4"


def test_the_average_of_the_last_auctions_has_a_form_that_an_error_names() -> None:
    """The benchmark writes query 6 with OVER, which gives each row a value."""
    over = "AVG(price) OVER (PARTITION BY seller ORDER BY expires ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)"
    joined = "auction A JOIN bid B ON A.id = B.auction"
    with pytest.raises(
        SqlError, match=r"column 16: .* write SELECT seller, AVG\(price\) FROM .* rn <= 11 GROUP BY seller"
    ):
        sql(f"SELECT seller, {over} AS average FROM {joined}", streams("q6"))

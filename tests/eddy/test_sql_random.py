"""Random statements that compose answers of queries: after each push, DuckDB finds the same, or eddy refuses them."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from eddy import QueryError, SqlError, to_sql
from tests.eddy.sql_statements import play, query_of, statement

FAULTS = [
    # A part that hung beside a full join was lost when a condition made the join a left one.
    "SELECT x.g, y.k FROM r x FULL JOIN r y ON x.g = y.g WHERE x.v IN (SELECT v FROM s) AND x.g <= 'b'",
    "SELECT x.g, y.k FROM r x FULL JOIN r y ON x.g = y.g WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.v = x.v)"
    " AND y.g <= 'b' AND x.g <= 'c'",
    # Streams beside a subquery with a full join became a part of its left side.
    "SELECT a.g, f.k, f.v FROM s a JOIN s b ON a.k = b.k JOIN (SELECT y.k, x.v, y.g FROM t x FULL JOIN r y ON x.g = y.g"
    " AND x.v <> 3) f ON a.g = f.g LEFT JOIN t d ON a.k = d.k",
    "SELECT a.g, f.k, f.v FROM s a JOIN (SELECT y.k, x.v, x.g FROM t x FULL JOIN r y ON x.g = y.g) f ON a.g = f.g"
    " AND f.k > 1 WHERE a.v > 2",
    # The limit of the inner numbers was lost.
    "SELECT v, k FROM (SELECT v, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS a FROM"
    " (SELECT v, k, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, k) AS b FROM r) WHERE b <= 2) WHERE a <= 1",
]
"""Statements whose answers were wrong, each with the fault that it showed."""


@pytest.mark.campaign(1)
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_answers_are_those_of_duckdb(first: int) -> None:
    played = 0
    with duckdb.connect() as database:
        for seed in range(first, first + 20):
            draw, text = statement(seed)
            try:
                query = query_of(text)
            except SqlError:
                continue
            played += 1
            play(draw, query, text, database)
    assert played >= 8


@pytest.mark.parametrize(
    "text",
    [
        "SELECT r.v, t.g FROM r JOIN t ON r.k = t.k AND t.v > 2",
        "SELECT t.g, COUNT(*) AS n, MAX(r.v) AS m FROM t LEFT JOIN r ON t.k = r.k WHERE t.v <> 3 GROUP BY t.g",
        "SELECT x.k, y.v FROM t x FULL JOIN t y ON x.g = y.g",
        "SELECT k, v FROM t WHERE g IN (SELECT g FROM r) QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY v, k) <= 2",
    ],
)
def test_queries_of_tables_have_a_text(text: str) -> None:
    printed = to_sql(query_of(text))
    with duckdb.connect() as database:
        assert sum(play(Random(seed), query_of(printed), text, database) for seed in range(10))


def test_queries_of_queries_have_no_text() -> None:
    with pytest.raises(QueryError, match=r"table d has the rows of a query, .* take that of each query by itself"):
        to_sql(query_of("SELECT r.v, d.n FROM r JOIN (SELECT g, count(*) AS n FROM s GROUP BY g) d ON r.g = d.g"))


@pytest.mark.parametrize("text", FAULTS)
def test_faults_that_were_found(text: str) -> None:
    query = query_of(text)
    with duckdb.connect() as database:
        assert sum(play(Random(seed), query, text, database) for seed in range(20))

"""Statements over one stream, products, and subqueries that are values: DuckDB finds the same after each push."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import eddy
from eddy.dialect.printing import table_streams
from eddy.query.text import query_text
from jisc.strategies import STRATEGIES
from tests.eddy.answers import R, S, T
from tests.eddy.test_queries_over_queries import play

STATEMENTS = [
    "SELECT r.k, r.v FROM r",
    "SELECT r.k AS a, r.v * 2 AS w FROM r WHERE r.v > 10 AND (r.g < 'b' OR r.k IS NULL)",
    "SELECT r.k, s.v FROM r CROSS JOIN s",
    "SELECT r.k, s.v, x.g FROM r CROSS JOIN s CROSS JOIN r AS x",
    "SELECT r.k, s.v FROM r, s WHERE r.g < s.g",
    "SELECT r.k, s.v, x.v AS w FROM r, s, r AS x WHERE r.g <= s.g AND s.g <= x.g",
    "SELECT r.k, s.v FROM r JOIN s ON r.k = s.k OR r.v = s.v",
    "SELECT r.v, s.v AS w FROM r JOIN s ON r.k IS NOT DISTINCT FROM s.k",
    "SELECT r.v, s.v AS w FROM r JOIN s ON r.g IS NOT DISTINCT FROM s.g AND r.v < s.v",
    "SELECT r.v, s.v AS w FROM r LEFT JOIN s ON r.g IS NOT DISTINCT FROM s.g",
    "SELECT * FROM (SELECT k, v AS one FROM r) AS a NATURAL JOIN (SELECT v AS two, k FROM s) AS b",
    "SELECT * FROM (SELECT k, g, v FROM r) AS a NATURAL LEFT JOIN (SELECT g, k, x FROM s) AS b",
    "SELECT r.k, s.v FROM r LEFT JOIN s ON r.v > 3",
    "SELECT r.k, s.v FROM r LEFT JOIN s ON r.g < s.g",
    "SELECT r.k, s.v FROM r LEFT JOIN s ON s.v < 10 AND r.v > 20",
    "SELECT r.k, s.v FROM r LEFT JOIN s ON TRUE",
    "SELECT r.k, r.v FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.v > 25)",
    "SELECT r.k, r.v FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.g < r.g)",
]
VALUES = [
    "SELECT s.k, s.v FROM s WHERE s.v > (SELECT max(v) FROM r)",
    "SELECT s.k, (SELECT max(v) FROM r) AS m FROM s",
    "SELECT value_1.k, (SELECT max(v) FROM r) AS value_2, (SELECT min(v) FROM r) AS m FROM s AS value_1",
    "SELECT s.k, t.v FROM s JOIN t ON s.k = t.k WHERE s.v * 2 > (SELECT avg(v) FROM r) + t.v",
    "SELECT s.k, s.v FROM s WHERE s.v <= (SELECT max(m) FROM (SELECT k, sum(v)::BIGINT AS m FROM r GROUP BY k))",
    "SELECT t.k, t.v FROM t WHERE t.v > 10",
    "SELECT k, count(*) AS n FROM s WHERE v < (SELECT count(*) FROM r) GROUP BY k",
]


@pytest.mark.campaign(1)
@pytest.mark.parametrize("text", [*STATEMENTS, *VALUES])
def test_statements_are_those_of_duckdb(text: str) -> None:
    query, draw = eddy.sql(text, [R, S, T]), Random(text)
    assert sum(play(draw, query, text, draw.choice(sorted(STRATEGIES))) for _ in range(5))


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_text_of_a_query_gives_it_again(text: str) -> None:
    query = eddy.sql(text, [R, S])
    again = eddy.sql(eddy.to_sql(query), table_streams(query))
    assert query_text(again)["predicates"] == query_text(query)["predicates"]


def test_a_join_that_reads_no_column_of_the_relation_on_which_it_hangs_says_so() -> None:
    """The constant of a subquery is a condition on the presence of its row."""
    text = (
        "SELECT r.k, x.v FROM r LEFT JOIN (SELECT k, 7 AS c FROM s) AS b ON r.k = b.k"
        " LEFT JOIN r AS x ON r.k = x.k AND b.c = r.v"
    )
    again = eddy.to_sql(eddy.sql(text, [R, S]))
    assert again.endswith("LEFT JOIN r AS x ON r.k = x.k AND 7 = r.v AND PRESENT(s)")
    assert eddy.to_sql(eddy.sql(again, [R, S])) == again


def test_the_text_has_no_product_where_keys_connect_streams() -> None:
    """The third stream connects the first two, so the text names it before the second."""
    query = eddy.Query([R, S, replace(R, name="x")], ["r.k = x.k", "s.v = x.v"])
    assert "FROM r JOIN x ON r.k = x.k JOIN s ON s.v = x.v" in eddy.to_sql(query)
    text = (
        "SELECT count(r.v) FILTER (WHERE r.v <> b.v) AS n FROM r JOIN (r AS b JOIN r AS c ON b.k = c.k) ON r.k = b.k"
        " RIGHT JOIN s ON c.k = s.k WHERE r.v > 0"
    )
    assert "FROM s JOIN r AS c ON c.k = s.k JOIN r AS b ON b.k = c.k" in eddy.to_sql(eddy.sql(text, [R, S]))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("SELECT r.k FROM r, s", 20, "nothing connects s"),
        ("SELECT r.k FROM r LEFT JOIN s", 29, "an outer join needs ON"),
        ("SELECT s.k FROM s WHERE s.v > (SELECT v FROM r)", 39, "stream r is no table"),
        ("SELECT s.k FROM s WHERE s.v > (SELECT max(v) FROM r GROUP BY k)", 39, "one aggregate without GROUP BY"),
        ("SELECT s.k FROM s WHERE s.v > (SELECT max(v), min(v) FROM r)", 39, "one aggregate without GROUP BY"),
        ("SELECT r.k FROM r NATURAL JOIN (SELECT v AS w FROM s)", 40, "no column of the same name"),
    ],
)
def test_refusals(text: str, column: int, message: str) -> None:
    with pytest.raises(eddy.SqlError, match=message) as caught:
        eddy.sql(text, [R, S])
    assert caught.value.column == column

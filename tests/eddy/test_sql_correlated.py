"""Subqueries that are values and read the query around them: after each push, DuckDB finds the same."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from eddy import SqlError, sql
from tests.eddy.sql_statements import STREAMS, play, query_of

COUNT = "(SELECT count(*) FROM s WHERE s.k = {})"
NUMBERED = "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM s"
TEXTS = [
    "SELECT r.k, r.v FROM r WHERE r.v > (SELECT avg(s.v) FROM s WHERE s.k = r.k)",
    "SELECT k, v FROM r WHERE (SELECT avg(x.v) FROM r AS x WHERE x.g = r.g AND x.v > 0) > r.v",
    # COUNT of no rows is 0, other aggregates are NULL.
    f"SELECT r.k, r.v FROM r WHERE 2 > {COUNT.format('r.k')}",
    f"SELECT r.k, {COUNT.format('r.k')} AS n FROM r",
    f"SELECT r.g, {COUNT.format('r.k + 1')} * 2 + r.v AS n FROM r WHERE {COUNT.format('r.k')} = 0",
    "SELECT t.k, (SELECT max(s.v) + count(*) FROM s WHERE s.k = t.k AND s.v > 2) AS m FROM t",
    "SELECT t.k, (SELECT count(DISTINCT v) FROM s WHERE t.g = s.g AND s.k = t.k) AS m,"
    " (SELECT min(v) FROM r WHERE r.g = t.g) AS n FROM t WHERE t.v >= (SELECT min(v) FROM r WHERE t.k = r.k)",
    "SELECT t.k, (SELECT count(v) FILTER (WHERE v > 2) FROM s WHERE s.k = t.k) AS m FROM t",
    "SELECT t.k, r.v FROM t LEFT JOIN r ON t.k = r.k WHERE (SELECT count(*) FROM s WHERE s.g = r.g) < 2",
    "SELECT g, count(*) AS n FROM r x WHERE v = (SELECT max(v) FROM r WHERE k = x.k) GROUP BY g",
    # Groups and joins in the subquery, and subqueries in subqueries.
    "SELECT t.k FROM t WHERE t.v < (SELECT sum(d.n)::BIGINT FROM (SELECT k, g, count(*) AS n FROM r GROUP BY k, g) d"
    " JOIN s ON s.g = d.g WHERE d.k = t.k)",
    "SELECT t.k FROM t WHERE t.v < (SELECT max(r.v) FROM r WHERE r.k = t.k AND r.v > (SELECT avg(v) FROM s))",
    "SELECT t.k FROM t WHERE t.v > (SELECT avg(r.v) FROM r WHERE r.k = t.k AND r.v <"
    " (SELECT max(v) FROM s WHERE s.g = r.g))",
    "SELECT t.k FROM t WHERE t.k IN (SELECT k FROM r WHERE v > (SELECT avg(v) FROM s WHERE s.k = r.k))",
    "SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.g = t.g AND v <"
    " (SELECT max(v) FROM s WHERE s.k = r.k))",
    f"SELECT d.k, d.v FROM (SELECT k, v FROM r WHERE v > {COUNT.format('r.k')}) d JOIN t ON t.k = d.k",
    f"SELECT k, v FROM r WHERE {COUNT.format('r.k')} > 0 QUALIFY"
    " ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) <= 2",
    f"SELECT k, v FROM r WHERE v > (SELECT avg(x.v) FROM ({NUMBERED}) x WHERE rn <= 2 AND x.k = r.k)",
    f"SELECT k, v FROM r WHERE v > (SELECT avg(v) FROM ({NUMBERED}) WHERE rn <= 1)",
    f"SELECT k, v FROM r WHERE v > (WITH x AS ({NUMBERED}) SELECT min(v) FROM x WHERE rn <= 2 AND k > 0)",
    f"WITH x AS ({NUMBERED}) SELECT k, v FROM r WHERE v > (SELECT avg(x.v) FROM x WHERE rn <= 2 AND x.k = r.k)",
    "SELECT k, v FROM r WHERE v > (SELECT max(v) FROM s) OR v < (SELECT count(*) FROM t WHERE t.g = r.g)",
]


@pytest.mark.campaign(3)
@pytest.mark.parametrize("text", TEXTS)
def test_answers_are_those_of_duckdb(text: str) -> None:
    query = query_of(text)
    with duckdb.connect() as database:
        assert sum(play(Random(seed), query, text, database) for seed in range(25))


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT k FROM r WHERE v > (SELECT avg(s.v) FROM s WHERE s.v < r.v)", "s.v < r.v", "equalities of WHERE"),
        ("SELECT k FROM r WHERE v > (SELECT avg(s.v + r.v) FROM s WHERE s.k = r.k)", "r.v)", "equalities of WHERE"),
        (
            "SELECT k FROM r WHERE v > (SELECT avg(s.v) FROM s JOIN t ON t.k = r.k AND s.k = t.k)",
            "r.k AND",
            "no relation 'r' here",
        ),
        ("SELECT k FROM r WHERE v > (SELECT avg(s.v) FROM s WHERE s.k = r.k OR s.v = 1)", "s.k = r.k OR", "equalities"),
        ("SELECT k FROM r WHERE v > (SELECT s.v FROM s WHERE s.k = r.k)", "s.v FROM", "a SELECT of one aggregate"),
        (
            "SELECT k FROM r WHERE v > (SELECT max(s.v) FROM s WHERE s.k = r.k GROUP BY s.g)",
            "max(s.v)",
            "one aggregate without GROUP BY",
        ),
        ("SELECT k FROM r WHERE v > (SELECT max(s.v) FROM s WHERE s.k = z.k)", "z.k", "there is no relation 'z' here"),
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.v < (SELECT max(v) FROM s WHERE s.k = t.k))",
            "t.k))",
            "there is no relation 't' here",
        ),
        ("SELECT k FROM r WHERE v > (SELECT max(s.v) FROM s WHERE s.g = r.k)", "r.k)", "types do not fit"),
    ],
)
def test_what_is_refused(text: str, place: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        sql(text, STREAMS)
    assert text[caught.value.column - 1 :].startswith(place)

"""SQL: each refusal names the place and the remedy."""

from __future__ import annotations

import pytest

from eddy import SqlError, sql
from tests.eddy.sql_streams import STREAMS

REFUSED = [
    ("UPDATE a SET k = 1", 1, 8, "UPDATE is not supported; a statement is a SELECT"),
    ("SELECT a.k FROM a JOIN b ON a.k =", 1, 33, "the expression of an operator or function is missing"),
    ("SELECT a.k\nFROM a JOIN b ON a.k = b.kk", 2, 24, "b has no column 'kk' (the nearest is k)"),
    ("SELECT k FROM a JOIN b ON a.k = b.k", 1, 8, "column 'k' is ambiguous; write a.k or b.k"),
    ("SELECT z.k FROM a JOIN b ON a.k = b.k", 1, 8, "there is no relation 'z' here"),
    ("SELECT a.k FROM a JOIN e ON a.k = e.k", 1, 24, "there is no stream 'e'; there are a, b, c, d"),
    ("SELECT a.k FROM a JOIN a ON a.k = a.k", 1, 24, "two relations are named 'a'"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k ORDER BY a.k", 1, 39, "ORDER is not supported; results come in the order"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k LIMIT 5", 1, 39, "LIMIT is not supported"),
    ("SELECT DISTINCT ON (a.k) a.v FROM a JOIN b ON a.k = b.k", 1, 8, "DISTINCT ON is not supported; write GROUP BY"),
    ("SELECT DISTINCT a.k FROM a JOIN b ON a.k = b.k GROUP BY a.k", 1, 48, "DISTINCT has no meaning beside groups"),
    ("SELECT DISTINCT COUNT(*) FROM a JOIN b ON a.k = b.k", 1, 17, "DISTINCT has no meaning beside groups"),
    ("SELECT a.k FROM a, b", 1, 20, "nothing connects b with the other streams: a join needs an equality"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.v > 1e999", 1, 51, "'1e999' is no number"),
    (
        "SELECT a.k FROM b RIGHT JOIN a ON a.k = b.k JOIN c ON COALESCE(b.k, 1) = c.k",
        1,
        55,
        "nothing else connects c, and this condition reads columns that may be missing because of an outer join",
    ),
    ("SELECT a.k FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON c.k = a.v", 1, 54, "a FULL OUTER JOIN has two streams"),
    (
        "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k LEFT ANTI JOIN c ON c.k = b.k",
        1,
        59,
        "may be missing because of an outer join",
    ),
    (
        "SELECT a.k FROM a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.k = a.k AND b.k IS NULL",
        1,
        54,
        "whether this join finds a row depends on columns that may be missing, also where they are missing",
    ),
    (
        "SELECT a.k FROM (SELECT * FROM a WHERE v > 1) AS x FULL JOIN b ON x.k = b.k",
        1,
        62,
        "the conditions of a subquery below a FULL OUTER JOIN are not supported yet",
    ),
    (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND a.v > (SELECT MAX(v) FROM c)",
        1,
        57,
        "as a value is not supported here",
    ),
    (
        "SELECT a.f OR EXISTS (SELECT 1 FROM c) AS e FROM a JOIN b ON a.k = b.k",
        1,
        15,
        "are conditions of WHERE, joined",
    ),
    (
        "SELECT k FROM a JOIN b USING (k) JOIN c ON c.k = a.v",
        1,
        8,
        "column 'k' is ambiguous; write c.k, or a",
    ),
    ("SELECT a.k FROM a JOIN b USING (z)", 1, 33, "USING: one side has no column 'z'; it has k, v"),
    ("SELECT (SELECT 1) FROM a JOIN b ON a.k = b.k", 1, 16, "a SELECT needs FROM"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY a.at) FROM a JOIN b ON a.k = b.k", 1, 8, "OVER (…) is not supported"),
    ("SELECT FLOOOR(a.v) FROM a JOIN b ON a.k = b.k", 1, 8, "there is no function FLOOOR (the nearest is FLOOR)"),
    ("SELECT a.k + a.s FROM a JOIN b ON a.k = b.k", 1, 14, "+ needs numbers, but a.s is STRING"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.s > 3", 1, 45, "the types do not fit together"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.v", 1, 45, "a condition is expected, but a.v is INTEGER"),
    ("SELECT a.s LIKE b.s FROM a JOIN b ON a.k = b.k", 1, 17, "the pattern of LIKE must be a constant"),
    ("SELECT SUBSTRING(a.s, a.v) FROM a JOIN b ON a.k = b.k", 1, 23, "the start of SUBSTRING must be a constant"),
    ("SELECT TRY_CAST(a.s AS INT) FROM a JOIN b ON a.k = b.k", 1, 17, "TRY_CAST is not supported"),
    ("SELECT a.at + INTERVAL '1' MONTH FROM a JOIN b ON a.k = b.k", 1, 15, "a month has no fixed length"),
    (
        "SELECT a.v FROM a JOIN b ON a.k = b.k GROUP BY a.k",
        1,
        8,
        "a.v is neither in GROUP BY nor inside of an aggregate",
    ),
    ("SELECT SUM(MAX(a.v)) FROM a JOIN b ON a.k = b.k", 1, 12, "an aggregate of an aggregate needs a second query"),
    (
        "SELECT a.k, AVG(a.v) OVER (PARTITION BY a.k ORDER BY a.at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS m"
        " FROM a JOIN b ON a.k = b.k",
        1,
        13,
        "write SELECT k, AVG(v) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a.k ORDER BY a.at DESC) AS rn FROM …)"
        " WHERE rn <= 10 GROUP BY k",
    ),
    (
        "SELECT m FROM (SELECT SUM(v) OVER (ORDER BY at ROWS 4 PRECEDING) AS m FROM a) WHERE m > 1",
        1,
        23,
        "write SELECT SUM(v) FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY at DESC) AS rn FROM …) WHERE rn <= 5",
    ),
    ("SELECT SUM(v) OVER (ORDER BY at) AS m FROM a", 1, 8, "last follower; write GROUP BY with TUMBLE"),
    (
        "SELECT a.k FROM a JOIN b ON a.k = b.k UNION SELECT c.s FROM c JOIN b ON c.k = b.k",
        1,
        8,
        "the SELECTs of UNION have different types",
    ),
    (
        "SELECT a.k FROM a JOIN b ON a.k = b.k UNION ALL SELECT c.s FROM c JOIN b ON c.k = b.k",
        1,
        56,
        "the SELECTs of UNION ALL have different types",
    ),
    ("INSERT INTO a VALUES (1)", 1, 13, "INSERT is not supported"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED, ids=[text for text, *_ in REFUSED])
def test_each_refusal_has_a_place_and_a_remedy(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        sql(text, STREAMS)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"SQL, line {caught.value.line}, column {caught.value.column}: ")
    assert (caught.value.line, caught.value.column) == (line, column)


def test_places_are_those_of_the_whole_text() -> None:
    with pytest.raises(SqlError) as caught:
        sql("EXPLAIN\n  SELECT a.z FROM a JOIN b ON a.k = b.k", STREAMS)
    assert (caught.value.line, caught.value.column) == (2, 10)

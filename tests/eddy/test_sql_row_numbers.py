"""SQL: ROW_NUMBER() OVER (…) <= n is `top`; its forms, its answers beside DuckDB, its refusals."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from eddy import Query, QueryError, Runtime, SqlError, Stream, Top, Unbounded, agg, sql, to_sql
from eddy.query.text import query_text
from tests.eddy.sql_streams import STREAMS

JOINED = "FROM a JOIN b ON a.k = b.k"
OVER = "ROW_NUMBER() OVER (PARTITION BY a.s ORDER BY b.v DESC, a.x NULLS FIRST)"
WANTED = Query(
    STREAMS[:2],
    ["a.k = b.k"],
    select={"k": "a.k"},
    top=Top(2, "a.s", ["b.v desc", "a.x nulls first"]),
)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT k FROM (SELECT a.k, {OVER} AS rn {JOINED}) WHERE rn <= 2",
        f"SELECT k FROM (SELECT a.k, {OVER} AS rn {JOINED}) AS x WHERE x.rn < 3",
        f"SELECT x.i AS k FROM (SELECT a.k, {OVER} AS rn {JOINED}) AS x (i) WHERE 2 >= rn",
        f"WITH x AS (SELECT a.k, b.f, {OVER} AS rn {JOINED}) SELECT k FROM x WHERE rn <= 2",
        f"SELECT a.k {JOINED} QUALIFY {OVER} <= 2",
        f"SELECT a.k {JOINED} QUALIFY 3 > {OVER}",
    ],
)
def test_each_form_gives_the_same_query(text: str) -> None:
    query = sql(text, STREAMS)
    assert query_text(query) == query_text(WANTED)
    assert query_text(sql(to_sql(query), STREAMS)) == query_text(WANTED)


def test_the_number_may_be_a_column() -> None:
    inner = f"SELECT a.k, {OVER} AS rn {JOINED}"
    for text in (f"SELECT * FROM ({inner}) WHERE rn = 1", f"SELECT k, rn FROM ({inner}) WHERE rn = 1"):
        assert sql(text, STREAMS).output_schema.names == ["k", "rn"]
    named = sql(f"SELECT k, rn AS place FROM ({inner}) WHERE rn = 1", STREAMS)
    assert named.output_schema.names == ["k", "place"]
    assert query_text(sql(to_sql(named), STREAMS)) == query_text(named)
    qualified = sql(f"{inner} QUALIFY rn = 1", STREAMS)
    assert query_text(qualified) == query_text(sql(f"SELECT * FROM ({inner}) WHERE rn = 1", STREAMS))


def test_one_stream_keeps_its_first_rows() -> None:
    text = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC) AS rn FROM a) WHERE rn = 1"
    query = sql(text, [Stream("a", STREAMS[0].schema, time="at")])
    runtime = Runtime(query, output="upsert")
    rows = pa.Table.from_pylist([{"k": k % 2, "v": k, "at": k} for k in range(5)], schema=STREAMS[0].schema)
    assert [row["v"] for row in runtime.push({"a": rows}).to_pylist()] == [4, 3]
    assert to_sql(query).endswith("ORDER BY a.at DESC) AS row_num FROM a) WHERE row_num <= 1")


TEXTS = [
    f"SELECT a.k, b.v {JOINED} AND a.v < b.v"
    " QUALIFY ROW_NUMBER() OVER (PARTITION BY a.k ORDER BY a.v + b.v, a.n, b.n) <= 2",
    "SELECT * FROM (SELECT a.s, b.n, ROW_NUMBER() OVER (PARTITION BY UPPER(a.s) ORDER BY b.n DESC, a.n) AS rn"
    f" {JOINED} WHERE b.v > 1) WHERE rn < 4",
    "SELECT s, n FROM (SELECT a.s, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, a.s DESC NULLS FIRST)"
    f" AS rn {JOINED} GROUP BY a.s) WHERE rn <= 2",
    "SELECT k, m FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY m ORDER BY k) AS rn FROM (SELECT a.k, MAX(b.v) AS m"
    f" {JOINED} GROUP BY a.k HAVING COUNT(*) > 1) AS x) AS y WHERE rn = 1",
    "SELECT a.k, b.s FROM a LEFT JOIN b ON a.k = b.k AND b.v > 2"
    " QUALIFY ROW_NUMBER() OVER (PARTITION BY b.s ORDER BY b.n, a.n) = 1",
]


@pytest.mark.campaign(2)
@pytest.mark.parametrize("text", TEXTS)
def test_answers_are_those_of_duckdb(text: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
    streams = [Stream(name, schema, window=Unbounded()) for name in "ab"]
    query = sql(text, streams)
    for seed in range(20):
        draw = random.Random(seed)
        rows = {
            name: pa.Table.from_pylist(
                [
                    {
                        "k": draw.choice([0, 1, 2, None]),
                        "v": draw.randrange(4),
                        "s": draw.choice(["x", "y", None]),
                        "n": n,
                    }
                    for n in range(draw.randrange(12))
                ],
                schema=schema,
            )
            for name in "ab"
        }
        database = duckdb.connect()
        for name, table in rows.items():
            database.register(name, table)
        runtime = Runtime(query, bounded=True)
        runtime.push(rows, [k for k, table in enumerate(rows.values()) for _ in range(len(table))])
        answer = [tuple(row.values()) for row in runtime.finish().to_pylist()]
        assert sorted(map(str, answer)) == sorted(map(str, database.sql(text).fetchall()))


INNER = "SELECT a.k, ROW_NUMBER() OVER (ORDER BY b.v) AS rn FROM a JOIN b ON a.k = b.k"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (f"SELECT k FROM ({INNER}) WHERE rn > 3", "rn > 3", "needs an upper bound of its number"),
        (f"SELECT k FROM ({INNER}) WHERE rn <= 0", "rn <= 0", "n a number from 1"),
        (f"SELECT k FROM ({INNER}) WHERE rn < 3 OR k = 1", "rn < 3 OR", "needs an upper bound of its number"),
        (f"SELECT k FROM ({INNER}) WHERE rn IN (k, 2)", "rn IN", "needs an upper bound of its number"),
        (f"SELECT k FROM ({INNER})", "ROW_NUMBER", "needs an upper bound of its number"),
        (f"SELECT k, COUNT(*) AS n FROM ({INNER}) GROUP BY k", "ROW_NUMBER", "needs an upper bound of its number"),
        (f"SELECT k FROM ({INNER}) AS x WHERE y.rn <= 3", "y.rn", "there is no relation 'y'"),
        (f"SELECT x.k FROM ({INNER}) AS x RIGHT JOIN c ON c.k = x.k AND y.rn < 3", "ROW_NUMBER", "an upper bound"),
        (f"SELECT c.k FROM ({INNER}) AS x LEFT JOIN c ON c.k = x.k AND rn < 3", "ROW_NUMBER", "an upper bound"),
        (f"SELECT k FROM ({INNER.replace('ROW_NUMBER', 'RANK')}) WHERE rn <= 3", "RANK", "rows of equal order one"),
        (f"SELECT k FROM ({INNER.replace('ROW_NUMBER()', 'SUM(b.v)')}) WHERE rn <= 3", "SUM", "SUM OVER (…) is not"),
        (f"SELECT k FROM ({INNER.replace('b.v)', 'b.z)')}) WHERE rn <= 3", "b.z", "b has no column 'z'"),
        ("SELECT a.k FROM a JOIN b ON a.k = b.k QUALIFY a.k > 2", "QUALIFY", "takes ROW_NUMBER() alone"),
    ],
)
def test_other_forms_are_refused(text: str, place: str, message: str) -> None:
    with pytest.raises(SqlError, match=message.replace("(", r"\(").replace(")", r"\)")) as caught:
        sql(text, STREAMS)
    assert text[caught.value.column - 1 :].startswith(place)


def test_a_query_over_groups_of_python_has_no_text() -> None:
    counts: dict[str, Any] = {"group_by": ["a.s"], "aggregates": {"n": agg.count()}}
    with pytest.raises(QueryError, match="no text in SQL"):
        to_sql(Query(STREAMS[:2], ["a.k = b.k"], top=Top(1, order="n"), **counts))

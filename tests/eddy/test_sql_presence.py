"""SQL: what a subquery computes is NULL exactly in rows that lack its row, whether or not its columns are null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import Branch, Query, Runtime, SqlError, Stream, Unbounded, agg, sql, to_sql
from eddy.dialect.printing import table_streams
from eddy.fuzz.sql.case import SCHEMA, TABLES, Row, SqlCase
from eddy.fuzz.sql.play import play
from eddy.query.text import query_text
from eddy.streams.stream import PRESENCE

STREAMS = [Stream(name, SCHEMA, window=Unbounded(), time="at") for name in TABLES]
KEYS: tuple[int | None, ...] = (None, 0, 1, 2)
ROWS: dict[str, tuple[Row, ...]] = {
    name: tuple((k, None if k in (i, None) else 4, *[None] * 4, 10 * i + j) for j, k in enumerate(KEYS) if k != i)
    for i, name in enumerate(TABLES)
}
"""Rows without a partner, rows with one, and rows that have nothing but NULLs beside their event time."""
COMPUTED = "SELECT k, 'x' AS c, v IS NULL AS n, COALESCE(v, 7) AS v, CASE WHEN v > 3 THEN v ELSE 0 END AS e"
JOINS = {
    "left": "l LEFT JOIN r ON r.k = l.k",
    "right": "l RIGHT JOIN r ON r.k = l.k",
    "full": "l FULL JOIN r ON r.k = l.k",
    "full by comparison": "l FULL JOIN r ON r.k < l.k",
    "full using": "l FULL JOIN r USING (k)",
    "left using": "l LEFT JOIN r USING (k)",
    "chain": "l LEFT JOIN m ON m.k = l.k LEFT JOIN r ON r.k = m.k",
    "chain to the right": "l LEFT JOIN m ON m.k = l.k RIGHT JOIN r ON r.k = l.k",
    "in parentheses": "l LEFT JOIN (m JOIN r ON r.k = m.k) ON l.k = m.k",
    "below a subquery": "l LEFT JOIN (SELECT r.* FROM m LEFT JOIN r ON r.k = m.k) AS r ON r.k = l.k",
}
READS = {
    "select": ("l.c AS lc, l.n AS ln, l.v AS lv, l.e AS le, r.c AS rc, r.n AS rn, r.v AS rv, r.e AS re", ""),
    "nested": ("COALESCE(r.c, 'none') AS a, r.c IS NULL AS b, r.n OR l.n AS c, r.v + l.v AS d", ""),
    "equals": ("l.c AS lc, r.n AS rn", "WHERE r.c = 'x'"),
    "is null": ("l.c AS lc, r.n AS rn", "WHERE r.c IS NULL"),
    "is not null": ("l.c AS lc, r.n AS rn", "WHERE l.n IS NOT NULL"),
    "or": ("l.c AS lc, r.n AS rn", "WHERE r.v = 7 OR l.e = 0"),
    "case": ("CASE WHEN l.n THEN 1 WHEN r.n THEN 2 ELSE 3 END AS c", "WHERE COALESCE(r.v, -1) < 5"),
    "count": ("COUNT(r.c) AS a, COUNT(l.n) AS b, SUM(r.v) AS c, COUNT(*) AS d, MIN(r.e) AS e", ""),
    "groups": ("r.c AS g, COUNT(l.c) AS n", "GROUP BY r.c HAVING COUNT(l.e) >= 0"),
    "filter": ("COUNT(*) FILTER (WHERE l.n) AS a, SUM(l.v) FILTER (WHERE r.c = 'x') AS b", ""),
}


@pytest.mark.campaign(30)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("joined", JOINS)
def test_computed_columns_are_null_where_their_row_is_missing(joined: str, read: str) -> None:
    chosen, rest = READS[read]
    tables = [(name, table) for name, table in zip("lmr", "abc", strict=True) if f"{name}." in JOINS[joined] + chosen]
    before = ", ".join(f"{name} AS ({COMPUTED} FROM {table})" for name, table in tables)
    text = f"WITH {before} SELECT {chosen} FROM {JOINS[joined]} {rest}"
    play(SqlCase(ROWS, text, text, kept=True, pushes=2, strategy="eddy"))


def pushed(query: Query, **options: Any) -> list[dict[str, Any]]:
    """Return the results of a query over the rows."""
    runtime = Runtime(query, bounded=True, **options)
    case = SqlCase(ROWS, "", "", True, 1, "")
    tables = [runtime.push(query.inputs({name: case.rows(name) for name in TABLES}))]
    assert eddy.Runtime.restore(runtime.snapshot(), query).query is query
    return pa.concat_tables([*tables, runtime.finish()]).to_pylist()


FULL = f"SELECT l.c AS l, r.c AS r FROM ({COMPUTED} FROM a) AS l FULL JOIN ({COMPUTED} FROM b) AS r ON r.k = l.k"


def rows(results: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, results))


def test_changes_say_which_side_is_missing() -> None:
    changes = pushed(sql(FULL, STREAMS), output="changelog")
    kept: list[str] = []
    for change in changes:
        row = repr({name: value for name, value in change.items() if name != "op"})
        if change["op"] == "+I":
            kept.append(row)
        else:
            kept.remove(row)
    assert sorted(kept) == rows(pushed(sql(FULL, STREAMS)))


def test_present_is_a_function_of_sql_and_of_python() -> None:
    query = sql("SELECT a.k, PRESENT(x) AS there, PRESENT(a) AS here FROM a LEFT JOIN b AS x ON x.k = a.k", STREAMS)
    assert to_sql(query) == "SELECT a.k AS k, PRESENT(b) AS there, TRUE AS here FROM a LEFT JOIN b ON b.k = a.k"
    assert query_text(sql(to_sql(query), table_streams(query))) == query_text(query)
    assert query.output_schema.field("there") == pa.field("there", pa.bool_(), False)
    branch = Branch(STREAMS[1:2], ["b.k = a.k"], "left")
    select: dict[str, Any] = {"k": "a.k", "there": "PRESENT(b)", "not": "NOT PRESENT(b)", "a": "PRESENT(a)"}
    select["arrow"] = pc.field("PRESENT(b)")
    given = Query(STREAMS[:1], branches=[branch], select=select)
    results = pushed(given)
    assert rows([{"k": row["k"], "there": row["there"], "here": True} for row in results]) == rows(pushed(query))
    assert all((row["not"], row["arrow"], row["a"]) == (not row["there"], row["there"], True) for row in results)
    alone = Query(STREAMS[:1], branches=[branch], where=pc.invert(pc.field("PRESENT(b)")), select=["a.k", "PRESENT(b)"])
    assert rows(pushed(alone)) == rows([{"a.k": row["k"], "PRESENT(b)": False} for row in results if not row["there"]])
    groups = Query(STREAMS[:1], branches=[branch], group_by=["PRESENT(b)"], aggregates={"n": agg.count()})
    counts = [{"PRESENT(b)": there, "n": sum(row["there"] == there for row in results)} for there in (False, True)]
    assert rows(pushed(groups)) == rows(counts)


@pytest.mark.parametrize("given", ["z", "a.k", "1", "a, b", "", "*"])
def test_present_takes_the_name_of_a_relation(given: str) -> None:
    with pytest.raises(SqlError, match="PRESENT takes the name of a relation"):
        sql(f"SELECT PRESENT({given}) AS x FROM a LEFT JOIN b ON a.k = b.k", STREAMS)


def test_columns_of_users_do_not_collide() -> None:
    names = ["present", "PRESENT", "PRESENT(b)", "there", "k"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    streams = [Stream(name, schema, window=Unbounded()) for name in ("a", "b", "PRESENT(a)")]
    text = 'SELECT p."PRESENT(b)" AS x, PRESENT(b) AS y, p.one FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN'
    query = sql(f'{text} (SELECT *, 1 AS one FROM "PRESENT(a)") AS p ON p.k = a.k', streams)
    runtime = Runtime(query, bounded=True)
    for name in ("PRESENT(a)", "a"):
        runtime.push({name: [dict.fromkeys(names, 1)]})
    assert runtime.finish().to_pylist() == [{"x": 1, "y": False, "one": 1}]
    with pytest.raises(eddy.QueryError, match="no column can be named"):
        Stream("a", pa.schema([(PRESENCE, pa.int64())]))

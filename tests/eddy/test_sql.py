"""SQL: each construct gives the query that it stands for."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import (
    Branch,
    Engine,
    Query,
    QueryError,
    Range,
    Rows,
    Runtime,
    SqlError,
    Stream,
    Unbounded,
    UnionAll,
    sql,
    to_sql,
)
from eddy.dialect.printing import table_streams
from eddy.query.text import query_text
from tests.eddy.sql_streams import SCHEMA, STREAMS, TIMED, a_and_b

pytestmark = pytest.mark.versions


def same(text: str, wanted: Query, streams: list[Stream] = STREAMS) -> None:
    """Check that a statement gives a query, and that the query prints itself as a statement that gives it again."""
    query = sql(text, streams)
    assert query_text(query) == query_text(wanted)
    again = sql(to_sql(query), table_streams(query))
    assert query_text(again)["branches"] == query_text(query)["branches"]


def full(tables: dict[str, list[dict[str, Any]]]) -> dict[str, pa.Table]:
    """Return rows by stream, with nulls in the columns that they leave out."""
    return {name: pa.Table.from_pylist(rows, schema=SCHEMA) for name, rows in tables.items()}


# Joins


@pytest.mark.parametrize(
    ("on", "predicates"),
    [
        ("a.k = b.k", ["a.k = b.k"]),
        ("(a.k, a.v) = (b.k, b.v)", ["a.k = b.k", "a.v = b.v"]),
        ("a.k = b.k AND a.v < b.v + 3", ["a.k = b.k", "a.v < b.v + 3"]),
        ("a.k = b.k AND a.v - b.v <= 3", ["a.k = b.k", "a.v <= b.v + 3"]),
        ("a.v BETWEEN b.v - 5 AND b.v + 5", ["a.v between b.v - 5 and b.v + 5"]),
        ("ABS(a.v - b.v) < 5", ["a.v < b.v + 5", "a.v > b.v - 5"]),
        ("5 >= a.v - b.v AND a.k <> b.k", ["a.v <= b.v + 5", "a.k <> b.k"]),
        ("a.k = b.k AND b.at <= a.at + INTERVAL '30' MINUTE", ["a.k = b.k", "b.at <= a.at + 30 min"]),
        ("a.k = b.k AND b.at - a.at <= INTERVAL '1 day'", ["a.k = b.k", "b.at <= a.at + 1 d"]),
        ("a.x < b.x + 0.5", ["a.x < b.x + 0.5"]),
        ("a.d + 0.25 >= b.d", ["a.d + 0.25 >= b.d"]),
    ],
)
def test_conditions_on_two_streams_are_predicates(on: str, predicates: list[str]) -> None:
    same(f"SELECT a.k FROM a JOIN b ON {on}", Query(a_and_b(), predicates, select={"k": "a.k"}))


def test_windows_follow_from_intervals() -> None:
    on = ["a.k = b.k", "b.at between a.at and a.at + 30 min"]
    text = "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '30' MINUTE"
    same(text, Query([Stream(n, SCHEMA, time="at") for n in "ab"], on, select={"k": "a.k"}), TIMED)
    with pytest.raises(SqlError, match="stream a would be kept forever"):
        sql("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.at > a.at", TIMED)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("a LEFT JOIN b ON a.k = b.k", "left"),
        ("b RIGHT OUTER JOIN a ON a.k = b.k", "left"),
        ("a LEFT SEMI JOIN b ON a.k = b.k", "semi"),
        ("a ANTI JOIN b ON a.k = b.k", "anti"),
        ("a FULL OUTER JOIN b ON a.k = b.k", "full"),
        ("a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)", "semi"),
        ("a WHERE NOT EXISTS (SELECT * FROM b WHERE a.k = b.k)", "anti"),
        ("a WHERE a.k IN (SELECT k FROM b)", "semi"),
    ],
)
def test_other_joins_are_branches(text: str, how: Any) -> None:
    stream, other = a_and_b()
    same(
        f"SELECT a.k FROM {text}", Query([stream], branches=[Branch([other], ["a.k = b.k"], how)], select={"k": "a.k"})
    )


def test_branches_beside_a_semi_join_may_read_streams_above_it() -> None:
    text = "SELECT a.k, d.v FROM a LEFT JOIN (b LEFT SEMI JOIN c ON b.k = c.k) ON a.k = b.k"
    query = sql(f"{text} LEFT JOIN d ON d.k = a.k AND d.v = b.v", STREAMS)
    assert to_sql(sql(to_sql(query), STREAMS)) == to_sql(query)
    # In SQL, what stands in parentheses cannot read a.
    above = Branch(STREAMS[1:2], ["a.k = b.k"], "left", [Branch(STREAMS[2:3], ["b.k = c.k", "a.v = c.v"], "semi")])
    with pytest.raises(QueryError, match="has no text in SQL"):
        to_sql(Query(STREAMS[:1], branches=[above], select=["a.k"]))


def test_joins_hang_on_what_they_read() -> None:
    query = sql("SELECT * FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON c.k = b.v LEFT JOIN d ON d.k = a.v", STREAMS)
    assert (
        query_text(query)["branches"]
        == "core(a: ; left(b: a.k = b.k; left(c: a.k = b.k and b.v = c.k)); left(d: a.v = d.k))"
    )
    nested = sql("SELECT a.k FROM a LEFT JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k", STREAMS)
    assert [stream.name for stream in nested.branches[0].streams] == ["b", "c"]


def test_an_outer_join_whose_missing_rows_are_rejected_is_an_inner_one() -> None:
    for text in (
        "a LEFT JOIN b ON a.k = b.k WHERE b.v > 2",
        "b RIGHT JOIN a ON a.k = b.k AND b.v > 2 WHERE b.s LIKE '%'",
    ):
        assert type(sql(f"SELECT a.k FROM {text}", STREAMS)) is Query
    kept = sql("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.v > 2 OR b.v IS NULL", STREAMS)
    assert [condition.title for condition in kept.conditions] == ["b.v > 2 OR b.v IS NULL"]
    full = sql("SELECT a.k FROM a FULL JOIN b ON a.k = b.k WHERE a.v > 2", STREAMS)
    assert full.branches[0].how == "left"


def test_conditions_on_one_stream_are_filters_but_not_below_a_window_of_rows() -> None:
    query = sql("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.v > 1 WHERE a.v > 3 AND a.s = 'x'", STREAMS)
    assert [[condition.title for condition in stream.conditions] for stream in query.streams] == [
        ["a.v > 3", "a.s = 'x'"],
        ["b.v > 1"],
    ]
    rows = [Stream(name, SCHEMA, window=Rows(5)) for name in "ab"]
    counted = sql("SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.v > 3", rows)
    assert not counted.streams[0].conditions
    assert [condition.title for condition in counted.conditions] == ["a.v > 3"]


def test_a_filter_of_the_stream_stays() -> None:
    given = Stream("a", SCHEMA, window=Unbounded(), filter=pc.field("v") > 0)
    query = sql("SELECT a.k FROM a JOIN b ON a.k = b.k WHERE a.v < 9", [given, STREAMS[1]])
    assert [condition.title for condition in query.streams[0].conditions] == ["(v > 0)", "a.v < 9"]


def test_a_table_that_occurs_twice_is_two_streams() -> None:
    query = sql("SELECT x.v, y.v FROM a AS x JOIN a AS y ON x.k = y.k JOIN b AS z ON z.k = x.k", STREAMS)
    assert [stream.name for stream in query.streams] == ["x", "y", "b"]
    assert query.tables == {"x": "a", "y": "a", "b": "b"}
    assert query.inputs({"a": 1, "b": 2, "c": 3}) == {"x": 1, "y": 1, "b": 2}
    assert query.output_schema.names == ["x.v", "y.v"]


def test_subqueries_and_common_tables_flatten() -> None:
    text = """
        WITH large AS (SELECT k, v * 2 AS w, at FROM b WHERE v > 10), named (key, twice) AS (SELECT k, w FROM large)
        SELECT a.k, named.twice FROM a JOIN named ON a.k = named.key
    """
    query = sql(text, STREAMS)
    assert [condition.title for condition in query.streams[1].conditions] == ["b.v > 10"]
    assert to_sql(query) == "SELECT a.k AS k, b.v * 2 AS twice FROM a JOIN b ON a.k = b.k WHERE b.v > 10"


def test_a_constant_of_a_missing_side_is_null() -> None:
    query = sql("SELECT a.k, p.one FROM a LEFT JOIN (SELECT k, 1 AS one FROM b) AS p ON a.k = p.k", STREAMS)
    runtime = Runtime(query, bounded=True)
    runtime.push(full({"a": [{"k": 1, "at": 0}, {"k": 2, "at": 0}], "b": [{"k": 1, "at": 0}]}))
    assert runtime.finish().to_pylist() == [{"k": 2, "one": None}]


def test_using_merges_columns() -> None:
    query = sql("SELECT * FROM a JOIN b USING (k, at)", STREAMS)
    assert query.output_schema.names == [
        "k",
        "at",
        "a.v",
        "a.d",
        "a.x",
        "a.s",
        "a.f",
        "b.v",
        "b.d",
        "b.x",
        "b.s",
        "b.f",
    ]
    assert to_sql(sql("SELECT k FROM a FULL JOIN b USING (k)", STREAMS)).startswith("SELECT COALESCE(a.k, b.k) AS k")


@pytest.mark.parametrize(
    ("joins", "names"),
    [
        ("a JOIN b USING (k)", ["k", "x", "a.j", "y", "b.j"]),
        ("a JOIN b USING (k) JOIN c ON c.k = a.x", ["k", "x", "a.j", "y", "b.j", "z", "c.k", "c.j"]),
        ("a JOIN b USING (k) JOIN c USING (k)", ["k", "x", "a.j", "y", "b.j", "z", "c.j"]),
        ("a JOIN b USING (k, j) JOIN c USING (j)", ["j", "k", "x", "y", "z", "c.k"]),
        ("a JOIN b USING (j, k)", ["j", "k", "x", "y"]),
        ("a FULL JOIN b USING (j)", ["j", "x", "a.k", "y", "b.k"]),
        ("a RIGHT JOIN b USING (j) LEFT JOIN c USING (k, j)", None),
        ("a JOIN (b JOIN c USING (k)) ON a.j = b.j", ["x", "a.k", "a.j", "k", "y", "b.j", "z", "c.j"]),
        ("a JOIN (b JOIN c USING (k)) USING (k)", ["k", "x", "a.j", "y", "b.j", "z", "c.j"]),
        ("a LEFT JOIN (b JOIN c USING (k)) AS p USING (k)", None),
        (
            "(a JOIN b USING (k)) JOIN (c JOIN a AS d USING (k)) USING (k)",
            ["k", "a.x", "a.j", "y", "b.j", "z", "c.j", "d.x", "d.j"],
        ),
    ],
)
def test_a_star_has_the_order_of_the_standard(joins: str, names: list[str] | None) -> None:
    """Columns of USING first, the last USING before those that it joins, then the rest of the left and right side."""
    schemas = {"a": "xkj", "b": "ykj", "c": "zkj"}
    streams = [
        Stream(name, pa.schema([(column, pa.int64()) for column in columns]), window=Unbounded())
        for name, columns in schemas.items()
    ]
    if names is None:
        with pytest.raises(SqlError, match="ambiguous" if " AS p" not in joins else "named 'j'"):
            sql(f"SELECT * FROM {joins}", streams)
    else:
        assert sql(f"SELECT * FROM {joins}", streams).output_schema.names == names


# Expressions


def value(text: str, **columns: Any) -> Any:
    """Return the value of an expression in a result."""
    runtime = Runtime(sql(f"SELECT {text} AS value FROM a JOIN b ON a.k = b.k", STREAMS))
    table = runtime.push(full({"a": [{"k": 1, "at": 0, **columns}], "b": [{"k": 1, "at": 0}]}))
    return table["value"].to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7 / 2", 3.5),
        ("-7 DIV 2", -3),
        ("-7 % 3", -1),
        ("a.v / 0", None),
        ("a.v DIV 0", None),
        ("a.v % 0", None),
        ("a.v + NULL", None),
        ("a.d * 2.5", Decimal("3.75000")),
        ("CAST(2.7 AS INT)", 2),
        ("CAST(-2.7 AS BIGINT)", -2),
        ("CAST(1.255 AS DECIMAL(4, 2))", Decimal("1.26")),
        ("CAST(' 12 ' AS INT)", 12),
        ("ROUND(2.5)", Decimal("3.0")),
        ("ROUND(-0.5)", Decimal("-1.0")),
        ("NULL OR TRUE", True),
        ("NULL AND TRUE", None),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (2, 3)", True),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("'a_c' LIKE 'a!_c' ESCAPE '!'", True),
        ("'abc' LIKE 'a!_c' ESCAPE '!'", False),
        ("'a\\c' LIKE 'a\\c'", True),
        ("POSITION('ü' IN 'müsli')", 2),
        ("POSITION('s' IN 'müsli')", 3),
        ("POSITION('z' IN 'müsli')", 0),
        ("SUBSTRING('hello', 2, 3)", "ell"),
        ("SUBSTRING('hello' FROM -3)", "llo"),
        ("LPAD('abc', 2)", "ab"),
        ("TRIM('  x\t')", "x\t"),
        ("GREATEST(1, NULL, 3)", 3),
        ("CONCAT('a', NULL)", None),
        ("REGEXP_EXTRACT('id=42;', 'id=([0-9]+)')", "42"),
        ("REGEXP_EXTRACT('none', 'id=([0-9]+)')", ""),
        ("CASE WHEN a.v > 100 THEN 1 END", None),
        ("IF(a.s = 'x', 'yes', 'no')", "yes"),
        ("TIMESTAMPDIFF(MINUTE, a.at, a.at + INTERVAL '150' SECOND)", 2),
        ("EXTRACT(YEAR FROM DATE '2026-03-01')", 2026),
        ("DATE '2026-03-01' + INTERVAL '1' DAY = DATE '2026-03-02'", True),
        ("a.at < '2026-01-01'", True),
        ("TUMBLE_START(TIMESTAMP '1969-12-31 23:59:59', INTERVAL '1' MINUTE) = '1969-12-31 23:59:00'", True),
    ],
)
def test_values_follow_sql(text: str, wanted: Any) -> None:
    assert value(text, v=7, d=Decimal("1.50"), s="x") == wanted


def test_a_row_with_a_value_that_does_not_fit_is_left_out_and_names_the_column() -> None:
    runtime = Runtime(sql("SELECT a.k * 9000000000000000000 AS much FROM a JOIN b ON a.k = b.k", STREAMS))
    rows = [{"k": k, "at": 0} for k in (5, 0)]
    assert runtime.push(full({"a": rows, "b": rows})).to_pylist() == [{"much": 0}]
    (failed,) = runtime.failed().to_pylist()
    assert (failed["kind"], failed["expression"]) == ("select", "a.k * 9000000000000000000 AS much")
    assert failed["reason"] == "overflow"
    assert ("a.k", "5") in failed["row"]


def test_a_query_takes_expressions_in_select() -> None:
    stream, other = a_and_b()
    select = {"twice": "a.v * 2", "arrow": pc.add(pc.field("a.v"), pc.field("b.v")), "k": "a.k"}
    query = Query([stream, other], ["a.k = b.k"], select=select)
    assert query.output_schema == pa.schema([("twice", pa.int64()), ("arrow", pa.int32()), ("k", pa.int64())])
    rows = {"a": [{"k": 1, "v": 4, "at": 0}], "b": [{"k": 1, "v": 5, "at": 0}]}
    wanted = [{"twice": 8, "arrow": 9, "k": 1}]
    assert Runtime(query).push(full(rows)).to_pylist() == wanted
    restored = Runtime.restore(Runtime(query).snapshot(), query)
    assert restored.push(full(rows)).to_pylist() == wanted
    engine = Engine([stream, other])
    engine.start("q", query)
    assert engine.push(full(rows))["q"].to_pylist() == wanted
    changes = Runtime(query, output="changelog").push(full(rows)).to_pylist()
    assert changes == [{"op": "+I", **wanted[0]}]
    other_query = Query([stream, other], ["a.k = b.k"], select={**select, "twice": "a.v * 3"})
    thrice = Runtime.restore(Runtime(query).snapshot(), other_query).push(full(rows))
    assert thrice.to_pylist() == [{**wanted[0], "twice": 12}]


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.large_string()])
def test_encoded_texts_are_texts(kind: pa.DataType) -> None:
    rows = pa.schema([("k", pa.int64()), ("s", kind)])
    query = sql(
        "SELECT UPPER(a.s) || b.s AS both FROM a JOIN b ON a.k = b.k WHERE a.s LIKE 'x%'",
        [Stream("a", rows), Stream("b", pa.schema([("k", pa.int64()), ("s", pa.string())]))],
    )
    batch = pa.record_batch({"k": [1, 2], "s": pa.array(["xa", "ya"])})
    table = Runtime(query).push({"a": batch, "b": batch}, order=[0, 0, 1, 1])
    assert table["both"].to_pylist() == ["XAxa"]


# Groups


def test_groups_windows_and_having() -> None:
    text = """
        SELECT TUMBLE_START(a.at, INTERVAL '1' MINUTE) AS start, a.s, COUNT(*) AS n, SUM(b.v) / COUNT(*) AS mean
        FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND
        GROUP BY TUMBLE(a.at, INTERVAL '1' MINUTE), a.s HAVING COUNT(*) > 1
    """
    query = sql(text, TIMED)
    assert query.output_schema.names == ["start", "s", "n", "mean"]
    assert to_sql(sql(to_sql(query), TIMED)) == to_sql(query)
    runtime = Runtime(query)
    rows = {"a": [{"k": 1, "s": "x", "at": 0}, {"k": 2, "s": "y", "at": 1}]}
    rows["b"] = [{"k": 1, "v": v, "at": v} for v in (1, 2, 6)] + [{"k": 2, "v": 1, "at": 2}]
    assert runtime.push(full(rows)).num_rows == 0
    (row,) = runtime.push(full({"a": [{"k": 9, "at": 200}], "b": [{"k": 8, "at": 200}]})).to_pylist()
    assert (row["s"], row["n"], row["mean"]) == ("x", 3, 3.0)


def test_the_latest_value_goes_by_an_order() -> None:
    text = """
        SELECT a.s, LAST_VALUE(b.v ORDER BY b.at) AS latest, FIRST_VALUE(b.v ORDER BY b.at DESC) AS same,
            MAX_BY(b.v, b.at) AS too, MIN_BY(b.v, b.at) AS oldest, ARG_MIN(b.v, b.at) FILTER (WHERE b.v < 9) AS small,
            LAST_VALUE(b.v) AS tied
        FROM a JOIN b ON a.k = b.k AND b.at <= a.at GROUP BY a.s HAVING latest IS NOT NULL AND s <> 'none'
    """
    query = sql(text, STREAMS)
    assert query_text(sql(to_sql(query), STREAMS)) == query_text(query)
    runtime = Runtime(query, bounded=True)
    logins = [{"k": 1, "v": v, "at": at} for v, at in ((9, 1), (3, 5), (5, 5), (None, 6), (8, 2), (7, 9))]
    runtime.push(full({"b": logins, "a": [{"k": 1, "s": "paid", "at": 7}]}))
    # Of several logins at one time, the greatest value is the last one and the least the first one. All joined rows
    # have the event time of the payment, so without ORDER BY they are tied.
    wanted = {"s": "paid", "latest": 5, "same": 5, "too": 5, "oldest": 9, "small": 8, "tied": 9}
    assert runtime.finish().to_pylist() == [wanted]


def test_having_names_output_columns() -> None:
    select = "SELECT a.s, COUNT(*) AS n, SUM(a.v) AS v FROM a JOIN b ON a.k = b.k GROUP BY a.s"
    query = sql(f"{select} HAVING n > 1 AND v < 9 AND SUM(b.v) > n AND a.s <> 'x'", STREAMS)
    assert to_sql(query).endswith("HAVING COUNT(*) > 1 AND SUM(a.v) < 9 AND SUM(b.v) > COUNT(*) AND a.s <> 'x'")
    with pytest.raises(SqlError, match="there is no column 'm'"):
        sql(f"{select} HAVING m > 1", STREAMS)
    with pytest.raises(SqlError, match="k is a group column and another output column"):
        sql("SELECT a.v + 1 AS k FROM a JOIN b USING (k) GROUP BY a.v, k HAVING k > 0", STREAMS)


def test_a_group_in_parentheses_is_the_same_group() -> None:
    text = "SELECT r.s, COUNT(*) AS n FROM (SELECT k, (s || s) AS s FROM a) AS r JOIN b ON r.k = b.k GROUP BY r.s"
    query = sql(text, STREAMS)
    assert to_sql(sql(to_sql(query), STREAMS)) == to_sql(query)
    runtime = Runtime(query, bounded=True)
    runtime.push(full({"a": [{"k": 1, "s": "x", "at": 0}], "b": [{"k": 1, "at": 0}] * 3}))
    assert runtime.finish().to_pylist() == [{"s": "xx", "n": 3}]


def test_count_of_everything_reads_no_column() -> None:
    runtime = Runtime(sql("SELECT COUNT(*) AS n FROM a JOIN b ON a.k = b.k", STREAMS), bounded=True)
    runtime.push(full({"a": [{"k": 1, "at": 0}], "b": [{"k": 1, "at": 0}] * 3}))
    assert runtime.finish().to_pylist() == [{"n": 3}]


def test_one_stream_has_groups() -> None:
    query = sql("SELECT k, COUNT(*) AS n FROM a GROUP BY k, SESSION(at, INTERVAL '5' SECOND)", TIMED)
    runtime = Runtime(query, bounded=True)
    pushed = runtime.push(full({"a": [{"k": 1, "at": at} for at in (0, 3, 10)]}))
    assert [table["n"].to_pylist() for table in (pushed, runtime.finish())] == [[2], [1]]


# Several statements


def test_union_all() -> None:
    both = sql(
        "SELECT a.v FROM a JOIN b ON a.k = b.k UNION ALL SELECT c.v AS other FROM c JOIN b ON c.k = b.k", STREAMS
    )
    assert isinstance(both, UnionAll)
    runtimes = [Runtime(query) for query in both.queries]
    rows = {name: [{"k": 1, "v": i, "at": 0}] for i, name in enumerate("abc")}
    table = both.together(
        [runtime.push(full({s.name: rows[s.name] for s in runtime.query.streams})) for runtime in runtimes]
    )
    assert table.to_pylist() == [{"v": 0}, {"v": 2}]
    assert to_sql(both).count("UNION ALL") == 1
    with pytest.raises(eddy.QueryError, match="2 queries have 1 tables"):
        both.together([table])


def test_explain_shows_the_streams_and_the_plan() -> None:
    text = sql("EXPLAIN SELECT x.k FROM a AS x JOIN a AS y ON x.k = y.k WHERE x.v > 3", STREAMS)
    assert text.splitlines()[:4] == [
        "stream x = a [UNBOUNDED] where x.v > 3",
        "stream y = a [UNBOUNDED]",
        "output k int64",
        "plan x y",
    ]


def test_a_query_without_a_text_says_so() -> None:
    with pytest.raises(eddy.QueryError, match="where: the condition"):
        to_sql(Query(a_and_b(), ["a.k = b.k"], where=pc.field("a.v") > 3))
    with pytest.raises(eddy.QueryError, match="output column 'w' is the Arrow expression"):
        to_sql(Query(a_and_b(), ["a.k = b.k"], select={"w": pc.field("a.v")}))


def test_a_constant_group_column_prints_as_its_place_in_the_select_list() -> None:
    text = "SELECT COUNT(*) AS n, 1 AS one FROM a JOIN b ON a.k = b.k GROUP BY one"
    query = sql(text, STREAMS)
    assert to_sql(query).endswith("GROUP BY 2")
    assert query_text(sql(to_sql(query), STREAMS)) == query_text(query)


def test_a_query_made_in_python_prints_itself() -> None:
    windows = [Stream(name, SCHEMA, window=Range(timedelta(minutes=1)), time="at") for name in "ab"]
    query = Query(windows, ["(a.k, a.v) = (b.k, b.v)", "b.at <= a.at + 30 s"], select=["a.k", "b.s"])
    text = to_sql(query)
    assert text.endswith("FROM a JOIN b ON a.k = b.k AND a.v = b.v AND b.at <= a.at + INTERVAL '30' SECOND")
    assert query_text(sql(text, windows)) == query_text(query)


@pytest.mark.parametrize(
    ("group", "advice"),
    [
        ("DATE_TRUNC('hour', a.at)", "GROUP BY TUMBLE(a.at, INTERVAL '1' HOUR)"),
        ("CAST(a.at AS DATE), a.k", "GROUP BY TUMBLE(a.at, INTERVAL '1' DAY)"),
        ("a.k", "GROUP BY TUMBLE(a.at, INTERVAL '1' MINUTE)"),
    ],
)
def test_groups_that_are_never_final_are_refused_in_the_words_of_sql(group: str, advice: str) -> None:
    query = sql(f"SELECT COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY {group}", STREAMS)
    with pytest.raises(eddy.InputError) as caught:
        Runtime(query)
    assert f"GROUP BY {group} has no window that ends; write {advice}" in str(caught.value)
    assert Runtime(query, bounded=True).finish().num_rows == 0

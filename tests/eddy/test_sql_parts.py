"""SQL: each part of a statement has an effect or is refused; nothing is read and ignored.

Two directions. Each node of parsed statements is changed, and each of its optional parts taken away: that must give
another query or a refusal. And each part that sqlglot knows for a node, and the dialect does not, is put in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlglot import exp

from eddy import Query, SqlError, sql, to_sql
from eddy.dialect.statement import translated
from eddy.expressions.admitted import PARTS
from eddy.expressions.grammar import printed
from eddy.expressions.source import StatementText, parse
from eddy.query.text import query_text
from tests.eddy.sql_streams import STREAMS, TIMED

JOINED = "FROM a JOIN b ON a.k = b.k"
STATEMENTS = [
    "SELECT a.k, b.v + 1 AS w FROM a JOIN b ON a.k = b.k AND a.at <= b.at + INTERVAL '30' SECOND WHERE a.v > 3 OR b.f",
    "SELECT x.s, y.v FROM a AS x INNER JOIN b AS y USING (k) WHERE x.s LIKE 'a%' AND y.s NOT LIKE 'b!_' ESCAPE '!'",
    "SELECT a.k, b.v AS m FROM a LEFT OUTER JOIN b ON a.k = b.k WHERE COALESCE(b.v, 0) <> 2 AND a.f IS NOT TRUE",
    "SELECT a.k FROM a LEFT SEMI JOIN b ON a.k = b.k AND b.v BETWEEN a.v - 2 AND a.v + 3",
    "SELECT a.k AS i, c.k AS j FROM a FULL JOIN c ON a.k = c.k WHERE NOT (a.k IS NULL AND c.v IN (1, 2))",
    "SELECT a.k FROM a WHERE EXISTS (SELECT b.v + 1 FROM b WHERE a.k = b.k AND b.v > 1) AND a.v IN (SELECT c.v FROM c)",
    "SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b JOIN c ON b.k = c.k WHERE a.k = b.k AND c.s = 'x')",
    "WITH t (i, w) AS (SELECT k, v * 2 FROM b WHERE v > 1) SELECT a.k, t.w FROM a JOIN t ON a.k = t.i",
    "SELECT a.k, p.one FROM a LEFT JOIN (SELECT k, 'x' AS one FROM b WHERE f) AS p ON a.k = p.k",
    "SELECT a.k, d.v FROM a LEFT JOIN (b JOIN d ON b.k = d.k) ON a.k = b.k",
    "SELECT a.k, d.v FROM a LEFT JOIN ((SELECT k FROM b) AS e JOIN d ON e.k = d.k) ON a.k = e.k",
    f"SELECT CASE a.v WHEN 1 THEN 'x' ELSE 'y' END AS c, CASE WHEN b.f THEN 1 END AS d, -a.x AS e {JOINED}",
    f"SELECT CAST(a.x AS DECIMAL(6, 2)) AS c, SUBSTRING(a.s, 2, 1) AS d, TRIM(LEADING 'x' FROM b.s) AS e {JOINED}",
    f"SELECT EXTRACT(HOUR FROM a.at) AS c, FLOOR(a.at TO HOUR) AS d, POSITION('x' IN a.s) AS e, 7 // a.v AS g {JOINED}",
    f"SELECT CAST(a.at AS TIMESTAMP(3)) AS c, a.s || 'x' AS d, a.v / 2 AS e, a.s RLIKE 'x' AS g {JOINED}",
    f"SELECT a.s, COUNT(*) AS n, SUM(b.v) FILTER (WHERE b.f) AS t {JOINED} GROUP BY a.s HAVING COUNT(*) > 1",
    f"SELECT a.k, MAX_BY(b.v, b.at) AS m, LAST_VALUE(b.s ORDER BY b.at DESC) AS n {JOINED} GROUP BY a.k HAVING n < 'x'",
    f"SELECT DISTINCT a.k, b.v + 1 AS w {JOINED}",
    f"SELECT COUNT(DISTINCT a.v) AS n, MAX(b.d) AS m, AVG(a.x) AS o {JOINED}",
    "SELECT k, v, rn FROM (SELECT a.k, b.v, ROW_NUMBER() OVER (PARTITION BY a.s, b.f ORDER BY b.v DESC NULLS FIRST,"
    f" a.x) AS rn {JOINED} WHERE a.v > 1) WHERE rn <= 3",
    "SELECT x.s, x.n AS m FROM (SELECT a.s, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS rn"
    f" {JOINED} GROUP BY a.s) AS x WHERE x.rn < 3",
    "WITH t AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at) AS rn FROM a) SELECT k, v FROM t WHERE rn = 1",
    f"SELECT a.k, ROW_NUMBER() OVER (PARTITION BY a.s ORDER BY b.v) AS rn {JOINED} QUALIFY rn <= 2",
    f"SELECT a.k {JOINED} QUALIFY ROW_NUMBER() OVER (PARTITION BY a.s ORDER BY b.v + a.v DESC) = 1",
    f"SELECT a.k {JOINED} UNION ALL (SELECT c.k FROM c JOIN d ON c.k = d.k WHERE c.v = 1)",
    "WITH t AS (SELECT k FROM b) SELECT a.k FROM a JOIN t ON a.k = t.k UNION ALL SELECT c.k FROM c JOIN t ON c.k = t.k",
]
WINDOWED = [
    "SELECT TUMBLE_START(a.at, INTERVAL '1' MINUTE) AS w, a.s, COUNT(*) AS n FROM a JOIN b ON a.k = b.k"
    " AND b.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND GROUP BY TUMBLE(a.at, INTERVAL '1' MINUTE), a.s",
]
SAME: dict[tuple[str, str], str] = {
    ("Identifier", "quoted"): "a name in quotes is the same name where its case is the same",
    ("Column", "table"): "a column needs no relation where only one has it",
    ("Join", "kind"): "JOIN is INNER JOIN, LEFT JOIN is LEFT OUTER JOIN",
    ("Literal", "is_string"): "INTERVAL 30 MINUTE is INTERVAL '30' MINUTE",
    ("DPipe", "safe"): "a flag of sqlglot's dialects, which no text sets",
    ("Div", "safe"): "a flag of sqlglot's dialects, which no text sets",
    ("Div", "typed"): "a flag of sqlglot's dialects, which no text sets",
    ("DataType", "nested"): "a flag of sqlglot, which has no meaning for types without others inside",
}
"""Changes that leave the meaning as it is: kind of node and part, with the reason."""


def meaning(tree: exp.Expression, source: StatementText, streams: Any) -> object:
    """Return what a statement means, or None if it is refused."""
    try:
        translation = translated(tree, source, {stream.name: stream for stream in streams}, {})
    except SqlError:
        return None
    return [
        (query_text(query), dict(query.tables))
        for query in ([translation] if isinstance(translation, Query) else translation.queries)
    ]


def places(tree: exp.Expression) -> Iterator[tuple[list[int], exp.Expression]]:
    """Yield the nodes of a tree, each with its number in the order of `walk`."""
    yield from enumerate(tree.walk())  # type: ignore[misc]


def taken_away(node: exp.Expression) -> Iterator[tuple[str, Any]]:
    """Yield the optional parts that a node has, each with the value that takes it away or changes it."""
    for name, value in node.args.items():
        optional = not node.arg_types.get(name, False)
        if isinstance(value, list) and value:
            for k in range(len(value)):
                if len(value) > 1 or optional:
                    yield name, [*value[:k], *value[k + 1 :]]
        elif value is True or value is False:
            yield name, not value
        elif isinstance(value, str):
            if value.isdigit():
                yield name, str(int(value) + 1)
            elif not isinstance(node, exp.Anonymous):
                yield name, value + "x"
            if optional:
                yield name, None
        elif isinstance(value, exp.Expression) and optional:
            yield name, None


def put_in(node: exp.Expression) -> Iterator[tuple[str, Any]]:
    """Yield the parts that sqlglot knows for a node, but the dialect does not, each with values."""
    admitted = next((PARTS[kind] for kind in type(node).__mro__ if kind in PARTS), frozenset())
    for name in node.arg_types:
        if name not in admitted:
            for value in (
                True,
                "x",
                exp.Literal.number(1),
                [exp.column("k")],
                exp.Order(expressions=[exp.column("k")]),
            ):
                yield name, value


def harmless(node: exp.Expression, name: str) -> bool:
    """Return whether a change has no effect on the meaning, by SQL's own rules."""
    if (type(node).__name__, name) in SAME:
        return True
    if isinstance(node, exp.Join) and name == "side" and node.args.get("kind") in ("SEMI", "ANTI"):
        return True  # SEMI JOIN is LEFT SEMI JOIN
    # EXISTS asks for rows, whatever their columns are. They are checked all the same.
    exists = node.find_ancestor(exp.Exists)
    if exists is not None and isinstance(exists.this, exp.Select):
        return any(node in list(expression.walk()) for expression in exists.this.expressions) or (
            node is exists.this and name == "expressions"
        )
    return False


def changed(text: str, streams: Any, changes: Any) -> tuple[int, list[str]]:
    """Return how many changes of a statement were tried, and those that left its meaning as it was."""
    source = StatementText(text)
    tree = parse(source)
    before = meaning(tree, source, streams)
    assert before is not None, text
    tried, unnoticed = 0, []
    for number, node in enumerate(tree.walk()):
        for name, value in changes(node):
            if harmless(node, name):
                continue
            other = tree.copy()
            mine = next(candidate for k, candidate in enumerate(other.walk()) if k == number)
            mine.set(name, value)
            tried += 1
            try:
                after = meaning(other, source, streams)
            except (AttributeError, TypeError, ValueError, KeyError, AssertionError):
                continue  # no statement has such a tree
            if after == before:
                unnoticed.append(f"{type(node).__name__}.{name} = {value!r} in {printed(node)}")
    return tried, unnoticed


CASES = [(text, STREAMS) for text in STATEMENTS] + [(text, TIMED) for text in WINDOWED]


@pytest.mark.parametrize(("text", "streams"), CASES, ids=[text for text, _ in CASES])
def test_what_is_taken_away_had_an_effect(text: str, streams: Any) -> None:
    tried, same = changed(text, streams, taken_away)
    assert tried > 5
    assert same == []


@pytest.mark.parametrize(("text", "streams"), CASES, ids=[text for text, _ in CASES])
def test_what_is_put_in_has_an_effect_or_is_refused(text: str, streams: Any) -> None:
    tried, same = changed(text, streams, put_in)
    assert tried > 50
    assert same == []


# Clauses that the dialect lacks, wherever a SELECT stands

PLACES = {
    "statement": "SELECT {0} a.k FROM a {1} JOIN b ON a.k = b.k WHERE a.v > 1 {2}",
    "subquery": "SELECT c.k FROM c JOIN (SELECT {0} a.k FROM a {1} WHERE a.v > 1 {2}) AS x ON c.k = x.k",
    "common table": "WITH x AS (SELECT {0} a.k FROM a {1} WHERE a.v > 1 {2}) SELECT c.k FROM c JOIN x ON c.k = x.k",
    "unused": "WITH x AS (SELECT {0} a.k FROM a {1} WHERE a.v > 1 {2}) SELECT c.k FROM c JOIN b ON c.k = b.k",
    "exists": "SELECT c.k FROM c WHERE EXISTS (SELECT {0} a.k FROM a {1} WHERE a.k = c.k {2})",
    "not exists": "SELECT c.k FROM c WHERE NOT EXISTS (SELECT {0} a.k FROM a {1} WHERE a.k = c.k {2})",
    "in": "SELECT c.k FROM c WHERE c.k IN (SELECT {0} a.k FROM a {1} WHERE a.v > 1 {2})",
    "union": "SELECT c.k FROM c JOIN b ON b.k = c.k UNION ALL"
    " (SELECT {0} a.k FROM a {1} JOIN b ON a.k = b.k WHERE a.v > 1 {2})",
    "parentheses": "SELECT c.k FROM c JOIN ((SELECT {0} a.k FROM a {1} WHERE a.v > 1) {2}) AS x ON c.k = x.k",
}
CLAUSES = {
    "DISTINCT ON (a.v)": 0,
    "/*+ BROADCAST(a) */": 0,
    "TABLESAMPLE (10 PERCENT)": 1,
    "PIVOT (SUM(v) FOR s IN ('x'))": 1,
    "FOR SYSTEM_TIME AS OF '2026-01-01'": 1,
    "AT (TIMESTAMP => 1)": 1,
    "CHANGES (INFORMATION => DEFAULT)": 1,
    "WITH ORDINALITY": 1,
    "LATERAL VIEW EXPLODE(a.s) t AS y": 1,
    "ORDER BY a.k NULLS FIRST": 2,
    "SORT BY a.k": 2,
    "CLUSTER BY a.k": 2,
    "DISTRIBUTE BY a.k": 2,
    "LIMIT 0": 2,
    "LIMIT 5 OFFSET 3": 2,
    "OFFSET 3": 2,
    "FETCH FIRST 5 ROWS ONLY": 2,
    "FETCH FIRST 5 ROWS WITH TIES": 2,
    "WINDOW w AS (PARTITION BY a.k)": 2,
    "FOR UPDATE": 2,
    "FOR SHARE NOWAIT": 2,
    "CONNECT BY PRIOR a.k = a.v": 2,
}


@pytest.mark.parametrize("place", sorted(set(PLACES) - {"statement", "union"}))
def test_qualify_makes_a_table_of_a_relation_and_is_refused_elsewhere(place: str) -> None:
    text = PLACES[place].format("", "", "QUALIFY ROW_NUMBER() OVER (ORDER BY a.k) = 1")
    if place in ("subquery", "common table", "unused", "in"):
        assert isinstance(sql(text, STREAMS), Query)
        return
    with pytest.raises(SqlError, match="QUALIFY is not supported") as caught:
        sql(text, STREAMS)
    assert text[caught.value.column - 1 :].startswith("QUALIFY")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_is_refused_where_it_stands(clause: str, place: str) -> None:
    slots = ["", "", ""]
    slots[CLAUSES[clause]] = clause
    text = PLACES[place].format(*slots)
    with pytest.raises(SqlError, match="not supported") as caught:
        sql(text, STREAMS)
    assert caught.value.line == 1
    if not clause.startswith("/*"):
        assert text[caught.value.column - 1 :].startswith(clause.split()[0])


@pytest.mark.parametrize(
    ("text", "word", "message"),
    [
        ("SELECT a.k FROM a STRAIGHT_JOIN b ON a.k = b.k", "STRAIGHT_JOIN", "STRAIGHT JOIN is not supported"),
        ("SELECT a.k FROM a CROSS JOIN b ON a.k = b.k", "CROSS", "CROSS JOIN takes no condition"),
        ("SELECT a.k FROM a JOIN b USING (k, k)", "k)", "USING names 'k' twice"),
        ("WITH RECURSIVE x AS (SELECT k FROM b) SELECT a.k FROM a JOIN x ON a.k = x.k", "WITH", "a query is one join"),
        ("WITH x AS MATERIALIZED (SELECT k FROM b) SELECT a.k FROM a JOIN x ON a.k = x.k", "MATERIALIZED", "flattens"),
        ("WITH x AS NOT MATERIALIZED (SELECT k FROM b) SELECT a.k FROM a JOIN x ON a.k = x.k", "MATER", "flattens"),
        ("WITH x AS (SELECT k FROM e) SELECT a.k FROM a JOIN b ON a.k = b.k", "e)", "there is no stream 'e'"),
        (
            "WITH x AS (SELECT k FROM b), x AS (SELECT k FROM c) SELECT a.k FROM a JOIN x USING (k)",
            "x AS",
            "two common",
        ),
        ("WITH x (k, k) AS (SELECT k, v FROM b) SELECT a.k FROM a JOIN x ON a.k = x.k", "x (k", "two columns are"),
        ("SELECT a.k FROM a JOIN b AS x (v) ON a.k = x.s", "b AS x", "two columns of x are named 'v'"),
        ("SELECT a.k FROM a JOIN (SELECT k, FOO(v) AS z FROM b) AS x ON a.k = x.k", "FOO", "there is no function FOO"),
        ("SELECT a.k FROM a JOIN (SELECT k, v + s AS z FROM b) AS x ON a.k = x.k", "s AS z", "+ needs numbers"),
        ("SELECT a.k FROM a WHERE EXISTS (SELECT COUNT(*) FROM b WHERE a.k = b.k)", "COUNT", "makes the subquery one"),
        ("SELECT a.k FROM a WHERE EXISTS (SELECT z FROM b WHERE a.k = b.k)", "z FROM", "there is no column 'z'"),
        ("SELECT a.k FROM a WHERE EXISTS (SELECT FOO(b.k) FROM b WHERE a.k = b.k)", "FOO", "there is no function FOO"),
        ("SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k GROUP BY b.k)", "GROUP", "not supported in"),
        ("SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k HAVING 1 > 2)", "HAVING", "not supported in"),
        (f"SELECT a.k {JOINED} UNION ALL BY NAME SELECT b.k {JOINED}", "BY", "in the same order"),
        (f"SELECT a.k {JOINED} AND a.v BETWEEN SYMMETRIC 3 AND 1", "BETWEEN", "BETWEEN SYMMETRIC is not supported"),
        (f"SELECT CAST(a.s AS INT DEFAULT 0 ON CONVERSION ERROR) AS c {JOINED}", "", "DEFAULT … ON CONVERSION ERROR"),
        (f"SELECT CAST(a.v AS DECIMAL(4, 2, 1)) AS c {JOINED}", "", "there is no type"),
        (f"SELECT CAST(a.at AS TIMESTAMP(3, 3)) AS c {JOINED}", "", "there is no type"),
        (f"SELECT * EXCEPT (k) {JOINED}", "", "name the columns"),
        (f"SELECT * ILIKE 'k%' {JOINED}", "", "name the columns"),
        (f"SELECT COUNT(* EXCEPT (k)) AS n {JOINED}", "", "name the columns"),
        (f"SELECT COUNT(*) AS n {JOINED} GROUP BY ALL", "GROUP", "GROUP BY ALL or DISTINCT is not supported"),
        (f"SELECT COUNT(*) AS n {JOINED} GROUP BY DISTINCT a.k", "GROUP", "GROUP BY ALL or DISTINCT is not supported"),
        (f"SELECT COUNT(*) AS n {JOINED} GROUP BY a.k WITH ROLLUP", "", "GROUP BY ROLLUP is not supported"),
        (f"SELECT SUM(a.v) WITHIN GROUP (ORDER BY a.k) AS n {JOINED}", "", "a.k"),
        (f"SELECT a.s COLLATE nocase AS s {JOINED}", "a.s", "COLLATE is not supported"),
        (f"SELECT LAST_VALUE(a.v ORDER BY a.k, a.s) AS n {JOINED}", "a.s", "takes one expression"),
        (f"SELECT LAST_VALUE(a.v ORDER BY a.k NULLS FIRST) AS n {JOINED}", "NULLS", "NULLS FIRST is not supported"),
        (f"SELECT LAST_VALUE(a.v ORDER BY a.k NULLS LAST) AS n {JOINED}", "NULLS", "NULLS LAST is not supported"),
        (f"SELECT LAST_VALUE(DISTINCT a.v ORDER BY a.k) AS n {JOINED}", "LAST", "neither * nor DISTINCT"),
        (f"SELECT LAST_VALUE(a.v LIMIT 2) AS n {JOINED}", "a.v", "LIMIT is not supported"),
        (f"SELECT SUM(a.v ORDER BY a.k) AS n {JOINED}", "a.v", "ORDER BY has no effect in SUM"),
        (f"SELECT MAX_BY(a.v) AS n {JOINED}", "MAX_BY", "MAX_BY takes two arguments"),
        (f"SELECT MAX_BY(a.v, a.k, 2) AS n {JOINED}", "MAX_BY", "MAX_BY takes two arguments"),
        (f"SELECT STRING_AGG(a.s, ',') AS n {JOINED}", "STRING_AGG", "STRING_AGG is not supported"),
        (f"SELECT FIRST_VALUE(a.v) RESPECT NULLS AS n {JOINED}", "FIRST", "RESPECT NULLS is not supported"),
    ],
)
def test_a_modifier_is_refused_where_it_stands(text: str, word: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        sql(text, STREAMS)
    assert message in str(caught.value)
    assert text[caught.value.column - 1 :].startswith(word)


def test_a_statement_is_a_string() -> None:
    with pytest.raises(SqlError, match="SQL must be a string, not NoneType"):
        sql(None, STREAMS)  # type: ignore[call-overload]


def test_clauses_around_parentheses_are_clauses_of_the_statement() -> None:
    for clause in ("LIMIT 1", "ORDER BY 1", "OFFSET 2"):
        with pytest.raises(SqlError, match="not supported"):
            sql(f"(SELECT a.k {JOINED}) {clause}", STREAMS)
        with pytest.raises(SqlError, match="not supported"):
            sql(f"SELECT a.k {JOINED} UNION ALL (SELECT a.k {JOINED}) {clause}", STREAMS)


def test_parentheses_hold_joins_of_subqueries() -> None:
    text = "SELECT c.k FROM c JOIN ((SELECT k FROM a WHERE v > 1) AS x JOIN b ON x.k = b.k) ON c.k = x.k"
    assert to_sql(sql(text, STREAMS)) == "SELECT c.k AS k FROM c JOIN a ON c.k = a.k JOIN b ON a.k = b.k WHERE a.v > 1"

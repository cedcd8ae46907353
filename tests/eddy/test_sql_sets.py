"""UNION, EXCEPT, INTERSECT, and IN and EXISTS over groups, in SQL: after each push, DuckDB finds the same."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

import eddy
from tests.eddy.answers import R, S, T
from tests.eddy.test_queries_over_queries import play

SETS = ("UNION", "EXCEPT", "INTERSECT")


class Statements:
    """Random statements over the streams r and s and the table t."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw

    def columns(self) -> list[str]:
        """Return the columns of a set operation, all of different types."""
        return self.draw.sample(["k", "g"], self.draw.randint(1, 2))

    def select(self, columns: list[str]) -> str:
        """Return a SELECT of some columns: of one input, filtered or not, or of groups."""
        name, kind = self.draw.choice("rst"), self.draw.random()
        listed = ", ".join(columns)
        if kind < 0.2:
            return f"SELECT {listed} FROM {name} GROUP BY {listed} HAVING count(*) > 1"
        if kind < 0.4:
            return f"SELECT {listed} FROM {name} WHERE v > {self.draw.randrange(20)}"
        if kind < 0.5:
            other = self.draw.choice([table for table in "rst" if table != name])
            listed = ", ".join(f"{name}.{column}" for column in columns)
            return f"SELECT {listed} FROM {name} LEFT JOIN {other} ON {name}.k = {other}.k AND {name}.v < {other}.v"
        return f"SELECT {listed} FROM {name}"

    def set(self, columns: list[str], depth: int = 0) -> str:
        """Return a set operation; some have others in it."""
        sides = [
            f"({self.set(columns, depth + 1)})" if self.draw.random() < 0.3 - 0.1 * depth else self.select(columns)
            for _ in range(2)
        ]
        return f" {self.draw.choice(SETS)} ".join(sides)

    def whole(self) -> str:
        """Return a statement."""
        kind, columns = self.draw.random(), self.columns()
        if kind < 0.4:
            return self.set(columns)
        if kind < 0.55:
            return f"SELECT {columns[0]}, count(*) AS n FROM ({self.set(columns)}) GROUP BY {columns[0]}"
        if kind < 0.65:
            return f"WITH u AS ({self.set(['k'])}) SELECT t.k, t.v FROM t JOIN u ON t.k = u.k"
        within = self.set(["k"]) if kind < 0.8 else self.select(["k"])
        if kind < 0.9:
            return f"SELECT t.k, t.g FROM t WHERE t.k IN ({within})"
        if kind < 0.95:
            return "SELECT t.k, t.v FROM t WHERE v > 3 AND t.k NOT IN (SELECT r.k FROM r WHERE r.k IS NOT NULL)"
        return "SELECT r.k, r.v FROM r WHERE r.k NOT IN (SELECT t.k FROM t WHERE t.v > 9) AND r.k IS NOT NULL"


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(40))
def test_answers_are_those_of_duckdb(seed: int) -> None:
    draw = Random(seed)
    text = Statements(draw).whole()
    play(draw, eddy.sql(text, [R, S, T]), text, draw.choice(("eddy", "jisc", "cacq")))


@pytest.mark.campaign(3)
@pytest.mark.parametrize("rows", ["SELECT DISTINCT {} FROM {}", "SELECT {0} FROM {1} GROUP BY {0}"])
@pytest.mark.parametrize(
    "whole",
    [
        "SELECT g, count(*) AS n FROM ({t}) d GROUP BY g",
        "WITH d AS ({r}) SELECT g, count(*) AS n, max(k) AS m FROM d GROUP BY g",
        "SELECT t.k, d.g FROM t JOIN ({r}) d ON t.k = d.k",
        "SELECT t.k, t.v, d.g FROM t LEFT JOIN ({t}) d ON t.v = d.k",
        "SELECT r.v, d.g, e.g AS h FROM r JOIN ({t}) d ON r.k = d.k JOIN ({r}) e ON e.k = d.k",
        "SELECT d.k, e.g FROM ({t}) d JOIN ({r}) e ON e.k = d.k",
    ],
)
def test_subqueries_of_different_rows(whole: str, rows: str) -> None:
    text = whole.format(**{name: rows.format("k, g", name) for name in "rt"})
    play(Random(len(text)), eddy.sql(text, [R, S, T]), text, "eddy")


@pytest.mark.campaign(1)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT r.k, r.v FROM r WHERE r.g NOT IN (SELECT g FROM s)",
        "SELECT t.k FROM t WHERE t.g NOT IN (SELECT g FROM s WHERE v > 15)",
        "SELECT t.k, t.v FROM t WHERE t.k NOT IN (SELECT s.k FROM s WHERE s.g = t.g)",
        "SELECT t.k FROM t WHERE t.k NOT IN (SELECT s.v FROM s WHERE s.k IS NULL UNION SELECT k FROM r WHERE v > 9)",
        "SELECT t.k FROM t WHERE t.v NOT IN (SELECT max(v) FROM r WHERE v > 12 GROUP BY g)",
        "SELECT t.k FROM t WHERE t.g NOT IN (SELECT DISTINCT g FROM s WHERE v < 15)",
        "SELECT r.g, count(*) AS n FROM r JOIN t ON r.k = t.k WHERE t.g NOT IN"
        " (SELECT g FROM s WHERE v < 9) GROUP BY r.g",
        "SELECT t.k FROM t WHERE t.v + 1 NOT IN (SELECT v * 2 FROM s WHERE s.g = 'a') AND t.g NOT IN"
        " (SELECT g FROM r WHERE v > 20)",
        "SELECT t.k FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.g NOT IN"
        " (SELECT g FROM r WHERE v > 15))",
        "SELECT t.k FROM t WHERE t.g NOT IN (SELECT * FROM (SELECT g FROM s WHERE v > 15))",
    ],
)
def test_not_in_has_the_answer_of_three_values(text: str) -> None:
    """A NULL in the subquery makes NOT IN unknown, and so does a NULL before it, unless the subquery has no row."""
    query = eddy.sql(text, [R, S, T])
    assert sum(play(Random(seed), query, text, "eddy") for seed in range(8))


@pytest.mark.parametrize("name", ["EXCEPT", "INTERSECT"])
def test_sets_with_copies_have_the_form_that_their_error_names(name: str) -> None:
    text = f"SELECT k, g FROM r {name} ALL SELECT k, g FROM s"
    with pytest.raises(eddy.SqlError) as caught:
        eddy.sql(text, [R, S])
    form = str(caught.value).partition("the number of each row: ")[2].replace("…", "r", 1).replace("…", "s", 1)
    counted = f"SELECT k, g, count(*) AS copies FROM ({text}) GROUP BY k, g"
    query = eddy.sql(form, [R, S])
    assert sum(play(Random(seed), query, counted, "eddy") for seed in range(5))


def test_the_rows_of_a_set_have_a_key() -> None:
    """They are rows by key, a table of another query, and distinct."""
    runtime = eddy.Runtime(eddy.sql("SELECT k AS a, g FROM r UNION SELECT k, g FROM s", [R, S]), output="upsert")
    row = {"k": 1, "g": "a", "v": 0, "x": 0.0}
    assert runtime.push({"r": [row, row]}).to_pylist() == [{"op": "+I", "a": 1, "g": "a"}]
    assert runtime.push({"s": [row]}).num_rows == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k FROM r EXCEPT SELECT g FROM s", "column 8.*EXCEPT have different types: int64, and here string"),
        ("SELECT k FROM r UNION SELECT k, g FROM s", "UNION have different types: int64, and here int64, string"),
        ("SELECT k FROM r EXCEPT ALL SELECT k FROM s", "EXCEPT ALL is not supported, since it counts"),
        ("SELECT k FROM r INTERSECT ALL SELECT k FROM s", "INTERSECT ALL is not supported"),
        ("SELECT k FROM r EXCEPT SELECT zz FROM s", "no column 'zz'"),
        ("SELECT t.k FROM t WHERE t.k IN (SELECT k, g FROM r GROUP BY k, g)", "IN takes a subquery with one column"),
        ("SELECT t.k FROM t WHERE t.k NOT IN (SELECT k, g FROM r)", "IN takes a subquery with one column"),
        (
            "SELECT t.k FROM t WHERE EXISTS (SELECT 1 FROM s WHERE t.v NOT IN (SELECT v FROM r WHERE r.k = s.k))",
            "the subquery has conditions on rows of its outer join",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(eddy.SqlError, match=message):
        eddy.sql(text, [R, S, T])


@pytest.mark.parametrize(
    ("kind", "values", "keyed"),
    [
        (pa.int64(), (0, 1), True),
        (pa.string(), ("", "a"), True),
        (pa.bool_(), (True, False), True),
        (pa.date32(), (date(1970, 1, 1), date(2020, 1, 1)), True),
        (pa.timestamp("us"), (datetime(1970, 1, 1), datetime(2020, 1, 1)), True),
        (pa.decimal128(9, 2), (Decimal("0.00"), Decimal("1.00")), True),
        (pa.float64(), (0.0, -0.0, 1.5, float("nan")), True),
        (pa.binary(), (b"", b"a"), False),
    ],
    ids=str,
)
def test_values_of_any_type_are_equal_once(kind: pa.DataType, values: tuple[object, ...], keyed: bool) -> None:
    """NULL and NaN are values like others; rows have a key by the column, if its type can be one."""
    schema = pa.schema([("k", kind), ("g", pa.int64())])
    query = eddy.sql("SELECT k FROM a INTERSECT SELECT k FROM b", [eddy.Table(name, schema, key="g") for name in "ab"])
    assert ("TRUE" not in str(query)) == keyed
    rows = [{"k": value, "g": g} for g, value in enumerate((None, *values))]
    runtime = eddy.Runtime(query, output="changelog")
    assert len(runtime.push({"a": rows, "b": rows})) == len(rows) - (-0.0 in values and 1.5 in values)
    changes = runtime.push({"a": [{**row, "k": None} for row in rows]})
    assert set(changes["op"].to_pylist()) == {"-D"}


def test_a_set_is_a_changelog() -> None:
    with pytest.raises(eddy.InputError, match="pass output='changelog'"):
        eddy.Runtime(eddy.sql("SELECT k FROM r EXCEPT SELECT k FROM s", [R, S]))

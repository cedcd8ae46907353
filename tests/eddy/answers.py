"""Queries over tables and over queries, with statements of DuckDB that have their answers, and random rows for them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import eddy
from eddy import Query, Stream, Table, Top, agg

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
R, S = Stream("r", ROWS), Stream("s", ROWS)
T = Table("t", ROWS, key="k", ops="column")
GROUPS = Query([R], group_by={"k": "r.k", "g": "r.g"}, aggregates={"m": agg.max("r.v"), "n": agg.count()})
FLOATS = Query([R], group_by={"x": "r.x"}, aggregates={"n": agg.count()})
JOINED = Query([R, T], ["r.k = t.k"], group_by={"g": "t.g"}, aggregates={"total": agg.sum("r.v")})
TOTAL = Query([R], aggregates={"m": agg.max("r.v")})
BEST = Query([R, S], ["r.k = s.k"], select={"g": "r.g", "v": "r.v", "w": "s.v"}, top=Top(1, "r.g", ["r.v desc", "s.v"]))
UNSELECTED = Query([R], group_by={"k": "r.k", "g": "r.g"}, aggregates={"m": agg.max("r.v")}, select=["g", "m"])
CASES: dict[str, tuple[Query, str]] = {
    "groups of groups": (
        Query([Table("d", GROUPS)], group_by={"g": "d.g"}, aggregates={"a": agg.sum("d.m"), "n": agg.count()}),
        "SELECT g, sum(m)::BIGINT AS a, count(*) AS n FROM (SELECT k, g, max(v) AS m FROM r GROUP BY k, g) GROUP BY g",
    ),
    "rows with the greatest value": (
        Query([R, Table("d", GROUPS)], ["r.k = d.k", "r.g = d.g", "r.v = d.m"], select={"k": "r.k", "v": "d.m"}),
        "SELECT r.k, m AS v FROM r JOIN (SELECT k, g, max(v) AS m FROM r GROUP BY k, g) d"
        " ON r.k = d.k AND r.g = d.g AND r.v = d.m",
    ),
    "a key that is no number": (
        Query([Table("d", FLOATS)], select=None, aggregates={"n": agg.count(), "s": agg.sum("d.n")}),
        "SELECT count(*) AS n, sum(n)::BIGINT AS s FROM (SELECT x, count(*) AS n FROM r GROUP BY x)",
    ),
    "groups of a join with a table": (
        Query([S, Table("d", JOINED)], ["s.g = d.g"], select={"k": "s.k", "total": "d.total"}),
        "SELECT s.k, d.total FROM s JOIN"
        " (SELECT t.g, sum(r.v)::BIGINT AS total FROM r JOIN t ON r.k = t.k GROUP BY t.g) d ON s.g = d.g",
    ),
    "one row": (
        Query([S, Table("d", TOTAL)], ["s.v >= d.m"], select={"k": "s.k", "m": "d.m"}),
        "SELECT s.k, m FROM s JOIN (SELECT max(v) AS m FROM r) ON s.v >= m",
    ),
    "two tables of queries, and a table": (
        Query(
            [T, Table("d", JOINED), Table("e", GROUPS)],
            ["t.g = d.g", "e.k = t.k"],
            group_by={"k": "t.k"},
            aggregates={"a": agg.sum("d.total"), "b": agg.sum("e.n")},
        ),
        "SELECT t.k, sum(total)::BIGINT AS a, sum(n)::BIGINT AS b FROM t"
        " JOIN (SELECT t.g, sum(r.v)::BIGINT AS total FROM r JOIN t ON r.k = t.k GROUP BY t.g) d ON t.g = d.g"
        " JOIN (SELECT k, g, count(*) AS n FROM r GROUP BY k, g) e ON e.k = t.k GROUP BY t.k",
    ),
    "groups of groups of groups": (
        Query(
            [
                Table(
                    "e",
                    Query([Table("d", GROUPS)], group_by={"g": "d.g"}, aggregates={"a": agg.sum("d.m")}),
                )
            ],
            aggregates={"b": agg.max("e.a")},
        ),
        "SELECT max(a)::BIGINT AS b FROM"
        " (SELECT g, sum(m) AS a FROM (SELECT k, g, max(v) AS m FROM r GROUP BY k, g) GROUP BY g)",
    ),
    "groups whose key is not selected": (
        Query(
            [
                Table(
                    "d",
                    Query([R], group_by={"k": "r.k", "g": "r.g"}, aggregates={"m": agg.max("r.v")}, select=["g", "m"]),
                )
            ],
            group_by={"g": "d.g"},
            aggregates={"a": agg.sum("d.m"), "n": agg.count()},
        ),
        "SELECT g, sum(m)::BIGINT AS a, count(*) AS n FROM (SELECT g, max(v) AS m FROM r GROUP BY k, g) GROUP BY g",
    ),
    "left join with groups": (
        Query([T], branches=[eddy.Branch([Table("d", GROUPS)], ["t.k = d.k"], "left")], select=["t.k", "t.v", "d.m"]),
        'SELECT t.k AS "t.k", t.v AS "t.v", d.m AS "d.m" FROM t'
        " LEFT JOIN (SELECT k, g, max(v) AS m FROM r GROUP BY k, g) d ON t.k = d.k",
    ),
    "groups of a left join without a partner in groups": (
        Query(
            [S],
            branches=[
                eddy.Branch([T], ["s.k = t.k"], "left"),
                eddy.Branch([Table("d", GROUPS)], ["s.k = d.k", "s.g = d.g"], "anti"),
            ],
            group_by={"g": "t.g"},
            aggregates={"n": agg.count(), "v": agg.sum("s.v")},
        ),
        "SELECT t.g, count(*) AS n, sum(s.v)::BIGINT AS v FROM s LEFT JOIN t ON s.k = t.k WHERE NOT EXISTS"
        " (SELECT 1 FROM r WHERE r.k = s.k AND r.g = s.g) GROUP BY t.g",
    ),
    "full join of groups": (
        Query(
            [Table("d", GROUPS)],
            branches=[eddy.Branch([T], ["t.k = d.k", "t.v > d.m"], "full")],
            select={"m": "d.m", "v": "t.v"},
            top=Top(1, "d.k", ["t.v desc", "d.m", "t.k", "d.g"]),
        ),
        "SELECT m, v FROM (SELECT d.m, t.v, ROW_NUMBER() OVER (PARTITION BY d.k ORDER BY t.v DESC NULLS LAST, d.m"
        " NULLS LAST, t.k NULLS LAST, d.g NULLS LAST) AS rn FROM (SELECT k, g, max(v) AS m FROM r GROUP BY k, g) d"
        " FULL JOIN t ON t.k = d.k AND t.v > d.m) WHERE rn = 1",
    ),
    "first rows whose group and number are not selected": (
        Query(
            [Table("d", Query([R, S], ["r.k = s.k"], select={"v": "s.v"}, top=Top(3, "r.g", ["r.v desc", "s.v"])))],
            aggregates={"n": agg.count(), "a": agg.sum("d.v")},
        ),
        "SELECT count(*) AS n, sum(v)::BIGINT AS a FROM (SELECT s.v FROM r JOIN s ON r.k = s.k"
        " QUALIFY ROW_NUMBER() OVER (PARTITION BY r.g ORDER BY r.v DESC, s.v) <= 3)",
    ),
    "groups of groups with a condition": (
        Query(
            [Table("d", GROUPS)],
            select={"k": "d.k", "g": "d.g", "w": "d.m + d.n"},
            where=(pc.field("d.m") > 9) | (pc.field("d.n") > 1),
        ),
        "SELECT k, g, m + n AS w FROM (SELECT k, g, max(v) AS m, count(*) AS n FROM r GROUP BY k, g)"
        " WHERE m > 9 OR n > 1",
    ),
    "groups of the first rows": (
        Query([Table("d", BEST)], group_by={"v": "d.v"}, aggregates={"n": agg.count()}),
        "SELECT v, count(*) AS n FROM (SELECT g, v FROM (SELECT r.g, r.v, s.v AS w, ROW_NUMBER() OVER"
        " (PARTITION BY r.g ORDER BY r.v DESC, s.v) AS rn FROM r JOIN s ON r.k = s.k) WHERE rn = 1) GROUP BY v",
    ),
}


def rows(draw: Random, n: int) -> list[dict[str, Any]]:
    """Return rows; keys and groups are sometimes null, and numbers no numbers."""
    return [
        {
            "k": draw.choice((1, 2, 3, None)),
            "g": draw.choice(("a", "b", "c", None)),
            "v": draw.randrange(30),
            "x": draw.choice((0.5, 1.5, None, float("nan"), -0.0, 0.0)),
        }
        for _ in range(n)
    ]


def changes(draw: Random, n: int) -> list[dict[str, Any]]:
    """Return changes of the table t."""
    changed = []
    for row in rows(draw, n):
        op = draw.choice(("c", "u", "d"))
        changed.append({**row, "k": row["k"] or 4, "op": op})
    return changed


class AnswerFeed:
    """The rows of a random stream of pushes so far, for DuckDB."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.given: dict[str, list[dict[str, Any]]] = {"r": [], "s": []}
        self.table: dict[int, dict[str, Any]] = {}

    def push(self, names: set[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a push of some of these streams and tables."""
        push: dict[str, list[dict[str, Any]]] = {}
        streams = sorted(names & {"r", "s"})
        for name in self.draw.sample(streams, self.draw.randint(min(1, len(streams)), len(streams))):
            push[name] = rows(self.draw, self.draw.randrange(6))
            self.given[name] += push[name]
        if "t" in names and self.draw.random() < 0.5:
            push["t"] = changes(self.draw, self.draw.randrange(4))
            for row in push["t"]:
                self.table.pop(row["k"], None)
                if row["op"] != "d":
                    self.table[row["k"]] = {name: row[name] for name in ROWS.names}
        return push

    def answer(self, text: str) -> Counter[str]:
        """Return the answer of a statement over all rows so far."""
        with duckdb.connect() as connection:
            for name, table_rows in {**self.given, "t": list(self.table.values())}.items():
                connection.register(name, pa.Table.from_pylist(table_rows, schema=ROWS))
            return Counter(str(list(row.values())) for row in connection.sql(text).to_arrow_table().to_pylist())

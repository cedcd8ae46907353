"""Random statements that compose: joins of the answers of queries, with groups, row numbers, sets and subqueries.

A statement reads the streams r and s, the table t, and the versions w. Each part of it may be a statement again. Rows
of equal order have equal columns, since their order is open; times of versions are all different.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

import eddy
from eddy import Query, Runtime, Stream, Table, Unbounded, VersionedTable

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
STREAMS = [
    *(Stream(name, ROWS, window=Unbounded(), time="at") for name in "rs"),
    Table("t", ROWS, key="k", ops="column"),
    VersionedTable("w", ROWS, key="k", time="at"),
]
KINDS = {"k": "number", "g": "text", "v": "number"}


class DrawnColumn(NamedTuple):
    """A column that a clause sees: how the clause names it, and its kind."""

    text: str
    kind: str


class DrawnSelect(NamedTuple):
    """A statement, and the kinds of its columns by name."""

    text: str
    kinds: dict[str, str]


@dataclass
class StatementDraw:
    """Draws statements."""

    draw: Random
    aliases: list[str] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        """Return True in a share of the calls."""
        return self.draw.random() < share

    def whole(self) -> str:
        """Return a statement."""
        return self.select(0).text

    def select(self, depth: int) -> DrawnSelect:
        """Return a statement, or a part of one."""
        kinds = (self.joined, self.joined, self.grouped, self.numbered, self.set, self.distinct)
        return self.draw.choice(kinds)(depth)

    def alias(self) -> str:
        """Return a new name of a relation."""
        self.aliases.append(f"{self.draw.choice('abdf')}{len(self.aliases)}")
        return self.aliases[-1]

    def relation(self, depth: int) -> tuple[str, dict[str, str]]:
        """Return a relation of FROM without a name."""
        if depth < 2 and self.chance(0.3 - 0.1 * depth):
            inner = self.select(depth + 1)
            return f"({inner.text})", inner.kinds
        return self.draw.choice("rrst"), KINDS

    def source(self, depth: int, least: int = 1) -> tuple[str, list[DrawnColumn]]:
        """Return what follows FROM, and the columns that it has."""
        (first, kinds), name = self.relation(depth), self.alias()
        columns = [DrawnColumn(f"{name}.{column}", kind) for column, kind in kinds.items()]
        text = f"{first} {name}"
        for k in range(max(self.draw.choice((0, 0, 1, 1, 2)), least - 1)):
            (other, kinds), name = self.relation(depth), self.alias()
            added = [DrawnColumn(f"{name}.{column}", kind) for column, kind in kinds.items()]
            on = self.equal(columns, added)
            if on is None:
                continue
            if self.chance(0.3):
                on += f" AND {self.compared([*columns, *added])}"
            side = self.draw.choice(
                ("", "", "", "LEFT ", "LEFT ", "RIGHT ", "FULL " if k == 0 and self.chance(0.3) else "")
            )
            text += f" {side}JOIN {other} {name} ON {on}"
            columns += added
        timed = next((alias for alias in self.aliases if text in (f"r {alias}", f"s {alias}")), None)
        if timed is not None and self.chance(0.4):
            name = self.alias()
            text += f" ASOF {self.draw.choice(('', 'LEFT '))}JOIN w {name} ON {timed}.k = {name}.k"
            text += f" AND {timed}.at >= {name}.at"
            columns += [DrawnColumn(f"{name}.{column}", kind) for column, kind in KINDS.items() if column != "k"]
        return text, columns

    def of_kind(self, columns: list[DrawnColumn], kind: str) -> str | None:
        """Return a column of the given kind, or None if no column has it."""
        texts = [column.text for column in columns if column.kind == kind]
        return self.draw.choice(texts) if texts else None

    def equal(self, columns: list[DrawnColumn], other: list[DrawnColumn]) -> str | None:
        """Return an equality of two columns of one kind."""
        for kind in self.draw.sample(["number", "text"], 2):
            a, b = self.of_kind(columns, kind), self.of_kind(other, kind)
            if a is not None and b is not None:
                return f"{a} = {b}"
        return None

    def compared(self, columns: list[DrawnColumn]) -> str:
        """Return a condition without subqueries."""
        column, sign = self.draw.choice(columns), self.draw.choice(("<", "<=", ">", ">=", "<>", "<>"))
        if self.chance(0.15):
            return f"{column.text} IS {self.draw.choice(('', 'NOT '))}NULL"
        if column.kind == "text":
            return f"{column.text} {sign} '{self.draw.choice('abc')}'"
        other = self.of_kind(columns, "number") if self.chance(0.3) else None
        return f"{column.text} {sign} {other or self.draw.randrange(8)}"

    def condition(self, columns: list[DrawnColumn], depth: int) -> str:
        """Return a condition of WHERE."""
        kind = self.draw.random()
        if depth > 1 or kind < 0.45:
            return self.compared(columns)
        if kind < 0.6:
            return f"{self.draw.choice(columns).text} {self.draw.choice(('<', '>'))} {self.value(columns, depth)}"
        if kind < 0.75:
            column = self.draw.choice(columns)
            return f"{column.text} {self.draw.choice(('', '', 'NOT '))}IN ({self.one_column(column.kind, depth)})"
        inner, inner_columns = self.source(depth + 1)
        on = self.equal(columns, inner_columns)
        more = f" AND {self.compared(inner_columns)}" if self.chance(0.3) else ""
        return f"{self.draw.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {inner} WHERE {on or 'TRUE'}{more})"

    def value(self, columns: list[DrawnColumn], depth: int) -> str:
        """Return a subquery that is a value; often it reads a column of the query around it."""
        inner, inner_columns = self.source(depth + 1)
        where = [self.compared(inner_columns)] if self.chance(0.3) else []
        on = self.equal(columns, inner_columns) if self.chance(0.6) else None
        where += [on] if on is not None else []
        conditions = f" WHERE {' AND '.join(where)}" if where else ""
        return f"(SELECT {self.aggregate(inner_columns)} FROM {inner}{conditions})"

    def one_column(self, kind: str, depth: int) -> str:
        """Return a statement with one column of a kind."""
        for _ in range(10):
            inner = self.select(depth + 1)
            name = next((name for name, column_kind in inner.kinds.items() if column_kind == kind), None)
            if name is not None:
                where = f" WHERE {name} IS NOT NULL" if self.chance(0.3) else ""
                return f"SELECT {name} FROM ({inner.text}) {self.alias()}{where}"
        return f"SELECT {'k' if kind == 'number' else 'g'} FROM r"

    def aggregate(self, columns: list[DrawnColumn]) -> str:
        """Return an aggregate that is a number."""
        number = self.of_kind(columns, "number")
        if number is None or self.chance(0.25):
            return "count(*)"
        function = self.draw.choice(("sum({})::BIGINT", "max({})", "min({})", "count({})", "count(DISTINCT {})"))
        return function.format(number)

    def where(self, columns: list[DrawnColumn], depth: int) -> str:
        """Return WHERE, or an empty text."""
        conditions = [
            self.condition(columns, depth)
            for _ in range(self.draw.choice((0, 0, 1, 1, 1, 2) if depth == 0 else (0, 0, 0, 1)))
        ]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def chosen(self, columns: list[DrawnColumn]) -> list[DrawnColumn]:
        """Return some of the columns."""
        return self.draw.sample(columns, self.draw.randint(1, min(3, len(columns))))

    def joined(self, depth: int) -> DrawnSelect:
        """Return a SELECT of rows."""
        text, columns = self.source(depth, least=2)
        chosen = self.chosen(columns)
        listed = [f"{column.text} AS c{k}" for k, column in enumerate(chosen)]
        kinds = {f"c{k}": column.kind for k, column in enumerate(chosen)}
        if depth == 0 and self.chance(0.15):
            listed.append(f"{self.value(columns, depth)} AS c{len(kinds)}")
            kinds[f"c{len(kinds)}"] = "number"
        return DrawnSelect(f"SELECT {', '.join(listed)} FROM {text}{self.where(columns, depth)}", kinds)

    def grouped(self, depth: int) -> DrawnSelect:
        """Return a SELECT of groups."""
        text, columns = self.source(depth)
        keys = self.chosen(columns) if self.chance(0.8) else []
        listed = [f"{key.text} AS c{k}" for k, key in enumerate(keys)]
        kinds = {f"c{k}": key.kind for k, key in enumerate(keys)}
        for _ in range(self.draw.randint(1, 2)):
            listed.append(f"{self.aggregate(columns)} AS c{len(kinds)}")
            kinds[f"c{len(kinds)}"] = "number"
        by = f" GROUP BY {', '.join(key.text for key in keys)}" if keys else ""
        having = f" HAVING count(*) > {self.draw.randint(0, 2)}" if keys and self.chance(0.3) else ""
        return DrawnSelect(f"SELECT {', '.join(listed)} FROM {text}{self.where(columns, depth)}{by}{having}", kinds)

    def numbered(self, depth: int) -> DrawnSelect:
        """Return a SELECT of the first rows of groups."""
        text, columns = self.source(depth)
        chosen = self.chosen(columns)
        kinds = {f"c{k}": column.kind for k, column in enumerate(chosen)}
        by = f"PARTITION BY {self.draw.choice(chosen).text} " if self.chance(0.7) else ""
        order = ", ".join(
            f"{column.text}{self.draw.choice(('', ' DESC'))}{self.draw.choice(('', ' NULLS FIRST'))}"
            for column in self.draw.sample(chosen, len(chosen))
        )
        listed = ", ".join(f"{column.text} AS c{k}" for k, column in enumerate(chosen))
        over = f"ROW_NUMBER() OVER ({by}ORDER BY {order})"
        if self.chance(0.3):
            return DrawnSelect(
                f"SELECT {listed} FROM {text}{self.where(columns, depth)} QUALIFY {over} <= {self.draw.randint(1, 4)}",
                kinds,
            )
        name = self.alias()
        inner = f"(SELECT {listed}, {over} AS rn FROM {text}{self.where(columns, depth)}) {name}"
        n = self.draw.randint(1, 4)
        bounds = f"rn <= {n}", f"rn < {n + 1}", f"{name}.rn = {n}", f"rn BETWEEN 2 AND {n + 1}", f"rn IN (1, {n})"
        bound = self.draw.choice(bounds)
        seen = [DrawnColumn(f"{name}.{column}", kind) for column, kind in kinds.items()]
        if self.chance(0.3):
            bound += f" AND {self.condition(seen, depth)}"
        if self.chance(0.3):
            key = self.draw.choice(seen)
            return DrawnSelect(
                f"SELECT {key.text} AS c0, {self.aggregate(seen)} AS c1 FROM {inner} WHERE {bound} GROUP BY {key.text}",
                {"c0": key.kind, "c1": "number"},
            )
        rank = ", rn" if self.chance(0.3) else ""
        listed = ", ".join(f"{column.text} AS c{k}" for k, column in enumerate(seen))
        shown = {**kinds, "rn": "number"} if rank else kinds
        return DrawnSelect(f"SELECT {listed}{rank} FROM {inner} WHERE {bound}", shown)

    def distinct(self, depth: int) -> DrawnSelect:
        """Return a SELECT of different rows."""
        text, columns = self.source(depth)
        chosen = self.chosen(columns)
        listed = ", ".join(f"{column.text} AS c{k}" for k, column in enumerate(chosen))
        kinds = {f"c{k}": column.kind for k, column in enumerate(chosen)}
        return DrawnSelect(f"SELECT DISTINCT {listed} FROM {text}{self.where(columns, depth)}", kinds)

    def set(self, depth: int) -> DrawnSelect:
        """Return UNION, EXCEPT or INTERSECT of two SELECTs with columns of the same kinds."""
        kinds = self.draw.choice((["number"], ["text"], ["number", "text"], ["number", "number"]))
        sides = []
        for _ in range(2):
            text, columns = self.source(depth + 1)
            outputs = [self.of_kind(columns, kind) or ("1" if kind == "number" else "'a'") for kind in kinds]
            listed = ", ".join(f"{output} AS c{k}" for k, output in enumerate(outputs))
            sides.append(f"SELECT {listed} FROM {text}{self.where(columns, depth + 1)}")
        name = self.draw.choice(("UNION", "EXCEPT", "INTERSECT"))
        return DrawnSelect(f" {name} ".join(sides), {f"c{k}": kind for k, kind in enumerate(kinds)})


@dataclass
class StatementFeed:
    """The rows of random pushes so far, in a database that has the answers."""

    draw: Random
    database: duckdb.DuckDBPyConnection
    given: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in "rsw"})
    table: dict[int, dict[str, Any]] = field(default_factory=dict)
    clock: int = 0

    def row(self, keys: tuple[int | None, ...] = (1, 2, 3, None)) -> dict[str, Any]:
        """Return a row whose time no other row has."""
        self.clock += 1
        return {
            "k": self.draw.choice(keys),
            "g": self.draw.choice(("a", "b", "c", None)),
            "v": self.draw.choice((*range(6), None)),
            "at": self.clock,
        }

    def push(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a push."""
        push: dict[str, list[dict[str, Any]]] = {}
        for name, keys in (("r", (1, 2, 3, None)), ("s", (1, 2, 3, None)), ("w", (1, 2, 3))):
            push[name] = [self.row(keys) for _ in range(self.draw.randrange(7))]
            self.given[name] += push[name]
        push["t"] = [
            {**self.row((1, 2, 3, 4)), "op": self.draw.choice(("c", "c", "d"))} for _ in range(self.draw.randrange(5))
        ]
        for row in push["t"]:
            self.table.pop(row["k"], None)
            if row["op"] != "d":
                self.table[row["k"]] = {name: row[name] for name in ROWS.names}
        return push

    def answer(self, text: str) -> Counter[str]:
        """Return the answer of a statement over all rows so far."""
        for name, table_rows in {**self.given, "t": list(self.table.values())}.items():
            self.database.register(name, pa.Table.from_pylist(table_rows, schema=ROWS))
        return Counter(str(list(row.values())) for row in self.database.sql(text).to_arrow_table().to_pylist())


def play(draw: Random, query: Query, text: str, database: duckdb.DuckDBPyConnection) -> int:
    """Push random rows, compare after each push, and return the number of rows that came."""
    feed, shown, came = StatementFeed(draw, database), Counter[str](), 0
    runtime = Runtime(query, output="changelog")
    for _ in range(draw.randint(1, 3)):
        pushed = query.inputs(feed.push())
        for part in [pushed] if runtime.derived else [{name: rows} for name, rows in pushed.items()]:
            table = runtime.push(part)
            came += len(table)
            for row in table.to_pylist():
                sign = -1 if row.pop("op", "+I") in ("-D", "-U") else 1
                shown[str(list(row.values()))] += sign
        shown = Counter({row: n for row, n in shown.items() if n})
        assert shown == feed.answer(text), text
    return came


def statement(seed: int) -> tuple[Random, str]:
    """Return a random statement, and what draws its rows."""
    draw = Random(seed)
    return draw, StatementDraw(draw).whole()


def query_of(text: str) -> Query:
    """Return the query of a statement. Raises SqlError."""
    query = eddy.sql(text, STREAMS)
    assert isinstance(query, Query)
    return query

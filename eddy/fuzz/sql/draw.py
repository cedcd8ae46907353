"""Draws cases of random SQL. `random.Random` makes the choices, so that Hypothesis can record and shrink them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from eddy.fuzz.sql.case import TABLES, Row, SqlCase
from eddy.fuzz.sql.expressions import Column, Expressions
from eddy.fuzz.sql.grouped import grouped, windowed

TEXTS = ("", "a", "b", "ab", "aB", "ba%", "a_b", "ñandú", "x\\y", " a ", "abcabc")


def sql_cases(strategies: Sequence[str]) -> SearchStrategy[SqlCase]:
    """Return a strategy of Hypothesis for cases: half of them from choices that it can shrink, half from seeds."""
    either = st.one_of(st.randoms(use_true_random=False), st.randoms(use_true_random=True))
    return either.map(lambda source: sql_case(source, strategies))


def sql_case(source: Random, strategies: Sequence[str]) -> SqlCase:
    """Return a random case."""
    names = TABLES[: source.randint(2, 4)]
    tables = {name: tuple(_row(source) for _ in range(source.randint(0, 9))) for name in names}
    kept = source.random() < 0.7
    writer = _Writer(source, names, kept)
    text = writer.statement()
    reference = to_duckdb(writer.reference or text)
    pushes, strategy = source.choice((1, 1, 2, 5)), source.choice(list(strategies))
    return SqlCase(tables, text, reference, kept, pushes, strategy, printed=source.random() < 0.25)


def _row(source: Random) -> Row:
    def maybe(value: int) -> int | None:
        return None if source.random() < 0.1 else value

    text = None if source.random() < 0.1 else source.choice(TEXTS)
    return (
        maybe(source.randint(0, 3)),
        maybe(source.randint(-5, 5)),
        maybe(source.randint(-300, 300)),
        maybe(source.randint(-12, 12)),
        text,
        source.choice((True, False, None)),
        source.randint(0, 120),
    )


def to_duckdb(text: str) -> str:
    """Return a statement as DuckDB reads it: it has SEMI JOIN where Spark has LEFT SEMI JOIN."""
    return re.sub(r"\bLEFT (SEMI|ANTI) JOIN\b", r"\1 JOIN", text)


@dataclass
class _Relation:
    """A relation in FROM: its text, and its columns by kind."""

    alias: str
    text: str
    columns: list[Column]


@dataclass
class _Writer:
    source: Random
    tables: str
    kept: bool
    reference: str = ""
    _number: int = 0
    _with: list[str] = field(default_factory=list)

    def statement(self) -> str:
        """Return a random statement."""
        shape = self.source.random()
        text, where = self._full() if self.source.random() < 0.12 else self._from()
        if shape < 0.35:
            # A window of event time needs a watermark, so streams that are not kept for ever.
            made = windowed if not self.kept and self.source.random() < 0.7 else grouped
            statement, self.reference = made(self.source, (text, where), self._expressions(), self._with_text())
            return statement
        return f"{self._with_text()}SELECT {self._select()} {text}{where and f' WHERE {where}'}"

    def _with_text(self) -> str:
        return f"WITH {', '.join(self._with)} " if self._with else ""

    def _expressions(self) -> Expressions:
        return Expressions(self.source, self.seen)

    def _select(self) -> str:
        if self.source.random() < 0.05 and not self._with:
            return "*"
        made = self._expressions()
        count = self.source.randint(1, 4)
        return ", ".join(f"{made.any(2)} AS c{k}" for k in range(count))

    # FROM

    def _from(self) -> tuple[str, str]:
        """Return FROM and the condition of WHERE, "" for none."""
        first = self._relation()
        self.seen = list(first.columns)
        text, names = f"FROM {first.text}", [first.alias]
        for _ in range(self.source.randint(1, 3)):
            kind = self.source.choice(
                ("JOIN",) * 5 + ("LEFT JOIN",) * 4 + ("RIGHT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
            )
            other = self._relation(nested=True)
            text += f" {kind} {other.text} ON {self._on(other)}"
            if kind.endswith("JOIN") and "SEMI" not in kind and "ANTI" not in kind:
                self.seen += other.columns
                names.append(other.alias)
        conditions = [self._expressions().condition(2) for _ in range(self.source.choice((0, 0, 1, 2)))]
        if self.source.random() < 0.3:
            conditions.append(self._exists(1))
        return text, " AND ".join(f"({condition})" for condition in conditions)

    def _alias(self) -> str:
        self._number += 1
        return f"r{self._number}"

    def _relation(self, nested: bool = False, filtered: bool = True) -> _Relation:
        table, alias = self.source.choice(self.tables), self._alias()
        chance = self.source.random()
        if chance < 0.65:
            return _Relation(alias, f"{table} AS {alias}", _columns(alias))
        if nested and chance < 0.75:
            # Joins in parentheses.
            other = self._alias()
            columns = [*_columns(alias), *_columns(other)]
            on = f"{alias}.k = {other}.k{self._interval(alias, other)}"
            return _Relation(
                alias, f"({table} AS {alias} JOIN {self.source.choice(self.tables)} AS {other} ON {on})", columns
            )
        inner = Expressions(self.source, _columns("t"))
        # Of these columns, some are not NULL where all columns of their row are.
        number = self.source.choice((inner.number(2), "7", f"COALESCE({inner.number(1)}, 2)"))
        text = self.source.choice((inner.text(1), "'here'"))
        truth = self.source.choice(("t.f", inner.condition(1), f"{inner.any_simple(0)} IS NULL"))
        where = f" WHERE {inner.condition(1)}" if filtered and self.source.random() < 0.5 else ""
        body = (
            f"SELECT t.k AS k, {number} AS v, t.d, t.x AS x, {text} AS s, {truth} AS f, t.at FROM {table} AS t{where}"
        )
        if chance < 0.9:
            return _Relation(alias, f"({body}) AS {alias}", _columns(alias))
        name = f"w{self._number}"
        self._with.append(f"{name} AS ({body})")
        return _Relation(alias, f"{name} AS {alias}", _columns(alias))

    def _interval(self, left: str, other: str) -> str:
        """Return an interval between the event times of two relations, which windows need unless they are kept."""
        if self.kept and self.source.random() < 0.6:
            return ""
        least, most = sorted((self.source.randint(-40, 40), self.source.randint(-40, 40)))
        return self.source.choice(
            (
                f" AND {left}.at BETWEEN {other}.at{_seconds(least)} AND {other}.at{_seconds(most)}",
                f" AND {left}.at - {other}.at >= INTERVAL '{least}' SECOND AND {left}.at <= {other}.at{_seconds(most)}",
            )
        )

    def _on(self, other: _Relation) -> str:
        """Return the condition of a join."""
        mine = self.source.choice([column for column in self.seen if column.kind == "key"]).text
        theirs = self.source.choice([column for column in other.columns if column.kind == "key"]).text
        on = self.source.choice((f"{mine} = {theirs}", f"{theirs} = {mine}"))
        if self.source.random() < 0.25:
            on = self._computed_key(other)
        text = on + self._interval(theirs.partition(".")[0], mine.partition(".")[0])
        both = Expressions(self.source, [*self.seen, *other.columns])
        if self.source.random() < 0.25:
            left = self.source.choice([column for column in self.seen if column.kind == "int"]).text
            right = self.source.choice([column for column in other.columns if column.kind == "int"]).text
            text += self.source.choice(
                (
                    f" AND {left} < {right} + 3",
                    f" AND ABS({left} - {right}) <= 4",
                    f" AND {left} - 2 >= {right}",
                    f" AND {left} <> {right}",
                    f" AND {left} BETWEEN {right} - 3 AND {right} + 3",
                )
            )
        if self.source.random() < 0.25:
            text += f" AND ({both.condition(2)})"
        return text

    def _computed_key(self, other: _Relation) -> str:
        """Return an equality of expressions, each over one relation."""

        def of(columns: list[Column], kind: str) -> str:
            return self.source.choice([column for column in columns if column.kind == kind]).text

        kind, form = self.source.choice(
            (
                ("key", "ABS({})"),
                ("key", "COALESCE({}, -1)"),
                ("key", "{} + 1"),
                ("key", "CAST({} AS VARCHAR)"),
                ("float", "ABS({})"),
                ("decimal", "{} * 2"),
            )
        )
        if self.source.random() < 0.3:
            # A number and a float.
            return f"{of(self.seen, 'key')} = {of(other.columns, 'float')}"
        plain = form if "VARCHAR" in form else self.source.choice((form, "{}"))
        return f"{form.format(of(self.seen, kind))} = {plain.format(of(other.columns, kind))}"

    def _exists(self, depth: int) -> str:
        """Return a condition with a subquery."""
        table, alias = self.source.choice(self.tables), self._alias()
        outer = self.source.choice([column for column in self.seen if column.kind == "key"]).text
        inner = Expressions(self.source, _columns(alias))
        where = f"{alias}.k = {outer}{self._interval(alias, outer.partition('.')[0])}"
        if self.source.random() < 0.5:
            where += f" AND ({inner.condition(1)})"
        if depth and self.source.random() < 0.3:
            before, self.seen = self.seen, _columns(alias)
            where += f" AND {self._exists(depth - 1)}"
            self.seen = before
        if self.source.random() < 0.2:
            rest = where.replace(f"{alias}.k = {outer}", "", 1).removeprefix(" AND ")
            return f"{outer} IN (SELECT {alias}.k FROM {table} AS {alias}{f' WHERE {rest}' if rest else ''})"
        return f"{self.source.choice(('EXISTS', 'NOT EXISTS'))} (SELECT 1 FROM {table} AS {alias} WHERE {where})"

    def _full(self) -> tuple[str, str]:
        """Return FROM with a full join, and the condition of WHERE, "" for none."""
        left, right = (self._relation(filtered=False) for _ in range(2))
        self.seen = list(left.columns)
        on = f"ON {self._on(right)}"
        if self.kept and self.source.random() < 0.3:
            on = self.source.choice(("USING (k)", f"ON {left.alias}.k < {right.alias}.k + 1"))
        self.seen += right.columns
        where = self._expressions().condition(1) if self.source.random() < 0.3 else ""
        return f"FROM {left.text} FULL JOIN {right.text} {on}", where

    seen: list[Column] = field(default_factory=list)


def _columns(alias: str) -> list[Column]:
    kinds = {"k": "key", "v": "int", "d": "decimal", "x": "float", "s": "text", "f": "bool", "at": "time"}
    return [Column(kind, f"{alias}.{name}") for name, kind in kinds.items()]


def _seconds(count: int) -> str:
    return "" if not count else f" {'-' if count < 0 else '+'} INTERVAL '{abs(count)}' SECOND"

"""Random scalar expressions that DuckDB and the dialect define alike. docs/guide/sql.md lists where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple


class Column(NamedTuple):
    """A column: "key", "int", "decimal", "float", "text", "bool" or "time", and its text."""

    kind: str
    text: str


class Expressions:
    """Draws expressions over some columns; each method takes the depth that is left."""

    def __init__(self, source: Random, columns: Sequence[Column]) -> None:
        self._source, self._columns = source, columns

    def column(self, *kinds: str) -> str:
        """Return a column of one of some kinds."""
        return self._source.choice([column.text for column in self._columns if column.kind in kinds])

    def _one_of(self, *makers: Callable[[], str]) -> str:
        return self._source.choice(makers)()

    def any(self, depth: int) -> str:
        """Return an expression of any type."""
        return self._one_of(
            lambda: self.column("key", "int", "decimal", "float", "text", "bool", "time"),
            lambda: self.number(depth),
            lambda: self.number(depth),
            lambda: self.exact(depth),
            lambda: self.real(depth),
            lambda: self.text(depth),
            lambda: self.time(depth),
            lambda: f"({self.condition(depth)})",
        )

    def number(self, depth: int) -> str:
        """Return an integer."""
        if depth <= 0 or self._source.random() < 0.3:
            return self._one_of(
                lambda: self.column("key", "int"),
                lambda: self.column("key", "int"),
                lambda: self.column("key", "int"),
                lambda: str(self._source.randint(-4, 4)).replace("-", "- "),
            )
        d = depth - 1
        return self._one_of(
            lambda: f"({self.number(d)} {self._source.choice('+-*')} {self.number(d)})",
            lambda: f"({self.number(d)} // NULLIF({self.number(d)}, 0))",
            lambda: f"({self.number(d)} % NULLIF({self.number(d)}, 0))",
            lambda: f"({self.number(d)} % {self._source.randint(1, 5)})",
            lambda: f"ABS({self.number(d)})",
            lambda: f"- ({self.number(d)})",
            lambda: f"SIGN({self.number(d)})",
            lambda: f"COALESCE({self.number(d)}, {self.number(d)})",
            lambda: f"NULLIF({self.number(d)}, {self.number(d)})",
            lambda: (
                f"{self._source.choice(('GREATEST', 'LEAST'))}({self.number(d)}, {self.number(d)}, {self.number(d)})"
            ),
            lambda: f"CASE WHEN {self.condition(d)} THEN {self.number(d)} ELSE {self.number(d)} END",
            lambda: f"CASE {self.number(d)} WHEN 1 THEN {self.number(d)} WHEN {self.number(d)} THEN 7 END",
            lambda: f"LENGTH({self.text(d)})",
            lambda: f"POSITION('{self._source.choice(('a', 'b', 'dú', '%', '.'))}' IN {self.text(d)})",
            lambda: f"EXTRACT({self._source.choice(('MINUTE', 'SECOND', 'HOUR', 'DAY', 'YEAR'))} FROM {self.time(d)})",
            lambda: f"CAST({self._source.choice(('FLOOR', 'CEIL', 'ROUND'))}({self.real(d)}) AS BIGINT)",
            lambda: f"CAST(({self.condition(d)}) AS INT)",
        )

    def exact(self, depth: int) -> str:
        """Return a decimal."""
        if depth <= 0 or self._source.random() < 0.4:
            return self._one_of(lambda: self.column("decimal"), lambda: self._source.choice(("1.5", "0.25", "- 2.75")))
        d = depth - 1
        return self._one_of(
            lambda: f"({self.exact(d)} {self._source.choice('+-')} {self.exact(d)})",
            lambda: f"({self.column('decimal')} * {self._source.choice(('2', '0.5', '- 3'))})",
            lambda: f"ABS({self.exact(d)})",
            lambda: f"CAST({self.column('key', 'int')} AS DECIMAL(8, 2))",
            lambda: f"CASE WHEN {self.condition(d)} THEN {self.exact(d)} END",
            lambda: f"ROUND({self.column('decimal')}, 1)",
            lambda: f"COALESCE({self.exact(d)}, {self.column('decimal')})",
        )

    def real(self, depth: int) -> str:
        """Return a float; quarters, so that sums are exact."""
        if depth <= 0 or self._source.random() < 0.4:
            return self.column("float")
        d = depth - 1
        return self._one_of(
            lambda: f"({self.real(d)} {self._source.choice('+-*')} {self.real(d)})",
            lambda: f"({self.real(d)} + {self.number(d)})",
            lambda: f"({self.number(d)} / {self._source.choice(('2', '4', '- 8'))})",
            lambda: f"({self.real(d)} / NULLIF({self.real(d)}, 0))",
            lambda: f"{self._source.choice(('ABS', 'FLOOR', 'CEIL', 'ROUND'))}({self.real(d)})",
            lambda: f"SQRT(ABS({self.real(d)}))",
            lambda: f"CAST({self.exact(d)} AS DOUBLE)",
            lambda: f"COALESCE({self.real(d)}, 0.5)",
        )

    def text(self, depth: int) -> str:
        """Return a text."""
        if depth <= 0 or self._source.random() < 0.4:
            return self._one_of(
                lambda: self.column("text"),
                lambda: self.column("text"),
                lambda: self._source.choice(("'a'", "''", "'it''s'")),
            )
        d = depth - 1
        return self._one_of(
            lambda: f"({self.text(d)} || {self.text(d)})",
            lambda: f"{self._source.choice(('UPPER', 'LOWER', 'REVERSE', 'TRIM', 'LTRIM', 'RTRIM'))}({self.text(d)})",
            lambda: f"SUBSTRING({self.text(d)}, {self._source.randint(1, 3)}, {self._source.randint(0, 3)})",
            lambda: f"SUBSTRING({self.text(d)} FROM {self._source.randint(1, 3)})",
            lambda: f"{self._source.choice(('LEFT', 'RIGHT'))}({self.text(d)}, {self._source.randint(0, 3)})",
            lambda: f"{self._source.choice(('LPAD', 'RPAD'))}({self.text(d)}, {self._source.randint(0, 6)}, '*')",
            lambda: f"REPLACE({self.text(d)}, '{self._source.choice(('a', 'b', 'ab'))}', 'z')",
            lambda: f"REPEAT({self.text(d)}, {self._source.randint(0, 2)})",
            lambda: f"CASE WHEN {self.condition(d)} THEN {self.text(d)} ELSE {self.text(d)} END",
            lambda: f"COALESCE({self.text(d)}, 'none')",
            lambda: f"CAST({self.number(d)} AS VARCHAR)",
            lambda: f"TRIM(BOTH 'a' FROM {self.text(d)})",
        )

    def time(self, depth: int) -> str:
        """Return a timestamp."""
        if depth <= 0 or self._source.random() < 0.5:
            return self.column("time")
        d = depth - 1
        return self._one_of(
            lambda: f"({self.time(d)} {self._source.choice('+-')} INTERVAL '{self._source.randint(0, 90)}' SECOND)",
            lambda: f"({self.time(d)} + INTERVAL '1' DAY)",
            lambda: f"DATE_TRUNC('{self._source.choice(('minute', 'hour', 'day'))}', {self.time(d)})",
            lambda: f"CASE WHEN {self.condition(d)} THEN {self.time(d)} END",
            lambda: f"GREATEST({self.time(d)}, {self.time(d)})",
        )

    def condition(self, depth: int) -> str:
        """Return a condition."""
        if depth <= 0:
            return self._one_of(lambda: self.column("bool"), lambda: f"{self.column('int')} > 0", lambda: "TRUE")
        d = depth - 1
        operator = self._source.choice(("=", "<>", "<", "<=", ">", ">="))
        return self._one_of(
            lambda: f"{self.number(d)} {operator} {self.number(d)}",
            lambda: f"{self.exact(d)} {operator} {self.exact(d)}",
            lambda: f"{self.real(d)} {operator} {self.number(d)}",
            lambda: f"{self.text(d)} {operator} {self.text(d)}",
            lambda: f"{self.time(d)} {operator} {self.time(d)}",
            lambda: f"{self.column('time')} {operator} TIMESTAMP '2026-01-01 00:01:00'",
            lambda: f"({self.time(d)} - {self.time(d)}) {operator} INTERVAL '20' SECOND",
            lambda: f"({self.condition(d)} AND {self.condition(d)})",
            lambda: f"({self.condition(d)} OR {self.condition(d)})",
            lambda: f"NOT ({self.condition(d)})",
            lambda: f"{self.any_simple(d)} IS {self._source.choice(('', 'NOT '))}NULL",
            lambda: (
                f"({self.condition(d)}) IS {self._source.choice(('', 'NOT '))}{self._source.choice(('TRUE', 'FALSE'))}"
            ),
            lambda: f"{self.number(d)} IS {self._source.choice(('', 'NOT '))}DISTINCT FROM {self.number(d)}",
            lambda: f"{self.number(d)} BETWEEN {self.number(d)} AND {self.number(d)}",
            lambda: f"{self.number(d)} {self._source.choice(('', 'NOT '))}IN (1, {self.number(d)}, NULL)",
            lambda: f"{self.text(d)} IN ('a', 'ab', {self.text(d)})",
            lambda: f"{self.text(d)} {self._source.choice(('', 'NOT '))}LIKE '{self._source.choice(PATTERNS)}'",
            lambda: f"{self.text(d)} ILIKE '{self._source.choice(PATTERNS)}'",
            lambda: f"{self.text(d)} LIKE 'a!_%' ESCAPE '!'",
            lambda: f"STARTS_WITH({self.text(d)}, 'a')",
            lambda: f"CONTAINS({self.text(d)}, 'b')",
        )

    def any_simple(self, depth: int) -> str:
        """Return a number, text or time."""
        return self._one_of(lambda: self.number(depth), lambda: self.text(depth), lambda: self.time(depth))


PATTERNS = ("a%", "%b", "a_b", "%a%", "", "_", "x\\y", "ñ%")

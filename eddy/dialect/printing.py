"""A query as SQL. The module reads the text back, and the text must give the same query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.statement import sql
from eddy.dialect.union import UnionAll
from eddy.expressions.computed import ComputedExpression
from eddy.expressions.conditions import SqlPredicate
from eddy.expressions.derived import Derived
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.occurrences import side_text, unused
from eddy.expressions.parser import Term, WrittenComparison
from eddy.expressions.predicates import digits
from eddy.expressions.source import StatementText, parse
from eddy.expressions.written import parse_predicates
from eddy.filters.conditions import Condition, Predicate
from eddy.query.as_of import AsOf, AsOfJoin
from eddy.query.branch import Branch
from eddy.query.host_limits import check_sourceless
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.query.top import Ranking, order_term
from eddy.streams.key_types import comparable
from eddy.streams.key_types.times import units_per
from eddy.streams.stream import PRESENCE, Stream, present
from stairs.errors import QueryError, SqlError

Conjunct = tuple[frozenset[str], str]
"""The streams that a condition reads, and its text."""


def to_sql(query: Query | UnionAll) -> str:
    """Return a query as SQL that `eddy.sql` reads back, given its streams without the filters in the text.

    Windows, time columns, lateness and filters given to `Stream` are not in the text. Raises QueryError for a query
    that has no text: for a condition that is a function, or an expression of Arrow, and for inputs that are queries.
    """
    if isinstance(query, UnionAll):
        return " UNION ALL ".join(map(to_sql, query.queries))
    check_sourceless(query, "the text of a query", "take that of each query by itself")
    text = _Printer(query).select()
    try:
        again = _read(text, query)
    except SqlError as error:
        raise QueryError(f"this query has no text in SQL: {text} is not one, {error}; it is {query!r}") from error
    if _canonical(again) != _canonical(query):
        raise QueryError(f"this query has no text in SQL: {text} means another one; it is {query!r}")
    return text


def table_streams(query: Query) -> list[Stream]:
    """Return the tables of a query: its streams as they were given, without the filters of its text."""
    found: dict[str, Stream] = {}
    for one in query.streams:
        table = query.tables.get(one.name, one.name)
        given = [each for each in one.conditions if not isinstance(each, SqlPredicate)]
        window = None if one.name in query.unwindowed else one.window
        found.setdefault(table, replace(one, name=table, filter=given or None, window=window))
    return list(found.values())


def _read(text: str, query: Query) -> Query:
    again = sql(
        text,
        table_streams(query),
        lateness=query.lateness,
        late=query.late,
        late_rows=query.late_rows,
        failed=query.failed,
        failed_rows=query.failed_rows,
        watermark=query.watermark,
        idle_after=query.idle_after,
        expiry=query.expiry,
    )
    assert isinstance(again, Query)
    return again


def _canonical(query: Query) -> object:
    """Return a value that is the same for queries that differ in the order of their streams and branches only."""
    text = query_text(query)
    streams = sorted(
        (one["name"], repr(_sorted(one["filter"])), repr(one)[: -len(repr(one["filter"]))]) for one in text["streams"]
    )
    joins = list(query.inner_joins().values())
    inner = sorted(
        (
            sorted(sorted(one.columns.items()) for one in each.classes).__repr__(),
            sorted(" ".join(sorted(c.canonical.split())) for c in each.comparisons),
            repr(_sorted(query_text(each)["where"])),
        )
        for each in joins
    )
    names = query.graph.names
    as_of = [
        repr((names[one.table], one.at, [(names[k.stream], k.column, k.key) for k in one.keys], one[3:]))
        for one in query.as_of_joins
    ]
    more = text.get("groups"), text.get("top"), as_of
    return streams, inner, text["select"], repr(_sorted(text["where"])), text["lateness"], *more


def _sorted(found: object) -> list[str]:
    return sorted(map(repr, found if isinstance(found, list) else [found]))


class _Printer:
    def __init__(self, query: Query) -> None:
        self.query = query

    def select(self) -> str:
        """Return the whole statement."""
        query = self.query
        core, branches = query.core_streams, query.branches
        where = [self._condition(one, "where") for one in query.conditions]
        full = any(one.how == "full" for one in branches)
        if not full:
            where += [text for one in core for _, text in self._filters(one)]
        groups = query.group_texts
        if query.aggregation is not None and groups is None:
            raise QueryError(
                "the groups of this query were made in Python, and have no text in SQL; give GROUP BY to eddy.sql"
            )
        shown = list(self._outputs()) if groups is None else [groups[0]]
        number = query.ranking and self._row_number(query.ranking)
        lines = [f"SELECT {', '.join([*shown, *filter(None, [number])])}"]
        lines.append(f"FROM {self._joined(core, self._predicates(query.on, core))}")
        for one in branches:
            self._branch(one, lines, where)
        lines += map(self._as_of, query.as_of, query.as_of_joins)
        if where:
            lines.append(f"WHERE {' AND '.join(map(_in_and, where))}")
        if groups is not None and groups[1]:
            lines.append(f"GROUP BY {groups[1]}")
        if query.aggregation is not None and query.aggregation.conditions:
            having = [self._condition(one, "having") for one in query.aggregation.conditions]
            lines.append(f"HAVING {' AND '.join(map(_in_and, having))}")
        if query.ranking is None:
            return " ".join(lines)
        names, rank = query.output_schema.names, self._rank_name()
        outer = "*" if query.ranking.top.rank is not None else ", ".join(map(_name, names))
        return f"SELECT {outer} FROM ({' '.join(lines)}) WHERE {_name(rank)} <= {query.ranking.n}"

    def _rank_name(self) -> str:
        """Return the name of the row number in the subquery."""
        assert self.query.top is not None
        return self.query.top.rank or unused("row_num", {name.lower() for name in self.query.output_schema.names})

    def _row_number(self, ranking: Ranking) -> str:
        """Return the call of ROW_NUMBER, with its name."""
        query = self.query
        if query.aggregation is None:
            rows = {**query.outputs, **query.hidden_outputs}
            by = [self._row_text(rows[name]) for name in ranking.by]
            order = [(self._row_text(rows[one.name]), one.descending, one.nulls_first) for one in ranking.order]
        else:
            if query.top_texts is None:
                raise QueryError(
                    "top of this query was made in Python over its groups, and has no text in SQL; give ROW_NUMBER() to"
                    " eddy.sql"
                )
            by, order = list(query.top_texts.by), [order_term(one) for one in query.top_texts.order]
        parts = [f"PARTITION BY {', '.join(by)}"] if by else []
        if order:
            terms = [text + " DESC" * down + " NULLS FIRST" * first for text, down, first in order]
            parts.append(f"ORDER BY {', '.join(terms)}")
        return f"ROW_NUMBER() OVER ({' '.join(parts)}) AS {_name(self._rank_name())}"

    def _row_text(self, one: tuple[str, str] | ComputedExpression) -> str:
        """Return a column of joined rows as text."""
        if not isinstance(one, ComputedExpression):
            return _column(*one)
        if one.sql is None:
            raise QueryError(f"top: the Arrow expression {one.title} has no text in SQL")
        return one.sql

    def _outputs(self) -> Iterator[str]:
        for name, one in self.query.outputs.items():
            if isinstance(one, ComputedExpression):
                if one.sql is None:
                    raise QueryError(
                        f"output column {name!r} is the Arrow expression {one.title}, which has no text in SQL"
                    )
                yield f"{one.sql} AS {_name(name)}"
            else:
                yield f"{_column(*one)} AS {_name(name)}"

    def _table(self, stream: Stream, as_of: str = "") -> str:
        table = self.query.tables.get(stream.name, stream.name)
        shown = ".".join(map(_name, table.split("."))) if table != stream.name else _name(table)
        return f"{shown}{as_of}" if table == stream.name else f"{shown}{as_of} AS {_name(stream.name)}"

    def _as_of(self, one: AsOf, join: AsOfJoin) -> str:
        if one.direction != "backward" or one.tolerance is not None:
            raise QueryError(
                f"the as-of join with {one.table.name} has a direction or a tolerance, which has no text in SQL"
            )
        at = "PROCTIME()"
        if join.at is not None:
            stream = self.query.streams[join.at]
            assert stream.time is not None
            at = _column(stream.name, stream.time)
        table = self._table(self.query.stream(one.table.name), f" FOR SYSTEM_TIME AS OF {at}")
        on = " AND ".join(_in_and(text) for _, text in self._predicates(one.on, self.query.streams))
        return f"{'LEFT ' if join.left else ''}JOIN {table} ON {on}"

    def _joined(self, streams: Sequence[Stream], conjuncts: list[Conjunct]) -> str:
        """Return streams joined by those of the conjuncts that read no others; they are taken out."""
        text, here, rest = self._table(streams[0]), {streams[0].name}, list(streams[1:])
        while rest:
            # A stream comes after one that it joins, so that CROSS JOIN stays for streams that join no other.
            linked = (one for one in rest if any(one.name in names <= here | {one.name} for names, _ in conjuncts))
            one = next(linked, rest[0])
            rest.remove(one)
            here.add(one.name)
            own = [each for each in conjuncts if each[0] <= here]
            for each in own:
                conjuncts.remove(each)
            on = " AND ".join(_in_and(text) for _, text in own)
            text += f" JOIN {self._table(one)} ON {on}" if on else f" CROSS JOIN {self._table(one)}"
        return text

    def _branch(self, one: Branch, lines: list[str], where: list[str]) -> None:
        """Add a branch: a join, or for a semi or anti branch with branches EXISTS."""
        if one.how in ("semi", "anti") and one.branches:
            where.append(self._exists(one))
            return
        conjuncts = self._conjuncts(one)
        joined, after = self._joined(one.streams, conjuncts), list(one.branches)
        deciding = [each for each in one.branches if each.how in ("semi", "anti")]
        if deciding:
            # Semi and anti branches decide which rows the branch has, so they stand inside the branch. Other branches
            # may read streams above the branch.
            inside: list[str] = [joined]
            for each in deciding:
                after.remove(each)
                self._branch(each, inside, [])
            joined = " ".join(inside)
        shown = f"({joined})" if " JOIN " in joined else joined
        word = {"left": "LEFT", "full": "FULL", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}[one.how]
        on = " AND ".join(_in_and(text) for _, text in conjuncts)
        lines.append(f"{word} JOIN {shown} ON {on}")
        for each in after:
            self._branch(each, lines, where)

    def _exists(self, one: Branch) -> str:
        conjuncts = self._conjuncts(one)
        lines, inner = [f"SELECT 1 FROM {self._joined(one.streams, conjuncts)}"], [text for _, text in conjuncts]
        for each in one.branches:
            if each.how == "left":
                self._branch(each, lines, inner)
            else:
                inner.append(self._exists(each))
        text = f"EXISTS({' '.join(lines)} WHERE {' AND '.join(map(_in_and, inner))})"
        return text if one.how == "semi" else f"NOT {text}"

    def _conjuncts(self, one: Branch) -> list[Conjunct]:
        parsed = parse_predicates(one.on, self.query.streams)
        found = self._predicates(one.on, self.query.streams)
        names = frozenset(stream.name for stream in self.query.streams) | {""}
        found += [(names, condition.sql) for condition in parsed.conditions]
        for each in one.streams:
            found += self._filters(self.query.stream(each.name))
        for condition in one.conditions:
            found.append((names, self._condition(condition, "where of a branch")))
        return found

    def _filters(self, stream: Stream) -> list[Conjunct]:
        own = [each for each in stream.conditions if isinstance(each, SqlPredicate)]
        return [(frozenset([stream.name]), each.sql) for each in own]

    def _condition(self, one: Condition, place: str) -> str:
        if isinstance(one, SqlPredicate):
            return one.sql
        title = one.title if isinstance(one, Predicate) else str(one)
        raise QueryError(
            f"{place}: the condition {title} has no text in SQL; give it to eddy.sql, or keep it in Python"
        )

    def _predicates(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[Conjunct]:
        """Return equalities and comparisons; `where` has the other conditions."""
        parsed = parse_predicates(texts, streams)
        found = [
            (frozenset([one[0], other[0]]), f"{_side(*one)} = {_side(*other)}") for one, other in parsed.equalities
        ]
        return found + [self._comparison(one) for one in parsed.comparisons]

    def _comparison(self, one: WrittenComparison) -> Conjunct:
        sides = one.left.column, one.right.column
        kind = comparable([self.query.stream(stream).type_of(column) for stream, column in sides])
        assert kind is not None
        own = [self.query.stream(stream).type_of(column) for stream, column in sides]
        left, right = (_term(term, kind, own) for term in (one.left, one.right))
        operator = "<>" if one.operator == "!=" else one.operator
        return frozenset([sides[0][0], sides[1][0]]), f"{left} {operator} {right}"


def _term(term: Term, kind: pa.DataType, own: list[pa.DataType]) -> str:
    amount, is_span, per_second = term.amount.value, term.amount.is_span, units_per(own[0])
    text = _column(*term.column)
    if not amount:
        return text
    if not is_span and per_second is not None and not pa.types.is_date(kind):
        amount, is_span = amount / per_second, True
    shown = f"INTERVAL '{digits(abs(amount))}' SECOND" if is_span else digits(abs(amount))
    if is_span and pa.types.is_date(kind):
        shown = digits(abs(amount) / Fraction(86_400))
    return f"{text} {'-' if amount < 0 else '+'} {shown}"


def _name(name: str) -> str:
    return printed(identifier(name))


def _side(stream: str, column: str) -> str:
    return side_text(column.shown) if isinstance(column, Derived) else _column(stream, column)


def _column(stream: str, column: str) -> str:
    if column == PRESENCE:
        return present(_name(stream))
    return printed(exp.Column(this=identifier(column), table=identifier(stream)))


@lru_cache(maxsize=1024)
def _in_and(text: str) -> str:
    """Return a condition as it stands beside AND."""
    tree = parse(StatementText(f"SELECT {text}"))
    return f"({text})" if isinstance(tree.expressions[0], exp.Or) else text

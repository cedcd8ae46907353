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
    streams: dict[str, Stream] = {}
    for stream in query.streams:
        table = query.tables.get(stream.name, stream.name)
        given = [each for each in stream.conditions if not isinstance(each, SqlPredicate)]
        window = None if stream.name in query.unwindowed else stream.window
        streams.setdefault(table, replace(stream, name=table, filter=given or None, window=window))
    return list(streams.values())


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
        (stream["name"], repr(_sorted(stream["filter"])), repr(stream)[: -len(repr(stream["filter"]))])
        for stream in text["streams"]
    )
    joins = list(query.inner_joins().values())
    inner = sorted(
        (
            sorted(sorted(key_class.columns.items()) for key_class in each.classes).__repr__(),
            sorted(comparison.canonical for comparison in each.comparisons),
            repr(_sorted(query_text(each)["where"])),
        )
        for each in joins
    )
    names = query.graph.names
    as_of = [
        repr((names[join.table], join.at, [(names[k.stream], k.column, k.key) for k in join.keys], join[3:]))
        for join in query.as_of_joins
    ]
    more = text.get("groups"), text.get("top"), as_of
    # The columns that groups read come in the order of the streams.
    select = text["select"] if query.aggregation is None else sorted(map(repr, text["select"]))
    return streams, inner, select, repr(_sorted(text["where"])), text["lateness"], *more


def _sorted(conditions: object) -> list[str]:
    return sorted(map(repr, conditions if isinstance(conditions, list) else [conditions]))


class _Printer:
    def __init__(self, query: Query) -> None:
        self.query = query

    def select(self) -> str:
        """Return the whole statement."""
        query = self.query
        core, branches = query.core_streams, query.branches
        where = [self._condition(condition, "where") for condition in query.conditions]
        full = any(branch.how == "full" for branch in branches)
        if not full:
            where += [text for stream in core for _, text in self._filters(stream)]
        groups = query.group_texts
        if query.aggregation is not None and groups is None:
            raise QueryError(
                "the groups of this query were made in Python, and have no text in SQL; give GROUP BY to eddy.sql"
            )
        shown = list(self._outputs()) if groups is None else [groups[0]]
        number = query.ranking and self._row_number(query.ranking)
        lines = [f"SELECT {', '.join([*shown, *filter(None, [number])])}"]
        lines.append(f"FROM {self._joined(core, self._predicates(query.on, core))}")
        for branch in branches:
            self._branch(branch, lines, where)
        lines += map(self._as_of, query.as_of, query.as_of_joins)
        if where:
            lines.append(f"WHERE {' AND '.join(map(_in_and, where))}")
        if groups is not None and groups[1]:
            lines.append(f"GROUP BY {groups[1]}")
        if query.aggregation is not None and query.aggregation.conditions:
            having = [self._condition(condition, "having") for condition in query.aggregation.conditions]
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
            order = [(self._row_text(rows[term.name]), term.descending, term.nulls_first) for term in ranking.order]
        else:
            if query.top_texts is None:
                raise QueryError(
                    "top of this query was made in Python over its groups, and has no text in SQL; give ROW_NUMBER() to"
                    " eddy.sql"
                )
            by, order = list(query.top_texts.by), [order_term(term) for term in query.top_texts.order]
        parts = [f"PARTITION BY {', '.join(by)}"] if by else []
        if order:
            terms = [text + " DESC" * down + " NULLS FIRST" * first for text, down, first in order]
            parts.append(f"ORDER BY {', '.join(terms)}")
        return f"ROW_NUMBER() OVER ({' '.join(parts)}) AS {_name(self._rank_name())}"

    def _row_text(self, output: tuple[str, str] | ComputedExpression) -> str:
        """Return a column of joined rows as text."""
        if not isinstance(output, ComputedExpression):
            return _column(*output)
        if output.sql is None:
            raise QueryError(f"top: the Arrow expression {output.title} has no text in SQL")
        return output.sql

    def _outputs(self) -> Iterator[str]:
        for name, output in self.query.outputs.items():
            if isinstance(output, ComputedExpression):
                if output.sql is None:
                    raise QueryError(
                        f"output column {name!r} is the Arrow expression {output.title}, which has no text in SQL"
                    )
                yield f"{output.sql} AS {_name(name)}"
            else:
                yield f"{_column(*output)} AS {_name(name)}"

    def _table(self, stream: Stream, as_of: str = "") -> str:
        table = self.query.tables.get(stream.name, stream.name)
        shown = ".".join(map(_name, table.split("."))) if table != stream.name else _name(table)
        return f"{shown}{as_of}" if table == stream.name else f"{shown}{as_of} AS {_name(stream.name)}"

    def _as_of(self, as_of: AsOf, join: AsOfJoin) -> str:
        if as_of.direction != "backward" or as_of.tolerance is not None:
            raise QueryError(
                f"the as-of join with {as_of.table.name} has a direction or a tolerance, which has no text in SQL"
            )
        at = "PROCTIME()"
        if join.at is not None:
            stream = self.query.streams[join.at]
            assert stream.time is not None
            at = _column(stream.name, stream.time)
        table = self._table(self.query.stream(as_of.table.name), f" FOR SYSTEM_TIME AS OF {at}")
        on = " AND ".join(_in_and(text) for _, text in self._predicates(as_of.on, self.query.streams))
        return f"{'LEFT ' if join.left else ''}JOIN {table} ON {on}"

    def _joined(self, streams: Sequence[Stream], conjuncts: list[Conjunct]) -> str:
        """Return streams joined by those of the conjuncts that read no others; they are taken out."""
        text, here, rest = self._table(streams[0]), {streams[0].name}, list(streams[1:])
        while rest:
            # A stream comes after one that it joins, so that CROSS JOIN stays for streams that join no other.
            linked = (
                stream for stream in rest if any(stream.name in names <= here | {stream.name} for names, _ in conjuncts)
            )
            stream = next(linked, rest[0])
            rest.remove(stream)
            here.add(stream.name)
            ready = [each for each in conjuncts if each[0] <= here]
            for each in ready:
                conjuncts.remove(each)
            on = " AND ".join(_in_and(text) for _, text in ready)
            text += f" JOIN {self._table(stream)} ON {on}" if on else f" CROSS JOIN {self._table(stream)}"
        return text

    def _branch(self, branch: Branch, lines: list[str], where: list[str], above: Branch | None = None) -> None:
        """Add a branch: a join, or for a semi or anti branch with branches EXISTS.

        above   the branch on which it hangs, None for the core
        """
        if branch.how in ("semi", "anti") and branch.branches:
            where.append(self._exists(branch))
            return
        conjuncts = self._conjuncts(branch)
        joined, after = self._joined(branch.streams, conjuncts), list(branch.branches)
        deciding = [each for each in branch.branches if each.how in ("semi", "anti")]
        if deciding:
            # Semi and anti branches decide which rows the branch has, so they stand inside the branch. Other branches
            # may read streams above the branch.
            inside: list[str] = [joined]
            for each in deciding:
                after.remove(each)
                self._branch(each, inside, [])
            joined = " ".join(inside)
        shown = f"({joined})" if " JOIN " in joined else joined
        word = {"left": "LEFT", "full": "FULL", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}[branch.how]
        texts = [_in_and(text) for _, text in conjuncts]
        if above is not None and not any(_column(s.name, "")[:-2] in text for s in above.streams for text in texts):
            texts.append(present(_name(above.streams[0].name)))  # else it would hang further up
        lines.append(f"{word} JOIN {shown} ON {' AND '.join(texts)}")
        for each in after:
            self._branch(each, lines, where, branch)

    def _exists(self, branch: Branch) -> str:
        conjuncts = self._conjuncts(branch)
        lines, inner = [f"SELECT 1 FROM {self._joined(branch.streams, conjuncts)}"], [text for _, text in conjuncts]
        for each in branch.branches:
            if each.how == "left":
                self._branch(each, lines, inner)
            else:
                inner.append(self._exists(each))
        text = f"EXISTS({' '.join(lines)} WHERE {' AND '.join(map(_in_and, inner))})"
        return text if branch.how == "semi" else f"NOT {text}"

    def _conjuncts(self, branch: Branch) -> list[Conjunct]:
        parsed = parse_predicates(branch.on, self.query.streams)
        conjuncts = self._predicates(branch.on, self.query.streams)
        names = frozenset(stream.name for stream in self.query.streams) | {""}
        conjuncts += [(names, condition.sql) for condition in parsed.conditions]
        for each in branch.streams:
            conjuncts += self._filters(self.query.stream(each.name))
        for condition in branch.conditions:
            conjuncts.append((names, self._condition(condition, "where of a branch")))
        return conjuncts

    def _filters(self, stream: Stream) -> list[Conjunct]:
        predicates = [each for each in stream.conditions if isinstance(each, SqlPredicate)]
        return [(frozenset([stream.name]), each.sql) for each in predicates]

    def _condition(self, condition: Condition, place: str) -> str:
        if isinstance(condition, SqlPredicate):
            return condition.sql
        title = condition.title if isinstance(condition, Predicate) else str(condition)
        raise QueryError(
            f"{place}: the condition {title} has no text in SQL; give it to eddy.sql, or keep it in Python"
        )

    def _predicates(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[Conjunct]:
        """Return equalities and comparisons; `where` has the other conditions."""
        parsed = parse_predicates(texts, streams)
        conjuncts = [
            (frozenset([side[0], other[0]]), f"{_side(*side)} = {_side(*other)}") for side, other in parsed.equalities
        ]
        return conjuncts + [self._comparison(comparison) for comparison in parsed.comparisons]

    def _comparison(self, comparison: WrittenComparison) -> Conjunct:
        sides = comparison.left.column, comparison.right.column
        kind = comparable([self.query.stream(stream).type_of(column) for stream, column in sides])
        assert kind is not None
        types = [self.query.stream(stream).type_of(column) for stream, column in sides]
        left, right = (_term(term, kind, types) for term in (comparison.left, comparison.right))
        operator = "<>" if comparison.operator == "!=" else comparison.operator
        return frozenset([sides[0][0], sides[1][0]]), f"{left} {operator} {right}"


def _term(term: Term, kind: pa.DataType, types: list[pa.DataType]) -> str:
    amount, is_span, per_second = term.amount.value, term.amount.is_span, units_per(types[0])
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

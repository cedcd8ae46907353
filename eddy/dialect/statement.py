"""Statements: `eddy.sql`, SELECT lists, WITH, UNION ALL and EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.aggregate_names import aggregates_in
from eddy.dialect.explaining import explained
from eddy.dialect.groups import grouped_query, read_groups, with_distinct
from eddy.dialect.joins import JoinTranslator
from eddy.dialect.names import Relation, Scope
from eddy.dialect.numbered_relations import with_first_rows
from eddy.dialect.relations import NotFlatError, QueryBlock, Relations, WholeQuery, with_scalars
from eddy.dialect.row_numbers import (
    RANK,
    Numbered,
    OrderTerm,
    TopClause,
    mark_read,
    number_column,
    numbered_select,
    subquery_of,
)
from eddy.dialect.sets import different_types, is_set, select_of, without_sets
from eddy.dialect.union import UnionAll
from eddy.dialect.window_tables import with_window, without_window_tables
from eddy.expressions.admitted import check
from eddy.expressions.computed import ComputedExpression
from eddy.expressions.grammar import printed
from eddy.expressions.occurrences import Occurrence
from eddy.expressions.source import StatementText, parse
from eddy.expressions.trees import place_of
from eddy.query.arguments import listed
from eddy.query.clock_rule import WatermarkOf
from eddy.query.expiry import Expiry
from eddy.query.query import Query
from eddy.query.top import Top
from eddy.streams.late_options import LATE_ROWS, Failed, Late
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from stairs.errors import QueryError, SqlError

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(PLAN\s+FOR\s+)?", re.IGNORECASE)


def sql(
    text: str,
    streams: Sequence[Stream],
    *,
    lateness: int | timedelta = 0,
    late: Late = "keep",
    late_rows: int = LATE_ROWS,
    failed: Failed = "keep",
    failed_rows: int = LATE_ROWS,
    watermark: WatermarkOf = "slowest",
    idle_after: int | timedelta | None = None,
    expiry: Expiry = "retract",
) -> Any:
    """Return the query of a SELECT; docs/guide/sql.md describes the dialect.

    text      one statement. SELECT … gives a `Query`; SELECT … UNION ALL SELECT … a `UnionAll` of several; EXPLAIN
              SELECT … a text about the query and its plan
    streams   the tables, by name, with their windows, time columns and filters
    lateness, late, late_rows, failed, failed_rows, watermark, idle_after, expiry   as in `Query`

    A stream of the query has the name of its table, or the alias where the statement names the table more than once;
    `Query.tables` has the table of each stream, and `Query.inputs` the rows of each stream. Raises SqlError, with the
    line and the column, for text that is no SQL, unknown names, types that do not fit, and parts that the dialect
    lacks.

    >>> import pyarrow as pa
    >>> rows = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    >>> streams = [Stream("a", rows, time="at"), Stream("b", rows, time="at")]
    >>> on = "a.k = b.k AND b.at BETWEEN a.at AND a.at + 60"
    >>> query = sql(f"SELECT a.k, b.at - a.at AS age FROM a JOIN b ON {on}", streams)
    >>> query
    Query(a [RANGE 60], b [RANGE 0]; a.k = b.k AND b.at >= a.at AND b.at <= a.at + 60)
    >>> query.output_schema.names
    ['k', 'age']
    """
    options = {
        "lateness": lateness,
        "late": late,
        "late_rows": late_rows,
        "failed": failed,
        "failed_rows": failed_rows,
        "watermark": watermark,
        "idle_after": idle_after,
        "expiry": expiry,
    }
    tables = _tables(streams)
    source, asked = unexplained(text)
    query = _statement(source, tables, options)
    return explained(query) if asked else query


def tables_of(text: str) -> list[str]:
    """Return the names of the tables that a statement reads, in order. Raises SqlError for text that is no SQL."""
    tree = parse(unexplained(text)[0])
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    names = [".".join(part.name for part in table.parts) for table in tree.find_all(exp.Table)]
    return [name for name in dict.fromkeys(names) if name not in ctes]


def unexplained(text: str) -> tuple[StatementText, bool]:
    """Return a statement without its EXPLAIN, and whether it had one. The places of errors are those in the text."""
    source = StatementText(text)
    asked = _EXPLAIN.match(text)
    if asked is not None:
        text = re.sub(r"\S", " ", asked.group()) + text[asked.end() :]
    source.text, source.windows = without_window_tables(text)
    return source, asked is not None


def _tables(streams: Iterable[Stream]) -> dict[str, Stream]:
    tables: dict[str, Stream] = {}
    for stream in listed(streams, "streams", "eddy.Stream objects"):
        if not isinstance(stream, Stream):
            raise QueryError(f"streams must be eddy.Stream objects, not {stream!r}")
        if stream.name in tables:
            raise QueryError(f"two streams are named {stream.name!r}; give each stream its own name")
        tables[stream.name] = stream
    return tables


def _statement(source: StatementText, tables: Mapping[str, Stream], options: Mapping[str, Any]) -> Query | UnionAll:
    return translated(parse(source), source, tables, options)


def translated(
    tree: exp.Expression, source: StatementText, tables: Mapping[str, Stream], options: Mapping[str, Any]
) -> Query | UnionAll:
    """Return the query of a statement that was parsed."""
    check(tree, source)
    queries: list[Query] = []
    unions: list[tuple[exp.Expression, Common]] = []
    whole = partial(_inner_query, source, tables, options)
    for select, ctes in _selects(tree, {}, source, unions, whole):
        queries.append(_query(select, source, tables, ctes, options))
        if queries[0].output_schema.types != queries[-1].output_schema.types:
            schemas = [query.output_schema for query in (queries[0], queries[-1])]
            raise source.error(select, different_types("UNION ALL", schemas))
    for union, ctes in unions:
        _read_others(union, ctes, source, tables, whole)
    return queries[0] if len(queries) == 1 else UnionAll(queries)


Common = Mapping[str, exp.Expression]
"""Common table expressions by name, in order."""


def _selects(
    tree: exp.Expression,
    ctes: Common,
    source: StatementText,
    unions: list[tuple[exp.Expression, Common]],
    whole: WholeQuery,
) -> list[tuple[exp.Select, Common]]:
    """Return the SELECTs that UNION ALL joins, each with the common table expressions around it.

    unions   gets each UNION ALL with those that it sees
    """
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        inside = _common(tree, ctes, source)
        if is_set(tree):
            return [(select_of(tree, source, partial(_schema, whole, inside)), ctes)]
        unions.append((tree, inside))
        return [select for side in (tree.left, tree.right) for select in _selects(side, inside, source, unions, whole)]
    if not isinstance(tree, exp.Select):
        reads = "; eddy.create_table reads CREATE TABLE" if isinstance(tree, exp.Create) else ""
        raise source.error(
            tree, f"{_verb(source)} is not supported; a statement is a SELECT, or EXPLAIN and a SELECT{reads}"
        )
    return [(tree, ctes)]


def _schema(whole: WholeQuery, ctes: Common, select: exp.Select) -> pa.Schema:
    """Return the columns of a SELECT that is a statement by itself."""
    return whole(select, ctes).output_schema


def _verb(source: StatementText) -> str:
    words = source.text.split()
    return words[0].upper()[:20] if words else "an empty text"


def _common(tree: exp.Expression, outer: Common, source: StatementText) -> dict[str, exp.Expression]:
    """Return the common table expressions that a statement sees, in order."""
    visible, ctes = dict(outer), _own_common(tree)
    for cte in ctes:
        alias = cte.args["alias"]
        if sum(other.alias.lower() == cte.alias.lower() for other in ctes) > 1:
            raise source.error(cte, f"two common table expressions are named {cte.alias!r}; give each its own name")
        visible.pop(cte.alias, None)
        visible[cte.alias] = exp.Subquery(this=cte.this.copy(), alias=alias.copy()) if alias.columns else cte.this
    return visible


def _own_common(tree: exp.Expression) -> list[exp.CTE]:
    given = tree.args.get("with_")
    return [] if given is None else given.expressions


def _read_others(
    tree: exp.Expression, ctes: Common, source: StatementText, tables: Mapping[str, Stream], whole: WholeQuery
) -> None:
    """Read the unused common table expressions of a statement, so that their contents are checked."""
    for cte in _own_common(tree):
        if not ctes[cte.alias].meta.get("read"):
            before = {name: ctes[name] for name in list(ctes)[: list(ctes).index(cte.alias)]}
            relations = Relations(source, tables, read_block, whole)
            tree = without_sets(ctes[cte.alias], source, partial(_schema, whole, before))
            try:
                block = read_block(tree, relations, before)
            except NotFlatError:
                while isinstance(tree, exp.Subquery):
                    tree = tree.this
                assert isinstance(tree, exp.Select)
                whole(tree, before)
                continue
            if block.groups is None:
                relations.unread += block.outputs.values()
            _check_unread(relations, JoinTranslator(source, relations.tables, relations.occurrences))


def _check_unread(relations: Relations, joins: JoinTranslator) -> None:
    """Check expressions that a statement may not use: columns of subqueries, and the SELECT lists of EXISTS."""
    for tree in relations.unread:
        call = next(aggregates_in(tree), None)
        if call is not None:
            raise relations.source.error(
                call,
                f"{printed(call)} makes the subquery one row, whatever it finds; leave the aggregate out of EXISTS and"
                " IN, and compare numbers of rows by GROUP BY and HAVING",
            )
        if place_of(tree) is None:
            joins.scalars().value(tree)


def read_block(
    node: exp.Expression, relations: Relations, ctes: Mapping[str, exp.Expression], inside: bool = True
) -> QueryBlock:
    """Return a SELECT with its names resolved. A SELECT inside another SELECT must flatten into the outer SELECT.

    Raises SqlError.
    """
    source = relations.source
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            block = read_block(node.this, relations, ctes, inside)
            names = [column.name for column in node.args["alias"].args["columns"]]
            if len(names) != len(block.outputs):
                raise source.error(node, f"{len(names)} names are given for {len(block.outputs)} columns")
            doubled = next((name for name in names if names.count(name) > 1), None)
            if doubled is not None:
                raise source.error(node, f"two columns are named {doubled!r}; give each its own name")
            block.outputs = dict(zip(names, block.outputs.values(), strict=True))
            return block
        node = node.this
    if isinstance(node, exp.SetOperation):
        raise source.error(
            node, "UNION ALL is supported between whole statements only; join each of its SELECTs by itself"
        )
    if not isinstance(node, exp.Select):
        raise source.error(node, "a subquery is a SELECT")
    visible = _common(node, ctes, source)
    node = with_scalars(with_window(with_first_rows(node, visible, source), source))
    numbered = numbered_select(node, visible, source)
    if numbered is not None and inside:
        raise NotFlatError.at(source, numbered.call, "the first rows of groups do not flatten into a join")
    if numbered is not None:
        block = _numbered_block(numbered, relations)
        _read_others(node, visible, source, relations.tables, relations.whole)
        return block
    if node.args.get("qualify") is not None:
        raise source.error(
            node.args["qualify"],
            "QUALIFY is not supported in a subquery, which then does not flatten into a join; write it in the outer"
            " SELECT, or in a subquery in FROM",
        )
    part, scope = relations.read(node, visible, None)
    block = QueryBlock(part, scope)
    block.outputs = outputs(node, scope, source)
    block.groups = read_groups(node, block, source, inside)
    _read_others(node, visible, source, relations.tables, relations.whole)
    return block


def _numbered_block(numbered: Numbered, relations: Relations) -> QueryBlock:
    """Return a SELECT over row numbers as the block of the rows, with the clause. Raises SqlError."""
    source = relations.source
    rows = with_first_rows(numbered.rows, numbered.ctes, source, more=True)
    start = rows.args.get("from_")
    inner, ctes = (None, numbered.ctes) if start is None else subquery_of(start.this, numbered.ctes)
    alone = not any(rows.args.get(name) for name in ("joins", "where", "group", "having", "with_"))
    if start is not None and inner is not None and alone and (inner.args.get("group") or inner.args.get("distinct")):
        mark_read(start.this, numbered.ctes)
        node = start.this if isinstance(start.this, exp.Subquery) else inner
        block = read_block(node, relations, ctes, inside=False)
        columns = relations.renamed(block.outputs, start.this) if node is inner else block.outputs
        scope = Scope.of(Relation(start.this.alias_or_name, columns, block.part.occurrences[0]), None)
        shown = outputs(rows, scope, source)
    else:
        block = read_block(rows, relations, numbered.ctes, inside=False)
        scope, shown = block.scope, block.outputs
    by = [scope.resolve(key, source) for key in numbered.call.args.get("partition_by") or []]
    given = numbered.call.args.get("order")
    order = [
        OrderTerm(scope.resolve(term.this, source), bool(term.args.get("desc")), bool(term.args.get("nulls_first")))
        for term in ([] if given is None else given.expressions)
    ]
    rank, chosen = numbered.name, dict(shown)
    if numbered.outer is not None and numbered.name is not None:
        columns = {**shown, numbered.name: number_column(numbered.name)}
        alias = "" if numbered.alias is None else numbered.alias.name
        if numbered.alias is not None:
            columns = relations.renamed(columns, exp.Subquery(alias=numbered.alias.copy()))
        select_list = outputs(
            numbered.outer, Scope.of(Relation(alias, columns, block.part.occurrences[0]), None), source
        )
        rank, chosen = _parted(select_list, numbered, source)
    read = {id(tree) for tree in chosen.values()}
    unread = [tree for tree in shown.values() if id(tree) not in read]
    if block.groups is None:
        relations.unread += unread
    block.outputs, block.scope = chosen, scope
    block.top = TopClause(by, order, numbered.n, rank, numbered.call, unread)
    return block


def _parted(
    select_list: Mapping[str, exp.Expression], numbered: Numbered, source: StatementText
) -> tuple[str | None, dict[str, exp.Expression]]:
    """Return the name of the row number in a SELECT list, and the other columns. Raises SqlError."""
    ranks = [name for name, tree in select_list.items() if tree.meta.get(RANK)]
    chosen = {name: tree for name, tree in select_list.items() if name not in ranks}
    for tree in chosen.values():
        for column in tree.find_all(exp.Column):
            if column.meta.get(RANK):
                raise source.error(column, "an expression of the row number is not supported; select the number itself")
    if len(ranks) > 1 or (ranks and list(select_list)[-1] != ranks[0]):
        raise source.error(select_list[ranks[-1]], "the row number is the last output column; write it there, once")
    if not chosen:
        raise source.error(numbered.call, "the SELECT list has the row number only; add a column")
    return (ranks[0] if ranks else None), chosen


def outputs(select: exp.Select, scope: Any, source: StatementText) -> dict[str, exp.Expression]:
    """Return the output columns of a SELECT list by name, resolved.

    A column keeps its name; where several have it, their relations precede it. An expression has its text as its name.
    """
    columns: list[tuple[str, str, bool, exp.Expression]] = []
    for expression in select.expressions:
        if isinstance(expression, exp.Star) or (
            isinstance(expression, exp.Column) and isinstance(expression.this, exp.Star)
        ):
            table = "" if isinstance(expression, exp.Star) else expression.table
            columns += [(relation, name, False, tree) for relation, name, tree in scope.star(table, expression, source)]
            continue
        inner = expression.unalias()
        if isinstance(expression, exp.Aliases):
            raise source.error(expression, "one expression has one name")
        if isinstance(inner, exp.Column):
            columns.append(
                (inner.table, expression.alias or inner.name, bool(expression.alias), scope.resolve(inner, source))
            )
        else:
            columns.append(
                ("", expression.alias or printed(inner), bool(expression.alias), scope.resolve(inner, source))
            )
    chosen: dict[str, exp.Expression] = {}
    names = [name for _, name, _, _ in columns]
    for relation, name, given, tree in columns:
        if not given and names.count(name) > 1 and relation:
            name = f"{relation}.{name}"
        if name in chosen:
            raise source.error(tree, f"two output columns are named {name!r}; name one of them with AS")
        chosen[name] = tree
    return chosen


def _query(
    select: exp.Select,
    source: StatementText,
    tables: Mapping[str, Stream],
    ctes: Mapping[str, exp.Expression],
    options: Mapping[str, Any],
) -> Query:
    try:
        return _flat_query(select, source, tables, ctes, options, apart=False)
    except NotFlatError as problem:
        try:
            return _flat_query(select, source, tables, ctes, options, apart=True)
        except SqlError:
            raise problem from None


def _flat_query(
    select: exp.Select,
    source: StatementText,
    tables: Mapping[str, Stream],
    ctes: Mapping[str, exp.Expression],
    options: Mapping[str, Any],
    apart: bool,
) -> Query:
    """Return the query of a SELECT; `apart` as of `Relations`. Raises NotFlatError for subqueries of different rows."""
    relations = Relations(source, tables, read_block, partial(_inner_query, source, tables, options), apart)
    block = read_block(select, relations, ctes, inside=False)
    joins = JoinTranslator(source, relations.tables, relations.occurrences)
    _check_unread(relations, joins)
    if relations.distinct:
        with_distinct(block, relations.distinct, source, relations.occurrences[0].node)
    block.settle()
    join = joins.join(block.part)
    start = relations.occurrences[block.part.occurrences[-1]].node
    joins.connect(block.part, join, start)
    chosen = {**options, "where": join.where or None, "branches": join.branches, "as_of": join.as_of}
    try:
        if block.groups is not None:
            query = grouped_query(block, join, joins, chosen)
        else:
            select_list = {name: joins.output(tree) for name, tree in block.outputs.items()}
            if block.top is not None:
                chosen["top"] = _top(block.top, joins)
            query = Query(join.streams, join.on, select=select_list, **chosen)
    except SqlError:
        raise
    except QueryError as error:
        raise source.error(start, str(error)) from error
    _check_aliases(query, joins, relations.occurrences)
    query.tables = {
        stream.name: occurrence.table for stream, occurrence in zip(joins.streams, relations.occurrences, strict=True)
    }
    return query


def _inner_query(
    source: StatementText, tables: Mapping[str, Stream], options: Mapping[str, Any], select: exp.Select, ctes: Common
) -> Query:
    """Return the query of a SELECT in FROM whose answer is a table."""
    return _query(select, source, tables, dict(ctes), options)


def _check_aliases(query: Query, joins: JoinTranslator, occurrences: Sequence[Occurrence]) -> None:
    """Raise SqlError for an alias that stands for one table here and for another one in a subquery."""
    by_name = {stream.name: relation for stream, relation in zip(joins.streams, occurrences, strict=True)}
    for stream, occurrence in zip(joins.streams, occurrences, strict=True):
        source = stream.source if isinstance(stream, Table) else None
        for name, table in source.tables.items() if isinstance(source, Query) else ():
            if name in by_name and by_name[name].table != table:
                raise joins.source.error(
                    by_name[name].node,
                    f"{name} is {by_name[name].table} here and {table} in {occurrence.alias}; rename one of them",
                )


def _top(clause: TopClause, joins: JoinTranslator) -> Top:
    """Return the first rows of groups of joined rows."""

    def text(tree: exp.Expression) -> str:
        output = joins.output(tree)
        return output.title if isinstance(output, ComputedExpression) else output

    return clause.made(text)

"""Statements: `eddy.sql`, SELECT lists, WITH, UNION ALL and EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlglot import exp

from eddy.dialect.explaining import explained
from eddy.dialect.grammar import Source, parse, printed
from eddy.dialect.groups import grouped_query, read_groups, with_distinct
from eddy.dialect.joins import Joins
from eddy.dialect.relations import Block, Relations
from eddy.dialect.union import UnionAll
from eddy.query.arguments import listed
from eddy.query.lateness import LATE_ROWS, Late
from eddy.query.query import Query
from eddy.query.stream import Stream
from stairs.errors import QueryError, SqlError

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(PLAN\s+FOR\s+)?", re.IGNORECASE)


def sql(
    text: str,
    streams: Sequence[Stream],
    *,
    lateness: int | timedelta = 0,
    late: Late = "keep",
    late_rows: int = LATE_ROWS,
) -> Any:
    """Return the query of a SELECT; docs/guide/sql.md describes the dialect.

    text      one statement. SELECT … gives a `Query`; SELECT … UNION ALL SELECT … a `UnionAll` of several; EXPLAIN
              SELECT … a text about the query and its plan
    streams   the tables, by name, with their windows, time columns and filters
    lateness, late, late_rows   as in `Query`

    A stream of the query has the name of its table, or the alias where the statement names the table more than once;
    `Query.tables` has the table of each stream, and `Query.inputs` the rows of each. Raises SqlError, which has the
    line and the column, for text that is no SQL, unknown names, types that do not fit, and what the dialect lacks.

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
    options = {"lateness": lateness, "late": late, "late_rows": late_rows}
    tables = _tables(streams)
    source, asked = unexplained(text)
    found = _statement(source, tables, options)
    return explained(found) if asked else found


def tables_of(text: str) -> list[str]:
    """Return the names of the tables that a statement reads, in order. Raises SqlError for text that is no SQL."""
    tree = parse(unexplained(text)[0])
    ctes = {one.alias for one in tree.find_all(exp.CTE)}
    names = [".".join(part.name for part in one.parts) for one in tree.find_all(exp.Table)]
    return [name for name in dict.fromkeys(names) if name not in ctes]


def unexplained(text: str) -> tuple[Source, bool]:
    """Return a statement without its EXPLAIN, and whether it had one. The places of errors are those in the text."""
    asked = _EXPLAIN.match(text) if isinstance(text, str) else None
    if asked is None:
        return Source(text), False
    return Source(re.sub(r"\S", " ", asked.group()) + text[asked.end() :]), True


def _tables(streams: Iterable[Stream]) -> dict[str, Stream]:
    found: dict[str, Stream] = {}
    for one in listed(streams, "streams", "eddy.Stream objects"):
        if not isinstance(one, Stream):
            raise QueryError(f"streams must be eddy.Stream objects, not {one!r}")
        if one.name in found:
            raise QueryError(f"two streams are named {one.name!r}; give each stream its own name")
        found[one.name] = one
    return found


def _statement(source: Source, tables: Mapping[str, Stream], options: Mapping[str, Any]) -> Query | UnionAll:
    tree = parse(source)
    selects = _selects(tree, source)
    ctes = _common(tree, {}, source)
    queries = []
    for k, select in enumerate(selects):
        queries.append(_query(select, source, tables, ctes, options))
        if k and queries[0].output_schema.types != queries[k].output_schema.types:
            listed_types = [", ".join(map(str, one.output_schema.types)) for one in (queries[0], queries[k])]
            raise source.error(
                select,
                f"the SELECTs of UNION ALL have different types: {listed_types[0]}, and here {listed_types[1]}; CAST"
                " their columns",
            )
    return queries[0] if len(queries) == 1 else UnionAll(queries)


def _selects(tree: exp.Expression, source: Source) -> list[exp.Select]:
    """Return the SELECTs that UNION ALL joins."""
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        name = type(tree).__name__.upper()
        if not isinstance(tree, exp.Union) or tree.args.get("distinct"):
            remedy = "NOT EXISTS" if isinstance(tree, exp.Except) else "UNION ALL"
            if isinstance(tree, exp.Intersect):
                remedy = "EXISTS"
            raise source.error(tree, f"{name} without duplicates is not supported; write {remedy}")
        _check_clauses(tree, source)
        return [*_selects(tree.left, source), *_selects(tree.right, source)]
    if not isinstance(tree, exp.Select):
        raise source.error(tree, f"{_verb(source)} is not supported; a statement is a SELECT, or EXPLAIN and a SELECT")
    return [tree]


def _verb(source: Source) -> str:
    words = source.text.split()
    return words[0].upper()[:20] if words else "an empty text"


def _common(tree: exp.Expression, outer: Mapping[str, exp.Expression], source: Source) -> dict[str, exp.Expression]:
    """Return the common table expressions that a statement sees, in order."""
    found = dict(outer)
    given = tree.args.get("with_") or tree.args.get("with")
    if given is None:
        return found
    if given.args.get("recursive"):
        raise source.error(given, "WITH RECURSIVE is not supported: a query is one join")
    for one in given.expressions:
        alias = one.args.get("alias")
        body = one.this
        if alias is not None and alias.args.get("columns"):
            body = exp.Subquery(this=body.copy(), alias=alias.copy())
        found.pop(one.alias, None)
        found[one.alias] = body
    return found


def _check_clauses(tree: exp.Expression, source: Source) -> None:
    for name, remedy in _CLAUSES.items():
        if tree.args.get(name):
            node = tree.args[name] if isinstance(tree.args[name], exp.Expression) else tree
            raise source.error(node, f"{name.upper()} is not supported; {remedy}")


_CLAUSES = {
    "order": "results come in the order of their last rows; sort the table of a push",
    "limit": "a stream has no end; take rows of the table of a push",
    "offset": "a stream has no end; take rows of the table of a push",
    "distinct": "write GROUP BY with the columns, or EXISTS for rows with a partner",
    "qualify": "write GROUP BY with MIN, MAX, FIRST or LAST",
    "windows": "write GROUP BY with TUMBLE, HOP or SESSION",
    "cluster": "the engine distributes rows",
    "sort": "sort the table of a push",
    "distribute": "the engine distributes rows",
    "into": "push returns the results",
    "match": "write a join with intervals between event times",
    "connect": "write a join",
    "operation_modifiers": "leave it out",
}


def read_block(
    node: exp.Expression, relations: Relations, ctes: Mapping[str, exp.Expression], inside: bool = True
) -> Block:
    """Return a SELECT with its names resolved. Inside of another one, it must flatten into it.

    Raises SqlError.
    """
    source = relations.source
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            block = read_block(node.this, relations, ctes, inside)
            names = [one.name for one in node.args["alias"].args["columns"]]
            if len(names) != len(block.outputs):
                raise source.error(node, f"{len(names)} names are given for {len(block.outputs)} columns")
            block.outputs = dict(zip(names, block.outputs.values(), strict=True))
            return block
        node = node.this
    if isinstance(node, exp.SetOperation):
        raise source.error(
            node, "UNION ALL is supported between whole statements only; join each of its SELECTs by itself"
        )
    if not isinstance(node, exp.Select):
        raise source.error(node, "a subquery is a SELECT")
    _check_clauses(node, source)
    part, scope = relations.read(node, _common(node, ctes, source), None)
    block = Block(part, scope)
    block.outputs = outputs(node, scope, source)
    block.groups = read_groups(node, block, source, inside)
    return block


def outputs(select: exp.Select, scope: Any, source: Source) -> dict[str, exp.Expression]:
    """Return the output columns of a SELECT list by name, resolved.

    A column keeps its name; where several have it, their relations precede it. An expression has its text as its name.
    """
    found: list[tuple[str, str, bool, exp.Expression]] = []
    for one in select.expressions:
        if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
            star = one if isinstance(one, exp.Star) else one.this
            if any(star.args.get(name) for name in ("except_", "except", "replace", "rename")):
                raise source.error(one, "* EXCEPT is not supported; name the columns")
            table = "" if isinstance(one, exp.Star) else one.table
            found += [(relation, name, False, tree) for relation, name, tree in scope.star(table, one, source)]
            continue
        inner = one.unalias()
        if isinstance(one, exp.Aliases):
            raise source.error(one, "one expression has one name")
        if isinstance(inner, exp.Column):
            found.append((inner.table, one.alias or inner.name, bool(one.alias), scope.resolve(inner, source)))
        else:
            found.append(("", one.alias or printed(inner), bool(one.alias), scope.resolve(inner, source)))
    chosen: dict[str, exp.Expression] = {}
    names = [name for _, name, _, _ in found]
    for relation, name, given, tree in found:
        if not given and names.count(name) > 1 and relation:
            name = f"{relation}.{name}"
        if name in chosen:
            raise source.error(tree, f"two output columns are named {name!r}; name one of them with AS")
        chosen[name] = tree
    return chosen


def _query(
    select: exp.Select,
    source: Source,
    tables: Mapping[str, Stream],
    ctes: Mapping[str, exp.Expression],
    options: Mapping[str, Any],
) -> Query:
    relations = Relations(source, tables, read_block)
    block = read_block(select, relations, ctes, inside=False)
    joins = Joins(source, tables, relations.occurrences)
    if relations.distinct:
        with_distinct(block, relations.distinct, source, relations.occurrences[0].node)
    block.settle()
    found = joins.join(block.part)
    start = relations.occurrences[block.part.own[-1]].node
    joins.check_connected(block.part, found, start)
    chosen = {**options, "where": found.where or None, "branches": found.branches}
    try:
        if block.groups is not None:
            query = grouped_query(block, found, joins, chosen)
        else:
            if len(found.streams) == 1 and not found.branches:
                raise source.error(
                    start,
                    f"a SELECT over {found.streams[0].name} alone is no join; write GROUP BY for aggregates over one"
                    " stream, or Stream(…, filter=…) for a filter",
                )
            select_list = {name: joins.output(tree) for name, tree in block.outputs.items()}
            query = Query(found.streams, found.on, select=select_list, **chosen)
    except SqlError:
        raise
    except QueryError as error:
        raise source.error(start, str(error)) from error
    query.tables = {stream.name: one.table for stream, one in zip(joins.streams, relations.occurrences, strict=True)}
    return query

"""UNION, EXCEPT and INTERSECT: a SELECT over the answers of two queries, each row once.

    A EXCEPT B      the rows of A for which no equal row of B exists
    A INTERSECT B   the rows of A for which an equal row of B exists
    A UNION B       the rows of a full outer join of A and B on equal rows

Rows are equal if their columns are the same, NULL included. A and B are tables that have the answers of SELECT
DISTINCT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.aggregate_names import aggregates_in
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.source import StatementText

APART = "apart"
"""The mark of a subquery that does not flatten into the query around it, although it could."""
SIDES = "first", "second"
SchemaOf: TypeAlias = Callable[[exp.Select], pa.Schema]
"""Returns the columns of a SELECT that is a statement by itself."""


def is_set(node: exp.Expression) -> bool:
    """Return whether a tree joins two queries by other than UNION ALL."""
    return isinstance(node, exp.SetOperation) and (not isinstance(node, exp.Union) or bool(node.args.get("distinct")))


def select_of(node: exp.SetOperation, source: StatementText, schema_of: SchemaOf) -> exp.Select:
    """Return the SELECT that stands for a UNION, EXCEPT or INTERSECT.

    Raises SqlError for sides with columns of other types, and for EXCEPT ALL and INTERSECT ALL.
    """
    name = type(node).__name__.upper()
    sides = [_distinct(_side(side, source, schema_of)) for side in (node.left, node.right)]
    schemas = [schema_of(side) for side in sides]
    if not isinstance(node, exp.Union) and not node.args.get("distinct"):
        raise source.error(
            node,
            f"{name} ALL is not supported, since it counts equal rows; leave ALL out, or write the number of each row:"
            f" {_with_copies(isinstance(node, exp.Except), schemas[0].names)}",
        )
    if schemas[0].types != schemas[1].types:
        raise source.error(node, different_types(name, schemas))
    columns = schemas[0].names
    names = [f"c{k}" for k in range(len(columns))]
    first, second = (
        exp.Subquery(this=side, alias=_alias(alias, names)) for side, alias in zip(sides, SIDES, strict=True)
    )
    pairs = [[exp.column(column, table=alias) for alias in SIDES] for column in names]
    equal = [_same(a, b, kind) for (a, b), kind in zip(pairs, schemas[0].types, strict=True)]
    same = exp.and_(*(condition for conditions in equal for condition in conditions))
    select = exp.Select()
    if isinstance(node, exp.Union):
        values: list[exp.Expression] = [
            exp.Anonymous(this="COALESCE", expressions=[a.copy(), b.copy()]) for a, b in pairs
        ]
        select.set("distinct", exp.Distinct())
        select.set("joins", [exp.Join(this=second, side="FULL", on=same)])
    else:
        values = [a.copy() for a, _ in pairs]
        exists: exp.Expression = exp.Exists(this=exp.Select().select("1").from_(second).where(same))
        select = select.where(exp.Not(this=exists) if isinstance(node, exp.Except) else exists)
    select = select.select(*(exp.alias_(value, name, quoted=True) for value, name in zip(values, columns, strict=True)))
    select = select.from_(first)
    select.set("with_", node.args.get("with_"))
    select.meta[APART] = True
    source.place(select, node)
    return select


def _with_copies(less: bool, columns: Sequence[str]) -> str:
    """Return the SELECT that has the rows of EXCEPT ALL or INTERSECT ALL once, with their number.

    less   whether it is EXCEPT ALL
    """
    names = [printed(identifier(column)) for column in columns]
    listed, shown = ", ".join(names), ", ".join(f"a.{name}" for name in names)
    a, b = (f"(SELECT {listed}, COUNT(*) AS copies FROM … GROUP BY {listed}) AS {alias}" for alias in "ab")
    number = "a.copies - COALESCE(b.copies, 0)" if less else "LEAST(a.copies, b.copies)"
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in names)
    where = " WHERE a.copies > COALESCE(b.copies, 0)" if less else ""
    return f"SELECT {shown}, {number} AS copies FROM {a} {'LEFT ' if less else ''}JOIN {b} ON {same}{where}"


def _same(a: exp.Expression, b: exp.Expression, kind: pa.DataType) -> list[exp.Expression]:
    """Return conditions that are true for equal values, for two NULLs and for two NaN."""
    if not pa.types.is_floating(kind):
        return [exp.NullSafeEQ(this=a.copy(), expression=b.copy())]
    tests, values = [], []
    for side in (a, b):
        null, nan = exp.Is(this=side.copy(), expression=exp.Null()), exp.NEQ(this=side.copy(), expression=side.copy())
        number = exp.Literal.number
        which = [exp.If(this=test, true=number(k)) for k, test in enumerate((null, nan), 1)]
        tests.append(exp.Case(ifs=which, default=number(0)))
        zero = [exp.If(this=exp.or_(null.copy(), nan.copy()), true=number("0.0"))]
        values.append(exp.Case(ifs=zero, default=side.copy()))
    return [exp.EQ(this=tests[0], expression=tests[1]), exp.EQ(this=values[0], expression=values[1])]


def without_sets(node: exp.Expression, source: StatementText, schema_of: SchemaOf) -> exp.Expression:
    """Return a subquery with a SELECT in place of a UNION, EXCEPT or INTERSECT; any other tree as it is."""
    if isinstance(node, exp.Subquery):
        inner = without_sets(node.this, source, schema_of)
        if inner is not node.this:
            node = exp.Subquery(this=inner, alias=node.args.get("alias"))
        return node
    return select_of(node, source, schema_of) if isinstance(node, exp.SetOperation) and is_set(node) else node


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT has groups, or first rows of groups."""
    grouped = any(select.args.get(name) is not None for name in ("group", "having", "qualify"))
    return grouped or any(next(aggregates_in(output), None) is not None for output in select.expressions)


def apart(query: exp.Select, alias: str) -> exp.Select:
    """Return SELECT * over the answer of a query, which does not flatten."""
    inner = query.copy()
    inner.meta[APART] = True
    return exp.Select().select("*").from_(exp.Subquery(this=inner, alias=_alias(alias, ())))


def _side(node: exp.Expression, source: StatementText, schema_of: SchemaOf) -> exp.Select:
    """Return one side as a SELECT. Each row counts once, so UNION ALL below is the same as UNION."""
    while isinstance(node, exp.Subquery) and not node.alias:
        node = node.this
    if isinstance(node, exp.SetOperation):
        return select_of(node, source, schema_of)
    if not isinstance(node, exp.Select):
        raise source.error(node, "UNION, EXCEPT and INTERSECT join two SELECTs")
    return node.copy()


def _distinct(select: exp.Select) -> exp.Select:
    """Return a SELECT with each of its rows once, whose answer is a table of its own."""
    if is_grouped(select):
        select = apart(select, "groups")
    select.set("distinct", exp.Distinct())
    select.meta[APART] = True
    return select


def _alias(name: str, columns: Sequence[str]) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name), columns=[exp.to_identifier(column) for column in columns])


def different_types(name: str, schemas: Sequence[pa.Schema]) -> str:
    """Return the text of the error for two SELECTs whose columns cannot form one table."""
    first, second = (", ".join(map(str, schema.types)) for schema in schemas)
    return f"the SELECTs of {name} have different types: {first}, and here {second}; CAST their columns"

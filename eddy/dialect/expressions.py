"""Expressions in SQL that a `Query` takes in `select`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.admitted import check
from eddy.dialect.grammar import Source, parse, printed
from eddy.dialect.scalars import Field, Scalars
from eddy.dialect.trees import is_presence, own_columns
from eddy.query.computed import Computed
from eddy.query.query import Query
from eddy.query.stream import present


def computed(text: str, query: Query) -> Computed:
    """Return an expression over columns named stream.column, such as "orders.amount * 2". Raises SqlError."""
    source = Source(f"SELECT {text}", "select")

    def field(one: exp.Column) -> tuple[str, pa.DataType]:
        if is_presence(one.parent) and not one.table:
            return present(query.stream(one.name).name), pa.bool_()
        if not one.table:
            raise source.error(one, f"{printed(one)} has no stream; write stream.column")
        stream, column = query.place_of(f"{one.table}.{one.name}", "select")
        return f"{stream}.{column}", query.stream(stream).type_of(column)

    return _computed(source, field, lambda one: not query.may_lack(one.name))


def computed_of_groups(text: str, groups: pa.Schema) -> Computed:
    """Return an expression over columns of groups, such as "revenue / n". Raises SqlError."""
    source = Source(f"SELECT {text}", "select")

    def field(one: exp.Column) -> tuple[str, pa.DataType]:
        if one.table or is_presence(one.parent) or one.name not in groups.names:
            have = ", ".join(groups.names)
            raise source.error(one, f"there is no column {printed(one)}; the columns of the groups are {have}")
        return one.name, groups.field(one.name).type

    return _computed(source, field, lambda one: False)


def _computed(source: Source, field: Field, there: Callable[[exp.Column], bool]) -> Computed:
    """Return the expression of a statement that has nothing else.

    there   whether each result has a component of the stream that PRESENT names
    """
    tree = parse(source)
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or _clauses(tree):
        raise source.error(7, "one expression is expected, such as 'orders.amount * 2'")
    check(tree, source)
    node = tree.expressions[0]
    text = printed(node)
    for one in [one for one in own_columns(node) if is_presence(one.parent)]:
        field(one)
        if there(one):
            new = exp.Boolean(this=True)
            node = new if node is one.parent else node
            one.parent.replace(new)
    return Computed(Scalars(source, field).value(node).arrow, text)


def _clauses(tree: exp.Select) -> bool:
    return any(value for name, value in tree.args.items() if name != "expressions")

"""Expressions in SQL that a `Query` takes in `select`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from eddy.expressions.admitted import check
from eddy.expressions.computed import ComputedExpression
from eddy.expressions.grammar import printed
from eddy.expressions.scalars import Field, Scalars
from eddy.expressions.source import StatementText, parse
from eddy.expressions.trees import is_presence, own_columns
from eddy.streams.stream import Stream, present


class ResultColumns(Protocol):
    """The columns of the results of a query."""

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises QueryError for an unknown name."""

    def place_of(self, text: object, what: str) -> tuple[str, str]:
        """Return the stream and the column of a text like "orders.amount". Raises QueryError."""

    def may_lack(self, name: str) -> bool:
        """Return whether a result may lack a component of a stream."""


def computed(text: str, query: ResultColumns, what: str = "select") -> ComputedExpression:
    """Return an expression over columns named stream.column, such as "orders.amount * 2". Raises SqlError.

    what   what has the expression, for errors
    """
    source = StatementText(f"SELECT {text}", what)

    def field(node: exp.Column) -> tuple[str, pa.DataType]:
        if is_presence(node.parent) and not node.table:
            return present(query.stream(node.name).name), pa.bool_()
        if not node.table:
            raise source.error(node, f"{printed(node)} has no stream; write stream.column")
        stream, column = query.place_of(f"{node.table}.{node.name}", what)
        return f"{stream}.{column}", query.stream(stream).type_of(column)

    return _computed(source, field, lambda node: not query.may_lack(node.name))


def computed_of_groups(text: str, groups: pa.Schema) -> ComputedExpression:
    """Return an expression over columns of groups, such as "revenue / n". Raises SqlError."""
    source = StatementText(f"SELECT {text}", "select")

    def field(node: exp.Column) -> tuple[str, pa.DataType]:
        if node.table or is_presence(node.parent) or node.name not in groups.names:
            have = ", ".join(groups.names)
            raise source.error(node, f"there is no column {printed(node)}; the columns of the groups are {have}")
        return node.name, groups.field(node.name).type

    return _computed(source, field, lambda node: False)


def _computed(source: StatementText, field: Field, there: Callable[[exp.Column], bool]) -> ComputedExpression:
    """Return the expression of a statement that consists of this expression only.

    there   whether each result has a component of the stream that PRESENT names
    """
    tree = parse(source)
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or _clauses(tree):
        raise source.error(7, "one expression is expected, such as 'orders.amount * 2'; give several as a list")
    check(tree, source)
    node = tree.expressions[0]
    text = printed(node)
    for column in [candidate for candidate in own_columns(node) if is_presence(candidate.parent)]:
        field(column)
        if there(column):
            new = exp.Boolean(this=True)
            node = new if node is column.parent else node
            column.parent.replace(new)
    return ComputedExpression(Scalars(source, field).value(node).arrow, text)


def _clauses(tree: exp.Select) -> bool:
    return any(value for name, value in tree.args.items() if name != "expressions")

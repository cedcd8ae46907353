"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n: the first rows of groups, in a subquery or in QUALIFY.

    SELECT … FROM (SELECT …, ROW_NUMBER() OVER (…) AS rn FROM … ) WHERE rn <= n      as in Flink and Spark
    SELECT … FROM … QUALIFY ROW_NUMBER() OVER (…) <= n                               as in DuckDB

Both give a SELECT without the number, and a `TopClause`. The subquery may be a common table expression, and it may read
a subquery with GROUP BY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from eddy.dialect.names import known
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.over import nearest_form
from eddy.expressions.source import StatementText
from eddy.expressions.trees import bare, conjuncts
from eddy.query.top import Top

ROW_NUMBER = "ROW_NUMBER"
FORM = "WHERE rn <= n of the outer SELECT, or QUALIFY ROW_NUMBER() OVER (…) <= n"


class OrderTerm(NamedTuple):
    """A term of ORDER BY."""

    tree: exp.Expression
    descending: bool
    nulls_first: bool


@dataclass
class TopClause:
    """The first rows of groups of a SELECT.

    by, order   the trees of PARTITION BY and ORDER BY, resolved
    rank        the name of the output column with the row number, None = no such column
    node        the call of ROW_NUMBER
    unread      the columns of the subquery that are no output columns
    """

    by: list[exp.Expression]
    order: list[OrderTerm]
    n: int
    rank: str | None
    node: exp.Window
    unread: list[exp.Expression]

    def made(self, text: Callable[[exp.Expression], str]) -> Top:
        """Return the first rows of groups. text: returns the text of a column of the rows."""
        order = [
            text(bare(term.tree)) + " desc" * term.descending + " nulls first" * term.nulls_first for term in self.order
        ]
        return Top(self.n, [text(bare(tree)) for tree in self.by], order, self.rank)


class Numbered(NamedTuple):
    """A SELECT with a row number: the rows that it numbers, and the SELECT that shows those with small numbers.

    rows     the SELECT of the rows, without the number
    call     the call of ROW_NUMBER
    n        rows with numbers from 1 to n are shown
    name     the name of the number in `rows`, None = it has none
    outer    the SELECT list of the rows shown, over the columns of `rows`; None = that of `rows`
    alias    the name of the subquery
    ctes     the common table expressions that `rows` sees
    """

    rows: exp.Select
    call: exp.Window
    n: int
    name: str | None
    outer: exp.Select | None
    alias: exp.Expression | None
    ctes: Mapping[str, exp.Expression]


def numbered_select(select: exp.Select, ctes: Mapping[str, exp.Expression], source: StatementText) -> Numbered | None:
    """Return the parts of a SELECT that shows the first rows of groups, None for any other SELECT. Raises SqlError."""
    qualify = select.args.get("qualify")
    if qualify is not None:
        return _qualified(select, qualify, ctes, source)
    start = select.args.get("from_")
    inner, inside = (None, ctes) if start is None else subquery_of(start.this, ctes)
    if inner is None or not is_numbered(inner):
        return None
    assert start is not None
    for part in ("joins", "group", "having", "distinct"):
        more = select.args.get(part)
        if more:
            first = more[0] if isinstance(more, list) else more
            raise source.error(
                first if first.find(exp.Identifier) is not None else select,
                "a SELECT over row numbers has a SELECT list and WHERE rn <= n, nothing else; write it as a subquery of"
                " its own, FROM (SELECT … FROM (…) WHERE rn <= n)",
            )
    mark_read(start.this, ctes)
    rows, call, name = _without_number(inner, source)
    assert name is not None
    where = select.args.get("where")
    given = [] if where is None else list(conjuncts(where.this))
    limits = [condition for condition in given if _names(condition, name)]
    if len(limits) != 1:
        raise source.error(
            call if not limits else limits[1], f"{ROW_NUMBER}() needs one condition on its number: {FORM}"
        )
    other = next((condition for condition in given if condition is not limits[0]), None)
    if other is not None:
        raise source.error(
            other,
            f"{printed(other)} is evaluated after the rows have their numbers, which is not supported; write it in"
            " WHERE of the subquery, if it decides which rows are numbered",
        )
    n, alias = _limit(limits[0], source), start.this.args.get("alias")
    for column in limits[0].find_all(exp.Column):
        if column.table and column.table.lower() != start.this.alias_or_name.lower():
            raise source.error(column, f"there is no relation {column.table!r} here for {printed(column)}")
    return Numbered(rows, call, n, name, select, alias, inside)


def subquery_of(
    node: exp.Expression, ctes: Mapping[str, exp.Expression]
) -> tuple[exp.Select | None, Mapping[str, exp.Expression]]:
    """Return the SELECT of a subquery or of a common table expression, None for a table; and what that SELECT sees."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("joins"):
        name = None if node.args.get("db") is not None else known(node.name, ctes)
        if name is None:
            return None, ctes
        earlier = list(ctes)[: list(ctes).index(name)]
        return subquery_of(ctes[name], {key: ctes[key] for key in earlier})
    while isinstance(node, exp.Subquery):
        node = node.this
    return (node if isinstance(node, exp.Select) else None), ctes


def mark_read(node: exp.Expression, ctes: Mapping[str, exp.Expression]) -> None:
    """Note that a statement reads a common table expression."""
    name = known(node.name, ctes) if isinstance(node, exp.Table) else None
    if name is not None:
        ctes[name].meta["read"] = True


def _qualified(
    select: exp.Select, qualify: exp.Qualify, ctes: Mapping[str, exp.Expression], source: StatementText
) -> Numbered:
    conditions = list(conjuncts(qualify.this))
    if len(conditions) != 1:
        raise source.error(qualify, f"QUALIFY has one condition: {FORM}")
    calls = list(conditions[0].find_all(exp.Window))
    if len(calls) == 1:
        if any(isinstance(bare(output.unalias()), exp.Window) for output in select.expressions):
            raise source.error(qualify, f"name the number in the SELECT list, and write it in QUALIFY: {FORM}")
        rows, call, name = select.copy(), calls[0], None
    else:
        if not any(isinstance(bare(output.unalias()), exp.Window) for output in select.expressions):
            raise source.error(qualify, f"QUALIFY takes {ROW_NUMBER}() alone: {FORM}")
        rows, call, name = _without_number(select, source)
        if name is None or not _names(conditions[0], name):
            raise source.error(qualify, f"QUALIFY takes {ROW_NUMBER}() alone: {FORM}")
    qualified = next(
        (column for column in conditions[0].find_all(exp.Column) if column.table and name is not None), None
    )
    if qualified is not None:
        raise source.error(qualified, f"there is no column {printed(qualified)}; the row number is {name}")
    rows.set("qualify", None)
    check_call(call, source)
    return Numbered(rows, call, _limit(conditions[0], source), name, None, None, ctes)


def _without_number(select: exp.Select, source: StatementText) -> tuple[exp.Select, exp.Window, str | None]:
    """Return a SELECT without its row number, which is the last of its columns; the call, and its name."""
    calls = [output for output in select.expressions if isinstance(bare(output.unalias()), exp.Window)]
    if len(calls) > 1:
        raise source.error(calls[1], f"a SELECT has one {ROW_NUMBER}() OVER (…)")
    call = bare(calls[0].unalias())
    assert isinstance(call, exp.Window)
    check_call(call, source)
    if calls[0] is not select.expressions[-1]:
        raise source.error(call, f"write {ROW_NUMBER}() OVER (…) AS rn as the last column of its SELECT list")
    if select.args.get("distinct") is not None:
        raise source.error(call, f"SELECT DISTINCT beside {ROW_NUMBER}() is not supported; leave DISTINCT out")
    if not calls[0].alias:
        raise source.error(call, f"give the row number a name: {ROW_NUMBER}() OVER (…) AS rn")
    rows = select.copy()
    rows.set("expressions", [output.copy() for output in select.expressions if output is not calls[0]])
    if not rows.expressions:
        raise source.error(call, "the SELECT list has the row number only; add a column")
    return rows, call, calls[0].alias


def check_call(call: exp.Window, source: StatementText) -> None:
    """Raise SqlError unless this is ROW_NUMBER() with an order that it can have."""
    function = call.this
    name = str(function.this).upper() if isinstance(function, exp.Anonymous) else printed(function)
    if name != ROW_NUMBER:
        if name not in ("RANK", "DENSE_RANK"):
            raise source.error(call, f"{name} OVER (…) is not supported; {nearest_form(call)}")
        raise source.error(
            call,
            f"{name} OVER (…) is not supported (RANK and DENSE_RANK give rows of equal order one number); write"
            f" {ROW_NUMBER}() OVER (…), with {FORM}",
        )
    if function.expressions:
        raise source.error(call, f"{ROW_NUMBER}() takes no arguments")
    if call.args.get("over") != "OVER":
        raise source.error(call, f"{call.args.get('over')} is not supported; write {ROW_NUMBER}() OVER (…)")
    for part, word in (("spec", "ROWS or RANGE BETWEEN"), ("alias", "a named window")):
        if call.args.get(part) is not None:
            raise source.error(call, f"{word} is not supported in {ROW_NUMBER}(); write PARTITION BY and ORDER BY only")


def _names(condition: exp.Expression, name: str) -> bool:
    """Return whether a condition reads the row number."""
    return any(column.name.lower() == name.lower() for column in condition.find_all(exp.Column))


def _limit(condition: exp.Expression, source: StatementText) -> int:
    """Return n of a condition on row numbers. Raises SqlError."""
    n = limit_of(condition)
    if n is None:
        raise source.error(
            condition,
            f"{printed(bare(condition))} does not name the first rows; write rn <= n, rn < n or rn = 1, n a number from"
            " 1",
        )
    return n


def limit_of(condition: exp.Expression) -> int | None:
    """Return n of rn <= n, rn < n + 1, rn = 1 and their mirrored forms, None for any other condition."""
    n = bound_of(condition)
    return None if n is None or n < 1 or (isinstance(bare(condition), exp.EQ) and n > 1) else n


def bound_of(condition: exp.Expression) -> int | None:
    """Return the greatest number that a comparison of a column, or a function, accepts; None = it has no bound."""
    condition = bare(condition)
    if not isinstance(condition, exp.Binary):
        return None
    sides = [bare(condition.this), bare(condition.expression)]
    numbers = [
        side for side in sides if isinstance(side, exp.Literal) and not side.is_string and str(side.this).isdigit()
    ]
    if len(numbers) != 1 or not isinstance(sides[sides[0] is numbers[0]], exp.Column | exp.Window):
        return None
    number, turned = int(str(numbers[0].this)), sides[0] is numbers[0]
    less, most = (exp.GT, exp.GTE) if turned else (exp.LT, exp.LTE)
    if isinstance(condition, less):
        return number - 1
    return number if isinstance(condition, most | exp.EQ) else None


def is_numbered(select: exp.Select) -> bool:
    """Return whether a SELECT has a row number that no condition of its own limits."""
    windows = any(isinstance(bare(output.unalias()), exp.Window) for output in select.expressions)
    return windows and select.args.get("qualify") is None


RANK = "rank"
"""The mark of the row number among the columns of a subquery, in `meta`."""


def number_column(name: str) -> exp.Column:
    """Return the tree that stands for the row number in a SELECT list."""
    column = exp.Column(this=identifier(name))
    column.meta[RANK] = True
    return column

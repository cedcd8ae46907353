"""Subqueries with row numbers in a SELECT that does more than show their first rows: each becomes a query of its own.

    SELECT k, AVG(v) FROM (SELECT …, ROW_NUMBER() OVER (…) AS rn …) x WHERE x.rn <= 10 AND v > 0 GROUP BY k
    SELECT k, AVG(v) FROM (SELECT * FROM (SELECT …, ROW_NUMBER() OVER (…) AS rn …) x WHERE rn <= 10) x
      WHERE v > 0 GROUP BY k

The second form has the same rows: a condition on row numbers accepts no row that a limit from it rejects. The condition
stays where it is if it is more than the limit, or beside outer joins, whose missing rows it rejects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlglot import exp

from eddy.dialect.aggregate_names import aggregates_in
from eddy.dialect.row_numbers import FORM, ROW_NUMBER, bound_of, check_call, is_numbered, limit_of, subquery_of
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.source import StatementText
from eddy.expressions.trees import bare, conjuncts


def with_first_rows(
    select: exp.Select, ctes: Mapping[str, exp.Expression], source: StatementText, more: bool = False
) -> exp.Select:
    """Return a SELECT with a query of first rows in place of each relation with row numbers.

    One that only shows the first rows stays as it is. Raises SqlError for numbers without an upper bound.

    more   whether the SELECT stands for more than its text says
    """
    if not any(_number(relation, ctes) for relation in _relations(select)):
        return select
    if not more and _shows_first_rows(select, ctes):
        return select
    changed = select.copy()
    for relation in list(_relations(changed)):
        number = _number(relation, ctes)
        if number is not None:
            _limit(changed, relation, number, source)
    return changed


def _relations(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield what FROM and JOIN name."""
    start = select.args.get("from_")
    if start is not None:
        yield start.this
    for join in select.args.get("joins") or []:
        yield join.this


class _RowNumber(NamedTuple):
    """The row number of a relation: its call, its name in the subquery, "" = none, and its name around it."""

    call: exp.Window
    inside: str
    name: str


def _number(relation: exp.Expression, ctes: Mapping[str, exp.Expression]) -> _RowNumber | None:
    """Return the row number of a relation, None for other relations."""
    inner, _ = subquery_of(relation, ctes)
    if inner is None or not is_numbered(inner):
        return None
    last, alias = inner.expressions[-1], relation.args.get("alias")
    inside = last.alias if isinstance(bare(last.unalias()), exp.Window) else ""
    given = [] if alias is None else alias.args.get("columns") or []
    whole = not any(output.is_star for output in inner.expressions) and len(given) == len(inner.expressions)
    call = next(output for output in inner.expressions if isinstance(bare(output.unalias()), exp.Window)).find(
        exp.Window
    )
    return _RowNumber(call, inside, given[-1].name if whole else inside)


def _reads(tree: exp.Expression, name: str, alias: str) -> bool:
    """Return whether a tree reads the row number of a relation."""
    return any(_is_number(column, name, alias) for column in tree.find_all(exp.Column))


def _is_number(column: exp.Column, name: str, alias: str) -> bool:
    return column.name.lower() == name.lower() and column.table.lower() in ("", alias.lower())


def _shows_first_rows(select: exp.Select, ctes: Mapping[str, exp.Expression]) -> bool:
    """Return whether a SELECT has columns of one relation with row numbers and the limit, nothing else."""
    if any(select.args.get(name) for name in ("joins", "group", "having", "distinct", "qualify")):
        return False
    relation = next(_relations(select))
    number, where = _number(relation, ctes), select.args.get("where")
    assert number is not None
    name = number.name
    given = [] if where is None else list(conjuncts(where.this))
    if len(given) != 1 or limit_of(given[0]) is None:
        return False
    if all(column.name.lower() != name.lower() for column in given[0].find_all(exp.Column)):
        return False
    for k, output in enumerate(select.expressions):
        inner = bare(output.unalias())
        alone = isinstance(inner, exp.Column) and k == len(select.expressions) - 1
        if (
            output.find(exp.Window)
            or next(aggregates_in(output), None) is not None
            or (_reads(output, name, relation.alias_or_name) and not alone)
        ):
            return False
    return True


def _limit(select: exp.Select, relation: exp.Expression, number: _RowNumber, source: StatementText) -> None:
    """Replace a relation by its first rows, and leave out conditions that say no more."""
    name, alias = number.name, relation.alias_or_name
    check_call(number.call, source)
    if not name:
        # The reader of row numbers says what the number lacks.
        return
    where = select.args.get("where")
    conditions = [] if where is None else list(conjuncts(where.this))
    on = [conjunct for join in _filtering(select, relation) for conjunct in conjuncts(join.args.get("on"))]
    limits = [conjunct for conjunct in (*conditions, *on) if _reads(conjunct, name, alias)]
    bounds = [bound for conjunct in limits if (bound := _upper(conjunct, name, alias)) is not None]
    if not bounds:
        raise source.error(
            next(iter(limits), number.call), f"{ROW_NUMBER}() needs an upper bound of its number: {FORM}"
        )
    n = min(bounds)
    if n < 1:
        raise source.error(limits[0], f"{printed(limits[0])} accepts no row; write rn <= n, n a number from 1")
    condition = exp.LTE(this=exp.Column(this=identifier(number.inside)), expression=exp.Literal.number(n))
    first, given = relation.copy(), relation.args.get("alias")
    if given is not None:
        first.set("alias", exp.TableAlias(this=given.this.copy()))
    elif alias:
        given = exp.TableAlias(this=exp.to_identifier(alias))
    rows = exp.Select().select("*").from_(first).where(condition)
    wrapped = exp.Subquery(this=rows, alias=None if given is None else given.copy())
    source.place(wrapped, relation)
    relation.replace(wrapped)
    if where is None or any(join.side for join in select.args.get("joins") or []):
        return
    kept = [conjunct for conjunct in conditions if not (conjunct in limits and limit_of(conjunct) == n)]
    select.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)


def _filtering(select: exp.Select, relation: exp.Expression) -> Iterator[exp.Join]:
    """Yield the joins whose ON rejects rows of a relation: inner ones, and the outer one that keeps the other side."""
    joins = select.args.get("joins") or []
    position = next((k for k, join in enumerate(joins) if join.this is relation), None)
    if position is not None and joins[position].side == "LEFT":
        yield joins[position]
    for join in joins[0 if position is None else position :]:
        if not join.side and join.kind in ("", "INNER"):
            yield join


def _upper(condition: exp.Expression, name: str, alias: str) -> int | None:
    """Return the greatest row number that a condition can accept, None = it has no bound."""
    condition = bare(condition)
    if isinstance(condition, exp.And | exp.Or):
        sides = [_upper(side, name, alias) for side in (condition.this, condition.expression)]
        known = [bound for bound in sides if bound is not None]
        if isinstance(condition, exp.Or):
            return max(known) if len(known) == 2 else None
        return min(known, default=None)
    of = bare(condition.this) if isinstance(condition.this, exp.Expression) else None
    if isinstance(condition, exp.Between | exp.In):
        if not isinstance(of, exp.Column) or not _is_number(of, name, alias):
            return None
        listed = [condition.args["high"]] if isinstance(condition, exp.Between) else condition.expressions
        numbers = [_whole(literal) for literal in listed]
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None
    return bound_of(condition) if _reads(condition, name, alias) else None


def _whole(node: exp.Expression) -> int | None:
    """Return the number of a literal, None for any other tree."""
    node = bare(node)
    whole = isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()
    return int(str(node.this)) if whole else None

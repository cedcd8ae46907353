"""Subqueries that are values and read columns of the query around them: a left join with the groups of all values.

    a.x > (SELECT AVG(b.y) FROM b WHERE b.k = a.k)
    LEFT JOIN (SELECT b.k AS key_1, AVG(b.y) AS part_1 FROM b GROUP BY b.k) v ON v.key_1 = a.k  …  a.x > v.part_1

A row without a group has the value of no rows: NULL, and 0 for COUNT. So COUNT is COALESCE(v.part_1, 0), and the value
is an expression of such parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sqlglot import exp

from eddy.dialect.aggregate_names import aggregates_in, called
from eddy.expressions.grammar import printed
from eddy.expressions.source import StatementText
from eddy.expressions.trees import bare, conjuncts, own_columns

_FORM = (
    "a subquery that is a value relates its rows to those around it by equalities of WHERE, such as b.k = a.k; join the"
    " two, and write GROUP BY"
)


class Correlated(NamedTuple):
    """A subquery without the columns of the query around it.

    groups   the SELECT of its values, one for each combination of its keys
    keys     by name of a column of `groups`, the tree of the query around it that it equals
    value    the value, over the columns of `groups`
    """

    groups: exp.Select
    keys: dict[str, exp.Expression]
    value: exp.Expression


def correlated(
    select: exp.Select, alias: str, is_own: Callable[[exp.Column], bool], source: StatementText
) -> Correlated | None:
    """Return a subquery apart from the query around it, None for one that reads no column of it.

    alias    the name of its groups
    is_own   returns whether a column is one of the subquery's own relations

    Raises SqlError for other relations of the two than equalities.
    """
    where = select.args.get("where")
    rest, pairs = list[exp.Expression](), list[tuple[exp.Expression, exp.Expression]]()
    for condition in conjuncts(None if where is None else where.this):
        if all(map(is_own, own_columns(condition))):
            rest.append(condition)
            continue
        pair = _pair(condition, is_own)
        if pair is None:
            raise source.error(condition, f"{printed(condition)} reads a column of the query around it: {_FORM}")
        pairs.append(pair)
    other = next((column for column in _elsewhere(select) if not is_own(column)), None)
    if other is not None:
        raise source.error(other, f"{printed(other)} is a column of the query around this subquery: {_FORM}")
    if not pairs:
        return None
    groups, (value,) = select.copy(), select.expressions
    value = value.unalias().copy()
    root = exp.Paren(this=value)
    parts: list[exp.Expression] = []
    for call in list(aggregates_in(root)):
        whole = call.parent if isinstance(call.parent, exp.Filter) else call
        parts.append(exp.alias_(whole.copy(), f"part_{len(parts) + 1}"))
        part: exp.Expression = exp.column(f"part_{len(parts)}", table=alias)
        if called(call) == "COUNT":
            part = exp.Anonymous(this="COALESCE", expressions=[part, exp.Literal.number(0)])
        whole.replace(part)
    names = [f"key_{k}" for k in range(1, len(pairs) + 1)]
    keys = [exp.alias_(inner.copy(), name) for name, (inner, _) in zip(names, pairs, strict=True)]
    groups.set("expressions", [*keys, *parts])
    groups.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    groups.set("group", exp.Group(expressions=[inner.copy() for inner, _ in pairs]))
    source.place(groups, select)
    source.place(root, select)
    return Correlated(groups, dict(zip(names, (around for _, around in pairs), strict=True)), root.this)


def _pair(
    condition: exp.Expression, is_own: Callable[[exp.Column], bool]
) -> tuple[exp.Expression, exp.Expression] | None:
    """Return the own side of an equality and the other one, None for any other condition."""
    condition = bare(condition)
    if not isinstance(condition, exp.EQ) or condition.find(exp.Select) is not None:
        return None
    for side, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        inside, around = list(own_columns(side)), list(own_columns(other))
        if inside and around and all(map(is_own, inside)) and not any(map(is_own, around)):
            return side, other
    return None


def _elsewhere(select: exp.Select) -> Iterator[exp.Column]:
    """Yield the columns of a SELECT that stand outside of WHERE and FROM."""
    for output in select.expressions:
        yield from own_columns(output)
    for name in ("group", "having", "qualify"):
        if select.args.get(name) is not None:
            yield from own_columns(select.args[name])

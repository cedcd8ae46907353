"""The kind of the rows of a subquery on which NOT IN depends: no row, no NULL among the rows, or some NULL.

x NOT IN (SELECT y FROM s)
NOT EXISTS (SELECT 1 FROM s WHERE y = x) AND (kind = 0 OR (kind = 1 AND x IS NOT NULL)),  where kind is
(SELECT CASE WHEN COUNT(*) = 0 THEN 0 WHEN COUNT(*) = COUNT(y) THEN 1 ELSE 2 END FROM s)
"""

from __future__ import annotations

from sqlglot import exp

from eddy.dialect.sets import APART, is_grouped

EMPTY, NO_NULL, SOME_NULL = range(3)
"""The kinds of the rows of a subquery."""


def rows_of(query: exp.Select) -> exp.Subquery:
    """Return the subquery that is the kind of the rows of a SELECT with one column."""
    select, (value,) = query.copy(), query.expressions
    value = value.unalias().copy()
    if is_grouped(query) or query.args.get("distinct") or query.meta.get(APART) or value.is_star:
        alias = exp.TableAlias(this=exp.to_identifier("listed"), columns=[exp.to_identifier("x")])
        select = exp.Select().from_(exp.Subquery(this=select, alias=alias))
        value = exp.column("x", table="listed")
    every, known = _count(exp.Star()), _count(value)
    kinds = [(exp.EQ(this=every, expression=_number(0)), EMPTY), (exp.EQ(this=every.copy(), expression=known), NO_NULL)]
    ifs = [exp.If(this=test, true=_number(kind)) for test, kind in kinds]
    select.set("expressions", [exp.Case(ifs=ifs, default=_number(SOME_NULL))])
    return exp.Subquery(this=select)


def _count(value: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this="COUNT", expressions=[value])


def _number(value: int) -> exp.Literal:
    return exp.Literal.number(value)

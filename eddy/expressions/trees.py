"""Trees whose names are resolved: columns by their place, conjuncts, the places that a tree reads, and its nulls.

A resolved column has the number of its *occurrence* of a table, and its name, in `meta["place"]`. A table that a
statement names twice has two occurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from eddy.expressions.grammar import identifier
from eddy.streams.stream import PRESENCE

Place = tuple[int, str]
"""(occurrence, column)."""


def column(place: Place, alias: str) -> exp.Column:
    """Return a resolved column of the occurrence with an alias."""
    name = identifier(alias)
    node = exp.Column(this=name) if place[1] == PRESENCE else exp.Column(this=identifier(place[1]), table=name)
    node.meta["place"] = place
    return node


def place_of(node: exp.Expression) -> Place | None:
    """Return the place of a resolved column, None for any other tree."""
    place = node.meta.get("place") if isinstance(node, exp.Column) else None
    return None if place is None else (int(place[0]), str(place[1]))


PRESENCE_CALL = "PRESENT"
"""The function that says whether a row has a component of a stream."""


def presence(occurrence: int, alias: str) -> exp.Anonymous:
    """Return the condition that a row has a component of an occurrence."""
    return exp.Anonymous(this=PRESENCE_CALL, expressions=[column((occurrence, PRESENCE), alias)])


def is_presence(node: exp.Expression | None) -> bool:
    """Return whether a tree is a call of PRESENT."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == PRESENCE_CALL


def presence_of(node: exp.Expression) -> Place | None:
    """Return the place that a call of PRESENT asks for, None for any other tree."""
    return place_of(node.expressions[0]) if is_presence(node) and len(node.expressions) == 1 else None


def where_present(node: exp.Expression, there: Collection[int]) -> exp.Expression:
    """Return the form of a tree for rows that have components of some occurrences: PRESENT of these is TRUE."""

    def calls(tree: exp.Expression) -> list[exp.Anonymous]:
        pairs = [(anonymous, presence_of(anonymous)) for anonymous in tree.find_all(exp.Anonymous)]
        return [anonymous for anonymous, place in pairs if place is not None and place[0] in there]

    if not calls(node):
        return node
    root = exp.Paren(this=node.copy())
    for call in calls(root):
        case = call.parent.parent if isinstance(call.parent, exp.If) and call.arg_key == "this" else None
        if isinstance(case, exp.Case) and _is_guard(case):
            value = case.args["ifs"][0].args["true"]
            case.replace(exp.Paren(this=value) if isinstance(value, _OPERATORS) else value)
        else:
            call.replace(exp.Boolean(this=True))
    return root.this if isinstance(node, exp.Paren) else bare(root.this)


def _is_guard(node: exp.Case) -> bool:
    """Return whether a CASE has one condition and is NULL elsewhere."""
    return len(node.args["ifs"]) == 1 and node.args.get("this") is None and node.args.get("default") is None


_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In)


def own_columns(node: exp.Expression) -> list[exp.Column]:
    """Return the columns of a tree without the columns of subqueries."""
    return [
        reference
        for reference in node.find_all(exp.Column)
        if not in_subquery(reference, node) and not _is_unit(reference)
    ]


def _is_unit(reference: exp.Column) -> bool:
    """Return whether a column is the unit of TIMESTAMPDIFF(MINUTE, …)."""
    above = reference.parent
    named = isinstance(above, exp.Anonymous) and str(above.this).upper() == "TIMESTAMPDIFF"
    return named and reference.arg_key == "expressions" and reference.index == 0


def in_subquery(node: exp.Expression, root: exp.Expression) -> bool:
    """Return whether a node of a tree stands in a subquery in it."""
    above: exp.Expression | None = node
    while above is not None and above is not root:
        if isinstance(above, exp.Query | exp.Exists):
            return True
        above = above.parent
    return isinstance(root, exp.Query | exp.Exists)


def replaced(node: exp.Expression, change: Callable[[exp.Column], exp.Expression]) -> exp.Expression:
    """Return a copy of a tree with its columns replaced; an operator that takes a column's place gets parentheses."""
    if isinstance(node, exp.Column):
        return change(node)
    root = node.copy()
    for reference in own_columns(root):
        new = change(reference)
        if isinstance(new, _OPERATORS) and not isinstance(new, exp.Paren):
            new = exp.Paren(this=new)
        reference.replace(new)
    return root


def reads(node: exp.Expression) -> frozenset[int]:
    """Return the occurrences that a tree reads."""
    return frozenset(place[0] for place in map(place_of, own_columns(node)) if place is not None)


def bare(node: exp.Expression) -> exp.Expression:
    """Return a tree without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def conjuncts(node: exp.Expression | None) -> Iterator[exp.Expression]:
    """Yield the conditions that AND joins; BETWEEN as two, equal rows as one for each column."""
    if node is None:
        return
    node = bare(node)
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    elif isinstance(node, exp.Between):
        yield exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        yield exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    elif isinstance(node, exp.EQ) and isinstance(node.left, exp.Tuple) and isinstance(node.right, exp.Tuple):
        left, right = node.left.expressions, node.right.expressions
        if len(left) != len(right):
            yield node
            return
        for component, other in zip(left, right, strict=True):
            yield exp.EQ(this=component.copy(), expression=other.copy())
    elif not (isinstance(node, exp.Boolean) and node.this):
        yield node


_KEEP_NULLS = frozenset({"COALESCE", "IFNULL", "NVL", "GREATEST", "LEAST", "IF", "IIF", PRESENCE_CALL})


def is_null(node: exp.Expression, without: Collection[int]) -> bool:
    """Return whether a tree is surely NULL where all columns of some occurrences are NULL."""
    place = place_of(node)
    if place is not None:
        return place[0] in without
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Paren | exp.Not | exp.Neg | exp.Cast | exp.In | exp.Like | exp.ILike | exp.Escape):
        return is_null(node.this, without)
    if isinstance(node, exp.Case) and node.args.get("this") is None:
        default = node.args.get("default")
        return (default is None or is_null(default, without)) and all(
            rejects(case.this, without) or is_null(case.args["true"], without) for case in node.args["ifs"]
        )
    if isinstance(node, exp.And | exp.Or | exp.NullSafeEQ | exp.NullSafeNEQ | exp.Is | exp.Case | exp.If | exp.Query):
        return False
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        if name in _KEEP_NULLS:
            return False
        parts = node.expressions[:1] if name == "NULLIF" else node.expressions
        return any(is_null(part, without) for part in parts)
    if isinstance(node, exp.Binary | exp.Func):
        parts = [part for part in node.args.values() if isinstance(part, exp.Expression)]
        return any(is_null(part, without) for part in parts)
    return False


def rejects(node: exp.Expression, without: Collection[int]) -> bool:
    """Return whether a condition is surely not true where all columns of some occurrences are NULL."""
    node = bare(node)
    if isinstance(node, exp.And):
        return rejects(node.left, without) or rejects(node.right, without)
    if isinstance(node, exp.Or):
        return rejects(node.left, without) and rejects(node.right, without)
    if is_presence(node):
        asked = presence_of(node)
        return asked is not None and asked[0] in without
    if isinstance(node, exp.Not):
        inner = bare(node.this)
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return is_null(inner.this, without)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        return is_null(node.this, without)
    return is_null(node, without)

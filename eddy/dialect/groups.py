"""GROUP BY, aggregates and HAVING: the group columns, functions and windows of a query, and the output over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from sqlglot import exp

from eddy import agg
from eddy.dialect.aggregate_names import AGGREGATES, BY, TURNED, aggregates_in, called, is_aggregate
from eddy.dialect.joins import JoinArguments, JoinTranslator
from eddy.dialect.names import known
from eddy.dialect.relations import BlockGroups, NotFlatError, QueryBlock
from eddy.expressions.computed import ComputedExpression
from eddy.expressions.conditions import SqlPredicate
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.over import REFUSED, nearest_form
from eddy.expressions.scalars import Scalars
from eddy.expressions.source import StatementText
from eddy.expressions.spans import seconds_of
from eddy.expressions.trees import bare, conjuncts, is_presence, place_of, replaced
from eddy.query.aggregation import Aggregate
from eddy.query.group_windows import GroupWindow, Hopping, Session, Tumbling
from eddy.query.query import Query

WINDOWS = {"TUMBLE": 2, "HOP": 3, "SESSION": 2}
"""The window functions, and the number of their arguments."""
_BOUNDS = {"WINDOW_START": "start", "WINDOW_END": "end"} | {
    f"{name}_{bound.upper()}": bound for name in WINDOWS for bound in ("start", "end")
}
_OTHERS = {
    "APPROX_COUNT_DISTINCT": "COUNT(DISTINCT x), which is exact",
    "TUMBLE_ROWTIME": "TUMBLE_END, which is excluded from the window",
    "HOP_ROWTIME": "HOP_END, which is excluded from the window",
    "WINDOW": "TUMBLE(at, INTERVAL '10' MINUTE) in GROUP BY",
    "STRING_AGG": "MIN or MAX, or collect the rows from the results",
    "LISTAGG": "MIN or MAX, or collect the rows from the results",
    "COLLECT_LIST": "MIN or MAX, or collect the rows from the results",
    "STDDEV": "SUM(x), SUM(x * x) and COUNT(*), from which it follows",
    "VARIANCE": "SUM(x), SUM(x * x) and COUNT(*), from which it follows",
}


def read_groups(select: exp.Select, block: QueryBlock, source: StatementText, inside: bool) -> BlockGroups | None:
    """Return the groups of a SELECT, None if it has none. Raises SqlError."""
    given, having = select.args.get("group"), select.args.get("having")
    calls = [aggregate for tree in block.outputs.values() for aggregate in aggregates_in(tree)]
    for tree in block.outputs.values():
        window = tree.find(exp.Window)
        if window is not None:
            raise source.error(window, f"{REFUSED}; {nearest_form(window)}")
        for call in tree.find_all(exp.Anonymous):
            if called(call) in _OTHERS:
                raise source.error(call, f"{called(call)} is not supported; write {_OTHERS[called(call)]}")
    if select.args.get("distinct") is not None:
        return _distinct(given or having or next(iter(calls), None), block, source)
    if given is None and having is None and not calls:
        return None
    if inside and (calls or having is not None or not _is_distinct(given, block, source)):
        node = given or having or calls[0]
        raise NotFlatError.at(
            source,
            node,
            "a subquery with groups does not flatten into a join; write it in FROM",
        )
    groups = BlockGroups([])
    for expression in [] if given is None else given.expressions:
        tree = _key(expression, block, source)
        if called(tree) in WINDOWS:
            if groups.window is not None:
                raise source.error(expression, "GROUP BY takes one window")
            groups.window = tree
        else:
            nested = next(aggregates_in(tree), None)
            if nested is not None:
                raise source.error(
                    expression, f"{printed(nested)} is an aggregate, which GROUP BY cannot take; write it in HAVING"
                )
            groups.keys.append(tree)
    if having is not None:
        groups.having = _having(having.this, block, groups, source)
    return groups


def _distinct(other: exp.Expression | None, block: QueryBlock, source: StatementText) -> BlockGroups:
    """Return the groups of SELECT DISTINCT, which are its rows. Raises SqlError beside other groups."""
    if other is not None:
        raise source.error(
            other,
            "DISTINCT has no meaning beside groups and aggregates yet; leave it out if the groups are output columns",
        )
    return BlockGroups([bare(tree) for tree in block.outputs.values()])


def _key(node: exp.Expression, block: QueryBlock, source: StatementText) -> exp.Expression:
    """Return a tree of GROUP BY, resolved: an expression, the name of an output column, or its number."""
    node = bare(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        number = int(str(node.this)) if str(node.this).isdigit() else 0
        if not 1 <= number <= len(block.outputs):
            raise source.error(node, f"GROUP BY {node.this}: the SELECT list has columns 1 to {len(block.outputs)}")
        return list(block.outputs.values())[number - 1]
    named = isinstance(node, exp.Column) and not node.table and node.name in block.outputs
    if named and not any(shown.name == node.name for shown in block.scope.shown):
        return block.outputs[node.name]
    return block.scope.resolve(node, source)


def _having(node: exp.Expression, block: QueryBlock, groups: BlockGroups, source: StatementText) -> exp.Expression:
    """Return a condition on groups, resolved. It may name output columns, as in MySQL, Spark and DuckDB.

    Inside of an aggregate, a name means a column first. Outside, only group columns are columns.
    """

    def change(column: exp.Column) -> exp.Expression:
        shown = None if column.table else known(column.name, block.outputs)
        if shown is None:
            return block.scope.column(column, source)
        among = len(block.scope.find(column.name))
        inside = next((above for above in _above(column) if is_aggregate(above)), None)
        if not among:
            return block.outputs[shown].copy()
        if inside is not None:
            return block.scope.column(column, source)
        input_column = block.scope.column(column, source) if among == 1 else None
        if (
            input_column is not None
            and input_column in map(bare, groups.keys)
            and input_column != bare(block.outputs[shown])
        ):
            raise source.error(
                column, f"{column.name} is a group column and another output column; name the output column differently"
            )
        return block.outputs[shown].copy()

    return replaced(node, change)


def _above(node: exp.Expression) -> Iterator[exp.Expression]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _is_distinct(given: exp.Expression | None, block: QueryBlock, source: StatementText) -> bool:
    """Return whether a SELECT with groups and without aggregates has its group columns as output columns."""
    if given is None:
        return False
    keys = [bare(_key(expression, block, source)) for expression in given.expressions]
    bounds = {name for name, bound in _BOUNDS.items() if bound}
    return all(bare(tree) in keys or called(tree) in bounds for tree in block.outputs.values())


def with_distinct(
    block: QueryBlock,
    subqueries: Sequence[tuple[BlockGroups, frozenset[int]]],
    source: StatementText,
    node: exp.Expression,
) -> None:
    """Give a SELECT over subqueries of different rows the groups that make its own rows different.

    The join of subqueries with different rows also has different rows: one row for each combination of their group
    columns. So the SELECT is the join of all rows, grouped by all of these columns. Raises NotFlatError for others.
    """
    covered = frozenset().union(*(occurrences for _, occurrences in subqueries))
    if (
        block.groups is not None
        or not set(block.part.occurrences) <= covered
        or any(b.how != "semi" for b in block.part.branches if b.how != "anti")
    ):
        raise NotFlatError.at(
            source,
            node,
            "a subquery with GROUP BY flattens only into a join of such subqueries without aggregates; write GROUP BY"
            " in the outer SELECT, or push the results of the subquery into a stream of another query",
        )
    groups = BlockGroups([])
    for inner_groups, _ in subqueries:
        groups.keys += inner_groups.keys
        if inner_groups.window is None:
            continue
        if groups.window is None:
            groups.window = inner_groups.window
        else:
            start = inner_groups.window.copy()
            start.set("this", f"{called(inner_groups.window)}_START")
            groups.keys.append(start)
    block.groups = groups


class _Grouping:
    """Makes the arguments of a query from the groups of a SELECT."""

    def __init__(self, block: QueryBlock, joins: JoinTranslator) -> None:
        assert block.groups is not None
        self.block, self.groups, self.joins, self.source = block, block.groups, joins, joins.source
        self.names: set[str] = set()
        self.exact = {self.joins.text(bare(tree)): name for name, tree in reversed(block.outputs.items())}
        """Text of an output column -> its name."""
        self.keys: dict[str, str] = {}
        """Text of a group column -> its name."""
        self.group_by: dict[str, Any] = {}
        self.aggregates: dict[str, Aggregate] = {}
        self._calls: dict[str, str] = {}
        self.bounds: dict[str, str] = {}
        """The names of those bounds of the window that the statement reads."""
        for tree in map(bare, self.groups.keys):
            text = joins.text(tree)
            if text not in self.keys:
                self.keys[text] = name = self._name(text, "key")
                self.group_by[name] = self._argument(tree)

    def _name(self, text: str, what: str) -> str:
        name = self.exact.get(text)
        if name is None or name in self.names:
            name = next(n for k in range(1, 1 << 16) if (n := f"{what}{k}") not in self.names | set(self.block.outputs))
        self.names.add(name)
        return name

    def _argument(self, tree: exp.Expression) -> Any:
        output = self.joins.output(tree)
        return output.expression if isinstance(output, ComputedExpression) else output

    # Aggregates

    def call(self, node: exp.Expression) -> str:
        """Return the name of the column of an aggregate."""
        text = self.joins.text(node)
        if text not in self._calls:
            self._calls[text] = name = self._name(text, "aggregate")
            self.aggregates[name] = self._aggregate(node)
        return self._calls[text]

    def _aggregate(self, node: exp.Expression) -> Aggregate:
        keep = None
        if isinstance(node, exp.Filter):
            node, keep = node.this, node.expression.this
        name, parts = called(node), list(node.expressions)
        wanted = 2 if name in BY else 1
        if len(parts) != wanted:
            raise self.source.error(node, f"{name} takes {'two arguments' if wanted == 2 else 'one argument'}")
        nested = next((aggregate for part in parts for aggregate in aggregates_in(part)), None)
        if nested is not None:
            raise self.source.error(
                nested, "an aggregate of an aggregate needs a second query: write the inner one in a subquery in FROM"
            )
        if name in BY or isinstance(parts[0], exp.Order):
            return self._ordered(node, keep)
        inner = parts[0]
        if isinstance(inner, exp.Star):
            if name != "COUNT":
                raise self.source.error(node, f"{name}(*) is not supported; name a column")
            return agg.count() if keep is None else agg.count(self._kept(keep, exp.Literal.number(1)))
        distinct = isinstance(inner, exp.Distinct)
        if distinct:
            if len(inner.expressions) != 1 or name not in ("COUNT", "MIN", "MAX"):
                raise self.source.error(node, f"{name}(DISTINCT …) is supported as COUNT(DISTINCT x) of one column")
            inner = inner.expressions[0]
        if name == "COUNT" and isinstance(inner, exp.Literal) and not distinct:
            return agg.count() if keep is None else agg.count(self._kept(keep, inner))
        argument = self._argument(inner) if keep is None else self._kept(keep, inner)
        if name == "COUNT" and distinct:
            return agg.count_distinct(argument)
        return AGGREGATES[name](argument)

    def _ordered(self, node: exp.Expression, keep: exp.Expression | None) -> Aggregate:
        """Return FIRST_VALUE(x ORDER BY y), MAX_BY(x, y) and the like."""
        name, value = called(node), node.expressions[0]
        if name in BY:
            make, by = BY[name], node.expressions[1]
        else:
            make, terms, value = AGGREGATES[name], value.expressions, value.this
            if make not in TURNED:
                raise self.source.error(
                    value, f"ORDER BY has no effect in {name}; leave it out, or write FIRST_VALUE or LAST_VALUE"
                )
            if len(terms) != 1:
                raise self.source.error(terms[1], f"ORDER BY in {name} takes one expression")
            by, make = terms[0].this, TURNED[make] if terms[0].args.get("desc") else make
        if isinstance(value, exp.Star | exp.Distinct):
            raise self.source.error(node, f"{name} takes a value, and neither * nor DISTINCT")
        return make(self._argument(value) if keep is None else self._kept(keep, value), self._argument(by))

    def _kept(self, keep: exp.Expression, inner: exp.Expression) -> Any:
        """Return an argument that is null in rows that FILTER rejects."""
        return self._argument(exp.Case(ifs=[exp.If(this=keep.copy(), true=inner.copy())]))

    # Windows

    def window(self) -> GroupWindow | None:
        """Return the window."""
        node = self.groups.window
        if node is None:
            return None
        name, parts = called(node), node.expressions
        if len(parts) != WINDOWS[name]:
            forms = "TUMBLE(at, size), HOP(at, hop, size) and SESSION(at, gap)"
            raise self.source.error(node, f"{name} takes {WINDOWS[name]} arguments: {forms}")
        place = place_of(parts[0])
        if place is None:
            raise self.source.error(node, f"the time of {name} is the time column of a stream, not {printed(parts[0])}")
        time = self.joins.output(parts[0])
        spans = [self._span(part, name) for part in parts[1:]]
        bounds = {bound: self.bounds.get(bound) for bound in ("start", "end")}
        if name == "TUMBLE":
            return Tumbling(spans[0], time, **bounds)  # type: ignore[arg-type]
        if name == "HOP":
            return Hopping(spans[1], spans[0], time, **bounds)  # type: ignore[arg-type]
        return Session(spans[0], time, **bounds)  # type: ignore[arg-type]

    def _span(self, node: exp.Expression, name: str) -> timedelta | int:
        node = bare(node)
        if isinstance(node, exp.Interval):
            ticks = seconds_of(node, self.source) * 1_000_000
            if ticks.denominator != 1:
                raise self.source.error(node, f"{name} takes whole microseconds")
            return timedelta(microseconds=int(ticks))
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            return int(str(node.this))
        raise self.source.error(node, f"{name} takes a constant span, such as INTERVAL '10' MINUTE")

    def _bound(self, node: exp.Anonymous) -> str:
        name, window = called(node), self.groups.window
        if window is None:
            raise self.source.error(node, f"{name} needs TUMBLE, HOP or SESSION in GROUP BY")
        prefix = name.rpartition("_")[0]
        if prefix == "WINDOW" and node.expressions:
            raise self.source.error(node, f"{name} takes no arguments")
        if prefix != "WINDOW":
            same = [self.joins.text(argument) for argument in node.expressions] == [
                self.joins.text(argument) for argument in window.expressions
            ]
            if prefix != called(window) or not same:
                raise self.source.error(node, f"{printed(node)} is not the window of GROUP BY, {printed(window)}")
        bound = _BOUNDS[name]
        if bound not in self.bounds:
            self.bounds[bound] = self._name(self.joins.text(node), f"window_{bound}")
        return self.bounds[bound]

    # Output

    def over_groups(self, node: exp.Expression) -> exp.Expression:
        """Return a tree over the columns of groups. Raises SqlError for columns that are not grouped."""
        text = self.joins.text(node)
        if text in self.keys:
            return _group_column(self.keys[text], node)
        if is_aggregate(node):
            return _group_column(self.call(node), node)
        if called(node) in _BOUNDS and isinstance(node, exp.Anonymous):
            return _group_column(self._bound(node), node)
        if place_of(node) is not None or is_presence(node):
            raise self.source.error(
                node,
                f"{printed(node)} is neither in GROUP BY nor inside of an aggregate; add it to GROUP BY, or take its"
                " MIN, MAX, FIRST_VALUE or LAST_VALUE",
            )
        new = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expression):
                new.set(name, self.over_groups(value))
            elif isinstance(value, list):
                new.set(
                    name, [self.over_groups(child) if isinstance(child, exp.Expression) else child for child in value]
                )
        return new


def _group_text(tree: exp.Expression) -> str:
    """Return a tree over the columns of groups as `top` takes it: the name of a column, or an expression of SQL."""
    return str(tree.meta["group"]) if "group" in tree.meta else printed(tree)


def _group_column(name: str, node: exp.Expression) -> exp.Column:
    column = exp.Column(this=identifier(name))
    column.meta["group"] = name
    if "start" in node.meta:
        column.meta["start"] = node.meta["start"]
    return column


def _key_text(tree: exp.Expression, block: QueryBlock, joins: JoinTranslator) -> str:
    """Return a group column as text.

    A number in this text stands for a column of the SELECT list. So a column of that list whose value is a
    number has the text of its place.
    """
    tree = bare(tree)
    text = joins.text(tree)
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return next(
            (str(k) for k, output in enumerate(block.outputs.values(), 1) if joins.text(bare(output)) == text), text
        )
    return text


def grouped_query(block: QueryBlock, joined: JoinArguments, joins: JoinTranslator, options: Mapping[str, Any]) -> Query:
    """Return the query of a SELECT with groups. Raises SqlError and QueryError."""
    assert block.groups is not None
    grouping, source = _Grouping(block, joins), joins.source
    outputs = {name: grouping.over_groups(bare(tree)) for name, tree in block.outputs.items()}
    having = [(tree, grouping.over_groups(tree)) for tree in conjuncts(block.groups.having)]
    top = None
    if block.top is not None:
        for tree in block.top.unread:
            _Grouping(block, joins).over_groups(bare(tree))
        top = block.top.made(lambda tree: _group_text(grouping.over_groups(tree)))
    arguments = {
        "group_by": grouping.group_by,
        "aggregates": grouping.aggregates,
        "group_window": grouping.window(),
        **options,
    }
    # The types of the groups are known once the query exists.
    plain = Query(joined.streams, joined.on, **arguments)
    assert plain.aggregation is not None
    groups = plain.aggregation.schema

    def field(node: exp.Column) -> tuple[str, pa.DataType]:
        name = node.meta.get("group")
        if name is None:
            raise source.error(node, f"{printed(node)} is not a column of the groups")
        return name, groups.field(name).type

    scalars = Scalars(source, field)
    chosen: dict[str, Any] = {}
    for name, tree in outputs.items():
        if "group" in tree.meta:
            chosen[name] = tree.meta["group"]
        else:
            chosen[name] = ComputedExpression(scalars.value(tree).arrow, joins.text(block.outputs[name]))
    if list(chosen.items()) == [(name, name) for name in groups.names]:
        chosen = {}
    conditions = []
    for tree, condition in having:
        columns = frozenset(column.meta["group"] for column in condition.find_all(exp.Column))
        text = joins.text(tree)
        conditions.append(SqlPredicate(scalars.condition(condition), name=text, sql=text, known=columns))
    if not chosen and not conditions and top is None:
        query = plain
    else:
        query = Query(joined.streams, joined.on, having=conditions or None, select=chosen or None, top=top, **arguments)
    keys = [_key_text(tree, block, joins) for tree in block.groups.keys]
    keys += [joins.text(block.groups.window)] if block.groups.window else []
    shown = [f"{joins.text(bare(tree))} AS {printed(identifier(name))}" for name, tree in block.outputs.items()]
    query.group_texts = (", ".join(shown), ", ".join(keys))
    if block.top is not None:
        query.top_texts = block.top.made(lambda tree: joins.text(tree))
    return query

"""FROM and WHERE: tables, joins, subqueries and EXISTS as parts, with the names that a statement gives to columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlglot import exp

from eddy.dialect.as_of import AsOfPart, divided, is_as_of, side_of
from eddy.dialect.correlated import correlated
from eddy.dialect.names import Relation, Scope, VisibleColumn, known
from eddy.dialect.null_rows import EMPTY, NO_NULL, rows_of
from eddy.dialect.numbered_relations import with_first_rows
from eddy.dialect.parts import Hung, JoinPart
from eddy.dialect.products import product
from eddy.dialect.row_numbers import TopClause
from eddy.dialect.sets import APART, apart, is_grouped, without_sets
from eddy.expressions.admitted import is_arrival
from eddy.expressions.grammar import printed
from eddy.expressions.occurrences import Occurrence, unused
from eddy.expressions.source import StatementText
from eddy.expressions.trees import (
    Place,
    bare,
    column,
    conjuncts,
    is_null,
    place_of,
    presence,
    reads,
    rejects,
    where_present,
)
from eddy.query.branch import How
from eddy.query.query import Query
from eddy.streams.key_columns import hidden
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from stairs.errors import QueryError, SqlError
from stairs.nearest import nearest


@dataclass
class QueryBlock:
    """A SELECT whose names are resolved: its parts, its output columns and its groups.

    outputs   by name the tree of each output column
    groups    None = no groups
    top       the first rows of groups that the SELECT shows, None = all rows
    """

    part: JoinPart
    scope: Scope
    outputs: dict[str, exp.Expression] = field(default_factory=dict)
    groups: BlockGroups | None = None
    top: TopClause | None = None

    def settle(self) -> None:
        """Bring the parts into their final form, in which components that always exist need no test."""
        self.part.settle()
        there = self.part.surely()
        self.outputs = {name: where_present(tree, there) for name, tree in self.outputs.items()}
        if self.groups is not None:
            self.groups.keys = [where_present(tree, there) for tree in self.groups.keys]
            if self.groups.having is not None:
                self.groups.having = where_present(self.groups.having, there)
        if self.top is not None:
            self.top.by = [where_present(tree, there) for tree in self.top.by]
            self.top.order = [term._replace(tree=where_present(term.tree, there)) for term in self.top.order]


@dataclass
class BlockGroups:
    """The groups of a SELECT.

    keys        the trees by which rows are grouped
    window      the call of TUMBLE, HOP or SESSION, None = groups over all results
    having      the conditions on groups, with aggregates in them
    """

    keys: list[exp.Expression]
    window: exp.Anonymous | None = None
    having: exp.Expression | None = None


Subquery = Callable[[exp.Expression, "Relations", Mapping[str, exp.Expression]], QueryBlock]
"""Reads a SELECT in FROM."""
WholeQuery = Callable[[exp.Select, Mapping[str, exp.Expression]], Query]
"""Makes a query of a SELECT."""


SCALARS, VALUE = "scalars", "value"
"""The key under which a tree has its subqueries that are values, and the name of such a value."""


def with_scalars(select: exp.Select) -> exp.Select:
    """Return a SELECT with columns in place of its subqueries that are values, which it has as `SCALARS`."""
    places = [*select.expressions, *filter(None, [select.args.get("where")])]
    if not any(_is_value(subquery, select) for place in places for subquery in place.find_all(exp.Subquery)):
        return select
    subqueries, changed = list[exp.Subquery](), select.copy()
    names = {node.name.lower() for node in select.find_all(exp.Identifier)}
    places = [*changed.expressions, *filter(None, [changed.args.get("where")])]
    for place in places:
        for subquery in [subquery for subquery in place.find_all(exp.Subquery) if _is_value(subquery, changed)]:
            alias = unused(f"value_{len(subqueries) + 1}", names)
            names.add(alias)
            column_of = exp.Column(this=exp.to_identifier(VALUE), table=exp.to_identifier(alias))
            column_of.meta.update({"start": subquery.meta["start"]} if "start" in subquery.meta else {})
            subquery.replace(column_of)
            subquery.meta[SCALARS] = alias
            subqueries.append(subquery)
    changed.meta[SCALARS] = subqueries
    return changed


def _is_value(node: exp.Subquery, select: exp.Select) -> bool:
    """Return whether a subquery is a value in an expression of a SELECT."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Subquery):
        above = above.parent
    # A SELECT between the two has the value.
    return not isinstance(above, exp.Exists | exp.In | exp.From | exp.Join) and node.parent_select is select


class NotFlatError(SqlError):
    """A SELECT in FROM does not flatten into the join around it; its answer can be a table."""

    @classmethod
    def at(cls, source: StatementText, node: exp.Expression, message: str) -> NotFlatError:
        """Return the error about a node."""
        error = source.error(node, message)
        return cls(str(error), error.line, error.column)


class Relations:
    """Reads the FROM clauses of one statement.

    occurrences   the mentions of tables so far
    apart         whether a subquery of different rows is a table that has its answer
    """

    def __init__(
        self,
        source: StatementText,
        tables: Mapping[str, Stream],
        subquery: Subquery,
        whole: WholeQuery,
        apart: bool = False,
    ) -> None:
        self.source, self.tables, self._subquery, self.whole = source, dict(tables), subquery, whole
        self.apart = apart
        self.occurrences: list[Occurrence] = []
        self.distinct: list[tuple[BlockGroups, frozenset[int]]] = []
        """The groups of subqueries that have no aggregates, and the occurrences in each."""
        self.unread: list[exp.Expression] = []
        """Expressions that may be unused, and that are checked nevertheless."""
        self.depth = 0

    # FROM

    def read(
        self, select: exp.Select, ctes: Mapping[str, exp.Expression], outer: Scope | None
    ) -> tuple[JoinPart, Scope]:
        """Return the parts of FROM and WHERE, and their scope."""
        start = select.args.get("from_") or select.args.get("from")
        if start is None:
            raise self.source.error(select, "a SELECT needs FROM: a query reads streams")
        part, scope = self._joined(start.this, select.args.get("joins") or [], ctes, outer)
        for subquery in select.meta.pop(SCALARS, []):
            relation = self._value(subquery, part, scope, ctes)
            # * has no column of it.
            scope = Scope([*scope.relations, relation], scope.shown, scope.outer)
        where = select.args.get("where")
        # IS NOT NULL counts for NOT IN, wherever it stands.
        for condition in sorted(conjuncts(None if where is None else where.this), key=_is_not_in):
            self._where(condition, part, scope, ctes)
        return part, scope

    def _joined(
        self, first: exp.Expression, joins: list[exp.Join], ctes: Mapping[str, exp.Expression], outer: Scope | None
    ) -> tuple[JoinPart, Scope]:
        """Return the part of joins, and its scope."""
        part, scope = self._relation(first, ctes, outer)
        for join in [*(first.args.get("joins") or []), *joins]:
            part, scope = self._join(part, scope, join, ctes)
        return part, scope

    def _relation(
        self, node: exp.Expression, ctes: Mapping[str, exp.Expression], outer: Scope | None
    ) -> tuple[JoinPart, Scope]:
        """Return the part of a table, a subquery, or joins in parentheses, and its scope."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            part, relation = self._table(node, ctes)
            return part, Scope.of(relation, outer)
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table) or node.this.args.get("alias") is not None:
                part, scope = self._joined(node.this, [], ctes, outer)
                if node.args.get("alias") is not None:
                    return part, Scope.of(self._named(scope, node, part), outer)
                return part, scope
            part, relation = self._flat(node.this, ctes, node.alias, node)
            return part, Scope.of(relation, outer)
        word = {"Lateral": "LATERAL", "Unnest": "UNNEST", "Values": "VALUES"}.get(type(node).__name__, "this relation")
        raise self.source.error(node, f"{word} is not supported in FROM; there are streams, subqueries and joins")

    def _table(self, node: exp.Table, ctes: Mapping[str, exp.Expression]) -> tuple[JoinPart, Relation]:
        name = ".".join(part.name for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part)
        cte = known(name, ctes)
        if cte is not None:
            earlier = {key: tree for key, tree in ctes.items() if list(ctes).index(key) < list(ctes).index(cte)}
            ctes[cte].meta["read"] = True
            return self._flat(ctes[cte], earlier, node.alias or cte, node)
        table = known(name, self.tables)
        if table is None:
            near, have = nearest(name, [*self.tables, *ctes]), ", ".join([*self.tables, *ctes]) or "none"
            raise self.source.error(node, f"there is no stream {name!r}{near}; there are {have}")
        alias = node.alias or table.rpartition(".")[2]
        number = len(self.occurrences)
        self.occurrences.append(Occurrence(table, alias, node))
        shown = [column_name for column_name in self.tables[table].schema.names if not hidden(column_name)]
        columns = {column_name: column((number, column_name), alias) for column_name in shown}
        return JoinPart([number]), Relation(alias, self.renamed(dict(columns), node), number)

    def renamed(self, columns: dict[str, exp.Expression], node: exp.Expression) -> dict[str, exp.Expression]:
        """Return columns under the names of an alias such as x(a, b)."""
        alias = node.args.get("alias")
        names = [] if alias is None else [label.name for label in alias.args.get("columns") or []]
        if len(names) > len(columns):
            raise self.source.error(node, f"{len(names)} names are given for {len(columns)} columns")
        names += list(columns)[len(names) :]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise self.source.error(node, f"two columns of {node.alias} are named {doubled!r}; give each its own name")
        return dict(zip(names, columns.values(), strict=True))

    def _flat(
        self, node: exp.Expression, ctes: Mapping[str, exp.Expression], alias: str, place: exp.Expression
    ) -> tuple[JoinPart, Relation]:
        """Return a subquery as a part: its tables and conditions become those of the statement around it."""
        if self.depth > 30:
            raise self.source.error(place, "subqueries are nested more than 30 deep")
        node = without_sets(node, self.source, lambda side: self.whole(side, ctes).output_schema)
        if bare(node).meta.get(APART):
            return self._answer(node, ctes, alias, place, NotFlatError("a query whose answer is a table"))
        self.depth += 1
        lists: tuple[list[Any], ...] = self.occurrences, self.distinct, self.unread
        lengths = list(map(len, lists))
        try:
            block = self._subquery(node, self, ctes)
        except NotFlatError as problem:
            for entries, n in zip(lists, lengths, strict=True):
                del entries[n:]
            return self._answer(node, ctes, alias, place, problem)
        finally:
            self.depth -= 1
        if block.groups is None:
            self.unread += block.outputs.values()
        elif self.apart:
            for entries, n in zip(lists, lengths, strict=True):
                del entries[n:]
            return self._answer(node, ctes, alias, place, NotFlatError("different rows"))
        else:
            self.distinct.append((block.groups, frozenset(block.part.all())))
        return block.part, Relation(alias, self.renamed(block.outputs, place), block.part.occurrences[0])

    def _answer(
        self,
        node: exp.Expression,
        ctes: Mapping[str, exp.Expression],
        alias: str,
        place: exp.Expression,
        problem: NotFlatError,
    ) -> tuple[JoinPart, Relation]:
        """Return a subquery that does not flatten as a table that has its answer."""
        names: list[str] = []
        while isinstance(node, exp.Subquery):
            given = node.args.get("alias")
            names = names or ([] if given is None else [label.name for label in given.args.get("columns") or []])
            node = node.this
        if not isinstance(node, exp.Select):
            raise problem
        alias = alias or "subquery"
        query, name = self.whole(node, ctes), unused(alias, self.tables)
        try:
            self.tables[name] = self._input(name, query, place)
        except SqlError:
            raise
        except QueryError as fault:
            raise self.source.error(place, str(fault)) from fault
        number = len(self.occurrences)
        self.occurrences.append(Occurrence(name, alias, place))
        outputs = query.output_schema.names
        if names and len(names) != len(outputs):
            raise self.source.error(place, f"{len(names)} names are given for {len(outputs)} columns")
        columns: dict[str, exp.Expression] = {
            shown: column((number, output), alias) for shown, output in zip(names or outputs, outputs, strict=True)
        }
        return JoinPart([number]), Relation(alias, self.renamed(columns, place), number)

    def _input(self, name: str, query: Query, place: exp.Expression) -> Stream:
        """Return the input that has the rows of a query: a stream of windows, which are final, or a table."""
        window = None if query.aggregation is None else query.aggregation.group_window
        if window is None:
            return Table(name, query)
        shown = {output: output for output in query.output_schema.names}
        if query.group_outputs is not None:
            shown = {of: output for output, of in query.group_outputs.outputs.items()}
        time = next((shown[bound] for bound in (window.end, window.start) if bound in shown), None)
        if time is None:
            raise self.source.error(
                place, "the windows of a subquery are rows with an event time: select window_end in it"
            )
        return Stream(name, query, time=time)

    def _value(self, node: exp.Subquery, part: JoinPart, scope: Scope, ctes: Mapping[str, exp.Expression]) -> Relation:
        """Join a subquery that is a value to a part, and return it as a relation with one column."""
        fault = self.source.error(
            node, "a subquery that is a value is a SELECT of one aggregate without GROUP BY, which has one row"
        )
        if not isinstance(node.this, exp.Select):
            raise fault
        apart, select = None, with_first_rows(node.this, ctes, self.source, more=True)
        if select.args.get("with_") is None and self._may_read_around(select):
            select_scope = self._scope_of(select, ctes)
            apart = correlated(select, node.meta[SCALARS], partial(select_scope.has, source=self.source), self.source)
        if apart is None:
            below, relation = self._one_row(node, fault, ctes)
            part.conditions.append(self._product(part.occurrences[0], below.occurrences[0]))
            part.absorb(below)
            return relation
        plain = not any(node.this.args.get(name) for name in ("group", "having", "qualify", "distinct"))
        if not plain or len(node.this.expressions) != 1 or not is_grouped(node.this):
            raise fault
        below, relation = self._answer(apart.groups, ctes, node.meta[SCALARS], node, NotFlatError(*fault.args))
        inner, around = Scope.of(relation, None), Scope(scope.relations, scope.shown)
        conditions: list[exp.Expression] = [
            exp.EQ(this=relation.columns[name].copy(), expression=around.resolve(tree, self.source))
            for name, tree in apart.keys.items()
        ]
        self._branch(part, "left", below, conditions, node)
        relation.columns = {VALUE: inner.resolve(apart.value, self.source)}
        return relation

    def _may_read_around(self, select: exp.Select) -> bool:
        """Return whether a subquery has a column that is not evidently one of its own relations."""
        aliases = {relation.alias_or_name.lower() for relation in select.find_all(exp.Table, exp.Subquery)}
        return any(not node.table or node.table.lower() not in aliases for node in select.find_all(exp.Column))

    def _scope_of(self, select: exp.Select, ctes: Mapping[str, exp.Expression]) -> Scope:
        """Return the scope of a subquery that is read again later."""
        start = select.args.get("from_")
        if start is None:
            raise self.source.error(select, "a SELECT needs FROM: a query reads streams")
        lists: tuple[list[Any], ...] = self.occurrences, self.distinct, self.unread
        lengths, tables = list(map(len, lists)), dict(self.tables)
        try:
            joins = [join.copy() for join in select.args.get("joins") or []]
            return self._joined(start.this.copy(), joins, ctes, None)[1]
        finally:
            self.tables = tables
            for entries, n in zip(lists, lengths, strict=True):
                del entries[n:]

    def _one_row(
        self, node: exp.Subquery, fault: SqlError, ctes: Mapping[str, exp.Expression]
    ) -> tuple[JoinPart, Relation]:
        """Return a subquery that is a value as a table of one row. Raises `fault` for one that may have other rows."""
        part, relation = self._answer(node.this, ctes, node.meta[SCALARS], node, NotFlatError(*fault.args))
        table = self.tables[self.occurrences[part.occurrences[0]].table]
        if len(relation.columns) != 1 or not isinstance(table, Table) or table.source is None:
            raise fault
        if table.source.as_table()[1]:
            raise fault
        relation.columns = {VALUE: next(iter(relation.columns.values()))}
        return part, relation

    def _named(self, scope: Scope, node: exp.Expression, part: JoinPart) -> Relation:
        columns: dict[str, exp.Expression] = {}
        for _, name, tree in scope.star("", node, self.source):
            if name in columns:
                raise self.source.error(
                    node, f"two columns of {node.alias} are named {name!r}; select them under other names"
                )
            columns[name] = tree
        return Relation(node.alias, self.renamed(columns, node), part.occurrences[0])

    # Joins

    def _join(
        self, part: JoinPart, scope: Scope, join: exp.Join, ctes: Mapping[str, exp.Expression]
    ) -> tuple[JoinPart, Scope]:
        if is_as_of(join):
            return self._as_of(part, scope, join, ctes)
        side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
        right, other = self._joined(join.this, [], ctes, scope.outer)
        both = scope.joined(other)
        self._check_aliases(both, join)
        if str(join.args.get("method") or "").upper() == "NATURAL":
            join = self._natural(join, scope, other)
        using = self._using(join, scope, other)
        conditions: list[exp.Expression] = [
            exp.EQ(this=first.tree.copy(), expression=two.tree.copy()) for first, two in using.values()
        ]
        for conjunct in conjuncts(join.args.get("on")):
            if isinstance(bare(conjunct), exp.Exists | exp.In) and conjunct.find(exp.Query) is not None:
                raise self.source.error(conjunct, "a subquery in ON is not supported; write it in WHERE")
            conditions.append(both.resolve(conjunct, self.source))
        if kind in ("SEMI", "ANTI"):
            if side == "RIGHT":
                raise self.source.error(join, f"RIGHT {kind} JOIN is not supported; exchange the sides and write LEFT")
            how: How = "semi" if kind == "SEMI" else "anti"
            self._branch(part, how, right, conditions, join)
            return part, scope
        if side in ("LEFT", "RIGHT", "FULL"):
            part = self._outer(side, part, right, scope, other, conditions, join)
        else:
            if kind == "CROSS":
                conditions.append(self._product(part.occurrences[0], right.occurrences[0]))
            part.absorb(right)
            for condition in conditions:
                part.add(condition)
        return part, scope.joined(other, {name: (*sides, _merged(side, *sides)) for name, sides in using.items()})

    def _as_of(
        self, part: JoinPart, scope: Scope, join: exp.Join, ctes: Mapping[str, exp.Expression]
    ) -> tuple[JoinPart, Scope]:
        """Return the part of an as-of join, and its scope."""
        how, table = side_of(join, self.source), join.this.copy()
        if any(branch.how == "full" for branch in part.branches):
            raise self.source.error(join, "a FULL OUTER JOIN has two streams; it cannot be joined with others")
        version = table.args.get("version")
        table.set("version", None)
        right, other = self._joined(table, [], ctes, scope.outer)
        if (
            not isinstance(table, exp.Table)
            or right.occurrences != [*right.all()]
            or len(right.occurrences) > 1
            or right.conditions
        ):
            raise self.source.error(join, "an as-of join is with a table; write its conditions in WHERE")
        both, (number,) = scope.joined(other), right.occurrences
        self._check_aliases(both, join)
        using = self._using(join, scope, other)
        conditions: list[exp.Expression] = [
            exp.EQ(this=first.tree.copy(), expression=two.tree.copy()) for first, two in using.values()
        ]
        if using and version is None:
            # The last column of USING is that of the times.
            conditions[-1] = exp.GTE(this=conditions[-1].this, expression=conditions[-1].expression)
        conditions += [both.resolve(conjunct, self.source) for conjunct in conjuncts(join.args.get("on"))]
        if version is None:
            at, compared, conditions = divided(number, conditions, join, self.source)
        else:
            at, compared = None, None
            if not is_arrival(version.expression):
                at = scope.resolve(version.expression, self.source)
            for condition in conditions if how == "inner" else []:
                if not isinstance(bare(condition), exp.EQ):
                    part.after.append(condition)
            conditions = [condition for condition in conditions if how == "left" or isinstance(bare(condition), exp.EQ)]
        part.as_of.append(AsOfPart(number, how, [bare(condition) for condition in conditions], at, join, compared))
        return part, scope.joined(other, {name: (*sides, _merged("LEFT", *sides)) for name, sides in using.items()})

    def _outer(
        self,
        side: str,
        part: JoinPart,
        right: JoinPart,
        scope: Scope,
        other: Scope,
        conditions: list[exp.Expression],
        join: exp.Join,
    ) -> JoinPart:
        """Return the part of an outer join."""
        if not conditions and join.args.get("on") is None:
            raise self.source.error(join, "an outer join needs ON")
        if side == "FULL":
            if part.branches or right.branches or len(part.occurrences) > 1 or len(right.occurrences) > 1:
                raise self.source.error(
                    join,
                    "a FULL OUTER JOIN has two streams and nothing else; LEFT JOIN keeps the rows of one side, with"
                    " any number of joins",
                )
            if part.conditions or right.conditions:
                raise self.source.error(
                    join,
                    "the conditions of a subquery below a FULL OUTER JOIN are not supported yet; give them to its"
                    " stream, Stream(…, filter=…)",
                )
            self._guard(scope, part)
            self._guard(other, right)
            self._branch(part, "full", right, conditions, join)
            return part
        if side == "LEFT":
            self._guard(other, right)
            self._branch(part, "left", right, conditions, join)
            return part
        for condition in conditions:
            # ON decides which rows of the left side match; those that it rejects may be missing.
            for k, each in reversed(list(enumerate(part.branches))):
                if each.how == "left" and rejects(condition, each.part.shown()):
                    del part.branches[k]
                    part.absorb(each.part)
        self._guard(scope, part)
        self._branch(right, "left", part, conditions, join)
        return right

    def _branch(
        self, part: JoinPart, how: How, below: JoinPart, conditions: list[exp.Expression], join: exp.Expression
    ) -> None:
        """Hang a part below another one, by its conditions."""
        if below.after:
            raise self.source.error(
                join, "the subquery has conditions on rows of its outer join; write it as an inner join"
            )
        if any(branch.how == "full" for branch in (*part.branches, *below.branches)):
            raise self.source.error(join, "a FULL OUTER JOIN has two streams; it cannot be joined with others")
        inside = set(below.all())
        for condition in conditions:
            if reads(condition) & (below.shown() - set(below.occurrences)):
                below.add(condition)
                if below.after:
                    raise self.source.error(
                        condition, "this condition reads columns that an outer join inside may lack"
                    )
            else:
                below.conditions.append(condition)
        if not any(reads(condition) & inside and reads(condition) - inside for condition in below.conditions):
            # ON may read one side only, or neither.
            below.conditions.append(self._product(part.occurrences[0], below.occurrences[0]))
        part.hang(Hung(how, below, tuple(part.occurrences) if how == "full" else ()), join, self.source)

    def _guard(self, scope: Scope, part: JoinPart) -> None:
        """Make computed columns of a side that may be missing NULL where it is."""
        missing, first = set(part.all()), part.occurrences[0]

        def guarded(tree: exp.Expression) -> exp.Expression:
            if is_null(tree, missing):
                return tree
            test = presence(first, self.occurrences[first].alias)
            return exp.Case(ifs=[exp.If(this=test, true=tree.copy())])

        for relation in scope.relations:
            relation.columns = {name: guarded(tree) for name, tree in relation.columns.items()}
        for shown in scope.shown:
            if shown.merged is not None:
                shown.merged = guarded(shown.merged)

    def _product(self, occurrence: int, other: int) -> exp.Expression:
        """Return a condition that is true for each row of two occurrences."""
        names = [self.tables[self.occurrences[i].table].schema.names[0] for i in (occurrence, other)]
        return product((occurrence, names[0]), (other, names[1]))

    def _natural(self, join: exp.Join, scope: Scope, other: Scope) -> exp.Join:
        """Return NATURAL JOIN with USING and the columns that both sides have. Raises SqlError if they have none."""
        have = [shown.name for shown in other.shown]
        names = [name for name in dict.fromkeys(shown.name for shown in scope.shown) if name in have]
        if not names:
            raise self.source.error(join, "NATURAL JOIN: both sides have no column of the same name; write ON")
        changed = join.copy()
        changed.set("using", [exp.to_identifier(name) for name in names])
        return changed

    def _using(self, join: exp.Join, scope: Scope, other: Scope) -> dict[str, tuple[VisibleColumn, VisibleColumn]]:
        """Return the columns of both sides that USING names, by name."""
        pairs: dict[str, tuple[VisibleColumn, VisibleColumn]] = {}
        for node in join.args.get("using") or []:
            if node.name in pairs:
                raise self.source.error(node, f"USING names {node.name!r} twice")
            name = exp.Column(this=node.copy())
            name.meta["start"] = self.source.offset(node)
            sides = [side.only(name, self.source) for side in (scope, other)]
            if sides[0] is None or sides[1] is None:
                lacking = scope if sides[0] is None else other
                have = ", ".join(each.name for each in lacking.shown)
                raise self.source.error(node, f"USING: one side has no column {node.name!r}; it has {have}")
            pairs[node.name] = sides[0], sides[1]
        return pairs

    def _check_aliases(self, scope: Scope, join: exp.Join) -> None:
        names = [relation.alias.lower() for relation in scope.relations]
        doubled = next(
            (relation.alias for relation in scope.relations if names.count(relation.alias.lower()) > 1), None
        )
        if doubled is not None:
            raise self.source.error(join, f"two relations are named {doubled!r}; give one of them another name with AS")

    # WHERE

    def _where(self, node: exp.Expression, part: JoinPart, scope: Scope, ctes: Mapping[str, exp.Expression]) -> None:
        inner, negated = bare(node), False
        if isinstance(inner, exp.Not):
            inner, negated = bare(inner.this), True
        if isinstance(inner, exp.Exists):
            query = inner.this.this if isinstance(inner.this, exp.Subquery) else inner.this
            self._exists(query, "anti" if negated else "semi", None, part, scope, ctes, inner)
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            query = inner.args["query"]
            query = query.this if isinstance(query, exp.Subquery) else query
            equal = scope.resolve(inner.this, self.source)
            self._exists(query, "anti" if negated else "semi", equal, part, scope, ctes, inner)
        else:
            part.add(scope.resolve(node, self.source))

    def _exists(
        self,
        query: exp.Expression,
        how: How,
        equal: exp.Expression | None,
        part: JoinPart,
        scope: Scope,
        ctes: Mapping[str, exp.Expression],
        node: exp.Expression,
    ) -> None:
        """Hang the subquery of EXISTS or IN on a part."""
        query = without_sets(query, self.source, lambda side: self.whole(side, ctes).output_schema)
        if not isinstance(query, exp.Select):
            raise self.source.error(node, "EXISTS and IN take one SELECT; join several by AND or write a join")
        if query.args.get("with_") is not None:
            raise self.source.error(query.args["with_"], "WITH is not supported in EXISTS and IN")
        asked = with_first_rows(query, ctes, self.source, more=True)
        query = with_scalars(asked)
        clause = next((name for name in ("group", "having", "qualify") if query.args.get(name) is not None), None)
        if clause is not None:
            self._check_alone(query, clause, scope)
        if clause is not None or (equal is not None and is_grouped(query)) or query.meta.get(APART):
            query = apart(query, "subquery")
        below, inner = self.read(query, ctes, scope)
        if below.after:
            raise self.source.error(
                node, "the subquery has conditions on rows of its outer join; write it as an inner join"
            )
        listed = [output.unalias() for output in query.expressions if not output.is_star]
        self.unread += [inner.resolve(output, self.source) for output in listed]
        conditions = []
        if equal is not None:
            value = self._only_column(query, inner, node)
            if how == "anti" and not (self._never_null(equal, part) and self._never_null(value, below)):
                self._without_nulls(asked, equal, part, scope, ctes)
            conditions = [exp.EQ(this=equal, expression=value)]
        inside = set(below.all())
        everything = [*below.conditions, *conditions]
        if not any(reads(condition) & inside and reads(condition) - inside for condition in everything):
            conditions.append(self._product(part.occurrences[0], below.occurrences[0]))
        for condition in conditions:
            below.add(condition)
        part.hang(Hung(how, below), node, self.source)

    def _without_nulls(
        self,
        query: exp.Select,
        equal: exp.Expression,
        part: JoinPart,
        scope: Scope,
        ctes: Mapping[str, exp.Expression],
    ) -> None:
        """Add the condition that NOT IN has beside the lack of an equal value.

        It holds if the subquery has no row, or if neither side has a NULL.
        """
        names = {node.name.lower() for node in query.find_all(exp.Identifier)}
        names |= {relation.alias.lower() for relation in scope.relations}
        value = rows_of(query)
        value.meta[SCALARS] = unused("not_in", names)
        self.source.place(value, query)
        (kinds,) = self._value(value, part, scope, ctes).columns.values()
        no_null = exp.Not(this=exp.Is(this=equal.copy(), expression=exp.Null()))
        empty, full = (exp.EQ(this=kinds.copy(), expression=exp.Literal.number(k)) for k in (EMPTY, NO_NULL))
        part.add(exp.or_(empty, exp.and_(full, no_null)))

    def _check_alone(self, query: exp.Select, clause: str, scope: Scope) -> None:
        """Raise SqlError for a subquery with groups that reads a column of the query around it."""
        around = {relation.alias.lower() for relation in scope.relations} - {
            relation.alias_or_name.lower() for relation in query.find_all(exp.Table, exp.Subquery)
        }
        read = next((node for node in query.find_all(exp.Column) if node.table.lower() in around), None)
        if read is not None:
            raise self.source.error(
                query.args[clause],
                f"{clause.upper()} is not supported in EXISTS and IN beside {printed(read)}, a column of the query"
                " around them; join the groups as a subquery in FROM",
            )

    def _only_column(self, query: exp.Select, scope: Scope, node: exp.Expression) -> exp.Expression:
        """Return the resolved column of a subquery of IN."""
        star = any(output.is_star for output in query.expressions)
        trees = [tree for _, _, tree in scope.star("", node, self.source)] if star else query.expressions
        if len(trees) != 1:
            raise self.source.error(node, "IN takes a subquery with one column")
        return trees[0] if star else scope.resolve(trees[0].unalias(), self.source)

    def _never_null(self, tree: exp.Expression, part: JoinPart) -> bool:
        """Return whether a column is never NULL in rows of a part: a key of a table, or by a condition."""
        place = place_of(tree)
        if place is None or place[0] not in part.surely():
            return False
        table = self.tables[self.occurrences[place[0]].table]
        if isinstance(table, Table) and table.source is None and place[1] in table.keys:
            return True
        return any(_excludes_null(condition, place) for condition in part.conditions)


def _is_not_in(condition: exp.Expression) -> bool:
    condition = bare(condition)
    return isinstance(condition, exp.Not) and isinstance(bare(condition.this), exp.In)


def _excludes_null(condition: exp.Expression, place: Place) -> bool:
    """Return whether a condition is IS NOT NULL of a column."""
    condition = bare(condition)
    test = bare(condition.this) if isinstance(condition, exp.Not) else None
    null = isinstance(test, exp.Is) and isinstance(test.expression, exp.Null)
    return null and test is not None and place_of(bare(test.this)) == place


def _merged(side: str, left: VisibleColumn, right: VisibleColumn) -> exp.Expression:
    """Return a column that USING merges. An outer join has set those of both sides to NULL where a side is missing."""
    if side == "FULL":
        return exp.Anonymous(this="COALESCE", expressions=[left.tree.copy(), right.tree.copy()])
    return (right if side == "RIGHT" else left).tree

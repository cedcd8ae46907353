"""Names: the relations of a FROM clause, and the columns of names. Exact names precede names of other case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from eddy.expressions.grammar import printed
from eddy.expressions.source import StatementText
from eddy.expressions.trees import column, is_presence, replaced
from eddy.streams.stream import PRESENCE
from stairs.nearest import nearest


def known(name: str, names: Mapping[str, object]) -> str | None:
    """Return the name of a mapping that a name in a statement means: the same, or the only name of other case."""
    if name in names:
        return name
    same = [candidate for candidate in names if candidate.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


@dataclass
class Relation:
    """A table, subquery or common table expression of a FROM clause.

    alias    its name in the statement
    columns  by name the tree of each column
    first    an occurrence of a table that each of its rows has a row of
    """

    alias: str
    columns: dict[str, exp.Expression]
    first: int


@dataclass
class VisibleColumn:
    """A column that a name without a relation, or *, can mean.

    relation  the relation that has it, None = USING made it of columns of two
    merged    then its tree
    """

    name: str
    relation: Relation | None
    merged: exp.Expression | None = None

    @property
    def tree(self) -> exp.Expression:
        """Its tree."""
        if self.relation is not None:
            return self.relation.columns[self.name]
        assert self.merged is not None
        return self.merged


@dataclass
class Scope:
    """The relations whose columns a clause sees.

    shown   the columns in the order of *: of a join with USING, its merged columns, the others of the left side, and
            those of the right side
    outer   the scope of the statement around a correlated subquery
    """

    relations: list[Relation] = field(default_factory=list)
    shown: list[VisibleColumn] = field(default_factory=list)
    outer: Scope | None = None

    @classmethod
    def of(cls, relation: Relation, outer: Scope | None) -> Scope:
        """Return the scope of one relation."""
        return cls([relation], [VisibleColumn(name, relation) for name in relation.columns], outer)

    def joined(
        self, other: Scope, using: Mapping[str, tuple[VisibleColumn, VisibleColumn, exp.Expression]] | None = None
    ) -> Scope:
        """Return the scope of a join.

        using   by name the columns of both sides that USING names, and the tree of both
        """
        shared = {} if using is None else using
        gone = {id(side) for left, right, _ in shared.values() for side in (left, right)}
        merged = [VisibleColumn(name, None, tree) for name, (_, _, tree) in shared.items()]
        rest = [shown for shown in (*self.shown, *other.shown) if id(shown) not in gone]
        return Scope([*self.relations, *other.relations], [*merged, *rest], self.outer)

    def find(self, name: str) -> list[VisibleColumn]:
        """Return the columns that a name can mean: columns of the same case, or else columns of any case."""
        same = [shown for shown in self.shown if shown.name == name]
        return same or [shown for shown in self.shown if shown.name.lower() == name.lower()]

    def only(self, node: exp.Column, source: StatementText) -> VisibleColumn | None:
        """Return the column that a name without a relation means, or None. Raises SqlError for several."""
        columns = self.find(node.name)
        if len(columns) > 1:
            listed = " or ".join(
                f"{shown.relation.alias}.{shown.name}" for shown in columns if shown.relation is not None
            )
            also = "" if all(shown.relation for shown in columns) else ", or a column of USING by one of its relations"
            raise source.error(node, f"column {node.name!r} is ambiguous; write {listed}{also}")
        return columns[0] if columns else None

    def resolve(self, node: exp.Expression, source: StatementText) -> exp.Expression:
        """Return a copy of a tree in which places stand for names. Raises SqlError for names without a column."""
        return replaced(node, lambda leaf: self.column(leaf, source))

    def column(self, node: exp.Column, source: StatementText) -> exp.Expression:
        """Return the tree of a column's name."""
        if is_presence(node.parent):
            return self._presence(node, source)
        if isinstance(node.this, exp.Star):
            raise source.error(node, "* stands in the SELECT list only, or in COUNT(*)")
        if node.args.get("db") is not None or not isinstance(node.this, exp.Identifier):
            raise source.error(
                node, f"{printed(node)}: fields of nested columns cannot be named; make them columns before"
            )
        scope: Scope | None = self
        while scope is not None:
            tree = scope._of_relation(node, source)
            if tree is not None:
                new = tree.copy()
                new.meta["start"] = source.offset(node)
                return new
            scope = scope.outer
        if not node.table and node.name.upper() in ("WINDOW_START", "WINDOW_END"):
            bound = exp.Anonymous(this=node.name.upper())
            bound.meta["start"] = source.offset(node)
            return bound
        raise self._unknown(node, source)

    def has(self, node: exp.Column, source: StatementText) -> bool:
        """Return whether a name means a column of these relations, those of the statement around them left out."""
        if is_presence(node.parent):
            return known(node.name, {relation.alias: relation for relation in self.relations}) is not None
        return isinstance(node.this, exp.Star) or self._of_relation(node, source) is not None

    def _presence(self, node: exp.Column, source: StatementText) -> exp.Expression:
        """Return the column that says whether a row has a component of a relation, the argument of PRESENT."""
        relations = {relation.alias: relation for relation in reversed(list(self._all()))}
        alias = None if node.table else known(node.name, relations)
        if alias is None:
            raise source.error(
                node, f"PRESENT takes the name of a relation, not {printed(node)}; there are {', '.join(relations)}"
            )
        return column((relations[alias].first, PRESENCE), alias)

    def _of_relation(self, node: exp.Column, source: StatementText) -> exp.Expression | None:
        table, name = node.table, node.name
        if not table:
            only = self.only(node, source)
            return None if only is None else only.tree
        aliases = {relation.alias: relation for relation in self.relations}
        alias = known(table, aliases)
        if alias is None:
            return None
        exact_name = known(name, aliases[alias].columns)
        if exact_name is None:
            have = ", ".join(aliases[alias].columns)
            raise source.error(
                node, f"{alias} has no column {name!r}{nearest(name, aliases[alias].columns)}; it has {have}"
            )
        return aliases[alias].columns[exact_name]

    def _unknown(self, node: exp.Column, source: StatementText) -> Exception:
        everywhere = list(self._all())
        if node.table:
            aliases = ", ".join(dict.fromkeys(relation.alias for relation in everywhere))
            return source.error(
                node,
                f"there is no relation {node.table!r} here for {printed(node)}; there are {aliases}, and the columns"
                " of a semi or anti join, or of EXISTS, are not seen outside of it",
            )
        names = {name: None for relation in everywhere for name in relation.columns}
        return source.error(
            node, f"there is no column {node.name!r}{nearest(node.name, names)}; there are {', '.join(names)}"
        )

    def _all(self) -> Iterator[Relation]:
        yield from self.relations
        if self.outer is not None:
            yield from self.outer._all()

    def star(self, table: str, node: exp.Expression, source: StatementText) -> list[tuple[str, str, exp.Expression]]:
        """Return the columns of * or table.*: (relation, name, tree), of a column of USING without a relation."""
        if not table:
            return [
                ("" if shown.relation is None else shown.relation.alias, shown.name, shown.tree) for shown in self.shown
            ]
        chosen = known(table, {relation.alias: relation for relation in self.relations})
        if chosen is None:
            raise source.error(
                node, f"there is no relation {table!r}; there are {', '.join(r.alias for r in self.relations)}"
            )
        starred = next(relation for relation in self.relations if relation.alias == chosen)
        return [(starred.alias, name, tree) for name, tree in starred.columns.items()]

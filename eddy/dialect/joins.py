"""Parts as a query: each condition becomes a predicate, a filter of a stream, or a condition on joined rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from eddy.dialect.as_of import as_of
from eddy.dialect.parts import Hung, JoinPart
from eddy.dialect.products import product
from eddy.expressions.conditions import SqlPredicate, unconnected
from eddy.expressions.occurrences import Occurrence, Occurrences
from eddy.expressions.source import StatementText
from eddy.expressions.trees import own_columns, place_of, reads, where_present
from eddy.filters.conditions import Condition
from eddy.query.as_of import AsOf
from eddy.query.branch import Branch
from eddy.streams.stream import Stream
from eddy.streams.windows import Rows


@dataclass
class JoinArguments:
    """An inner join as a query or branch takes it."""

    streams: list[Stream]
    on: list[str] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    as_of: list[AsOf] = field(default_factory=list)


class JoinTranslator(Occurrences):
    """Makes streams, predicates and conditions from parts."""

    def __init__(self, source: StatementText, tables: Mapping[str, Stream], occurrences: Sequence[Occurrence]) -> None:
        super().__init__(source, tables, occurrences)
        self._filters: dict[int, list[SqlPredicate]] = {}

    def join(self, part: JoinPart, above: Sequence[int] = (), full: bool = False) -> JoinArguments:
        """Return the join of a part.

        above   the occurrences on the path to it
        full    whether a full outer join keeps the rows of the part
        """
        path = {*above, *part.occurrences}
        arguments = JoinArguments([])
        full_here = any(branch.how == "full" for branch in part.branches)
        for condition in (where_present(tree, path) for tree in part.conditions):
            if self.plain_predicate(condition) is None:
                self.scalars().condition(condition)  # checks the types of the condition in its written form
            for conjunct in self.split(condition):
                # PRESENT of a relation on the path has done its part: it says where the join hangs.
                if not (isinstance(conjunct, exp.Boolean) and conjunct.this):
                    self._place(conjunct, part, path, arguments, plain=not full and not full_here)
        there = set(above) | part.surely()
        arguments.where += [self.condition(where_present(tree, there)) for tree in part.after]
        arguments.branches = [self._branch(branch, path) for branch in part.branches]
        arguments.as_of = [as_of(lookup, self) for lookup in part.as_of]
        arguments.streams = [self._stream(i) for i in part.occurrences]
        return arguments

    def _place(
        self, node: exp.Expression, part: JoinPart, path: set[int], arguments: JoinArguments, plain: bool
    ) -> None:
        """Add a conjunct as a predicate, a filter of a stream, or a condition on joined rows."""
        read = reads(node)
        if len(read) == 1 and read <= set(part.occurrences) and plain:
            (i,) = read
            # A filter is applied before the window and WHERE after the window; the difference matters if the window
            # counts rows.
            if not isinstance(self.streams[i].window, Rows):
                text, columns = self.text(node), frozenset(p[1] for p in map(place_of, own_columns(node)) if p)
                predicate = SqlPredicate(self.scalars(i).condition(node), name=text, sql=text, known=columns)
                self._filters.setdefault(i, []).append(predicate)
                return
        if read & set(part.occurrences):
            own_text = self.predicate_text(node)
            if own_text is not None:
                arguments.on.append(own_text)
                return
        arguments.where.append(self.condition(node))

    def _branch(self, hung: Hung, path: set[int]) -> Branch:
        arguments = self.join(hung.part, sorted(path), hung.how == "full")
        self.connect(hung.part, arguments, above=path)
        return Branch(arguments.streams, arguments.on, hung.how, arguments.branches, arguments.where or None)

    def _stream(self, i: int) -> Stream:
        stream, more = self.streams[i], self._filters.get(i, [])
        if not more:
            return stream
        given: Any = stream.filter
        before = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        return replace(stream, filter=[*before, *more])

    def connect(
        self,
        part: JoinPart,
        arguments: JoinArguments,
        node: exp.Expression | None = None,
        above: Set[int] = frozenset(),
    ) -> None:
        """Connect the occurrences of an inner join that no predicate connects with the others.

        Where a condition that makes no key relates two occurrences, each row of one meets each row of the other. Raises
        SqlError for occurrences that nothing connects.

        node    where the join stands, None = the query finds what is not connected
        above   the occurrences on which the part hangs
        """
        start, crossed = set(above) or {part.occurrences[0]}, list[tuple[int, int]]()
        while (apart := self._apart(part, start, crossed)) is not None:
            near = self._met(part, apart, self._reached(part, start, crossed))
            if near is not None:
                crossed.append((near, apart))
                text = self.predicate_text(product(self._some(near), self._some(apart)))
                assert text is not None
                arguments.on.append(text)
                continue
            if node is None:
                return
            name = self.streams[apart].name
            beyond = part.shown() - set(part.occurrences)
            for condition in (*part.conditions, *part.after):
                if apart in reads(condition) and reads(condition) & beyond:
                    raise self.source.error(
                        condition,
                        f"nothing else connects {name}, and this condition reads columns that may be missing because of"
                        " an outer join before it; write the joins that it depends on as inner joins, or put them"
                        " first",
                    )
            raise self.source.error(
                node, f"nothing connects {name} with the other streams: {unconnected(name, arguments.where)}"
            )

    def _some(self, i: int) -> tuple[int, str]:
        """Return a column of an occurrence."""
        return i, self.streams[i].schema.names[0]

    def _met(self, part: JoinPart, apart: int, reached: set[int]) -> int | None:
        """Return an occurrence of `reached` that a condition relates to the occurrence `apart`; None if no one does."""
        for condition in part.conditions:
            read = reads(condition)
            if apart in read and read & reached and read <= reached | {apart}:
                return min(read & reached)
        return None

    def _apart(self, part: JoinPart, start: set[int], crossed: list[tuple[int, int]]) -> int | None:
        """Return an occurrence that predicates do not reach; first one that a condition relates to others."""
        reached = self._reached(part, start, crossed)
        apart = [i for i in part.occurrences if i not in reached]
        return next((i for i in apart if self._met(part, i, reached) is not None), next(iter(apart), None))

    def _reached(self, part: JoinPart, start: set[int], crossed: list[tuple[int, int]]) -> set[int]:
        """Return the occurrences that predicates connect with the first ones."""
        reached, grew = set(start), True
        pairs = [set(pair) for pair in crossed]
        for condition in part.conditions:
            for conjunct in self.split(condition):
                linked = {place[0] for place in map(place_of, own_columns(conjunct)) if place is not None}
                if len(linked) == 2 and self.predicate_text(conjunct) is not None:
                    pairs.append(linked)
        while grew:
            grew = False
            for linked in pairs:
                if reached & linked and not linked <= reached:
                    reached |= linked
                    grew = True
        return reached

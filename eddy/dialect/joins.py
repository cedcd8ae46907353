"""Parts as a query: each condition becomes a predicate, a filter of a stream, or a condition on joined rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from eddy.dialect.as_of import as_of
from eddy.dialect.parts import Hung, JoinPart
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
        path = {*above, *part.own}
        found = JoinArguments([])
        full_here = any(one.how == "full" for one in part.branches)
        for condition in (where_present(one, path) for one in part.conditions):
            if self.plain_predicate(condition) is None:
                self.scalars().condition(condition)  # checks the types of the condition in its written form
            for one in self.split(condition):
                self._place(one, part, path, found, plain=not full and not full_here)
        there = set(above) | part.surely()
        found.where += [self.condition(where_present(one, there)) for one in part.after]
        found.branches = [self._branch(one, path) for one in part.branches]
        found.as_of = [as_of(one, self) for one in part.as_of]
        found.streams = [self._stream(i) for i in part.own]
        return found

    def _place(self, node: exp.Expression, part: JoinPart, path: set[int], found: JoinArguments, plain: bool) -> None:
        """Add a conjunct as a predicate, a filter of a stream, or a condition on joined rows."""
        read = reads(node)
        if len(read) == 1 and read <= set(part.own) and plain:
            (i,) = read
            # A filter is applied before the window and WHERE after the window; the difference matters if the window
            # counts rows.
            if not isinstance(self.streams[i].window, Rows):
                text, columns = self.text(node), frozenset(p[1] for p in map(place_of, own_columns(node)) if p)
                own = SqlPredicate(self.scalars(i).condition(node), name=text, sql=text, known=columns)
                self._filters.setdefault(i, []).append(own)
                return
        if read & set(part.own):
            own_text = self.predicate_text(node)
            if own_text is not None:
                found.on.append(own_text)
                return
        found.where.append(self.condition(node))

    def _branch(self, one: Hung, path: set[int]) -> Branch:
        own = self.join(one.part, sorted(path), one.how == "full")
        return Branch(own.streams, own.on, one.how, own.branches, own.where or None)

    def _stream(self, i: int) -> Stream:
        stream, more = self.streams[i], self._filters.get(i, [])
        if not more:
            return stream
        given: Any = stream.filter
        before = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        return replace(stream, filter=[*before, *more])

    def check_connected(self, part: JoinPart, found: JoinArguments, node: exp.Expression) -> None:
        """Raise SqlError for occurrences of an inner join that no predicate connects with the others."""
        if len(part.own) == 1:
            return
        apart = self._apart(part)
        if apart is not None:
            name = self.streams[apart].name
            beyond = part.shown() - set(part.own)
            for condition in (*part.conditions, *part.after):
                if apart in reads(condition) and reads(condition) & beyond:
                    raise self.source.error(
                        condition,
                        f"nothing else connects {name}, and this condition reads columns that may be missing because of"
                        " an outer join before it; write the joins that it depends on as inner joins, or put them"
                        " first",
                    )
            raise self.source.error(
                node, f"nothing connects {name} with the other streams: {unconnected(name, found.where)}"
            )

    def _apart(self, part: JoinPart) -> int | None:
        reached, grew = {part.own[0]}, True
        pairs = []
        for condition in part.conditions:
            for one in self.split(condition):
                own = {place[0] for place in map(place_of, own_columns(one)) if place is not None}
                if len(own) == 2 and self.predicate_text(one) is not None:
                    pairs.append(own)
        while grew:
            grew = False
            for own in pairs:
                if reached & own and not own <= reached:
                    reached |= own
                    grew = True
        return next((i for i in part.own if i not in reached), None)

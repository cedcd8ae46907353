"""Queries with branches: left, semi, anti and full outer joins. docs/guide/semantics.md defines their results.

The core and every branch are inner joins of their own: that of a branch has the streams of the branch and all those on
its path to the core. So each is planned, run and migrated like any other join, and what branches add is a matter of
their results (`eddy.partners`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from eddy.expressions.written import parse_predicates
from eddy.filters.conditions import Condition, Filter
from eddy.query.arguments import listed
from eddy.query.branch import Branch, checked_branches
from eddy.query.branch_nodes import Node, Path
from eddy.query.clock_rule import ClockRule, WatermarkOf
from eddy.query.predicates import AttributeClass, attribute_classes
from eddy.query.query import Query
from eddy.streams.event_time import span_of
from eddy.streams.lateness import LATE_ROWS, Failed, Late
from eddy.streams.stream import PRESENCE, Stream, present
from eddy.streams.windows import Range, Unbounded
from stairs.errors import QueryError
from stairs.graph import FOREVER, JoinGraph, WindowKind


class InnerJoin(Query):
    """The inner join of the streams on one path. Its event times are compared in the type of the whole query."""

    def __init__(
        self,
        streams: Sequence[Stream],
        on: Sequence[str],
        time_type: pa.DataType | None,
        noun: str = "core",
        where: Sequence[Condition] = (),
    ) -> None:
        self._common, self._noun = time_type, noun
        self.where_place = f"where of the {noun}"
        super().__init__(streams, on, where=list(where), late="count")

    def _time_type(self) -> pa.DataType | None:
        return self._common

    def _join(self) -> None:
        super()._join()
        # The query and the branch have them among those that they are given.
        self.on_conditions = ()


class BranchedQuery(Query):
    """A query with branches. The arguments are those of `Query`.

    core_streams, branches   as they were given
    joins   the inner joins, by the positions of their streams in the query
    cores   the cores of its trees of nodes: one, or two for a full outer join

    `classes` has a key that all streams share, in the core and in every branch, if there is one: rows with different
    values of it never meet. `comparisons` and `scans` are empty: each inner join has its own predicates.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        on: Sequence[str] = (),
        *,
        branches: Sequence[Branch],
        select: Any = None,
        where: Filter | None = None,
        lateness: int | timedelta = 0,
        late: Late = "keep",
        late_rows: int = LATE_ROWS,
        failed: Failed = "keep",
        failed_rows: int = LATE_ROWS,
        watermark: WatermarkOf = "slowest",
        idle_after: int | timedelta | None = None,
        **groups: Any,
    ) -> None:
        self.branches = checked_branches(branches)
        self.core_streams = tuple(listed(streams, "streams", "eddy.Stream objects"))
        if not self.core_streams:
            raise QueryError("a query has no stream; branches hang on one stream or more")
        below = [stream for one in self.branches for stream in one.all_streams()]
        super().__init__(
            [*self.core_streams, *below],
            on,
            select=select,
            where=where,
            lateness=lateness,
            late=late,
            late_rows=late_rows,
            failed=failed,
            failed_rows=failed_rows,
            watermark=watermark,
            idle_after=idle_after,
            **groups,
        )

    def _join(self) -> None:
        self.comparisons, self.scans, self.values = (), (), {}
        self.unretracted = False
        self.derived = {}
        self.time_type = self._time_type()
        self.joins: dict[Path, InnerJoin] = {}
        self._hidden: set[int] = set()
        self._nullable: set[int] = set()
        core = self._node("core", self.core_streams, (), (), self.on, self.branches, ())
        self.cores: tuple[Node, ...] = (core,)
        full = [one for one in self.branches if one.how == "full"]
        if full:
            self.cores = (core, self._turned(core))
        self.streams = tuple(self._kept(i) for i in range(len(self.streams)))
        self.classes = self._shared_key(core)
        self._settle_windows()

    def _settle_windows(self) -> None:
        """Give the joins the windows of the streams, and make the graph."""
        for path, one in self.joins.items():
            own = [replace(self.streams[i], filter=None, late=None, lateness=None) for i in path]
            with warnings.catch_warnings():
                # It was told when the join was first made.
                warnings.simplefilter("ignore")
                self.joins[path] = InnerJoin(own, one.on, self.time_type, one._noun, one.conditions)
        windows = self._windows()
        self.graph = JoinGraph(
            names=tuple(stream.name for stream in self.streams),
            windows=windows,
            attributes=tuple(() for _ in self.streams),
            widths=(),
            timed=any(window.kind == WindowKind.RANGE for window in windows),
        )
        self.clock_rule = self._clock_rule()

    def _node(
        self,
        how: str,
        streams: Sequence[Stream],
        above: Path,
        texts: tuple[str, ...],
        on: Sequence[str],
        branches: Sequence[Branch],
        where: tuple[Condition, ...],
    ) -> Node:
        """Return a node of streams that hang on those of the path `above`, whose predicates are `texts`.

        where   the conditions on the matches of its path
        """
        own = tuple(self.index(stream.name) for stream in streams)
        path, texts = tuple(sorted((*above, *own))), (*texts, *on)
        windows = {}
        if len(path) == 1:
            if texts:
                raise QueryError(
                    f"stream {streams[0].name} is the whole core, so on= has nothing to join: {list(texts)}; predicates"
                    " between it and a branch belong to the branch"
                )
            if not branches:
                raise QueryError("a join of one stream needs branches")
        else:
            noun = "core" if how == "core" else f"join with branch {', '.join(stream.name for stream in streams)}"
            own_streams = [self.streams[i] for i in path]
            more = tuple(parse_predicates(on, own_streams).conditions)
            if how == "core":
                self.on_conditions = more
            else:
                where = (*where, *more)
            self.joins[path] = join = InnerJoin(own_streams, texts, self.time_type, noun, where)
            windows = dict(zip(path, join.graph.windows, strict=True))
        nodes = []
        for one in branches:
            if one.how == "full":
                self._check_full(one)
            kind = "left" if one.how == "full" else one.how
            nodes.append(self._node(kind, one.streams, path, texts, one.on, one.branches, (*where, *one.conditions)))
            below = {self.index(stream.name) for stream in one.all_streams()}
            if kind == "left":
                self._nullable |= below
            else:
                self._hidden |= below
        return Node(how, own, path, windows, tuple(nodes))

    def _check_full(self, branch: Branch) -> None:
        alone = len(self.core_streams) == len(self.branches) == len(branch.streams) == 1 and not branch.branches
        if not alone or self.branches[0] is not branch:
            raise QueryError(
                'a full outer join has two streams: a core of one stream and one branch of one stream; how="left" keeps'
                " the rows of the core with any number of branches"
            )

    def _turned(self, core: Node) -> Node:
        """Return the other half of a full outer join: the rows of the branch without a partner."""
        (branch,) = core.branches
        self._nullable |= set(core.own)
        other = Node("anti", core.own, branch.path, branch.windows, ())
        return Node("core", branch.own, branch.own, {}, (other,))

    def _shared_key(self, core: Node) -> tuple[AttributeClass, ...]:
        """Return the class of columns of all streams that are equal in the core and on every path, if there is one."""
        first = core if len(core.path) > 1 else core.branches[0]
        for component in self._components(first.path):
            for choice in component[core.own[0]]:
                key = {i: choice if i == core.own[0] else component[i][0] for i in core.path}
                if all(i in component for i in core.path) and self._spread(core, key):
                    names = [(self.streams[i].name, key[i]) for i in sorted(key)]
                    return attribute_classes(self.streams, [*pairwise(names)])
        return ()

    def _components(self, path: Path) -> Iterator[dict[int, tuple[str, ...]]]:
        """Yield the equal columns of all streams on a path, by stream, for each key that they share."""
        for one in self.joins[path].classes:
            if len(one.columns) == len(path):
                for k in range(len(one.types)):
                    yield {self.index(name): components[k] for name, components in one.columns.items()}

    def _spread(self, node: Node, key: dict[int, str]) -> bool:
        """Add columns of all streams below a node that equal those of the node in `key`; return whether there are."""
        for one in node.branches:
            for component in self._components(one.path):
                if all(key[i] in component[i] for i in node.path):
                    key.update({i: component[i][0] for i in one.own})
                    break
            else:
                return False
            if not self._spread(one, key):
                return False
        return True

    def _kept(self, i: int) -> Stream:
        """Return a stream with its window: its own, or the longest of those that the joins derive from intervals."""
        stream = self.streams[i]
        if stream.window is not None:
            return stream
        own = [join.graph.windows[path.index(i)] for path, join in self.joins.items() if i in path]
        if any(window.kind == WindowKind.UNBOUNDED for window in own):
            return replace(stream, window=Unbounded())
        assert self.time_type is not None
        assert stream.time is not None
        self.derived[stream.name] = size = max(window.size for window in own)
        return replace(stream, window=Range(span_of(size, self.time_type, stream.type_of(stream.time))))

    def for_changelog(self) -> BranchedQuery:
        """Return the query in which a tuple of a branch leaves no earlier than the matches whose partner it can be.

        Where the window of a branch's stream follows from intervals, it only covers the arrival of further partners. A
        changelog would say that a row of the core had lost its partner.
        """
        longer = copy(self)
        longer.joins, longer.derived = dict(self.joins), dict(self.derived)
        for core in self.cores[:1]:
            longer._lengthen(core)
        longer._settle_windows()
        longer.clock_rule = self.clock_rule
        return longer

    def with_clock(self, rule: ClockRule) -> BranchedQuery:
        """Return the query with another rule for the watermark."""
        other = copy(self)
        other.clock_rule = rule
        return other

    def _lengthen(self, above: Node) -> None:
        """Lengthen the derived windows of the streams below a node."""
        for node in above.branches:
            join = self.joins[node.path]
            most = join.intervals.most()
            for i in node.own:
                stream = self.streams[i]
                if stream.name not in self.derived or most is None:
                    continue
                assert self.time_type is not None
                assert stream.time is not None
                size = self.derived[stream.name]
                for j in above.path:
                    after = int(most[node.path.index(i), node.path.index(j)])
                    # A tuple leaves after those that arrived before it, which may be younger by the lateness.
                    size = max(size, min(after + self._size_of(j) + max(self.clock_rule.lateness), FOREVER))
                self.derived[stream.name] = size
                longer = replace(stream, window=Range(span_of(size, self.time_type, stream.type_of(stream.time))))
                self.streams = (*self.streams[:i], longer, *self.streams[i + 1 :])
            self._lengthen(node)

    def _size_of(self, i: int) -> int:
        """Return the ticks of the window of a stream with event times; FOREVER if it has none."""
        stream = self.streams[i]
        if not isinstance(stream.window, Range):
            return FOREVER
        assert stream.time is not None
        own = self.derived.get(stream.name)
        return self.ticks(stream.window.d, stream.type_of(stream.time), "window") if own is None else own

    @property
    def unwindowed(self) -> frozenset[str]:
        """The names of the streams that were given without a window; each join derives its own from intervals."""
        below = (stream for one in self.branches for stream in one.all_streams())
        return frozenset(stream.name for stream in (*self.core_streams, *below) if stream.window is None)

    def slack(self, time: int | None) -> int | None:
        """Return by how many ticks the event time of a result to come may be below the watermark; None = by any.

        A row waits for partners while all its components are in their windows, in the join of some branch. So when it
        comes, no component was older than its window before the push.
        """
        found = 0
        for core in self.cores:
            for branch in [one for own in core.branches for one in own.below()]:
                sizes = dict(core.spans(branch))
                size = min(sizes.values(), default=None) if time is None else sizes.get(time)
                if size is None:
                    return None
                found = max(found, size)
        if time is not None and any(core.windows for core in self.cores):
            own = super().slack(time)
            return None if own is None else max(found, own)
        return found

    @property
    def spans(self) -> list[int | None]:
        """Per stream, the ticks for which a row matters to results to come; None = without limit.

        A row of a branch may be an earlier partner of a match that still waits. All components of such a match that
        limit its wait are in their windows, and a partner is as much older than these as its own window is long.
        """
        own = super().spans
        found = list(own)

        def extend(node: Node, wait: int | None) -> None:
            """Note how long rows below a node matter, if matches above it wait so long, None = forever."""
            for branch in node.branches:
                for below in branch.below():
                    wait = None if wait is None else max([wait, *(size for _, size in node.spans(below))])
                    wait = wait if node.spans(below) else None
            for branch in node.branches:
                for i in branch.own:
                    size, known = own[i], found[i]
                    found[i] = None if size is None or known is None or wait is None else max(known, size + wait)
                extend(branch, wait)

        for core in self.cores:
            extend(core, 0)
        return found

    @property
    def shown(self) -> tuple[Stream, ...]:
        """The streams whose columns results can have: not those of semi and anti branches."""
        return tuple(stream for i, stream in enumerate(self.streams) if i not in self._hidden)

    def place_of(self, text: object, what: str) -> tuple[str, str]:
        for i in self._hidden:
            name = self.streams[i].name
            if isinstance(text, str) and text.startswith(f"{name}.") and all(s.name != name for s in self.shown):
                raise QueryError(
                    f"{what}: {text!r} is a column of stream {name}, whose semi or anti branch adds no columns to"
                    ' results; use how="left" for them'
                )
        for one in self.shown:
            if text == present(one.name) and self.may_lack(one.name):
                return one.name, PRESENCE
        return super().place_of(text, what)

    def _output_field(self, name: str, place: tuple[str, str]) -> pa.Field:
        field = super()._output_field(name, place)
        return field.with_nullable(field.nullable or (self.may_lack(place[0]) and place[1] != PRESENCE))

    def may_lack(self, name: str) -> bool:
        """Return whether results may have no component of a stream: those of left branches, and of full outer joins."""
        return self.index(name) in self._nullable

    @property
    def presences(self) -> frozenset[int]:
        """The positions of the streams of which `select`, `where` or aggregates read whether a result has a row."""
        read = (*self.select.values(), *self.where_columns)
        return frozenset(self.index(name) for name, column in read if column == PRESENCE)

    def inner_joins(self) -> Mapping[Path, Query]:
        return self.joins

    def __repr__(self) -> str:
        def text(node: Node) -> str:
            names = ", ".join(f"{self.streams[i].name} [{self.streams[i].window}]" for i in node.own)
            return " ".join([names, *(f"{one.how} ({text(one)})" for one in node.branches)])

        predicates = [dict.fromkeys(map(str, (*one.classes, *one.comparisons))) for one in self.joins.values()]
        joins = "; ".join(map(" AND ".join, predicates))
        return self._described(f"{text(self.cores[0])}; {joins}")

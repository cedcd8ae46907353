"""The branches of a query: left, semi, anti and full outer joins. docs/guide/semantics.md defines their results.

The core and every branch are separate inner joins: the join of a branch has the streams of the branch and all streams
on its path to the core. So each join is planned, run and migrated like any other join, and only the processing of their
results (`eddy.partners`) is specific to branches.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from eddy.expressions.parser import Column
from eddy.expressions.written import parse_predicates
from eddy.filters.conditions import Condition, Predicate
from eddy.query.branch import Branch
from eddy.query.branch_nodes import BranchNode, Path
from eddy.query.intervals import Intervals
from eddy.query.predicates import AttributeClass, attribute_classes
from eddy.streams.event_time import span_of, ticks
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Range, Rows, Unbounded
from stairs.errors import QueryError
from stairs.graph import FOREVER, JoinGraph, WindowKind


class Inner(Protocol):
    """The inner join of the streams on one path, as a query."""

    on: tuple[str, ...]
    graph: JoinGraph
    classes: tuple[AttributeClass, ...]
    intervals: Intervals
    conditions: tuple[Predicate, ...]


J = TypeVar("J", bound=Inner)
MakeInner: TypeAlias = Callable[[Sequence[Stream], Sequence[str], str, Sequence[Condition]], J]
"""Makes an inner join of streams, predicates, its name for warnings, and conditions on its results."""


class BranchTree(Generic[J]):
    """The core and the branches of a query as a tree of nodes, with an inner join for each of them.

    core_streams, branches   the arguments of the query
    streams       all streams, with their windows
    joins         the inner joins, by the positions of their streams in the query
    cores         the cores of its trees of nodes: one, or two for a full outer join
    classes       a key that all streams share, in the core and in every branch, if there is one: rows with different
                  values of this key never join
    partition_classes   the classes by which a host may deal rows: along each of them, a match of the core is in one
                  place, and all its partners are there. A stream without a column of the class is copied
    derived       name of a stream whose window follows from intervals -> the size of the window in ticks
    on_conditions the conditions in `on` that are no predicates
    hidden, nullable   the streams of which results have no columns, and those of which a result may lack a row

    Raises QueryError for branches that do not fit.
    """

    def __init__(
        self,
        core: Sequence[Stream],
        on: Sequence[str],
        branches: Sequence[Branch],
        time_type: pa.DataType | None,
        make: MakeInner[J],
    ) -> None:
        self.core_streams, self.branches, self._time_type, self._make = tuple(core), tuple(branches), time_type, make
        below = [stream for branch in branches for stream in branch.all_streams()]
        self.streams: tuple[Stream, ...] = (*core, *below)
        self._given = self.streams
        self.derived: dict[str, int] = {}
        self.joins: dict[Path, J] = {}
        self._nouns: dict[Path, str] = {}
        self.hidden: set[int] = set()
        self.nullable: set[int] = set()
        self.on_conditions: tuple[Condition, ...] = ()
        node = self._node("core", self.core_streams, (), (), on, self.branches, ())
        self.cores: tuple[BranchNode, ...] = (node,)
        if any(branch.how == "full" for branch in self.branches):
            self.cores = (node, self._turned(node))
        self.streams = tuple(self._kept(i) for i in range(len(self.streams)))
        self.classes = self._shared_key(node)
        self.partition_classes = self._partition_classes(node)
        self._settle_windows()

    def _index(self, name: str) -> int:
        return next(i for i, stream in enumerate(self._given) if stream.name == name)

    def _settle_windows(self) -> None:
        """Give the joins the windows of the streams."""
        for path, join in self.joins.items():
            # The join of a single stream without a window keeps no row, which it knows by its lack of a window.
            inputs = self._given if len(path) == 1 else self.streams
            streams = [replace(inputs[i], filter=None, late=None, lateness=None) for i in path]
            with warnings.catch_warnings():
                # The warning was already given when the join was first made.
                warnings.simplefilter("ignore")
                self.joins[path] = self._make(streams, join.on, self._nouns[path], join.conditions)

    def _node(
        self,
        how: str,
        streams: Sequence[Stream],
        above: Path,
        texts: tuple[str, ...],
        on: Sequence[str],
        branches: Sequence[Branch],
        where: tuple[Condition, ...],
    ) -> BranchNode:
        """Return a node of streams that hang on those of the path `above`, whose predicates are `texts`.

        where   the conditions on the matches of its path
        """
        numbers = tuple(self._index(stream.name) for stream in streams)
        path, texts = tuple(sorted((*above, *numbers))), (*texts, *on)
        windows = {}
        if len(path) == 1 and texts:
            raise QueryError(
                f"stream {streams[0].name} is the whole core, so on= has nothing to join: {list(texts)}; predicates"
                " between it and a branch belong to the branch"
            )
        if len(path) > 1 or not branches or isinstance(streams[0], Table):
            noun = "core" if how == "core" else f"join with branch {', '.join(stream.name for stream in streams)}"
            # The query checks lateness, which may count although this join has no clock.
            own_streams = [replace(self.streams[i], lateness=None) for i in path]
            more = tuple(parse_predicates(on, own_streams).conditions)
            if how == "core":
                self.on_conditions = more
            else:
                where = (*where, *more)
            self._nouns[path] = noun
            self.joins[path] = join = self._make(own_streams, texts, noun, where)
            windows = dict(zip(path, join.graph.windows, strict=True))
        nodes = []
        for branch in branches:
            if branch.how == "full":
                self._check_full(branch)
            kind = "left" if branch.how == "full" else branch.how
            nodes.append(
                self._node(kind, branch.streams, path, texts, branch.on, branch.branches, (*where, *branch.conditions))
            )
            below = {self._index(stream.name) for stream in branch.all_streams()}
            if kind == "left":
                self.nullable |= below
            else:
                self.hidden |= below
        return BranchNode(how, numbers, path, windows, tuple(nodes))

    def _check_full(self, branch: Branch) -> None:
        alone = len(self.core_streams) == len(self.branches) == len(branch.streams) == 1 and not branch.branches
        if not alone or self.branches[0] is not branch:
            raise QueryError(
                'a full outer join has two streams: a core of one stream and one branch of one stream; how="left" keeps'
                " the rows of the core with any number of branches"
            )

    def _turned(self, core: BranchNode) -> BranchNode:
        """Return the other half of a full outer join: the rows of the branch without a partner."""
        (branch,) = core.branches
        self.nullable |= set(core.streams)
        other = BranchNode("anti", core.streams, branch.path, branch.windows, ())
        (second,) = (self.streams[i] for i in branch.streams)
        if isinstance(second, Table):
            # The join of one table knows which of its versions live.
            self._nouns[branch.streams] = "core"
            self.joins[branch.streams] = self._make([second], (), "core", ())
        return BranchNode("core", branch.streams, branch.streams, {}, (other,))

    def _shared_key(self, core: BranchNode) -> tuple[AttributeClass, ...]:
        """Return the class of columns of all streams that are equal in the core and on every path, if there is one."""
        first = core if len(core.path) > 1 or not core.branches else core.branches[0]
        for component in self._components(first.path):
            for choice in component[core.streams[0]]:
                key = {i: choice if i == core.streams[0] else component[i][0] for i in core.path}
                if all(i in component for i in core.path) and self._spread(core, key):
                    names = [(self.streams[i].name, key[i]) for i in sorted(key)]
                    return attribute_classes(self.streams, [*pairwise(names)])
        return ()

    def _partition_classes(self, core: BranchNode) -> tuple[AttributeClass, ...]:
        if self.classes or len(self.cores) > 1:
            # Nothing is copied. In a full outer join a copy of a row would be without a partner in several places.
            return self.classes
        pairs, taken = list[tuple[Column, Column]](), set[Column]()
        for key in self._keys_of_core(core):
            equal = self._equal_below(core, frozenset(key), taken)
            taken |= equal
            # One column of each stream of the core: the others of the key are equal to it.
            pairs += pairwise([*dict(reversed(key)).items(), *sorted(equal)])
        return attribute_classes(self.streams, pairs)

    def _keys_of_core(self, core: BranchNode) -> list[list[Column]]:
        """Return the columns of the core that a branch is joined by, in groups that are equal in each match."""
        names = {self.streams[i].name for i in core.streams}
        used = [
            (name, column)
            for branch in core.branches
            for node in branch.below()
            for attribute_class in self.joins[node.path].classes
            for name, components in attribute_class.columns.items()
            if name in names
            for component in components
            for column in component
        ]
        groups = []
        for attribute_class in self.joins[core.path].classes if len(core.path) > 1 else ():
            for k in range(len(attribute_class.types)):
                groups.append(
                    [(name, column) for name, components in attribute_class.columns.items() for column in components[k]]
                )
        known = {column for group in groups for column in group}
        return [*groups, *([column] for column in dict.fromkeys(used) if column not in known)]

    def _equal_below(self, node: BranchNode, key: frozenset[Column], taken: set[Column]) -> set[Column]:
        """Return a column of each stream below a node that equals a key of the core wherever the stream is a partner.

        taken   columns that other keys have
        """
        columns = set()
        for branch in node.branches:
            names = [self.streams[i].name for i in branch.streams]
            for attribute_class in self.joins[branch.path].classes:
                for k in range(len(attribute_class.types)):
                    if not any(
                        (name, column) in key for name, parts in attribute_class.columns.items() for column in parts[k]
                    ):
                        continue
                    for name in names:
                        free = [(name, column) for column in attribute_class.columns.get(name, ((),) * (k + 1))[k]]
                        columns.update([column for column in free if column not in taken][:1])
            columns |= self._equal_below(branch, key, taken)
        return columns

    def _components(self, path: Path) -> Iterator[dict[int, tuple[str, ...]]]:
        """Yield the equal columns of all streams on a path, by stream, for each key that they share."""
        for attribute_class in self.joins[path].classes:
            if len(attribute_class.columns) == len(path):
                for k in range(len(attribute_class.types)):
                    yield {self._index(name): components[k] for name, components in attribute_class.columns.items()}

    def _spread(self, node: BranchNode, key: dict[int, str]) -> bool:
        """Add columns of all streams below a node that equal those of the node in `key`; return whether there are."""
        for branch in node.branches:
            for component in self._components(branch.path):
                if all(key[i] in component[i] for i in node.path):
                    key.update({i: component[i][0] for i in branch.streams})
                    break
            else:
                return False
            if not self._spread(branch, key):
                return False
        return True

    def _kept(self, i: int) -> Stream:
        """Return a stream with its window: its own, or the longest of those that the joins derive from intervals."""
        stream = self.streams[i]
        if stream.window is not None:
            return stream
        windows = [join.graph.windows[path.index(i)] for path, join in self.joins.items() if i in path]
        if windows[0].kind == WindowKind.ROWS:
            # A single stream whose rows are not kept.
            return replace(stream, window=Rows(windows[0].size))
        if any(window.kind == WindowKind.UNBOUNDED for window in windows):
            return replace(stream, window=Unbounded())
        assert self._time_type is not None
        assert stream.time is not None
        self.derived[stream.name] = size = max(window.size for window in windows)
        return replace(stream, window=Range(span_of(size, self._time_type, stream.type_of(stream.time))))

    def with_inputs(self, inputs: Mapping[str, Stream]) -> BranchTree[J]:
        """Return the tree with other inputs in place of those of the same names; see `Query.with_inputs`."""
        other = copy(self)
        other.streams, other._given, other.core_streams = (
            tuple(inputs.get(stream.name, stream) for stream in streams)
            for streams in (self.streams, self._given, self.core_streams)
        )
        return other

    def lengthened(self, lateness: int) -> BranchTree[J]:
        """Return the tree in which a tuple of a branch leaves no earlier than matches that may have it in a partner.

        If the window of a branch's stream follows from intervals, it only covers the arrival of further partners. With
        this window a changelog would report that a row of the core has lost its partner.

        lateness   the greatest of a stream, in ticks
        """
        longer = copy(self)
        longer.joins, longer.derived = dict(self.joins), dict(self.derived)
        longer._lengthen(self.cores[0], lateness)
        longer._settle_windows()
        return longer

    def _lengthen(self, above: BranchNode, lateness: int) -> None:
        """Lengthen the derived windows of the streams below a node."""
        for node in above.branches:
            join = self.joins[node.path]
            most = join.intervals.most()
            for i in node.streams:
                stream = self.streams[i]
                if stream.name not in self.derived or most is None:
                    continue
                assert self._time_type is not None
                assert stream.time is not None
                size = self.derived[stream.name]
                for j in above.path:
                    after = int(most[node.path.index(i), node.path.index(j)])
                    # A tuple leaves after those that arrived before it, which may be younger by the lateness.
                    size = max(size, min(after + self._size_of(j) + lateness, FOREVER))
                self.derived[stream.name] = size
                longer = replace(stream, window=Range(span_of(size, self._time_type, stream.type_of(stream.time))))
                self.streams = (*self.streams[:i], longer, *self.streams[i + 1 :])
            self._lengthen(node, lateness)

    def _size_of(self, i: int) -> int:
        """Return the ticks of the window of a stream with event times; FOREVER if it has none."""
        stream = self.streams[i]
        if not isinstance(stream.window, Range):
            return FOREVER
        assert stream.time is not None
        assert self._time_type is not None
        size = self.derived.get(stream.name)
        return ticks(stream.window.d, self._time_type, stream.type_of(stream.time), "window") if size is None else size

    @property
    def unwindowed(self) -> frozenset[str]:
        """The names of the streams that were given without a window; each join derives its own from intervals."""
        return frozenset(stream.name for stream in self._given if stream.window is None)

    @property
    def shown(self) -> tuple[Stream, ...]:
        """The streams whose columns results can have: not those of semi and anti branches."""
        return tuple(stream for i, stream in enumerate(self.streams) if i not in self.hidden)

    def slack(self, time: int | None, joined: int | None) -> int | None:
        """Return by how many ticks the event time of a result to come may be below the watermark; see `Query.slack`.

        joined   the slack of results that wait for no partner

        A row waits for partners while all its components are in their windows, in the join of some branch. So when the
        row is emitted, no component was older than its window before the push.
        """
        longest = 0
        for core in self.cores:
            for branch in [node for child in core.branches for node in child.below()]:
                sizes = dict(core.spans(branch))
                size = min(sizes.values(), default=None) if time is None else sizes.get(time)
                if size is None:
                    return None
                longest = max(longest, size)
        if time is not None and any(core.windows for core in self.cores):
            return None if joined is None else max(longest, joined)
        return longest

    def spans(self, sizes: list[int | None]) -> list[int | None]:
        """Return for how many ticks later results may depend on a row of each stream; see `Query.spans`.

        sizes  the ticks that follow from the windows

        A row of a branch may be an earlier partner of a match that still waits. All components of such a match that
        limit its wait are in their windows, and a partner is as much older than these as its own window is long.
        """
        spans = list(sizes)

        def extend(node: BranchNode, wait: int | None) -> None:
            """Extend the spans of rows below a node, given the wait of the matches above it, None = forever."""
            for branch in node.branches:
                for below in branch.below():
                    wait = None if wait is None else max([wait, *(size for _, size in node.spans(below))])
                    wait = wait if node.spans(below) else None
            for branch in node.branches:
                for i in branch.streams:
                    size, known = sizes[i], spans[i]
                    spans[i] = None if size is None or known is None or wait is None else max(known, size + wait)
                extend(branch, wait)

        for core in self.cores:
            extend(core, 0)
        return spans

    def __str__(self) -> str:
        def text(node: BranchNode) -> str:
            names = ", ".join(f"{self.streams[i].name} [{self.streams[i].extent}]" for i in node.streams)
            return " ".join([names, *(f"{branch.how} ({text(branch)})" for branch in node.branches)])

        return text(self.cores[0])

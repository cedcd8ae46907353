"""One join for all versions over the same join graph: it finds their results, and each version takes its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.queries.sources import POSITION, Push, Sources
from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.query.windows import Rows
from eddy.runtime import Runtime
from stairs.graph import Window, WindowKind
from stairs.plain_types import taken


def family_key(query: Query) -> Hashable:
    """Return what the queries of a family have in common: streams, predicates, and which windows count rows.

    A window of rows counts the rows that the filter of its stream lets through, so it and the filter are common.
    """
    rowed = tuple(
        (stream.name, stream.window.n, _filter_key(stream))
        for stream in sorted(query.streams, key=lambda one: one.name)
        if isinstance(stream.window, Rows)
    )
    classes = frozenset(tuple(sorted(one.columns.items())) for one in query.classes)
    return (
        frozenset(stream.name for stream in query.streams),
        classes,
        frozenset(one.canonical for one in query.comparisons),
        rowed,
        query.graph.timed,
    )


def filter_columns(stream: Stream) -> list[str]:
    """Return the columns that the filter of a stream reads."""
    read = {name for one in stream.conditions for name in one.read(stream.schema)}
    # A batch without columns would have no rows.
    return [name for name in stream.schema.names if name in read] or stream.schema.names[:1]


def _filter_key(stream: Stream) -> Hashable:
    """Return what is equal for equal filters: the text of an expression, else the identity of what was given."""
    return str(stream.filter) if isinstance(stream.filter, pc.Expression | None) else id(stream.filter)


def _wider(one: Window, other: Window) -> bool:
    """Return whether a window keeps more than another one of a kind that fits the same family."""
    order = (WindowKind.ROWS, WindowKind.RANGE, WindowKind.UNBOUNDED)
    return (order.index(one.kind), one.size) > (order.index(other.kind), other.size)


class Found:
    """The combinations that a join found in a push.

    table        the columns of all streams, named "stream.column", in the order of their last components
    rows         int64[rows], the numbers of its rows
    first, last  int64[rows], the least and the greatest position of their components
    """

    def __init__(self, table: pa.Table, names: list[str]) -> None:
        self.table = table
        self._names = names
        self.rows: npt.NDArray[np.int64] = np.arange(table.num_rows)

    @cached_property
    def first(self) -> npt.NDArray[np.int64]:
        """The least position of the components of each combination."""
        return np.minimum.reduce(self._places)

    @cached_property
    def last(self) -> npt.NDArray[np.int64]:
        """The greatest position of the components of each combination."""
        return np.maximum.reduce(self._places)

    @cached_property
    def _places(self) -> list[npt.NDArray[np.int64]]:
        return [np.asarray(self.table.column(f"{name}.{POSITION}")) for name in self._names]

    def stream(self, name: str, columns: list[str], rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return columns of a stream, by their own names, in some rows, of which there are any; O(1) for all rows."""
        batch = pa.RecordBatch.from_arrays([self._arrays[f"{name}.{column}"] for column in columns], names=columns)
        return batch if len(rows) == len(self.rows) else taken(batch, rows)

    @cached_property
    def _arrays(self) -> dict[str, pa.Array]:
        (batch,) = self.table.combine_chunks().to_batches()
        return dict(zip(batch.schema.names, batch.columns, strict=True))


def _key_columns(query: Query) -> set[tuple[str, str]]:
    """Return the (stream, column) pairs that predicates read."""
    keys = {(name, column) for one in query.classes for name, own in one.columns.items() for c in own for column in c}
    return keys.union(*(one.columns for one in query.comparisons))


class Family:
    """The join of one family.

    narrow   False: rows and combinations have all columns of the streams; True: those that the members need, so that a
             member that needs others makes the join grow

    members  the queries of its versions, by version
    windows  stream -> its widest window
    """

    def __init__(self, sources: Sources, query: Query, options: Mapping[str, object], narrow: bool = False) -> None:
        self._sources = sources
        self._options = options
        self._narrow = narrow
        self._on = query.on
        self._keys = _key_columns(query)
        self.names = [name for name in sources.graph.names if name in {one.name for one in query.streams}]
        self._streams = {stream.name: stream for stream in query.streams}
        self.windows = dict(zip((one.name for one in query.streams), query.graph.windows, strict=True))
        self.members: dict[object, Query] = {None: query}
        self._found = self._needed()
        self.complete_from = 0
        """The position from which the windows are complete."""
        self.oldest = 0
        """No row has a position before this one."""
        self.runtime = self._made()
        del self.members[None]

    @property
    def timed(self) -> bool:
        """Whether event time ends windows."""
        return any(window.kind == WindowKind.RANGE for window in self.windows.values())

    def _made(self) -> Runtime:
        position = pa.field(POSITION, pa.int64(), False)
        kept = self._found | self._keys
        streams = []
        for name in self.names:
            own, source = self._streams[name], self._sources.streams[self._sources.index(name)]
            schema = source.schema
            if self._narrow:
                schema = pa.schema([f for f in schema if (name, f.name) in kept or f.name == source.time])
            rows = own.filter if isinstance(own.window, Rows) else None
            streams.append(Stream(name, schema.append(position), own.window, source.time, rows))
        select = None
        if self._narrow:
            places = [*sorted(self._found), *((name, POSITION) for name in self.names)]
            select = {f"{name}.{column}": f'"{name}"."{column}"' for name, column in places}
        lateness = self._sources.graph.lateness if self.timed else 0
        query = Query(streams, self._on, select=select, lateness=lateness, late="count")
        return Runtime(query, **self._options)  # type: ignore[arg-type]

    def _needed(self) -> set[tuple[str, str]]:
        """Return the (stream, column) pairs that the members read in combinations."""
        found: set[tuple[str, str]] = set()
        for query in self.members.values():
            found.update((*query.select.values(), *query.where_columns))
            for stream in query.streams:
                if stream.conditions:
                    found.update((stream.name, column) for column in filter_columns(stream))
            windows = zip(query.streams, query.graph.windows, strict=True)
            if any(self.windows[stream.name].size != window.size for stream, window in windows):
                found.update((stream.name, stream.time) for stream in query.streams if stream.time is not None)
        return found

    def join(self, version: object, query: Query) -> bool:
        """Take a version in; return whether the join has grown, so that it must be filled again."""
        grown = False
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            if _wider(window, self.windows[stream.name]):
                self._streams[stream.name], self.windows[stream.name] = stream, window
                grown = True
        self.members[version] = query
        if self._narrow and not (needed := self._needed()) <= self._found:
            self._found |= needed
            grown = True
        return grown

    def fill(self, rows: Mapping[str, pa.Table | None], complete_from: int, watermark: int | None = None) -> None:
        """Begin anew with rows that arrived earlier.

        complete_from  the position from which these are all
        watermark      that of the last push of these rows, if pushes give one
        """
        self.runtime = self._made()
        given = {name: table for name in self.names if (table := rows[name]) is not None}
        if given:
            self.runtime.load(given, watermark=watermark if self.timed else None)
        self.complete_from = complete_from
        self.oldest = 0

    def push(self, push: Push) -> Found:
        """Take a push in; return what the join found."""
        index = [self._sources.index(name) for name in self.names]
        number = np.full(len(push.batches), len(index), np.uint8)
        number[index] = np.arange(len(index))
        order = number[push.order]
        batches = {
            name: batch for name, i in zip(self.names, index, strict=True) if (batch := push.batches[i]) is not None
        }
        return Found(self.runtime.push(batches, order[order < len(index)]), self.names)

    def push_rows(self, rows: Mapping[str, pa.Table], watermark: int | None) -> Found:
        """Take rows with their positions in, in order of event time; return what the join found.

        watermark   no later row is older; as in `Runtime.push`, and without effect on windows without event time
        """
        own = {name: table for name in self.names if (table := rows.get(name)) is not None}
        return Found(self.runtime.push(own, watermark=watermark if self.timed else None), self.names)

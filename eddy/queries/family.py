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
        places = [np.asarray(table.column(f"{name}.{POSITION}")) for name in names]
        self.first: npt.NDArray[np.int64] = np.minimum.reduce(places)
        self.last: npt.NDArray[np.int64] = np.maximum.reduce(places)
        self.rows: npt.NDArray[np.int64] = np.arange(len(self.last))

    def stream(self, name: str, columns: list[str], rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return columns of a stream, by their own names, in some rows, of which there are any; O(1) for all rows."""
        batch = pa.RecordBatch.from_arrays([self._arrays[f"{name}.{column}"] for column in columns], names=columns)
        return batch if len(rows) == len(self.rows) else taken(batch, rows)

    @cached_property
    def _arrays(self) -> dict[str, pa.Array]:
        (batch,) = self.table.combine_chunks().to_batches()
        return dict(zip(batch.schema.names, batch.columns, strict=True))


class Family:
    """The join of one family.

    members  the queries of its versions, by version
    windows  stream -> its widest window
    query    the query whose results contain those of all versions
    shared   whether it shares SteMs with other families (`eddy.queries.sharing`), and has none of its own
    fresh    whether it has seen no row yet
    """

    def __init__(self, sources: Sources, query: Query, options: Mapping[str, object]) -> None:
        self._sources = sources
        self._options = options
        self._on = query.on
        self.names = [name for name in sources.graph.names if name in {one.name for one in query.streams}]
        self._streams = {stream.name: stream for stream in query.streams}
        self.windows = dict(zip((one.name for one in query.streams), query.graph.windows, strict=True))
        self.members: dict[object, Query] = {}
        self.complete_from = 0
        """The position from which the windows are complete."""
        self.shared, self.fresh = False, True
        self.query = self._made()
        self.runtime: Runtime | None = self._started()

    def _started(self) -> Runtime:
        return Runtime(self.query, **self._options)  # type: ignore[arg-type]

    def _made(self) -> Query:
        streams = []
        for name in self.names:
            own, source = self._streams[name], self._sources.streams[self._sources.index(name)]
            schema = source.schema.append(pa.field(POSITION, pa.int64(), False))
            kept = own.filter if isinstance(own.window, Rows) else None
            streams.append(Stream(name, schema, own.window, source.time, kept))
        lateness = self._sources.graph.lateness
        ranged = any(window.kind == WindowKind.RANGE for window in self.windows.values())
        return Query(streams, self._on, lateness=lateness if ranged else 0, late="count")

    def join(self, version: object, query: Query) -> bool:
        """Take a version in; return whether windows became wider, so that the join must be filled again."""
        grown = False
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            if _wider(window, self.windows[stream.name]):
                self._streams[stream.name], self.windows[stream.name] = stream, window
                grown = True
        self.members[version] = query
        return grown

    def fill(self, rows: Mapping[str, pa.Table | None], complete_from: int) -> None:
        """Begin anew with rows that arrived earlier; `complete_from`: the position from which these are all."""
        self.query, self.fresh, self.complete_from = self._made(), False, complete_from
        if self.shared:
            return
        self.runtime = self._started()
        given = {name: table for name in self.names if (table := rows[name]) is not None}
        if given:
            self.runtime.load(given)

    def released(self) -> None:
        """Go on without SteMs of its own: the shared ones have its rows."""
        self.runtime, self.fresh = None, False

    def push(self, push: Push) -> Found:
        """Take a push in; return what the join found."""
        index = [self._sources.index(name) for name in self.names]
        number = np.full(len(push.batches), len(index), np.uint8)
        number[index] = np.arange(len(index))
        order = number[push.order]
        batches = {
            name: batch for name, i in zip(self.names, index, strict=True) if (batch := push.batches[i]) is not None
        }
        assert self.runtime is not None
        self.fresh = False
        return self.found(self.runtime.push(batches, order[order < len(index)]))

    def found(self, table: pa.Table) -> Found:
        """Return the combinations of a push, given the results of `query`."""
        return Found(table, self.names)

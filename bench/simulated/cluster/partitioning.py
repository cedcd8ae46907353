"""The query of an engine of one partition group, and the group of each row.

Rows are partitioned by the value of one attribute class that all streams have, so all components of a result are in
one group. Splits add two columns to the rows: the position in their log, which results keep until they are emitted, and
the event time in ticks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.simulated.cluster.split import POSITION, TICKS
from eddy.expressions.derived import Derived
from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.keys import key_hash
from eddy.ingest.tables import checked_rows
from eddy.ingest.validation import checked_times
from eddy.query.host_limits import check_counts_late, check_failed_plainly, check_joined_rows, check_waits
from eddy.query.query import Query
from eddy.results.failed_rows import ENDS_AT_FAILED
from eddy.streams.stream import Stream
from eddy.streams.windows import Rows
from stairs.errors import InputError, QueryError
from stairs.graph import FOREVER

_ADDED = [pa.field(TICKS, pa.int64(), False), pa.field(POSITION, pa.int64(), False)]


class Partitioned:
    """A query, partitioned into groups.

    query    an inner join of streams with Range windows, or Unbounded ones, and event times
    groups   number of partition groups

    Raises QueryError for a query that cannot be partitioned without copies of rows.
    """

    def __init__(self, query: Query, groups: int) -> None:
        check_joined_rows(query, "a cluster")
        check_counts_late(query, "a cluster")
        check_failed_plainly(query, f"a cluster {ENDS_AT_FAILED}")
        check_waits(query, "a cluster waits for the slowest split; leave it out")
        for stream in query.streams:
            if isinstance(stream.window, Rows):
                raise QueryError(
                    f"stream {stream.name}: a window of {stream.window} depends on the order of all its rows, which"
                    " partition groups do not know; use a Range window"
                )
            if stream.time is None:
                raise QueryError(f"stream {stream.name} has no event times; name its time column with time=…")
        if not query.graph.timed:
            raise QueryError("no stream has a Range window, so no row is ever old; give a stream a Range window")
        names = [stream.name for stream in query.streams]
        everywhere = [
            c for c, key_class in enumerate(query.classes) if all(name in key_class.columns for name in names)
        ]
        if not everywhere:
            raise QueryError(
                f"no attribute class has columns of all streams {', '.join(names)}: rows cannot be partitioned so that"
                " each result lies in one group"
            )
        self.query, self.groups = query, groups
        self.by = everywhere[0]
        """The attribute class by which rows are partitioned."""
        self.names = names
        self.spans = query.spans
        """Per stream the size of its window in ticks, None = unbounded."""
        streams = []
        for stream in query.streams:
            schema = pa.schema([*stream.schema, *_ADDED])
            window = None if stream.name in query.unwindowed else stream.window
            streams.append(Stream(stream.name, schema, window, stream.time, late="keep"))
        self.hidden = [f"{POSITION} {name}" for name in names]
        """Per stream the column of results that has the positions of its components."""
        select = {name: f"{stream}.{column}" for name, (stream, column) in query.select.items()}
        select |= {name: f"{stream}.{POSITION}" for name, stream in zip(self.hidden, names, strict=True)}
        self.inner = Query(streams, query.on, select=select, where=query.where, failed=query.failed)
        """The query that an engine runs."""
        self._filters = [
            AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter") if stream.conditions else None
            for stream in query.streams
        ]

    def admit(self, stream: int, rows: object) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return the rows of a stream that its filter accepts, with ticks, and their groups int64[rows].

        Raises InputError for rows that do not fit.
        """
        source = self.query.streams[stream]
        batch = checked_rows(rows, source.schema, source.place)
        own_filter = self._filters[stream]
        if own_filter is not None:
            batch = own_filter.filter(batch)
        ticks = checked_times(source, batch, self.query.time_type)
        groups = self.groups_of(self.hashes(stream, batch))
        return batch.append_column(_ADDED[0], pa.array(ticks, pa.int64())), groups

    def hashes(self, stream: int, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """Return the hash of the key of each row of a stream; 0 for a row that cannot join."""
        return key_hash(self.query, self.by, self.names[stream], rows)[0]

    def groups_of(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the partition group of each hash."""
        mixed = hashes ^ (hashes >> np.uint64(32))
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(32)) % np.uint64(self.groups)).astype(np.int64)

    def hash_of(self, key: object) -> int:
        """Return the hash of a key: a value, or a tuple of values if the key has several columns.

        Raises InputError for a key that no row can have.
        """
        name = self.names[0]
        components = self.query.classes[self.by].columns[name]
        values = key if isinstance(key, tuple) else (key,)
        schema = self.query.streams[0].schema
        derived = next(
            (column for component in components for column in component if isinstance(column, Derived)), None
        )
        if derived is not None:
            raise InputError(f"key {key!r}: the key {derived} is computed, so it has no value to pass; name no key")
        if len(values) != len(components):
            columns_text = ", ".join(component[0] for component in components)
            raise InputError(f"key {key!r}: pass a value for each column of the key: {columns_text}")
        try:
            columns = {
                column: pa.array([value], schema.field(column).type)
                for component, value in zip(components, values, strict=True)
                for column in component
            }
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
            raise InputError(f"key {key!r} does not fit the key of stream {name}: {problem}") from problem
        (hashed,) = self.hashes(0, pa.record_batch(columns)).tolist()
        if not hashed:
            raise InputError(f"key {key!r}: rows with this key join no others")
        return int(hashed)

    def pieces(self, rows: pa.RecordBatch, groups: np.ndarray) -> dict[int, pa.RecordBatch]:
        """Return the rows of each group, in their order. O(rows log rows)."""
        order = np.argsort(groups, kind="stable")
        dealt, ends = rows.take(pa.array(order)), np.bincount(groups, minlength=self.groups).cumsum()
        starts = np.concatenate([[0], ends[:-1]])
        return {int(g): dealt.slice(int(starts[g]), int(ends[g] - starts[g])) for g in np.flatnonzero(ends > starts)}

    def on_time(
        self, stream: int, rows: pa.RecordBatch, groups: np.ndarray, progress: int
    ) -> tuple[pa.RecordBatch, np.ndarray, int, int]:
        """Return the rows that are not late with their groups, the progress after them, and the number of late rows.

        A row is late if it is older than the greatest event time before it in its stream, minus the lateness.
        """
        ticks = rows.column(TICKS).to_numpy()
        if not len(ticks):
            return rows, groups, progress, 0
        newest = np.maximum.accumulate(ticks) - self.query.clock_rule.lateness[stream]
        before = np.concatenate([[progress], np.maximum(newest[:-1], progress)])
        keep = ticks >= before
        late = int(len(keep) - keep.sum())
        if late:
            rows, groups = rows.filter(pa.array(keep)), groups[keep]
        return rows, groups, max(progress, int(newest[-1])), late

    @property
    def end(self) -> int:
        """A progress beyond all windows."""
        return FOREVER

    def check_group(self, group: object, owners: Sequence[int]) -> int:
        """Return a group that has an owner. Raises InputError for a number that no group has."""
        if not isinstance(group, int | np.integer) or not 0 <= group < len(owners):
            raise InputError(f"there is no partition group {group!r}; groups are numbered from 0 to {len(owners) - 1}")
        number = int(group)
        if owners[number] < 0:
            raise InputError(f"partition group {number} was a fragment of a hot key, which has been gathered")
        return number

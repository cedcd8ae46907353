"""From pushed rows to tuples, and from tuples to tables of results: the edge of the simulated cluster.

Rows pass the same checks as those of a `Runtime`: validation, filters, order, lateness. A key becomes one number per
class, so that two keys are equal exactly if their numbers are equal. A row with a null key joins no row and is dropped.
The admission keeps the payload until no result can need it; tuples carry the numbers of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from eddy.ingest.clock import clock_of
from eddy.ingest.gate import Gate
from eddy.placement.keys import KeyNumbers, classes_of
from eddy.placement.tuples import Ints, Tuples
from eddy.query.host_limits import check_counts_late, check_failed_plainly, check_joined_rows
from eddy.query.query import Query
from eddy.results.failed_rows import ENDS_AT_FAILED, failed_text
from eddy.results.results import Combined, Place, Results
from stairs.errors import InputError, QueryError
from stairs.graph import FOREVER, WindowKind
from stairs.plain_types import Column, taken


def checked_query(query: Query) -> Query:
    """Return a query that can run on several nodes. Raises QueryError for any other query."""
    check_joined_rows(query, "a placement on nodes")
    check_counts_late(query, "a placement on nodes")
    check_failed_plainly(query, f"a placement on nodes {ENDS_AT_FAILED}")
    if query.comparisons:
        raise QueryError(
            f"{query.comparisons[0]} is no equality; joins are placed on nodes by their keys. Write it as `where`,"
            " a filter of results, or use Runtime"
        )
    for name, window in zip(query.graph.names, query.graph.windows, strict=True):
        if window.kind == WindowKind.ROWS:
            raise QueryError(
                f"stream {name} has a ROWS window, which depends on the order in which rows arrive; on several nodes"
                " there is none. Give it a Range window, or use Runtime"
            )
    return query


class Admission:
    """Admits the rows of a query, and makes its tables of results."""

    def __init__(self, query: Query, *, count_only: bool = False) -> None:
        self.query = query
        self.clock = clock_of(query)
        """The clock of a query with a RANGE window, None without."""
        self.spans = tuple(FOREVER if span is None else span for span in query.spans)
        self.classes = classes_of(query)
        """Per stream, the classes in which it has a key."""
        self.late_rows = [0] * len(query.streams)
        self.row_bytes = [0.0] * len(query.streams)
        """Per stream, the mean bytes of a row."""
        self._gate = Gate(query)
        self._keys = KeyNumbers(query)
        self._kept = query.payload_columns(not count_only)
        self._payload: list[list[tuple[int, pa.RecordBatch]]] = [[] for _ in query.streams]
        self._rows = [0] * len(query.streams)
        self._results = Results(query, self._kept, changelog=False, count_only=count_only, ids_only=False)
        self.schema = self._results.schema
        """The schema of results."""

    @property
    def watermark(self) -> int | None:
        """The event time in ticks below which no later row comes; None without event times or rows."""
        return None if self.clock is None else self.clock.watermark

    def admit(self, pushed: Mapping[str, object]) -> list[Tuples]:
        """Return the rows of a push by stream; late rows are counted. Raises InputError as `Runtime.push` does."""
        timed = self.query.graph.timed
        untimed = any(stream.time is None for stream in self.query.streams)
        arrivals = self._gate.admit(pushed, None, self.clock, past=untimed)
        admitted = []
        for i, batch in enumerate(arrivals.batches):
            times = arrivals.times[i] if timed else None
            admitted.append(self._tuples(i, batch, times))
        for i, late in arrivals.late.items():
            self.late_rows[i] += late.n_rows
        if self.clock is not None and arrivals.clock is not None:
            self.clock.state = arrivals.clock
        return admitted

    def _tuples(self, i: int, batch: pa.RecordBatch | None, times: Ints | None) -> Tuples:
        n = 0 if batch is None else len(batch)
        rows = np.arange(self._rows[i], self._rows[i] + n)
        time = np.zeros(n, np.int64) if times is None else np.array(times, np.int64)
        keys = {}
        dead = np.zeros(n, np.uint8)
        for c in sorted(self.classes[i]):
            keys[c] = np.zeros(0, np.int64) if batch is None else self._keys.numbers(i, c, batch, dead)
        if batch is not None:
            self._payload[i].append((self._rows[i], batch.select(self._kept[i])))
            self._rows[i] += n
            self.row_bytes[i] = batch.nbytes / n
        tuples = Tuples({i: rows}, keys, time, time, time + self.spans[i])
        return tuples.take(dead == 0) if dead.any() else tuples

    def table(self, components: Mapping[int, Ints]) -> pa.Table:
        """Return the table of results; `components` has by stream the rows of their components."""
        n = len(next(iter(components.values())))

        def columns() -> dict[Place, Column]:
            made: dict[Place, Column] = {}
            for i, names in enumerate(self._kept):
                if names:
                    first, batch = self._live(i)
                    rows = components[i] - first
                    made.update(((i, k), taken(batch.column(k), rows)) for k in range(len(names)))
            return made

        def numbers() -> Ints:
            return np.stack([components[i] for i in range(len(self._kept))])

        made = self._results.make(Combined(n, columns, numbers))
        if made.failed and self.query.failed != "count":
            raise InputError(f"{failed_text(made.failed[0])}. A placement on nodes {ENDS_AT_FAILED}")
        return made.table

    def _live(self, i: int) -> tuple[int, pa.RecordBatch]:
        """Return the number of the first row that is kept, and all kept rows of a stream as one batch."""
        parts = self._payload[i]
        if not parts:
            return 0, pa.RecordBatch.from_pylist([], schema=pa.schema([(n, self._type(i, n)) for n in self._kept[i]]))
        if len(parts) > 1:
            self._payload[i] = parts = [(parts[0][0], pa.concat_batches([batch for _, batch in parts]))]
        return parts[0]

    def _type(self, i: int, name: str) -> pa.DataType:
        return self.query.streams[i].type_of(name)

    def arrived(self, i: int) -> int:
        """Return the number of rows of a stream that have arrived."""
        return self._rows[i]

    def forget(self, oldest: Mapping[int, int]) -> None:
        """Drop the payload of rows before these numbers."""
        for i, row in oldest.items():
            if self._payload[i] and self._kept[i]:
                first, batch = self._live(i)
                if row - first > len(batch) // 2:
                    self._payload[i] = [(row, batch.slice(row - first))]

"""The join of one version of a hub in one key group, with a runtime of its own.

Other versions take their results from a join that many share, by the micro-batches of components. Here that says too
little: a row without a partner depends on rows that it does not contain, and a result that ends has two places. So such
a version has a `Runtime`, which has had all changes of tables, and the rows of streams from its first micro-batch on,
or, after a warm start, all rows that the log keeps.

The rows of a changelog join when the watermark has passed them, as in a streaming join with one query (`Job.waits`).
Until then they wait in the log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.adaptive import AdaptiveFilter
from eddy.queries.handover import difference_of
from eddy.queries.sources import POSITION
from eddy.query.query import Query
from eddy.results.failed_rows import failed_batch
from eddy.runtime import Runtime
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.streaming.worker.tasks import VersionTask
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from stairs.graph import FOREVER

Times = Callable[[pa.RecordBatch, str], npt.NDArray[np.int64]]
"""Returns the event times of rows of a stream in ticks."""
Rows = Mapping[str, pa.RecordBatch | None]
"""Rows by stream, those of the log with their micro-batches."""
Given = tuple[pa.Table, tuple[pa.RecordBatch, ...]]
"""Results of a push, and the rows that fail."""


class LoneGroupJoin:
    """The join of one version.

    query     the query of the version
    runtime   None while it is in a file
    changing  whether its results are a changelog: the rows of a micro-batch are one push
    waits     whether rows of streams wait until the watermark has passed them
    """

    def __init__(self, task: VersionTask, query: Query, options: EngineOptions, times: Times) -> None:
        self._task, self._times = task, times
        filtered = [stream for stream in query.streams if stream.conditions and not isinstance(stream, KeyedInput)]
        self._filters = {
            stream.name: AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter") for stream in filtered
        }
        """By stream its filter: a row on which it fails is a failed row, and the other queries go on."""
        self.query = query.with_inputs({stream.name: replace(stream, filter=None) for stream in filtered})
        self.query.failed_rows = sys.maxsize  # until the worker has written them, after each push
        self.runtime: Runtime | None = replace(options, output=task.output).runtime(self.query)
        self.changing = task.output == "changelog"
        self._timed = query.graph.timed
        self.waits = self.changing and self._timed
        self._first: tuple[dict[str, pa.Table], list[pa.Table]] | None = None
        """The rows with which a changelog begins, and the answers that it takes back."""

    @property
    def due(self) -> int | None:
        """The event time that the watermark must pass before there are results without further rows, None without."""
        assert self.runtime is not None
        # Rows that leave their windows take results back, whether or not others come.
        return -FOREVER if self.waits else self.runtime.due

    def begin(self, logged: Rows, batch: int, watermark: int | None, replaced: Sequence[LoneGroupJoin] = ()) -> None:
        """Begin with the rows that the version has had.

        A changelog that starts with this micro-batch has its answer among the results of `pass_rows`: the changes of
        one micro-batch are the difference between two answers, as sinks with keys need them.

        logged     all rows of the log
        watermark  watermark after these rows
        replaced   new joins of the versions that it replaces, if it is a changelog: it takes their answers back
        """
        assert self.runtime is not None
        rows, _ = self._had(logged, -FOREVER, watermark)
        if self.changing and self._task.start == batch:
            old = [other._push(other._had(logged, -FOREVER, watermark)[0], watermark)[0] for other in replaced]
            self._first = rows, old
        else:
            # Its results so far have been given.
            self.runtime.load(rows, watermark=watermark if self._timed else None)

    def push(self, rows: Rows, watermark: int | None) -> Given:
        """Take rows of a micro-batch, whose results do not wait."""
        taken, failed = self._had(rows)
        results, more = self._push(taken, watermark)
        return results, (*failed, *more)

    def pass_rows(self, waited: Rows, rows: Rows, before: int | None, after: int | None) -> Given:
        """Take the rows that the watermark has passed.

        waited   rows of the log that the watermark passes on its way from `before` to `after`
        rows     rows of the micro-batch
        """
        first, old = ({}, []) if self._first is None else self._first
        passed, failed = self._had(waited, before, after) if self.waits else ({}, [])
        now, more = self._had(rows, -FOREVER, after)
        taken = {
            name: pa.concat_tables([part[name] for part in (first, passed, now) if name in part])
            for name in first | passed | now
        }
        results, unresolved = self._push(taken, after)
        self._first = None
        return (difference_of(old, results) if old else results), (*failed, *more, *unresolved)

    def _push(self, rows: Mapping[str, pa.Table], watermark: int | None) -> Given:
        assert self.runtime is not None
        results = self.runtime.push(rows, watermark=watermark if self._timed else None, atomic=self.changing)
        return results, tuple(self.runtime.failed().to_batches())

    def _had(
        self, rows: Rows, before: int | None = None, after: int | None = None
    ) -> tuple[dict[str, pa.Table], list[pa.RecordBatch]]:
        """Return the rows that the version may use, in the columns of the query, and those on which its filters fail:
        all changes of tables; of the rows of streams that wait those of some event times."""
        chosen, failed = dict[str, pa.Table](), list[pa.RecordBatch]()
        for stream in self.query.streams:
            batch, columns = rows.get(stream.name), stream.schema.names
            if batch is None:
                continue
            if isinstance(stream, KeyedInput):
                columns = columns if stream.ops is None else [*columns, OP_COLUMN]
            else:
                if POSITION in batch.schema.names and not self._task.warm:
                    batch = batch.filter(pc.greater_equal(batch.column(POSITION), self._task.start))
                if self.waits:
                    times = self._times(batch, stream.name)
                    low, high = -FOREVER if before is None else before, -FOREVER if after is None else after
                    batch = batch.filter(pa.array((times > low) & (times <= high)))
                if stream.name in self._filters:
                    accepts = self._filters[stream.name]
                    accepted, failing = accepts.divided(batch)
                    named = {f"{stream.name}.{column}": batch.column(column) for column in stream.schema.names}
                    failed += failed_batch(accepts.faults(failing, "filter"), named)
                    batch = batch.take(pa.array(accepted))
            if len(batch):
                chosen[stream.name] = pa.Table.from_batches([batch.select(columns)])
        return chosen, failed

"""Takes the results that a version owns from those that its family found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.validation import checked_times
from eddy.queries.family import Family, Found, filter_columns
from eddy.queries.version import Version
from stairs.graph import WindowKind

Positions = npt.NDArray[np.int64]


class Owner:
    """The filters of one version, and the family that finds its results."""

    def __init__(self, version: Version, family: Family) -> None:
        self.version = version
        self.family = family
        query = version.query
        self._query = query
        self._where = None
        if query.conditions:
            self._where = AdaptiveFilter(query.conditions, place=query.where_place, rows="results")
        columns = [*query.select.values(), *query.where_columns]
        self._needed = list(dict.fromkeys(f"{stream}.{column}" for stream, column in columns))
        self._filters = {
            stream.name: AdaptiveFilter(stream.conditions, place=f"stream {stream.name}: its filter")
            for stream in query.streams
            if stream.conditions
        }

    def results(self, found: Found) -> tuple[pa.Table, Positions]:
        """Return the results of the version among what its family found, and the row of each there, ascending."""
        rows = self._owned(found)
        table = found.table.select(self._needed)
        if len(rows) < found.table.num_rows:
            table = table.take(pa.array(rows))
        if self._where is not None and len(rows):
            (batch,) = table.combine_chunks().to_batches()
            accepted = self._where.accepted(batch)
            rows, table = rows[accepted], table.take(pa.array(accepted))
        columns = [table.column(f"{stream}.{column}") for stream, column in self._query.select.values()]
        return pa.Table.from_arrays(columns, schema=self._query.output_schema), rows

    def _owned(self, found: Found) -> Positions:
        """Return the rows that are results but for the result filter, ascending."""
        version = self.version
        if version.start is None:
            return np.zeros(0, np.int64)
        rows = found.rows
        if version.start > self.family.oldest:
            begin = found.last if version.warm else found.first
            if begin.min(initial=version.start) < version.start:
                rows = np.flatnonzero(begin >= version.start)
        if version.stop is not None:
            rows = rows[found.last[rows] < version.stop]
        if version.drain is not None:
            rows = rows[found.first[rows] < version.drain.at]
        rows = self._within_windows(found, rows)
        for stream in self._query.streams:
            if stream.name in self._filters and len(rows):
                batch = found.stream(stream.name, filter_columns(stream), rows)
                rows = rows[self._filters[stream.name].accepted(batch)]
        return rows

    def _within_windows(self, found: Found, rows: Positions) -> Positions:
        """Return the rows whose components are in the windows of the query; the family may have wider ones."""
        spans = {
            stream: window.size
            for stream, window in zip(self._query.streams, self._query.graph.windows, strict=True)
            if window.kind == WindowKind.RANGE
        }
        if not len(rows) or all(self.family.windows[stream.name].size == size for stream, size in spans.items()):
            return rows
        times = {
            stream.name: checked_times(
                stream, found.stream(stream.name, [str(stream.time)], rows), self._query.time_type
            )
            for stream in self._query.streams
        }
        newest = np.maximum.reduce(list(times.values()))
        keep = np.logical_and.reduce([newest - times[stream.name] <= size for stream, size in spans.items()])
        return rows[keep]

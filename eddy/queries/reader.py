"""Takes the results that a version owns from those that its family found.

Its bounds, its windows and most of its filters are ranges, which the family asks for all its versions at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.conditions import Predicate
from eddy.filters.faults import Faults
from eddy.filters.ranges import GREATEST, LEAST, ColumnSet, ranges_of, within
from eddy.queries.bound import EngineBound
from eddy.queries.combinations import AGE, FIRST, LAST, PushedCombinations
from eddy.queries.grouping import Grouping
from eddy.queries.version import Version
from eddy.results.failed_rows import failed_batch
from stairs.graph import Window, WindowKind

Positions = npt.NDArray[np.int64]


class Extent(Protocol):
    """Which rows a join of several versions has: those of these windows, from a position on."""

    windows: dict[str, Window]
    oldest: int
    bound: EngineBound


Of = TypeVar("Of", bound=Extent)


class Reader(Generic[Of]):
    """The filters of one version, and the family (`eddy.queries.family.Family`) that finds its results."""

    def __init__(self, version: Version, family: Of) -> None:
        self.version = version
        self.grouping = None if version.query.aggregation is None else Grouping(version, family.bound)
        """The groups of the version's results; None without aggregates."""
        self.family = family
        query = self.query = version.query
        columns = [*query.select.values(), *query.where_columns]
        self.needed = tuple(dict.fromkeys(f"{stream}.{column}" for stream, column in columns))
        """The columns of the version's results and the columns that `where` reads, as "stream.column"."""
        self.nothing = query.row_schema.empty_table()
        """The results of a push without any: Arrow takes tens of microseconds to make an empty table."""
        self.ranges: dict[str, list[ColumnSet]] = {stream.name: [] for stream in query.streams}
        """Stream -> those of its conditions that are sets of values, of columns named "stream.column"."""
        self._filters: dict[str, AdaptiveFilter] = {}
        self._filtered: dict[str, list[str]] = {}
        for stream in query.streams:
            if stream.name in query.counted:
                continue  # the family has this filter
            streams = {f"{stream.name}.{column}": stream.name for column in stream.schema.names}
            named = pa.schema(zip(streams, stream.schema.types, strict=True))
            rest = [
                condition for condition in stream.conditions if not self._read(condition, stream.schema, named, streams)
            ]
            if rest:
                self._filters[stream.name] = AdaptiveFilter(rest, place=f"{stream.place}: its filter")
                read = {column for condition in rest for column in condition.read(stream.schema)}
                self._filtered[stream.name] = [column for column in stream.schema.names if column in read]
        streams = {f"{stream}.{column}": stream for stream, column in query.where_columns}
        types = [query.stream(stream).type_of(column) for stream, column in query.where_columns]
        named = pa.schema(zip(streams, types, strict=True))
        rest = [condition for condition in query.conditions if not self._read(condition, named, named, streams)]
        self._where = AdaptiveFilter(rest, place=query.where_place, rows="results") if rest else None
        filtered = {f"{stream}.{column}" for stream, names in self._filtered.items() for column in names}
        ranges = {column_set.column for column_sets in self.ranges.values() for column_set in column_sets}
        self.read = frozenset({*self.needed, *filtered, *ranges})
        """All columns of the family's results that the version reads, except event times."""

    def _read(self, given: Predicate, schema: pa.Schema, named: pa.Schema, streams: Mapping[str, str]) -> bool:
        """Add the sets of values of a condition; return whether it has any.

        named, streams  the columns of the schema, named "stream.column", and the stream of each
        """
        ranges = ranges_of(given, schema)
        for column_set in ranges or ():
            column = named.names[schema.names.index(column_set.column)]
            self.ranges[streams[column]].append(column_set._replace(column=column))
        return ranges is not None

    # Its results

    def bounds(self) -> list[ColumnSet]:
        """Return the bounds on positions of the version's results, if the family has results beyond them.

        The version must have started.
        """
        version = self.version
        assert version.start is not None
        bounds = []
        if version.start > self.family.oldest:
            bounds.append(ColumnSet(LAST if version.warm else FIRST, within(version.start, GREATEST)))
        if version.stop is not None:
            bounds.append(ColumnSet(LAST, within(LEAST, version.stop - 1)))
        if version.drain is not None and self.grouping is None:
            bounds.append(ColumnSet(FIRST, within(LEAST, version.drain.at - 1)))
        return bounds

    def within_bounds(self, combinations: PushedCombinations, rows: Positions) -> npt.NDArray[np.bool_]:
        """Return whether each of the rows is within the present bounds."""
        keep = np.ones(len(rows), np.bool_)
        for column, ranges in self.bounds():
            places = (combinations.first if column == FIRST else combinations.last)[rows]
            ((low, end),) = ranges
            keep &= (places >= low) & (places < end)
        return keep

    def windows(self) -> list[ColumnSet]:
        """Return the greatest ages of components, for streams for which the family has a wider window."""
        pairs = zip(self.query.streams, self.query.graph.windows, strict=True)
        return [
            ColumnSet(AGE + stream.name, within(LEAST, window.size))
            for stream, window in pairs
            if window.kind == WindowKind.RANGE and self.family.windows[stream.name] != window
        ]

    @property
    def asks_more(self) -> bool:
        """Whether the version has conditions that are no ranges."""
        return self._where is not None or bool(self._filters)

    @property
    def seconds(self) -> float:
        """Seconds of the conditions that are no ranges."""
        filters = [*self._filters.values(), *([] if self._where is None else [self._where])]
        return sum(adaptive_filter.seconds for adaptive_filter in filters)

    def accepted(self, combinations: PushedCombinations, rows: Positions) -> tuple[Positions, Faults]:
        """Return the rows for which the conditions hold that are no ranges, and the faults of those that fail."""
        faults = Faults()
        for stream in self.query.streams:
            if stream.name in self._filters and len(rows):
                columns = self._filtered[stream.name]
                names = [f"{stream.name}.{column}" for column in columns]
                rows = _divided(
                    self._filters[stream.name], "filter", combinations.batch(names, rows, columns), rows, faults
                )
        if self._where is not None and len(rows):
            columns = list(dict.fromkeys(f"{stream}.{column}" for stream, column in self.query.where_columns))
            rows = _divided(self._where, "where", combinations.batch(columns, rows), rows, faults)
        if faults:
            alive = set(rows.tolist())
            faults = {row: fault for row, fault in sorted(faults.items()) if row in alive}
            rows = rows[~np.isin(rows, list(faults))]
        return rows, faults

    def failed(self, combinations: PushedCombinations, faults: Faults) -> list[pa.RecordBatch]:
        """Return the rows of `FAILED` of combinations, given the faults of each."""
        read = sorted(self.read.intersection(combinations.columns))
        batch = combinations.batch(read, np.array(list(faults), np.int64))
        return failed_batch(dict(enumerate(faults.values())), dict(zip(read, batch.columns, strict=True)))

    def output(self, batch: pa.RecordBatch) -> tuple[pa.Table, Faults]:
        """Return the results, given the needed columns of their rows, and the rows that fail.

        O(columns), and expressions.
        """
        place = {name: k for k, name in enumerate(self.needed)}
        columns = [batch.column(place[f"{stream}.{column}"]) for stream, column in self.query.select.values()]
        made, faults = self.query.output(columns, len(batch))
        return pa.Table.from_arrays(made, schema=self.query.row_schema), faults


def _divided(accepts: AdaptiveFilter, kind: str, batch: pa.RecordBatch, rows: Positions, faults: Faults) -> Positions:
    """Return those of some rows that a filter does not reject, and note those that fail, unless they failed before."""
    kept, failing = accepts.divided(batch)
    for row, fault in accepts.faults(failing, kind).items():
        faults.setdefault(int(rows[row]), fault)
    return rows[np.sort(np.concatenate([kept, list(failing)]).astype(np.int64)) if failing else kept]

"""The join of one version alone: a query with branches, or one whose results are a changelog.

Other versions take their results from a join that many share, by the positions of components. Here that says too
little: a row without a partner depends on rows that it does not contain, and a result that ends has two places. So such
a version has a `Runtime` of its own, which sees the arrivals between its start and its stop:

    fresh start at s      the runtime begins empty, and takes the arrivals from s on
    warm start at s       it begins with the rows that were kept, as if they had been pushed (`Runtime.load`)
    immediate stop at e   it takes the arrivals before e
    drain stop at e       of an inner join: its changelog, without results whose components all came at e or later

Each push of the engine is one of the runtime, cut at these bounds, with the watermark of the engine after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import thread_time
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from eddy.expressions.computed import ComputedExpression
from eddy.filters.adaptive import AdaptiveFilter
from eddy.log import endless_told
from eddy.pipeline.push import prepare
from eddy.pipeline.records import Prepared
from eddy.queries.changes import CHANGES, How
from eddy.queries.found import VersionRows
from eddy.queries.kept import KeptRows, Need
from eddy.queries.sources import POSITION, EnginePush, Sources
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.results.failed_rows import FAILED
from eddy.runtime import Runtime
from stairs.errors import InputError, QueryError
from stairs.graph import Window, WindowKind

Output = Literal["append", "changelog"]
CHANGES_ALONE: dict[Output, tuple[How, ...]] = {
    "append": ("immediate", "handover"),
    "changelog": ("immediate", "drain-stream"),
}
"""Output mode -> the kinds of change that are possible for versions with joins of their own.

A handover of a changelog would take back results that the new version never gave. A drain of rows without partners, or
at a result whose place is not known, would need rows of both versions to decide.
"""


def is_alone(query: Query, output: Output) -> bool:
    """Return whether a version of a query has a join of its own."""
    return output == "changelog" or bool(query.branches)


def check_change(name: str, old: Query, new: Query, how: How, output: Output) -> None:
    """Raise InputError for a kind of change that has no meaning for queries with joins of their own."""
    if not (is_alone(old, output) or is_alone(new, output)):
        return
    kinds = CHANGES_ALONE[output]
    if how not in kinds:
        what = "a changelog" if output == "changelog" else "a query with branches"
        raise InputError(
            f"query {name!r}: {how!r} has no meaning for {what}; change it with {' or '.join(map(repr, kinds))}"
        )
    if CHANGES[how].drains:
        check_drain(name, old, f"{how!r}")


def check_drain(name: str, query: Query, what: str) -> None:
    """Raise InputError for a drain of a query with branches."""
    if query.branches:
        raise InputError(
            f"query {name!r}: {what} has no meaning for a query with branches, because whether a row has a partner"
            " depends on rows from before and after; stop or change it with 'immediate'"
        )


class LoneJoin:
    """The join of one version.

    version   the version whose results the join finds
    output    "append" or "changelog"
    runtime   the runtime of the join, empty before the start of the version
    seconds   CPU seconds of pushes

    Raises InputError for an impossible warm start, and the errors of `Runtime`.
    """

    def __init__(self, version: Version, output: Output, sources: Sources, options: Mapping[str, Any]) -> None:
        query = version.query
        self.version, self.output = version, output
        self.seconds = 0.0
        self._sources, self._options = sources, options
        self.names = [stream.name for stream in query.streams]
        self._index = [sources.index(name) for name in self.names]
        if query.graph.timed and query.time_type != sources.time_type:
            raise QueryError(
                f"the engine counts event time as {sources.time_type}, because of its other streams, and the query as"
                f" {query.time_type}; give all time columns one type"
            )
        if version.warm:
            self._check_warm()
        self._counting = [
            AdaptiveFilter(one.conditions, place=f"{one.place}: its filter") if one.conditions else None
            for one in query.streams
        ]
        self.query = self._made_query()
        self.runtime = self._made()
        self.begun = False
        """Whether the runtime has had arrivals."""
        self._open: Prepared | None = None
        """The prepared push; None between pushes."""

    def _check_warm(self) -> None:
        if self.output == "changelog":
            raise InputError(
                "a warm start of a changelog would take back results that it never gave; start it without warm=True"
            )
        for stream, window in zip(self.version.query.streams, self.version.query.graph.windows, strict=True):
            if window.kind == WindowKind.ROWS:
                raise InputError(
                    f"a query with branches cannot start warm with a Rows window (stream {stream.name!r}): which rows"
                    " had a partner depends on all earlier rows; start it without warm=True"
                )

    def _made_query(self) -> Query:
        """Return the query of the runtime: with the lateness of the engine, or with the positions of components."""
        query = self.version.query
        if query.branches:
            own = copy(query)
            if query.graph.timed:
                rule = self._sources.clock_rule
                own = query.with_clock(rule._replace(lateness=tuple(rule.lateness[i] for i in self._index)))
            own.failed = "keep"  # the query of the engine counts failed rows, stores them or passes them on
            return own
        placed = [replace(one, schema=one.schema.append(pa.field(POSITION, pa.int64()))) for one in query.streams]
        select = {
            name: one.expression if isinstance(one, ComputedExpression) else ".".join(one)
            for name, one in query.outputs.items()
        }
        places = {f"{POSITION}.{name}": f"{name}.{POSITION}" for name in self.names}
        where = list(query.conditions) or None
        return Query(placed, query.on, select={**select, **places}, where=where, expiry=query.expiry)

    def _made(self, plan: str | None = None) -> Runtime:
        with endless_told():
            return Runtime(self.query, plan, output=self.output, **self._options)

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of its rows."""
        op = [pa.field("op", pa.string())] if self.output == "changelog" else []
        return pa.schema([*op, *self.version.query.output_schema])

    # Rows that are kept

    def needs(self, name: str) -> list[Need]:
        """Return which rows of a stream the engine must keep, so that another version can start warm.

        A changelog cannot; of windows of rows it needs the rows in them, by which a drain finds its end.
        """
        if name not in self.names:
            return []
        k = self.names.index(name)
        window = self.query.graph.windows[k]
        if self.output == "changelog":
            return [Need(window, self._counting[k])] if window.kind == WindowKind.ROWS else []
        span = self.query.spans[k]
        return [Need(window if span is None else Window(WindowKind.RANGE, span))]

    # Pushes

    def prepare(self, push: EnginePush, kept: Sequence[KeptRows]) -> VersionRows:
        """Compute the rows of a push that has not happened yet; the caller then calls `settle` or `roll_back`.

        kept   per stream of the engine the rows before the push
        """
        began, version = thread_time(), self.version
        start = push.end if version.start is None else max(version.start, push.first)
        stop = push.end if version.stop is None else min(version.stop, push.end)
        if start >= stop:
            return VersionRows(self.output_schema.empty_table(), np.zeros(0, np.int64))
        self._open = None
        if not self.begun and version.warm:
            self._load(push, start, kept)
        number = np.full(256, 255, np.uint8)
        number[self._index] = np.arange(len(self._index))
        order = number[push.order[start - push.first : stop - push.first]]
        watermark = self._watermark(push, stop)
        batches = {name: rows for name, rows in self._rows(push, start, stop).items() if len(rows)}
        pipeline = self.runtime._pipeline
        prepared = prepare(pipeline, batches, np.ascontiguousarray(order[order < 255]), watermark)
        failed = prepared.commit.new_failed
        # The query of the engine has the failed rows.
        commit = prepared.commit._replace(failed=pipeline.failed.rows, new_failed={})
        self._open = prepared._replace(commit=commit)
        table = self._owned(prepared.results)
        self.seconds += thread_time() - began
        rows = [self._failed(one.rows) for one in failed.values() if one.rows is not None]
        return VersionRows(table, np.full(table.num_rows, start), tuple(rows))

    def _rows(self, push: EnginePush, start: int, stop: int) -> dict[str, pa.RecordBatch]:
        """Return the rows of a push from one position to another."""
        found = {}
        for name, i in zip(self.names, self._index, strict=True):
            batch = push.batches[i]
            if batch is not None:
                first, end = np.searchsorted(push.places[i], [start, stop]).tolist()
                found[name] = batch.slice(first, end - first)
        return found

    def _watermark(self, push: EnginePush, position: int) -> int | None:
        """Return the watermark of the engine before a position of a push; None if the runtime has no event time."""
        if not self.query.graph.timed:
            return None
        return push.watermark_at(position)

    def _load(self, push: EnginePush, start: int, kept: Sequence[KeptRows]) -> None:
        """Load the rows that were kept before the push, and the rows of the push that arrived before the start."""
        rows = {}
        now = self._rows(push, push.first, start)
        for name, i in zip(self.names, self._index, strict=True):
            batches = [batch for batch in (kept[i].rows(), now.get(name)) if batch is not None and len(batch)]
            if batches:
                rows[name] = pa.Table.from_batches(batches)
        if rows:
            self.runtime.load(rows, watermark=self._watermark(push, start))

    def _owned(self, table: pa.Table) -> pa.Table:
        """Return the rows of a push that the version owns, in its columns."""
        if self.version.query.branches:
            return table
        drain = self.version.drain
        if drain is not None and len(table):
            places = [np.asarray(table.column(f"{POSITION}.{name}")) for name in self.names]
            table = table.filter(pa.array(np.minimum.reduce(places) < drain.at))
        return table.select(self.output_schema.names)

    def _failed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the failed rows of a push that the version owns, without the positions of components."""
        found = []
        for one in rows.to_pylist():
            places = [int(value) for name, value in one["row"] if name.endswith(f".{POSITION}")]
            if self.version.drain is None or not places or min(places) < self.version.drain.at:
                found.append({**one, "row": [pair for pair in one["row"] if not pair[0].endswith(f".{POSITION}")]})
        return pa.RecordBatch.from_pylist(found, schema=FAILED)

    def settle(self) -> None:
        """Commit a prepared push. The call may be repeated."""
        if self._open is None:
            return
        self.runtime._pipeline.settle(self._open)
        self.begun = True
        self._open = None

    def roll_back(self) -> None:
        """Undo a prepared push that was not committed. The call may be repeated."""
        self.runtime._pipeline.roll_back()
        self._open = None
        if not self.begun and self.runtime.position:
            self.runtime = self._made(self.runtime.plan)

    def resume(self, runtime: Runtime, begun: bool) -> None:
        """Continue with a runtime that was restored."""
        self.runtime, self.begun = runtime, begun

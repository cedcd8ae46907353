"""The join of one version alone: a query with branches, one over tables, one whose results are a changelog, and others.

Other versions take their results from a join that many share, by the positions of components. Here that says too
little: a row without a partner depends on rows that it does not contain, and a result that ends has two places. So such
a version has a `Runtime` of its own, which sees the arrivals between its start and its stop:

    fresh start at s      the runtime begins with the rows that its tables have, and with versions that a later row may
                          get, and takes the arrivals from s on
    warm start at s       it begins with the rows of streams that were kept, too: append output as if they had been
                          pushed (`Runtime.load`); a changelog gives the rows of its answer at s first
    immediate stop at e   it takes the arrivals before e
    handover at e         both; of two changelogs, the new one begins with the difference between the two answers at e
    drain stop at e       of an inner join of streams: its changelog, without results whose components all came at e or
                          later

Each push of the engine is one of the runtime, cut at these bounds, with the watermark of the engine after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.expressions.computed import ComputedExpression
from eddy.filters.adaptive import AdaptiveFilter
from eddy.log import endless_told
from eddy.pipeline.pipeline import Pipeline
from eddy.pipeline.push import prepare
from eddy.pipeline.records import Prepared
from eddy.queries.alone import Output, changes_alone, check_kept, is_plain, keeps_look_ups, noun_of, reads_results
from eddy.queries.bound import EngineBound
from eddy.queries.combinations import VersionRows
from eddy.queries.handover import difference_of
from eddy.queries.kept import KeptRows, Need
from eddy.queries.sources import POSITION, EnginePush, Sources
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.results.failed_rows import FAILED
from eddy.runtime import Runtime
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import Stream
from stairs.errors import InputError
from stairs.graph import FOREVER, Window, WindowKind

_NOWHERE = np.zeros(0, np.int64)


class LoneJoin:
    """The join of one version.

    version   the version whose results the join finds
    output    the output mode
    runtime   the runtime of the join, empty before the start of the version
    seconds   CPU seconds of pushes

    Raises InputError for an impossible warm start, and the errors of `Runtime`.
    """

    def __init__(
        self, version: Version, output: Output, sources: Sources, options: Mapping[str, Any], bound: EngineBound
    ) -> None:
        query = version.query
        self._bound = bound
        self.version, self.output = version, output
        self.seconds = 0.0
        self._sources, self._options = sources, options
        self.names = list(dict.fromkeys(_inputs(query)))
        self._index = [sources.index(name) for name in self.names]
        self._tables = [name for name in self.names if sources.index(name) in sources.tables]
        self._keyed = [name for name in self.names if sources.index(name) in sources.keyed]
        if version.warm:
            self._check_warm()
        self._counting = [
            AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter") if stream.conditions else None
            for stream in query.streams
        ]
        self._places = output == "changelog" and is_plain(query)
        """Whether its rows have the positions of components, by which a drain ends."""
        self.query = self._placed(query) if self._places else _served(query, sources)
        self.runtime = self._made()
        self.begun = False
        """Whether the runtime has had arrivals."""
        self._tried = False
        """Whether it has had them in a push that may not happen."""
        self._open: Prepared | None = None
        """The prepared push; None between pushes."""

    def _check_warm(self) -> None:
        query, what = self.version.query, "a warm start"
        if self.output == "changelog":
            if "handover" not in changes_alone(query, self.output):
                known = reads_results(query) or keeps_look_ups(query, self.output)
                noun = noun_of(query, self.output) if known else "results that stay (expiry='final')"
                raise InputError(f"{what} has no meaning for {noun}; leave warm out")
            check_kept(what, query, self._sources)
            return
        if self.output == "upsert":
            raise InputError(f"{what} has no meaning for rows by key, which are all rows that change; leave warm out")
        final = query.aggregation is not None or query.top is not None or reads_results(query)
        if final or keeps_look_ups(query, self.output):
            raise InputError(
                f"{what} has no meaning for {noun_of(query, self.output)}, which come from rows before the start as"
                " well; leave warm out"
            )
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            if window.kind == WindowKind.ROWS:
                raise InputError(
                    f"{noun_of(query, self.output)} cannot start warm with a Rows window (stream {stream.name!r}):"
                    " which rows had a partner, or are given, depends on all earlier rows; start it without warm=True"
                )

    def _placed(self, query: Query) -> Query:
        """Return an inner join with the positions of components among its columns."""
        placed = [
            replace(
                stream,
                schema=stream.schema.append(pa.field(POSITION, pa.int64())),
                window=None if query.unretracted else stream.window,
            )
            for stream in query.streams
        ]
        select = {
            name: output.expression if isinstance(output, ComputedExpression) else ".".join(output)
            for name, output in query.outputs.items()
        }
        places = {f"{POSITION}.{name}": f"{name}.{POSITION}" for name in self.names}
        where = list(query.conditions) or None
        return Query(placed, query.on, select={**select, **places}, where=where, expiry=query.expiry)

    def _made(self, plan: str | None = None) -> Runtime:
        with endless_told():
            return self._bound.cover(
                Runtime(self.query, plan, output=self.output, ordered=self.version.ordered, **self._options)
            )

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of its rows."""
        schema = self.runtime.output_schema
        return (
            pa.schema([column for column in schema if not column.name.startswith(POSITION)]) if self._places else schema
        )

    # Rows that are kept

    def needs(self, name: str) -> list[Need]:
        """Return which rows of a stream the engine must keep, so that another version can start warm.

        A changelog needs those that the engine keeps in any case; and of windows of rows those in them, by which a
        drain finds its end.
        """
        if name not in self.names or name in self._keyed:
            return []
        query = self.query
        if self._places:
            k = self.names.index(name)
            window = query.graph.windows[k]
            return [Need(window, self._counting[k])] if window.kind == WindowKind.ROWS else []
        if self.output != "append" or query.aggregation is not None or query.top is not None or reads_results(query):
            return []
        k = query.index(name)
        span = query.spans[k]
        return [Need(query.graph.windows[k] if span is None else Window(WindowKind.RANGE, span))]

    # Pushes

    def prepare(self, push: EnginePush, kept: Sequence[KeptRows], others: Mapping[Version, LoneJoin]) -> VersionRows:
        """Compute the rows of a push that has not happened yet; the caller then calls `settle` or `roll_back`.

        kept    per stream of the engine the rows before the push
        others  the joins of all versions, those that this one replaces among them
        """
        self._open = None
        with self._bound.at_work(lambda: self.runtime._pipeline.nbytes):
            return self._prepared(push, kept, others)

    def _prepared(self, push: EnginePush, kept: Sequence[KeptRows], others: Mapping[Version, LoneJoin]) -> VersionRows:
        began, version = thread_time(), self.version
        if version.start is None or version.start > push.end or self._is_over(push):
            return VersionRows(self.output_schema.empty_table(), np.zeros(0, np.int64))
        start = max(version.start, push.first)
        stop = push.end if version.stop is None else min(version.stop, push.end)
        first, failed = list[pa.Table](), list[pa.RecordBatch]()
        if not self.begun:
            self._tried = True
            first, failed = self._begin(push, start, kept, others)
        pipeline = self.runtime._pipeline
        batches = {name: rows for name, rows in self._rows(push, start, stop).items() if len(rows)}
        prepared, more = _without_failed(
            pipeline,
            prepare(
                pipeline,
                batches,
                None if pipeline.derived else self._order(push, start, stop),
                self._watermark(push, stop),
                ends=push.ends,
                atomic=push.atomic and bool(self._keyed) and self.output != "append" and not pipeline.derived,
            ),
        )
        self._open = prepared
        table = pa.concat_tables([*first, self._owned(prepared.results)])
        self.seconds += thread_time() - began
        return VersionRows(table, np.full(table.num_rows, start), tuple(map(self._failed, [*failed, *more])))

    def _is_over(self, push: EnginePush) -> bool:
        """Return whether the version takes nothing of a push, after one in which it began."""
        start, stop = self.version.start, self.version.stop
        assert start is not None
        if not self.begun:
            # It begins in the first push that ends at its start or later, even if that has no arrivals for it.
            return stop is not None and stop <= start
        return (push.end == push.first and not (push.rises or push.ends)) or (stop is not None and stop <= push.first)

    def _order(self, push: EnginePush, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Return the order of the arrivals from one position of a push to another, by the streams of the query."""
        number = np.full(256, 255, np.uint8)
        number[self._index] = np.arange(len(self._index))
        order = number[push.order[start - push.first : stop - push.first]]
        return np.ascontiguousarray(order[order < 255])

    def _rows(self, push: EnginePush, start: int, stop: int) -> dict[str, pa.RecordBatch]:
        """Return the rows of a push from one position to another."""
        rows = {}
        for name, i in zip(self.names, self._index, strict=True):
            batch = push.batches[i]
            if batch is not None:
                first, end = np.searchsorted(push.places[i], [start, stop]).tolist()
                rows[name] = batch.slice(first, end - first)
        return rows

    def _watermark(self, push: EnginePush, position: int) -> int | None:
        """Return the watermark of the engine before a position of a push; None if the runtime has no event time."""
        if not self.runtime._pipeline.has_clock:
            return None
        return push.watermark_at(position)

    def _watermark_before(self, push: EnginePush, position: int) -> int | None:
        """Return the watermark of the engine before the version begins or ends; a push without rows may raise it."""
        return push.watermark_before(position) if self.runtime._pipeline.has_clock else None

    # The start

    def _begin(
        self, push: EnginePush, start: int, kept: Sequence[KeptRows], others: Mapping[Version, LoneJoin]
    ) -> tuple[list[pa.Table], list[pa.RecordBatch]]:
        """Bring the runtime to the start; return the rows that it gives first, and failed ones."""
        warm = self.version.warm
        rows = self._before(push, start, kept, self.names if warm else self._keyed, 0)
        if warm and self.output == "append":
            if rows:
                self.runtime.load(rows, watermark=self._watermark_before(push, start))
            return [], []
        replaced = [*_begun(self.version, others)]
        if not (rows or replaced):
            return [], []
        answer, failed = self._replayed(self.runtime, rows, kept, self._watermark_before(push, start))
        if warm:
            answer = difference_of([other.answer(push, start, kept) for other in replaced], answer)
        return [answer], failed

    @property
    def has_begun(self) -> bool:
        """Whether it has given rows, those of an open push included."""
        return self.begun or self._open is not None

    def answer(self, push: EnginePush, position: int, kept: Sequence[KeptRows]) -> pa.Table:
        """Return the rows of its answer at a position of a push, computed anew. O(rows in its windows)."""
        # A warm start saw all rows that were kept, also those from before the one from which every stream has all.
        since = 0 if self.version.warm else self.version.complete_from
        rows = self._before(push, position, kept, self.names, since)
        return self._replayed(self._made(self.runtime.plan), rows, kept, self._watermark_before(push, position))[0]

    def _replayed(
        self, runtime: Runtime, rows: Mapping[str, pa.Table], kept: Sequence[KeptRows], watermark: int | None
    ) -> tuple[pa.Table, list[pa.RecordBatch]]:
        """Push earlier rows into an empty runtime; return the rows that it gives, and failed ones.

        The rows arrive as they did, because a row that came after a younger one stays in its window as long as that
        one: in the order of positions, or, where the order within a push does not count, push by push. The watermark
        rises with the last of them.
        """
        pipeline = runtime._pipeline
        tables, failed = list[pa.Table](), list[pa.RecordBatch]()
        parts = self._by_push(rows, kept) if pipeline.derived else [dict(rows)]
        for n, part in enumerate(parts):
            mark = watermark if watermark is None or n + 1 == len(parts) else -FOREVER
            order = None if pipeline.derived else self._by_position(part)
            prepared, more = _without_failed(pipeline, prepare(pipeline, part, order, mark, whole=True))
            pipeline.settle(prepared)
            tables.append(self._owned(prepared.results))
            failed += more
        return pa.concat_tables(tables), failed

    def _by_position(self, rows: Mapping[str, pa.Table]) -> npt.NDArray[np.uint8]:
        """Return the order of rows of several inputs by their positions."""
        places = [rows[name].column(POSITION).to_numpy() if name in rows else _NOWHERE for name in self.names]
        number = np.repeat(np.arange(len(places), dtype=np.uint8), list(map(len, places)))
        return number[np.argsort(np.concatenate(places), kind="stable")]

    def _by_push(self, rows: Mapping[str, pa.Table], kept: Sequence[KeptRows]) -> list[dict[str, pa.Table]]:
        """Return rows push by push, those of tables first."""
        streams = {name: table for name, table in rows.items() if name not in self._keyed}
        bounds = sorted({end for name in streams for end in kept[self._sources.index(name)].ends})
        parts = [{name: table for name, table in rows.items() if name in self._keyed}]
        first = 0
        for bound in [*bounds, FOREVER]:
            part = {}
            for name, stream_rows in streams.items():
                begin, end = np.searchsorted(stream_rows.column(POSITION).to_numpy(), [first, bound]).tolist()
                if begin < end:
                    part[name] = stream_rows.slice(begin, end - begin)
            if part:
                parts.append(part)
            first = bound
        return parts

    def _before(
        self, push: EnginePush, position: int, kept: Sequence[KeptRows], names: Sequence[str], since: int
    ) -> dict[str, pa.Table]:
        """Return the rows of some inputs that arrived before a position of a push; of streams those from `since` on."""
        tables = {}
        now = self._rows(push, push.first, position)
        for name in names:
            batches = [batch for batch in (kept[self._sources.index(name)].rows(), now.get(name)) if batch is not None]
            if name not in self._keyed:
                batches = [batch.filter(pc.greater_equal(batch.column(POSITION), since)) for batch in batches]
            if any(map(len, batches)):
                tables[name] = pa.Table.from_batches(batches)
        return tables

    def _owned(self, table: pa.Table) -> pa.Table:
        """Return the rows of a push that the version owns, in its columns."""
        if not self._places:
            return table
        drain = self.version.drain
        if drain is not None and len(table):
            places = [np.asarray(table.column(f"{POSITION}.{name}")) for name in self.names]
            table = table.filter(pa.array(np.minimum.reduce(places) < drain.at))
        return table.select(self.output_schema.names)

    def _failed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the failed rows of a push that the version owns, without the positions of components."""
        failures = []
        for failure in rows.to_pylist():
            places = [int(value) for name, value in failure["row"] if name.endswith(f".{POSITION}")]
            if self.version.drain is None or not places or min(places) < self.version.drain.at:
                failures.append(
                    {**failure, "row": [pair for pair in failure["row"] if not pair[0].endswith(f".{POSITION}")]}
                )
        return pa.RecordBatch.from_pylist(failures, schema=FAILED)

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
        self.runtime._pipeline.give_room_back()
        self._open = None
        if not self.begun and self._tried:
            self.runtime = self._made(self.runtime.plan)
            self._tried = False

    def resume(self, runtime: Runtime, begun: bool) -> None:
        """Continue with a runtime that was restored."""
        self.runtime, self.begun = self._bound.cover(runtime), begun


def _begun(version: Version, others: Mapping[Version, LoneJoin]) -> Iterator[LoneJoin]:
    """Yield the joins that have given the rows which a handover to a version takes back.

    One that was to begin at the position of the handover has given nothing: its own handover is still to be made.
    """
    for old in version.replaces:
        if old in others and others[old].has_begun:
            yield others[old]
        else:
            yield from _begun(old, others)


def _inputs(query: Query) -> Iterator[str]:
    """Yield the names of the streams and tables that a query reads, those of queries in it included."""
    for stream in query.streams:
        if isinstance(stream.source, Query):
            yield from _inputs(stream.source)
        else:
            yield stream.name


def _served(query: Query, sources: Sources) -> Query:
    """Return a query as it reads the arrivals of an engine: with its lateness, and changes that it has read."""
    inputs: dict[str, Stream] = {}
    for stream in query.streams:
        if isinstance(stream.source, Query):
            inputs[stream.name] = stream.with_source(_served(stream.source, sources))
        elif isinstance(stream, KeyedInput):
            inputs[stream.name] = sources.read_again(stream)
    served = query.with_inputs(inputs) if inputs else copy(query)
    if query.graph.timed:
        rule, known = sources.clock_rule, sources.graph.names
        lateness = [
            rule.lateness[known.index(input_stream.name)] if input_stream.name in known else 0
            for input_stream in query.streams
        ]
        served = served.with_clock(rule._replace(lateness=tuple(lateness)))
    served.failed = "keep"  # the query of the engine counts failed rows, stores them or passes them on
    return served


def _without_failed(pipeline: Pipeline, prepared: Prepared) -> tuple[Prepared, list[pa.RecordBatch]]:
    """Return a prepared push without its failed rows, and these rows: the query of the engine has them."""
    commit = prepared.commit
    failed = [failed_rows.rows for failed_rows in commit.new_failed.values() if failed_rows.rows is not None]
    derived = {}
    for name, below in commit.derived.items():
        derived[name], more = _without_failed(pipeline.derived[name], below)
        failed += more
    commit = commit._replace(failed=pipeline.failed.rows, new_failed={}, derived=derived)
    return prepared._replace(commit=commit), failed

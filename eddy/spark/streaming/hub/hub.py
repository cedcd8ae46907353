"""The public face of a hub, and the handles of its queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pyarrow as pa

from eddy.log import refusals
from eddy.queries.changes import CHANGES, How
from eddy.queries.lineage import State, Stop
from eddy.query.query import Query
from eddy.show.html import table
from eddy.spark.columns import check_frame
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import HubKeywords, options_of, takes_options
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.streaming.driver.prepare import prepare
from eddy.spark.streaming.driver.sink_key import check_sink_key
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.driver.writer import checked_trigger
from eddy.spark.streaming.hub.batches import HubBatches
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.hub.elements import ChangeElement, StartElement, StopElement, When
from eddy.spark.streaming.hub.queries import HubQueries
from eddy.spark.streaming.hub.query_sinks import QuerySinks
from eddy.spark.streaming.hub.saved import OUTPUTS
from eddy.spark.streaming.hub.sources import HubStreams, Source
from eddy.spark.streaming.sinks import ParquetSink, Sink
from eddy.streams.numbers import whole
from eddy.uncopied import Uncopied
from stairs.errors import InputError
from stairs.graph import FOREVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Position(TypedDict, total=False):
    """Where a control element takes effect.

    at       number of the micro-batch with which it takes effect; None = the next one
    at_time  event time, a value of the time columns' type: with the first micro-batch before which the watermark has
             reached this time
    """

    at: int | None
    at_time: object


KINDS = tuple(name for name, kind in CHANGES.items() if not kind.holds)
"""The kinds of change of a hub: all kinds that do not hold results back."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Hub(Uncopied):
    """Streams, and queries over them that start, change and stop while one streaming query of Spark runs.

        sources = [Source(orders, order_frame, key="user"), Source(payments, payment_frame, key="user")]
        hub = Hub(spark, sources, "state")
        large = hub.start("large", large_orders_paid, "results/large")
        running = hub.run()
        every = hub.start("every", all_orders_paid, "results/every")
        large.change(larger_orders_paid, how="handover")
        every.stop("drain")

    sources     the streams; see `Source`
    checkpoint  directory of the state, as in `eddy.spark.join`. Its log has each row once, for any number of queries

    The options are those of `eddy.spark.join` without plan, max_bytes, placement, order_by and change.

    Queries have streams of the same names and columns. Each query has its own windows (`Range` or `Unbounded`), filters
    and selected columns, perhaps branches, tables, as-of joins, aggregates or `top`, and no lateness. The equalities of
    a query make the keys of its streams equal. Inner joins over the same streams with the same predicates share one
    join.

    Positions are numbers of micro-batches. An element (a start, a change, a stop) takes effect with the next
    micro-batch; its manifest names the versions in force, so a replay after a crash uses the same versions. An element
    that no manifest names is lost with the driver.

    A restart makes a hub on the same checkpoint, starts the same queries with their sinks, and runs the hub. The start
    of a query that differs is a change, and needs `how`.

    Raises SparkJoinError for arguments that do not fit.
    """

    _no_copy = "a Hub: it belongs to the driver; another start from its checkpoint resumes it"

    @takes_options(HubKeywords)
    @refusals
    def __init__(
        self, spark: SparkSession, sources: Sequence[Source], checkpoint: str | Path, **options: Unpack[HubKeywords]
    ) -> None:
        self._streams = HubStreams(sources)
        for source in sources:
            check_frame(f"stream {source.stream.name!r}", source.frame)
            if not source.frame.isStreaming:
                raise SparkJoinError(
                    f"stream {source.stream.name!r}: its DataFrame is a batch one; use spark.readStream"
                )
        given = options_of({**options, "checkpoint": checkpoint, "placement": "grid"})
        # A branch has rows with null keys, which have no partner.
        self._prepared = prepare(self._streams.base, self._streams.frames, *given, null_keys=True)
        self._sinks = QuerySinks()
        self._queries = HubQueries(self._streams, self._sinks)
        self._running: StreamingJoinQuery | None = None
        self._begun = False

    @refusals
    def start(
        self,
        name: str,
        query: Query,
        sink: Sink | str | Path,
        *,
        warm: bool = False,
        how: How | None = None,
        earlier: Sequence[Query] = (),
        output: JoinOutput = "append",
        **position: Unpack[Position],
    ) -> HubQuery:
        """Start a query under a name, or resume the query of this name in the checkpoint.

        name     letters, digits, "-" and "_"
        sink     of this query alone: an instance of a class in `eddy.spark.streaming.sinks`, or of your own subclass of
                 `eddy.spark.Sink`; a path stands for a directory of Parquet files
        warm     False = a fresh start: results have only rows from the first micro-batch of the query on. True = a warm
                 start, with all rows that the log keeps; `HubQuery.complete_from` is the time from which these are all
        how      for a restart: the kind of change if the query differs from that of the checkpoint
        earlier  for a restart: queries of earlier versions that still drain
        output   "append", or "changelog": results also end, when a row leaves its window; see `eddy.spark.join`. Groups
                 without a group_window, and first rows, are a changelog in any case
        position at=…, the number of the micro-batch with which the start takes effect, by default the next one; or
                 at_time=…, an event time: the start takes effect with the first micro-batch before which the watermark
                 has reached it. Not for a restart that replaces the query of the checkpoint at once

        Raises InputError for the name of a query that runs, and for a micro-batch that has begun; QueryError for a
        query that does not fit the streams; SparkJoinError for a sink that cannot be used.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"the name of a query of a hub has letters, digits, '-' and '_', not {name!r}")
        sink = ParquetSink(sink) if isinstance(sink, str | Path) else sink
        if not isinstance(sink, Sink):
            raise SparkJoinError(f"query {name!r}: sink={sink!r}; pass a path, or an instance of eddy.spark.Sink")
        if how is not None:
            _check_kind(how)
        self._require_not_ended()
        if output not in OUTPUTS:
            raise InputError(f"query {name!r}: output={output!r}: pass 'append' or 'changelog'")
        element = StartElement(name, self._when(**position), query, sink, warm, how, tuple(earlier), output=output)
        with self._queries.lock:
            self._queries.check(element)
            check_sink_key(sink, query)
            rows = HubJoin(name, query, output).rows
            self._sinks.make_ready(name, sink, rows, self._queries.sinks_to_start())
            if not self._begun and name not in self._queries.names():
                self._sinks.put(name, sink, rows)
            self._queries.give(element)
        return HubQuery(self, name)

    @refusals
    def drop(self, name: str | None = None) -> None:
        """Remove a query of the checkpoint that is not started again, with its results that are not published.

        name   None = all queries that are not started again

        Call `drop` before `run`; after `run` it raises SparkJoinError.
        """
        if self._begun:
            raise SparkJoinError(f"query {name!r}: the hub runs; stop the query instead")
        if name is None:
            self._queries.drops_others = True
        else:
            self._sinks.dropped.add(name)

    @refusals
    def run(self, queryName: str | None = None, **trigger: Any) -> StreamingJoinQuery:
        """Run the hub as one streaming query; resume it if the checkpoint holds a state.

        queryName  as in Spark
        trigger    as in `writeStream.trigger`: processingTime="5 seconds", or availableNow=True

        Returns the handle of a streaming join, with the metrics of all queries together. Raises SparkJoinError if the
        checkpoint has queries that were not started again, or that differ and have no kind of change, and
        StreamingStateError for a checkpoint that is damaged, belongs to another job, or is in use by another driver.
        """
        if self._begun:
            raise SparkJoinError("this hub has run; make another Hub on its checkpoint")
        make = partial(HubBatches, queries=self._queries)
        self._running = self._prepared.begin(self._sinks, make, queryName, checked_trigger(trigger))
        self._begun = True
        return self._running

    @property
    def queries(self) -> dict[str, HubQuery]:
        """The queries by name, the newest of each name, since this start of the hub."""
        return {name: HubQuery(self, name) for name in self._queries.names()}

    def __getitem__(self, name: str) -> HubQuery:
        queries = self.queries
        if name not in queries:
            raise InputError(f"there is no query {name!r}; there are {', '.join(queries) or 'none'}")
        return queries[name]

    def history(self) -> pa.Table:
        """Return the elements that took effect since this start of the hub, and the ends of drains.

        Columns: batch, the first micro-batch with the effect; query; version; event.
        """
        return self._queries.history()

    def __repr__(self) -> str:
        running = self._running
        state = "not started" if running is None else "running" if running.isActive else "ended"
        lines = [f"Hub of {', '.join(self._streams.keys)}, {state}"]
        lines += [
            f"  {handle.name}: {handle.state}, {handle.results:,} results, {handle.query!r}"
            for handle in self.queries.values()
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (handle.name, handle.state, f"{handle.results:,}", repr(handle.query)) for handle in self.queries.values()
        ]
        return f"<div>{table(('query', 'state', 'results', 'text'), rows)}</div>"

    # Methods for the handles

    def _when(self, at: int | None = None, at_time: object = None) -> When:
        batch = None if at is None else whole(at)
        if at is not None and (batch is None or batch < 0):
            raise InputError(f"at={at!r} is not the number of a micro-batch")
        if at is not None and at_time is not None:
            raise InputError("at and at_time exclude each other: leave one out")
        return When(batch, None if at_time is None else self._streams.ticks_of(at_time))

    def _require_not_ended(self) -> None:
        if self._running is not None and not self._running.isActive:
            raise SparkJoinError("the hub has ended; make another Hub on its checkpoint")

    def _give(self, element: ChangeElement | StopElement) -> None:
        self._require_not_ended()
        to_start = dict(self._queries.sinks_to_start())
        sink = to_start.get(element.name) or self._sinks.given(element.name)
        if sink is not None and isinstance(element, ChangeElement):
            check_sink_key(sink, element.query)
        self._queries.give(element)


class HubQuery(Uncopied):
    """A query of a hub; `Hub.start` returns it."""

    _no_copy = "a HubQuery: it belongs to its Hub, from which hub[name] returns it"

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self.name = name

    def __repr__(self) -> str:
        return f"HubQuery({self.name!r}, {self.state})"

    @property
    def state(self) -> State:
        """The state of the query: "scheduled", "running", "draining", "changing" or "stopped"."""
        with self._hub._queries.lock:
            lineage = self._hub._queries.lineage(self.name)
            if lineage is None or (not lineage.live and self.waiting):
                return "scheduled"
            return lineage.state

    @property
    def query(self) -> Query | None:
        """The query of the newest version that has begun, None before the start."""
        lineage = self._hub._queries.lineage(self.name)
        return None if lineage is None else lineage.query

    @property
    def waiting(self) -> int:
        """The number of elements that have not taken effect."""
        return self._hub._queries.waiting(self.name)

    @property
    def complete_from(self) -> int | None:
        """The event time, in ticks, from which the newest version has all rows; None if the log lacks no row.

        Only a warm start or a handover uses rows from before the start.
        """
        lineage = self._hub._queries.lineage(self.name)
        if lineage is None or lineage.complete_from == -FOREVER:
            return None
        newest = lineage.versions[-1]
        return lineage.complete_from if newest.warm or newest.query.aggregation is not None else None

    @property
    def results(self) -> int:
        """The number of results since this start of the hub."""
        return self._hub._queries.n_results(self.name)

    @refusals
    def stop(self, how: Stop = "immediate", **position: Unpack[Position]) -> None:
        """Stop the query; at, at_time as in `Hub.start`.

        how   "immediate": no result with a component of that micro-batch or a later one. "drain": exactly the results
              with a component before that micro-batch; the query stops when the watermark has passed its windows

        Raises InputError for a query that has stopped, and for a drain that can never end.
        """
        if how not in ("immediate", "drain"):
            raise InputError(f"stop: how is 'immediate' or 'drain', not {how!r}")
        self._hub._give(StopElement(self.name, self._hub._when(**position), how))

    @refusals
    def change(self, query: Query, how: How = "handover", **position: Unpack[Position]) -> None:
        """Replace the query by another one whose results have the same columns; at, at_time as in `Hub.start`.

        how   a kind of `eddy.queries.changes` except "drain-query", which holds results back to keep their order: the
              results of a micro-batch have no order

        A query that has stopped by then starts there again, fresh, into its sink. Raises InputError for another kind,
        and a drain that can never end; QueryError for a query that does not fit the streams, or has other result
        columns.
        """
        _check_kind(how)
        self._hub._give(ChangeElement(self.name, self._hub._when(**position), query, how))

    def restart(self, **position: Unpack[Position]) -> None:
        """Start the query afresh: from then on, its results are those of rows of that micro-batch or later ones.

        As `change` by the same query with how="immediate". A query that has stopped starts again.
        """
        self.change(self._hub._queries.newest_query(self.name), "immediate", **position)


def _check_kind(how: str) -> None:
    if how not in KINDS:
        raise InputError(f"change: how is one of {', '.join(map(repr, KINDS))}, not {how!r}")

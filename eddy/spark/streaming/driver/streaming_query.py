"""The handle of a running streaming join: Spark's `StreamingQuery` with metrics and controls of the join."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.log import LOG
from eddy.show.html import sheet_html
from eddy.show.server import PATHS, PORT, Server
from eddy.spark.errors import SparkJoinError, error_of_worker
from eddy.spark.streaming.driver.progress import completed
from eddy.spark.streaming.driver.sheet import join_sheet
from eddy.spark.streaming.sinks.base import read_files
from eddy.spark.streaming.worker.failed_rows import FAILED_OF_QUERY
from eddy.uncopied import Uncopied
from stairs.errors import EddyError, InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from eddy.routing.policies import Policy, PolicyName
    from eddy.spark.hops.placing import Placement
    from eddy.spark.streaming.driver.micro_batch import MicroBatches
    from eddy.spark.streaming.driver.move_records import How
    from eddy.spark.streaming.driver.partition_map import PartitionMap


class StreamingJoinQuery(Uncopied):
    """A running join; `JoinWriter.start` returns it.

        running = joined.writeStream.format("parquet").start("results")
        running.awaitTermination(60)
        print(running.batches().to_pandas())

    `batches()` and `groups()` return all metrics. The progress that Spark gives to a `StreamingQueryListener` describes
    the rows that Spark carries (`observedMetrics["eddy"]`), and has no figures of the join and of files that the
    workers read. `lastProgress` and `recentProgress` of this class are complete.
    """

    _no_copy = "a StreamingJoinQuery: it belongs to the driver; another start from its checkpoint resumes it"

    def __init__(self, spark: SparkSession, inner: StreamingQuery, batches: MicroBatches, stops: bool = False) -> None:
        self._spark = spark
        self._inner = inner
        self._batches = batches
        batches.stopping.watch(inner)
        # A query may also end by itself or through Spark (`spark.streams`), without a call of a method of this class.
        threading.Thread(target=self._close_at_end, name="eddy end of query", daemon=True).start()
        if stops:
            # Spark before 4.2 would run one micro-batch, without limits (`stream_reader.py`).
            threading.Thread(target=self._stop_when_done, name="eddy available now", daemon=True).start()

    def _stop_when_done(self) -> None:
        with contextlib.suppress(Exception):  # `_close_at_end` logs an error of the query
            self._inner.processAllAvailable()
        try:
            if self._inner.isActive:
                self.stop()
        except Exception as problem:  # no caller could catch it
            LOG.error("%s has read what was there, and cannot be stopped: %s", self._batches.title, problem)

    def _close_at_end(self) -> None:
        try:
            self._inner.awaitTermination()
            LOG.info("%s has ended", self._batches.title)
        except Exception as problem:  # `exception()` also returns this error; the session may have ended
            if self._batches.problem is None:  # else the micro-batch has logged the error
                LOG.error("%s has failed: %s", self._batches.title, problem)
        self._batches.close()

    # Methods of Spark's StreamingQuery

    @property
    def inner(self) -> StreamingQuery:
        """Spark's query, for all other methods."""
        return self._inner

    @property
    def id(self) -> str:
        """The id, which stays the same across restarts."""
        return self._inner.id

    @property
    def runId(self) -> str:
        """The id of this start."""
        return self._inner.runId

    @property
    def name(self) -> str | None:
        """The name given with `queryName`."""
        return self._inner.name

    @property
    def isActive(self) -> bool:
        """Whether the query runs."""
        active = self._inner.isActive
        if not active:
            self._batches.close()
        return active

    @property
    def status(self) -> dict[str, Any]:
        """The current status, as in Spark."""
        return dict(self._inner.status)

    def exception(self) -> Exception | None:
        """Return the error that ended the query, None if the query runs or was stopped.

        Returns an error of this library unwrapped; `inner.exception()` is Spark's error with its whole trace.
        """
        problem = self._inner.exception()
        if problem is None:
            return None
        self._batches.close()
        return self._batches.problem or error_of_worker(problem) or problem

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends, at most `timeout` seconds; raise its `exception()` if it failed."""
        with self._plainly():
            # Spark also accepts fractions of a second, unlike its annotation.
            return self._inner.awaitTermination() if timeout is None else self._inner.awaitTermination(timeout)  # type: ignore[arg-type]

    def processAllAvailable(self) -> None:
        """Wait until all available rows are joined and published; raise `exception()` if the query failed.

        For tests.
        """
        with self._plainly():
            self._inner.processAllAvailable()

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """Raise an error of this library without Spark's trace around it."""
        try:
            yield
        except Exception:
            problem = self.exception()
            if not isinstance(problem, EddyError):
                raise
            raise problem.with_traceback(None) from problem.__cause__
        finally:
            if not self._inner.isActive:
                self._batches.close()

    def stop(self) -> None:
        """Stop the query. A running micro-batch is abandoned, and the next start replays it.

        Afterwards, as after any other end, the checkpoint is free for another driver.
        """
        LOG.info("%s is stopping on request", self._batches.title)
        try:
            self._batches.stopping.ask()
        finally:
            self._inner.stop()
            self._batches.close()

    def totals(self) -> dict[str, float]:
        """Return the number of micro-batches of this start as "batches", and the sums of the columns of `batches()`."""
        return self._batches.metrics.totals()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Spark's progress of the newest micro-batch, completed by the join (see `recentProgress`).

        For a progress without a micro-batch, "eddy" holds the newest row.
        """
        progress = self._inner.lastProgress
        if progress is None:
            return None
        extended, metrics = completed(progress, self._batches.query, self._batches.metrics), self._batches.metrics
        return {**extended, "eddy": extended["eddy"] or metrics.row()}

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Spark's progress of the newest micro-batches, each completed by the join.

        "eddy" is its row of `batches()`, or None. `numInputRows` counts rows that the workers read, too;
        `stateOperators` has the state of the join, with rows that the log keeps and bytes of the engines that ran;
        `eventTime` has the greatest event time and the watermark, in ticks; `observedMetrics["eddy"]` has the rows and
        the greatest event time of each stream.
        """
        return [
            completed(progress, self._batches.query, self._batches.metrics) for progress in self._inner.recentProgress
        ]

    # Of the join

    def explain(self) -> str:
        """Return a text on how the join runs: key groups, tasks, transport, watermark, plans and memory of key groups.

        The text describes the state after the newest batch. `inner.explain()` prints Spark's plan, which does not
        contain the join.
        """
        return self._batches.explain()

    def operators(self) -> dict[int, dict[str, list[str]]]:
        """Return the operator set of each task that has key groups, as text, by place.

        In one round the only place is the grid of key groups. In hops there is a place for each attribute class by
        whose keys rows are distributed over the nodes. All tasks, or nodes, have the same operators on their parts of
        the windows. Raises SparkJoinError for a query with branches or comparisons, whose steps have no places.
        """
        return self._batches.operators()

    def batches(self) -> pa.Table:
        """Return the metrics of the newest 1000 micro-batches since the start, one row each, oldest first.

        Columns: batch, rows, late, results, log_bytes; placement ("grid" or "hops") and shipped_bytes (of rows and
        intermediate tuples that tasks sent to each other); groups (key groups or nodes that ran), live, mapped and
        loaded (those of them whose engine or windows were in memory, in a file of the host, or loaded from the log),
        moved (to another partition), split (key groups that were split), fragments (into which key groups with a hot
        key are divided), hot_keys (key groups with most of their load from one key, which are not in fragments),
        transitions (changes of plans and stored states), state_rows (that the log keeps for all groups), state_bytes
        (of the engines of these groups); memory_bytes (of all engines in memory on the fullest host, after the batch),
        memory_peak_bytes (the most during it), spilled_bytes (of engines in files), trims, spills and drops (evictions
        by level); slowest_group and slowest_share (its time over the mean time); watermark (of the engines, in ticks of
        the query's common time type, null while unknown); log_seconds, join_seconds, commit_seconds, publish_seconds. A
        replayed batch that was only published has no row.
        """
        return self._batches.metrics.batches()

    def groups(self) -> pa.Table:
        """Return the metrics of each key group that ran in the newest 1000 micro-batches, oldest first.

        A micro-batch in hops has a row for each node instead. The column partition has the number of the node; group,
        late, plan, reason and key_share are null, because no node gets late rows.

        Columns: batch, group, partition; source of its engine ("live", kept by a worker; "mapped", from a file of the
        host to which it was spilled; "loaded", from the log; "new"); rows (without late rows), late, results,
        state_bytes; plan after the batch; transitions, and the reason of the last one, null without any; ready_seconds
        (to get the engine), join_seconds; received_bytes (of the file or the log from which the engine came), key_share
        (rows of the most frequent key over all rows, null unless the group has too much load).
        """
        return self._batches.metrics.groups()

    def serve(
        self, port: int = PORT, *, address: str = "127.0.0.1", hosts: Sequence[str] = (), every: float = 1.0
    ) -> Server:
        """Serve a live page of this join, as `eddy.serve` does for an engine; return the server.

        The page shows the newest micro-batches, the plan of each key group and why it changed, the watermark, late
        rows, the state, and the queries of a hub. `/metrics` has the figures of `serve_metrics`. The server ends with
        the join. The arguments are those of `eddy.serve`. Raises SparkJoinError if it cannot listen there, or if the
        join has ended.
        """
        return self._served(port, address, hosts, every, PATHS, "serve")

    def serve_metrics(self, port: int = PORT, address: str = "127.0.0.1") -> int:
        """Serve the figures of this join for Prometheus at http://address:port/metrics; return the port.

        The server ends with the join. Counters count from this start. Figures: the sums of `batches()` as counters
        (`eddy_rows_total`, …; `eddy_seconds_total` by step), the state of the newest micro-batch as gauges, and
        `eddy_published_timestamp_seconds`; docs/guide/production.md lists them. The label `query` is the name of the
        query, or the directory of the checkpoint.

        port     number of the port; 0 = a free port
        address  of the interface to listen on; "0.0.0.0" = all interfaces. There is no authentication

        Raises SparkJoinError if it cannot listen there, or if the join has ended.
        """
        # Another host may address this host by any name. The answer has only numbers and names, so any name is allowed.
        hosts = () if address in ("127.0.0.1", "::1", "localhost") else ("*",)
        return self._served(port, address, hosts, 1.0, ("/metrics",), "serve_metrics").port

    def _served(
        self, port: int, address: str, hosts: Sequence[str], every: float, paths: Sequence[str], call: str
    ) -> Server:
        name = self.name or self._batches.checkpoint
        try:
            server = Server(partial(join_sheet, name, self._batches), port, address, hosts, every, paths, call)
        except InputError as problem:
            raise SparkJoinError(str(problem)) from problem.__cause__
        if not self._batches.at_end(server.close):
            raise SparkJoinError(f"{call}: the join {name} has ended; call it while the join runs")
        return server

    def __repr__(self) -> str:
        sheet = join_sheet(self.name or self._batches.checkpoint, self._batches)
        batch = sheet.value("batch")
        state = "no micro-batch has run" if batch is None else f"after micro-batch {batch:.0f}"
        lines = [f"StreamingJoinQuery {sheet.name}, {'ended' if self._batches.closed else 'running'}, {state}"]
        lines.append(f"  {', '.join(f'{sheet.value(name) or 0:,.0f} {name}' for name in ('rows', 'results', 'late'))}")
        return "\n".join([*lines, *(f"  plan {drawing.plan}: {drawing.title}" for drawing in sheet.plans)])

    def _repr_html_(self) -> str:
        sheet = join_sheet(self.name or self._batches.checkpoint, self._batches)
        return sheet_html(sheet)

    def late(self, stream: str) -> DataFrame:
        """Return the late rows of a stream, of all committed batches, as a batch DataFrame.

        Includes late rows of earlier starts; late rows are never deleted. Excludes rows with a null key, which match no
        row, and rows that arrived while the query had late="count" for the stream. Columns: those that the query needs.
        Raises SparkJoinError for an unknown stream, and StreamingStateError for a file of late rows that is missing or
        damaged.
        """
        names = [query_stream.name for query_stream in self._batches.query.streams]
        if stream not in names:
            raise SparkJoinError(f"late({stream!r}): the query has no such stream; its streams are {', '.join(names)}")
        schema = self._batches.query.streams[names.index(stream)].late_schema
        return read_files(self._spark, schema, self._batches.late_files(names.index(stream)))

    def failed(self) -> DataFrame:
        """Return the rows and groups of all committed batches that failed, as a batch DataFrame.

        Columns: query (in a hub), kind, expression, reason, and row, a map from the names of columns to their values as
        text (docs/guide/semantics.md). Includes failed rows of earlier starts; failed rows are never deleted. Excludes
        rows that failed while the query had failed="count". Raises StreamingStateError for a file that is missing or
        damaged.
        """
        return read_files(self._spark, FAILED_OF_QUERY, self._batches.failed_files())

    @property
    def failed_count(self) -> int:
        """Number of failed rows since the start that were kept, without groups."""
        return self._batches.failed_count

    @property
    def late_counts(self) -> dict[str, int]:
        """Number of late rows of each stream since the start."""
        return self._batches.late_counts

    def forget_engines(self) -> None:
        """Let the workers drop their engines, so that the next micro-batch loads them from the log.

        For tests and measurements: the call costs only time.
        """
        self._batches.forget_engines()

    @property
    def compaction_problem(self) -> BaseException | None:
        """The error of the newest compaction of the log; None if it succeeded.

        The join continues with the same results and a longer log; the next micro-batch tries again.
        """
        return self._batches.compaction_problem

    @property
    def recoveries(self) -> list[str]:
        """Texts on damage of the checkpoint that was found and repaired since the start.

        `groups()` reports engines that were loaded from the log, by source "loaded".
        """
        return self._batches.recoveries

    @property
    def partition_map(self) -> PartitionMap:
        """The partition of each key group."""
        return self._batches.key_groups.partition_map

    def move(self, groups: int | Iterable[int], to: int, how: How = "state") -> None:
        """Move one or several key groups to a partition, from the next micro-batch on. Other groups do not wait.

        how  "state": the engine moves with its plan and its stored states, through a file on the host (the protocol
             MSLB of Zhu and Rundensteiner); if no worker of the host has the engine, the move is as with "jit".
             "jit": the receiver loads the rows from the log; the group keeps its plan, and its states are completed
             just in time. "parallel", two tracks until the old rows are purged (PTLB), is refused, because no row is
             in transit between two micro-batches

        If one worker serves both partitions, the engine stays in this worker. Raises SparkJoinError for a group or
        partition that does not exist, and for another `how`.
        """
        self._batches.key_groups.move(groups, to, how)

    def split(self, group: int) -> None:
        """Split a key group in two by the next bit of the hash of its keys, from the next micro-batch on.

        The half with bit 0 keeps the number of the group, the other half gets the next free number and the partition
        with the least load. Both halves are loaded from the log. In a query whose streams do not all share a key, rows
        of streams without the key are copied to both halves; the split uses the key that causes the fewest copies. A
        split is final. Raises SparkJoinError for a group that does not exist, a query without equalities, and a group
        that was split too often.
        """
        self._batches.key_groups.split(group)

    def fragment(self, group: int, deal: str | None = None, to: Iterable[int] | None = None) -> None:
        """Divide a key group in which one key has most of the rows into fragments, from the next micro-batch on.

        group  `explain()` names the groups with a hot key
        deal   the stream whose rows are dealt to the fragments, by a hash of the whole row; rows of the other streams
               go to each fragment. None = the stream that had most rows of the group in the last micro-batch
        to     a partition for each fragment after the first, which stays in the partition of the group. None = one
               further fragment, in the emptiest partition

        A fragment is a key group with its own number, and moves like any other group. All fragments are loaded from
        the log, which keeps each row once. `gather` ends the fragments. Raises SparkJoinError for a group that does not
        exist or is in fragments, and for a stream in a branch, a full outer join, and a hub, because their results need
        not have one row of the stream.
        """
        self._batches.key_groups.fragment(group, deal, to)

    def gather(self, group: int) -> None:
        """Gather the fragments of a key group in the partition of its first fragment, from the next micro-batch on.

        The group is loaded from the log. Raises SparkJoinError for a group that is not in fragments.
        """
        self._batches.key_groups.gather(group)

    def place(self, placement: Placement) -> None:
        """Change the placement of the join from the next micro-batch on; see `placement` of `eddy.spark.join`.

        That micro-batch makes the engines of key groups, or the copies of windows, from the log. The manifest stores
        the placement: a start of `join` without `placement` continues with it. Raises SparkJoinError for a placement
        that does not fit the join, PlanError for such a plan.
        """
        self._batches.place(placement)

    def transition(self, plan: str, groups: int | Iterable[int] | None = None) -> None:
        """Change the plan of the engines of key groups, from the next micro-batch on, on their live state.

        plan    one join tree, such as "((R S) T) U"; in a query with branches that of the core, or of the core with a
                branch
        groups  the numbers of key groups; None = all, and those that get their first rows later in this run

        An engine changes its plan when its group has rows, before it takes them: no result is lost, added or repeated,
        and no state is computed ahead except under the strategies that do so (`jisc.strategies`). From the micro-batch
        on, the manifest stores the plan of each group that has rows, so a restart with the same options continues with
        it; a group without rows begins with the plan of the options then. A policy other than "fixed" may change the
        plan again; `groups()` shows the plan of each group and the reason of its last change. If an engine has no room
        for the states of the plan within `max_bytes`, the log has a warning and the engine keeps its plan.
        Raises PlanError for a plan that does not fit the query and for a strategy that cannot change its plan,
        SparkJoinError for a key group that does not exist, for a hub, and for a join in hops.
        """
        self._batches.transition(plan, groups)

    def set_policy(self, policy: PolicyName | Policy | None) -> None:
        """Change the policy of all engines, from the next micro-batch on; see `policy` of `eddy.spark.join`.

        Engines keep their plans until the new policy changes them; what the earlier policy has learnt is lost. An
        engine that is spilled, or that would change its worker in that micro-batch, is loaded from the log. The policy
        ends with the run: a restart has the policy of its options. Raises InputError for something that is no policy,
        SparkJoinError for one that cannot be pickled, for a hub, and for a join in hops.
        """
        self._batches.set_policy(policy)

    def messages(self) -> pa.Table:
        """Return the messages of moves, splits and fragments since the start, oldest first.

        Columns: move (its number), batch, group; step and kind, the number and the name of the message in the protocol
        MSLB of Zhu and Rundensteiner (PartitionsToMove, SendPartitions, ReceivePartitions, Received,
        ReactivatePartitions), or SplitGroup, FragmentGroup, GatherFragments; from, to; bytes, and seconds where they
        are known. The boundary of a micro-batch replaces DeactivatePartitions. The receiver takes over a group without
        rows in the next micro-batch with rows of the group. The newest 10,000 messages are kept.
        """
        return self._batches.key_groups.records.messages()

    def history(self) -> pa.Table:
        """Return the moves, splits and fragments since the start, oldest first, with their gains.

        Columns: move, batch, kind ("move", "split", "fragment" or "gather"; a row for each fragment after the first),
        group, from and to (partitions), child (the new group of a split, or the fragment), how, by ("request" or
        "rule"), refused (why a group with a hot key is not divided into fragments, null for a change); the load of the
        fullest partition over the mean load: fullness_before, fullness_predicted for all changes of the batch together,
        and fullness_measured four batches later, null until then. The newest 10,000 rows are kept.
        """
        return self._batches.key_groups.records.history()

    def rebalance(self) -> None:
        """Distribute the key groups by their load, from the next micro-batch on."""
        self._batches.key_groups.rebalance()

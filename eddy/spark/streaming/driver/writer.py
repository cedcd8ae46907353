"""Starts a streaming join through a writer with the methods of Spark's `DataStreamWriter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.log import LOG, refusals
from eddy.query.query import Query
from eddy.show.html import drawn
from eddy.show.planned import planned
from eddy.spark.environment.session import missing_settings
from eddy.spark.environment.spark_version import limits_reads
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.deal import Deal
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.driver.calls import Calls
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.explanation import explain_job
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from eddy.spark.streaming.driver.placement import Placing
from eddy.spark.streaming.driver.settings import Settings
from eddy.spark.streaming.driver.sink_key import check_sink_key
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.sinks import FORMATS, CallbackSink, Sink
from eddy.spark.streaming.state.checkpoint import Checkpoint, committed_batches
from eddy.spark.streaming.state.identity import changes_of, check_identity, has_identity, write_identity
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.remote import RemoteCheckpoint
from eddy.spark.transports.base import Carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_warned: set[str] = set()
"""Spark applications whose settings a warning has named."""
CHANGE_REMEDY = ", or say how the query changes, as in join(…, change='handover')"
"""The remedy for a join without tables and aggregates whose query differs."""
TABLE_REMEDY = (
    ", and another place for its results: a changed query over tables does not take back the results of the one before"
)
"""The addition to the advice of a new checkpoint, for a query over tables."""


@dataclass(frozen=True, repr=False)
class StreamingJoin:
    """A join of streaming DataFrames that has not started; `eddy.spark.join` creates it, `writeStream` starts it.

        joined = eddy.spark.join(query, frames, checkpoint="state")
        running = joined.writeStream.format("parquet").start("results")

    job         the query and the grid of key groups
    locations   directories of the tasks
    carried     the way of the rows to the workers: the streaming plan, and the files that the workers read
    settings    settings that may change from one start to the next
    checkpoint  absolute path of the state's directory; the working directory of a checkpoint in an object store
    remote      that checkpoint, None on a file system
    grouped     the query with aggregates or `top`, of which `job` has the join; None without

    A StreamingJoin has no other methods of a DataFrame: process results in `foreachBatch`, or read the output of the
    sink.
    """

    spark: SparkSession
    job: Job
    locations: Locations
    carried: Carried
    settings: Settings
    checkpoint: Path
    grouped: Query | None = None
    remote: RemoteCheckpoint | None = None

    def __repr__(self) -> str:
        return (
            f"StreamingJoin of {', '.join(self.job.query.graph.names)}, not started; writeStream starts it\n"
            f"  {self.job.query!r}\n"
            f"  {self.job.shares.partitions} key groups, {self.settings.partitions} tasks, checkpoint {self.place}"
        )

    def _repr_html_(self) -> str:
        return drawn("StreamingJoin, not started", repr(self), [planned(self.job.query)])

    @property
    def place(self) -> str:
        """The checkpoint as it was given: an absolute path, or the URL of an object store."""
        return str(self.checkpoint) if self.remote is None else self.remote.store.url

    @property
    def writeStream(self) -> JoinWriter:
        """A writer that starts the join."""
        return JoinWriter(self)

    @property
    def isStreaming(self) -> bool:
        """True."""
        return True

    def begin(
        self,
        sink: Sink,
        make_batches: Callable[[JobContext, Settings], MicroBatches],
        name: str | None,
        trigger: Mapping[str, Any],
        finish: bool = False,
    ) -> StreamingJoinQuery:
        """Start the job, or resume it; raises what `JoinWriter.start` raises."""
        now = bool(trigger.get("availableNow") and self.carried.inputs and not limits_reads())
        frame = self._frame_of_run(finish, now) if finish or now else self.carried.frame
        check_sink_key(sink, self.job.query if self.grouped is None else self.grouped)
        check_workers(self.spark)
        self._warn_of_settings()
        checkpoint = Checkpoint(self.checkpoint, self.remote)
        told = nullcontext() if self.remote is None else self.remote.names_objects()
        with told, ExitStack() as undo:
            checkpoint.lock.acquire()
            undo.callback(checkpoint.lock.release)
            groups, transport = self.job.shares.partitions, self.carried.transport
            begun = has_identity(self.checkpoint) or checkpoint.newest_number() is not None
            how = self.settings.streaming.change
            changes = changes_of(self.checkpoint, self.job, groups, transport, how) if begun else ()
            changed = any(change.batch is None for change in changes)
            if begun and not changed:
                remedy = self._remedy() if make_batches is MicroBatches else ""
                checkpoint.recoveries += check_identity(self.checkpoint, self.job, groups, transport, remedy=remedy)
            named = name or "eddy"
            context = JobContext(
                self.spark, self.job, self.locations, checkpoint, sink, self.carried, named, changes, self.grouped
            )
            batches = make_batches(context, self.settings)
            undo.callback(batches.close)
            if not begun or changed:
                # The check of the sink comes first, because a start that fails must not fix the identity.
                write_identity(self.checkpoint, self.job, groups, transport, change=batches.change)
            if self.remote is not None:
                self.remote.begin()
            calls = Calls(batches)
            batches.at_end(calls.end)
            writer = frame.writeStream.foreachBatch(calls)
            writer = writer.option("checkpointLocation", f"file://{self.checkpoint / 'spark'}")
            if name is not None:
                writer = writer.queryName(name)
            if trigger and not now:
                writer = writer.trigger(**trigger)
            running = StreamingJoinQuery(self.spark, writer.start(), batches, stops=now)
            undo.pop_all()
        return running

    def _remedy(self) -> str:
        """Return what is to be done in addition to a new checkpoint, or in its place, if the query differs."""
        if self.job.changing:
            return TABLE_REMEDY
        return CHANGE_REMEDY if self.grouped is None else ""

    def _frame_of_run(self, finish: bool, now: bool) -> DataFrame:
        """Return the frame of a run that ends with what is there. Raises SparkJoinError if the input cannot end.

        finish  whether the input ends as well
        now     whether Spark cannot tell the source that the run ends (`stream_reader.py`)
        """
        from eddy.spark.streaming.inputs.source import inputs_frame

        if finish:
            self._check_finish()
        places = {
            stream.name: source.place
            for stream, source in zip(self.job.query.streams, self.carried.inputs, strict=True)
        }
        return inputs_frame(self.spark, self.checkpoint / "files", places, finish, now)

    def _check_finish(self) -> None:
        """Raise SparkJoinError if the input cannot end."""
        if not self.carried.inputs:
            raise SparkJoinError(
                "finish=True needs input that the workers read (transport 'packed': Parquet files, topics), and this"
                f" join has the transport {self.carried.remark}"
            )
        if not self.job.query.graph.timed:
            raise SparkJoinError("finish=True: without event time no result waits for the end; leave it out")
        if self.job.waits and self.job.query.expiry != "final":
            tables = self.job.query.tables_changing
            why = f"{tables[0]} is a table" if tables else "rows leave their windows, and their results end"
            raise SparkJoinError(
                f"finish=True: {why}, and the end of event time would take back all results; leave it out, or make the"
                " query with expiry='final'"
            )

    def _warn_of_settings(self) -> None:
        """Log a warning, once for each Spark application, with the settings that the user's own session lacks."""
        application = str(self.spark.sparkContext.applicationId)
        missing = missing_settings(self.spark)
        if missing and application not in _warned:
            _warned.add(application)
            settings = ", ".join(f"{name}={value}" for name, value in missing.items())
            LOG.warning(
                "this Spark session makes micro-batches slow; start it with %s, or by eddy.spark.session()", settings
            )

    def explain(self) -> str:
        """Return a text on how the join would run: key groups, tasks, transport, watermark, state, plan."""
        newest = max(committed_batches(self.checkpoint), default=None)
        state = "new" if newest is None else f"after batch {newest}"
        settings = self.settings
        progress = f"{state}, in {self.place}\n{self._placed(newest)}"
        text = explain_job(self.job, settings, self.carried.remark, progress)
        if self.grouped is None:
            return text
        what = "top" if self.grouped.aggregation is None else "aggregates"
        return f"{text}\n{what}: {Deal(self.grouped, settings.partitions)}"

    def _placed(self, newest: int | None) -> str:
        """Return a text on the placement with which the join would begin after its newest batch."""
        placement = self.settings.partitioning.placement
        if newest is not None and placement in (None, "hops", "auto"):
            asked = "" if placement is None else f"; {placement!r} is asked for"
            return f"placement: begins with that of batch {newest}, which the checkpoint stores{asked}"
        placing = Placing(self.job, self.settings.partitions, placement, self.settings.partitioning.memory_bytes)
        placing.next()
        return placing.explain()


def checked_trigger(trigger: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a trigger. Raises SparkJoinError for a trigger without micro-batches."""
    if "continuous" in trigger or "realTime" in trigger:
        raise SparkJoinError("trigger: a join runs in micro-batches; pass processingTime=… or availableNow=True")
    if trigger.get("once") and not limits_reads():
        raise SparkJoinError(
            "trigger: once=True needs Spark 4.2 or newer; pass availableNow=True, which takes its place"
        )
    if sum(argument is not None for argument in trigger.values()) > 1:
        raise SparkJoinError(f"trigger: {' and '.join(trigger)} exclude each other; pass one of them")
    if "finish" in trigger:
        raise SparkJoinError("finish: the input of a hub, whose queries come and go, does not end; leave it out")
    return trigger


class JoinWriter:
    """Sets the sink and the trigger of a streaming join; `start` starts it. Other methods return the writer."""

    def __init__(self, join: StreamingJoin) -> None:
        self._join = join
        self._format: str | None = None
        self._sink: Sink | None = None
        self._options: dict[str, str] = {}
        self._name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._finish = False

    def format(self, source: str) -> JoinWriter:
        """Write results to one of these sinks:

        "parquet"       option `path`; a directory `batch=<n>` of Parquet files for each micro-batch with results, which
                        appears atomically; each result once
        "transactions"  option `path`; Parquet files in `data/`, and for each micro-batch a file in `_log/` that names
                        its files; read them with `eddy.spark.read_transactions`; each result once
        "delta"         option `path`, and for a new table `partitionBy`, names of columns with commas between them; one
                        commit of a Delta Lake table for each micro-batch with results; each result once. With `key`,
                        the columns that identify a row, rows replace and delete those with their keys: the table has
                        the answer of a query over tables. Needs `pip install 'eddy-join[delta]'`
        "kafka"         options `kafka.bootstrap.servers`, `topic`, `key` (a result column), and settings of librdkafka
                        as `kafka.<name>`; a message for each result, a JSON object; each result at least once. With
                        `upsert` "true", the topic has rows by key. Needs `pip install 'eddy-join[kafka]'`
        "console"       option `numRows`, default 20; prints each micro-batch, some again after a crash
        "noop"          counts results and drops them

        Raises SparkJoinError for any other name. `sink` takes a sink of your own.
        """
        if source not in FORMATS:
            raise SparkJoinError(
                f"format({source!r}): pass one of {', '.join(FORMATS)}, or use sink(…) or foreachBatch(…)"
            )
        self._format = source
        return self

    def option(self, key: str, value: object) -> JoinWriter:
        """Set an option of the format. Raises SparkJoinError for `checkpointLocation`, an argument of `join`."""
        if key == "checkpointLocation":
            raise SparkJoinError(
                "option checkpointLocation: pass checkpoint= to eddy.spark.join instead of this option"
            )
        self._options[key] = str(value)
        return self

    def options(self, **options: object) -> JoinWriter:
        """Set several options of the format."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> JoinWriter:
        """Set the output mode. Only "append" is possible: a join emits each result once."""
        if outputMode != "append":
            raise SparkJoinError(f"outputMode({outputMode!r}): a join emits each result once; pass 'append'")
        return self

    def queryName(self, queryName: str) -> JoinWriter:
        """Set the name of the query in `spark.streams`, progress, Spark's UI and log records."""
        self._name = queryName
        return self

    def trigger(self, *, finish: bool = False, **trigger: Any) -> JoinWriter:
        """Set when micro-batches run, as in Spark: processingTime="5 seconds", or availableNow=True.

        finish   with availableNow=True: the input ends with the rows that exist now. A last micro-batch emits the
                 results that wait for the end: rows of left, anti and full joins, and windows of aggregates. Later rows
                 are refused. Only for input that the workers read (transport "packed")

        Without a trigger each micro-batch begins when the last one ends. Raises SparkJoinError for continuous and
        real-time triggers.
        """
        if finish and not trigger.get("availableNow"):
            raise SparkJoinError(
                "trigger: finish=True ends the input with what is there now; pass availableNow=True with it"
            )
        self._trigger, self._finish = checked_trigger(trigger), finish
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> JoinWriter:
        """Call func(results, batch) on the driver after the commit of each micro-batch, with or without results.

        `results` is a batch DataFrame over files of the job, valid until the call returns. If the call raises, or the
        driver dies before it records the return, the next start calls `func` again with the same number and the same
        rows. So make the effect of the function depend on the number.
        """
        if not callable(func):
            raise SparkJoinError(f"foreachBatch takes a function of a DataFrame and a batch number, not {func!r}")
        return self.sink(CallbackSink(func))

    def sink(self, sink: Sink) -> JoinWriter:
        """Write results to a sink object, such as an instance of your own subclass of `eddy.spark.Sink`."""
        if not isinstance(sink, Sink):
            raise SparkJoinError(f"sink({sink!r}): pass an instance of a subclass of eddy.spark.Sink")
        self._sink = sink
        return self

    def toParquet(self, path: str | Path) -> StreamingJoinQuery:
        """Start the join with a "parquet" sink in `path`."""
        return self.format("parquet").start(path)

    @refusals
    def start(
        self,
        path: str | Path | None = None,
        format: str | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamingJoinQuery:
        """Start the join; resume it if the checkpoint holds a state.

        Raises SparkJoinError for an unknown sink or option, and for workers that cannot import this package;
        StreamingStateError for a checkpoint that is damaged, belongs to another join, or is in use by another driver.
        """
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        if path is not None:
            self.option("path", path)
        self.options(**options)
        return self._join.begin(self._chosen_sink(), MicroBatches, self._name, self._trigger, self._finish)

    def _chosen_sink(self) -> Sink:
        if self._sink is not None:
            if self._format is not None or self._options:
                raise SparkJoinError("foreachBatch and sink take no format and no options; leave one of them out")
            return self._sink
        if self._format is None:
            raise SparkJoinError(
                f"the join has no sink: call format(…) with one of {', '.join(FORMATS)}, or sink(…), or foreachBatch(…)"
            )
        kind = FORMATS[self._format]
        unknown = sorted(name for name in self._options if not kind.takes(name))
        if unknown:
            known = ", ".join(sorted(kind.options)) or "none"
            raise SparkJoinError(f"format {self._format!r} has no option {unknown[0]!r}; its options: {known}")
        return kind.from_options(self._options)

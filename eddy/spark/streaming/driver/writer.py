"""How a streaming join is started: built as Spark's `DataStreamWriter` is, sink and trigger one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.log import refusals
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.driver.context import Run
from eddy.spark.streaming.driver.micro_batch import Batches, Settings
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.sinks import CallbackSink, ConsoleSink, NullSink, ParquetSink, Sink, TransactionSink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.identity import check_identity, has_identity, write_identity
from eddy.spark.streaming.state.locations import Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "transactions", "console", "noop")
_OPTIONS = {"parquet": {"path"}, "transactions": {"path"}, "console": {"numRows"}, "noop": set()}


@dataclass(frozen=True)
class StreamingJoin:
    """A join of streaming DataFrames that is not started yet; made by `eddy.spark.join`. `writeStream` starts it.

    job         the query and the grid of key groups
    places      where tasks find and leave things
    told        the streaming plan of the first stage: it logs the rows of all streams
    settings    what may change from one start to the next
    checkpoint  absolute path of the directory of state

    It has no other methods of a DataFrame: work on results in `foreachBatch`, or read them from where they are written.
    """

    spark: SparkSession
    job: Job
    places: Places
    told: DataFrame
    settings: Settings
    checkpoint: Path

    @property
    def writeStream(self) -> JoinWriter:
        """What starts it."""
        return JoinWriter(self)

    @property
    def isStreaming(self) -> bool:
        """True."""
        return True


class JoinWriter:
    """Says where results go and when micro-batches run; `start` then starts the join. Methods return the writer."""

    def __init__(self, join: StreamingJoin) -> None:
        self._join = join
        self._format: str | None = None
        self._function: Callable[[DataFrame, int], None] | None = None
        self._options: dict[str, str] = {}
        self._name: str | None = None
        self._trigger: dict[str, Any] = {}

    def format(self, source: str) -> JoinWriter:
        """Write in one of these ways:

        "parquet"       option `path`; a directory `batch=<n>` of Parquet files for each micro-batch with results, there
                        as a whole or not at all; each result once
        "transactions"  option `path`; Parquet files in `data/`, and for each micro-batch a file in `_log/` that names
                        its files: read them with `eddy.spark.read_transactions`; each result once
        "console"       option `numRows`, 20 if not given; prints, a micro-batch again after a crash
        "noop"          joins and counts, and drops the results

        Raises SparkJoinError for any other.
        """
        if source not in FORMATS:
            raise SparkJoinError(f"format({source!r}): a join writes to {', '.join(FORMATS)}, or with foreachBatch")
        self._format = source
        return self

    def option(self, key: str, value: object) -> JoinWriter:
        """Set an option of the format; which there are, `format` says. `checkpointLocation` is refused: see `join`."""
        if key == "checkpointLocation":
            raise SparkJoinError("checkpointLocation is given to eddy.spark.join as checkpoint=; leave it out here")
        self._options[key] = str(value)
        return self

    def options(self, **options: object) -> JoinWriter:
        """Set several options of the format."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> JoinWriter:
        """Say "append", the only mode: a result is told once."""
        if outputMode != "append":
            raise SparkJoinError(f"outputMode({outputMode!r}): a join tells each result once, which is 'append'")
        return self

    def queryName(self, queryName: str) -> JoinWriter:
        """Name the query, as `spark.streams` and progress show it."""
        self._name = queryName
        return self

    def trigger(self, **trigger: Any) -> JoinWriter:
        """Say when micro-batches run, as in Spark: processingTime="5 seconds", or availableNow=True.

        Without one the next begins when the last is done. Continuous and real-time triggers raise SparkJoinError.
        """
        if "continuous" in trigger or "realTime" in trigger:
            raise SparkJoinError("a join runs in micro-batches: say processingTime=… or availableNow=True")
        self._trigger = trigger
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> JoinWriter:
        """Call func(results, batch) on the driver after each micro-batch is committed, those without results as well.

        `results` is a batch DataFrame over files of the job, good until the call returns. The call is made again with
        the same number and the same rows if it raised, or if the driver died before it was known to have returned: make
        what it does depend on the number.
        """
        if not callable(func):
            raise SparkJoinError(f"foreachBatch takes a function of a DataFrame and a batch number, not {func!r}")
        self._function = func
        return self

    def toParquet(self, path: str | Path) -> StreamingJoinQuery:
        """Start, writing Parquet to `path`."""
        return self.format("parquet").start(path)

    @refusals
    def start(
        self,
        path: str | Path | None = None,
        format: str | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamingJoinQuery:
        """Start the join, from where the checkpoint stands if it stands anywhere.

        Raises SparkJoinError for a sink or option that is not one, and for workers that cannot import this package;
        StreamingStateError for a checkpoint that is
        damaged, of another join, or in use by another driver.
        """
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        if path is not None:
            self.option("path", path)
        self.options(**options)
        join = self._join
        sink = self._sink()
        check_workers(join.spark)
        checkpoint = Checkpoint(join.checkpoint)
        checkpoint.lock()
        try:
            groups = join.job.shares.partitions
            begun = has_identity(join.checkpoint) or checkpoint.newest_number() is not None
            if begun:
                checkpoint.recoveries += check_identity(join.checkpoint, join.job, groups)
            run = Run(join.spark, join.job, join.places, checkpoint, sink, self._name or "eddy")
            batches = Batches(run, join.settings)
            if not begun:
                # Not before the sink was found fit: a start that fails shall not settle which join it is.
                write_identity(join.checkpoint, join.job, groups)
            writer = join.told.writeStream.foreachBatch(batches)
            writer = writer.option("checkpointLocation", str(join.checkpoint / "spark"))
            if self._name is not None:
                writer = writer.queryName(self._name)
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            return StreamingJoinQuery(join.spark, writer.start(), batches)
        except BaseException:
            checkpoint.unlock()
            raise

    def _sink(self) -> Sink:
        if self._function is not None:
            if self._format is not None or self._options:
                raise SparkJoinError("foreachBatch takes no format and no options: leave one of them out")
            return CallbackSink(self._function)
        if self._format is None:
            raise SparkJoinError(f"say where results go: format(…) with one of {', '.join(FORMATS)}, or foreachBatch")
        unknown = sorted(self._options.keys() - _OPTIONS[self._format])
        if unknown:
            raise SparkJoinError(f"format {self._format!r} has no option {unknown[0]!r}")
        if self._format == "noop":
            return NullSink()
        if self._format == "console":
            shown = self._options.get("numRows", "20")
            if not shown.isdecimal() or not int(shown):
                raise SparkJoinError(f"format 'console': numRows={shown!r} is no whole number above 0")
            return ConsoleSink(int(shown))
        if "path" not in self._options:
            raise SparkJoinError(f"format {self._format!r} needs a path: start(path), or option('path', …)")
        path = self._options["path"]  # not as a Path yet, which makes s3://… a relative one
        return ParquetSink(path) if self._format == "parquet" else TransactionSink(path)

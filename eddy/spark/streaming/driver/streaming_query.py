"""A streaming join that runs: what `start()` returns. It behaves as Spark's `StreamingQuery`, and knows of the join."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.log import LOG
from eddy.spark.errors import SparkJoinError
from eddy.spark.types import struct_type
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from eddy.spark.streaming.driver.micro_batch import Batches
    from eddy.spark.streaming.driver.partition_map import PartitionMap


class StreamingJoinQuery:
    """A join under way; made by `JoinWriter.start`.

    What it tells of itself: `batches()` and `groups()` tell all. Spark's own progress, which listeners get as well
    (`StreamingQueryListener`), is of the first stage, and so are the metrics in it: `observedMetrics["eddy"]` says what
    was logged (`splitting.observed`). The second stage is a job of its own inside the micro-batch, and Spark makes no
    progress of it; its figures are under "eddy" in `lastProgress` and `recentProgress` here.
    """

    def __init__(self, spark: SparkSession, inner: StreamingQuery, batches: Batches) -> None:
        self._spark = spark
        self._inner = inner
        self._batches = batches
        batches.stopping.watch(inner)
        # A query may end by itself, or through Spark (`spark.streams`), and then nobody calls anything here.
        threading.Thread(target=self._close_at_end, name="eddy end of query", daemon=True).start()

    def _close_at_end(self) -> None:
        try:
            self._inner.awaitTermination()
            LOG.info("%s has ended", self._batches.title)
        except Exception as problem:  # told to those who ask as well; the session may be gone
            LOG.error("%s has failed: %s", self._batches.title, self._batches.problem or problem)
        self._batches.close()

    # As in Spark

    @property
    def inner(self) -> StreamingQuery:
        """Spark's query, for everything else it can do."""
        return self._inner

    @property
    def id(self) -> str:
        """The id that stays over restarts."""
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
        """Whether it runs."""
        active = self._inner.isActive
        if not active:
            self._batches.close()
        return active

    @property
    def status(self) -> dict[str, Any]:
        """What it does at the moment."""
        return dict(self._inner.status)

    def exception(self) -> Exception | None:
        """Return why it ended, None if it runs or was stopped.

        An error of this library is returned as it is; Spark's own, with all of its trace, is `inner.exception()`.
        """
        problem = self._inner.exception()
        if problem is None:
            return None
        self._batches.close()
        return self._batches.problem or problem

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until it ends, `timeout` seconds at most; raise its `exception()` if it failed."""
        with self._plainly():
            # Spark takes fractions of a second as well, whatever its annotations say.
            return self._inner.awaitTermination() if timeout is None else self._inner.awaitTermination(timeout)  # type: ignore[arg-type]

    def processAllAvailable(self) -> None:
        """Wait until everything that is there now is joined and published; raise `exception()` if it failed.

        For tests.
        """
        with self._plainly():
            self._inner.processAllAvailable()

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """Raise an error of this library in the body as itself, and not at the end of a trace of Spark's."""
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
        """Stop it. A micro-batch under way is left undone and comes again at the next start.

        Afterwards, as after any other end, the checkpoint is free for another driver.
        """
        LOG.info("%s is asked to stop", self._batches.title)
        try:
            self._batches.stopping.ask()
        finally:
            self._inner.stop()
            self._batches.close()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Spark's progress of the newest micro-batch; under "eddy" the row of `batches()` for it.

        For a progress that says nothing happened, it is the newest row there is.
        """
        progress = self._inner.lastProgress
        if progress is None:
            return None
        found, figures = _as_dict(progress), self._batches.figures
        return {**found, "eddy": figures.row(found["batchId"]) or figures.row()}

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Spark's progress of the newest micro-batches; under "eddy" the row of `batches()` for each, None if gone."""
        found = [_as_dict(progress) for progress in self._inner.recentProgress]
        return [{**one, "eddy": self._batches.figures.row(one["batchId"])} for one in found]

    # Of the join

    def batches(self) -> pa.Table:
        """Return a row of figures for each of the newest 1000 micro-batches since the start, oldest first.

        batch, rows, late, results, log_bytes; groups (key groups with rows), loaded (of them, from the log), moved (to
        another partition), transitions (changes of plan and of what is stored), state_bytes (of the engines of groups
        with rows); slowest_group and slowest_share (its time over that of the mean one); watermark (in ticks of the
        query's common time type, null when nothing is known); log_seconds, join_seconds, commit_seconds,
        publish_seconds. A batch that was only published again has no row.
        """
        return self._batches.figures.batches()

    def groups(self) -> pa.Table:
        """Return a row of figures for each key group with rows in the newest 1000 micro-batches, oldest first.

        batch, group, partition; source of its engine ("live", found on the host; "loaded", from the log; "new"); rows
        (late ones not counted), late, results, state_bytes; plan, after the batch; transitions, and the reason of the
        last one, null for none; ready_seconds until the engine stood, join_seconds, keep_seconds.
        """
        return self._batches.figures.groups()

    def late(self, stream: str) -> DataFrame:
        """Return the rows of a stream that came too late as a batch DataFrame: those of all batches committed so far.

        Late rows of earlier starts are among them; they are never deleted. Rows with a null key are not: they match
        nothing, and are not kept; nor are those that came while the query said late="count" for the stream. Columns:
        those that the query needs. Raises SparkJoinError for an unknown stream.
        """
        names = [own.name for own in self._batches.query.streams]
        if stream not in names:
            raise SparkJoinError(f"there is no stream {stream!r}; the streams are {', '.join(names)}")
        schema = struct_type(self._batches.query.streams[names.index(stream)].schema)
        files = self._batches.late_files(names.index(stream))
        return self._spark.read.schema(schema).parquet(*files) if files else self._spark.createDataFrame([], schema)

    @property
    def late_counts(self) -> dict[str, int]:
        """Late rows of each stream since the start, whatever became of them."""
        return self._batches.late_counts

    def forget_live_engines(self) -> None:
        """Delete the live engines on the driver's host, so that they are loaded from the log when next wanted.

        For tests and measurements: nothing but time is lost.
        """
        self._batches.forget_live_engines()

    @property
    def compaction_problem(self) -> BaseException | None:
        """Why the newest compaction of the log failed; None if it did not.

        The join goes on and gives the same results, with a log that gets longer; the next micro-batch tries again.
        """
        return self._batches.compaction_problem

    @property
    def recoveries(self) -> list[str]:
        """What of the checkpoint was found damaged and put right since the start, in words; empty if nothing was.

        Engines that had to be loaded from the log are in `groups()`, as source "loaded".
        """
        return self._batches.recoveries

    @property
    def partition_map(self) -> PartitionMap:
        """The partition of each key group."""
        return self._batches.partition_map

    def move(self, moves: Mapping[int, int]) -> None:
        """Move key groups to other partitions, {group: partition}, from the next micro-batch on.

        No other group waits: where a moved group's engine is not at hand it is loaded from the log and completes its
        states just in time. Raises SparkJoinError for a group or partition that is not there.
        """
        self._batches.move(moves)

    def rebalance(self) -> None:
        """Deal the key groups anew by their load, from the next micro-batch on."""
        self._batches.rebalance()


def _as_dict(progress: Any) -> dict[str, Any]:
    return dict(progress) if isinstance(progress, dict) else dict(json.loads(progress.json))

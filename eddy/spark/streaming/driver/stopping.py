"""Stops a streaming join between two steps of a micro-batch, without errors on the screen.

Spark stops a query by interrupting its thread. A micro-batch of a join is a call from that thread to Python, which
calls Spark in turn. An interrupt in such an inner call has two effects. Spark logs errors of running work, such as a
broadcast. And the error travels through Python back to Spark, where `StreamExecution.isInterruptionException` searches
its text, with all traces, by a regular expression that takes a stack frame per character. The thread of the query then
ends with a StackOverflowError of a thousand lines.

So `ask` first requests the end of the micro-batch and cancels its Spark jobs. The micro-batch ends at its next step and
waits, without a call to Spark, until Spark has stopped the query. Then the micro-batch raises a short error with the
words for which Spark searches. A query that is stopped in another way (`spark.streams`, `inner.stop()`) gets the short
error as well.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.002
"""Interval of polling. Without rows, Spark pauses for 10 ms between two queries of the sources."""
PATIENCE_S = 10.0
"""Longest wait of a stop until the micro-batch is between two steps. Afterwards Spark interrupts the query."""


class StoppedError(Exception):
    """Ends a micro-batch whose query was stopped. Spark recognises the interruption by the text."""

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the micro-batch:"
            " java.lang.InterruptedException: the query was stopped"
        )


class Stopping:
    """The stop of one query: whether it was requested, and how the running micro-batch ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._asked = threading.Event()
        self._waiting = threading.Event()
        self._running = False

    def watch(self, query: StreamingQuery) -> None:
        """Set the query after its start."""
        self._query = query

    @contextlib.contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Run a micro-batch in the body. After a stop, any error of the body becomes a StoppedError."""
        self._running = True
        try:
            self.check()
            yield
        except Exception:
            if not self.stopped():
                raise
            self._waiting.set()
            while self._active():
                time.sleep(POLL_S)
            raise StoppedError from None
        finally:
            self._running = False

    def check(self) -> None:
        """Raise StoppedError after a stop was requested; a micro-batch calls this between its steps."""
        if self._asked.is_set():
            raise StoppedError

    def ask(self) -> None:
        """Request a stop of the running micro-batch; return once Spark can stop the query without an interrupt.

                Spark can do so while the micro-batch waits for the stop, and while Spark pauses between two triggers.
        Returns after PATIENCE_S in any case.
        """
        self._asked.set()
        query, until = self._query, time.monotonic() + PATIENCE_S
        while query is not None and query.isActive and time.monotonic() < until:
            if self._running:
                self._cancel_jobs(query.runId)
            elif not query.status["isTriggerActive"]:
                return
            if self._waiting.wait(POLL_S):
                return

    def _cancel_jobs(self, group: str) -> None:
        context = self._spark.sparkContext
        status = context.statusTracker()
        # Spark logs a warning if a cancelled group has no jobs.
        if set(status.getJobIdsForGroup(group)) & set(status.getActiveJobsIds()):
            context.cancelJobGroup(group)

    def stopped(self) -> bool:
        """Return whether a stop was requested here, or Spark has stopped the query."""
        return self._asked.is_set() or not self._active()

    def _active(self) -> bool:
        # Before `watch` the query has just started, so no caller can have stopped it.
        return self._query is None or self._query.isActive

"""How a streaming join stops: between two steps of a micro-batch, without an error on the screen.

Spark stops a query by interrupting its thread. A micro-batch of a join is a call from that thread to Python, which
calls Spark in turn. An interrupt in such an inner call has two effects. Spark logs errors of what was under way (a
broadcast, say). And the error travels through Python back to Spark, where `StreamExecution.isInterruptionException`
searches its text, all traces included, with a regular expression that takes a stack frame for each character: the
thread of the query ends with a StackOverflowError, a thousand lines long.

So a stop asks the micro-batch first. Its Spark jobs are cancelled, it gives up at its next step, and it waits, with no
call under way, until Spark has the query stopped. What it raises then is short and has the words that Spark looks for.
A query that is stopped by other means (`spark.streams`, `inner.stop()`) gets the short error as well.
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

LOOK_S = 0.002
"""Without rows, Spark rests for 10 ms between two looks at the sources."""
PATIENCE_S = 10.0
"""How long a stop waits for a good moment. Afterwards Spark interrupts whatever it finds."""


class StoppedError(Exception):
    """Ends a micro-batch whose query was stopped. Spark knows it as an interruption by its text."""

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the micro-batch:"
            " java.lang.InterruptedException: the query was stopped"
        )


class Stopping:
    """Whether one query is being stopped, and what that means for the micro-batch under way."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._asked = threading.Event()
        self._waiting = threading.Event()
        self._running = False

    def watch(self, query: StreamingQuery) -> None:
        """Take notice of the query once it has started."""
        self._query = query

    @contextlib.contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Run a micro-batch in the body; any error that a stop brings about becomes a StoppedError."""
        self._running = True
        try:
            self.check()
            yield
        except Exception:
            if not self._under_way():
                raise
            self._waiting.set()
            while self._active():
                time.sleep(LOOK_S)
            raise StoppedError from None
        finally:
            self._running = False

    def check(self) -> None:
        """Raise StoppedError if the query is to stop; a micro-batch calls this between its steps."""
        if self._asked.is_set():
            raise StoppedError

    def ask(self) -> None:
        """Have the micro-batch under way end; return when Spark can stop the query without interrupting anything.

        That is when the micro-batch waits for it, or when Spark itself rests between two triggers. Returns in any case
        after PATIENCE_S.
        """
        self._asked.set()
        query, until = self._query, time.monotonic() + PATIENCE_S
        while query is not None and query.isActive and time.monotonic() < until:
            if self._running:
                self._cancel_jobs(query.runId)
            elif not query.status["isTriggerActive"]:
                return
            if self._waiting.wait(LOOK_S):
                return

    def _cancel_jobs(self, group: str) -> None:
        context = self._spark.sparkContext
        status = context.statusTracker()
        # To cancel a group without jobs makes Spark log a warning.
        if set(status.getJobIdsForGroup(group)) & set(status.getActiveJobsIds()):
            context.cancelJobGroup(group)

    def _under_way(self) -> bool:
        return self._asked.is_set() or not self._active()

    def _active(self) -> bool:
        # A query that is not known here has just started, and nobody can have stopped it yet.
        return self._query is None or self._query.isActive

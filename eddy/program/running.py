"""A program on Spark: its joins start together, go on until a signal, the end of their input or a failure, and end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.log import LOG
from eddy.program.connectors import (
    INPUTS,
    OUTPUTS,
    check_output,
    connector_of,
    input_frame,
    sink_of,
)
from eddy.program.join_options import join_options
from eddy.program.statement_set import DIRECTORY, check_set, start_set
from eddy.program.text import Insertion, read_program
from eddy.spark.errors import SparkJoinError, first_line
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
    from eddy.spark.streaming.driver.writer import JoinWriter
    from eddy.spark.streaming.hub.hub import Hub

POLL_S = 0.2
SIGNAL_S = 1.0
"""Seconds by which this process may get a signal later than Spark's."""
SIGNALS = signal.SIGINT, signal.SIGTERM


def check_program(text: str) -> list[Insertion]:
    """Return the INSERT statements of a program, with all options checked. Starts nothing. Raises SqlError."""
    insertions = read_program(text)
    for insertion in insertions:
        check_output(insertion)
        describe(insertion)
    together = [insertion for insertion in insertions if insertion.together]
    if together:
        check_set(together)
    return insertions


def describe(insertion: Insertion) -> str:
    """Return a line about an INSERT: its target and its inputs, with their connectors. Raises SqlError."""
    inputs = [f"{name} ({connector_of(table, INPUTS, 'an input')})" for name, table in insertion.inputs.items()]
    output = connector_of(insertion.target, OUTPUTS, "an output")
    return f"{insertion.target.name}: {', '.join(inputs)} -> {output}"


class RunningProgram:
    """The joins of a program that run on Spark, by the names of their targets.

    hub   that of the statement set, None without one; it is the join `DIRECTORY`
    """

    def __init__(self, joins: Mapping[str, StreamingJoinQuery]) -> None:
        self.joins = dict(joins)
        self.hub: Hub | None = None

    @classmethod
    def started(
        cls,
        spark: SparkSession,
        program: Sequence[Insertion],
        checkpoint: str | Path,
        trigger: Mapping[str, Any],
    ) -> RunningProgram:
        """Start the joins of a program, or resume them, each with a checkpoint in a directory of its target's name,
        below a path or the URL of an object store.

        trigger   arguments of `JoinWriter.trigger`

        All joins are made before the first one starts; if one cannot start, the others are stopped. Raises SqlError for
        inputs that cannot be read, and what `eddy.spark.join` and `JoinWriter.start` raise.
        """
        from pyspark.errors import PySparkException

        from eddy.spark import join

        writers: dict[str, JoinWriter] = {}
        running = cls({})
        try:
            together = [insertion for insertion in program if insertion.together]
            for insertion in program:
                if insertion.together:
                    continue
                frames = {name: input_frame(spark, table) for name, table in insertion.inputs.items()}
                form, options = sink_of(insertion.target)
                how = join_options(insertion)
                joined = join(
                    insertion.query,
                    insertion.query.inputs(frames),
                    checkpoint=f"{checkpoint}/{insertion.target.name}",
                    **how,
                )
                writer = joined.writeStream.format(form).options(**options).queryName(insertion.target.name)
                writers[insertion.target.name] = writer.trigger(**trigger) if trigger else writer
            if together:
                running.hub, running.joins[DIRECTORY] = start_set(spark, together, str(checkpoint), trigger)
            for name, ready in writers.items():
                running.joins[name] = ready.start()
        except PySparkException as problem:
            running.stop()
            raise SparkJoinError(first_line(problem)) from problem
        except BaseException:
            running.stop()
            raise
        return running

    def wait(self, ended: threading.Event) -> None:
        """Wait until all joins have ended or `ended` is set; stop the joins that still run.

        Raises the error of a join that failed, after the others were stopped.
        """
        try:
            while any(join.isActive for join in self.joins.values()) and not ended.wait(POLL_S):
                self._check()
        finally:
            self.stop()
        self._check()

    def stop(self) -> None:
        """Stop all joins; the next start goes on where they stopped. Raises the last error after all were stopped."""
        problem: Exception | None = None
        for join in self.joins.values():
            try:
                if join.isActive:
                    join.stop()
            except Exception as caught:
                problem = caught
        if problem is not None:
            raise problem

    def summary(self) -> list[str]:
        """Return a line for each join: micro-batches, rows and results of this start."""
        lines = []
        for name, join in self.joins.items():
            sums = join.totals()
            batches, rows, results = (int(sums.get(column, 0)) for column in ("batches", "rows", "results"))
            if name == DIRECTORY and self.hub is not None:
                lines.append(f"statement set: {rows:,} rows in {batches:,} micro-batches")
                lines += [f"{query.name}: {query.results:,} results" for query in self.hub.queries.values()]
                continue
            lines.append(f"{name}: {rows:,} rows in {batches:,} micro-batches, {results:,} results")
        return lines

    def _check(self) -> None:
        for name, join in self.joins.items():
            problem = join.exception()
            if isinstance(problem, EddyError):
                raise type(problem)(f"{name}: {problem}") from problem
            if problem is not None:
                raise SparkJoinError(f"{name}: {first_line(problem)}") from problem


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one has its usual effect.

    Only in the main thread, and after the start of Spark, which has a handler of its own. Errors that come with a
    signal are logged and not raised: Spark's own process may have got it as well.
    """
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {handled: signal.signal(handled, end) for handled in SIGNALS}
    try:
        yield ended
    except Exception as problem:
        if not ended.wait(0.0 if isinstance(problem, EddyError) else SIGNAL_S):
            raise
        LOG.warning("Spark ended with the signal; the next start goes on from the checkpoint: %s", first_line(problem))
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)

"""A job that is stopped in the middle of a batch and started again, next to another job, with files left over."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from eddy.spark import join
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.driver.stopping import StoppedError, Stopping
from tests.spark.streaming.faults.traps import Trap, Traps
from tests.spark.streaming.faults.workload import (
    LATENESS,
    SPARK_SCHEMA,
    STREAMS,
    FaultsWorkload,
    Result,
    counted,
    query,
)
from tests.spark.streaming.stops import BEGIN, END

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

LOCKED = """
import sys, time
from pathlib import Path
from eddy.spark.streaming.state.checkpoint import Checkpoint
Checkpoint(Path(sys.argv[1])).lock.acquire()
print("locked", flush=True)
time.sleep(600)
"""


def start(spark: SparkSession, root: Path, plan: str | None = None) -> StreamingJoinQuery:
    frames = {
        name: spark.readStream.schema(SPARK_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "sources" / name))
        for name in STREAMS
    }
    joined = join(
        query(root), frames, checkpoint=root / "checkpoint", lateness=LATENESS, plan=plan, key_groups=4, partitions=1
    )
    return joined.writeStream.format("parquet").trigger(availableNow=True).start(root / "out")


def results(root: Path) -> Counter[Result]:
    counts: Counter[Result] = Counter()
    for path in sorted((root / "out").glob("batch=*/*.parquet")):
        counts.update(counted(pq.ParquetFile(path).read()))
    return counts


def until_sprung(traps: Traps, trap: Trap, running: StreamingJoinQuery) -> None:
    while not (traps.sprung / trap.name).exists():
        assert running.isActive, running.exception()
        time.sleep(0.01)


def made(root: Path, batches: int, *traps: Trap) -> tuple[FaultsWorkload, Traps]:
    workload = FaultsWorkload(7, batches)
    workload.write(root / "sources")
    armed = Traps(root)
    armed.arm(list(traps))
    armed.at(0)
    return workload, armed


@pytest.mark.versions
@pytest.mark.parametrize("place", ["split", "join"])
def test_stop_in_the_middle_of_a_batch_loses_nothing_and_tasks_left_behind_do_no_harm(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    trap = Trap(0, place, "hold")
    workload, traps = made(tmp_path, 3, trap)
    running = start(spark, tmp_path)
    until_sprung(traps, trap, running)
    running.stop()
    woke = tmp_path / f"woke-{trap.name}"
    assert not woke.exists(), "the task should be at work when the job is stopped"
    assert running.exception() is None
    assert results(tmp_path) == Counter()
    again = start(spark, tmp_path)  # while the task of the first start still runs
    again.awaitTermination()
    traps.release()
    until = time.monotonic() + 60
    while not woke.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert woke.exists(), "the task should have outlived the stop"
    assert results(tmp_path) == workload.expected()[0]


def test_a_second_driver_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    trap = Trap(0, "join", "hold")
    workload, traps = made(tmp_path, 2, trap)
    command = [sys.executable, "-c", LOCKED, str(tmp_path / "checkpoint")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(StreamingStateError, match=f"is in use by process {other.pid} on "):
                start(spark, tmp_path)
        finally:
            other.kill()
    running = start(spark, tmp_path)
    until_sprung(traps, trap, running)
    with pytest.raises(StreamingStateError, match="only one driver can run a checkpoint at a time"):
        start(spark, tmp_path)
    traps.release()
    running.awaitTermination()
    assert results(tmp_path) == workload.expected()[0]


@pytest.mark.campaign(0)
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("faults")
def test_stops_print_nothing(tmp_path: Path) -> None:
    """Runs in a child process, because the JVM writes to the standard error directly."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.streaming.stops", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.split(f"{BEGIN}\n")[1]
    assert said.startswith(f"{END}\n"), said[:4000]


def test_what_a_stopped_batch_raises_is_short_and_known_to_spark(spark: SparkSession) -> None:
    """Spark searches the text with this expression, which takes a stack frame per character."""
    raised = traceback.format_exception(StoppedError())
    known = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution.PROXY_ERROR()
    assert known.findFirstIn("".join(raised)).isDefined()
    assert len("".join(raised)) < 500


class StoppedQuery:
    """The part of Spark's query that a stop uses."""

    def __init__(self, *triggers: bool) -> None:
        self.runId = "run"
        self.isActive = True
        self._triggers = list(triggers)

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self._triggers.pop(0)}


def test_a_stop_waits_until_spark_rests() -> None:
    query = StoppedQuery(True, True, False, False)
    stopping = Stopping(None)  # type: ignore[arg-type]
    stopping.watch(query)  # type: ignore[arg-type]
    stopping.ask()
    assert query._triggers == [False]


def test_a_batch_that_begins_after_a_stop_was_asked_for_does_nothing() -> None:
    query, ran = StoppedQuery(), []
    no_jobs = SimpleNamespace(getJobIdsForGroup=lambda group: (), getActiveJobsIds=lambda: ())
    context = SimpleNamespace(statusTracker=lambda: no_jobs)
    stopping = Stopping(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    stopping._asked.set()
    stopping.watch(query)  # type: ignore[arg-type]

    def batch() -> None:
        with pytest.raises(StoppedError) as raised, stopping.micro_batch():
            ran.append("the batch")
        assert raised.value.__suppress_context__
        ran.append("its end")

    thread = threading.Thread(target=batch, daemon=True)
    thread.start()
    stopping.ask()  # returns when the batch waits
    assert ran == []
    query.isActive = False
    thread.join(30)
    assert ran == ["its end"]


def test_an_error_without_a_stop_stays_what_it_is() -> None:
    stopping = Stopping(None)  # type: ignore[arg-type]
    stopping.watch(StoppedQuery())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mine"), stopping.micro_batch():
        raise ValueError("mine")

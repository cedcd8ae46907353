"""A streaming join with dynamic allocation: how many tasks it has, and stages that are no barrier stages."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import eddy
from eddy.spark import join
from eddy.spark.environment import executors as executors_module
from eddy.spark.environment.executors import Executor, Executors
from eddy.spark.streaming.driver import elastic_tasks, workers
from eddy.spark.streaming.driver.demand import SHRINK_S, TOLERANCE, UTILIZATION, WINDOW_S, Demand
from eddy.spark.streaming.driver.elastic_tasks import GRACE_S, ElasticTasks
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.join_stage import RunTask
from eddy.spark.streaming.worker.tasks import BatchTask, PartitionReport, TaskReport
from stairs.errors import InputError
from tests.spark.streaming.jobs import Inputs, results, slot_taken
from tests.spark.streaming.test_hops import HopsRun

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

ROOT = Path(__file__).parents[3]
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
QUERY = eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in "RS"], ["R.k = S.k"])


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.lists(st.tuples(st.floats(0.01, 30), st.floats(0, 1)), max_size=60),
)
def test_tasks_stay_in_bounds_and_shrink_only_after_a_while(
    tasks: int, most: int, batches: list[tuple[float, float]]
) -> None:
    demand, now = Demand(tasks, most, 0.0), 0.0
    grown = [(0.0, demand.tasks(0.0))]
    for seconds, share in batches:
        now += seconds
        count = demand.tasks(now)
        demand.saw(count, share * count * seconds, now)
        if demand.tasks(now) > count:
            grown.append((now, demand.tasks(now)))
        assert max((tasks for at, tasks in grown if at >= now - SHRINK_S), default=1) <= demand.tasks(now) <= most


@pytest.mark.parametrize("load", [0.3, 1.0, 2.5, 7.0])
def test_tasks_follow_the_load(load: float) -> None:
    """`load` tasks are busy all the time; each batch takes a second."""
    demand = Demand(1, 100, 0.0)
    clock = itertools.count(1)
    for _ in range(2 * int(WINDOW_S + SHRINK_S)):
        now = float(next(clock))
        tasks = demand.tasks(now)
        demand.saw(tasks, min(load, tasks), now)
    assert load / tasks <= UTILIZATION * (1 + TOLERANCE)
    assert tasks == 1 or load / (tasks - 1) >= UTILIZATION * (1 - TOLERANCE)


def test_tasks_shrink_a_while_after_the_load_has_gone() -> None:
    """Also without a micro-batch in between, which nothing measures."""
    demand = Demand(1, 10, 0.0)
    for second in range(1, 20):
        demand.saw(4, 4.0, float(second))
    assert demand.tasks(19.0) == 10
    demand.saw(10, 0.1, 30.0)
    assert demand.tasks(30.0) == demand.tasks(19.0 + SHRINK_S) == 10
    assert demand.tasks(19.0 + SHRINK_S + 1) == 1


def test_a_batch_after_a_long_rest_is_no_load() -> None:
    demand = Demand(1, 10, 0.0)
    for minute in range(1, 4):
        demand.saw(1, 5.0, 60.0 * minute)
    assert demand.tasks(180.0) == 1


class FakeContext:
    """A Spark context of an application without a JVM."""

    master, applicationId, defaultParallelism, _jsc, _jvm = "spark://host", "fake", 2, None, ""

    def getConf(self) -> dict[str, str]:
        return {"spark.dynamicAllocation.enabled": " True ", "spark.executor.cores": "2"}


class FakeExecutors(Executors):
    """The executors of the fake application."""

    def __init__(self, present: dict[str, int]) -> None:
        super().__init__(cast("SparkContext", FakeContext()))
        self.present = present

    def slots(self) -> int:
        return 2 * len(self.present)

    def active(self) -> list[Executor]:
        return [Executor(place, 2, busy) for place, busy in self.present.items()]


@pytest.fixture
def joins() -> Iterator[Callable[[dict[str, int]], ElasticTasks]]:
    """Make joins of one application with an executor for each letter -> the tasks that run there."""
    made = []

    def make(present: dict[str, int]) -> ElasticTasks:
        executors = FakeExecutors(present)
        made.append(executors)
        assert executors.elastic
        return ElasticTasks(cast("SparkContext", None), executors, "join", 4, warmed.append)

    warmed: list[Sequence[str]] = []
    yield make
    for executors in made:
        executors.close()
    assert executors_module._joins["fake"] == {}


def chosen(tasks: ElasticTasks, most: int = 9) -> str:
    return "".join(tasks.places(tasks.count(most)))


def test_tasks_stay_in_the_first_executors(joins: Callable[[dict[str, int]], ElasticTasks]) -> None:
    tasks = joins({"a": 0, "b": 0, "c": 0})
    assert [chosen(tasks) for _ in range(3)] == ["aabb"] * 3
    assert chosen(tasks, most=1) == "a"


def test_an_executor_with_long_tasks_of_another_job_is_left_out(
    joins: Callable[[dict[str, int]], ElasticTasks],
) -> None:
    present = {"a": 1, "b": 0, "c": 0}
    tasks = joins(present)
    assert [chosen(tasks) for _ in range(3)] == ["aabb", "bb", "bbcc"]  # a worker starts on c meanwhile
    present |= {"b": 1, "c": 2}
    chosen(tasks)
    assert [chosen(tasks) for _ in range(3)] == ["ab"] * 3  # the slots without a task
    present |= {"a": 2, "b": 2}
    assert chosen(tasks) in ("abc", "ab")  # the tasks wait
    present |= {"a": 0, "b": 0, "c": 0}
    assert chosen(tasks) == "aabb"


def test_joins_of_one_application_have_executors_of_their_own(
    joins: Callable[[dict[str, int]], ElasticTasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    present = {"a": 0, "b": 0, "c": 0, "d": 0}
    first, second = joins(present), joins(present)
    assert chosen(first) == "aabb"
    for busy in (0, 2, 2, 0, 2):  # whether the first one runs
        present |= {"a": busy, "b": busy}
        assert chosen(second) == "ccdd"
    present |= {"a": 0, "b": 0}
    monkeypatch.setattr(executors_module, "IDLE_S", -1.0)
    assert second._executors.of_others() == frozenset()  # the first one had no stage for a while
    second._executors.close()
    second.count(9)
    assert second._executors not in executors_module._joins["fake"]


def test_a_new_executor_is_warmed_before_it_gets_tasks(joins: Callable[[dict[str, int]], ElasticTasks]) -> None:
    present = {"a": 0}
    tasks = joins(present)
    tasks._demand = Demand(4, 4, 0.0)
    warmed = threading.Event()

    def warm_up(places: Sequence[str]) -> None:
        assert warmed.wait(10)

    tasks._warm_up = warm_up
    assert chosen(tasks) == "aa"
    present["b"] = 0
    assert [chosen(tasks) for _ in range(2)] == ["aa", "aa"]
    warmed.set()
    assert tasks._warming is not None
    tasks._warming.join()
    assert chosen(tasks) == "aabb"


@pytest.fixture
def elastic(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session that joins take for one with dynamic allocation."""
    made = Executors.__init__

    def init(executors: Executors, context: object) -> None:
        made(executors, context)  # type: ignore[arg-type]
        executors.elastic = True

    monkeypatch.setattr(Executors, "__init__", init)
    monkeypatch.setattr(workers, "_attempts", lambda context: 4)
    return spark


def start(spark: SparkSession, root: Path, files: int = 1, query: eddy.Query = QUERY) -> StreamingJoinQuery:
    inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
    for file in range(files):
        for name in "RS":
            inputs.add(name, [{"k": n, "t": 100 * file + n} for n in range(20)])
    joined = join(query, inputs.frames(spark), checkpoint=root / "state", partitions=2)
    return joined.writeStream.trigger(availableNow=True).toParquet(root / "out")


def test_a_join_without_barrier_stages_is_exact(elastic: SparkSession, tmp_path: Path) -> None:
    running = start(elastic, tmp_path, files=3)
    assert running.awaitTermination(120)
    assert len(results(tmp_path / "out")) == 60
    assert set(running.batches()["tasks"].to_pylist()) == {2}


def test_too_few_slots_delay_a_micro_batch_and_do_not_stop_it(
    elastic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "MEET_S", 0.5)
    with slot_taken(elastic, tmp_path):
        running = start(elastic, tmp_path)
        assert running.awaitTermination(120)
    assert "Spark started 1 of 2 tasks in 0 s, and the batch runs again in 1" in caplog.text
    assert running.batches()["tasks"].to_pylist() == [1]
    assert len(results(tmp_path / "out")) == 20


class FailingTask(RunTask):
    """A task that fails before or after the tasks have met, once or always.

    said  a file with the failures
    how   "raise" an error of this library, or "kill" the worker
    """

    def __init__(self, said: Path, how: str, met: bool, times: int, *given: Any) -> None:
        super().__init__(*given)
        self._said, self._how, self._met, self._times = said, how, met, times

    def _fail(self) -> None:
        with self._said.open("a+") as file:
            file.seek(0)
            if len(file.read()) >= self._times:
                return
            file.write("x")
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise InputError("stream R: a test made it fail")

    def _run(self, number: int) -> TaskReport:
        if not self._met and number == 1:
            self._fail()
        return super()._run(number)

    def _join(self, engines: Engines, work: BatchTask, peers: Any, number: int, rows: Any) -> list[PartitionReport]:
        reports = super()._join(engines, work, peers, number, rows)
        if self._met and number == 1:
            self._fail()
        return reports


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("met", [False, True])
def test_a_task_that_fails_is_repeated_with_all_others(
    elastic: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
    met: bool,
) -> None:
    monkeypatch.setattr(workers, "RunTask", partial(FailingTask, tmp_path / "failed", how, met, 1))
    running = start(elastic, tmp_path, files=2)
    assert running.awaitTermination(120)
    cause = "stream R: a test made it fail" if how == "raise" else ""
    assert f"batch 0 failed and runs again: {cause}" in caplog.text
    assert len(results(tmp_path / "out")) == 40


def test_the_error_of_a_task_ends_the_join_as_it_is(
    elastic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RunTask", partial(FailingTask, tmp_path / "failed", "raise", True, 100))
    running = start(elastic, tmp_path)
    with pytest.raises(InputError, match="stream R: a test made it fail"):
        running.awaitTermination(120)
    assert (tmp_path / "failed").read_text() == "xxxx"


class FailingBesideSlow(FailingTask):
    """As a `FailingTask`, while another one works for longer than its job goes on."""

    def _join(self, engines: Engines, work: BatchTask, peers: Any, number: int, rows: Any) -> list[PartitionReport]:
        if number == 0:
            time.sleep(4 * GRACE_S)
        return super()._join(engines, work, peers, number, rows)


def test_the_error_of_a_task_is_not_lost_with_a_cancelled_job(
    elastic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RunTask", partial(FailingBesideSlow, tmp_path / "failed", "raise", True, 100))
    monkeypatch.setattr(workers, "_attempts", lambda context: 1)
    monkeypatch.setattr(elastic_tasks, "GRACE_S", 0.2)
    running = start(elastic, tmp_path)
    with pytest.raises(InputError, match="a test made it fail"):
        running.awaitTermination(120)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_groups_count_once_when_a_task_fails(
    elastic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its process, and that of the other task, may live on with the groups of the attempt that failed."""
    monkeypatch.setattr(workers, "RunTask", partial(FailingTask, tmp_path / "failed", how, True, 2))
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in "RS"]
    counts: dict[str, Any] = {"aggregates": {"n": eddy.agg.count()}, "group_window": eddy.Tumbling(10)}
    running = start(elastic, tmp_path, 4, eddy.Query(streams, ["R.k = S.k"], **counts))
    assert running.awaitTermination(120)
    assert (tmp_path / "failed").read_text() == "xx"
    rows = [row for path in (tmp_path / "out").glob("batch=*/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((row["window_start"], row["n"]) for row in rows) == [
        (100 * file + start, 10) for file in range(4) for start in (0, 10) if 100 * file + start < 310 - 5
    ]


class FailingInRound(FailingTask):
    """A task in hops that fails when it has received what others sent it, and has kept some of it."""

    def _join(self, engines: Engines, work: BatchTask, peers: Any, number: int, rows: Any) -> list[PartitionReport]:
        receive = peers.receive

        def fails(exchange: int) -> Any:
            if number == 1 and exchange == 1 and work.hops is not None and work.hops.batch == 1:
                self._fail()
            return receive(exchange)

        peers.receive = fails
        return RunTask._join(self, engines, work, peers, number, rows)


def test_what_a_task_kept_before_it_failed_is_not_used(
    elastic: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "RunTask", partial(FailingInRound, tmp_path / "failed", "raise", True, 2))
    run = HopsRun(elastic, tmp_path, "RSTU", 9, 2)
    for _ in range(4):
        run.add()
    running = run.start(placement=run.plan(), transport="packed", partitions=2)
    running.processAllAvailable()
    running.stop()
    assert caplog.text.count("failed and runs again: stream R: a test made it fail") == 2
    run.check()


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize(("executors", "slots"), [(4, 1), (2, 2)])
def test_a_join_grows_to_all_executors_and_back(tmp_path: Path, executors: int, slots: int) -> None:
    """Each executor is a JVM with a Python worker for each slot; one executor is killed at work."""
    numbers = map(str, (executors, slots))
    command = [sys.executable, "-m", "tests.spark.streaming.faults.elastic", str(tmp_path), *numbers]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr[-4000:]
    said = {name: list(map(int, values)) for name, *values in map(str.split, ended.stdout.splitlines())}
    tasks = said["tasks"]
    assert (tasks[0], max(tasks), tasks[-1]) == (slots, executors * slots, slots)
    # The engines stay in their workers while the number of tasks does, but for the executor that was killed.
    steady = [loaded for k, loaded in enumerate(said["loaded"]) if k > 1 and len(set(tasks[k - 2 : k + 1])) == 1]
    assert sum(map(bool, steady)) < len(steady) / 4
    assert_exact(tmp_path)


def assert_exact(root: Path) -> None:
    """Compare the results with those of DuckDB."""
    names = ("R", "S", "T")
    tables = ", ".join(f"read_parquet('{root}/in/{name}/*.parquet') {name}" for name in names)
    together = " and ".join(f"abs({a}.t - {b}.t) <= 400" for a, b in itertools.combinations(names, 2))
    columns = [f"{name}.{column}" for name in names for column in "kt"]
    wanted = f"select {counted(columns)} from {tables} where R.k = S.k and S.k = T.k and {together}"
    quoted = [f'"{column}"' for column in columns]
    published = f"select {counted(quoted)} from read_parquet('{root}/out/*/*.parquet')"
    with duckdb.connect() as database:
        expected = database.sql(wanted).fetchall()
        assert database.sql(published).fetchall() == expected
    assert expected[0][0] > 1_000_000


def counted(columns: list[str]) -> str:
    """Return the aggregates that tell two bags of rows apart."""
    return f"count(*), sum(hash({', '.join(columns)})::hugeint)"

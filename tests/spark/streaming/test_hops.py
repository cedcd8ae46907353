"""Streaming joins in hops: exact under every placement, through changes of it, restarts and lost workers."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from eddy import CapacityError, PlanError, Predicate, Query
from eddy.spark import SparkJoinError, explain, join
from eddy.spark.hops import measured
from eddy.spark.hops.costs import TaskCosts
from eddy.spark.streaming.driver import forecast, placement
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from tests.bench.simulated.placement.test_simulation import drawn_plan
from tests.cases import JoinCase, assert_same, feed, predicate_text, sorted_by_time
from tests.cases import results as combinations
from tests.spark.streaming.faults.traps import Trap, Traps, pass_by
from tests.spark.streaming.jobs import Inputs, results
from tests.spark.test_placement import VALUES, case_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP, SPREAD = 8, 12
"""Ticks from one micro-batch to the next, and those over which its rows lie."""


class HopsRun:
    """A join to whose streams a test adds files, one for each micro-batch, and the oracle's results."""

    def __init__(self, spark: SparkSession, root: Path, streams: str, window: int | None, seed: int) -> None:
        self.spark, self.root, self.draw = spark, root, random.Random(seed)
        self.case: JoinCase = case_of(streams, window)
        self.query = self.case.query()
        self.options: dict[str, Any] = {"partitions": 2, "key_groups": 4}
        if window is not None:
            self.options["lateness"] = SPREAD
        self.inputs = Inputs(root / "in", **{stream.name: stream.schema for stream in self.case.streams})

    def plan(self) -> dict[str, list[tuple[str, str]]]:
        """Return a plan for each head, drawn."""
        return drawn_plan(self.query, self.draw)

    def start(self, **how: Any) -> StreamingJoinQuery:
        options = {**self.options, **how}
        joined = join(self.query, self.inputs.frames(self.spark), checkpoint=self.root / "state", **options)
        return joined.writeStream.toParquet(self.root / "out")

    def add(self, each: int = 12, without: str = "", nulls: float = 0.0) -> int:
        """Add a file to each stream; return the number of rows.

        without   streams whose files have no row
        nulls     share of null keys
        """
        number = len(self.inputs.tables[self.case.streams[0].name])
        made: dict[str, list[dict[str, Any]]] = {}
        for stream in self.case.streams:
            made[stream.name] = [
                {
                    name: STEP * number + self.draw.randrange(SPREAD)
                    if name == "t"
                    else 1000 * number + k
                    if name == "n"
                    else None
                    if nulls and self.draw.random() < nulls
                    else self.draw.choice(VALUES[name])
                    for name in stream.schema.names
                }
                for k in range(0 if stream.name in without else self.draw.randrange(2 * each))
            ]
        self.inputs.add_together(made)
        return sum(map(len, made.values()))

    def batch(self, running: StreamingJoinQuery) -> dict[str, Any]:
        """Add rows and wait for them; return the metrics of the newest micro-batch, with what all new ones loaded."""
        before = running.batches().num_rows
        self.add()
        running.processAllAvailable()
        rows = running.batches().slice(before).to_pylist()
        return {**rows[-1], "loaded": sum(row["loaded"] for row in rows)}

    def check(self, least: int = 100) -> None:
        oracle = self.case.oracle()
        arrivals = [(i, row) for i, stream in enumerate(self.case.streams) for row in self.inputs.rows(stream.name)]
        joined = combinations(feed(self.case, oracle, sorted_by_time(self.case, arrivals)))
        expected = [self.case.project(oracle, combination) for combination in joined]
        assert len(expected) >= least, "the test should not be about nothing"
        assert_same(results(self.root / "out"), expected, "in hops")


@pytest.mark.campaign(1)
@pytest.mark.parametrize(
    ("streams", "window", "transport", "partitions"),
    [("RSTU", 9, "packed", 2), ("RSTU", 9, "rows", 3), ("RST", None, "packed", 1), ("RST", None, "rows", 2)],
)
def test_a_plan_by_head_gives_the_results_of_the_oracle(
    spark: SparkSession, tmp_path: Path, streams: str, window: int | None, transport: str, partitions: int
) -> None:
    run = HopsRun(spark, tmp_path, streams, window, partitions)
    for _ in range(4):
        run.add()
    running = run.start(placement=run.plan(), transport=transport, partitions=partitions)
    running.processAllAvailable()
    figures = running.batches().to_pylist()
    assert {batch["placement"] for batch in figures} == {"hops"}
    if partitions > 1:
        assert [batch["loaded"] for batch in figures] == [0] * len(figures)
        assert figures[-1]["shipped_bytes"] > 0
    nodes = running.groups().to_pylist()
    assert {node["group"] for node in nodes} == {None}
    assert {node["partition"] for node in nodes} == set(range(partitions))
    assert sum(batch["results"] for batch in figures) == len(results(tmp_path / "out"))
    running.stop()
    run.check()


def test_placements_change_while_the_join_runs_and_after_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """Each change takes effect in the next micro-batch; what is missing then comes from the log."""
    run = HopsRun(spark, tmp_path, "RSTU", 9, 5)
    running = run.start(placement="grid", partitions=2)
    placed = []
    for number in range(9):
        if number in (3, 6):
            running.stop()
            running = run.start(placement=run.plan() if number == 3 else "grid", partitions=number // 3 + 1)
        elif number in (1, 4, 7):
            running.place(run.plan())
        elif number in (2, 5):
            running.place("grid")
        elif number == 8:
            running.split(0)
        run.batch(running)
        figures = running.batches().to_pylist()[-1]
        placed.append(figures["placement"])
        cells = {place for place in running.operators()[0] if place.startswith("4 nodes")}
        assert bool(cells) == (placed[-1] == "grid"), "there are 4 key groups, and fewer nodes"
    assert placed == ["grid", "hops", "grid", "hops", "hops", "grid", "grid", "hops", "hops"]
    running.stop()
    run.check()


@pytest.mark.campaign(1)
@pytest.mark.parametrize("transport", ["packed", "rows"])
def test_micro_batches_without_rows_an_idle_stream_and_null_keys(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    """The placement changes in micro-batches without rows, and in those before and after."""
    run = HopsRun(spark, tmp_path, "RST", None, 7)
    how = {"transport": transport, "partitions": 2}
    running = run.start(placement="hops", **how)
    without = ["", "T", "RST", "T", "RST", "RST", "T", "", "RST", ""]
    changes = {0: run.plan(), 2: "grid", 3: "hops", 4: run.plan(), 5: "grid", 8: "grid", 9: "hops"}
    for number, absent in enumerate(without):
        if number in changes:
            running.place(changes[number])
        if number == 7:
            running.stop()
            running = run.start(placement=run.plan(), **how)
        run.add(without=absent, nulls=0.2)
        running.processAllAvailable()
    running.stop()
    run.check()


def test_a_start_that_asks_for_no_placement_goes_on_with_the_stored_one(spark: SparkSession, tmp_path: Path) -> None:
    run = HopsRun(spark, tmp_path, "RST", 9, 6)
    running = run.start()
    assert run.batch(running)["placement"] == "grid"
    running.place(run.plan())
    assert run.batch(running)["placement"] == "hops"
    placed = running.operators()[0]
    running.stop()
    running = run.start()
    newest = run.batch(running)
    assert newest["placement"] == "hops"
    assert running.operators()[0] == placed
    assert "a plan for each head is asked for" in running.explain()
    running.stop()
    how = {"checkpoint": tmp_path / "state", **run.options}
    assert f"begins with that of batch {newest['batch']}" in explain(run.query, run.inputs.frames(spark), **how)
    with pytest.raises(SparkJoinError, match="memory= bounds engines"):
        run.start(memory="1 GiB")
    for asked in ("grid", None):
        running = run.start(placement=asked)
        assert run.batch(running)["placement"] == "grid"
        running.stop()
    run.check(50)


def test_copies_of_windows_come_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    run = HopsRun(spark, tmp_path, "RSTU", 9, 8)
    for _ in range(2):
        run.add()
    plan = run.plan()
    running = run.start(placement=plan)
    running.processAllAvailable()
    running.forget_engines()
    assert run.batch(running)["loaded"] == 2
    assert run.batch(running)["loaded"] == 0
    running.stop()
    run.check()


def test_too_small_a_bound_of_a_node_is_an_error_and_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = HopsRun(spark, tmp_path, "RST", 9, 2)
    plan = run.plan()
    running = run.start(placement=plan, max_bytes=10_000_000)
    run.batch(running)
    running.stop()
    run.add(2000, without="ST")  # as many of each stream would make millions of results
    running = run.start(max_bytes=40_000)
    with pytest.raises(Exception, match=r"node . of a join in hops would take [\d,]+ bytes with .* of stream '[RST]'"):
        running.processAllAvailable()
    assert "max_bytes is 40,000: use shorter windows" in str(running.exception())
    assert isinstance(running._batches.problem, CapacityError)
    assert running._batches.manifest.batch == 0
    running = run.start(max_bytes=10_000_000)
    assert run.batch(running)["placement"] == "hops"
    running.stop()
    run.check()


def accepted(rows: pa.RecordBatch, *, traps: str) -> Any:
    """The filter of results: a place where workers die."""
    pass_by(Path(traps), "join")
    return pa.array([True] * len(rows))


@pytest.mark.versions
@pytest.mark.campaign(0)
def test_workers_killed_while_they_join_change_no_result(spark: SparkSession, tmp_path: Path) -> None:
    """The session gives up a batch after one failure; the next start takes it again, under another placement."""
    run = HopsRun(spark, tmp_path, "RST", 9, 4)
    where = Predicate(partial(accepted, traps=str(tmp_path)), columns=["R.n", "S.n", "T.n"])
    case = replace(run.case, where=None)
    streams = [stream.stream() for stream in case.streams]
    run.case, run.query = (
        case,
        Query(streams, [predicate_text(predicate) for predicate in case.predicates], where=where),
    )
    traps = Traps(tmp_path)
    traps.arm([Trap(0, "join", "kill", number) for number in range(4)])
    traps.at(0)
    for _ in range(5):
        run.add()
    deaths, done = 0, False
    while not done:
        running = run.start(placement="grid" if deaths == 2 else run.plan())
        try:
            running.processAllAvailable()
            done = True
        except Exception:
            deaths += 1
        finally:
            running.stop()
    assert 2 <= deaths <= 4  # two workers may die at a time
    assert not traps.left()
    run.check(50)


FREE, DEAR = TaskCosts(*[1e-15] * 7), TaskCosts(*[1.0] * 7)


def test_auto_changes_by_the_figures_while_the_join_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forecasts are forced: what rows cost is for a benchmark."""
    monkeypatch.setattr(forecast, "HOPS", FREE)
    monkeypatch.setattr(measured, "MOST_FACTOR", 1.0)
    run = HopsRun(spark, tmp_path, "RSTU", 9, 3)
    for _ in range(4):
        run.add()
    running = run.start(placement="auto")
    running.processAllAvailable()
    placed = [batch["placement"] for batch in running.batches().to_pylist()]
    assert placed == ["grid", "grid", "hops", "hops"], "one forecast is not enough"
    assert "predicted per micro-batch" in running.explain()
    stored = running._batches.manifest.extra["placement"]["costs"]
    assert stored["grid"]
    running.stop()
    running = run.start(placement="auto", partitions=3)
    assert running._batches.placing.saved(None)["costs"] == stored, "it begins with the costs that it had"
    assert run.batch(running)["placement"] == "hops", "it begins with the hops that it had"
    assert "rounds of hops over 3 nodes" in running.explain()
    monkeypatch.setattr(forecast, "HOPS", DEAR)
    monkeypatch.setattr(placement, "REST", 0)
    running.place("auto")  # it has no rest
    for _ in range(4):
        run.batch(running)
    assert running.batches()["placement"].to_pylist()[-1] == "grid"
    running.stop()
    run.check()


def test_hops_find_their_plan_from_samples(spark: SparkSession, tmp_path: Path) -> None:
    run = HopsRun(spark, tmp_path, "RST", None, 3)
    for _ in range(4):
        run.add()
    running = run.start(placement="hops", transport="rows")
    running.processAllAvailable()
    assert set(running.batches()["placement"].to_pylist()) == {"hops"}
    assert running._batches.placing._forecast is not None
    running.stop()
    run.check()


def test_what_cannot_run_in_hops_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = HopsRun(spark, tmp_path, "RST", 9, 1)
    frames, query = run.inputs.frames(spark), run.query
    compared = Query(query.streams, ["R.a = S.a", "S.b = T.b", "R.n < T.n"])

    def asked(query: Query, **how: Any) -> None:
        join(query, frames, checkpoint=tmp_path / "state", **how)

    with pytest.raises(SparkJoinError, match=r"R\.n < T\.n is no equality"):
        asked(compared, placement="hops")
    with pytest.raises(SparkJoinError, match="memory= bounds engines"):
        asked(query, placement=run.plan(), memory="1 GiB")
    with pytest.raises(SparkJoinError, match='pass "grid"'):
        asked(query, placement="rounds")
    with pytest.raises(PlanError, match="stream S has no plan"):
        asked(query, placement={"R": [("S", "ship"), ("T", "ship")]})
    how = {"checkpoint": tmp_path / "state", "partitions": 2}
    said = explain(compared, frames, placement="auto", **how)
    assert "'auto' is asked for, and R.n < T.n is no equality" in said
    assert "2 rounds of hops over 2 nodes" in explain(query, frames, placement="hops", **how)
    said = explain(query, frames, placement="auto", max_bytes=1 << 24, **how)
    assert "'auto' is asked for, and max_bytes= bounds an engine, and a node of hops takes more" in said
    run.add()
    running = run.start()
    with pytest.raises(PlanError, match="no stream 'X'"):
        running.place({"X": []})
    running.stop()

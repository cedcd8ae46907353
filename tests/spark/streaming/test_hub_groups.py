"""Queries with aggregates on a hub: each has the windows that begin after its start, once, through any crash."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy import InputError
from eddy.spark import Hub, SparkJoinError
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.sinks.base import ReplacingKey
from tests.spark.streaming.hub_jobs import (
    OLD,
    SCHEMA,
    DrawnRows,
    FailingParquet,
    Failures,
    finished,
    grouped,
    hub_of,
    query,
    results_of,
)
from tests.spark.streaming.hub_reference import HubReferenceQuery
from tests.spark.streaming.jobs import Inputs, newest_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATENESS = 60
COLUMNS = {"k": ("R", "k"), "r": ("R", "t"), "s": ("S", "t"), "v": ("S", "v")}


def windows(
    rows: DrawnRows, size: int, start: int, stop: int | None = None, *, warm: bool = False, ranges: dict[str, int] = OLD
) -> Counter[tuple[Any, ...]]:
    """Return the rows of the windows of a version, by nested loops.

    start, stop   the first micro-batch of the version, and the first one after it; None = it goes on
    """
    batches = rows.batches
    count = len(batches["R"])
    last = count if stop is None else stop
    newest = [max(row["t"] for number in range(last) for row in batches[name][number]) for name in "RS"]
    watermark = min(newest) - LATENESS
    after = rows.greatest(start)
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for first, latest, (k, r, s, v) in HubReferenceQuery(ranges, COLUMNS).matches(batches):
        begin = max(r, s) // size * size
        if (latest if warm else first) >= start and latest < last and begin > after and begin + size <= watermark:
            groups[k, begin].append(v)
    return Counter((k, begin, begin + size, len(vs), sum(vs)) for (k, begin), vs in groups.items())


def test_windows_are_those_of_the_nested_loop_through_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 3, "RS")

    def run(*, again: bool) -> Hub:
        for _ in range(4):
            rows.add(25)
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
        hub.start("first", grouped(10), tmp_path / "first")
        hub.start("later", grouped(15), tmp_path / "later", at=None if again else 2)
        hub.start("warm", grouped(15), tmp_path / "warm", warm=True, at=None if again else 2)
        hub.start("pairs", query(OLD), tmp_path / "pairs")
        hub.start("changed", grouped(20 if again else 10), tmp_path / "changed", how="immediate")
        if not again:
            hub.start("stopped", grouped(10), tmp_path / "stopped").stop(at=3)
        finished(hub.run(availableNow=True))
        return hub

    hub = run(again=False)
    assert hub["first"].complete_from is None
    assert hub["later"].complete_from == max(
        row["t"] for name in "RS" for n in range(2) for row in rows.batches[name][n]
    )
    hub = run(again=True)
    hub = run(again=True)
    wanted = {
        "first": windows(rows, 10, 0),
        "later": windows(rows, 15, 2),
        "warm": windows(rows, 15, 2, warm=True),
        "changed": windows(rows, 10, 0, 4) + windows(rows, 20, 4),
    }
    for name, counts in wanted.items():
        assert results_of(tmp_path / name) == counts, name
        assert len(counts) > 10
    assert hub["first"].results == (windows(rows, 10, 0) - windows(rows, 10, 0, 8)).total()
    assert not results_of(tmp_path / "stopped") - windows(rows, 10, 0, 3)
    # The groups of ended versions are gone.
    kept = set(newest_manifest(tmp_path / "state").operators)
    assert kept >= {"first/0", "later/0", "changed/1"}
    assert "changed/0" not in kept


def test_a_crash_at_any_step_counts_each_result_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails before and after the commit, and around the publication; a hub starts anew each time."""
    rows = DrawnRows(tmp_path / "in", 5, "RS")
    for _ in range(9):
        rows.add(25)
    failures = Failures(monkeypatch)
    for failures.place in ("commit", "before one", "mark", "commit", "after one", "mark", ""):
        hub = hub_of(spark, rows.inputs, tmp_path / "state")
        hub.start("one", grouped(10), FailingParquet(tmp_path / "one", failures))
        hub.start("two", grouped(15, {"R": 45, "S": 40}), tmp_path / "two")
        failures.end(hub.run(availableNow=True))
    assert results_of(tmp_path / "one") == windows(rows, 10, 0)
    assert results_of(tmp_path / "two") == windows(rows, 15, 0, ranges={"R": 45, "S": 40})


def test_groups_that_fail_are_kept_with_the_name_of_their_query(spark: SparkSession, tmp_path: Path) -> None:
    inputs, end = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA), {"k": 2, "t": 200, "v": 0}
    inputs.add("R", [{"k": 1, "t": 1, "v": 0}, {"k": 0, "t": 1, "v": 0}, end])
    inputs.add("S", [*({"k": 1, "t": 1, "v": 2**62} for _ in range(3)), {"k": 0, "t": 2, "v": 5}, end])
    for restart in range(2):
        hub = hub_of(spark, inputs, tmp_path / "state")
        hub.start("sums", grouped(10), tmp_path / "sums")
        hub.start("changed", grouped(10 + 10 * restart), tmp_path / "changed", how="immediate")
        running = finished(hub.run(availableNow=True))
        inputs.add("R", [end])
    failed = [(row["query"], row["kind"]) for row in running.failed().collect()]
    assert sorted(failed) == [("changed", "aggregate"), ("sums", "aggregate")]
    assert results_of(tmp_path / "sums") == {(0, 0, 10, 1, 5): 1}


class KeyedParquet(ParquetSink):
    """A sink whose rows replace each other by the key of groups."""

    def replaces_by(self, schema: pa.Schema) -> ReplacingKey | None:
        return ReplacingKey(("k", "window_start"), "a table")


class RestartedHub:
    """A hub that starts anew on one checkpoint, with rows of two streams."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.rows = spark, root, DrawnRows(root / "in", 11, "RS")

    def hub(self, batches: int = 0) -> Hub:
        """Return a hub, after more rows have come."""
        for _ in range(batches):
            self.rows.add(25)
        return hub_of(self.spark, self.rows.inputs, self.root / "state", keep=60)

    def sink(self, failures: Failures | None = None, name: str = "q") -> ParquetSink:
        return ParquetSink(self.root / name) if failures is None else FailingParquet(self.root / name, failures)

    def results(self, name: str = "q") -> Counter[tuple[Any, ...]]:
        return results_of(self.root / name)


@pytest.mark.parametrize("change", ["change", "restart"])
def test_a_change_that_no_manifest_names_leaves_the_groups(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    failures, job = Failures(monkeypatch), RestartedHub(spark, tmp_path)
    hub = job.hub(3)
    hub.start("q", grouped(10), job.sink())
    finished(hub.run(availableNow=True))
    hub = job.hub(3)
    handle = hub.start("q", grouped(10), job.sink())
    if change == "change":
        handle.change(grouped(20), how="immediate")
    else:
        handle.restart()
    failures.place = "commit"
    failures.end(hub.run(availableNow=True))
    hub = job.hub()
    hub.start("q", grouped(10), job.sink())
    finished(hub.run(availableNow=True))
    assert job.results() == windows(job.rows, 10, 0)


def test_groups_of_an_unpublished_batch_need_their_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, job = Failures(monkeypatch), RestartedHub(spark, tmp_path)
    hub = job.hub(5)
    hub.start("q", grouped(10), job.sink(failures))
    failures.place = "before q"
    failures.end(hub.run(availableNow=True))
    hub = job.hub()
    hub.start("q", grouped(20), job.sink(), how="immediate")
    for _ in range(2):
        with pytest.raises(SparkJoinError, match="its results of batch 1 are not published, and the groups need the"):
            hub.run(availableNow=True)
    hub = job.hub()
    hub.start("q", grouped(10), job.sink())
    finished(hub.run(availableNow=True))
    assert job.results() == windows(job.rows, 10, 0)


@pytest.mark.parametrize("asked", [grouped(10), query(OLD)])
def test_a_query_that_was_dropped_starts_anew(spark: SparkSession, tmp_path: Path, asked: eddy.Query) -> None:
    job = RestartedHub(spark, tmp_path)
    hub = job.hub(2)
    hub.start("q", asked, job.sink())
    finished(hub.run(availableNow=True))
    hub = job.hub(5)
    hub.drop("q")
    again = hub.start("q", asked, job.sink(name="again"))
    finished(hub.run(availableNow=True))
    assert job.results("again").total() == again.results > 0
    if asked.aggregation is not None:
        assert job.results("again") == windows(job.rows, 10, 2)


def test_two_starts_of_one_name_have_their_own_sinks(spark: SparkSession, tmp_path: Path) -> None:
    job = RestartedHub(spark, tmp_path)
    hub = job.hub(8)
    hub.start("q", grouped(10), job.sink()).stop(at=4)
    second = hub.start("q", grouped(15), job.sink(name="second"), at=5)
    finished(hub.run(availableNow=True))
    assert job.results() == windows(job.rows, 10, 0, 4)
    assert job.results("second") == windows(job.rows, 15, 5)
    assert second.results == job.results().total() + job.results("second").total() > 0


def test_other_columns_and_positions_are_refused_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    job = RestartedHub(spark, tmp_path)
    least = grouped(10, aggregates={"least": eddy.agg.min("S.v")})
    columns = eddy.Query(query(OLD).streams, ["R.k = S.k"], select={"k": "R.k"})
    hub = job.hub(2)
    hub.start("groups", grouped(10), job.sink(name="groups"))
    hub.start("pairs", columns, job.sink(name="pairs"))
    finished(hub.run(availableNow=True))
    told = "and those of the old one k int64, window_start int64, window_end int64, n int64, total"
    for groups, pairs, old in (
        (least, columns, told),
        (columns, columns, told),
        (grouped(10), least, "old one k int64;"),
    ):
        hub = job.hub()
        hub.start("groups", groups, job.sink(name="groups"), how="immediate")
        hub.start("pairs", pairs, job.sink(name="pairs"), how="immediate")
        with pytest.raises(eddy.QueryError, match=old):
            hub.run(availableNow=True)
    hub = job.hub()
    hub.start("groups", grouped(20), job.sink(name="groups"), how="immediate", at=9)
    hub.start("pairs", columns, job.sink(name="pairs"))
    with pytest.raises(SparkJoinError, match="'immediate' ends it with the next micro-batch: leave them out"):
        hub.run(availableNow=True)


def test_an_error_of_a_sink_names_the_sink_and_the_query(spark: SparkSession, tmp_path: Path) -> None:
    class Full(ParquetSink):
        def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
            raise ValueError("disk")

    job = RestartedHub(spark, tmp_path)
    hub = job.hub(1)
    hub.start("sums", grouped(10), Full(tmp_path / "sums"))
    with pytest.raises(Exception, match="the sink Full of query 'sums' failed in batch 0: ValueError: disk"):
        hub.run(availableNow=True).awaitTermination(120)


def test_what_groups_of_a_hub_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 7, "RS")
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    with pytest.raises(InputError, match="a warm start has no meaning for groups and first rows of all results"):
        hub.start("q", grouped(10, group_window=None), tmp_path / "q", warm=True)
    groups = hub.start("q", grouped(10), tmp_path / "q")
    pairs = hub.start("pairs", query(OLD), tmp_path / "pairs")
    for call in (
        lambda: groups.stop("drain"),
        lambda: groups.change(grouped(20), how="handover"),
        lambda: groups.change(grouped(20), how="drain-stream"),
    ):
        with pytest.raises(InputError, match="has no meaning for a query with aggregates or top on a hub"):
            call()
    with pytest.raises(eddy.QueryError, match="the results of the new version have the columns"):
        pairs.change(grouped(10), how="immediate")
    names = {"k": "R.k", "window_start": "R.t", "window_end": "S.t", "n": "S.v", "total": "R.v"}
    same = eddy.Query(query(OLD).streams, ["R.k = S.k"], select=names)
    drained = hub.start("drained", same, tmp_path / "drained")
    drained.stop("drain", at=3)
    for how in ("drain-stream", "delayed-drain", "handover", "graceful"):
        with pytest.raises(InputError, match="has no meaning for a query with aggregates or top on a hub"):
            drained.change(grouped(10), how=how, at=4)  # type: ignore[arg-type]
    keyed = hub.start("keyed", grouped(10), KeyedParquet(tmp_path / "keyed"), at=5)
    with pytest.raises(SparkJoinError, match="a table"):
        keyed.change(same, how="immediate", at=6)
    groups.change(grouped(20), how="immediate")
    groups.restart()
    groups.stop()

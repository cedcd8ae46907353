"""A hub after restarts and crashes: elements and rows are those of the checkpoint, and each element counts once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eddy
from eddy import QueryError
from eddy.spark import Hub, SparkJoinError
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.recovery import recover
from tests.spark.streaming.hub_jobs import (
    NEW,
    OLD,
    SCHEMA,
    DrawnRows,
    FailingParquet,
    Failures,
    asked,
    expected,
    finished,
    hub_of,
    query,
    results_of,
)
from tests.spark.streaming.hub_reference import HubReferenceVersion
from tests.spark.streaming.jobs import Inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_log_keeps_rows_of_the_first_micro_batch_for_the_versions_that_start_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The sources keep no rows of their own accord, and the watermark passes the row of R with its micro-batch."""
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    end = {"k": 1, "t": 200, "v": 0}

    def run(rows: dict[str, list[dict[str, int]]]) -> None:
        for name, stream_rows in rows.items():
            inputs.add(name, stream_rows)
        hub = hub_of(spark, inputs, tmp_path / "state", key_groups=64)
        hub.start("pairs", query({"R": 300, "S": 300}), tmp_path / "pairs")
        finished(hub.run(availableNow=True))

    run({"R": [{"k": 0, "t": 1, "v": 7}, end], "S": [end]})
    run({"R": [], "S": [{"k": 0, "t": 201, "v": 8}]})
    assert results_of(tmp_path / "pairs")[(0, 7, 8)] == 1


def test_a_restart_resumes_or_changes_by_a_stated_kind(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 3)
    state = tmp_path / "state"

    def run(hub: Hub) -> Hub:
        for _ in range(3):
            rows.add(20)
        finished(hub.run(availableNow=True))
        return hub

    def started(*names: str) -> Hub:
        hub = hub_of(spark, rows.inputs, state, keep=60)
        for name in names:
            hub.start(name, query(OLD), tmp_path / name)
        return hub

    hub = started("same", "moved", "drains", "gone")
    hub.start("bounded", query(OLD), tmp_path / "bounded").stop("drain", at=2)
    run(hub)  # batches 0 to 2
    with pytest.raises(SparkJoinError, match=r"has the query 'gone', which was not started again: .* or drop it"):
        started("same", "moved", "drains", "bounded").run(availableNow=True)
    hub = started("same", "drains", "gone", "bounded")
    hub.start("moved", query(NEW), tmp_path / "moved")
    with pytest.raises(SparkJoinError, match=r"'moved' is another one than in the checkpoint \(stream R, window"):
        hub.run(availableNow=True)
    hub = started("same", "bounded")
    hub.drop("gone")
    hub.start("moved", query(NEW), tmp_path / "moved", how="handover")
    hub.start("drains", query(NEW), tmp_path / "drains", how="drain-stream")
    with pytest.raises(SparkJoinError, match=r"version 0 has results to come: pass its query in earlier=\[…\]"):
        hub.run(availableNow=True)
    hub = started("same", "bounded")
    hub.drop("gone")
    hub.start("moved", query(NEW), tmp_path / "moved", how="handover")
    hub.start("drains", query(NEW), tmp_path / "drains", how="drain-stream", earlier=[query(OLD)])
    run(hub)  # 3 to 5
    assert [hub[name].state for name in ("same", "moved", "drains")] == ["running", "running", "changing"]
    hub = started("same")
    # What was said once may be said again.
    hub.start("moved", query(NEW), tmp_path / "moved", how="handover")
    hub.start("drains", query(NEW), tmp_path / "drains", how="drain-stream", earlier=[query(OLD)])
    if "bounded" in saved_lineages(state):
        hub.start("bounded", query(OLD), tmp_path / "bounded")
    run(hub)  # 6 to 8
    versions = {
        "same": [HubReferenceVersion(asked(OLD))],
        "moved": [HubReferenceVersion(asked(OLD), stop=3), HubReferenceVersion(asked(NEW), start=3, warm=True)],
        "drains": [HubReferenceVersion(asked(OLD), drain=3), HubReferenceVersion(asked(NEW), start=3)],
        "bounded": [HubReferenceVersion(asked(OLD), drain=2)],
        "gone": [HubReferenceVersion(asked(OLD), stop=3)],
    }
    for name, query_versions in versions.items():
        assert results_of(tmp_path / name) == expected(rows.batches, *query_versions), name
    other = hub_of(spark, rows.inputs, state)
    other.start("same", eddy.Query(query(OLD).streams, ["R.k = S.k"]), tmp_path / "same", how="handover")
    other.start("moved", query(NEW), tmp_path / "moved")
    other.start("drains", query(NEW), tmp_path / "drains", earlier=[query(OLD)])
    with pytest.raises(QueryError, match="the results of the new version have the columns"):
        other.run(availableNow=True)


def saved_lineages(state: Path) -> list[str]:
    """Return the queries of the newest manifest."""
    manifest = recover(Checkpoint(state))
    assert manifest is not None
    return list(manifest.extra["hub"]["lives"])


def test_a_crash_at_any_step_repeats_the_elements_of_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails before and after the commit, and between two publications; a hub starts anew each time."""
    rows = DrawnRows(tmp_path / "in", 5, "RS")
    for _ in range(9):
        rows.add(25)
    failures, starts = Failures(monkeypatch), []
    for failures.place in ("commit", "after one", "mark", "commit", "after two", "mark", ""):
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
        number = len(starts)
        first, second = (FailingParquet(tmp_path / name, failures) for name in ("one", "two"))
        # Each start asks for the next change of "one"; "two" changes once, by a drain.
        hub.start("one", query({"R": 30 + number, "S": 20}), first, how="handover")
        hub.start("two", query(NEW if number > 2 else OLD), second, how="drain-stream", earlier=[query(OLD)])
        failures.end(hub.run(availableNow=True))
        starts.append({(element["query"], element["event"]): element["batch"] for element in hub.history().to_pylist()})
    # A start that failed before its first micro-batch has changed nothing; a micro-batch that was not committed is
    # replayed with the change of the next start.
    changes = {0: 0}
    for number, start in enumerate(starts):
        if ("one", "handover change") in start:
            changes[start["one", "handover change"]] = number
    bounds = sorted(changes)
    assert len(bounds) > 3
    versions = [
        HubReferenceVersion(asked({"R": 30 + changes[begin], "S": 20}), start=begin, warm=begin > 0, stop=end)
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True)
    ]
    assert results_of(tmp_path / "one") == expected(rows.batches, *versions)
    changed = [start["two", "drain-stream change"] for start in starts if ("two", "drain-stream change") in start]
    two = [HubReferenceVersion(asked(OLD), drain=changed[-1]), HubReferenceVersion(asked(NEW), start=changed[-1])]
    assert results_of(tmp_path / "two") == expected(rows.batches, *two)


def test_elements_that_no_manifest_names_are_lost_with_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """Those that wait when the driver ends have no effect on the next start, which may give them again."""
    rows = DrawnRows(tmp_path / "in", 7, "RS")
    for _ in range(2):
        rows.add(30)
    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    first = hub.start("first", query(OLD), tmp_path / "first")
    first.change(query(NEW), how="immediate", at=2)
    first.stop(at=4)
    later = hub.start("later", query(OLD), tmp_path / "later", at=2)
    finished(hub.run(availableNow=True))
    assert (first.waiting, later.waiting, first.state, later.state) == (2, 1, "running", "scheduled")
    for _ in range(2):
        rows.add(30)
    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    first = hub.start("first", query(OLD), tmp_path / "first")  # the query of the checkpoint; "later" is not in it
    finished(hub.run(availableNow=True))
    assert (first.waiting, first.state, list(hub.queries)) == (0, "running", ["first"])
    assert hub.history().num_rows == 0
    rows.add(30)
    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    first = hub.start("first", query(OLD), tmp_path / "first")
    first.stop()  # given again, it takes effect with the next micro-batch
    finished(hub.run(availableNow=True))
    assert [(element["batch"], element["event"]) for element in hub.history().to_pylist()] == [(4, "immediate stop")]
    assert results_of(tmp_path / "first") == expected(rows.batches, HubReferenceVersion(asked(OLD), stop=4))
    assert not list((tmp_path / "later").glob("batch=*"))

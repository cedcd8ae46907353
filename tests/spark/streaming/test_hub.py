"""Several queries on one hub: each has the results of its versions, each once, and the log has each row once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eddy
from eddy import InputError, QueryError
from eddy.spark import Hub, Source, SparkJoinError
from eddy.spark.streaming.driver.sheet import join_sheet
from eddy.spark.streaming.hub.hub import KINDS
from eddy.spark.streaming.sinks import DeltaSink, ParquetSink
from eddy.spark.streaming.state import compaction
from tests.spark.streaming.hub_jobs import (
    COLUMNS,
    NEW,
    OLD,
    SCHEMA,
    Acting,
    DrawnRows,
    asked,
    expected,
    finished,
    hub_of,
    query,
    results_of,
)
from tests.spark.streaming.hub_reference import Batches, HubReferenceQuery, HubReferenceVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.versions
@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_queries_have_their_results_and_the_log_has_each_row_once(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    rows = DrawnRows(tmp_path / "in", 1)
    for _ in range(4):
        rows.add()
    hub = hub_of(spark, rows.inputs, tmp_path / "state", transport=transport)
    queries: dict[str, tuple[dict[str, int], int]] = {
        "pairs": ({"R": 30, "S": 20}, 0),
        "wide": ({"R": 50, "S": 50}, 40),
        "all": ({"R": 25, "S": 40, "T": 15}, 0),
    }
    for name, (ranges, least) in queries.items():
        hub.start(name, query(ranges, least), tmp_path / name)
    running = finished(hub.run(availableNow=True))
    for name, (ranges, least) in queries.items():
        wanted = expected(rows.batches, HubReferenceVersion(asked(ranges, least)))
        assert results_of(tmp_path / name) == wanted, name
        assert hub[name].results == wanted.total() > 30
    with pytest.raises(SparkJoinError, match="a hub runs in one round"):
        running.place("hops")
    figures = running.batches().to_pylist()
    assert sum(batch["rows"] for batch in figures) == 4 * 3 * 30
    assert sum(batch["results"] for batch in figures) == sum(hub[name].results for name in queries)
    assert hub[name].state == "running"
    assert f"  pairs: running, {hub['pairs'].results:,} results, Query(" in repr(hub)
    assert f"{sum(hub[name].results for name in queries):,} results" in repr(running)
    assert f">{hub['pairs'].results:,}<" in hub._repr_html_()
    (table,) = (candidate for candidate in join_sheet("hub", running._batches).tables if candidate.title == "Queries")
    assert {row[0]: row[3] for row in table.rows} == {name: hub[name].results for name in queries}


CHANGED = 3


def first_result(batches: Batches, new: HubReferenceQuery) -> int:
    """Return the first micro-batch with a result of rows from the change on."""
    return min(last for first, last, _ in new.matches(batches) if first >= CHANGED)


class Forgetful(ParquetSink):
    """Lets the workers forget their engines after each micro-batch."""

    act: Callable[[int], None] = staticmethod(lambda batch: None)

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        type(self).act(batch)


@pytest.mark.campaign(1)
@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_changes_of_all_kinds(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live engines and engines from the log, which compaction has rewritten, have the same results."""
    rows = DrawnRows(tmp_path / "in", 2)
    for _ in range(11):
        rows.add(20)
    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    for kind in KINDS:
        handle = hub.start(kind, query(OLD), Forgetful(tmp_path / kind) if kind == "handover" else tmp_path / kind)
        handle.change(query(NEW, 30), how=kind, at=CHANGED)
        assert (handle.state, handle.waiting) == ("scheduled", 2)
    hub.start("stopped", query(OLD), tmp_path / "stopped").stop(at=5)
    hub.start("drained", query(OLD), tmp_path / "drained").stop("drain", at=CHANGED)
    hub.start("later", query(NEW), tmp_path / "later", at=4)
    hub.start("warm", query({"R": 40, "S": 40, "T": 10}), tmp_path / "warm", at=4, warm=True)
    if engines == "loaded":
        monkeypatch.setattr(compaction, "MERGED", 2)
    running = hub.run(availableNow=True)
    with pytest.raises(SparkJoinError, match="key group 0 cannot be divided into fragments: the queries of a hub"):
        running.fragment(0)
    if engines == "loaded":
        monkeypatch.setattr(Forgetful, "act", staticmethod(lambda batch: running.forget_engines()))
    finished(running)
    events = {(e["query"], e["version"], e["event"]): e["batch"] for e in hub.history().to_pylist()}
    old, new = asked(OLD), asked(NEW, 30)
    begun = events["delayed-drain", 1, "fresh start"]
    assert CHANGED < begun < 10
    first = first_result(rows.batches, new)
    versions: dict[str, list[HubReferenceVersion]] = {
        "immediate": [HubReferenceVersion(old, stop=CHANGED), HubReferenceVersion(new, start=CHANGED)],
        "delayed-drain": [HubReferenceVersion(old, drain=CHANGED), HubReferenceVersion(new, start=begun)],
        "drain-stream": [HubReferenceVersion(old, drain=CHANGED), HubReferenceVersion(new, start=CHANGED)],
        "graceful": [HubReferenceVersion(old, stop=first), HubReferenceVersion(new, start=CHANGED)],
        "graceful-drain": [HubReferenceVersion(old, drain=first), HubReferenceVersion(new, start=CHANGED)],
        "handover": [HubReferenceVersion(old, stop=CHANGED), HubReferenceVersion(new, start=CHANGED, warm=True)],
        "stopped": [HubReferenceVersion(old, stop=5)],
        "drained": [HubReferenceVersion(old, drain=CHANGED)],
        "later": [HubReferenceVersion(asked(NEW), start=4)],
        "warm": [HubReferenceVersion(asked({"R": 40, "S": 40, "T": 10}), start=4, warm=True)],
    }
    assert set(versions) == {*KINDS, "stopped", "drained", "later", "warm"}
    for name, query_versions in versions.items():
        assert results_of(tmp_path / name) == expected(rows.batches, *query_versions), name
        assert hub[name].state == ("stopped" if name in ("stopped", "drained") else "running"), name
    assert events["drained", 0, "end"] == begun
    sources = running.groups()["source"].to_pylist()
    assert (sources.count("loaded") > 20) == (engines == "loaded")
    assert running.compaction_problem is None
    assert engines == "live" or list((tmp_path / "state" / "log").glob("*-base-*"))
    # The watermark was below zero when they began.
    assert all((hub[name].complete_from or 0) < 0 for name in ("warm", "handover"))


def test_an_element_takes_effect_with_the_next_micro_batch_or_an_event_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = DrawnRows(tmp_path / "in", 4, "RS")
    for _ in range(10):
        rows.add(30)

    def act(batch: int) -> None:
        if batch == 1:
            hub["first"].change(query(NEW), how="immediate")
            hub.start("second", query(NEW), tmp_path / "second", warm=True)
            timed.stop(at_time=80)
            third.stop(at=3)
            third.change(query(NEW), how="delayed-drain", at=6)
            third.restart(at=8)
            with pytest.raises(InputError, match="at=1 is no micro-batch to come; the next one is 2"):
                hub["first"].stop(at=1)
        if batch == 4:
            hub["second"].stop()
            with pytest.raises(InputError, match="'second' has stopped, or is to stop"):
                hub["second"].stop("drain")
            hub.start("second", query(OLD), tmp_path / "again")

    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    hub.start("first", query(OLD), Acting(tmp_path / "first", act))
    timed = hub.start("timed", query(OLD), tmp_path / "timed")
    third = hub.start("third", query(OLD), tmp_path / "third")
    finished(hub.run(availableNow=True))
    events = {(element["query"], element["event"]): element["batch"] for element in hub.history().to_pylist()}
    # Elements of a micro-batch are given while its results are published.
    assert events["first", "immediate change"] == events["second", "warm start"] == 2
    assert events["second", "immediate stop"] == events["second", "fresh start"] == 5
    # The watermark is that of the greatest times of both streams, less 60.
    greatest = [min(max(row["t"] for row in batches[i]) for batches in rows.batches.values()) for i in range(10)]
    assert events["timed", "immediate stop"] == next(i + 1 for i, most in enumerate(greatest) if most - 60 >= 80)
    versions = {
        "first": [HubReferenceVersion(asked(OLD), stop=2), HubReferenceVersion(asked(NEW), start=2)],
        "second": [HubReferenceVersion(asked(NEW), start=2, warm=True, stop=5)],
        "again": [HubReferenceVersion(asked(OLD), start=5)],
        "timed": [HubReferenceVersion(asked(OLD), stop=events["timed", "immediate stop"])],
        "third": [
            HubReferenceVersion(asked(OLD), stop=3),
            HubReferenceVersion(asked(NEW), start=6, stop=8),
            HubReferenceVersion(asked(NEW), start=8),
        ],
    }
    for name, query_versions in versions.items():
        assert results_of(tmp_path / name) == expected(rows.batches, *query_versions), name


def test_queries_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 6)
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    by_value = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"]
    counted = [eddy.Stream(name, SCHEMA, window=eddy.Rows(9), time="t") for name in "RS"]
    versioned = eddy.VersionedTable("S", SCHEMA, key="k", time="t")
    other = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RX"]
    refused: list[tuple[eddy.Query, str]] = [
        (eddy.Query(by_value, ["R.k = S.v"]), r"do not make the keys of its streams equal \(R.k, S.k\).* add the equa"),
        (eddy.Query(counted, ["R.k = S.k"]), "'R': a Rows window counts rows in order of arrival"),
        (eddy.Query(other, ["R.k = X.k"]), "no stream 'X'"),
        (eddy.Query(by_value, ["R.k = S.k"], lateness=5), "lateness belongs"),
        (eddy.Query(by_value[:1], branches=[eddy.Branch(by_value[1:], ["R.k = S.v"], "anti")]), "keys of its streams"),
        (eddy.Query([*by_value[:1], eddy.Table("S", SCHEMA, key="k", version="t")], ["R.k = S.k"]), "is a stream of"),
        (
            eddy.Query(by_value[:1], as_of=[eddy.AsOf(versioned, ["R.k = S.k"])]),
            "is a stream of the hub, and a versioned table",
        ),
        (
            eddy.Query([eddy.Stream("R", SCHEMA), eddy.Stream("S", eddy.Query(by_value[:1]))], ['R.k = S."R.k"']),
            "of a query",
        ),
    ]
    for wrong, message in refused:
        with pytest.raises(QueryError, match=message):
            hub.start("wrong", wrong, tmp_path / "out")
    for how in ("drain-query", "none"):
        with pytest.raises(InputError, match="how is one of"):
            hub.start("wrong", query(OLD), tmp_path / "out", how=how)  # type: ignore[arg-type]
    for name in ("", "a/b", ".x", "a b"):
        with pytest.raises(InputError, match="name of a query"):
            hub.start(name, query(OLD), tmp_path / "out")
    with pytest.raises(SparkJoinError, match=r"can have one key .*; add to it columns that identify a row of stream S"):
        hub.start("keyed", query(OLD), DeltaSink(tmp_path / "keyed", key="k, r"))
    handle = hub.start("one", query(OLD), tmp_path / "one")
    with pytest.raises(InputError, match="'one' runs, or is to start"):
        hub.start("one", query(OLD), tmp_path / "other")
    with pytest.raises(QueryError, match="the results of the new version have the columns"):
        handle.change(eddy.Query(by_value, ["R.k = S.k"]))
    endless = [eddy.Stream("R", SCHEMA, time="t"), eddy.Stream("S", SCHEMA, window=eddy.Range(9), time="t")]
    kept = hub.start("kept", eddy.Query(endless, ["R.k = S.k"], select=COLUMNS), tmp_path / "kept")
    with pytest.raises(InputError, match="the drain would never end"):
        kept.stop("drain")
    assert "wrong" not in hub.queries
    for stream, key, message in (
        (eddy.Stream("S", SCHEMA, time="t"), "x", "its key 'x' is no column"),
        (eddy.Stream("S", SCHEMA), "k", "no time column"),
        (eddy.Stream("S", SCHEMA, time="t", window=eddy.Rows(3)), "k", "is a Range or Unbounded"),
        (eddy.Stream("S", SCHEMA, time="t", late="keep"), "k", "leave late out: a hub only counts late rows"),
    ):
        frames = rows.inputs.frames(spark)
        first = Source(eddy.Stream("R", SCHEMA, time="t"), frames["R"], "k")
        with pytest.raises(SparkJoinError, match=message):
            Hub(spark, [first, Source(stream, frames["S"], key)], tmp_path / "state")

"""Several queries on one hub: each has the results of its versions, each once, and the log has each row once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import InputError, QueryError
from eddy.spark import Hub, Source, SparkJoinError
from eddy.spark.streaming.driver.sheet import join_sheet
from eddy.spark.streaming.hub.hub import KINDS
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.recovery import recover
from tests.spark.streaming.hub_reference import Asked, Batches, Owned
from tests.spark.streaming.jobs import Inputs, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
COLUMNS = {"k": "R.k", "r": "R.v", "s": "S.v"}


def asked(ranges: dict[str, int], least: int = 0) -> Asked:
    keep = (lambda row: row["v"] >= least) if least else (lambda row: True)
    return Asked(ranges, {name: tuple(place.split(".")) for name, place in COLUMNS.items()}, keep)  # type: ignore[misc]


def query(ranges: dict[str, int], least: int = 0, **more: Any) -> eddy.Query:
    """Return the query of `asked` with the same arguments."""
    keep = pc.field("v") >= least if least else None
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(d), time="t", filter=keep) for n, d in ranges.items()]
    names = list(ranges)
    on = [f"{left}.k = {right}.k" for left, right in pairwise(names)]
    return eddy.Query(streams, on, select=COLUMNS, **more)


def hub_of(spark: SparkSession, inputs: Inputs, checkpoint: Path, keep: int | None = None, **how: Any) -> Hub:
    window = None if keep is None else eddy.Range(keep)
    sources = [
        Source(eddy.Stream(name, SCHEMA, window=window, time="t"), inputs.frame(spark, name), key="k")
        for name in inputs.schemas
    ]
    how.setdefault("key_groups", 4)
    return Hub(spark, sources, checkpoint, lateness=60, **how)


class Rows:
    """Inputs that are drawn from a seed, with the rows of each micro-batch."""

    def __init__(self, root: Path, seed: int, names: str = "RST") -> None:
        self.inputs = Inputs(root, **dict.fromkeys(names, SCHEMA))
        self.chance = random.Random(seed)
        self.batches: dict[str, list[list[dict[str, int]]]] = {name: [] for name in names}

    def add(self, rows: int = 30) -> None:
        """Add a file to each stream: one micro-batch."""
        for name, batches in self.batches.items():
            begin = 20 * len(batches)
            batches.append(
                [
                    {
                        "k": self.chance.randrange(6),
                        "t": begin + self.chance.randrange(30),
                        "v": self.chance.randrange(99),
                    }
                    for _ in range(rows)
                ]
            )
            self.inputs.add(name, batches[-1])


def found(out: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in published(out).to_pylist())


def expected(batches: Batches, *versions: Owned) -> Counter[tuple[Any, ...]]:
    return sum((one.results(batches) for one in versions), Counter())


def finished(running: StreamingJoinQuery) -> StreamingJoinQuery:
    assert running.awaitTermination(120), "it did not end"
    return running


@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_queries_have_their_results_and_the_log_has_each_row_once(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    rows = Rows(tmp_path / "in", 1)
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
        wanted = expected(rows.batches, Owned(asked(ranges, least)))
        assert found(tmp_path / name) == wanted, name
        assert hub[name].results == wanted.total() > 30
    with pytest.raises(SparkJoinError, match="a hub runs in one round"):
        running.place("hops")
    figures = running.batches().to_pylist()
    assert sum(one["rows"] for one in figures) == 4 * 3 * 30
    assert sum(one["results"] for one in figures) == sum(hub[name].results for name in queries)
    assert hub[name].state == "running"
    assert f"  pairs: running, {hub['pairs'].results:,} results, Query(" in repr(hub)
    assert f"{sum(hub[name].results for name in queries):,} results" in repr(running)
    assert f">{hub['pairs'].results:,}<" in hub._repr_html_()
    (table,) = (one for one in join_sheet("hub", running._batches).tables if one.title == "Queries")
    assert {row[0]: row[3] for row in table.rows} == {name: hub[name].results for name in queries}


OLD, NEW = {"R": 30, "S": 20}, {"R": 45, "S": 40}
CHANGED = 3


def first_result(batches: Batches, new: Asked) -> int:
    """Return the first micro-batch with a result of rows from the change on."""
    return min(last for first, last, _ in new.matches(batches) if first >= CHANGED)


class Forgetful(ParquetSink):
    """Lets the workers forget their engines after each micro-batch."""

    act: Callable[[int], None] = staticmethod(lambda batch: None)

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        type(self).act(batch)


@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_changes_of_all_kinds(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live engines and engines from the log, which compaction has rewritten, have the same results."""
    rows = Rows(tmp_path / "in", 2)
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
    versions: dict[str, list[Owned]] = {
        "immediate": [Owned(old, stop=CHANGED), Owned(new, start=CHANGED)],
        "delayed-drain": [Owned(old, drain=CHANGED), Owned(new, start=begun)],
        "drain-stream": [Owned(old, drain=CHANGED), Owned(new, start=CHANGED)],
        "graceful": [Owned(old, stop=first), Owned(new, start=CHANGED)],
        "graceful-drain": [Owned(old, drain=first), Owned(new, start=CHANGED)],
        "handover": [Owned(old, stop=CHANGED), Owned(new, start=CHANGED, warm=True)],
        "stopped": [Owned(old, stop=5)],
        "drained": [Owned(old, drain=CHANGED)],
        "later": [Owned(asked(NEW), start=4)],
        "warm": [Owned(asked({"R": 40, "S": 40, "T": 10}), start=4, warm=True)],
    }
    assert set(versions) == {*KINDS, "stopped", "drained", "later", "warm"}
    for name, own in versions.items():
        assert found(tmp_path / name) == expected(rows.batches, *own), name
        assert hub[name].state == ("stopped" if name in ("stopped", "drained") else "running"), name
    assert events["drained", 0, "end"] == begun
    sources = running.groups()["source"].to_pylist()
    assert (sources.count("loaded") > 20) == (engines == "loaded")
    assert running.compaction_problem is None
    assert engines == "live" or list((tmp_path / "state" / "log").glob("*-base-*"))
    # The watermark was below zero when they began.
    assert all((hub[name].complete_from or 0) < 0 for name in ("warm", "handover"))


def test_the_log_keeps_rows_of_the_first_micro_batch_for_the_versions_that_start_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The sources keep no rows of their own accord, and the watermark passes the row of R with its micro-batch."""
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    end = {"k": 1, "t": 200, "v": 0}

    def run(rows: dict[str, list[dict[str, int]]]) -> None:
        for name, own in rows.items():
            inputs.add(name, own)
        hub = hub_of(spark, inputs, tmp_path / "state", key_groups=64)
        hub.start("pairs", query({"R": 300, "S": 300}), tmp_path / "pairs")
        finished(hub.run(availableNow=True))

    run({"R": [{"k": 0, "t": 1, "v": 7}, end], "S": [end]})
    run({"R": [], "S": [{"k": 0, "t": 201, "v": 8}]})
    assert found(tmp_path / "pairs")[(0, 7, 8)] == 1


def test_a_restart_resumes_or_changes_by_a_stated_kind(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in", 3)
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
    if "bounded" in saved_lives(state):
        hub.start("bounded", query(OLD), tmp_path / "bounded")
    run(hub)  # 6 to 8
    versions = {
        "same": [Owned(asked(OLD))],
        "moved": [Owned(asked(OLD), stop=3), Owned(asked(NEW), start=3, warm=True)],
        "drains": [Owned(asked(OLD), drain=3), Owned(asked(NEW), start=3)],
        "bounded": [Owned(asked(OLD), drain=2)],
        "gone": [Owned(asked(OLD), stop=3)],
    }
    for name, own in versions.items():
        assert found(tmp_path / name) == expected(rows.batches, *own), name
    other = hub_of(spark, rows.inputs, state)
    other.start("same", eddy.Query(query(OLD).streams, ["R.k = S.k"]), tmp_path / "same", how="handover")
    other.start("moved", query(NEW), tmp_path / "moved")
    other.start("drains", query(NEW), tmp_path / "drains", earlier=[query(OLD)])
    with pytest.raises(QueryError, match="the results of the new version have the columns"):
        other.run(availableNow=True)


def saved_lives(state: Path) -> list[str]:
    """Return the queries of the newest manifest."""
    manifest = recover(Checkpoint(state))
    assert manifest is not None
    return list(manifest.extra["hub"]["lives"])


class Acting(ParquetSink):
    """Calls a function after it has published a batch."""

    def __init__(self, path: Path, act: Callable[[int], None]) -> None:
        super().__init__(path)
        self._act = act

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        self._act(batch)


def test_an_element_takes_effect_with_the_next_micro_batch_or_an_event_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = Rows(tmp_path / "in", 4, "RS")
    for _ in range(10):
        rows.add(30)

    def act(batch: int) -> None:
        if batch == 1:
            hub["first"].change(query(NEW), how="immediate")
            hub.start("second", query(NEW), tmp_path / "second", warm=True)
            timed.stop(at_time=80)
            with pytest.raises(InputError, match="at=1 is no micro-batch to come; the next one is 2"):
                hub["first"].stop(at=1)
        if batch == 4:
            hub["second"].stop()
            with pytest.raises(InputError, match="'second' has stopped, or is to stop"):
                hub["second"].change(query(OLD))
            hub.start("second", query(OLD), tmp_path / "again")

    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    hub.start("first", query(OLD), Acting(tmp_path / "first", act))
    timed = hub.start("timed", query(OLD), tmp_path / "timed")
    finished(hub.run(availableNow=True))
    events = {(one["query"], one["event"]): one["batch"] for one in hub.history().to_pylist()}
    # Elements of a micro-batch are given while its results are published.
    assert events["first", "immediate change"] == events["second", "warm start"] == 2
    assert events["second", "immediate stop"] == events["second", "fresh start"] == 5
    # The watermark is that of the greatest times of both streams, less 60.
    greatest = [min(max(row["t"] for row in batches[i]) for batches in rows.batches.values()) for i in range(10)]
    assert events["timed", "immediate stop"] == next(i + 1 for i, most in enumerate(greatest) if most - 60 >= 80)
    versions = {
        "first": [Owned(asked(OLD), stop=2), Owned(asked(NEW), start=2)],
        "second": [Owned(asked(NEW), start=2, warm=True, stop=5)],
        "again": [Owned(asked(OLD), start=5)],
        "timed": [Owned(asked(OLD), stop=events["timed", "immediate stop"])],
    }
    for name, own in versions.items():
        assert found(tmp_path / name) == expected(rows.batches, *own), name


def test_a_crash_at_any_step_repeats_the_elements_of_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails before and after the commit, and between two publications; a hub starts anew each time."""
    rows = Rows(tmp_path / "in", 5, "RS")
    for _ in range(9):
        rows.add(25)
    places = iter(["commit", "publish one", "mark", "commit", "publish two", "mark", "end"])
    place = ""

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            nonlocal place
            batch = getattr(given[-1], "batch", given[-1] if name == "mark" else None)
            if place == name and batch not in (0, None):
                place = ""
                raise RuntimeError(f"injected: {name}")
            return call(*given)

        return wrapped

    class Fails(ParquetSink):
        def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
            nonlocal place
            super().publish(batch, files, spark)
            if place == f"publish {self.path.name}" and batch:
                place = ""
                raise RuntimeError("injected: publish")

    monkeypatch.setattr(Checkpoint, "commit", failing("commit", Checkpoint.commit))
    monkeypatch.setattr(Checkpoint, "mark_published", failing("mark", Checkpoint.mark_published))
    starts = []
    for place in places:
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
        number = len(starts)
        # Each start asks for the next change of "one"; "two" changes once, by a drain.
        hub.start("one", query({"R": 30 + number, "S": 20}), Fails(tmp_path / "one"), how="handover")
        hub.start(
            "two", query(NEW if number > 2 else OLD), Fails(tmp_path / "two"), how="drain-stream", earlier=[query(OLD)]
        )
        running = hub.run(availableNow=True)
        if place == "end":
            finished(running)
        else:
            with pytest.raises(Exception, match="injected"):
                running.awaitTermination(120)
        starts.append({(one["query"], one["event"]): one["batch"] for one in hub.history().to_pylist()})
    # A start that failed before its first micro-batch has changed nothing; a micro-batch that was not committed is
    # replayed with the change of the next start.
    changes = {0: 0}
    for number, start in enumerate(starts):
        if ("one", "handover change") in start:
            changes[start["one", "handover change"]] = number
    bounds = sorted(changes)
    assert len(bounds) > 3
    versions = [
        Owned(asked({"R": 30 + changes[begin], "S": 20}), start=begin, warm=begin > 0, stop=end)
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True)
    ]
    assert found(tmp_path / "one") == expected(rows.batches, *versions)
    changed = [start["two", "drain-stream change"] for start in starts if ("two", "drain-stream change") in start]
    two = [Owned(asked(OLD), drain=changed[-1]), Owned(asked(NEW), start=changed[-1])]
    assert found(tmp_path / "two") == expected(rows.batches, *two)


def test_elements_that_no_manifest_names_are_lost_with_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """Those that wait when the driver ends have no effect on the next start, which may give them again."""
    rows = Rows(tmp_path / "in", 7, "RS")
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
    assert [(one["batch"], one["event"]) for one in hub.history().to_pylist()] == [(4, "immediate stop")]
    assert found(tmp_path / "first") == expected(rows.batches, Owned(asked(OLD), stop=4))
    assert not list((tmp_path / "later").glob("batch=*"))


def test_queries_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in", 6)
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    by_value = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"]
    counted = [eddy.Stream(name, SCHEMA, window=eddy.Rows(9), time="t") for name in "RS"]
    other = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RX"]
    refused: list[tuple[eddy.Query, str]] = [
        (eddy.Query(by_value, ["R.k = S.v"]), r"do not make the keys of its streams equal \(R.k, S.k\).* add the equa"),
        (eddy.Query(counted, ["R.k = S.k"]), "'R': a Rows window counts rows in order of arrival"),
        (eddy.Query(other, ["R.k = X.k"]), "no stream 'X'"),
        (eddy.Query(by_value, ["R.k = S.k"], lateness=5), "lateness belongs"),
        (
            eddy.Query(by_value[:1], branches=[eddy.Branch(by_value[1:], ["R.k = S.k"], "anti")]),
            "a hub runs queries without branches",
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
    ):
        frames = rows.inputs.frames(spark)
        first = Source(eddy.Stream("R", SCHEMA, time="t"), frames["R"], "k")
        with pytest.raises(SparkJoinError, match=message):
            Hub(spark, [first, Source(stream, frames["S"], key)], tmp_path / "state")

"""Watermarks of the caller, and the end of the input: a query of an engine gives what a runtime of its own gives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy import agg
from eddy.queries.alone import Output
from eddy.streams.windows import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
GROUPED: dict[str, Any] = {"group_by": ["R.k"], "aggregates": {"c": agg.count(), "m": agg.max("S.n")}}


def streams(*windows: Window) -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=window, time="t") for name, window in zip("RS", windows, strict=False)]


def branched(how: Any, *windows: Window, on: str = "R.k = S.k", **more: Any) -> eddy.Query:
    r, s = streams(*windows)
    return eddy.Query([r], branches=[eddy.Branch([s], [on], how)], **more)


PAIRS = {"r": "R.n", "s": "S.n"}
QUERIES: dict[str, tuple[eddy.Query, Output]] = {
    "pairs": (eddy.Query(streams(eddy.Range(5), eddy.Range(9)), ["R.k = S.k"], select=PAIRS), "append"),
    "counted": (eddy.Query(streams(eddy.Rows(3), eddy.Rows(4)), ["R.k = S.k"], select=PAIRS), "append"),
    "tumbling": (
        eddy.Query(streams(eddy.Range(5), eddy.Range(5)), ["R.k = S.k"], group_window=eddy.Tumbling(4), **GROUPED),
        "append",
    ),
    "sessions": (
        eddy.Query(streams(eddy.Range(3), eddy.Range(8)), ["R.k = S.k"], group_window=eddy.Session(3), **GROUPED),
        "append",
    ),
    "left": (branched("left", eddy.Range(5), eddy.Range(2), select=PAIRS), "append"),
    "anti": (branched("anti", eddy.Rows(2), eddy.Rows(1), select=["R.n"]), "append"),
    "taken back": (eddy.Query(streams(eddy.Range(5), eddy.Range(3)), ["R.k = S.k"], select=PAIRS), "changelog"),
}
ENDLESS = eddy.Unbounded(), eddy.Unbounded()
BOUNDED: dict[str, tuple[eddy.Query, Output]] = {
    **QUERIES,
    "left at last": (branched("left", *ENDLESS, select=PAIRS), "append"),
    "anti at last": (branched("anti", *ENDLESS, on="R.n = S.n", select=["R.n"]), "append"),
    "all groups": (eddy.Query(streams(*ENDLESS), ["R.k = S.k"], **GROUPED), "append"),
    "first": (eddy.Query(streams(*ENDLESS), ["R.k = S.k"], top=eddy.Top(2, ["R.k"], ["R.n", "S.n"])), "append"),
}
"""Also queries whose append output comes with the end of the input."""


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_each_query_gives_what_a_runtime_of_its_own_gives(seed: int, restored: bool, bounded: bool) -> None:
    chance, drawn = random.Random(seed), BOUNDED if bounded else QUERIES
    sources = [eddy.Stream(name, SCHEMA, time="t") for name in "RS"]
    engine = eddy.Engine(sources, share=chance.random() < 0.5, bounded=bounded)
    runtimes = {}
    for name, (query, output) in drawn.items():
        engine.start(name, query, output=output)
        runtimes[name] = eddy.Runtime(query, output=output, bounded=bounded)
    watermark, clock, total = 0, 0, Counter[str]()

    def push(batches: dict[str, list[dict[str, Any]]], order: list[int]) -> None:
        results = engine.push(batches, order, watermark=watermark)
        for name, runtime in runtimes.items():
            timed = drawn[name][0].graph.timed
            wanted = runtime.push(batches, order, watermark=watermark if timed else None)
            assert rows_of(results[name]) == rows_of(wanted), name
            total[name] += wanted.num_rows
        assert engine.watermark == watermark

    for _ in range(25):
        order = [chance.randrange(2) for _ in range(chance.choice((0, 0, 1, 6)))]
        rows: dict[str, list[dict[str, Any]]] = {"R": [], "S": []}
        for i in order:
            clock += chance.choice((0, 0, 1, 2))
            at = max(clock - chance.choice((0, 0, 3)), watermark)
            rows["RS"[i]].append({"k": chance.randrange(3), "t": at, "n": clock})
        watermark = max(watermark, clock - chance.choice((0, 2, 6)))
        push(rows, order)
        if restored and chance.random() < 0.3:
            saved = engine.snapshot()
            engine = eddy.Engine.restore(saved, sources, {name: query for name, (query, _) in drawn.items()})
            assert engine.snapshot() == saved
    results = engine.finish()
    for name, runtime in runtimes.items():
        wanted = runtime.finish()
        assert rows_of(results[name]) == rows_of(wanted), name
        total[name] += wanted.num_rows
        assert engine[name].state == "stopped"
    assert min(total.values()) > 0
    engine.check()
    assert engine.finished
    assert engine.finish() == {}
    again = eddy.Engine.restore(engine.snapshot(), sources, {})
    for ended in (engine, again):
        for call in (
            lambda ended=ended: ended.push({}),
            lambda ended=ended: ended.start("more", QUERIES["pairs"][0]),
        ):
            with pytest.raises(eddy.InputError, match="the input has ended"):
                call()
    with pytest.raises(eddy.InputError, match="the input has ended"):
        engine["pairs"].restart()


def test_a_watermark_of_the_callers_ends_drains() -> None:
    query = QUERIES["pairs"][0]
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    drained, waits, holds = (engine.start(name, query) for name in ("drained", "waits", "holds"))
    engine.push({"R": [{"k": 0, "t": 1, "n": 1}], "S": [{"k": 0, "t": 3, "n": 2}]})
    drained.stop("drain")
    waits.change(query, "delayed-drain")
    holds.change(query, "drain-query")
    engine.push({"R": [{"k": 1, "t": 4, "n": 3}], "S": [{"k": 1, "t": 4, "n": 4}]})
    # S has a window of 9, and its newest row before the drains has the time 3.
    results = engine.push({}, watermark=12)
    assert [query.state for query in (drained, waits, holds)] == ["draining", "changing", "changing"]
    assert results["holds"].num_rows == 0
    results = engine.push({}, watermark=13)
    assert [query.state for query in (drained, waits, holds)] == ["stopped", "running", "running"]
    assert results["holds"].to_pylist() == [{"r": 3, "s": 4}]
    assert waits.complete_from == engine.position == 4


@pytest.mark.parametrize("how", ["delayed-drain", "drain-stream", "drain-query", "handover"])
def test_a_watermark_of_the_callers_ends_a_drain_of_groups(how: Any) -> None:
    def counted(size: int) -> eddy.Query:
        groups: dict[str, Any] = {"aggregates": {"c": agg.count()}, "group_window": eddy.Tumbling(size)}
        return eddy.Query(streams(eddy.Range(5)), **groups)

    engine = eddy.Engine([eddy.Stream("R", SCHEMA, time="t")])
    running = engine.start("q", counted(4))
    engine.push({"R": [{"k": 0, "t": 1, "n": 0}]})
    running.change(counted(5), how)
    given = engine.push({}, watermark=50)["q"].to_pylist()
    assert [row["c"] for row in given] == [1]
    assert [(version.start, version.ended) for version in running.versions] == [(0, 1), (1, None)]
    again = eddy.Engine.restore(engine.snapshot(), [eddy.Stream("R", SCHEMA, time="t")], {"q": counted(5)})
    for each in (engine, again):
        each.push({"R": [{"k": 0, "t": 51, "n": 1}]})
        assert [row["window_start"] for row in each.finish()["q"].to_pylist()] == [50]


@pytest.mark.parametrize("how", ["delayed-drain", "drain-query", "graceful"])
def test_the_end_of_the_input_ends_what_waits(how: Any) -> None:
    query = eddy.Query(streams(eddy.Rows(3), eddy.Rows(4)), ["R.k = S.k"], select=PAIRS)
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    running = engine.start("q", query)
    engine.push({"R": [{"k": 0, "t": 1, "n": 1}]})
    running.change(query, how)
    given = [engine.push({"R": [{"k": 1, "t": 4, "n": 3}], "S": [{"k": 1, "t": 4, "n": 4}]}), engine.finish()]
    rows = [row for results in given for row in results["q"].to_pylist()]
    assert rows == ([] if how == "delayed-drain" else [{"r": 3, "s": 4}])
    assert running.state == "stopped"
    assert engine.history().to_pylist()[-1]["event"] == "end of the input"


def test_watermarks_that_cannot_be_are_refused() -> None:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    engine.push({}, watermark=7)
    for watermark, message in ((6, "is below 7"), (1 << 62, "within ±2\\^61"), ("x", "a whole number of ticks")):
        with pytest.raises(eddy.InputError, match=message):
            engine.push({}, watermark=watermark)  # type: ignore[arg-type]
    assert engine.watermark == 7
    timeless = eddy.Engine([eddy.Stream(name, SCHEMA) for name in "RS"])
    with pytest.raises(eddy.InputError, match="no stream of the engine has a time column"):
        timeless.push({}, watermark=7)
    assert timeless.finish() == {}
    assert timeless.finished

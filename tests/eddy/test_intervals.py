"""Intervals: the windows that follow from them, and results that do not depend on the order of arrival."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy.query.clock_rule import WatermarkOf
from jisc.strategies import STRATEGIES

MS = pa.timestamp("ms")
MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)
ADS = pa.schema([("user", pa.int64()), ("at", MS), ("n", pa.int64())])
FUNNEL = [
    "impressions.user = clicks.user",
    "clicks.user = conversions.user",
    "clicks.at between impressions.at and impressions.at + 30 min",
    "conversions.at between clicks.at and clicks.at + 24 h",
]


def funnel(*more: str, watermark: WatermarkOf = "slowest", **windows: Any) -> eddy.Query:
    names = ("impressions", "clicks", "conversions")
    streams = [eddy.Stream(name, ADS, windows.get(name), "at") for name in names]
    return eddy.Query(streams, [*FUNNEL, *more], select=[f"{name}.n" for name in names], watermark=watermark)


def test_each_stream_is_kept_as_long_as_the_intervals_allow_results() -> None:
    query = funnel()
    assert [s.window for s in query.streams] == [eddy.Range(DAY + 30 * MINUTE), eddy.Range(DAY), eddy.Range(0 * DAY)]
    assert query.derived.keys() == {"impressions", "clicks", "conversions"}
    assert "impressions [RANGE 1 day, 0:30:00, from the intervals]" in eddy.Runtime(query).explain()


@pytest.mark.parametrize(
    ("more", "minutes"),
    [
        # An interval over two hops is tighter than the chain of both.
        (["conversions.at <= impressions.at + 1 hour"], [60, 60, 0]),
        (["conversions.at < impressions.at + 1 hour"], [60 - 1 / 60_000, 60 - 1 / 60_000, 0]),
        (["conversions.at = clicks.at"], [30, 0, 0]),
        (["conversions.at = clicks.at + 10 minutes"], [40, 10, 0]),
    ],
)
def test_the_shortest_chain_of_intervals_decides(more: list[str], minutes: list[float]) -> None:
    spans = [stream.window.d for stream in funnel(*more).streams]  # type: ignore[union-attr]
    assert spans == [minute * MINUTE for minute in minutes]


def test_a_component_may_be_older_or_younger() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    streams = [eddy.Stream(name, schema, time="t") for name in "RS"]
    query = eddy.Query(streams, ["R.k = S.k and R.t between S.t - 5 and S.t + 7"])
    assert [window.size for window in query.graph.windows] == [5, 7]
    # Both bounds are later than S, so no R needs to wait.
    later = eddy.Query(streams, ["R.k = S.k and R.t between S.t + 2 and S.t + 7"])
    assert [window.size for window in later.graph.windows] == [0, 7]


EQUAL_TIMES = {
    "directly": ["R.k = S.k", "R.t = S.t"],
    "as the only key": ["R.t = S.t"],
    "as rows in parentheses": ["(R.k, R.t) = (S.k, S.t)"],
    "through another column": ["R.k = S.k", "R.t = S.n", "R.t = S.t"],
}


@pytest.mark.parametrize("on", EQUAL_TIMES.values(), ids=EQUAL_TIMES)
def test_an_equality_of_event_times_is_an_interval_of_zero(on: list[str]) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
    streams = [eddy.Stream(name, schema, time="t") for name in "RS"]
    query = eddy.Query(streams, on)
    assert [stream.window for stream in query.streams] == [eddy.Range(0), eddy.Range(0)]
    # A row that nothing can join any more gets its nulls at once.
    left = eddy.Runtime(eddy.Query(streams[:1], branches=[eddy.Branch(streams[1:], on, "left")], select=["R.t", "S.n"]))
    rows = [{"k": 1, "n": t, "t": t} for t in (5, 6, 7)]
    assert left.push({"R": rows[:2], "S": rows[:1]}).to_pylist() == [{"R.t": 5, "S.n": 5}]
    assert left.push({"R": rows[2:], "S": rows[2:]}).to_pylist() == [{"R.t": 7, "S.n": 7}, {"R.t": 6, "S.n": None}]


def test_equal_event_times_make_a_chain_with_offsets() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("s"))])
    streams = [eddy.Stream(name, schema, time="t") for name in "RST"]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k", "R.t = S.t", "S.t = T.t + 5 minutes"])
    assert [stream.window for stream in query.streams] == [eddy.Range(0 * MINUTE)] * 2 + [eddy.Range(5 * MINUTE)]
    # The equality stays a key.
    assert any(key_class.columns["R"] == (("t",),) for key_class in query.classes if "T" not in key_class.columns)
    with pytest.raises(eddy.QueryError, match=r"stream R would be kept forever.*there is R\.t = S\.t"):
        eddy.Query(streams, ["R.k = S.k", "S.k = T.k", "R.t = S.t"])


def test_a_query_whose_state_cannot_end_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    rows = {"R": [{"k": 1, "t": 1}], "S": [{"k": 1, "t": 2}]}

    def said(streams: list[eddy.Stream], on: str, **options: Any) -> list[str]:
        caplog.clear()
        runtime = eddy.Runtime(eddy.Query(streams, [on]), **options)
        runtime.push(rows)
        runtime.push({"S": [{"k": 1, "t": 3}]})
        return caplog.messages

    streams = [eddy.Stream(name, schema, time="t") for name in "RS"]
    (text,) = said(streams, "R.k = S.k")
    assert text.startswith("the query keeps all rows of R, S for as long as it runs")
    assert "window=Rows(n)" in text
    (text,) = said([eddy.Stream("R", schema, eddy.Rows(3), "t"), eddy.Stream("S", schema, time="t")], "R.k = S.k")
    assert "all rows of S for" in text
    assert said(streams, "R.k = S.k", bounded=True) == []
    assert said(streams, "R.k = S.k AND R.t = S.t") == []
    caplog.clear()
    branch = eddy.Branch(streams[1:], ["R.k = S.k"], "semi")
    eddy.Runtime(eddy.Query(streams[:1], branches=[branch])).push(rows)
    engine = eddy.Engine(streams)
    started = engine.start("q", eddy.Query(streams, ["R.k = S.k"]))
    engine.push(rows)
    started.change(eddy.Query(streams, ["R.t = S.t"]), "immediate")
    assert [text.partition(" keeps")[0] for text in caplog.messages] == ["the query", "query 'q'"]


def test_a_window_in_coarser_units_than_the_bound_is_rounded_up_where_it_is_shown_only() -> None:
    coarse, fine = (pa.schema([("k", pa.int64()), ("t", pa.timestamp(unit))]) for unit in ("s", "us"))
    streams = [eddy.Stream("R", coarse, time="t"), eddy.Stream("S", fine, time="t")]
    query = eddy.Query(streams, ["R.k = S.k", "S.t >= R.t", "S.t < R.t + 2 s"])
    assert query.streams[0].window == eddy.Range(dt.timedelta(seconds=2))
    assert query.graph.windows[0].size == 1_999_999


def test_a_stream_that_would_be_kept_forever_is_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])

    def query(window: Any = None) -> eddy.Query:
        streams = [eddy.Stream("R", schema, window, "t"), eddy.Stream("S", schema, time="t")]
        return eddy.Query(streams, ["R.k = S.k", "S.t >= R.t"])

    with pytest.raises(eddy.QueryError, match=r"stream R would be kept forever.*S\.t >= R\.t.*Unbounded\(\)"):
        query()
    assert [str(stream.window) for stream in query(eddy.Unbounded()).streams] == ["UNBOUNDED", "RANGE 0"]
    # Without intervals, a window that is left out keeps everything, as it always did.
    plain = eddy.Query([eddy.Stream(name, schema) for name in "RS"], ["R.k = S.k", "R.t < S.t"])
    assert all(stream.window == eddy.Unbounded() for stream in plain.streams)


def test_intervals_and_windows_that_contradict_each_other() -> None:
    with pytest.raises(eddy.QueryError, match="no event times fulfil all of"):
        funnel("conversions.at > impressions.at + 3 days")
    with pytest.warns(UserWarning, match=r"never has a result: the windows impressions \[RANGE 0:30:00\] contradict"):
        funnel("conversions.at >= impressions.at + 2 h", impressions=eddy.Range(30 * MINUTE))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_results_depend_neither_on_the_order_of_arrival_nor_on_the_strategy(strategy: str) -> None:
    chance = random.Random(strategy)
    names, start = ("impressions", "clicks", "conversions"), dt.datetime(2026, 11, 1)
    every = {
        name: [(chance.randrange(4), start + chance.randrange(2 * 24 * 6) * 10 * MINUTE, n) for n in range(120)]
        for name in names
    }
    streams = [eddy.Stream(name, ADS, time="at") for name in names]
    query = eddy.Query(streams, FUNNEL, select=[f"{name}.n" for name in names], lateness=10 * DAY)
    expected = [
        (i[2], c[2], v[2])
        for i in every["impressions"]
        for c in every["clicks"]
        for v in every["conversions"]
        if i[0] == c[0] == v[0] and i[1] <= c[1] <= i[1] + 30 * MINUTE and c[1] <= v[1] <= c[1] + DAY
    ]
    assert len(expected) > 20
    runtime, results = eddy.Runtime(query, strategy=strategy, policy="fixed"), []
    arrivals = [(name, row) for name, rows in every.items() for row in rows]
    chance.shuffle(arrivals)
    for at in range(0, len(arrivals), 17):
        if at == 85 and STRATEGIES[strategy].changes:
            runtime.transition("(conversions clicks) impressions")
        pushed = {name: [row for stream, row in arrivals[at : at + 17] if stream == name] for name in names}
        order = [names.index(name) for name, _ in arrivals[at : at + 17]]
        tables = {name: pa.table(list(zip(*rows, strict=True)), schema=ADS) for name, rows in pushed.items() if rows}
        results += [tuple(row.values()) for row in runtime.push(tables, order).to_pylist()]
        runtime.check()
    assert sorted(results) == sorted(expected)


def test_a_changelog_takes_results_back_when_a_component_leaves_its_window() -> None:
    # The next row of any stream shall make time go on.
    runtime = eddy.Runtime(funnel(watermark="fastest"), output="changelog")
    start = dt.datetime(2026, 11, 1)

    def push(name: str, at: dt.datetime) -> list[str]:
        batch = pa.RecordBatch.from_pylist([{"user": 1, "at": at, "n": 0}], schema=ADS)
        return list(runtime.push({name: batch})["op"].to_pylist())

    assert [push("impressions", start), push("clicks", start + 10 * MINUTE)] == [[], []]
    assert push("conversions", start + 20 * HOUR) == ["+I"]
    # A conversion leaves as soon as time goes on.
    assert push("impressions", start + 20 * HOUR + dt.timedelta(milliseconds=1)) == ["-D"]

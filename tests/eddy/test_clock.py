"""The watermark: which stream it follows, silent streams, lateness of streams, and watermarks given now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import InputError, QueryError, Range, Runtime, Stream
from eddy.fuzz.oracle import OracleClock
from eddy.ingest.clock import Clock
from eddy.query.clock_rule import ClockRule
from stairs.graph import FOREVER

ROWS = pa.schema([("k", pa.int64()), ("t", pa.int64())])
NAMES = "RST"


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    return pa.record_batch([[k for k, _ in rows], [t for _, t in rows]], schema=ROWS)


def pair(d: int = 5, **options: Any) -> eddy.Query:
    return eddy.Query([Stream(name, ROWS, window=Range(d), time="t") for name in "RS"], ["R.k = S.k"], **options)


# --- the clock alone -------------------------------------------------------------------------------------------------

ARRIVED = st.tuples(st.integers(0, 2), st.integers(-20, 60))


@given(
    st.lists(st.lists(ARRIVED, max_size=12), max_size=6),
    st.sampled_from(("slowest", "fastest")),
    st.lists(st.integers(0, 6), min_size=3, max_size=3),
    st.sampled_from((None, 0, 1, 7)),
    st.lists(st.integers(-30, 80), max_size=6),
)
def test_a_clock_says_what_its_definition_says(
    pushes: list[list[tuple[int, int]]], of: str, lateness: list[int], idle: int | None, given_now: list[int]
) -> None:
    """Some pushes give a watermark."""
    slowest = of == "slowest"
    idle = idle if slowest else None
    clock = Clock(ClockRule(slowest, tuple(lateness), idle), span=10)
    oracle = OracleClock(dict(zip(NAMES, lateness, strict=True)), of, idle)
    for number, rows in enumerate(pushes):
        order = np.array([i for i, _ in rows], np.uint8)
        times = [np.array([t for i, t in rows if i == stream], np.int64) for stream in range(3)]
        before, watermark = oracle.now, None
        if number % 2 and number < len(given_now):
            watermark = given_now[number] if before is None else max(given_now[number], before)
        ticked = clock.tick(order, [stream_times if len(stream_times) else None for stream_times in times], watermark)
        late = []
        for i, t in rows:
            if watermark is None:
                late.append(oracle.tick(NAMES[i], t))
                assert ticked.reading.marks[len(late) - 1] == (-FOREVER if oracle.now is None else oracle.now)
            else:
                oracle.come(NAMES[i], t)
                late.append(before is not None and t < before)
        if watermark is not None:
            oracle.give(watermark)
        by_stream = [is_late for i in range(3) for is_late, (j, _) in zip(late, rows, strict=True) if i == j]
        assert (ticked.late.tolist() or [0] * len(rows)) == by_stream
        clock.state = ticked.state
        assert clock.watermark == oracle.now


@given(st.lists(ARRIVED, max_size=40), st.sampled_from((None, 3)), st.integers(1, 7))
def test_the_division_into_pushes_has_no_influence(rows: list[tuple[int, int]], idle: int | None, size: int) -> None:
    streams = [Stream(name, ROWS, window=Range(4), time="t") for name in NAMES]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], idle_after=idle, lateness=1)
    seen = []
    for step in (len(rows) or 1, size):
        runtime, results = Runtime(query, output="changelog"), []
        for at in range(0, len(rows), step):
            part = rows[at : at + step]
            pushed = {name: batch(*((0, t) for i, t in part if i == k)) for k, name in enumerate(NAMES)}
            results += runtime.push(pushed, [i for i, _ in part]).to_pylist()
        runtime.check()
        seen.append((sorted(map(repr, results)), runtime.late_counts, runtime.watermark))
    assert seen[0] == seen[1]


# --- the slowest stream ----------------------------------------------------------------------------------------------

AT = pa.timestamp("s")
LOGINS = pa.schema([("user", pa.int64()), ("at", AT)])


def at(seconds: Any) -> pa.Array:
    return pa.array(np.asarray(seconds, np.int64), AT)


@pytest.mark.parametrize("strategy", ["eddy", "jisc", "mjoin", "cacq"])
def test_a_backfill_in_chunks_of_streams_at_another_pace_loses_nothing(strategy: str) -> None:
    rng = np.random.default_rng(7)
    users = {name: rng.integers(0, 40, 2400) for name in ("logins", "payments")}
    times = {"logins": np.arange(2400) * 10, "payments": np.arange(2400) * 11}
    streams = [Stream(name, LOGINS, time="at") for name in users]
    on = ["payments.user = logins.user", "payments.at between logins.at and logins.at + 10 min"]
    ages = times["payments"] - times["logins"][:, None]
    same = users["payments"] == users["logins"][:, None]
    wanted = int((same & (ages >= 0) & (ages <= 600)).sum())
    counts = {}
    for of in ("slowest", "fastest"):
        runtime = Runtime(eddy.Query(streams, on, watermark=of), strategy=strategy)  # type: ignore[arg-type]
        counts[of] = 0
        for first in range(0, 2400, 200):
            part = slice(first, first + 200)
            chunk = {n: pa.record_batch([pa.array(users[n][part]), at(times[n][part])], schema=LOGINS) for n in users}
            counts[of] += runtime.push(chunk).num_rows
        if of == "slowest":
            assert runtime.late_counts == {"logins": 0, "payments": 0}
            assert runtime.watermark == 2399 * 10
    assert counts["slowest"] == wanted > 3000
    # The example shows something: the clock of the fastest stream loses rows.
    assert counts["fastest"] < wanted - 500


def test_there_is_no_watermark_before_each_stream_has_had_a_row() -> None:
    runtime = Runtime(pair())
    runtime.push({"R": batch((1, 100), (1, 20), (1, 300))}, [0, 0, 0])
    assert runtime.watermark is None
    assert runtime.push({"S": batch((1, 22))}).num_rows == 1
    assert (runtime.watermark, runtime.late_counts) == (22, {"R": 0, "S": 0})


def test_a_silent_stream_is_passed_and_counts_again_with_its_next_row() -> None:
    runtime = Runtime(pair(idle_after=10))
    runtime.push({"R": batch((1, 0)), "S": batch((1, 0))})
    runtime.push({"R": batch((1, 10))})
    assert runtime.watermark == 0
    runtime.push({"R": batch((1, 11))})
    assert runtime.watermark == 11
    # Its first rows are late; then it holds the watermark back, which does not go back.
    runtime.push({"S": batch((1, 3))})
    runtime.push({"R": batch((1, 20))})
    assert (runtime.watermark, runtime.late_counts) == (11, {"R": 0, "S": 1})
    runtime.push({"S": batch((1, 15))})
    assert (runtime.watermark, runtime.late_counts) == (15, {"R": 0, "S": 1})


def test_a_stream_that_never_comes_is_idle_from_the_first_row_of_the_others_on() -> None:
    runtime = Runtime(pair(idle_after=10))
    runtime.push({"R": batch((1, 100), (1, 110))})
    assert runtime.watermark is None
    runtime.push({"R": batch((1, 111))})
    assert runtime.watermark == 111


def test_a_stream_may_have_a_lateness_of_its_own() -> None:
    lateness_of = {"R": 7, "S": None}
    streams = [Stream(name, ROWS, window=Range(5), time="t", lateness=lateness_of[name]) for name in "RS"]
    runtime = Runtime(eddy.Query(streams, ["R.k = S.k"], lateness=2))
    runtime.push({"R": batch((1, 30)), "S": batch((1, 20))})
    assert runtime.watermark == min(30 - 7, 20 - 2)
    runtime.push({"S": batch((1, 90))})
    assert runtime.watermark == 30 - 7


def test_the_first_late_row_of_each_stream_is_told_by_name(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(pair())
    with caplog.at_level(logging.WARNING, "eddy"):
        runtime.push({"R": batch((1, 30)), "S": batch((1, 40))})
        for _ in range(2):
            runtime.push({"R": batch((1, 29)), "S": batch((1, 23))})
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told] == ["stream R", "stream S"]
    assert "7 ticks older than the watermark, which follows the slowest stream" in told[1]
    assert "Query(…, lateness=7) would accept it" in told[1]


# --- watermarks given now and then -----------------------------------------------------------------------------------


def test_event_time_advances_by_a_watermark_while_all_streams_are_silent() -> None:
    branch = eddy.Branch([Stream("S", ROWS, time="t")], ["S.k = R.k", "S.t between R.t and R.t + 5"], "left")
    query = eddy.Query([Stream("R", ROWS, time="t")], branches=[branch], select=["R.t", "S.t"])
    for restored in (False, True):
        runtime = Runtime(query)
        runtime.push({"R": batch((1, 10)), "S": batch((2, 9))})
        if restored:
            runtime = Runtime.restore(runtime.snapshot(), query)
        assert runtime.push({}, watermark=16).to_pylist() == [{"R.t": 10, "S.t": None}]
        if restored:
            runtime = Runtime.restore(runtime.snapshot(), query)
        # From now on the watermark follows the rows again.
        assert runtime.push({"R": batch((1, 18)), "S": batch((1, 12), (1, 19))}).to_pylist() == [{"R.t": 18, "S.t": 19}]
        assert (runtime.watermark, runtime.late_counts) == (18, {"R": 0, "S": 1})
        with pytest.raises(InputError, match="watermark=17 is below 18, the watermark so far"):
            runtime.push({}, watermark=17)


def test_a_given_watermark_ends_windows_of_groups_and_results_of_a_changelog() -> None:
    counted = {"n": eddy.agg.count()}
    groups = Runtime(pair(group_by=["R.k"], aggregates=counted, group_window=eddy.Tumbling(10)))
    groups.push({"R": batch((1, 3)), "S": batch((1, 4))})
    assert groups.push({}, watermark=10)["n"].to_pylist() == [1]
    changes = Runtime(pair(), output="changelog")
    assert changes.push({"R": batch((1, 3)), "S": batch((1, 4))})["op"].to_pylist() == ["+I"]
    assert changes.push({}, watermark=9)["op"].to_pylist() == ["-D"]
    assert changes.push({"R": batch((1, 30)), "S": batch((1, 31))})["op"].to_pylist() == ["+I"]
    assert changes.watermark == 30


# --- options ---------------------------------------------------------------------------------------------------------


def engine(**options: Any) -> eddy.Engine:
    return eddy.Engine([Stream(name, ROWS, time="t") for name in "RS"], **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pair(watermark="slow"), "'slowest' stream or the 'fastest'"),
        (lambda: pair(watermark="fastest", idle_after=3), "idle_after=3 has no effect with watermark='fastest'"),
        (lambda: pair(idle_after=-1), "idle_after -1 is negative"),
        (lambda: pair(idle_after="1 s"), "idle_after must be a timedelta or a whole number"),
        (lambda: eddy.Query([Stream(n, ROWS) for n in "RS"], ["R.k = S.k"], idle_after=3), "without a RANGE window"),
        (lambda: Stream("R", ROWS, time="t", lateness=1.5), "stream R: lateness must be a timedelta"),
        (
            lambda: eddy.Query([Stream(n, ROWS, lateness=2) for n in "RS"], ["R.k = S.k"]),
            "lateness 2 of stream R without a RANGE window",
        ),
        (lambda: engine(watermark="slow"), "'slowest' stream or the 'fastest'"),
        (lambda: engine().start("q", pair(idle_after=3)), r"idle_after belongs to the engine.*Engine\(idle_after=…\)"),
        (lambda: engine().start("q", pair(watermark="fastest")), "watermark belongs to the engine"),
        (lambda: eddy.Engine([Stream("R", ROWS)], idle_after=3), "idle_after 3 without event times"),
    ],
)
def test_options_that_mean_nothing_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        make()


NUMBER: dict[str, Callable[[Any, pa.Schema], Any]] = {
    "lateness": lambda span, rows: timed(rows, lateness=span),
    "lateness of a stream": lambda span, rows: eddy.Query(
        [
            Stream(
                n,
                rows,
                window=Range(timedelta(1)) if pa.types.is_timestamp(rows.field("t").type) else Range(5),
                time="t",
                lateness=span,
            )
            for n in "RS"
        ],
        ["R.k = S.k"],
    ),
    "idle_after": lambda span, rows: timed(rows, idle_after=span),
    "Range": lambda span, rows: eddy.Query(
        [Stream(n, rows, window=Range(span), time="t") for n in "RS"], ["R.k = S.k"]
    ),
    "Tumbling": lambda span, rows: grouped(rows, eddy.Tumbling(span)),
    "Hopping": lambda span, rows: grouped(rows, eddy.Hopping(span, span)),
    "Session": lambda span, rows: grouped(rows, eddy.Session(span)),
    "Engine(lateness)": lambda span, rows: eddy.Engine([Stream("R", rows, time="t")], lateness=span),
    "Engine(idle_after)": lambda span, rows: eddy.Engine([Stream("R", rows, time="t")], idle_after=span),
    "window of an Engine": lambda span, rows: eddy.Engine([Stream("R", rows, time="t", window=Range(span))]),
}


def timed(rows: pa.Schema, **options: Any) -> eddy.Query:
    on = ["R.k = S.k", "R.t between S.t and S.t"]
    return eddy.Query([Stream(n, rows, time="t") for n in "RS"], on, **options)


def grouped(rows: pa.Schema, window: Any) -> eddy.Query:
    return timed(rows, group_by=["R.k"], aggregates={"n": eddy.agg.count()}, group_window=window)


@pytest.mark.parametrize("what", NUMBER)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_number_is_no_span_of_timestamps(what: str, unit: str) -> None:
    rows = pa.schema([("k", pa.int64()), ("t", pa.timestamp(unit))])
    with pytest.raises(QueryError, match=rf"the number 5 has no unit, .* timestamp\[{unit}\].*timedelta\(seconds=5\)"):
        NUMBER[what](5, rows)
    NUMBER[what](timedelta(seconds=5), rows)
    for kind in (pa.int32(), pa.date32()):
        NUMBER[what](5, pa.schema([("k", pa.int64()), ("t", kind)]))


def test_the_lateness_of_a_stream_has_no_effect_where_no_row_is_late() -> None:
    """A stream that is declared once is an input of queries with windows of event time, and of others."""
    streams = [Stream(n, ROWS, time="t", lateness=2) for n in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    for t in (9, 1):
        runtime.push({"R": [{"k": t, "t": t}]})
    assert runtime.push({"S": [{"k": 1, "t": 50}, {"k": 9, "t": 2}]}).num_rows == 2
    assert not any(runtime.late_counts.values())

"""Late rows in a runtime: stored up to a bound, counted, passed to functions; failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import eddy
from eddy.live.engine_file import EngineFile
from eddy.streams.late_options import LATE_ROWS
from tests.cases import JoinCase, feed, late_rows, results, text_rows
from tests.draws import arrivals, cases, fewer, splits
from tests.eddy.late_streams import SCHEMA, Taker, messages, rows, two_streams
from tests.eddy.live_engines import KEY

CASES = cases()

# --- against the oracle ----------------------------------------------------------------------------------------------


@fewer(3)
@given(st.data())
def test_every_late_row_of_the_oracle_is_counted_kept_or_handed_over(data: st.DataObject) -> None:
    case: JoinCase = data.draw(CASES)
    assume(any(stream.window == "range" for stream in case.streams))
    given_to: dict[str, list[tuple[str, ...]]] = {}

    def take(name: str, table: pa.Table) -> None:
        given_to.setdefault(name, []).extend(text_rows(table))

    choices = {name: data.draw(st.sampled_from(["keep", "count", take, None])) for name in case.names}
    usual = data.draw(st.sampled_from(["keep", "count", take]))
    most = data.draw(st.integers(1, 8))
    case = replace(case, streams=tuple(replace(stream, late=choices[stream.name]) for stream in case.streams))
    query = case.query(late=usual, late_rows=most)
    runtime, oracle = eddy.Runtime(query, ids_only=True), case.oracle()
    late: dict[str, list[tuple[str, ...]]] = {name: [] for name in case.names}
    greatest = None
    for batched in data.draw(splits(data.draw(arrivals(case)))):
        n_results = runtime.push(batched.batches(case), batched.order()).num_rows
        outcomes = feed(case, oracle, batched.arrivals)
        assert n_results == len(results(outcomes))
        for name, new_texts in late_rows(case, batched.arrivals, outcomes).items():
            late[name] += new_texts
        assert runtime.late_counts == {name: len(texts) for name, texts in late.items()}
        assert greatest is None or (runtime.watermark is not None and runtime.watermark >= greatest)
        greatest = runtime.watermark
        assert (greatest is None) == (oracle.clock.now is None)
    chosen = {name: usual if choices[name] is None else choices[name] for name in case.names}
    kept = {name: texts for name, texts in late.items() if texts and chosen[name] == "keep"}
    if data.draw(st.booleans()):
        # Neither the treatment nor the bound is part of the identity of a query.
        runtime = eddy.Runtime.restore(runtime.snapshot(), case.query())
    counts = runtime.metrics()
    assert {name: state["late"] for name, state in counts["states"].items()} == {
        n: len(texts) for n, texts in late.items()
    }
    assert {name: state["late_dropped"] for name, state in counts["states"].items()} == {
        name: max(len(kept.get(name, ())) - most, 0) for name in case.names
    }
    assert {name: text_rows(table) for name, table in runtime.late().items()} == {
        n: texts[-most:] for n, texts in kept.items()
    }
    assert given_to == {name: texts for name, texts in late.items() if texts and chosen[name] is take}


def test_the_watermark() -> None:
    runtime = eddy.Runtime(two_streams(lateness=5))
    assert runtime.watermark is None
    runtime.push({"R": rows(10)})
    assert runtime.watermark == 5
    runtime.push({"S": rows(4, 7, 30, 25)}, [1] * 4)
    assert runtime.watermark == 25
    assert runtime.late_counts == {"R": 0, "S": 1}
    assert eddy.Runtime.restore(runtime.snapshot(), runtime.query).watermark == 25
    told = eddy.Runtime(two_streams(lateness=5))
    told.push({"R": rows(10)}, watermark=3)
    assert told.watermark == 3
    told.push({}, watermark=50)
    assert told.watermark == 50
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Rows(5), time="t") for name in "RS"]
    counted = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    counted.push({"R": rows(10)})
    assert counted.watermark is None


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_million_and_a_half_late_rows_stay_within_the_bound() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("text", pa.string())])
    streams = [eddy.Stream(name, schema, window=eddy.Range(100), time="t") for name in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"], watermark="fastest"))
    runtime.push({"R": pa.record_batch({"k": [1], "t": [10**9], "text": ["x"]}, schema=schema)})
    state, allocated, each = runtime.nbytes, pa.total_allocated_bytes(), 30_000
    text = pa.array(["late " * 20] * each)
    for start in range(0, 1_500_000, each):
        times = pa.array(range(start, start + each))
        runtime.push({"R": pa.record_batch([times, times, text], schema=schema)})
    del times, text
    row = 8 + 8 + 100 + 4
    kept = runtime.nbytes - state
    assert LATE_ROWS * row <= kept <= LATE_ROWS * row * 1.1
    assert pa.total_allocated_bytes() - allocated <= kept * 1.1
    assert runtime.metrics()["late_bytes"] == kept
    assert runtime.metrics()["bytes"] == runtime.nbytes
    assert runtime.late_counts["R"] == 1_500_000
    assert runtime.metrics()["late_dropped"] == 1_500_000 - LATE_ROWS
    assert runtime.late()["R"]["t"].to_pylist() == list(range(1_500_000 - LATE_ROWS, 1_500_000))
    assert runtime.nbytes == state
    runtime.push({})  # until then `last_late` has them
    assert pa.total_allocated_bytes() - allocated < 10_000


def test_late_rows_take_what_max_bytes_leaves_and_refuse_no_push(caplog: pytest.LogCaptureFixture) -> None:
    """The same pushes with late rows only counted: the same pushes are refused."""
    most = 150_000
    runtimes = [eddy.Runtime(two_streams(late=late), max_bytes=most) for late in ("keep", "count")]
    refused, kept = [0, 0], 0
    for k in range(200):
        size = 20_000 if k % 50 == 49 else 50
        on_time = rows(*range(100_000 + 10 * k, 100_000 + 10 * k + size))
        batches = {"R": pa.concat_batches([on_time, rows(*range(100))]), "S": rows(*range(100))}
        order = [0] * (size + 100) + [1] * 100
        tables: list[pa.Table] = []
        for n, runtime in enumerate(runtimes):
            try:
                tables.append(runtime.push(batches, order))
            except eddy.CapacityError:
                refused[n] += 1
            used = runtime._pipeline.join.bound.used + runtime.metrics()["late_bytes"]
            assert used <= most, k
        assert len(tables) in (0, 2)
        kept = max(kept, runtimes[0].metrics()["late_bytes"])
    assert refused[0] == refused[1] > 0
    assert runtimes[0].late_counts == runtimes[1].late_counts
    assert 10_000 < kept < 200 * 200 * 16
    told = messages(caplog)
    assert sum("max_bytes" in message for message in told) in (1, 2)  # at most once for each stream


def test_states_stored_at_a_change_of_plan_make_late_rows_go() -> None:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(10**6), time="t") for name in "RST"]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], watermark="fastest")

    def filled(max_bytes: int | None) -> eddy.Runtime:
        runtime = eddy.Runtime(query, "(R S) T", policy="fixed", max_bytes=max_bytes)
        on_time = pa.record_batch({"k": list(range(500)), "t": [2 * 10**6] * 500}, schema=SCHEMA)
        runtime.push({"R": on_time, "S": on_time})
        runtime.push({"T": rows(*range(2000))})
        return runtime

    free = filled(None)
    stored = filled(None)
    stored.transition("(R S) T", store=["R S"])
    states = stored._pipeline.join.bound.used - free._pipeline.join.bound.used
    assert states > 1000
    most = free._pipeline.join.bound.used + free.metrics()["late_bytes"] + states // 2
    runtime = filled(most)
    assert runtime.metrics()["late_dropped"] == 0
    runtime.transition("(R S) T", store=["R S"])
    assert runtime.metrics()["late_dropped"] > 0
    assert runtime._pipeline.join.bound.used + runtime.metrics()["late_bytes"] <= most


# --- functions -------------------------------------------------------------------------------------------------------


def test_functions_take_all_late_rows_of_their_stream() -> None:
    """More rows than are stored, and never rows of another stream."""
    taker = Taker()
    runtime = eddy.Runtime(two_streams(late=taker, late_rows=2, streams={"S": "keep"}))
    runtime.push({"R": rows(100)})
    runtime.push({"R": rows(1, 2, 3), "S": rows(4)}, [0, 0, 0, 1])
    runtime.push({"R": rows(200)})
    runtime.push({"R": rows(5)})
    assert taker.taken == [("R", [1, 2, 3]), ("R", [5])]
    assert {name: table["t"].to_pylist() for name, table in runtime.late().items()} == {"S": [4]}
    assert runtime.metrics()["late_dropped"] == 0


def test_a_function_that_raises_does_not_undo_the_push() -> None:
    taker, other = Taker(), Taker()
    runtime = eddy.Runtime(two_streams(streams={"R": taker, "S": other}, late_rows=2))
    runtime.push({"R": rows(100)})
    taker.error = ValueError("the disk is full")
    with pytest.raises(eddy.LateRowsError, match=r"stream R: .* ValueError: the disk is full.* committed") as caught:
        runtime.push({"R": rows(1, 110), "S": rows(2)}, [0, 0, 1])
    assert caught.value.__cause__ is taker.error
    assert isinstance(caught.value, eddy.EddyError)
    runtime.check()
    assert (runtime.position, runtime.watermark) == (2, 110)
    assert runtime.late_counts == {"R": 1, "S": 1}
    # It is called again with the new rows, also after a push without late rows.
    with pytest.raises(eddy.LateRowsError):
        runtime.push({"S": rows(120)})
    taker.error = None
    runtime = eddy.Runtime.restore(runtime.snapshot(), runtime.query)
    assert runtime.push({"R": rows(3, 121)}, [0, 0]).num_rows == 1
    assert taker.taken == [("R", [1]), ("R", [1]), ("R", [1, 3])]
    assert other.taken == [("S", [2])]
    assert runtime.late() == {}
    # While it fails, the rows it has not taken are bounded as well.
    taker.error = KeyError("x")
    for t in range(5):
        with pytest.raises(eddy.LateRowsError, match="KeyError"):
            runtime.push({"R": rows(t)})
    assert runtime.late()["R"]["t"].to_pylist() == [3, 4]
    assert runtime.metrics()["late_dropped"] == 3
    runtime.push({"R": rows(130)})
    assert len(taker.taken) == 8


def test_an_interrupt_in_a_function_loses_no_late_row() -> None:
    taker = Taker()
    runtime = eddy.Runtime(two_streams(late=taker))
    runtime.push({"R": rows(100)})
    taker.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        runtime.push({"R": rows(1)})
    taker.error = None
    runtime.push({"R": rows(2)})
    assert taker.taken == [("R", [1]), ("R", [1, 2])]


def test_a_function_does_not_call_its_runtime() -> None:
    seen: list[int] = []

    def take(name: str, table: pa.Table) -> None:
        seen.append(table.num_rows)
        if len(seen) == 1:
            runtime.late()

    runtime = eddy.Runtime(two_streams(streams={"R": take}))
    runtime.push({"R": rows(100)})
    runtime.push({"S": rows(1, 2)})
    with pytest.raises(eddy.LateRowsError, match="late: this runtime is in the middle of another call"):
        runtime.push({"R": rows(3)})
    runtime.push({})
    assert seen == [1, 1]
    assert {name: table.num_rows for name, table in runtime.late().items()} == {"S": 2}


# --- between processes, and what is refused --------------------------------------------------------------------------


def test_late_rows_go_on_in_snapshots_and_live_engines(path: Path) -> None:
    runtime = eddy.Runtime(two_streams(late_rows=5))
    runtime.push({"R": rows(1000)})
    for t in range(8):
        runtime.push({"S": rows(t)})
    saved = runtime.snapshot()
    again = eddy.Runtime.restore(saved, two_streams(late_rows=5))
    assert again.snapshot() == saved
    assert again.nbytes - again.metrics()["late_bytes"] <= runtime.nbytes
    with EngineFile(path, KEY) as live:
        live.save(again, b"1")
    with EngineFile(path, KEY) as live:
        # A smaller bound applies from the next push on.
        loaded = live.load(b"1", two_streams(late_rows=2))
        assert loaded is not None
        assert loaded.late_counts == {"R": 0, "S": 8}
        loaded.push({"R": rows(1001)})
        assert loaded.metrics()["late_dropped"] == 6
        assert loaded.late()["S"]["t"].to_pylist() == [6, 7]
        live.save(loaded, b"2")
    assert Counter(runtime.late()["S"]["t"].to_pylist()) == Counter(range(3, 8))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"late": "drop"}, ["'keep', 'count' or a function", "'drop'"]),
        ({"late": None}, ["'keep', 'count' or a function", "None"]),
        ({"streams": {"R": "drop"}}, ["stream R", "'keep', 'count' or a function", "'drop'"]),
        ({"streams": {"R": ["keep"]}}, ["stream R", "['keep']"]),
        ({"late_rows": 0}, ["late_rows", "not 0", "late='count'"]),
        ({"late_rows": -1}, ["late_rows", "not -1"]),
        ({"late_rows": True}, ["late_rows", "not True"]),
        ({"late_rows": 1.5}, ["late_rows", "not 1.5"]),
        ({"late_rows": None}, ["late_rows", "not None"]),
        ({"lateness": -1}, ["lateness", "-1"]),
        ({"lateness": timedelta(seconds=-1), "kind": pa.timestamp("us")}, ["lateness", "negative"]),
        ({"lateness": 2**61 + 1}, ["lateness", "2^61"]),
        ({"lateness": timedelta.max, "kind": pa.timestamp("ns")}, ["lateness", "2^61"]),
        ({"lateness": float("nan")}, ["lateness", "nan"]),
        ({"lateness": True}, ["lateness", "True"]),
        ({"lateness": "1 hour"}, ["lateness", "1 hour"]),
    ],
    ids=repr,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(eddy.QueryError) as caught:
        two_streams(**wrong)
    for word in named:
        assert word in str(caught.value)

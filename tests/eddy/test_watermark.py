"""Watermarks passed by the caller, and rows loaded with `Runtime.load`, compared with the oracle and with pushes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import InputError, Range, Rows, Runtime, Stream
from jisc.strategies import STRATEGIES
from tests.cases import (
    Arrival,
    BatchedPush,
    JoinCase,
    StreamCase,
    assert_changes,
    assert_same,
    changes,
    id_rows,
    late_rows,
    raising,
    results,
    sorted_by_time,
    text_rows,
)
from tests.draws import arrivals, cases, fewer, neighbours_by_predicate, plans, splits
from tests.key_types import UNIT_NS

RANGED = cases(max_streams=4).filter(lambda case: any(stream.window == "range" for stream in case.streams))
ANY = cases(max_streams=4)
CHANGING = [name for name, strategy in STRATEGIES.items() if strategy.changes]
ROWS = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def tick(case: JoinCase) -> int:
    """Return the plain value of one tick of the engine's time type."""
    kind = case.query().time_type
    return UNIT_NS[kind.unit] if pa.types.is_timestamp(kind) else 1


def plain_time(case: JoinCase, arrival: Arrival) -> Any:
    return arrival[1][case.streams[arrival[0]].time]


@st.composite
def watermarks(draw: st.DrawFn, case: JoinCase, pushes: Sequence[BatchedPush]) -> list[int]:
    """Draw a rising watermark for each push, in ticks: near its times, rather low, rather high, or far away."""
    unit, marks = tick(case), list[int]()
    for push in pushes:
        times = [plain_time(case, arrival) // unit for arrival in push.arrivals] or [0]
        step = max(max(stream.size for stream in case.streams) // unit // 4, 1)
        wanted = draw(st.sampled_from([min(times), max(times)])) + draw(st.sampled_from((0, -1, -3, 1, -9, 3))) * step
        marks.append(max([wanted, *marks[-1:]]))
    return marks


def pushed(
    case: JoinCase, runtime: Runtime, push: BatchedPush, watermark: int, sort: bool
) -> tuple[pa.Table, list[Arrival]]:
    """Push in the given order or by time; return the table and the arrivals in their order."""
    if sort:
        return runtime.push(push.batches(case), watermark=watermark), sorted_by_time(case, push.arrivals)
    return runtime.push(push.batches(case), push.order(), watermark=watermark), list(push.arrivals)


def read_late(runtime: Runtime) -> dict[str, list[tuple[str, ...]]]:
    return {name: text_rows(table) for name, table in runtime.late().items() if table.num_rows}


@pytest.mark.slow
@fewer(3)
@given(st.data())
def test_pushes_with_watermarks_give_what_the_oracle_gives(data: st.DataObject) -> None:
    case = data.draw(RANGED)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    strategy = data.draw(st.sampled_from(sorted(STRATEGIES)))
    output = data.draw(st.sampled_from(("append", "changelog")))
    form = data.draw(st.sampled_from(("rows", "ids", "count")))
    options: dict[str, Any] = {"output": output, "ids_only": form == "ids", "count_only": form == "count"}
    options["ordered"] = sort = form != "count" and data.draw(st.booleans())
    runtime = Runtime(case.query(), strategy=strategy, renumber_at=data.draw(st.sampled_from((8, 1 << 30))), **options)
    oracle, unit, total = case.oracle(), tick(case), 0
    for push, watermark in zip(pushes, data.draw(watermarks(case, pushes)), strict=True):
        moment = data.draw(st.integers(0, 7))
        if moment == 0:
            runtime = Runtime.restore(runtime.snapshot(), case.query())
        elif moment == 1 and strategy in CHANGING:
            at = runtime.position + data.draw(st.integers(0, 3))
            runtime.transition(data.draw(plans(case, neighbours_by_predicate(case))), at)
        elif moment == 2 and (given := runtime.watermark) is not None:
            with pytest.raises(InputError, match=f"{given - 1} is below {given}"):
                runtime.push(push.batches(case), push.order(), watermark=given - 1)
        elif moment == 3 and push.arrivals:
            with pytest.raises(InputError):
                runtime.push(push.batches(case), [0] * (len(push.arrivals) + 1), watermark=watermark + 1)
        table, ordered = pushed(case, runtime, push, watermark, data.draw(st.booleans()))
        runtime.check()
        outcomes, ended = oracle.push([(case.names[i], row) for i, row in ordered], watermark * unit)
        expected = changes(case, outcomes, oracle, output, form, sort)
        if output == "changelog" and form == "count":
            expected[1] = [("-D", expected[1][0][1] + len(ended))]
        elif output == "changelog" and ended:
            rows = [case.project(oracle, result) for result in ended] if form == "rows" else ended
            last = [("-D", *row) for row in rows]
            expected += [[row] for row in last] if sort else [last]
        assert_changes(table, expected, form)
        assert read_late(runtime) == late_rows(case, ordered, outcomes)
        assert runtime.position == sum(map(len, oracle.tuples.values()))
        total += len(results(outcomes))
    event(f"results: {'none' if not total else 'some'}")


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_watermark_that_fails_leaves_no_trace(strategy: str) -> None:
    """The division by zero comes after the walk, when the watermark has passed."""
    streams = [Stream(name, ROWS, window=Range(5), time="t") for name in "RS"]
    runtime = Runtime(
        eddy.Query(streams, ["R.k = S.k"], where=raising("R.k", 1, -1)), strategy=strategy, output="changelog"
    )
    good = pa.record_batch({"k": [1, 2], "t": [10, 11]}, schema=ROWS)
    runtime.push({"R": good, "S": good}, watermark=9)
    before = runtime.snapshot()
    bad = pa.record_batch({"k": [0], "t": [30]}, schema=ROWS)
    with pytest.raises(InputError):
        runtime.push({"R": bad, "S": bad}, watermark=40)
    assert runtime.snapshot() == before
    runtime.check()
    # Both pairs can still be deleted; a row of time 9 is not late.
    late = pa.record_batch({"k": [2], "t": [9]}, schema=ROWS)
    assert runtime.push({"S": late}, watermark=9).to_pydict()["op"] == ["+I"]
    assert runtime.push({}, watermark=100)["op"].to_pylist() == ["-D"] * 3


def timed_runtime() -> Runtime:
    return Runtime(eddy.Query([Stream(name, ROWS, window=Range(5), time="t") for name in "RS"], ["R.k = S.k"]))


def test_watermarks_that_cannot_come() -> None:
    rows = pa.record_batch({"k": [1], "t": [10]}, schema=ROWS)
    counted = [Stream(name, ROWS, window=Rows(5)) for name in "RS"]
    with pytest.raises(InputError, match="no stream has a Range window"):
        Runtime(eddy.Query(counted, ["R.k = S.k"])).push({"R": rows}, watermark=3)
    runtime = timed_runtime()
    for wrong in (True, 1.5, "x"):
        with pytest.raises(InputError, match="whole number of ticks"):
            runtime.push({"R": rows}, watermark=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2\\^61"):
        runtime.push({"R": rows}, watermark=1 << 62)
    runtime.push({"R": rows}, watermark=3)
    with pytest.raises(InputError, match="watermark=2 is below 3"):
        runtime.push({"R": rows}, watermark=2)
    assert runtime.position == 1
    runtime.push({"R": rows, "S": rows})
    assert runtime.watermark == 10
    for either in (runtime, Runtime.restore(runtime.snapshot(), runtime.query)):
        with pytest.raises(InputError, match="watermark=9 is below 10"):
            either.push({"R": rows}, watermark=9)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_the_first_call_after_a_restore_may_be_a_watermark_alone(strategy: str) -> None:
    streams = [Stream(name, ROWS, window=Range(10), time="t") for name in "RST"]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"])
    runtime = Runtime(query, strategy=strategy, output="changelog")
    row = pa.record_batch({"k": [1], "t": [5]}, schema=ROWS)
    assert runtime.push(dict.fromkeys("RST", row), watermark=5)["op"].to_pylist() == ["+I"]
    again = Runtime.restore(runtime.snapshot(), query)
    assert again.push({}, watermark=100)["op"].to_pylist() == ["-D"]


def test_an_empty_push_forgets_by_its_watermark() -> None:
    runtime = timed_runtime()
    runtime.push({"R": pa.record_batch({"k": [1, 1], "t": [10, 20]}, schema=ROWS)}, watermark=0)
    runtime.push({}, watermark=16)
    assert runtime.metrics()["states"]["R"]["rows"] == 1
    # The lateness of the query does not apply here: 16 is not late, 15 is.
    table = runtime.push({"S": pa.record_batch({"k": [1, 1], "t": [16, 15]}, schema=ROWS)}, watermark=16)
    assert table["S.t"].to_pylist() == [16]
    assert runtime.late()["S"]["t"].to_pylist() == [15]


# --- loading ---------------------------------------------------------------------------------------------------------


def sorted_rows(case: JoinCase, rows: Sequence[Arrival]) -> list[Arrival]:
    """Return rows in the order in which `load` takes them."""
    return sorted_by_time(case, rows) if case.streams[0].time is not None else list(rows)


@pytest.mark.campaign(0)
@given(st.data())
def test_after_a_load_pushes_give_what_they_give_after_pushes(data: st.DataObject) -> None:
    case = data.draw(ANY)
    rows = data.draw(arrivals(case))
    cut = data.draw(st.integers(0, len(rows)))
    past, rest = sorted_rows(case, rows[:cut]), data.draw(splits(rows[cut:]))
    named = case.query().time_type is not None and any(stream.window == "range" for stream in case.streams)
    marks = (
        data.draw(watermarks(case, [BatchedPush(tuple(past)), *rest])) if named and data.draw(st.booleans()) else None
    )
    strategy = data.draw(st.sampled_from(sorted(STRATEGIES)))
    options: dict[str, Any] = {
        "strategy": strategy,
        "output": data.draw(st.sampled_from(("append", "changelog"))),
        "ids_only": data.draw(st.booleans()),
    }
    plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
    whole, loaded = (Runtime(case.query(), plan, **options) for _ in range(2))
    first = BatchedPush(tuple(past), data.draw(st.integers(0, 7**7 - 1)))
    whole.push(first.batches(case), first.order(), watermark=marks[0] if marks else None)
    loaded.load(first.batches(case), watermark=marks[0] if marks else None)
    loaded.check()
    for n, push in enumerate(rest):
        if n == 1 and data.draw(st.booleans()):
            loaded = Runtime.restore(loaded.snapshot(), case.query())
        watermark = marks[n + 1] if marks else None
        tables = [runtime.push(push.batches(case), push.order(), watermark=watermark) for runtime in (whole, loaded)]
        loaded.check()
        assert_same(text_rows(tables[1]), text_rows(tables[0]), "rows of a push after a load")
        assert read_late(loaded) == read_late(whole)
        assert loaded.position == whole.position
    mine, theirs = (runtime.metrics()["states"] for runtime in (loaded, whole))
    for name in case.names:
        assert [mine[name][c] for c in ("arrivals", "rows")] == [theirs[name][c] for c in ("arrivals", "rows")]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_rows_loaded_and_expired_have_their_arrival_numbers(strategy: str) -> None:
    rows = pa.record_batch({"k": [1] * 30, "t": list(range(30))}, schema=ROWS)
    runtime = Runtime(timed_runtime().query, ids_only=True, strategy=strategy)
    runtime.load({"R": rows, "S": rows}, watermark=20)
    assert runtime.metrics()["states"]["R"] | {"rows": 15, "expired": 15} == runtime.metrics()["states"]["R"]
    table = runtime.push({"S": pa.record_batch({"k": [1], "t": [21]}, schema=ROWS)}, watermark=21)
    assert_same(id_rows(_pair(), table), [(n, 30) for n in range(16, 27)], "ids")


def _pair() -> JoinCase:
    return JoinCase(tuple(StreamCase(name, ROWS, "range", 5, "t") for name in "RS"), (((("R", "k"), ("S", "k")),),))


def test_loads_that_cannot_come() -> None:
    rows = pa.record_batch({"k": [1], "t": [10]}, schema=ROWS)
    runtime = timed_runtime()
    runtime.transition("S R", at=1)
    with pytest.raises(InputError, match="transitions are scheduled, the first at 1"):
        runtime.load({"R": rows})
    runtime = timed_runtime()
    with pytest.raises(InputError, match="there is no stream 'X'"):
        runtime.load({"X": rows})
    runtime.load({"R": rows}, watermark=3)
    with pytest.raises(InputError, match="1 rows have arrived already"):
        runtime.load({"R": rows}, watermark=3)
    assert runtime.watermark == 3
    small = Runtime(timed_runtime().query, max_bytes=20_000)
    many = pa.record_batch({"k": list(range(3000)), "t": [10] * 3000}, schema=ROWS)
    with pytest.raises(eddy.CapacityError):
        small.load({"R": many}, watermark=3)
    small.check()
    small.load({"R": rows}, watermark=3)
    assert small.push({"S": rows}, watermark=3).num_rows == 1

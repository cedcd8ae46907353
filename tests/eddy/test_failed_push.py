"""A failed push leaves the state as it was: the next good push gives the results of the oracle.

The state machine drives one runtime through good and bad pushes; each test after it has one bad push and checks
its error message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import eddy
from eddy.fuzz.oracle import NoValueError, Oracle
from jisc.strategies import STRATEGIES
from tests.cases import (
    Arrival,
    BatchedPush,
    Condition,
    JoinCase,
    arrow_rows,
    assert_same,
    feed,
    id_rows,
    late_rows,
    raising,
    results,
    text_rows,
)
from tests.draws import TIME, VALUE, arrivals, cases, neighbours_by_predicate, plans

Batches = dict[str, Any]
Spoil = Callable[[JoinCase, Batches, np.ndarray], tuple[Batches, Any]]


def unknown_stream(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return {**batches, "nobody": arrow_rows(case.streams[0].schema, [])}, order


def missing_column(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    name = next(iter(batches))
    return {**batches, name: batches[name].drop_columns([VALUE])}, order


def wrong_type(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    name = next(iter(batches))
    table = batches[name]
    at = table.schema.get_field_index(VALUE)
    return {**batches, name: table.set_column(at, VALUE, pa.array(["x"] * table.num_rows, pa.string()))}, order


def no_batch(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return {**batches, next(iter(batches)): [{VALUE: 1}]}, order


def long_order(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, np.append(order, order[:1])


def short_order(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, order[:-1]


def order_beyond_the_streams(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, np.append(order[:-1], len(case.streams))


def negative_order(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, np.append(order[:-1].astype(np.int64), -1)


def order_of_another_stream(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, np.append(order[:-1], (order[-1] + 1) % len(case.streams))


def fractional_order(case: JoinCase, batches: Batches, order: np.ndarray) -> tuple[Batches, Any]:
    return batches, order + 0.5


SPOILS: tuple[Spoil, ...] = (
    unknown_stream,
    missing_column,
    wrong_type,
    no_batch,
    long_order,
    short_order,
    order_beyond_the_streams,
    negative_order,
    order_of_another_stream,
    fractional_order,
)


def fragile(stream: str, kind: str) -> Condition:
    """Return a result filter for which only the data show an error, for a result whose value is 0.

    kind   "function": it raises, and the push fails; "expression": the result fails alone
    """
    name = f"{stream}.{VALUE}"
    expression = pc.divide(pc.scalar(12), pc.field(name)) > pc.scalar(2)

    def holds(row: Mapping[str, Any]) -> bool | None:
        if row[name] == 0:
            raise ZeroDivisionError if kind == "function" else NoValueError
        return None if row[name] is None else 12 // row[name] > 2

    return Condition(raising(name, 12, 2) if kind == "function" else expression, holds)


class PushesGoodAndBad(RuleBasedStateMachine):
    """One runtime and its oracle, with the same good pushes; the runtime also gets bad and too large ones."""

    case: JoinCase
    oracle: Oracle
    runtime: eddy.Runtime

    @initialize(
        data=st.data(),
        breakable=st.sampled_from(["", "function", "expression"]),
        strategy=st.sampled_from(sorted(STRATEGIES)),
    )
    def start(self, data: st.DataObject, breakable: str, strategy: str) -> None:
        case = data.draw(cases(max_streams=4))
        if breakable:
            case = replace(case, where=fragile(case.names[0], breakable))
        self.case = case
        self.oracle = case.oracle()
        plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
        self.runtime = eddy.Runtime(case.query(), plan, strategy=strategy, policy="fixed", ids_only=True)
        self.late: dict[str, list[tuple[str, ...]]] = {}
        self.bounded = False
        """True if a bound has been set since the last collection of late rows."""

    @rule(data=st.data(), shape=st.integers(0, 7**4 - 1))
    def push(self, data: st.DataObject, shape: int) -> None:
        push = BatchedPush(tuple(data.draw(arrivals(self.case, max_arrivals=12))), shape)
        tried = self.oracle.copy()
        try:
            outcomes = feed(self.case, tried, push.arrivals)
        except ZeroDivisionError:
            self.refused(push.batches(self.case), push.order())
            return
        before = counted(self.runtime)
        try:
            table = self.runtime.push(push.batches(self.case), push.order())
        except eddy.CapacityError:
            assert self.runtime.max_bytes is not None
            assert counted(self.runtime) == before
            return
        assert_same(id_rows(self.case, table), results(outcomes), "ids of a push")
        self.oracle = tried
        assert self.runtime.failed_count == tried.failed
        for name, rows in late_rows(self.case, push.arrivals, outcomes).items():
            self.late.setdefault(name, []).extend(rows)

    @rule(more=st.sampled_from([None, 0, 0, 100, 2_000, 20_000]))
    def move_the_bound(self, more: int | None) -> None:
        """Set no room, some room, or unlimited room: requests are then refused somewhere within a push."""
        used = self.runtime._pipeline.join.bound.base() + self.runtime._pipeline.join.strategy.nbytes
        self.runtime.max_bytes = None if more is None else used + more
        self.bounded |= more is not None

    @rule(data=st.data(), spoil=st.sampled_from(SPOILS), shape=st.integers(0, 7**4 - 1))
    def push_spoiled(self, data: st.DataObject, spoil: Spoil, shape: int) -> None:
        push = BatchedPush(tuple(data.draw(arrivals(self.case, max_arrivals=12))), shape)
        self.refused(*spoil(self.case, push.batches(self.case), np.asarray(push.order())))

    @precondition(lambda self: any(stream.window == "range" for stream in self.case.streams))
    @rule(data=st.data(), pick=st.integers(0, 100))
    def push_without_an_event_time(self, data: st.DataObject, pick: int) -> None:
        rows: list[Arrival] = data.draw(arrivals(self.case, max_arrivals=12))
        # A rejected row needs no time, so take an accepted one.
        kept = [
            k for k, outcome in enumerate(feed(self.case, unfiltered(self.case), rows)) if outcome.fate != "rejected"
        ]
        if kept:
            at = kept[pick % len(kept)]
            rows[at] = (rows[at][0], {**rows[at][1], TIME: None})
            push = BatchedPush(tuple(rows))
            self.refused(push.batches(self.case), push.order())

    @rule()
    def drain_late(self) -> None:
        got = {name: text_rows(table) for name, table in self.runtime.late().items() if table.num_rows}
        for name, rows in self.late.items():
            # A bound without room for late rows has dropped the oldest.
            kept = got.pop(name, [])
            assert kept == rows[len(rows) - len(kept) :]
            assert kept == rows or self.bounded
        assert got == {}
        self.late = {}
        self.bounded = self.runtime.max_bytes is not None

    @rule()
    def look(self) -> None:
        assert isinstance(self.runtime.explain(), str)

    @invariant()
    def state_is_sound(self) -> None:
        if hasattr(self, "runtime"):
            self.runtime.check()

    def refused(self, batches: Batches, order: Any) -> None:
        """Push rows that must fail, and compare all figures."""
        before = counted(self.runtime)
        # Either of two reasons may be found first.
        expected = eddy.InputError if self.runtime.max_bytes is None else (eddy.InputError, eddy.CapacityError)
        with pytest.raises(expected):
            self.runtime.push(batches, order)
        assert counted(self.runtime) == before


def unfiltered(case: JoinCase) -> Oracle:
    """Return an oracle whose result filter cannot fail."""
    return replace(case, where=None).oracle()


def counted(runtime: eddy.Runtime) -> dict[str, Any]:
    """Return the figures of rows; bytes may grow, dead keys may be swept, and stored states are emptied."""
    return {
        name: figure
        for name, figure in runtime.metrics().items()
        if "bytes" not in name and name not in ("states", "classes", "stairs")
    }


TestPushesGoodAndBad = PushesGoodAndBad.TestCase
# An example has up to 30 pushes, so a third of the usual number of examples is about as much work.
TestPushesGoodAndBad.settings = settings(max_examples=max(settings().max_examples // 3, 1), stateful_step_count=30)


# --- one bad push each: the message ----------------------------------------------------------------------------------

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), (VALUE, pa.int64())])


def two_streams(**more: Any) -> eddy.Query:
    return eddy.Query(
        streams=[
            eddy.Stream(name, SCHEMA, window=eddy.Range(timedelta(microseconds=10)), time="t")
            for name in ("left", "right")
        ],
        on=["left.k = right.k"],
        **more,
    )


def rows(*keys: int | None, time: int | None = 0, value: int = 1) -> pa.RecordBatch:
    return arrow_rows(SCHEMA, [{"k": key, "t": time, VALUE: value} for key in keys])


@pytest.mark.parametrize(
    ("batches", "order", "named"),
    [
        ({"middle": rows(1)}, None, ["middle", "left", "right"]),
        ({"left": rows(1).drop_columns(["k"])}, None, ["left", "k"]),
        ({"left": rows(1).set_column(0, "k", pa.array(["x"]))}, None, ["left", "k", "int64", "string"]),
        ({"left": [1]}, None, ["left", "list"]),
        ({"left": rows(1, time=None)}, None, ["left", "t", "null"]),
        ({"left": rows(1), "right": rows(1)}, [0], ["order", "2", "1"]),
        ({"left": rows(1), "right": rows(1)}, [0, 0], ["order", "left"]),
        ({"left": rows(1), "right": rows(1)}, [0, 2], ["order", "2"]),
        ({"left": rows(1), "right": rows(1)}, [0, -1], ["order", "-1"]),
        ({"left": rows(1), "right": rows(1)}, [0.0, 1.0], ["order", "integer"]),
        ({"left": rows(1), "right": rows(1)}, [[0, 1]], ["order"]),
    ],
)
def test_the_message_names_what_is_wrong(batches: Batches, order: Any, named: list[str]) -> None:
    runtime = eddy.Runtime(two_streams())
    with pytest.raises(eddy.InputError) as caught:
        runtime.push(batches, None if order is None else np.array(order))
    for word in named:
        assert word in str(caught.value)
    runtime.check()
    assert runtime.push({"left": rows(1), "right": rows(1)}).num_rows == 1


def test_without_times_several_streams_need_an_order() -> None:
    schema = pa.schema([("k", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(5)) for name in ("left", "right")]
    runtime = eddy.Runtime(eddy.Query(streams=streams, on=["left.k = right.k"]))
    batch = arrow_rows(schema, [{"k": 1}])
    with pytest.raises(eddy.InputError, match="order") as caught:
        runtime.push({"left": batch, "right": batch})
    assert "left" in str(caught.value)
    assert runtime.push({"left": batch}).num_rows == 0
    assert runtime.push({"right": batch}).num_rows == 1


@pytest.mark.parametrize("size", [1, 1000])
def test_a_result_filter_that_raises_takes_the_whole_push_back(size: int) -> None:
    fine, bad = rows(*range(size)), rows(*range(size), value=0)
    runtime = eddy.Runtime(two_streams(where=raising("right.v", 12, 2)))
    assert runtime.push({"left": fine}).num_rows == 0
    before = counted(runtime)
    with pytest.raises(eddy.InputError, match="where"):
        runtime.push({"right": bad})
    runtime.check()
    assert counted(runtime) == before
    # The rows of the failed push are absent: left rows match the new right rows only.
    assert runtime.push({"right": fine}).num_rows == size
    assert runtime.push({"left": fine}).num_rows == size


def test_a_stream_filter_that_raises_takes_the_whole_push_back() -> None:
    keep = pc.divide(pc.scalar(12), pc.field(VALUE)) > pc.scalar(2)
    streams = [
        eddy.Stream("left", SCHEMA, window=eddy.Rows(5), time="t"),
        eddy.Stream("right", SCHEMA, window=eddy.Rows(5), time="t", filter=keep),
    ]
    runtime = eddy.Runtime(eddy.Query(streams=streams, on=["left.k = right.k"]))
    with pytest.raises(eddy.InputError, match="right"):
        runtime.push({"left": rows(1), "right": rows(1, value=0)})
    assert runtime.push({"right": rows(1)}).num_rows == 0
    assert runtime.push({"left": rows(1)}).num_rows == 1


def test_late_rows_of_a_failed_push_are_not_handed_out() -> None:
    runtime = eddy.Runtime(two_streams(where=raising("right.v", 12, 2)))
    runtime.push({"left": rows(1, time=100_000)})
    late = pa.concat_batches([rows(1, time=0), rows(1, time=100_000, value=0)])
    with pytest.raises(eddy.InputError):
        runtime.push({"right": late}, np.zeros(2, np.int64) + 1)
    assert all(table.num_rows == 0 for table in runtime.late().values())
    assert runtime.metrics()["late"] == 0
    # The event times of the failed push are forgotten too.
    assert runtime.push({"right": rows(1, time=100_000)}).num_rows == 1


def test_a_null_event_time_matters_only_where_times_do() -> None:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Rows(5), time="t") for name in ("left", "right")]
    runtime = eddy.Runtime(eddy.Query(streams=streams, on=["left.k = right.k"]))
    # Without a RANGE window, times only sort a push without `order`.
    assert runtime.push({"left": rows(1, time=None), "right": rows(1, time=None)}, [0, 1]).num_rows == 1
    with pytest.raises(eddy.InputError, match="t"):
        runtime.push({"left": rows(1, time=None), "right": rows(1)})
    assert runtime.metrics()["arrivals"] == 2


def test_a_rejected_row_needs_no_event_time() -> None:
    keep = pc.field(VALUE) > 0
    window = eddy.Range(timedelta(microseconds=5))
    streams = [eddy.Stream(name, SCHEMA, window=window, time="t", filter=keep) for name in ("left", "right")]
    runtime = eddy.Runtime(eddy.Query(streams=streams, on=["left.k = right.k"]))
    assert runtime.push({"left": rows(1, time=None, value=0), "right": rows(1)}, [0, 1]).num_rows == 0
    assert runtime.push({"left": rows(1)}).num_rows == 1
    assert runtime.metrics()["arrivals"] == 2


def test_a_push_of_nothing() -> None:
    runtime = eddy.Runtime(two_streams())
    for batches in ({}, {"left": rows()}, {"left": rows(), "right": rows()}):
        for order in (None, [], np.zeros(0, np.int64)):
            table = runtime.push(batches, order)
            assert table.num_rows == 0
            assert table.schema == runtime.query.output_schema
    runtime.check()
    assert eddy.Runtime(two_streams(), count_only=True).push({}).to_pydict() == {"count": [0]}


# --- pushes for which there is no room -------------------------------------------------------------------------------


def test_a_push_refused_in_the_middle_of_interning_leaves_nothing_behind() -> None:
    """Rows before the key that is too long had key ids already; the next push starts with its first row."""
    schema = pa.schema([("k", pa.string())])
    query = eddy.Query([eddy.Stream(name, schema, window=eddy.Rows(100)) for name in ("R", "S")], ["R.k = S.k"])
    runtime = eddy.Runtime(query, max_bytes=100_000)
    keys = pa.record_batch({"k": ["a", "b", "c", "d"]})
    with pytest.raises(eddy.CapacityError, match="strings in keys"):
        runtime.push({"R": pa.record_batch({"k": [*"abcd", "x" * 90_000]})})
    runtime.check()
    assert runtime.push({"R": keys}).num_rows == 0
    table = runtime.push({"S": keys})
    assert sorted(table.to_pylist(), key=str) == [{"R.k": key, "S.k": key} for key in "abcd"]
    runtime.check()
    for n in range(300):
        assert runtime.push({"RS"[n % 2]: pa.record_batch({"k": [f"key {n // 2}"]})}).num_rows == n % 2
    runtime.check()

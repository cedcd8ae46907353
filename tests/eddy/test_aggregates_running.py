"""Aggregates in running systems: failures, interrupts, memory, live engines, errors; exact sums; types of values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import Hopping, Query, Range, Rows, Runtime, Session, Stream, Tumbling, agg, aggregates, pipeline
from eddy.aggregates.sums import Sum
from eddy.live.engine_file import EngineFile
from tests.tracing import tracing

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("x", pa.float64()), ("t", pa.int64())])
FUNCTIONS = {
    "n": agg.count(),
    "x": agg.sum("R.x"),
    "low": agg.min("R.g"),
    "different": agg.count_distinct("R.x"),
    "last": agg.last("S.g"),
}


def streams(window: Any = None) -> list[Stream]:
    return [Stream(name, ROWS, window=window or Range(6), time="t") for name in "RS"]


def joined(**more: Any) -> Query:
    return Query(streams(), ["R.k = S.k"], **{"group_by": ["R.g"], "aggregates": FUNCTIONS, **more})


def rows(seed: int, first: int, n: int = 12) -> pa.RecordBatch:
    rng = random.Random(seed)
    made = [
        {
            "k": rng.randrange(3),
            "g": rng.choice(("a", "b", None, f"text {seed}")),
            "x": rng.random(),
            "t": first + k // 2,
        }
        for k in range(n)
    ]
    return pa.RecordBatch.from_pylist(made, schema=ROWS)


def step(runtime: Runtime, number: int) -> pa.Table:
    return runtime.push({"R": rows(2 * number, 5 * number), "S": rows(2 * number + 1, 5 * number)})


def lines(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "changelog": ({}, {"output": "changelog"}),
    "final": ({"expiry": "final"}, {"output": "changelog"}),
    "panes": ({"group_window": Hopping(6, 4)}, {}),
    "sessions": ({"group_window": Session(1)}, {}),
    "end": ({}, {"bounded": True}),
}
"""By form of output the arguments of the query and of the runtime."""


class TracerInterruption(BaseException):
    """Raised by the tracer."""


@contextmanager
def interrupted_at(line: int) -> Iterator[None]:
    """Raise at a line of the aggregates' code or of the transaction around it, counted as lines run."""
    places = tuple(str(Path(module.__file__).parent) for module in (pipeline, aggregates))
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal count
        if not frame.f_code.co_filename.startswith(places):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise TracerInterruption
        return trace

    with tracing(trace):
        yield


@pytest.mark.campaign(1)
@pytest.mark.parametrize("form", FORMS)
def test_an_interrupted_push_has_happened_in_whole_or_not_at_all(form: str) -> None:
    of_query, options = FORMS[form]
    query = joined(**of_query)
    start = Runtime(query, **options)
    for number in range(3):
        step(start, number)
    saved, expected = start.snapshot(), [lines(step(start, number)) for number in (3, 4)]
    after, line = lines(start.groups()), 1
    while True:
        runtime = Runtime.restore(saved, query)
        before = runtime.pushes
        try:
            with interrupted_at(line):
                table = step(runtime, 3)
        except TracerInterruption:
            if runtime.pushes == before:
                table = step(runtime, 3)
            else:
                last = runtime.last_push()
                assert last is not None
                table = last.results
        else:
            break
        runtime.check()
        assert [lines(table), lines(step(runtime, 4))] == expected
        assert lines(runtime.groups()) == after
        line += 23
    assert line > 200


@pytest.mark.parametrize("form", FORMS)
def test_a_push_that_fails_leaves_the_groups_as_they_were(form: str) -> None:
    of_query, options = FORMS[form]

    def broken(batch: pa.RecordBatch) -> Any:
        assert 7 not in batch["R.k"].to_pylist(), "seven"
        return pc.is_valid(batch["R.k"])

    query = joined(aggregates=FUNCTIONS, where=eddy.Predicate(broken, ["R.k"]), **of_query)
    runtime = Runtime(query, **options)
    for number in range(3):
        step(runtime, number)
    saved, state = runtime.snapshot(), lines(runtime.groups())
    seven = [{"k": 7, "g": "a", "x": 1.0, "t": 40}]
    with pytest.raises(eddy.InputError, match=r"where, .* failed on these results: AssertionError: seven"):
        runtime.push({"R": seven, "S": seven})
    runtime.check()
    assert lines(runtime.groups()) == state
    assert runtime.snapshot() == saved
    assert lines(step(runtime, 3)) == lines(step(Runtime.restore(saved, query), 3))


def test_a_sum_beyond_its_range_leaves_its_group_out_until_it_is_back() -> None:
    schema = pa.schema([("i", pa.int64())])
    runtime = Runtime(
        Query([Stream("R", schema, window=Rows(2))], aggregates={"s": agg.sum("R.i")}), output="changelog"
    )
    most = (1 << 63) - 1
    runtime.push({"R": [{"i": most}]})
    assert runtime.push({"R": [{"i": 1}]}).to_pylist() == [{"op": "-D", "s": most}]
    runtime.check()
    assert runtime.groups().to_pylist() == []
    assert runtime.push({"R": [{"i": -1}]}).to_pylist() == [{"op": "+I", "s": 0}]
    (failed,) = runtime.failed().to_pylist()
    assert (failed["kind"], failed["expression"]) == ("aggregate", "sum(R.i) AS s")
    assert failed["reason"].startswith("the sum exceeds the range of int64; sum a decimal")
    # What leaves within the push does not count.
    assert runtime.push({"R": [{"i": 5}, {"i": most - 5}]}).to_pylist()[1] == {"op": "+I", "s": most}
    assert runtime.failed_count == 1


def test_max_bytes_bounds_the_groups() -> None:
    query = Query([Stream("R", ROWS)], group_by=["R.k"], aggregates={"n": agg.count_distinct("R.g")})
    runtime = Runtime(query, output="changelog", max_bytes=1 << 20)

    def fill() -> None:
        for first in range(0, 100_000, 1000):
            made = {"k": list(range(first, first + 1000)), "g": ["text"] * 1000, "x": [0.0] * 1000, "t": [0] * 1000}
            runtime.push({"R": pa.table(made, schema=ROWS)})

    with pytest.raises(eddy.CapacityError, match="max_bytes"):
        fill()
    runtime.check()
    assert runtime._pipeline.join.bound.base() <= 1 << 20
    assert len(runtime.groups()) == runtime.position


def test_memory_follows_the_open_groups() -> None:
    query = Query(
        [Stream("R", ROWS, time="t")],
        group_by=["R.g", "R.k"],
        aggregates={"n": agg.count_distinct("R.g"), "last": agg.last("R.g")},
        group_window=Tumbling(10),
    )
    runtime, sizes = Runtime(query), []
    for number in range(40):
        n = 3000 if number == 3 else 300
        made = [{"k": k, "g": f"{number} {k} {'long ' * 9}", "x": 0.0, "t": 10 * number} for k in range(n)]
        runtime.push({"R": made})
        sizes.append(runtime._pipeline.groups.nbytes)  # type: ignore[union-attr]
        runtime.check()
    assert max(sizes[20:]) < 0.6 * max(sizes)
    assert len(runtime.groups()) == 300


@pytest.mark.parametrize("form", FORMS)
def test_groups_move_to_another_process(form: str, tmp_path: Path) -> None:
    of_query, options = FORMS[form]
    query = joined(**of_query)
    runtime = Runtime(query, **options)
    for number in range(3):
        step(runtime, number)
    saved = runtime.snapshot()
    with EngineFile(tmp_path / "engine", b"a key of more than so many bytes") as live:
        live.save(runtime, b"1")
        loaded = live.load(b"1", query)
        assert loaded is not None
        again = Runtime.restore(saved, query)
        for number in (3, 4):
            assert lines(step(loaded, number)) == lines(step(again, number))
        assert lines(loaded.finish()) == lines(again.finish())


def test_a_changelog_over_a_stream_without_a_window_keeps_no_rows() -> None:
    query = Query([Stream("R", ROWS)], group_by=["R.k"], aggregates={"n": agg.count(), "x": agg.max("R.x")})
    runtime = Runtime(query, output="changelog")
    for number in range(50):
        runtime.push({"R": rows(number, 0, 100)})
    assert sum(row["n"] for row in runtime.groups().to_pylist()) == 5000
    assert runtime._pipeline.join.modules.oldest().tolist() == [4999]


def test_sums_of_floats_are_rounded_once() -> None:
    """Also after values of any size have come and gone."""
    rng = random.Random(5)
    for _ in range(300):
        scale = rng.choice((1, 40, 1000))
        values = [math.ldexp(rng.random() - 0.5, rng.randrange(-scale, scale)) for _ in range(rng.randrange(1, 9))]
        gone = [math.ldexp(rng.random(), rng.randrange(-scale, scale)) for _ in range(3)]
        column = pa.array([*values, *gone, *gone])
        signs = np.array([1] * (len(values) + 3) + [-1] * 3, np.int64)
        total = Sum.of(pa.float64(), 0).fitting(column)
        cells = np.zeros((1, total.width), np.int64)
        total.add(column, np.ones(len(column), np.bool_), signs, np.zeros(len(column), np.int64), cells)
        total.normal(cells)
        exact = sum(
            (Fraction(int(limb)) * Fraction(2) ** (32 * (total.base + k)) for k, limb in enumerate(cells[0, 3:]))
        )
        assert exact == sum(map(Fraction, values))
        assert total.floats_of(cells)[0] == math.fsum(values)


def test_event_times_of_different_units_and_columns_of_every_kind() -> None:
    first = pa.schema([("k", pa.dictionary(pa.int8(), pa.string())), ("at", pa.timestamp("s"))])
    second = pa.schema([("k", pa.string_view()), ("v", pa.decimal128(5, 1)), ("at", pa.timestamp("ms"))])
    query = Query(
        [Stream("R", first, time="at"), Stream("S", second, time="at")],
        ["R.k = S.k", "S.at between R.at and R.at + 2 min"],
        group_by={"key": "R.k", "large": pc.field("S.v") > 14.0},
        aggregates={"v": agg.sum("S.v"), "views": agg.max("S.k"), "at": agg.max("S.at")},
        group_window=Tumbling(timedelta(minutes=1), end=None),
    )
    assert query.output_schema.field("key").type == first.field("k").type
    runtime = Runtime(query)
    left = pa.table({"k": ["a", "bb"], "at": [0, 1]}).cast(pa.schema([("k", pa.string()), ("at", pa.timestamp("s"))]))
    runtime.push({"R": left, "S": [{"k": "bb", "v": "1.5", "at": timedelta(0)}][:0]})
    right = pa.table({"k": ["bb", "a"], "v": ["15.0", "20.0"], "at": [59_999, 61_000]})
    wanted = pa.schema([("k", pa.string()), ("v", pa.decimal128(5, 1)), ("at", pa.timestamp("ms"))])
    ended = pa.table({"k": ["c"], "at": [61]}).cast(left.schema)
    table = runtime.push({"R": ended, "S": right.cast(wanted)})
    assert table.schema == query.output_schema
    (row,) = table.to_pylist()
    assert (row["key"], row["large"], str(row["v"]), row["views"]) == ("bb", True, "15.0", "bb")
    assert str(row["window_start"]) == "1970-01-01 00:00:00"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"having": pc.field("n") > 1}, "having is for groups"),
        ({"group_window": Tumbling(5)}, "group_window is for groups"),
        ({"group_by": "R.k"}, "not one string"),
        ({"group_by": ["R.z"]}, "no column 'z'"),
        ({"group_by": [pc.field("R.k")]}, "has no name"),
        ({"aggregates": ["n"]}, "must be a mapping"),
        ({"aggregates": {"n": "count"}}, "must be a function of eddy.agg"),
        (
            {"aggregates": {"n": agg.sum("R.g")}},
            "sum takes integers, decimals, floats and durations, and R.g is string",
        ),
        ({"aggregates": {"n": agg.sum(pc.field("R.z"))}}, "aggregate 'n' does not fit"),
        (
            {"aggregates": {"n": agg.count()}, "select": ["R.k"]},
            "no column 'R.k'; the columns of the groups are n",
        ),
        ({"aggregates": {"R.k": agg.count()}, "group_by": ["R.k"]}, "two output columns of groups are named 'R.k'"),
        ({"aggregates": {"n": agg.count()}, "having": pc.field("m") > 1}, "having does not fit"),
        ({"aggregates": {"n": agg.count()}, "group_window": 5}, "must be eddy.Tumbling"),
        ({"aggregates": {"n": agg.count()}, "group_window": Tumbling(5, "R.k")}, "not the time column of stream R"),
        ({"aggregates": {"n": agg.count()}, "group_window": Tumbling(timedelta(1))}, "event times are integers"),
    ],
)
def test_queries_that_do_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(eddy.QueryError, match=message):
        Query(streams(), ["R.k = S.k"], **arguments)


def test_windows_that_do_not_fit() -> None:
    with pytest.raises(eddy.QueryError, match="Tumbling: size must be greater than 0"):
        Tumbling(0)
    with pytest.raises(eddy.QueryError, match="Hopping: hop must be a timedelta or a whole number"):
        Hopping(5, 1.5)  # type: ignore[arg-type]
    with pytest.raises(eddy.QueryError, match="Session: start must be the name"):
        Session(5, start="")
    with pytest.raises(eddy.QueryError, match="this query has none"):
        Query(streams(Rows(5)), ["R.k = S.k"], aggregates={"n": agg.count()}, group_window=Tumbling(5))
    with pytest.raises(eddy.QueryError, match="stream R has no time column"):
        Query([Stream("R", ROWS)], aggregates={"n": agg.last("R.k")})


def test_options_that_do_not_fit() -> None:
    with pytest.raises(eddy.InputError, match="never final"):
        Runtime(joined())
    with pytest.raises(eddy.InputError, match="count_only is for the results of a join"):
        Runtime(joined(), count_only=True, output="changelog")
    with pytest.raises(eddy.InputError, match="a changelog of windows of event time does not exist"):
        Runtime(joined(group_window=Tumbling(5)), output="changelog")
    with pytest.raises(eddy.InputError, match="load: aggregates need the results of earlier rows"):
        Runtime(joined(), output="changelog").load({"R": rows(0, 0)})
    with pytest.raises(eddy.InputError, match="for queries with aggregates"):
        Runtime(Query(streams(), ["R.k = S.k"])).groups()
    engine = eddy.Engine([Stream(name, ROWS, time="t") for name in "RS"])
    with pytest.raises(eddy.InputError, match="give the query a group_window"):
        engine.start("groups", joined())
    saved = Runtime(joined(), output="changelog").snapshot()
    with pytest.raises(eddy.SnapshotError, match=r"groups: .* in the snapshot, .* in the query"):
        Runtime.restore(saved, joined(aggregates={"n": agg.count()}))


@pytest.mark.parametrize("branched", [False, True])
def test_a_changelog_without_a_push_is_empty_and_its_end_gives_no_rows(branched: bool) -> None:
    rows = pa.schema([("k", pa.int64())])
    r, s = (eddy.Stream(name, rows, window=eddy.Rows(2)) for name in "RS")
    counted: dict[str, Any] = {"aggregates": {"c": eddy.agg.count()}}
    left = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")], **counted)
    query = left if branched else eddy.Query([r, s], ["R.k = S.k"], **counted)
    assert eddy.Runtime(query, output="changelog").finish().num_rows == 0
    runtime = eddy.Runtime(query, output="changelog")
    assert runtime.push({}).to_pylist() == [{"op": "+I", "c": 0}]
    assert runtime.push({"R": [{"k": 1}], "S": [{"k": 1}]}, [0, 1]).num_rows == 2
    assert runtime.finish().num_rows == 0
    assert runtime.groups().to_pylist() == [{"c": 1}]
    # Input that ends has its answer at the end, as in SQL.
    assert eddy.Runtime(query, bounded=True).finish().to_pylist() == [{"c": 0}]

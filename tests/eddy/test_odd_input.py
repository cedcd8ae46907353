"""Unusual input: numpy numbers, odd names, odd orders, times out of range, NaN."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.streams.numbers import whole

SCHEMA = pa.schema([("a", pa.int64()), ("t", pa.int64())])


def query(schema: pa.Schema = SCHEMA, window: Any = None, time: str | None = "t", **options: Any) -> eddy.Query:
    streams = [eddy.Stream(name, schema, window=window or eddy.Rows(5), time=time) for name in "RS"]
    return eddy.Query(streams, ["R.a = S.a"], **options)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_whole_numbers_of_numpy_are_taken(kind: Callable[[int], Any]) -> None:
    assert eddy.Rows(kind(3)) == eddy.Rows(3)
    ranged = query(window=eddy.Range(kind(3)), lateness=kind(2))
    assert ranged.graph == query(window=eddy.Range(3), lateness=2).graph
    options = {"max_bytes": 10**9, "decide_every": 50, "background": 2}
    runtime = eddy.Runtime(
        ranged, max_bytes=np.int64(10**9), decide_every=kind(50), background=kind(2), renumber_at=kind(100)
    )
    assert runtime.snapshot() == eddy.Runtime(ranged, renumber_at=100, **options).snapshot()
    runtime.push({"R": pa.record_batch({"a": [1], "t": [5]})}, watermark=kind(3))
    assert runtime.transition("S R", at=kind(7)) is None
    assert runtime.scheduled() == [(7, "S R")]
    assert eddy.Runtime.restore(runtime.snapshot(), ranged).scheduled() == [(7, "S R")]


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, np.float64(1), "1", None, np.timedelta64(1, "s")])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    assert whole(value) is None
    with pytest.raises(eddy.QueryError, match="Rows"):
        eddy.Rows(value)
    with pytest.raises(eddy.QueryError, match="Range"):
        eddy.Range(value)
    with pytest.raises(eddy.QueryError, match="lateness"):
        query(window=eddy.Range(3), lateness=value)
    runtime = eddy.Runtime(query(window=eddy.Range(3)))
    with pytest.raises(eddy.InputError, match="background"):
        eddy.Runtime(query(), background=value)
    with pytest.raises(eddy.InputError, match="renumber_at"):
        eddy.Runtime(query(), renumber_at=value)
    if value is not None:
        for option in ("max_bytes", "decide_every"):
            with pytest.raises(eddy.InputError, match=option):
                eddy.Runtime(query(), **{option: value})
        with pytest.raises(eddy.InputError, match="at is"):
            runtime.transition("S R", at=value)
        with pytest.raises(eddy.InputError, match="watermark"):
            runtime.push({}, watermark=value)


def test_a_span_finer_than_a_timedelta_is_not_rounded() -> None:
    pandas = pytest.importorskip("pandas")
    fine = pa.schema([("a", pa.int64()), ("t", pa.timestamp("ns"))])
    assert query(fine, eddy.Range(pandas.Timedelta(1, "ns"))).graph.windows[0].size == 1
    coarse = pa.schema([("a", pa.int64()), ("t", pa.timestamp("us"))])
    with pytest.raises(eddy.QueryError, match="finer"):
        query(coarse, eddy.Range(pandas.Timedelta(1, "ns")))
    assert query(coarse, eddy.Range(timedelta(0))).graph.windows[0].size == 0


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("no streams", lambda: eddy.Query(None, []), "streams must be a list"),  # type: ignore[arg-type]
    ("streams by name", lambda: eddy.Query({"R": SCHEMA}, []), "streams must be a list"),  # type: ignore[arg-type]
    ("no predicates", lambda: eddy.Query([eddy.Stream("R", SCHEMA)], None), "predicates"),  # type: ignore[arg-type]
    ("a number as select", lambda: query(select=3), "select must be a list"),
    ("lists in select", lambda: query(select=[["R.a"]]), "must be a string"),
    ("a very long window", lambda: eddy.Rows(2**40), r"Unbounded\(\)"),
    ("a span beyond all ticks", lambda: query(window=eddy.Range(2**70)), r"2\^61"),
    (
        "two columns of one name",
        lambda: eddy.Query(
            [eddy.Stream("R", pa.schema([("a.b", pa.int8())])), eddy.Stream("R.a", pa.schema([("b", pa.int8())]))],
            ['R."a.b" = "R.a".b'],
        ),
        "'R.a.b' is the name of a column of stream 'R' and of one of stream 'R.a'",
    ),
    (
        "one extension type and its storage",
        lambda: eddy.Query(
            [eddy.Stream("R", pa.schema([("a", pa.uuid())])), eddy.Stream("S", pa.schema([("a", pa.binary(16))]))],
            ["R.a = S.a"],
        ),
        "cannot be equal",
    ),
]


@pytest.mark.parametrize(("build", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_query_says_what_to_do(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(eddy.QueryError, match=said):
        build()


def test_a_changelog_has_one_column_op() -> None:
    schema = pa.schema([("op", pa.int64()), ("a", pa.int64())])
    with pytest.raises(eddy.InputError, match="select it under another name"):
        eddy.Runtime(query(schema, time=None, select={"op": "R.op"}), output="changelog")
    assert eddy.Runtime(query(schema, time=None, select={"op": "R.op"})).output_schema.names == ["op"]
    named = query(schema, time=None, select={"operation": "R.op"})
    assert eddy.Runtime(named, output="changelog").output_schema.names == ["op", "operation"]
    streams = [eddy.Stream(name, schema) for name in ("op", "S")]
    with pytest.raises(eddy.InputError, match="rename it"):
        eddy.Runtime(eddy.Query(streams, ["op.a = S.a"]), output="changelog", ids_only=True)


@pytest.mark.parametrize("time", [2**61 + 1, 2**63, 2**64 - 1])
def test_unsigned_event_times_end_where_all_do(time: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("t", pa.uint64())])
    runtime = eddy.Runtime(query(schema, eddy.Range(3)))

    def rows(t: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array([1]), pa.array([t], pa.uint64())], schema=schema)

    with pytest.raises(eddy.InputError, match=r"stream R, column t: .*2\^61"):
        runtime.push({"R": rows(time)})
    assert runtime.position == 0
    runtime.push({"R": rows(2**61)})
    assert runtime.push({"S": rows(2**61)}).num_rows == 1


@pytest.mark.parametrize(
    ("bits", "kind"), [(0x7FF0000000000001, np.float64), (0x7F800001, np.float32), (0x7C01, np.float16)]
)
def test_a_signalling_nan_equals_nothing_and_the_zeros_are_equal(bits: int, kind: type) -> None:
    signalling = np.array([bits], f"u{np.dtype(kind).itemsize}").view(kind)
    runtime = eddy.Runtime(query(pa.schema([("a", pa.from_numpy_dtype(kind))]), time=None))
    nothing, zeros = pa.record_batch({"a": signalling}), pa.record_batch({"a": np.array([0.0, -0.0], kind)})
    for name, rows, results in (("R", nothing, 0), ("S", nothing, 0), ("R", zeros, 0), ("S", zeros, 4)):
        assert runtime.push({name: rows}).num_rows == results
    runtime.check()


NULLS = [
    pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([7, None])),
    pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([7, None])),
]


@pytest.mark.parametrize("times", NULLS, ids=lambda array: type(array).__name__)
def test_a_null_time_behind_an_encoding_is_seen(times: pa.Array) -> None:
    schema = pa.schema([("a", pa.int64()), ("t", times.type)])
    runtime = eddy.Runtime(query(schema, eddy.Range(3)))
    with pytest.raises(eddy.InputError, match="row 1 of the push is null"):
        runtime.push({"R": pa.record_batch([pa.array([1, 1]), times], schema=schema)})
    assert runtime.position == 0


@given(st.lists(st.integers(-2, 3) | st.sampled_from([-(2**63), 2**31, 255, 256, 257, 512]), max_size=4))
def test_an_order_means_the_same_as_a_list_and_in_every_type_of_integers(order: list[int]) -> None:
    rows = pa.schema([("a", pa.int64())])
    query = eddy.Query([eddy.Stream(name, rows, window=eddy.Rows(9)) for name in "RS"], ["R.a = S.a"])
    pushed = {name: [{"a": 1}] * order.count(i) for i, name in enumerate("RS")}

    def said(given: Any) -> Any:
        try:
            return eddy.Runtime(query).push(pushed, given).to_pylist()
        except eddy.InputError as error:
            return str(error)

    wanted = said(np.array(order, np.int64))
    assert said(order) == wanted
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint64, ">i4", ">i8"):
        if all(np.iinfo(kind).min <= place <= np.iinfo(kind).max for place in order):
            assert said(np.array(order, kind)) == wanted
    assert isinstance(wanted, str) == (not all(0 <= place < 2 for place in order))


@pytest.mark.parametrize("order", [[[0], [0, 1]], "RR", [None, 0], pa.array([0, None]), iter([0, 0]), [True, False]])
def test_an_order_of_another_shape_is_refused(order: Any) -> None:
    runtime = eddy.Runtime(query())
    with pytest.raises(eddy.InputError, match="order must be a one-dimensional array of integers"):
        runtime.push({"R": pa.record_batch({"a": [1, 2], "t": [1, 2]})}, order)
    assert runtime.position == 0


@pytest.mark.parametrize("name", ["a b", "a.b", 'say "a"', "naïve", "", "it's", "a\nb", "and"])
def test_any_text_names_a_column_or_a_stream(name: str) -> None:
    schema = pa.schema([(name, pa.int64())])
    first = f"stream {name}"

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    streams = [eddy.Stream(stream_name, schema) for stream_name in (first, "S")]
    runtime = eddy.Runtime(eddy.Query(streams, [f"{quoted(first)}.{quoted(name)} = S.{quoted(name)}"]))
    rows = pa.record_batch([pa.array([1])], schema=schema)
    runtime.push({first: rows})
    assert runtime.push({"S": rows}).to_pylist() == [{f"{first}.{name}": 1, f"S.{name}": 1}]
    again = eddy.Runtime.restore(runtime.snapshot(), runtime.query, plan=runtime.plan)
    assert again.push({"S": rows}).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "time", "said"),
    [
        ("ns", "2043-01-26", r"row 1 of the push is 2043-01-26T.* between 1896-12-06 and 2043-01-25 .*timestamp\[us\]"),
        ("ns", "1890-05-01", r"row 1 of the push is 1890-05-01T.* between 1896-12-06 and 2043-01-25 .*timestamp\[us\]"),
        ("us", "-150000-01-01", r"row 1 .* is -150000-01-01T.* between -71100-.* and 75039-.* .*timestamp\[ms\]"),
    ],
)
@pytest.mark.parametrize("compared", [False, True])
def test_times_out_of_reach_are_refused_with_the_years_that_are_not(
    kind: str, time: str, said: str, compared: bool
) -> None:
    schema = pa.schema([("a", pa.int64()), ("t", pa.timestamp(kind))])
    if compared:
        streams = [eddy.Stream(name, schema) for name in "RS"]
        runtime = eddy.Runtime(eddy.Query(streams, ["R.a = S.a", "R.t < S.t"]))
    else:
        runtime = eddy.Runtime(query(schema, eddy.Range(timedelta(seconds=10))))
    before = runtime.snapshot()
    times = pa.array(np.array(["2000-01-01", time], f"datetime64[{kind}]"), pa.timestamp(kind))
    with pytest.raises(eddy.InputError, match=rf"stream R, column t: .*{said}"):
        runtime.push({"R": pa.record_batch({"a": [1, 2], "t": times})})
    assert runtime.snapshot() == before


HUGE = (10**4, 2**31, 2**40, 2**61, 2**64, 10**30)
SIZED: dict[str, Callable[[Any], Any]] = {
    "Rows": lambda n: query(window=eddy.Rows(n)),
    "Range": lambda n: query(window=eddy.Range(n)),
    "lateness": lambda n: query(window=eddy.Range(5), lateness=n),
    "late_rows": lambda n: query(window=eddy.Range(5), late_rows=n),
    "Tumbling": lambda n: grouped(eddy.Tumbling(n)),
    "Hopping, size": lambda n: grouped(eddy.Hopping(n, 1)),
    "Hopping, both": lambda n: grouped(eddy.Hopping(n, max(n // 3, 1))),
    "Hopping, hop": lambda n: grouped(eddy.Hopping(5, n)),
    "Session": lambda n: grouped(eddy.Session(n)),
}
OPTIONS = ("max_bytes", "decide_every", "background", "renumber_at")


def grouped(window: Any) -> eddy.Query:
    return query(
        window=eddy.Range(20), group_by=["R.a"], aggregates={"n": eddy.agg.count()}, group_window=window, lateness=1
    )


@pytest.mark.parametrize("n", HUGE)
@pytest.mark.parametrize("what", [*SIZED, *OPTIONS])
def test_huge_sizes_take_no_memory_or_are_refused(what: str, n: int) -> None:
    said = what
    tracemalloc.start()
    try:
        if what in SIZED:
            runtime = eddy.Runtime(SIZED[what](n))
        else:
            runtime = eddy.Runtime(query(window=eddy.Range(20)), **{what: n})
        for k in range(4):
            rows = pa.record_batch({"a": [k % 2] * 2, "t": [k, k]})
            runtime.push({"R": rows, "S": rows})
        runtime.finish()
    except eddy.EddyError as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert what.partition(",")[0] in said or (what == "Range" and "stream R, window" in said)
    assert peak < 200 << 20


def test_a_result_in_too_many_windows_is_refused() -> None:
    grouped(eddy.Hopping(10_000, 1))
    with pytest.raises(eddy.QueryError, match=r"would be in 10,001 windows, the limit is 10,000; take a longer hop"):
        grouped(eddy.Hopping(10_001, 1))

"""Every wrong query is refused with an error that names the stream and the column, and states what to do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("ts", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.int64())),
        ("flag", pa.bool_()),
    ]
)


def stream(name: str, **changes: Any) -> eddy.Stream:
    return eddy.Stream(name, changes.pop("schema", SCHEMA), **{"window": eddy.Rows(5), "time": None, **changes})


def query(**changes: Any) -> eddy.Query:
    """Return the query R.a = S.a, with some of its arguments replaced."""
    right = {"streams": [stream("R"), stream("S")], "on": ["R.a = S.a"]}
    return eddy.Query(**{**right, **changes})


def ranged(**changes: Any) -> list[eddy.Stream]:
    """Return streams of which R has a RANGE window; the changes apply to R."""
    return [stream("R", **{"window": eddy.Range(10), "time": "ts", **changes}), stream("S", time="ts")]


Build = Callable[[], Any]

WRONG: list[tuple[str, Build, list[str]]] = [
    ("no streams", lambda: query(streams=[], on=[]), ["1 to 128", "has 0"]),
    (
        "too many streams",
        lambda: query(streams=[stream(f"s{i}") for i in range(129)], on=[f"s0.a = s{i}.a" for i in range(1, 129)]),
        ["128", "129"],
    ),
    ("a name twice", lambda: query(streams=[stream("R"), stream("R")]), ["R"]),
    ("an empty name", lambda: query(streams=[stream("R"), stream("")]), ["name"]),
    ("no stream", lambda: query(streams=[stream("R"), "S"]), ["Stream", "str"]),
    ("no schema", lambda: query(streams=[stream("R"), stream("S", schema=["a"])]), ["S", "schema"]),
    (
        "a column twice",
        lambda: query(streams=[stream("R"), stream("S", schema=pa.schema([("a", pa.int64()), ("a", pa.int64())]))]),
        ["S", "a"],
    ),
    ("no columns", lambda: query(streams=[stream("R"), stream("S", schema=pa.schema([]))]), ["S", "a"]),
    # predicates
    ("no predicates", lambda: query(on=[]), ["R", "S"]),
    ("unknown stream", lambda: query(on=["R.a = T.a"]), ["T", "R, S"]),
    ("unknown column", lambda: query(on=["R.a = S.nope"]), ["S", "nope", "ts"]),
    ("half a predicate", lambda: query(on=["R.a ="]), ["R.a ="]),
    ("no operator", lambda: query(on=["R.a"]), ["R.a"]),
    ("another operator", lambda: query(on=["R.a like S.a"]), ["R.a like S.a", "LIKE"]),
    ("no column name", lambda: query(on=["R = S"]), ["R = S"]),
    ("a constant", lambda: query(on=["R.a = 3"]), ["R.a = 3"]),
    ("an open quote", lambda: query(on=['"R.a = S.a']), ['"R.a = S.a']),
    ("text after it", lambda: query(on=["R.a = S.a and"]), ["R.a = S.a and"]),
    ("tuples of other lengths", lambda: query(on=["(R.a, R.b) = (S.a)"]), ["2", "1"]),
    ("one stream in a predicate", lambda: query(on=["R.a = S.a", "R.f = R.g"]), ["R.f", "R.g", "filter"]),
    (
        "not connected",
        lambda: query(streams=[stream(n) for n in ("R", "S", "T", "U")], on=["R.a = S.a", "T.a = U.a"]),
        ["T", "U"],
    ),
    ("a predicate that is no text", lambda: query(on=[("R.a", "S.a")]), ["R.a"]),
    # key types
    ("number and text", lambda: query(on=["R.a = S.s"]), ["R.a is INTEGER", "S.s is STRING", "CAST one of them"]),
    ("number and boolean", lambda: query(on=["R.a = S.flag"]), ["R.a", "S.flag is BOOLEAN", "CAST one of them"]),
    ("number and time", lambda: query(on=["R.a = S.ts"]), ["R.a", "S.ts is TIMESTAMP", "no CAST"]),
    ("with and without zone", lambda: query(on=["R.zoned = S.ts"]), ["R.zoned", "S.ts", "with a zone is a moment"]),
    ("a list as key", lambda: query(on=["R.tags = S.tags"]), ["R.tags", "list"]),
    (
        "types that meet through a third",
        lambda: query(streams=[stream("R"), stream("S"), stream("T")], on=["R.a = S.a", "S.a = T.s"]),
        ["T.s", "STRING"],
    ),
    # windows and times
    ("no rows", lambda: query(streams=[stream("R", window=eddy.Rows(0)), stream("S")]), ["0"]),
    ("less than no rows", lambda: query(streams=[stream("R", window=eddy.Rows(-1)), stream("S")]), ["-1"]),
    ("a part of a row", lambda: query(streams=[stream("R", window=eddy.Rows(1.5)), stream("S")]), ["1.5"]),
    ("a negative range", lambda: query(streams=ranged(window=eddy.Range(-1))), ["-1"]),
    ("a negative span", lambda: query(streams=ranged(window=eddy.Range(timedelta(-1)))), ["-1"]),
    ("no window", lambda: query(streams=[stream("R", window=7), stream("S")]), ["R", "window", "Rows"]),
    ("range without time", lambda: query(streams=ranged(time=None)), ["R", "time"]),
    (
        "another stream without time",
        lambda: query(streams=[stream("R", window=eddy.Range(10), time="ts"), stream("S")]),
        ["S", "time"],
    ),
    ("unknown time column", lambda: query(streams=ranged(time="when")), ["R", "when"]),
    ("time as text", lambda: query(streams=ranged(time="s")), ["R", "s", "string"]),
    ("time as float", lambda: query(streams=ranged(time="f")), ["R", "f", "double"]),
    (
        "times that do not compare",
        lambda: query(streams=[stream("R", window=eddy.Range(10), time="ts"), stream("S", time="a")]),
        ["R", "ts", "S", "a"],
    ),
    (
        "a span on a number",
        lambda: query(streams=[stream("R", window=eddy.Range(timedelta(1)), time="a"), stream("S", time="a")]),
        ["R", "integers"],
    ),
    ("a span below the unit", lambda: query(streams=coarse(timedelta(milliseconds=1500))), ["R", "1.5", "s"]),
    ("negative lateness", lambda: query(streams=ranged(), lateness=timedelta(seconds=-1)), ["lateness"]),
    ("lateness of another kind", lambda: query(streams=ranged(), lateness="1s"), ["lateness"]),
    ("lateness as a span of numbers", lambda: query(streams=ranged_on_numbers(), lateness=timedelta(1)), ["lateness"]),
    # filters, where, select
    (
        "filter on an unknown column",
        lambda: query(streams=[stream("R", filter=pc.field("x") > 1), stream("S")]),
        ["R", "x", "filter"],
    ),
    (
        "filter that is no condition",
        lambda: query(streams=[stream("R", filter=pc.field("a")), stream("S")]),
        ["R", "filter", "int64"],
    ),
    (
        "filter on other types",
        lambda: query(streams=[stream("R", filter=pc.field("s") > 1), stream("S")]),
        ["R", "filter"],
    ),
    (
        "filter that is no expression",
        lambda: query(streams=[stream("R", filter="a > 1"), stream("S")]),
        ["R", "filter", "str"],
    ),
    ("where on an unknown column", lambda: query(where=pc.field("R.x") > 1), ["where", "R.x"]),
    ("where on a bare column", lambda: query(where=pc.field("a") > 1), ["where", "a"]),
    ("where that is no condition", lambda: query(where=pc.field("R.a")), ["where", "int64"]),
    ("where that is no expression", lambda: query(where=lambda row: True), ["where", "function"]),
    ("select of an unknown stream", lambda: query(select=["T.a"]), ["T.a", "S.a"]),
    ("select of an unknown column", lambda: query(select=["R.x"]), ["R", "x"]),
    ("select of a bare column", lambda: query(select=["a"]), ["a"]),
    ("select of nothing", lambda: query(select=[]), ["select"]),
    ("select of a column twice", lambda: query(select=["R.a", "R.a"]), ["R.a"]),
    ("select as text", lambda: query(select="R.a"), ["select", "str"]),
]


def coarse(span: timedelta) -> list[eddy.Stream]:
    schema = pa.schema([("a", pa.int64()), ("ts", pa.timestamp("s"))])
    return [stream(name, schema=schema, window=eddy.Range(span), time="ts") for name in ("R", "S")]


def ranged_on_numbers() -> list[eddy.Stream]:
    return [stream(name, window=eddy.Range(5), time="a") for name in ("R", "S")]


@pytest.mark.parametrize(("build", "named"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_query_is_refused(build: Build, named: list[str]) -> None:
    with pytest.raises(eddy.QueryError) as caught:
        build()
    missing = [word for word in named if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ("R S", ["T"]),
        ("(R S) (S T)", ["S"]),
        ("(R S) X", ["X"]),
        ("(R T) S", ["R", "T"]),
        ("((R S) T", ["((R S) T"]),
        ("(R S)) T", ["(R S)) T"]),
        ("", ["R"]),
    ],
)
def test_a_wrong_plan_is_refused(plan: str, named: list[str]) -> None:
    chain = query(streams=[stream(name) for name in ("R", "S", "T")], on=["R.a = S.a", "S.b = T.b"])
    with pytest.raises(eddy.PlanError) as caught:
        eddy.Runtime(chain, plan)
    missing = [word for word in named if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_a_plan_may_join_streams_that_are_equal_through_a_third() -> None:
    three = query(streams=[stream(name) for name in ("R", "S", "T")], on=["R.a = S.a", "S.a = T.b"])
    assert "R" in eddy.Runtime(three, "(R T) S").explain()


def test_count_only_and_ids_only_exclude_each_other() -> None:
    with pytest.raises(eddy.EddyError, match=r"count_only.*ids_only"):
        eddy.Runtime(query(), count_only=True, ids_only=True)


def test_an_unknown_name_is_refused_by_index() -> None:
    assert query().index("S") == 1
    with pytest.raises(eddy.QueryError, match="nobody"):
        query().index("nobody")


def test_errors_are_one_family() -> None:
    kinds = (eddy.QueryError, eddy.PlanError, eddy.InputError, eddy.StateError, eddy.CapacityError)
    assert all(issubclass(kind, eddy.EddyError) for kind in kinds)


def test_a_query_travels_to_another_process() -> None:
    sent = query(streams=[stream("R", filter=pc.field("a") > 3), stream("S")], where=pc.field("R.b") < pc.field("S.b"))
    back = pickle.loads(pickle.dumps(sent))
    assert back.output_schema == sent.output_schema
    rows = pa.Table.from_pylist([{"a": 4, "b": 1}, {"a": 4, "b": 2}, {"a": 1, "b": 1}], schema=SCHEMA)
    runtime = eddy.Runtime(back)
    runtime.push({"R": rows})
    assert runtime.push({"S": rows}).num_rows == 1


def test_default_names_and_types_of_results() -> None:
    every = query().output_schema
    assert every.names == [f"{name}.{column}" for name in ("R", "S") for column in SCHEMA.names]
    assert every.types == SCHEMA.types * 2
    assert query(select=["S.b", "R.s"]).output_schema.names == ["S.b", "R.s"]
    assert query(select={"x": "S.b"}).output_schema == pa.schema([("x", pa.int32())])


def test_classes_are_closed_over_predicates() -> None:
    three = query(streams=[stream(name) for name in ("R", "S", "T")], on=["R.a = S.b", "S.b = T.a", "R.s = T.s"])
    classes = [c.columns for c in three.classes]
    assert classes == [
        {"R": (("a",),), "S": (("b",),), "T": (("a",),)},
        {"R": (("s",),), "T": (("s",),)},
    ]
    assert three.classes[0].types == (pa.int64(),)


@pytest.mark.parametrize(
    "time_type",
    [
        pa.timestamp("us"),
        pa.dictionary(pa.int16(), pa.timestamp("us")),
        pa.run_end_encoded(pa.int32(), pa.timestamp("us")),
    ],
    ids=["plain", "dictionary", "run-end encoded"],
)
def test_a_span_of_an_encoded_time_column_is_scaled(time_type: pa.DataType) -> None:
    """The other stream makes nanoseconds the common time type."""
    types = {"R": time_type, "S": pa.timestamp("ns")}
    streams = [
        eddy.Stream(
            name, pa.schema([("a", pa.int64()), ("ts", kind)]), window=eddy.Range(timedelta(seconds=3)), time="ts"
        )
        for name, kind in types.items()
    ]
    graph = eddy.Query(streams, ["R.a = S.a"]).graph
    assert [window.size for window in graph.windows] == [3_000_000_000] * 2

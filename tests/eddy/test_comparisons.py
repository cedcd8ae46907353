"""Comparisons: which values can be compared, how they are written, and DuckDB on random joins."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import eddy
from eddy.streams.key_types import comparable
from jisc.strategies import STRATEGIES

MINUTE = dt.timedelta(minutes=1)
MS = pa.timestamp("ms")


def pair(kinds: tuple[pa.DataType, pa.DataType], *on: str) -> eddy.Query:
    """Return a join of R and S on k, with a column x each."""
    streams = [
        eddy.Stream(name, pa.schema([("k", pa.int64()), ("x", kind), ("n", pa.int64())]), window=eddy.Unbounded())
        for name, kind in zip("RS", kinds, strict=True)
    ]
    return eddy.Query(streams, ["R.k = S.k", *on], select=["R.n", "S.n"])


def rows(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    array = pa.array(
        [None if value is None else Decimal(value) for value in values] if pa.types.is_decimal(kind) else values
    )
    x = array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array.cast(kind)
    columns = [pa.array([1] * len(values)), x, pa.array(range(len(values)))]
    return pa.RecordBatch.from_arrays(columns, names=["k", "x", "n"])


def joined(query: eddy.Query, left: pa.RecordBatch, right: pa.RecordBatch) -> list[tuple[int, int]]:
    runtime = eddy.Runtime(query)
    tables = [runtime.push({"R": left}), runtime.push({"S": right})]
    runtime.check()
    return sorted((row["R.n"], row["S.n"]) for table in tables for row in table.to_pylist())


# Values

TYPES: list[tuple[str, pa.DataType, pa.DataType, list[Any]]] = [
    ("integers", pa.int8(), pa.uint64(), [0, 1, 2, 5, 100, 127, None]),
    ("floats", pa.float32(), pa.float64(), [0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), 1e30, None]),
    ("decimals", pa.decimal128(9, 2), pa.decimal128(12, 4), [0, 1, 2, -5, 1234, None]),
    ("a decimal and an integer", pa.decimal128(9, 2), pa.int32(), [0, 1, 2, -5, 1234, None]),
    ("timestamps", pa.timestamp("s"), pa.timestamp("ns"), [dt.datetime(2026, 1, 1, 0, 0, n) for n in (0, 1, 5, 59)]),
    ("dates", pa.date32(), pa.date64(), [dt.date(2026, 1, n) for n in (1, 2, 5, 31)]),
    ("durations", pa.duration("ms"), pa.duration("us"), [dt.timedelta(seconds=n) for n in (0, 1, 7)]),
    ("times of day", pa.time32("s"), pa.time64("us"), [dt.time(1, 2, n) for n in (0, 1, 7)]),
    ("a dictionary", pa.dictionary(pa.int8(), pa.int64()), pa.int64(), [3, 1, 2, None]),
]


@pytest.mark.parametrize(("left", "right", "values"), [case[1:] for case in TYPES], ids=[case[0] for case in TYPES])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "<>", "!="])
def test_values_of_all_types_compare_as_in_python(
    left: pa.DataType, right: pa.DataType, values: list[Any], op: str
) -> None:
    holds = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }.get(op, lambda a, b: a != b)
    ones, others = rows(values, left), rows(values[::-1], right)
    expected = [
        (n, m)
        for n, a in enumerate(ones["x"].to_pylist())
        for m, b in enumerate(others["x"].to_pylist())
        if a is not None and b is not None and holds(a, b)
    ]
    assert joined(pair((left, right), f"R.x {op} S.x"), ones, others) == expected


PARTS: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.int64(), list(range(-4, 5)), ["1.5", "0.5", "2"]),
    (pa.timestamp("s"), [dt.datetime(2026, 1, 1, 0, 0, n) for n in range(9)], ["1500 ms", "0.5 s", "2 s"]),
    (pa.decimal128(5, 1), [Decimal(n) / 2 for n in range(-4, 5)], ["0.75", "0.05", "0.5"]),
]


@pytest.mark.parametrize(("kind", "values", "amounts"), PARTS, ids=["integers", "timestamps", "decimals"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_inequalities_take_parts_of_units(
    kind: pa.DataType, values: list[Any], amounts: list[str], op: str, sign: str
) -> None:
    compare = {"<": lt, "<=": le, ">": gt, ">=": ge}[op]
    left = right = rows(values, kind)
    for amount in amounts:
        number, _, unit = amount.partition(" ")
        if unit:
            step: Any = dt.timedelta(seconds=float(number) / (1000 if unit == "ms" else 1))
        else:
            step = Decimal(number)
        expected = [
            (n, m)
            for n, a in enumerate(values)
            for m, b in enumerate(values)
            if compare(a, b + step if sign == "+" else b - step)
        ]
        assert joined(pair((kind, kind), f"R.x {op} S.x {sign} {amount}"), left, right) == expected
        said = f"INTERVAL '{number}' {'MILLISECOND' if unit == 'ms' else 'SECOND'}" if unit else amount
        schema = pa.schema([("k", pa.int64()), ("x", kind), ("n", pa.int64())])
        inputs = [eddy.Stream(name, schema, eddy.Unbounded()) for name in "RS"]
        text = f"SELECT R.n AS a, S.n AS b FROM R JOIN S ON R.k = S.k AND R.x {op} S.x {sign} {said}"
        query = eddy.sql(text, inputs)
        runtime = eddy.Runtime(query)
        pushed = [runtime.push({"R": left}), runtime.push({"S": right})]
        assert sorted((row["a"], row["b"]) for table in pushed for row in table.to_pylist()) == expected
        assert query.comparisons, "Arrow evaluates it on joined rows"


def test_a_null_or_nan_fulfils_no_comparison() -> None:
    nothing = rows([1.0, None, float("nan")], pa.float64())
    for op in ("<>", "<=", ">="):
        assert joined(pair((pa.float64(), pa.float64()), f"R.x {op} S.x"), nothing, nothing) == (
            [] if op == "<>" else [(0, 0)]
        )


def test_sums_of_floats_are_rounded_as_written() -> None:
    kinds = (pa.float64(), pa.float64())
    left, right = rows([0.3], pa.float64()), rows([0.1], pa.float64())
    # 0.1 + 0.2 is 0.30000000000000004.
    assert joined(pair(kinds, "R.x >= S.x + 0.2"), left, right) == []
    assert joined(pair(kinds, "R.x < S.x + 0.2"), left, right) == [(0, 0)]
    assert joined(pair(kinds, "S.x + 0.2 > R.x"), left, right) == [(0, 0)]
    assert joined(pair(kinds, "R.x - 0.2 <= S.x"), left, right) == [(0, 0)]
    # Both sums are 1e300, so the second comparison is not true where the first is.
    large = rows([1e300], pa.float64())
    assert joined(pair(kinds, "R.x >= S.x + 2", "R.x >= S.x + 1"), large, large) == [(0, 0)]
    assert joined(pair(kinds, "R.x >= S.x + 2", "R.x > S.x + 1"), large, large) == []
    with pytest.raises(eddy.QueryError, match="adds to both sides"):
        pair(kinds, "R.x + 1 < S.x + 2")


@pytest.mark.parametrize(
    ("predicate", "kind", "message"),
    [
        ("R.x = S.x + 1.5", pa.int64(), "not a whole number"),
        ("R.x < S.x + 5 min", pa.int64(), "adds a span of time to S.x, which is compared as int64"),
        ("R.x != S.x + 1 ms", pa.timestamp("s"), "not a whole number"),
        ("R.x < S.x + 5 + 3 s", pa.timestamp("s"), "give both a unit"),
        ("R.x < R.n", pa.int64(), "columns of stream R only"),
        ("R.x < S.nope", pa.int64(), "predicate 'R.x < S.nope': stream S has no column 'nope'"),
        ("R.x < S.x + 0 min + 5", pa.int64(), "give both a unit"),
        ("R.x < T.x", pa.int64(), "there is no stream 'T'; the streams are R, S"),
        ("R.x < 5", pa.int64(), "compares columns of stream R only"),
        ("R.x < S.x + 1e", pa.int64(), "'1e' is no number"),
        ("R.x < S.x + 1" + "0" * 5000, pa.int64(), "is no number that a DECIMAL(38) or a DOUBLE holds"),
        ("R.x < S.x + 1e400", pa.float64(), "beyond the range of float64"),
        ("R.x = S.x + 50", pa.decimal128(5, -2), "not a whole number"),
        ("R.x between S.x", pa.int64(), "AND and the upper bound"),
        ("R.x < S.x + interval '5'", pa.timestamp("s"), "INTERVAL"),
        ("R.x < S.x + interval '5 s 3'", pa.timestamp("s"), "one number and one unit"),
    ],
)
def test_what_cannot_be_compared_is_refused(predicate: str, kind: pa.DataType, message: str) -> None:
    with pytest.raises(eddy.QueryError) as caught:
        pair((kind, kind), predicate)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.duration("ms"), pa.time64("us")])
def test_a_number_without_a_unit_is_not_added_to_times(kind: pa.DataType) -> None:
    for predicate in ("R.x <= S.x + 90", "R.x + 90 <= S.x", "R.x between S.x and S.x + 90"):
        with pytest.raises(eddy.QueryError, match=r"the number 90 has no unit, .* as in '90 s' or '90 min'"):
            pair((kind, kind), predicate)
    assert pair((kind, kind), "R.x <= S.x + 90 s").comparisons != pair((kind, kind), "R.x <= S.x").comparisons
    assert pair((kind, kind), "R.x <= S.x + 0").comparisons[0].low == 0


def test_a_number_counts_days_of_dates() -> None:
    query = pair((pa.date32(), pa.date32()), "R.x <= S.x + 90")
    assert (query.comparisons[0].left, query.comparisons[0].low) == (("S", "x"), -90)


def test_all_ways_to_write_a_comparison_are_equal() -> None:
    texts = [
        "R.x between S.x - 3 and S.x + 4",
        "S.x >= R.x - 4 AND S.x - 3 <= R.x",
        "R.x > S.x - 4 and R.x < S.x + 5 and R.x <= S.x + 7",
    ]
    kinds = (pa.int64(), pa.int64())
    queries = [pair(kinds, text) for text in texts]
    queries += [eddy.Query(query.streams[::-1], query.on) for query in queries]
    assert len({tuple(comparison.canonical for comparison in query.comparisons) for query in queries}) == 1
    differ = [eddy.Query(streams, ["R.x <> S.x + 3"]) for streams in (queries[0].streams, queries[0].streams[::-1])]
    assert len({query.comparisons[0].canonical for query in differ}) == 1
    snapshot = eddy.Runtime(pair(kinds, texts[0])).snapshot()
    eddy.Runtime.restore(snapshot, pair(kinds, texts[1]))
    with pytest.raises(eddy.SnapshotError, match=r"comparisons: .* in the snapshot, none in the query"):
        eddy.Runtime.restore(snapshot, pair(kinds))


def test_floats_without_an_amount_may_change_sides() -> None:
    kinds = (pa.float64(), pa.float64())
    snapshot = eddy.Runtime(pair(kinds, "R.x < S.x")).snapshot()
    eddy.Runtime.restore(snapshot, pair(kinds, "S.x > R.x"))
    with pytest.raises(eddy.SnapshotError, match=r"'S'\.'x' \+ 0\.0 < 'R'\.'x' \(double\) in the query"):
        eddy.Runtime.restore(snapshot, pair(kinds, "R.x > S.x"))


def test_numbers_begin_with_a_point_or_end_with_one() -> None:
    kinds = (pa.float64(), pa.float64())
    texts = ["R.x < S.x + .5", "R.x < S.x + 0.5", "R.x - .5 < S.x"]
    assert len({pair(kinds, text).comparisons[0].canonical for text in texts}) == 2
    assert pair(kinds, "R.x < S.x + 5.").comparisons[0].high == 5.0


def test_comparisons_that_contradict_each_other() -> None:
    with pytest.raises(eddy.QueryError, match=r"no values fulfil 'R\.x < S\.x' AND 'R\.x > S\.x \+ 1'"):
        pair((pa.int64(), pa.int64()), "R.x < S.x", "R.x > S.x + 1")


def test_a_value_out_of_range_leaves_the_state_as_it_was() -> None:
    runtime = eddy.Runtime(pair((pa.int64(), pa.int64()), "R.x < S.x"))
    runtime.push({"R": rows([1], pa.int64())})
    with pytest.raises(eddy.InputError, match=r"stream S, column x: the value of row 0 .* must lie within ±2\^61"):
        runtime.push({"S": rows([1 << 62], pa.int64())})
    assert runtime.position == 1
    assert runtime.push({"S": rows([2], pa.int64())}).num_rows == 1


def test_types_that_compare_are_those_with_a_common_type() -> None:
    assert comparable([pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("us", "UTC")]) == pa.timestamp("us", "UTC")
    assert comparable([pa.timestamp("s", "UTC"), pa.timestamp("s")]) is None
    assert comparable([pa.decimal128(4, 2), pa.int64()]) == pa.decimal128(18, 2)


# DuckDB


def predicate_of(chance: random.Random, a: str, b: str) -> str:
    """Return a random comparison that reads the same in SQL."""
    low, high = sorted(chance.choices(range(-6, 7), k=2))
    return chance.choice(
        [
            f"{a}.x between {b}.x - {-low if low < 0 else 0} and {b}.x + {max(high, 0)}",
            f"{a}.x {chance.choice(['<', '<=', '>', '>=', '<>'])} {b}.x + {abs(high)}",
            f"{a}.f - 0.5 < {b}.f",
            f"{a}.at <= {b}.at + INTERVAL '{abs(low)}' MINUTE",
            f"{a}.at between {b}.at - INTERVAL '2 hours' and {b}.at + INTERVAL 30 MINUTE",
        ]
    )


@pytest.mark.parametrize("seed", range(30))
def test_random_joins_give_what_duckdb_gives(seed: int) -> None:
    chance = random.Random(seed)
    names = "rstu"[: chance.choice((2, 3, 4))]
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()), ("at", MS)])
    start, tables = dt.datetime(2026, 11, 1), {}
    for name in names:
        values = [
            (n, chance.randrange(4), chance.choice([*range(12), None]), chance.random() * 3, start + minute * MINUTE)
            for n, minute in enumerate(chance.choices(range(600), k=40))
        ]
        tables[name] = pa.table([pa.array(column) for column in zip(*values, strict=True)], schema=schema)
    edges = [(names[k], names[chance.randrange(k)]) for k in range(1, len(names))]
    # One comparison between two streams, so that no two contradict each other.
    compared = chance.sample(edges, chance.randrange(1, len(edges) + 1))
    on = [predicate_of(chance, a, b) for a, b in compared]
    scanned = compared[: seed % 2]
    on += [f"{a}.k = {b}.k" for a, b in edges if (a, b) not in scanned]
    streams = [eddy.Stream(name, schema, window=eddy.Unbounded()) for name in names]
    query = eddy.Query(streams, on, select=[f"{name}.id" for name in names])
    runtime, answers = eddy.Runtime(query, strategy=chance.choice(sorted(STRATEGIES)), policy="fixed"), []
    for at in range(0, 40, 13):
        for name in chance.sample(names, len(names)):
            answers += runtime.push({name: tables[name].slice(at, 13)}).to_pylist()
    runtime.check()
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    columns = ", ".join(f"{name}.id" for name in names)
    expected = connection.sql(f"SELECT {columns} FROM {', '.join(names)} WHERE {' AND '.join(on)}").fetchall()
    assert sorted(tuple(row.values()) for row in answers) == sorted(expected)

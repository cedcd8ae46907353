"""Queries of one engine with filters of any form: each has the results of its own Runtime."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy

WORDS = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(
    [("k", pa.int64()), ("t", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("u", pa.uint64()), ("d", WORDS)]
)
GROUPED: dict[str, Any] = {
    "null": pc.field("x").is_null() | (pc.field("x") > 0.8),
    "null text": pc.field("s").is_null(),
    "outside": ~pc.field("s").isin(["a", "b"]),
    "unsigned": (pc.field("u") >= pa.scalar(2**63, pa.uint64())) | pc.field("u").isin([3, None]),
    "dictionary": pc.field("d").isin(["a", "c"]) & (pc.field("d") < "c"),
}
FILTERS: dict[str, Any] = {
    "none": None,
    "range": (pc.field("x") >= 0.2) & (pc.field("x") < 0.7),
    "text": pc.field("s") == "b",
    "several": [pc.field("x") > 0.5, pc.field("s") == "a"],
    "other": (pc.field("x") < 0.1) | (pc.field("s") == "c"),
    "function": lambda batch: pc.greater(batch["x"], 0.6),
    "mixed": [pc.field("x") > 0.3, lambda batch: pc.equal(batch["s"], "a")],
    "nothing": (pc.field("x") > 0.5) & (pc.field("x") < 0.4),
    **GROUPED,
}
WHERES: dict[str, Any] = {
    "none": None,
    "range": (pc.field("R.x") > 0.3) & (pc.field("S.s") == "a"),
    "both": pc.field("R.x") < pc.field("S.x"),
    "mixed": [pc.field("S.x") >= 0.5, pc.field("R.s") != "b"],
}
WINDOWS = ((eddy.Range(40), eddy.Range(25)), (eddy.Range(20), eddy.Range(30)), (eddy.Rows(15), eddy.Range(25)))


def asked(window: tuple[Any, Any], kept: Any, where: Any) -> eddy.Query:
    streams = [
        eddy.Stream(name, SCHEMA, window=stream_window, time="t")
        for name, stream_window in zip("RS", window, strict=True)
    ]
    streams[0] = eddy.Stream("R", SCHEMA, window=window[0], time="t", filter=kept)
    return eddy.Query(streams, ["R.k = S.k"], select=["R.x", "S.t"], where=where)


def pushes(seed: int, count: int) -> list[Mapping[str, pa.RecordBatch]]:
    chance = np.random.default_rng(seed)
    drawn = []
    for step in range(count):
        batches = {}
        for name in "RS":
            n = int(chance.integers(0, 30))
            x = [None if value > 0.95 else value for value in chance.random(n).tolist()]
            s = [None if letter == "d" else letter for letter in chance.choice(list("abcd"), n).tolist()]
            t = np.sort(chance.integers(20 * step, 20 * (step + 1), n))
            columns = [
                pa.array(chance.integers(0, 4, n)),
                pa.array(t),
                pa.array(x, pa.float64()),
                pa.array(s, pa.string()),
                pa.array([2**64 - 1 - i if i % 2 else None if i % 3 else i for i in range(n)], pa.uint64()),
                pa.array(s[::-1]).cast(pa.string()).dictionary_encode().cast(WORDS),
            ]
            batches[name] = pa.record_batch(columns, schema=SCHEMA)
        drawn.append(batches)
    return drawn


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("alone", [True, False], ids=["one query", "all queries"])
def test_each_query_has_the_results_of_its_own_runtime(window: tuple[Any, Any], alone: bool) -> None:
    rows = pushes(3, 5)
    queries = {
        f"{kept} {where}": asked(window, FILTERS[kept], WHERES[where])
        for kept, where in itertools.product(FILTERS, WHERES)
    }
    wanted = {}
    for name, query in queries.items():
        runtime = eddy.Runtime(query)
        wanted[name] = [runtime.push(batches) for batches in rows]
    for group in [[name] for name in queries] if alone else [list(queries)]:
        engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
        for name in group:
            engine.start(name, queries[name])
        for step, batches in enumerate(rows):
            for name, table in engine.push(batches).items():
                assert _sorted(table) == _sorted(wanted[name][step]), name
    assert sum(table.num_rows for table in wanted["mixed both"]) > 0


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


@pytest.mark.parametrize("name", GROUPED)
def test_these_conditions_are_grouped(name: str) -> None:
    engine = eddy.Engine([eddy.Stream(stream, SCHEMA, time="t") for stream in "RS"])
    engine.start("q", asked(WINDOWS[0], GROUPED[name], None))
    (reader,) = engine.joins.readers.values()
    assert reader.ranges["R"]
    assert not reader.asks_more


DICTIONARIES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "b", "c"]),
    "whole": (pa.int64(), [-1, 0, 3, 7]),
    "number": (pa.float64(), [-0.5, 0.0, 2.5, float("nan")]),
    "flag": (pa.bool_(), [False, True]),
    "day": (pa.date32(), [datetime.date(2026, 1, day) for day in (1, 2, 3)]),
    "moment": (pa.timestamp("us"), [datetime.datetime(2026, 1, day) for day in (1, 2, 3)]),
}


@pytest.mark.parametrize("kind", DICTIONARIES)
@pytest.mark.parametrize("window", [eddy.Unbounded(), None, eddy.Rows(3)])
def test_nulls_of_a_dictionary_are_among_its_indices_and_its_values(kind: str, window: Any) -> None:
    values, pool = DICTIONARIES[kind]
    schema = pa.schema([("c", pa.dictionary(pa.int8(), values))])
    chance = np.random.default_rng(5)
    field, value = pc.field("c"), pa.scalar(pool[1], values)
    conditions = [field.is_null(), field.is_valid(), field == value, field != value, ~(field == value), field <= value]
    conditions += [field.isin(pa.array([pool[0], None], values)), ~field.isin(pa.array([pool[0]], values))]
    queries = {f"{i}": eddy.Query([eddy.Stream("R", schema, window, filter=c)]) for i, c in enumerate(conditions)}
    for group in [[name] for name in queries] + [list(queries)]:
        engine = eddy.Engine([eddy.Stream("R", schema)])
        for name in group:
            engine.start(name, queries[name])
        for _ in range(3):
            indices = [None if i < 0 else i for i in chance.integers(-1, len(pool) + 1, 20).tolist()]
            column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array([*pool, None], values))
            batch = {"R": pa.record_batch([column], schema=schema)}
            for name, table in engine.push(batch).items():
                wanted = eddy.Runtime(queries[name]).push(batch)
                assert str(table.to_pylist()) == str(wanted.to_pylist()), conditions[int(name)]


def test_a_warm_start_sees_rows_that_no_query_wanted() -> None:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, window=eddy.Range(100), time="t") for name in "RS"])
    engine.start("few", asked(WINDOWS[0], FILTERS["several"], None))
    first, second = pushes(5, 2)
    engine.push(first)
    (join,) = engine.metrics()["joins"]
    engine.start("warm", asked(WINDOWS[0], FILTERS["range"], None), warm=True)
    table = engine.push(second)["warm"]
    runtime = eddy.Runtime(asked(WINDOWS[0], FILTERS["range"], None))
    runtime.push(first)
    assert _sorted(table) == _sorted(runtime.push(second))
    assert engine.metrics()["joins"][0]["bytes"] >= join["bytes"]
    assert len(table) > 0
    # A change to the filter of the first query reaches as far back as well.
    engine.start("fresh", asked(WINDOWS[0], FILTERS["nothing"], None))
    engine["few"].change(asked(WINDOWS[0], FILTERS["none"], None))
    assert engine["few"].complete_from == 0


def test_rows_that_no_query_wants_do_not_enter_the_join() -> None:
    rows = pushes(7, 4)
    sizes = []
    for kept in ("nothing", "none"):
        engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
        engine.start("q", asked(WINDOWS[0], FILTERS[kept], None))
        for batches in rows:
            engine.push(batches)
        sizes.append(engine.joins.families[0].runtime.position)
    n_rows = sum(len(batches["R"]) for batches in rows)
    assert sizes == [sizes[1] - n_rows, sizes[1]]


def test_filters_whose_texts_are_equal_are_not_taken_for_equal() -> None:
    """Arrow leaves long constants out of the text of an expression."""
    sets = [[*range(20), value, *range(30, 50)] for value in (777, 888)]
    schema = pa.schema([("k", pa.int64())])
    engine = eddy.Engine([eddy.Stream(name, schema) for name in "RS"])
    texts = set()
    for number, values in enumerate(sets):
        kept = pc.field("k").isin(values)
        texts.add(str(kept))
        streams = [eddy.Stream(name, schema, window=eddy.Rows(9), filter=kept) for name in "RS"]
        engine.start(f"q{number}", eddy.Query(streams, ["R.k = S.k"], select=["R.k"]))
    assert len(texts) == 1
    rows = [{"k": 777}, {"k": 888}]
    tables = engine.push({"R": rows, "S": rows}, order=[0, 0, 1, 1])
    assert {name: table.to_pylist() for name, table in tables.items()} == {"q0": [{"R.k": 777}], "q1": [{"R.k": 888}]}

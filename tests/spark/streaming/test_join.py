"""A streaming join gives the results of the batch join, whatever the micro-batches and the transport."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import SparkJoinError, join
from tests.cases import Condition, JoinCase, StreamCase, assert_same, feed, text_rows
from tests.cases import results as results_of
from tests.spark.streaming.jobs import Inputs, published, results, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 3
STEP, OVERLAP = 25, 15
"""Event times of a stream's file k go from k * STEP for STEP + OVERLAP, so rows are out of order across files."""
LATENESS = STEP + OVERLAP
WAYS = ((1, "rows"), (2, "packed"), (FILES, "auto"))
"""Files of each stream in a micro-batch, and transport."""


def times(chance: random.Random, file: int) -> int:
    return file * STEP + chance.randrange(STEP + OVERLAP)


def filled(
    root: Path, schemas: dict[str, pa.Schema], row: Callable[[random.Random, str, int], dict[str, Any]], rows: int
) -> Inputs:
    """Return inputs with FILES files of each stream; `row(chance, stream, file)` makes a row."""
    chance = random.Random(5)
    inputs = Inputs(root / "in", **schemas)
    for file in range(FILES):
        for name in schemas:
            inputs.add(name, [row(chance, name, file) for _ in range(rows)])
    return inputs


def check(
    spark: SparkSession, root: Path, query: eddy.Query, inputs: Inputs, ways: Any = WAYS[:2], **how: Any
) -> list[tuple[str, ...]]:
    """Compare some of WAYS with the batch join; return its results."""
    expected = text_rows(join(query, inputs.batch_frames(spark)).toArrow())
    assert len(expected) > 30, "the test should not be about nothing"
    for files, transport in ways:
        place = root / f"{files} {transport}"
        running = run(query, inputs.frames(spark, files), place / "state", place / "out", transport=transport, **how)
        assert_same(results(place / "out"), expected, place.name)
        figures = running.batches()
        assert figures.num_rows == -(-FILES // files)
        assert sum(figures["results"].to_pylist()) == len(expected)
        assert sum(figures["late"].to_pylist()) == 0
    return expected


@pytest.mark.versions
def test_one_key_with_filters_and_a_result_filter(spark: SparkSession, tmp_path: Path) -> None:
    """Strings, nulls and bools as payload; nulls in the key; a filter that is an expression and one that is a function.

    The oracle agrees.
    """
    schema = pa.schema([("k", pa.int32()), ("t", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("v", pa.int64())])
    over = Condition(pc.field("v") > 2, lambda row: row["v"] is not None and row["v"] > 2)
    where = Condition(pc.field("R.v") != pc.field("T.v"), lambda values: values["R.v"] != values["T.v"])
    streams = tuple(StreamCase(name, schema, "range", 20, "t", over if name == "S" else None) for name in "RST")
    select = (("k", ("R", "k")), ("s", ("R", "s")), ("b", ("S", "b")), ("v", ("T", "v")))
    case = JoinCase(streams, (((("R", "k"), ("S", "k")),), ((("S", "k"), ("T", "k")),)), select=select, where=where)

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        return {
            "k": chance.choice([1, 2, 3, 4, None]),
            "t": times(chance, file),
            "s": chance.choice(["", "äöü", "x" * 40, None]),
            "b": chance.choice([True, False, None]),
            "v": chance.randrange(5) if name != "S" else chance.choice([1, 2, 3, None]),
        }

    inputs = filled(tmp_path, dict.fromkeys("RST", schema), row, 12)
    query = eddy.Query(
        [
            case.streams[0].stream(),
            eddy.Stream("S", schema, window=eddy.Range(20), time="t", filter=_over_two),
            case.streams[2].stream(),
        ],
        ["R.k = S.k", "S.k = T.k"],
        select={name: ".".join(column) for name, column in select},
        where=where.expression,
    )
    got = check(spark, tmp_path, query, inputs, WAYS, lateness=LATENESS)
    oracle = case.oracle()
    arrivals = [(i, arrived) for i, name in enumerate("RST") for arrived in inputs.rows(name)]
    arrivals.sort(key=lambda arrival: (arrival[1]["t"], arrival[0]))
    want = [case.project(oracle, result) for result in results_of(feed(case, oracle, arrivals))]
    assert_same(got, want, "oracle")
    as_expression = run(case.query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", lateness=LATENESS)
    assert as_expression.exception() is None
    assert_same(results(tmp_path / "out"), want, "the filter as an expression")


def _over_two(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.greater(batch.column("v"), 2), False)


def test_computed_keys(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("s", pa.string())])
    streams = [eddy.Stream(name, schema, window=eddy.Range(20), time="t") for name in "RST"]
    on = ["LOWER(R.s) = S.s", "CAST(T.s AS BIGINT) = S.k + 1", "R.k <> T.k OR R.s < S.s"]
    query = eddy.Query(streams, on, select=["R.t", "S.t", "T.t", "R.s"])

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        text = chance.choice(["1", "2", None] if name == "T" else ["a", "A", "b", None])
        return {"k": chance.randrange(3), "t": times(chance, file), "s": text}

    inputs = filled(tmp_path, dict.fromkeys("RST", schema), row, 12)
    check(spark, tmp_path, query, inputs, WAYS[1:2], lateness=LATENESS)


def test_a_chain_through_a_hypercube(spark: SparkSession, tmp_path: Path) -> None:
    """String, decimal and timestamp keys, streams copied along the classes they lack, intervals, a time zone."""
    time = ("t", pa.timestamp("us", "UTC"))
    schemas = {
        "R": pa.schema([("a", pa.string()), time]),
        "S": pa.schema([("a", pa.string()), ("b", pa.decimal128(6, 2)), time]),
        "T": pa.schema([("b", pa.decimal128(9, 4)), ("c", pa.timestamp("us")), time]),
        "U": pa.schema([("c", pa.timestamp("us")), time, ("n", pa.int64())]),
    }
    values = {
        "a": ["a", "bb", None],
        "b": [Decimal("0.5"), Decimal("1.25")],
        "c": [dt.datetime(2024, 1, 1), dt.datetime(1890, 5, 5, 1)],
        "n": list(range(1000)),
    }
    start = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        cells = {column: chance.choice(values[column]) for column in schemas[name].names if column != "t"}
        return {**cells, "t": start + dt.timedelta(seconds=times(chance, file))}

    inputs = filled(tmp_path, schemas, row, 6)
    query = eddy.Query(
        [eddy.Stream(name, schema, time="t") for name, schema in schemas.items()],
        [
            *("R.a = S.a", "S.b = T.b", "T.c = U.c"),
            *("S.t between R.t - 20 s and R.t + 15 s", "T.t between S.t - 20 s and S.t + 15 s"),
            *("U.t between T.t - 20 s and T.t + 15 s", "U.t <= R.t + 30 s"),
        ],
    )
    check(spark, tmp_path, query, inputs, lateness=dt.timedelta(seconds=LATENESS), key_groups=8)


@pytest.mark.campaign(1)
@pytest.mark.parametrize("on", [("R.n < S.n - 8", "S.k = T.k"), ("R.n < S.n - 8", "S.n >= T.n + 9")])
def test_joins_without_an_equality(spark: SparkSession, tmp_path: Path, on: tuple[str, ...]) -> None:
    """Where no equality is left to partition by, all streams meet in one engine."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        return {"k": chance.randrange(3), "t": times(chance, file), "n": chance.randrange(12)}

    inputs = filled(tmp_path, dict.fromkeys("RST", schema), row, 10)
    query = eddy.Query([eddy.Stream(name, schema, eddy.Range(30), "t") for name in "RST"], on)
    check(spark, tmp_path, query, inputs, lateness=LATENESS, key_groups=None)
    if not query.classes:
        with pytest.raises(SparkJoinError, match="no equality to partition by"):
            run(query, inputs.frames(spark), tmp_path / "no", tmp_path / "no out", lateness=LATENESS, key_groups=4)


def test_mixed_windows(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.date32()), ("n", pa.int64())])

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        day = dt.date(2020, 1, 1) + dt.timedelta(days=times(chance, file))
        return {"k": chance.randrange(4), "t": day, "n": chance.randrange(10**6)}

    inputs = filled(tmp_path, dict.fromkeys("RS", schema), row, 10)
    ranged = eddy.Stream("R", schema, window=eddy.Range(dt.timedelta(days=10)), time="t")
    query = eddy.Query([ranged, eddy.Stream("S", schema, time="t")], ["R.k = S.k"])
    got = check(spark, tmp_path, query, inputs, lateness=dt.timedelta(days=LATENESS))
    pairs = [(r, s) for r in inputs.rows("R") for s in inputs.rows("S") if r["k"] == s["k"]]
    assert len(got) == sum(max(r["t"], s["t"]) - r["t"] <= dt.timedelta(days=10) for r, s in pairs) < len(pairs)


def test_five_streams_without_windows(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])

    def row(chance: random.Random, name: str, file: int) -> dict[str, Any]:
        return {"k": chance.randrange(6), "n": chance.randrange(10**6)}

    inputs = filled(tmp_path, dict.fromkeys("ABCDE", schema), row, 5)
    query = eddy.Query(
        [eddy.Stream(name, schema) for name in "ABCDE"],
        [f"{left}.k = {two}.k" for left, two in zip("ABCD", "BCDE", strict=True)],
    )
    check(spark, tmp_path, query, inputs, WAYS[1:])


@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_a_stream_with_itself(spark: SparkSession, tmp_path: Path, transport: str) -> None:
    """One DataFrame under two names, with other columns of it as keys."""
    schema = pa.schema([("id", pa.int64()), ("parent", pa.int64()), ("t", pa.int64())])
    chance = random.Random(3)
    inputs = Inputs(tmp_path / "in", X=schema)
    for file in range(FILES):
        rows = [
            {"id": chance.randrange(8), "parent": chance.choice([None, *range(8)]), "t": times(chance, file)}
            for _ in range(12)
        ]
        inputs.add("X", rows)
    query = eddy.Query(
        [eddy.Stream(name, schema, window=eddy.Range(30), time="t") for name in ("child", "parent")],
        ["child.parent = parent.id"],
    )
    frame, batch = inputs.frame(spark, "X"), inputs.batch_frames(spark)["X"]
    both = {"child": frame, "parent": frame}
    run(query, both, tmp_path / "state", tmp_path / "out", lateness=LATENESS, transport=transport)
    expected = text_rows(join(query, {"child": batch, "parent": batch}).toArrow())
    assert len(expected) > 30
    assert_same(results(tmp_path / "out"), expected, transport)


def test_sources_of_different_kinds(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet files with a computed column and a filter, JSON files, and Spark's rate source."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    inputs = Inputs(tmp_path / "in", R=schema)
    (tmp_path / "json").mkdir()
    for file in range(2):
        inputs.add("R", [{"k": k, "v": f"{file} {k}"} for k in range(20)])
        (tmp_path / "json" / f"{file}.json").write_text("".join(f'{{"k": {k}}}\n' for k in range(file, 20, 2)))
    counter = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 15).load()
    frames = {
        "R": inputs.frame(spark, "R").where("k > 3").selectExpr("k", "upper(v) || '!' AS v"),
        "J": spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "json")),
        "N": counter.selectExpr("value AS k"),
    }
    keyed = pa.schema([("k", pa.int64())])
    query = eddy.Query(
        [eddy.Stream("R", schema), eddy.Stream("J", keyed), eddy.Stream("N", keyed)],
        ["R.k = J.k", "J.k = N.k"],
        select={"v": "R.v"},
    )
    with pytest.raises(SparkJoinError, match=r"'packed' cannot be used: .* 'R' is not a plain stream .* a Filter"):
        join(query, frames, checkpoint=tmp_path / "state", transport="packed")
    run(query, frames, tmp_path / "state", tmp_path / "out")
    got = published(tmp_path / "out")["v"].to_pylist()
    counted = max(int(value.split()[1].rstrip("!")) for value in got) + 1
    assert counted >= 15
    assert sorted(got) == sorted(f"{file} {k}!" for file in range(2) for k in range(4, min(20, counted)))

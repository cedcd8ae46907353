"""Batch joins in hops: every placement gives the oracle's results, and the explanation says what runs where."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Branch, PlanError, Query, Rows, Stream
from eddy.spark import SparkJoinError, explain, join
from eddy.spark.batch import choice
from eddy.spark.hops.costs import TaskCosts
from eddy.spark.transports import parquet_source
from tests.bench.simulated.placement.test_simulation import drawn_plan
from tests.cases import Condition, JoinCase, StreamCase
from tests.spark.test_join import check, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[str, list[Any]] = {"a": [0, 1, 2, 3, None], "b": ["x", "", "äö", None], "c": [1, 2, 3]}
KINDS = {"a": (pa.int32(), pa.int64()), "b": (pa.string(), pa.large_string()), "c": (pa.int64(), pa.int16())}
COLUMNS = {"R": "a", "S": "ab", "T": "bc", "U": "ca"}


def case_of(streams: str, window: int | None) -> JoinCase:
    """Return R(a) S(a, b) T(b, c) U(c): with U also a cycle, since U has a; keys differ in width along each class."""
    kept = Condition(pc.field("n") != 7, lambda row: row["n"] != 7)
    where = Condition(pc.field(f"{streams[0]}.n") != 3, lambda values: values[f"{streams[0]}.n"] != 3)
    made, on = [], []
    for k, name in enumerate(streams):
        keys = [(column, KINDS[column][k % 2]) for column in COLUMNS[name]]
        schema = pa.schema([*keys, ("t", pa.int64()), ("n", pa.int64())])
        how = ("unbounded", 0) if window is None else ("range", window)
        made.append(StreamCase(name, schema, *how, "t", kept if k == 1 else None))
        for before in streams[:k]:
            for column in set(COLUMNS[name]) & set(COLUMNS[before]):
                on.append((((before, column), (name, column)),))
    return JoinCase(tuple(made), tuple(on), where=where)


def drawn_rows(case: JoinCase, each: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    draw = random.Random(seed)
    return {
        stream.name: [
            {
                name: draw.randrange(25) if name == "t" else i if name == "n" else draw.choice(VALUES[name])
                for name in stream.schema.names
            }
            for i in range(each)
        ]
        for stream in case.streams
    }


@pytest.mark.versions
@pytest.mark.parametrize(
    ("streams", "window", "placement"), [("RSTU", 5, "own"), ("RST", 4, "auto"), ("RSTU", None, "hops")]
)
def test_every_placement_gives_the_results_of_the_oracle(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    streams: str,
    window: int | None,
    placement: str,
) -> None:
    if placement == "auto":  # few rows are never worth a second round
        monkeypatch.setattr(choice, "HOPS", TaskCosts(*[1e-15] * 7))
    case = case_of(streams, window)
    plan = drawn_plan(case.query(), random.Random(window)) if placement == "own" else placement
    check(spark, tmp_path, case, drawn_rows(case, 40, len(streams)), "t", partitions=3, placement=plan)


def test_explain_names_the_rounds_and_the_operators(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("RST", 4)
    tables = {
        stream.name: pa.Table.from_pylist(drawn_rows(case, 40, 1)[stream.name], schema=stream.schema)
        for stream in case.streams
    }
    frames, query = files_of(spark, tables, tmp_path), case.query()
    plan = {
        "R": [("S", "ship"), ("T", "ship")],
        "S": [("R", "window"), ("T", "window")],
        "T": [("S", "ship"), ("R", "window")],
    }
    said = explain(query, frames, partitions=2, placement=plan)
    assert "placement: 2 rounds of hops over 2 partitions, as asked" in said
    assert "join(S^R, T)" in said
    assert "operators of each partition" in explain(query, frames, partitions=2)
    assert "predicted from samples" in explain(query, frames, partitions=2, placement="hops")
    assert "cost less than a second round" in explain(query, frames, partitions=2, placement="auto")
    monkeypatch.setattr(choice, "HOPS", TaskCosts(*[1e-15] * 7))
    assert "rounds of hops" in explain(query, frames, partitions=2, placement="auto")
    told = explain(query, frames, partitions=1, placement="auto")
    assert "in which no row is copied" in told


def test_a_footer_is_read_once_whatever_measures_and_reads_the_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    footer = parquet_source._footer
    monkeypatch.setattr(parquet_source, "_footer", lambda uri: read.append(uri) or footer(uri))
    case = case_of("RST", 4)
    tables = {
        stream.name: pa.Table.from_pylist(drawn_rows(case, 40, 1)[stream.name], schema=stream.schema)
        for stream in case.streams
    }
    frames = files_of(spark, tables, tmp_path)
    files = [uri for frame in frames.values() for uri in frame.inputFiles()]
    explain(case.query(), frames, partitions=2, placement="hops")
    assert sorted(read) == sorted(files)


def test_what_cannot_run_in_hops_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    row = pa.table({"k": [1], "n": [1]}, schema=schema)
    frames = files_of(spark, {"R": row, "S": row}, tmp_path)
    r, s = (Stream(name, schema) for name in "RS")
    query = Query([r, s], ["R.k = S.k"])
    compared = Query([r, s], ["R.k = S.k", "R.n < S.n"])
    with pytest.raises(SparkJoinError, match=r"R\.n < S\.n is no equality"):
        join(compared, frames, placement="hops")
    assert "since R.n < S.n is no equality" in explain(compared, frames, placement="auto")
    counted = Query([Stream("R", schema, window=Rows(3)), s], ["R.k = S.k"])
    with pytest.raises(SparkJoinError, match="Rows window"):
        join(counted, frames, placement="hops", order_by={"R": "n", "S": "n"})
    branched = Query([r], [], branches=[Branch([s], ["R.k = S.k"], how="left")])
    with pytest.raises(SparkJoinError, match="branches"):
        join(branched, frames, placement="hops")
    with pytest.raises(SparkJoinError, match="max_bytes"):
        join(query, frames, placement="hops", max_bytes=1 << 20)
    with pytest.raises(SparkJoinError, match='pass "grid"'):
        join(query, frames, placement="rounds")  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="no stream 'T'"):
        join(query, frames, placement={"R": [("T", "ship")]})

"""Groups without windows of streaming joins: a changelog that adds up to those of a `Runtime`, through restarts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, explain, join
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.streaming.test_groups import kept_through_failures
from tests.spark.streaming.test_tables import PUSHED, changes, table, total
from tests.spark.streaming.test_top import ENDLESS, ON, RANGED, ROWS, answer_of, check_delta_table, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SUMS: dict[str, Any] = {"aggregates": {"n": agg.count(), "most": agg.max("A.v"), "kinds": agg.count_distinct("B.v")}}
OF_TABLES: dict[str, Any] = {"aggregates": {"n": agg.count(), "least": agg.min("R.z"), "total": agg.sum("T.z")}}
TABLES = [table("R"), table("T")]
QUERIES = {
    "endless": eddy.Query(ENDLESS, ON, group_by=["A.k"], **SUMS),
    "final": eddy.Query(RANGED, ON, expiry="final", group_by=["A.k"], having=pc.field("n") > 20, **SUMS),
    "all": eddy.Query(ENDLESS, ON, **SUMS),
    "first": eddy.Query(ENDLESS, ON, group_by=["B.v"], top=eddy.Top(3, order=["n desc", "B.v"], rank="place"), **SUMS),
    "tables": eddy.Query(TABLES, ["R.ref = T.id"], group_by=["T.name"], **OF_TABLES),
    "left": eddy.Query(
        TABLES[:1], branches=[eddy.Branch(TABLES[1:], ["R.ref = T.id"], "left")], group_by=["T.name"], **OF_TABLES
    ),
    "one of tables": eddy.Query(TABLES, ["R.ref = T.id"], **OF_TABLES),
}


def grow(inputs: Inputs, chance: random.Random, files: range) -> None:
    """Add a file with rows of each input, for each number."""
    for file in files:
        of_tables = "R" in inputs.schemas
        inputs.add_together(
            {name: changes(chance, file) if of_tables else rows(chance, file) for name in inputs.schemas}
        )


def inputs_of(query: eddy.Query, place: Path) -> Inputs:
    return Inputs(
        place, **{stream.name: PUSHED if isinstance(stream, eddy.Table) else ROWS for stream in query.streams}
    )


@pytest.mark.campaign(1)
@pytest.mark.parametrize("name", QUERIES)
def test_the_changelog_adds_up_to_the_groups(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query, chance = QUERIES[name], random.Random(4)
    inputs = inputs_of(query, tmp_path / "in")
    for start in range(3):
        grow(inputs, chance, range(2 * start, 2 * start + 2))
        how = {"partitions": 1 + start % 2}
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)
        expected = answer_of(query, inputs)
        assert total(tmp_path / "out") == expected
        assert expected
    assert {"-D", "-U"} & {*published(tmp_path / "out").column("op").to_pylist()}


def test_groups_follow_rows_that_leave_their_windows(spark: SparkSession, tmp_path: Path) -> None:
    query = eddy.Query(RANGED, ON, group_by=["A.k"], **SUMS)
    joined = eddy.Query(RANGED, ON, select=["A.k", "A.v", "B.v"])
    inputs, chance = inputs_of(query, tmp_path / "in"), random.Random(4)
    for start in range(2):
        grow(inputs, chance, range(3 * start, 3 * start + 3))
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
        run(joined, inputs.frames(spark), tmp_path / "rows state", tmp_path / "rows", output="changelog")
        live: dict[int, list[tuple[int, int]]] = {}
        for k, first, second in total(tmp_path / "rows").elements():
            live.setdefault(k, []).append((first, second))
        answer = {
            (k, len(pairs), max(first for first, _ in pairs), len({second for _, second in pairs}))
            for k, pairs in live.items()
        }
        assert total(tmp_path / "out") == Counter(answer)
        assert answer
    # Results that have left are in no group: there were more.
    rows_of_all = published(tmp_path / "rows").column("op").to_pylist().count("+I")
    assert rows_of_all > 2 * sum(n for _, n, *_ in answer)


def test_a_batch_that_fails_in_the_sink_comes_again_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    query, inputs = QUERIES["first"], inputs_of(QUERIES["first"], tmp_path / "in")
    grow(inputs, random.Random(4), range(4))
    kept = kept_through_failures(query, inputs, spark, tmp_path / "state")
    counts = Counter[Any]()
    for op, *row in kept:
        counts[tuple(row)] += 1 if op in ("'+I'", "'+U'", "+I", "+U") else -1
    assert sorted((+counts).elements()) == sorted(tuple(map(str, row)) for row in answer_of(query, inputs).elements())


def test_a_delta_table_has_the_groups(spark: SparkSession, tmp_path: Path) -> None:
    check_delta_table(QUERIES["tables"], "T.name", "n", spark, tmp_path)


def test_groups_of_rows_with_their_versions(spark: SparkSession, tmp_path: Path) -> None:
    bids, rates = eddy.Stream("A", ROWS, time="t"), eddy.VersionedTable("V", ROWS, key="k", time="t")
    sums = {"n": agg.count(), "total": agg.sum("V.v")}
    query = eddy.Query([bids], as_of=[eddy.AsOf(rates, ["A.k = V.k"])], group_by=["A.k"], aggregates=sums)
    chance, inputs = random.Random(3), Inputs(tmp_path / "in", A=ROWS, V=ROWS)
    for files in (3, 2):
        grow(inputs, chance, range(len(inputs.tables["A"]), len(inputs.tables["A"]) + files))
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    expected = Counter[tuple[int, ...]]()
    versions, last = inputs.rows("V"), max(row["t"] for row in inputs.rows("A"))
    for k in {row["k"] for row in versions}:
        asked = [row["t"] for row in inputs.rows("A") if row["k"] == k and row["t"] < last]
        # Of versions of one time, the one that comes later is valid; the files come in order, each in that of content.
        valid = [
            max((row["t"], row["v"]) for row in versions if row["k"] == k and row["t"] <= t)
            for t in asked
            if any(row["k"] == k and row["t"] <= t for row in versions)
        ]
        expected[k, len(valid), sum(v for _, v in valid)] += 1
    assert total(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("query", "more", "message"),
    [
        (
            eddy.Query([eddy.Stream(name, ROWS, window=eddy.Rows(5)) for name in "AB"], ON, group_by=["A.k"], **SUMS),
            {},
            "stream A has a Rows window; .* make the query with expiry='final', for those of all results so far",
        ),
        (QUERIES["endless"], {"output": "changelog"}, "whether their rows are final follows from the query"),
        (QUERIES["endless"], {"change": "handover"}, "change= is for queries without aggregates"),
        (
            eddy.Query(ENDLESS, ON, group_by=["A.k"], aggregates={"op": agg.count()}),
            {},
            "named 'op', which is the column of a changelog",
        ),
    ],
)
def test_what_is_refused(
    spark: SparkSession, tmp_path: Path, query: eddy.Query, more: dict[str, Any], message: str
) -> None:
    inputs = inputs_of(query, tmp_path / "in")
    with pytest.raises(SparkJoinError, match=message):
        join(query, inputs.frames(spark), checkpoint=tmp_path / "state", **more)


def test_other_groups_need_a_new_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    query, inputs = QUERIES["endless"], inputs_of(QUERIES["endless"], tmp_path / "in")
    grow(inputs, random.Random(1), range(1))
    run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert "aggregates: results are dealt to the tasks by " in explain(
        query, inputs.frames(spark), checkpoint=tmp_path / "state"
    )
    for other in (
        eddy.Query(ENDLESS, ON, group_by=["B.k"], **SUMS),
        eddy.Query(ENDLESS, ON, group_by=["A.k"], having=pc.field("n") > 9, **SUMS),
        eddy.Query(ENDLESS, ON, group_by=["A.k"], select=["n"], **SUMS),
    ):
        with pytest.raises(
            eddy.spark.StreamingStateError, match=r"these are groups of another query: .*start with a new"
        ):
            run(other, inputs.frames(spark), tmp_path / "state", tmp_path / "out")

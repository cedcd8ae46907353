"""First rows of groups of streaming joins: a changelog that adds up to the answer of a `Runtime`, through restarts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import eddy
from eddy.spark import SparkJoinError, explain, join
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.streaming.test_groups import kept_through_failures
from tests.spark.streaming.test_tables import PUSHED, changes, table, total
from tests.spark.test_as_of import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
RANGED = [eddy.Stream(name, ROWS, window=eddy.Range(15), time="t") for name in "AB"]
ENDLESS = [eddy.Stream(name, ROWS) for name in "AB"]
ON = ["A.k = B.k"]
COUNT: dict[str, Any] = {"aggregates": {"n": eddy.agg.count()}}
STREAMS = {
    "endless": eddy.Query(ENDLESS, ON, top=eddy.Top(2, "A.k", ["A.v + B.v desc", "A.v", "B.v"])),
    "final": eddy.Query(RANGED, ON, expiry="final", top=eddy.Top(3, order=["B.v desc", "A.v desc"], rank="place")),
    "equal": eddy.Query(ENDLESS, ON, top=eddy.Top(9, "A.k"), select=["A.k"]),
}
TABLES = {
    "tables": eddy.Query(
        [table("R"), table("T")], ["R.ref = T.id"], top=eddy.Top(2, "T.name", ["R.z desc"], rank="place")
    ),
    "keys": eddy.Query(
        [table("R"), table("T")], ["R.ref = T.id"], select=["R.id", "T.ref"], top=eddy.Top(1, "T.ref", ["R.id", "T.z"])
    ),
}


def rows(chance: random.Random, file: int) -> list[dict[str, int]]:
    return [{"k": chance.randrange(4), "v": 100 * file + v, "t": 10 * file + v % 10} for v in range(25)]


def answer_of(query: eddy.Query, inputs: Inputs) -> Counter[Any]:
    """Return the answer of a runtime after all rows: in a streaming join none is late here."""
    runtime, counts = eddy.Runtime(query, output="changelog"), Counter[Any]()
    timed = query.graph.timed
    for k in range(len(inputs.tables[query.streams[0].name])):
        pushed = {stream.name: inputs.tables[stream.name][k] for stream in query.streams}
        atomic = bool(query.tables_changing)
        order = (
            None if timed or atomic else [i for i, given in enumerate(pushed.values()) for _ in range(given.num_rows)]
        )
        for op, *row in (tuple(change.values()) for change in runtime.push(pushed, order, atomic=atomic).to_pylist()):
            counts[tuple(row)] += 1 if op in ("+I", "+U") else -1
    return +counts


@pytest.mark.campaign(1)
@pytest.mark.parametrize("name", [*STREAMS, *TABLES])
def test_the_changelog_adds_up_to_the_answer(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query = {**STREAMS, **TABLES}[name]
    chance = random.Random(4)
    inputs = Inputs(tmp_path / "in", **{stream.name: PUSHED if name in TABLES else ROWS for stream in query.streams})
    for start in range(3):
        for file in range(2 * start, 2 * start + 2):
            made = {
                stream_name: changes(chance, file) if name in TABLES else rows(chance, file)
                for stream_name in inputs.schemas
            }
            inputs.add_together(made)
        how = {"partitions": 1 + start % 2}
        running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)
        assert not running.late_counts.get("A")
        expected = answer_of(query, inputs)
        assert total(tmp_path / "out") == expected
        assert expected
    ops = Counter(published(tmp_path / "out").column("op").to_pylist())
    assert name == "equal" or ops["-D"] + ops["-U"]


def test_a_batch_that_fails_in_the_sink_comes_again_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    query, chance, inputs = STREAMS["equal"], random.Random(4), Inputs(tmp_path / "in", A=ROWS, B=ROWS)
    for file in range(4):
        inputs.add_together({name: rows(chance, file)[:4] for name in "AB"})
    kept = kept_through_failures(query, inputs, spark, tmp_path / "state")
    counts = Counter(int(row[1]) for row in kept)
    assert counts == Counter(row[0] for row in answer_of(query, inputs).elements())


def test_first_rows_of_windows(spark: SparkSession, tmp_path: Path) -> None:
    best = eddy.Top(1, "window_start", "n desc", rank="place")
    query = eddy.Query(RANGED, ON, group_by=["A.k"], group_window=eddy.Tumbling(10), top=best, **COUNT)
    chance, inputs = random.Random(4), Inputs(tmp_path / "in", A=ROWS, B=ROWS)
    for file in range(4):
        inputs.add_together({name: rows(chance, file) for name in "AB"})
        joined = join(query, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4)
        writer = joined.writeStream.trigger(availableNow=True, finish=file == 3).format("parquet")
        assert writer.start(tmp_path / "out").awaitTermination(120)
    assert counted(published(tmp_path / "out")) == counted(join(query, inputs.batch_frames(spark)).toArrow())
    assert published(tmp_path / "out").num_rows >= 4


def check_delta_table(query: eddy.Query, key: str, other: str, spark: SparkSession, place: Path) -> None:
    """Keep the answer of a query over tables in a table by a key, and try another one, which does not identify rows."""
    chance, inputs = random.Random(9), Inputs(place / "in", R=PUSHED, T=PUSHED)
    for file in range(2):
        inputs.add_together({name: changes(chance, file) for name in "RT"})
        writer = join(query, inputs.frames(spark), checkpoint=place / "state", key_groups=4).writeStream
        running = writer.format("delta").option("key", key).trigger(availableNow=True).start(place / "table")
        assert running.awaitTermination(120)
        assert counted(pa.table(DeltaTable(place / "table").to_pyarrow_table())) == answer_of(query, inputs)
    writer = join(query, inputs.frames(spark), checkpoint=place / "other", key_groups=4).writeStream
    with pytest.raises(SparkJoinError, match=f"several results can have one key {other}.* add to it '{key}'"):
        writer.format("delta").option("key", other).start(place / "other table")


def test_a_delta_table_has_the_answer(spark: SparkSession, tmp_path: Path) -> None:
    check_delta_table(TABLES["keys"], "T.ref", "R.id", spark, tmp_path)


@pytest.mark.parametrize(
    ("query", "more", "message"),
    [
        (eddy.Query(RANGED, ON, top=eddy.Top(1, "A.k")), {}, "top: the results .* expiry='final', for the first rows"),
        (eddy.Query(RANGED[:1], top=eddy.Top(1, "A.k")), {}, "two streams or more: rank the rows of one stream"),
        (STREAMS["endless"], {"change": "handover"}, "change= is for queries without top"),
        (
            eddy.Query([table("R"), table("T")], ["R.ref = T.id"], select=["R.ref"], top=eddy.Top(1, "R.ref")),
            {},
            r"top in a streaming join needs the key of each table in select: add 'R.id': without a key, equal results",
        ),
        (
            eddy.Query([ENDLESS[0], table("T")], ["A.k = T.id"], top=eddy.Top(1, "A.k")),
            {},
            "results have no key, because stream A is no table",
        ),
    ],
)
def test_what_is_refused(
    spark: SparkSession, tmp_path: Path, query: eddy.Query, more: dict[str, Any], message: str
) -> None:
    inputs = Inputs(
        tmp_path / "in", **{stream.name: PUSHED if isinstance(stream, eddy.Table) else ROWS for stream in query.streams}
    )
    with pytest.raises(SparkJoinError, match=message):
        join(query, inputs.frames(spark), checkpoint=tmp_path / "state", **more)


def test_another_top_needs_a_new_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", A=ROWS, B=ROWS)
    inputs.add_together({name: rows(random.Random(1), 0) for name in "AB"})
    run(STREAMS["endless"], inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    query = eddy.Query(ENDLESS, ON, top=eddy.Top(1, "A.k", ["A.v + B.v desc", "A.v", "B.v"]))
    assert "top: results are dealt to the tasks by " in explain(
        query, inputs.frames(spark), checkpoint=tmp_path / "state"
    )
    with pytest.raises(eddy.spark.StreamingStateError, match=r"these are groups of another query: .*start with a new"):
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")

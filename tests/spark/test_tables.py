"""Tables on Spark: batch joins over change logs, envelopes of Debezium, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.query.ungrouped import ungrouped
from eddy.spark import SparkJoinError, explain, join, sql
from eddy.spark.partitioning.narrow import narrowed
from eddy.spark.types import struct_type
from tests.spark.streaming.jobs import Inputs, run
from tests.spark.streaming.test_tables import (
    CHANGES,
    NAMES,
    SCHEMAS,
    Rows,
    answer,
    changes,
    joined,
    options,
    rows,
    table,
    total,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = eddy.Stream("S", SCHEMAS["S"])


def filled(root: Path, query: eddy.Query, seed: int = 3) -> Inputs:
    chance, names = random.Random(seed), [stream.name for stream in query.streams]
    inputs = Inputs(root, **{name: SCHEMAS[name] for name in names})
    for file in range(4):
        inputs.add_together({name: rows(chance, file) if name == "S" else changes(chance, file) for name in names})
    return inputs


@pytest.mark.parametrize("name", [name for name in NAMES if not options(name)])
def test_a_batch_join_reads_the_last_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query, oracle = joined(name)
    inputs = filled(tmp_path / "in", query)
    results = join(query, inputs.batch_frames(spark), partitions=3).toArrow()
    assert Counter(tuple(row.values()) for row in results.to_pylist()) == answer(query, oracle, inputs)
    assert results.num_rows


def test_what_is_made_of_a_query_has_its_expiry() -> None:
    branch = eddy.Branch([table("T")], ["S.who = T.id"], "left")
    for query in (
        eddy.Query([STREAM, table("T")], ["S.who = T.id"], expiry="final"),
        eddy.Query([STREAM], branches=[branch], expiry="final"),
    ):
        made = [ungrouped(query), narrowed(query, [None] * 2, timed=False, whole=False)[0], query.for_changelog()]
        joins = [inner for variant in made for inner in variant.inner_joins().values()]
        assert {variant.expiry for variant in [*made, *joins]} == {"final"}


@pytest.mark.versions
def test_groups_of_the_last_rows(spark: SparkSession, tmp_path: Path) -> None:
    inputs = filled(tmp_path / "in", joined("rows that move")[0])
    options: dict[str, Any] = {"group_by": ["T.name"], "aggregates": {"n": eddy.agg.count()}}
    query, oracle = joined("rows that move")
    rows_of = answer(query, oracle, inputs)
    counted = Counter(row[query.output_schema.names.index("T.name")] for row in rows_of.elements())
    grouped = join(eddy.Query([table("R"), table("T")], ["R.ref = T.id"], **options), inputs.batch_frames(spark))
    assert {row["T.name"]: row["n"] for row in grouped.toArrow().to_pylist()} == counted
    alone = join(eddy.Query([table("R")], aggregates={"n": eddy.agg.count()}), {"R": inputs.batch_frames(spark)["R"]})
    assert alone.toArrow().to_pylist() == [{"n": len(oracle.alive["R"])}]


LEFT = {1: 1, 2: 1, 3: 9}
"""Last rows of `a`: the key and `g`, which is a key of `b` or none."""
PARTNERS: dict[str, set[tuple[int | None, int | None]]] = {
    "inner": {(1, 1), (2, 1)},
    "left": {(1, 1), (2, 1), (3, None)},
    "full": {(1, 1), (2, 1), (3, None), (None, 5)},
    "semi": {(1, None), (2, None)},
    "anti": {(3, None)},
}
ENDS = pa.schema([("k", pa.int64()), ("g", pa.int64())])


def of_changes(spark: SparkSession, name: str, ops: str | None) -> tuple[eddy.Stream, DataFrame]:
    """Return `a` or `b` as a table whose changes have this form, or as a stream with the last rows; and its rows."""
    last = [{"k": k, "g": g} for k, g in (LEFT if name == "a" else {1: 7, 5: 8}).items()]
    if ops == "stream":
        return eddy.Stream(name, ENDS), framed(spark, last, ENDS)
    gone = {"k": 4, "g": 1} if name == "a" else {"k": 9, "g": 1}
    given = [*((row | {"g": 6}, 1, "c") for row in last), *((row, 2, "u") for row in last)]
    if ops is not None:
        given += [(gone, 1, "c"), (gone, 2, "d")]
    if ops == "debezium":
        form = pa.schema([("op", pa.string()), *((part, pa.struct(ENDS)) for part in ("before", "after")), LSN])
        rows = [{"op": op, "before" if op == "d" else "after": row, "source": {"lsn": z}} for row, z, op in given]
        table = eddy.Table(name, ENDS, key="k", version="lsn", ops="debezium")
        return table, spark.createDataFrame(pa.Table.from_pylist(rows, schema=form))
    schema = ENDS.append(pa.field("z", pa.int64()))
    more = schema if ops is None else schema.append(pa.field("op", pa.string()))
    rows = [{**row, "z": z, "op": op} for row, z, op in given]
    made = spark.createDataFrame(pa.Table.from_pylist(rows, schema=more))
    return eddy.Table(name, schema, key="k", version="z", ops="column" if ops else None), made


@pytest.mark.campaign(1)
@pytest.mark.parametrize("how", PARTNERS)
@pytest.mark.parametrize(
    ("a", "b"),
    [(None, None), ("column", "column"), ("debezium", "debezium"), ("stream", "column"), ("column", "stream")],
)
def test_every_join_takes_tables_of_every_form(spark: SparkSession, how: Any, a: str | None, b: str | None) -> None:
    (core, rows_of_core), (other, rows_of_other) = of_changes(spark, "a", a), of_changes(spark, "b", b)
    frames, shown = {"a": rows_of_core, "b": rows_of_other}, {"a": "a.k", "b": "b.k"}
    if how in ("semi", "anti"):
        del shown["b"]

    def answer_of(**more: Any) -> list[dict[str, Any]]:
        if how == "inner":
            query = eddy.Query([core, other], ["a.g = b.k"], **more)
        else:
            query = eddy.Query([core], branches=[eddy.Branch([other], ["a.g = b.k"], how)], **more)
        made: list[dict[str, Any]] = join(query, frames, partitions=1).toArrow().to_pylist()
        return made

    assert {(row["a"], row.get("b")) for row in answer_of(select=shown)} == PARTNERS[how]
    counted = Counter(None if k is None else LEFT[k] for k, _ in PARTNERS[how])
    groups = answer_of(group_by={"g": "a.g"}, aggregates={"n": eddy.agg.count()})
    assert {row["g"]: row["n"] for row in groups} == counted


def test_a_position_counts_within_its_file(spark: SparkSession) -> None:
    place = pa.struct([("file", pa.string()), ("pos", pa.int64())])
    form = pa.schema([("op", pa.string()), ("after", pa.struct(ENDS)), ("source", place)])
    placed = [(1, 9, 1 << 31), (2, 10, 4), (3, 9, 1 << 33), (4, 10, 5)]
    rows = [
        {"op": "u", "after": {"k": 7, "g": g}, "source": {"file": f"bin.{number:06}", "pos": at}}
        for g, number, at in placed
    ]
    table = eddy.Table("T", ENDS, key="k", version="pos", ops="debezium")
    query = eddy.Query([table, of_changes(spark, "b", None)[0]], ["T.k = b.k"], select=["T.g"])
    other = spark.createDataFrame(pa.table({"k": [7], "g": [7], "z": [1]}))
    for given in (rows, rows[::-1]):
        frame = spark.createDataFrame(pa.Table.from_pylist(given, schema=form))
        assert join(query, {"T": frame, "b": other}).toArrow().to_pylist() == [{"T.g": 4}]
    lacking = frame.selectExpr("op", "after", "struct(source.pos) AS source")
    with pytest.raises(SparkJoinError, match="'source' of its envelopes has no 'file'; read it as well"):
        join(query, {"T": lacking, "b": other})


def test_rows_windows_and_numbers_beside_a_table(spark: SparkSession, tmp_path: Path) -> None:
    streams = [eddy.Stream("S", SCHEMAS["S"], window=eddy.Rows(5)), table("T")]
    query = eddy.Query([*streams, eddy.Stream("U", SCHEMAS["S"])], ["S.who = T.id", "S.n = U.n"])
    inputs = filled(tmp_path / "in", joined("by the key of the table")[0])
    frames = inputs.batch_frames(spark)
    frames["U"] = frames["S"]
    results = join(query, frames, order_by={"S": "n", "U": "n"}).toArrow()
    plain = answer(*joined("by the key of the table"), inputs)
    assert results.num_rows == plain.total()


ENVELOPE = pa.struct([("id", pa.int64()), ("ref", pa.int64()), ("name", pa.string())])
LSN = pa.field("source", pa.struct([("lsn", pa.int64())]))


def envelopes(given: Rows) -> list[dict[str, Any]]:
    """Return changes as envelopes of Debezium."""
    made = []
    for row in given:
        image = {name: row[name] for name in ("id", "ref", "name")}
        if row["op"] == "-U":
            made.append({"op": "m", "before": None, "after": None, "source": {"lsn": None}, "key": None})
            continue
        gone = row["op"] == "d"
        parts = {"before": image if gone and row["id"] % 2 else None, "after": None if gone else image}
        made.append({"op": "d" if gone else "u", **parts, "source": {"lsn": row["z"]}, "key": {"id": row["id"]}})
        if gone:
            made.append({"op": None, "before": None, "after": None, "source": None, "key": {"id": row["id"]}})
    return made


FORM = pa.schema(
    [
        ("op", pa.string()),
        ("before", ENVELOPE),
        ("after", ENVELOPE),
        LSN,
        ("key", pa.struct([("id", pa.int64())])),
    ]
)


def of_debezium(name: str) -> eddy.Table:
    return eddy.Table(name, CHANGES.remove(3), key="id", version="lsn", ops="debezium")


def test_envelopes_are_changes(spark: SparkSession, tmp_path: Path) -> None:
    plain, oracle = joined("rows that move")
    inputs = filled(tmp_path / "in", plain)
    wrapped = Inputs(tmp_path / "wrapped", R=FORM, T=FORM)
    for name in "RT":
        wrapped.add(name, envelopes(inputs.rows(name)))
    query = eddy.Query([of_debezium("R"), of_debezium("T")], ["R.ref = T.id"])
    kept = [k for k, name in enumerate(plain.output_schema.names) if not name.endswith(".z")]
    expected = Counter(tuple(row[k] for k in kept) for row in answer(plain, oracle, inputs).elements())
    results = join(query, wrapped.batch_frames(spark)).toArrow()
    assert Counter(tuple(row.values()) for row in results.to_pylist()) == expected
    run(query, wrapped.frames(spark), tmp_path / "state", tmp_path / "out")
    assert total(tmp_path / "out") == expected


def test_an_envelope_that_moves_a_row_to_another_key(spark: SparkSession) -> None:
    moved = [
        {"op": "c", "after": {"id": 1, "ref": 5, "name": "x"}, "source": {"lsn": 1}},
        {"op": "u", "before": {"id": 1}, "after": {"id": 2, "ref": 5, "name": "x"}, "source": {"lsn": 2}},
    ]
    frames = {
        "R": spark.createDataFrame(pa.Table.from_pylist(moved, schema=FORM)),
        "T": spark.createDataFrame(pa.Table.from_pylist([{"id": 5, "z": 1, "op": "c"}], schema=SCHEMAS["T"])),
    }
    query = eddy.Query([of_debezium("R"), table("T")], ["R.ref = T.id"], select=["R.id"])
    assert join(query, frames).toArrow().to_pylist() == [{"R.id": 2}]


def framed(spark: SparkSession, given: Rows, schema: pa.Schema = SCHEMAS["T"]) -> DataFrame:
    return spark.createDataFrame(given, struct_type(schema))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": None, "z": 1, "op": "c"}, "table T, column id: a change without a value: id = null, z = 1; give it"),
        (
            {"id": 1, "z": None, "op": "c"},
            "table T, column z: a change without a value: id = 1, z = null; give it a key",
        ),
        (
            {"id": 1, "z": 1, "op": "delete"},
            "table T: a change has an unknown value in column 'op': op = delete, id = 1, z = 1; write one of",
        ),
        (
            {"id": 1, "z": 1, "op": None},
            "table T: .* unknown value in column 'op': op = null, id = 1, z = 1; write one",
        ),
    ],
)
def test_bad_changes_end_a_batch_join(spark: SparkSession, given: dict[str, Any], message: str) -> None:
    query = eddy.Query([STREAM, table("T")], ["S.who = T.id"])
    row = {"ref": None, "name": None, **given}
    frames = {"S": framed(spark, [{"who": 1, "n": 1, "t": 1}], SCHEMAS["S"]), "T": framed(spark, [row])}
    with pytest.raises(Exception, match=message):
        join(query, frames).toArrow()


@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        ({"op": "t"}, "is the truncation of a table, .*: op = t, .*; let Debezium leave truncations out"),
        (
            {"op": "x", "after": {"id": 7}},
            "another op than c, r, u, d, t or m: op = x, .* after = {7, .*; leave it out",
        ),
        ({"op": "u", "source": {"lsn": 1}}, "without a row 'after': op = u, .* source = .1}; pass the envelopes whole"),
        ({"op": "d", "source": {"lsn": 1}}, "neither 'before' nor 'key' has the key: op = d, .*; pass the key of the"),
        ({"op": "c", "after": {"id": 1}}, "has no version 'lsn': op = c, .*; pass the envelopes whole, with"),
        ({"after": {"id": 1}, "source": {"lsn": 1}}, "has a row 'after' and no op: op = null, .*; write 'c', 'r' or"),
    ],
)
def test_bad_envelopes_end_a_join(spark: SparkSession, envelope: dict[str, Any], message: str) -> None:
    query = eddy.Query([STREAM, of_debezium("T")], ["S.who = T.id"])
    given = spark.createDataFrame(pa.Table.from_pylist([envelope], schema=FORM))
    frames = {"S": framed(spark, [{"who": 1, "n": 1, "t": 1}], SCHEMAS["S"]), "T": given}
    with pytest.raises(Exception, match=message):
        join(query, frames).toArrow()


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    plain = eddy.Table("T", CHANGES, key="id", ops="column")
    batch = {"S": framed(spark, [], SCHEMAS["S"]), "T": framed(spark, [])}
    with pytest.raises(eddy.QueryError, match=r"table T: on Spark, changes arrive in no order; .* version="):
        join(eddy.Query([STREAM, plain], ["S.who = T.id"]), batch)
    query = eddy.Query([STREAM, table("T")], ["S.who = T.id"])
    with pytest.raises(SparkJoinError, match="table T: its changes need column 'op'"):
        join(query, {**batch, "T": batch["T"].drop("op")})
    with pytest.raises(SparkJoinError, match="placement='hops': T is a table"):
        join(
            eddy.Query([eddy.Stream("S", SCHEMAS["S"], window=eddy.Range(5), time="t"), table("T")], ["S.who = T.id"]),
            batch,
            placement="hops",
        )
    inputs = Inputs(tmp_path / "in", S=SCHEMAS["S"], T=SCHEMAS["T"])
    frames = inputs.frames(spark)
    with pytest.raises(SparkJoinError, match=r"change= is for queries without tables, and T is one"):
        join(query, frames, checkpoint=tmp_path / "state", change="handover")
    with pytest.raises(SparkJoinError, match="its changes need column 'after'"):
        join(eddy.Query([STREAM, of_debezium("T")], ["S.who = T.id"]), batch)
    with pytest.raises(SparkJoinError, match="needs column 'op'"):
        join(query, {"S": frames["S"], "T": frames["T"].drop("op")}, checkpoint=tmp_path / "state")
    with pytest.raises(SparkJoinError, match="placement='hops': T is a table"):
        join(query, frames, checkpoint=tmp_path / "state", placement="hops")
    assert "T: 8 copies" not in explain(query, frames, checkpoint=tmp_path / "state")


def test_a_statement_joins_tables(spark: SparkSession, tmp_path: Path) -> None:
    plain, oracle = joined("a left join")
    inputs = filled(tmp_path / "in", plain)
    kept = [plain.output_schema.names.index(name) for name in ("R.id", "T.name")]
    expected = Counter(tuple(row[k] for k in kept) for row in answer(plain, oracle, inputs).elements())
    text = "SELECT R.id, T.name FROM changes_r R LEFT JOIN changes_t T ON R.ref = T.id"
    options: dict[str, Any] = {"key": "id", "version": "z", "ops": "column"}
    for name, frame in inputs.batch_frames(spark).items():
        frame.createOrReplaceTempView(f"changes_{name.lower()}")
    tables = {"changes_r": options, "changes_t": options}
    results = sql(spark, text, tables=tables).toArrow()
    assert Counter(tuple(row.values()) for row in results.to_pylist()) == expected
    wrapped = Inputs(tmp_path / "wrapped", R=FORM, T=FORM)
    for name, frame in wrapped.frames(spark).items():
        wrapped.add(name, envelopes(inputs.rows(name)))
        frame.createOrReplaceTempView(f"changes_{name.lower()}")
    options = {"key": "id", "version": "lsn", "ops": "debezium"}
    running = sql(spark, text, tables=dict.fromkeys(tables, options), checkpoint=tmp_path / "state", key_groups=2)
    assert (
        running.writeStream.trigger(availableNow=True).format("parquet").start(tmp_path / "out").awaitTermination(120)
    )
    assert total(tmp_path / "out") == expected
    with pytest.raises(SparkJoinError, match="tables names 'other', which the statement does not read"):
        sql(spark, text, tables={"other": options})
    with pytest.raises(SparkJoinError, match="view 'changes_r' has the option 'late'; give key, version"):
        sql(spark, text, tables={"changes_r": {**options, "late": "count"}})


def test_event_time_does_not_end_under_tables(spark: SparkSession, tmp_path: Path) -> None:
    query, _ = joined("a window of event time")
    inputs = filled(tmp_path / "in", query)
    writer = join(query, inputs.frames(spark), checkpoint=tmp_path / "state").writeStream.format("noop")
    with pytest.raises(SparkJoinError, match="finish=True: T is a table, and the end of event time"):
        writer.trigger(availableNow=True, finish=True).start()


def test_explain_says_which_changes_are_copied(spark: SparkSession, tmp_path: Path) -> None:
    query, _ = joined("rows that move")
    inputs = filled(tmp_path / "in", query)
    text = explain(query, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4)
    assert "R: 4 copies of each tuple" in text

"""Changelogs, of joins over tables and of streams in windows: what a job publishes adds up to the answer, through
restarts, moves and splits."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import eddy
from eddy.fuzz.table_oracle import TableBranch, TableInput, TableOracle
from eddy.spark import SparkJoinError, StreamingStateError, join
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.sinks.keyed import key_columns, keyed_changes
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.spark.streaming.jobs import Inputs, published, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = pa.schema([("id", pa.int64()), ("ref", pa.int64()), ("name", pa.string()), ("z", pa.int64())])
PUSHED = CHANGES.append(pa.field("op", pa.string()))
ROWS = pa.schema([("who", pa.int64()), ("n", pa.int64()), ("t", pa.int64())])
SCHEMAS = {"R": PUSHED, "T": PUSHED, "S": ROWS, "U": ROWS}
STREAMS = ("S", "U")
KEYS, LATENESS, SPAN = 12, 60, 40
Rows = list[dict[str, Any]]


def table(name: str, **more: Any) -> eddy.Table:
    return eddy.Table(name, CHANGES, key="id", version="z", ops="column", **more)


def stream(timed: bool = False, name: str = "S") -> eddy.Stream:
    return eddy.Stream(name, ROWS, window=eddy.Range(SPAN) if timed else None, time="t" if timed else None)


Joined = tuple[eddy.Query, TableOracle]


def joined(name: str, lateness: int = LATENESS) -> Joined:
    """Return a query by its name, and its reference."""
    r, t = TableInput("R", ("id",), version="z"), TableInput("T", ("id",), version="z")
    on_key, on_value = (("R", "ref"), "=", ("T", "id")), (("R", "ref"), "=", ("T", "ref"))
    match name:
        case "by the key of the table":
            query = eddy.Query([stream(), table("T")], ["S.who = T.id"])
            return query, TableOracle([TableInput("S"), t], [(("S", "who"), "=", ("T", "id"))])
        case "rows that move":
            return eddy.Query([table("R"), table("T")], ["R.ref = T.id"]), TableOracle([r, t], [on_key])
        case "all rows move":
            return eddy.Query([table("R"), table("T")], ["R.ref = T.ref"]), TableOracle([r, t], [on_value])
        case "a chain":
            query = eddy.Query([stream(), table("R"), table("T")], ["S.who = R.id", "R.ref = T.id"])
            return query, TableOracle([TableInput("S"), r, t], [(("S", "who"), "=", ("R", "id")), on_key])
        case "a left join":
            query = eddy.Query([table("R")], branches=[eddy.Branch([table("T")], ["R.ref = T.id"], "left")])
            return query, TableOracle([r], [], [TableBranch([t], [on_key], "left")])
        case "a full join":
            query = eddy.Query([table("R")], branches=[eddy.Branch([table("T")], ["R.ref = T.id"], "full")])
            return query, TableOracle([r], [], [TableBranch([t], [on_key], "full")])
        case "filtered":
            query = eddy.Query([table("R"), table("T", filter=pa.compute.field("ref") < 6)], ["R.ref = T.id"])
            kept = TableInput("T", ("id",), version="z", keep=lambda row: row["ref"] is not None and row["ref"] < 6)
            return query, TableOracle([r, kept], [on_key])
        case "windows of streams" | "windows in a left join":
            s, u = (TableInput(stream_name, span=SPAN, time="t") for stream_name in STREAMS)
            on = [(("S", "who"), "=", ("U", "who"))]
            if name == "windows of streams":
                query = eddy.Query([stream(True), stream(True, "U")], ["S.who = U.who"], lateness=lateness)
                return query, TableOracle([s, u], on)
            branch = eddy.Branch([stream(True, "U")], ["S.who = U.who"], "left")
            query = eddy.Query([stream(True)], branches=[branch], lateness=lateness)
            return query, TableOracle([s], [], [TableBranch([u], on, "left")])
        case _:
            expiry: Any = "final" if name == "rows that stay" else "retract"
            query = eddy.Query([stream(timed=True), table("T")], ["S.who = T.id"], lateness=lateness, expiry=expiry)
            on = [(("S", "who"), "=", ("T", "id"))]
            return query, TableOracle([TableInput("S", span=SPAN, time="t"), t], on, expiry=expiry)


NAMES = [
    "by the key of the table",
    "rows that move",
    "all rows move",
    "a chain",
    "a left join",
    "filtered",
    "windows of streams",
    "windows in a left join",
    "a window of event time",
]


def options(name: str) -> dict[str, Any]:
    """Return the options with which a query has a changelog: with tables it has one in any case."""
    return {"output": "changelog"} if "windows" in name else {}


def changes(chance: random.Random, file: int, rows: int = 30) -> Rows:
    """Return changes whose versions come in disorder, also between files."""
    drawn = []
    for k in range(rows):
        op = chance.choice(["c", "u", "+I", "d", "-U", "r"])
        version = (30 * file + chance.randrange(60)) * 1000 + k + 100 * file
        row = {"id": chance.randrange(KEYS), "ref": chance.choice([*range(KEYS), None]), "z": version, "op": op}
        drawn.append({**row, "name": chance.choice(["x", "y", None]) if op != "d" else None})
    return drawn


def rows(chance: random.Random, file: int, count: int = 20) -> Rows:
    return [
        {"who": chance.randrange(KEYS), "n": 100 * file + k, "t": 30 * file + chance.randrange(50)}
        for k in range(count)
    ]


def answer(query: eddy.Query, oracle: TableOracle, inputs: Inputs, watermark: int | None = None) -> Counter[Any]:
    """Return the rows of the answer after all changes and rows."""
    for source in query.streams:
        given = inputs.rows(source.name)
        if watermark is not None and source.name in STREAMS:
            given = sorted((row for row in given if row["t"] <= watermark), key=lambda row: row["t"])
        for row in given:
            op = row.get("op")
            if op != "-U" and not oracle.is_stale(source.name, row, op == "d"):
                oracle.arrive(source.name, row, op == "d", watermark)
    if watermark is not None:
        oracle.expire()
    shown = [text.split(".") for text in query.output_schema.names]
    names = [table_input.name for table_input in oracle.every]

    def value(result: tuple[int, ...], stream: str, column: str) -> Any:
        number = result[names.index(stream)]
        return None if number < 0 else oracle.row(stream, number)[column]

    return Counter(tuple(value(result, *place) for place in shown) for result in oracle.answer)


def total(out: Path) -> Counter[Any]:
    """Return the rows that a changelog adds up to."""
    counts = Counter[Any]()
    for op, *row in (tuple(change.values()) for change in published(out).to_pylist()):
        counts[tuple(row)] += 1 if op in ("+I", "+U") else -1
    return +counts


@pytest.mark.campaign(1)
@pytest.mark.parametrize("name", NAMES)
def test_the_changelog_adds_up_to_the_answer(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query, oracle = joined(name)
    chance = random.Random(NAMES.index(name))
    inputs = Inputs(tmp_path / "in", **{source.name: SCHEMAS[source.name] for source in query.streams})
    for start in range(3):
        for file in range(3 * start, 3 * start + 3):
            inputs.add_together(
                {
                    stream_name: rows(chance, file) if stream_name in STREAMS else changes(chance, file)
                    for stream_name in inputs.schemas
                }
            )
        how = {"partitions": 1 + start % 2, "strategy": ("jisc", "eddy", "mjoin")[start], **options(name)}
        running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)
        watermark = int(running.batches()["watermark"][-1].as_py()) if "window" in name else None
        oracle = joined(name)[1]
        assert total(tmp_path / "out") == answer(query, oracle, inputs, watermark)
    if "window" in name:
        assert oracle._low(oracle.every[0]) > 20
    assert published(tmp_path / "out").column("op").to_pylist().count("-D")


class ChangingRun:
    """A running join over tables to which a test adds files, one micro-batch after the other."""

    def __init__(self, spark: SparkSession, root: Path, name: str) -> None:
        self.spark, self.root, self.name = spark, root, name
        self.query = joined(name)[0]
        self.inputs = Inputs(root / "in", **{source.name: SCHEMAS[source.name] for source in self.query.streams})
        self.chance, self.file = random.Random(7), 0

    def start(self, **how: Any) -> StreamingJoinQuery:
        how = {"rebalance": "off", "keep": 2, **options(self.name), **how}
        joined = join(self.query, self.inputs.frames(self.spark), checkpoint=self.root / "state", **how)
        return joined.writeStream.toParquet(self.root / "out")

    def batch(self, running: StreamingJoinQuery) -> None:
        """Add a file to each input, and compare what has been published with the answer."""
        before, given = running.batches().num_rows, self.file
        made = {
            name: rows(self.chance, given) if name in STREAMS else changes(self.chance, given)
            for name in self.inputs.schemas
        }
        self.inputs.add_together(made, running)
        self.file += 1
        while running.batches().num_rows == before and running.isActive:
            running.processAllAvailable()
        running.processAllAvailable()
        watermark = running.batches()["watermark"][-1].as_py() if "window" in self.name else None
        assert total(self.root / "out") == answer(self.query, joined(self.name)[1], self.inputs, watermark)


@pytest.mark.campaign(0)
@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("rows that move", "packed"),
        ("a left join", "packed"),
        ("a chain", "rows"),
        ("a window of event time", "packed"),
        ("windows of streams", "rows"),
        ("windows in a left join", "packed"),
        ("all rows move", "packed"),
    ],
)
def test_key_groups_change_under_a_changelog(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, transport: str
) -> None:
    monkeypatch.setattr(compaction, "MERGED", 3)
    run = ChangingRun(spark, tmp_path, name)
    running = run.start(partitions=2, key_groups=2, transport=transport)
    for _ in range(2):
        run.batch(running)
    running.split(0)
    run.batch(running)
    running.move(1, 0)
    running.split(2)
    run.batch(running)
    running.forget_engines()  # they load what compaction has written
    run.batch(running)
    if "S" in run.inputs.schemas:
        running.fragment(0, "S")
        run.batch(running)
        running.forget_engines()
        run.batch(running)
        running.gather(0)
    else:
        with pytest.raises(SparkJoinError, match="is a table: all changes of a row have to meet"):
            running.fragment(0, "R")
    run.batch(running)
    running.stop()
    running = run.start(partitions=1, transport=transport)
    for _ in range(3):
        run.batch(running)
    assert running.compaction_problem is None
    running.stop()
    manifest = Checkpoint(tmp_path / "state").newest()
    assert manifest is not None
    rows_kept = sum(
        segment.rows for state in manifest.groups.values() for link in state.chain for segment in link.segments
    )
    pushed = sum(len(run.inputs.rows(name)) for name in run.inputs.schemas)
    assert rows_kept < pushed * len(manifest.groups) * 2 // 3


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rows that move", "R.id"),
        ("all rows move", "R.id, T.id"),
        ("a left join", "R.id"),
        ("a left join", "R.id, T.id"),
        ("a full join", "R.id, T.id"),
        ("windows of streams", "S.n, U.n"),
        ("windows in a left join", "S.n, U.n"),
    ],
)
def test_a_delta_table_has_the_answer(spark: SparkSession, tmp_path: Path, name: str, key: str) -> None:
    query, _ = joined(name)
    chance = random.Random(5)
    inputs = Inputs(tmp_path / "in", **{source.name: SCHEMAS[source.name] for source in query.streams})
    for start in range(2):
        for file in range(2 * start, 2 * start + 2):
            inputs.add_together(
                {
                    stream_name: (rows if stream_name in STREAMS else changes)(chance, file)
                    for stream_name in inputs.schemas
                }
            )
        how = {"checkpoint": tmp_path / "state", "key_groups": 4, **options(name)}
        writer = join(query, inputs.frames(spark), **how).writeStream
        running = writer.format("delta").option("key", key).trigger(availableNow=True).start(tmp_path / "table")
        assert running.awaitTermination(120)
        stored = pa.table(DeltaTable(tmp_path / "table").to_pyarrow_table()).select(query.output_schema.names)
        watermark = running.batches()["watermark"][-1].as_py() if "window" in name else None
        expected = answer(query, joined(name)[1], inputs, watermark)
        assert Counter(tuple(row.values()) for row in stored.to_pylist()) == expected
        assert expected


@pytest.mark.parametrize(
    ("name", "key", "lacking"),
    [
        ("rows that move", "T.id", "'R.id' (key of table R)"),
        ("all rows move", "R.id", "'T.id' (key of table T)"),
        ("a full join", "R.id", "'T.id' (key of table T)"),
        ("by the key of the table", "T.id", "columns that identify a row of stream S"),
        ("groups", "S.who", "'window_start' (bound of the window)"),
    ],
)
def test_a_key_that_does_not_identify_results_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, key: str, lacking: str
) -> None:
    query = joined(name)[0]
    if name == "groups":
        streams = [eddy.Stream(stream_name, ROWS, window=eddy.Range(SPAN), time="t") for stream_name in "SU"]
        more: dict[str, Any] = {"group_by": ["S.who"], "aggregates": {"n": eddy.agg.count()}}
        query = eddy.Query(streams, ["S.who = U.who"], group_window=eddy.Tumbling(5), **more)
    inputs = Inputs(tmp_path / "in", **{source.name: SCHEMAS.get(source.name, ROWS) for source in query.streams})
    joining = join(query, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=2)
    message = re.escape(f": several results can have one key {key}, and would replace each other; add to it {lacking}")
    with pytest.raises(SparkJoinError, match=f"Delta table .*table{message}"):
        joining.writeStream.format("delta").option("key", key).start(tmp_path / "table")
    topic = {"kafka.bootstrap.servers": "nowhere:1", "topic": "rows", "upsert": "true", "key": key}
    with pytest.raises(SparkJoinError, match=f"topic rows{message}"):
        joining.writeStream.format("kafka").options(**topic).start()
    assert not (tmp_path / "table").exists()
    assert not (tmp_path / "state" / "identity.json").exists()


@pytest.mark.parametrize("what", ["filter", "tombstones"])
def test_another_table_needs_a_new_checkpoint_and_a_new_place(spark: SparkSession, tmp_path: Path, what: str) -> None:
    inputs = Inputs(tmp_path / "in", S=ROWS, T=PUSHED)
    for more in ({}, {"filter": pa.compute.field("ref") < 6} if what == "filter" else {"tombstones": 5}):
        query = eddy.Query([stream(), table("T", **more)], ["S.who = T.id"])
        if not more:
            inputs.add_together({"S": rows(random.Random(1), 0), "T": changes(random.Random(1), 0)})
            run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
            continue
        with pytest.raises(
            StreamingStateError, match=f"T.*{what}.*or start with a new checkpoint, and another place for its results"
        ) as refused:
            run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
        assert "handover" not in str(refused.value)


def written(root: Path, schema: pa.Schema, *rows: tuple[Any, ...]) -> list[Path]:
    pq.write_table(
        pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema), root / "a"
    )
    return [root / "a"]


def test_the_changes_of_a_batch_by_key(tmp_path: Path) -> None:
    schema = pa.schema([("op", pa.string()), ("k", pa.int64()), ("v", pa.string())])
    paths = written(tmp_path, schema, ("-D", 1, "a"), ("+I", 1, "b"), ("-U", 2, "c"), ("+U", 2, "d"), ("-D", 3, "e"))
    upserts, deletes = keyed_changes(paths, schema, ["k"], "here")
    assert upserts.to_pylist() == [{"k": 1, "v": "b"}, {"k": 2, "v": "d"}]
    assert deletes.to_pylist() == [{"k": 3}]
    plain = keyed_changes(written(tmp_path, ROWS, (1, 2, 3)), ROWS, ["who"], "here")
    assert (plain.upserts.num_rows, plain.deletes.num_rows) == (1, 0)
    with pytest.raises(SparkJoinError, match="here: a batch has 2 rows with the key k=1; take the columns that"):
        keyed_changes(written(tmp_path, schema, ("+I", 1, "a"), ("+I", 1, "b")), schema, ["k"], "here")
    paths = written(tmp_path, schema, ("-D", None, "a"), ("+I", None, "b"), ("-D", 1, None))
    upserts, deletes = keyed_changes(paths, schema, ["k"], "here")
    assert (upserts.to_pylist(), deletes.to_pylist()) == ([{"k": None, "v": "b"}], [{"k": 1}])
    assert key_columns(" k, v", schema, "here") == ["k", "v"]
    for wrong in ("op", "x", ""):
        with pytest.raises(SparkJoinError, match=f"here: key '{wrong}' is no result column; the columns are k, v"):
            key_columns(wrong, schema, "here")


def test_rows_leave_their_windows_in_groups_without_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    query, _ = joined(NAMES[-1])
    inputs = Inputs(tmp_path / "in", S=SCHEMAS["S"], T=SCHEMAS["T"])
    first = [{"who": k, "n": k, "t": 10} for k in range(KEYS)]
    people = [{"id": k, "ref": k, "name": "x", "z": 1, "op": "c"} for k in range(KEYS)]
    inputs.add_together({"S": [*first, {"who": 99, "n": 0, "t": 100}], "T": people})
    for t in (1000, 2000):
        inputs.add_together({"S": [{"who": 3, "n": t, "t": t}], "T": [{**people[3], "z": t, "op": "u"}]})
    run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    ops = Counter(row["op"] for row in published(tmp_path / "out").to_pylist())
    assert ops["-D"] >= KEYS - 1
    assert {row[0] for row in total(tmp_path / "out")} <= {3}


def test_rows_whose_window_has_passed_stay(spark: SparkSession, tmp_path: Path) -> None:
    query, oracle = joined("rows that stay")
    inputs = Inputs(tmp_path / "in", S=SCHEMAS["S"], T=SCHEMAS["T"])
    chance, waiting = random.Random(3), Rows()
    for file in range(6):
        last = file == 5
        made = {"S": rows(chance, file, 40), "T": changes(chance, file)}
        inputs.add_together(made)
        how = {"key_groups": 4, "partitions": 1 + file % 2}
        writer = join(query, inputs.frames(spark), checkpoint=tmp_path / "state", **how).writeStream
        running = writer.trigger(availableNow=True, finish=last).format("parquet").start(tmp_path / "out")
        assert running.awaitTermination(120)
        for row in made["T"]:
            if row["op"] != "-U" and not oracle.is_stale("T", row, row["op"] == "d"):
                oracle.arrive("T", row, row["op"] == "d")
        watermark = 1000 if last else running.batches()["watermark"][-1].as_py()
        waiting += made["S"]
        for row in sorted(waiting, key=lambda row: row["t"]):
            if row["t"] <= watermark:
                waiting.remove(row)
                oracle.arrive("S", row, watermark=row["t"])
        oracle.due = watermark
        oracle.expire()
        expected = answer(query, oracle, Inputs(tmp_path / f"none {file}", **inputs.schemas))
        counts = total(tmp_path / "out")
        assert (file, counts - expected, expected - counts) == (file, Counter(), Counter())
    assert len(oracle.final) == len(oracle.answer) > 120
    assert published(tmp_path / "out").column("op").to_pylist().count("-D") > 3


@pytest.mark.parametrize("name", ["by the key of the table", "rows that move"])
def test_stale_changes_are_counted_once(
    spark: SparkSession, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    query, oracle = joined(name)
    moving = query.streams[0] if name == "rows that move" else query.streams[1]
    inputs = Inputs(tmp_path / "in", **{source.name: SCHEMAS[source.name] for source in query.streams})
    chance = random.Random(2)
    for file in range(3):
        inputs.add_together(
            {
                stream_name: rows(chance, file) if stream_name in STREAMS else changes(chance, file)
                for stream_name in inputs.schemas
            }
        )
    running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    # In a file, changes are in the order in which they were written: each file is one micro-batch and one segment.
    given = [row for row in inputs.rows(moving.name) if row["op"] != "-U"]
    stale = sum(oracle.is_stale(moving.name, row, row["op"] == "d") for row in given)
    assert running.late_counts[moving.name] == stale > 5
    assert f"table {moving.name}: batch 0 has its first stale changes" in caplog.text

"""The sink for Delta Lake: a batch is one commit, there once after any crash; tables that do not fit are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.streaming.sinks import DeltaSink
from eddy.spark.types import spark_schema
from tests.cases import text_rows
from tests.spark.streaming.jobs import Inputs, results, run
from tests.spark.streaming.sinks import ready, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
STREAMS = [eddy.Stream(name, SCHEMA, window=eddy.Range(50), time="t") for name in "RS"]
QUERY = eddy.Query(STREAMS, ["R.k = S.k"], select={"k": "R.k", "left": "R.v", "right": "S.v"})


def keys(path: Path) -> list[int]:
    """Return the keys that a reader of the table sees."""
    return sorted(pa.table(DeltaTable(path).to_pyarrow_table())["R.k"].to_pylist())


def commits(path: Path) -> list[tuple[int, int | None]]:
    """Return the commits, oldest first: version and batch."""
    return [(commit["version"], commit.get("eddyBatch")) for commit in reversed(DeltaTable(path).history())]


def test_a_batch_is_one_commit_and_comes_once(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = ready(DeltaSink(table), tmp_path)
    assert keys(table) == []
    zero, two = stage(sink, 0, a=[1, 2], b=[3]), stage(sink, 2, a=[4])
    sink.publish(0, zero)
    sink.publish(1, [])
    sink.publish(2, two)
    for run_again in (sink, ready(DeltaSink(table), tmp_path)):
        for batch, files in ((0, zero), (1, []), (2, two)):
            run_again.publish(batch, files)
    assert keys(table) == [1, 2, 3, 4]
    assert commits(table) == [(0, None), (1, 0), (2, 2)]
    # The log names the batch's files, so that another batch under its number is recognised.
    with pytest.raises(SparkJoinError, match=r"table holds batch 2 with other files .* has 'a.parquet'. Either"):
        sink.publish(2, stage(sink, 2, other=[9]))
    # A log that Delta has shortened names the newest batch only.
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    late = ready(DeltaSink(table), tmp_path)
    late.publish(2, two)
    with pytest.raises(SparkJoinError, match="table holds batch 2 of this job, and now batch 0 comes: the checkpoint"):
        late.publish(0, zero)
    assert keys(table) == [1, 2, 3, 4]
    sink.clean(3)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["_owner.json"]


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_crash_at_the_commit_leaves_all_or_nothing_and_then_one_copy(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    class Crash(BaseException):
        """Ends the process; no code may catch it."""

    def write(*given: Any, **options: Any) -> None:
        if moment == "after the commit":
            write_deltalake(*given, **options)
        raise Crash

    table = tmp_path / "table"
    sink = ready(DeltaSink(table), tmp_path)
    files = stage(sink, 0, a=[1, 2], b=[3])
    with monkeypatch.context() as patch:
        patch.setattr(deltalake, "write_deltalake", write)
        with pytest.raises(Crash):
            sink.publish(0, files)
    assert keys(table) == ([1, 2, 3] if moment == "after the commit" else [])
    ready(DeltaSink(table), tmp_path).publish(0, files)
    assert keys(table) == [1, 2, 3]
    sink.publish(0, files)  # with the table as it was before
    assert keys(table) == [1, 2, 3]


def test_a_published_batch_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    synced: set[str] = set()
    table = tmp_path / "table"
    sink = ready(DeltaSink(table, partition_by=["S.v"]), tmp_path)
    files = stage(sink, 0, a=[1, 2])
    monkeypatch.setattr(os, "fsync", sync)
    for _ in range(2):  # a crash may precede the syncs of the first attempt
        synced.clear()
        sink.publish(0, files)
        data = {str(path) for path in table.rglob("*.parquet")}
        assert len(data) == 2
        entry = str(table / "_delta_log" / "00000000000000000001.json")
        directories = {str(table), str(table / "_delta_log"), *(os.path.dirname(path) for path in data)}
        assert synced == data | directories | {entry}


def test_writers_share_a_table(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"S.v": ["0"], "R.k": [0]}))
    first = ready(DeltaSink(table), tmp_path / "1")
    two = ready(DeltaSink(table), tmp_path / "2", job="two")
    for number, sink in ((1, first), (2, two), (3, first)):
        sink.publish(number, stage(sink, number, a=[number]))
    assert keys(table) == [0, 1, 2, 3]


@pytest.mark.versions
def test_columns_of_every_type_and_partitions(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("R.k", pa.uint64()),
            ("R.at", pa.timestamp("ms", "UTC")),
            ("S.at", pa.timestamp("ns")),
            ("n", pa.decimal128(9, 2)),
            ("b", pa.binary(2)),
            ("l", pa.list_(pa.struct([("x", pa.float16())]))),
            ("d", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    sink = ready(DeltaSink.from_options({"path": f"file://{tmp_path}/table", "partitionBy": "d, n"}), tmp_path, schema)
    rows = [{"R.k": Decimal(2**64 - 1), "n": Decimal("1.50"), "b": b"\0x", "l": [{"x": 0.5}], "d": "a/b"}, {}]
    pq.write_table(pa.Table.from_pylist(rows, spark_schema(schema)), sink.staging(0) / "a.parquet")
    sink.publish(0, ["a.parquet"])
    delta_table = DeltaTable(tmp_path / "table")
    assert delta_table.metadata().partition_columns == ["d", "n"]
    table = pa.table(delta_table.to_pyarrow_table()).select(schema.names)
    assert (
        sorted(table.to_pylist(), key=lambda row: row["R.k"] is None)
        == pa.Table.from_pylist(rows, spark_schema(schema)).to_pylist()
    )
    again = ready(DeltaSink(tmp_path / "table"), tmp_path, schema)  # the table keeps its partitions
    again.publish(0, ["a.parquet"])
    with pytest.raises(SparkJoinError, match="is partitioned by d, n, not by d; leave partitionBy out"):
        ready(DeltaSink(tmp_path / "table", ["d"]), tmp_path, schema)


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    ready(DeltaSink(table), tmp_path)
    other = pa.schema([("R.k", pa.int32()), ("n", pa.decimal128(9, 2))])
    says = (
        r"table is a table with other columns: 'R.k' integer of the results is 'R.k' long in the table; only the"
        r" results have 'n' decimal\(9,2\); only the table has 'S.v' string. Change the query's select"
    )
    with pytest.raises(SparkJoinError, match=says):
        ready(DeltaSink(table), tmp_path, other)
    with pytest.raises(SparkJoinError, match=r"partitionBy names 'k', which is no result column; .* R.k, S.v"):
        ready(DeltaSink(table, ["k"]), tmp_path)
    with pytest.raises(SparkJoinError, match=r"result column 'R.k': Delta has no type for Arrow's duration\[us\]"):
        ready(DeltaSink(table), tmp_path, pa.schema([("R.k", pa.duration("s"))]))
    assert commits(table) == [(0, None)]
    with pytest.raises(SparkJoinError, match=r"holds 'staging' and is no Delta table; give an empty directory"):
        ready(DeltaSink(tmp_path), tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SparkJoinError, match=r"file is a file; give a directory for the table"):
        ready(DeltaSink(tmp_path / "file"), tmp_path)
    with pytest.raises(SparkJoinError, match="format 'delta' needs a path"):
        DeltaSink.from_options({})
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SparkJoinError, match=r"needs the package deltalake: pip install 'eddy-join\[delta\]'"):
        ready(DeltaSink(table), tmp_path)


def test_damage_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = ready(DeltaSink(table), tmp_path)
    files = stage(sink, 0, a=[1], b=[2])
    (sink.staging(0) / "b.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(SparkJoinError, match=r"b.parquet is not a whole Parquet file"):
        sink.publish(0, files)
    (sink.staging(0) / "b.parquet").unlink()
    with pytest.raises(SparkJoinError, match=r"b.parquet: this result file of batch 0 is missing"):
        sink.publish(0, files)
    assert keys(table) == []
    (table / "_delta_log" / "00000000000000000000.json").write_text("{")
    with pytest.raises(SparkJoinError, match=rf"Delta table {table}: opening the table failed: .*; check that"):
        ready(DeltaSink(table), tmp_path)


class Failing(DeltaSink):
    """A sink whose reply is lost once, after a commit."""

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        if batch == 1:
            raise ConnectionError("the driver loses the reply")


def test_a_job_continues_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    def add() -> None:
        number = len(inputs.tables["R"])
        for name in "RS":
            rows = [{"k": k, "t": number * 10 + k, "v": f"{name}{number}{k}"} for k in range(5)]
            inputs.add(name, rows)

    inputs, table = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA), tmp_path / "table"
    for _ in range(3):
        add()
    failing = join(QUERY, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4).writeStream
    running = failing.sink(Failing(table)).trigger(availableNow=True).start()
    with pytest.raises(SparkJoinError, match=r"the sink Failing failed in batch 1: ConnectionError: .* again"):
        running.awaitTermination(120)
    run(QUERY, inputs.frames(spark), tmp_path / "state", table, "delta")
    add()
    run(QUERY, inputs.frames(spark), tmp_path / "state", table, "delta")
    run(QUERY, inputs.frames(spark), tmp_path / "other state", tmp_path / "parquet")
    rows = text_rows(pa.table(DeltaTable(table).to_pyarrow_table()).select(["k", "left", "right"]))
    assert len(rows) > 40
    assert sorted(rows) == sorted(results(tmp_path / "parquet"))
    assert commits(table) == [(0, None), (1, 0), (2, 1), (3, 2), (4, 3)]
    message = r"format .delta. has no option .mode.; its options: key, partitionBy, path"
    with pytest.raises(SparkJoinError, match=message):
        join(QUERY, inputs.frames(spark), checkpoint=tmp_path / "3").writeStream.format("delta").start(table, mode="x")


def test_without_the_sink_nothing_imports_the_packages() -> None:
    import subprocess

    program = "import sys, eddy.spark.streaming.sinks; print([m for m in ('deltalake', 'pyspark') if m in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"

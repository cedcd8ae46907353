"""Event time over micro-batches: late rows, sources that hold the watermark back, and reading late rows."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

import eddy
from eddy.spark import SparkJoinError
from tests.spark.streaming.jobs import Inputs, published, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 30
BATCHES = 4


def decided(
    batches: Sequence[Mapping[str, list[int]]], policy: str, lateness: Mapping[str, int]
) -> dict[str, list[tuple[int, int]]]:
    """Return the late rows of each stream as (batch, event time), by the documented rules."""
    names = list(lateness)
    greatest: dict[str, int] = {}
    marks: dict[str, int] = {}
    late: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for number, batch in enumerate(batches):
        for name in names:
            late[name] += [(number, t) for t in batch[name] if name in marks and t < marks[name]]
            greatest[name] = max([*batch[name], *([greatest[name]] if name in greatest else [])])
        watermarks = {name: greatest[name] - lateness[name] for name in names}
        slowest = min(watermarks.values())
        for name in names:
            wanted = slowest if policy == "slowest" else max(watermarks[name], slowest)
            marks[name] = max(wanted, marks.get(name, wanted))
    return late


@pytest.mark.parametrize(
    ("policy", "kind"),
    [("slowest", pa.int64()), ("per-source", pa.timestamp("us", "UTC")), ("slowest", pa.timestamp("us"))],
    ids=["slowest", "per-source with a zone", "slowest without a zone"],
)
def test_late_rows_are_those_the_rules_say(
    spark: SparkSession, tmp_path: Path, policy: Literal["slowest", "per-source"], kind: pa.DataType
) -> None:
    """In a chain R and T are copied to several key groups, but late rows are counted and kept once."""
    schemas = {
        "R": pa.schema([("a", pa.int64()), ("t", kind), ("n", pa.int64())]),
        "S": pa.schema([("a", pa.int64()), ("b", pa.int64()), ("t", kind), ("n", pa.int64())]),
        "T": pa.schema([("b", pa.int64()), ("t", kind), ("n", pa.int64())]),
    }
    timed = pa.types.is_timestamp(kind)
    zero = dt.datetime(2024, 3, 1, tzinfo=dt.UTC if timed and kind.tz else None)

    def span(ticks: int) -> Any:
        return dt.timedelta(seconds=ticks) if timed else ticks

    lateness = {"R": 3, "S": 10, "T": 6}
    chance = random.Random(7)
    inputs = Inputs(tmp_path / "in", **schemas)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas}
    step = {"R": 24, "S": 20, "T": 20}  # R is ahead of the others
    batches = [
        {name: [step[name] * number + chance.randrange(50) for _ in range(14)] for name in schemas}
        for number in range(BATCHES)
    ]
    for number, batch in enumerate(batches):
        for name, schema in schemas.items():
            drawn = [
                {**{c: chance.randrange(3) for c in schema.names}, "t": t, "n": chance.randrange(10**9)}
                for t in batch[name]
            ]
            rows[name] += [{**row, "batch": number} for row in drawn]
            inputs.add(name, [{**row, "t": zero + span(row["t"]) if timed else row["t"]} for row in drawn])
    late = decided(batches, policy, lateness)
    assert all(len(late_rows) > 2 for late_rows in late.values())
    query = eddy.Query(
        [eddy.Stream(name, schema, window=eddy.Range(span(WINDOW)), time="t") for name, schema in schemas.items()],
        ["R.a = S.a", "S.b = T.b"],
        select=["R.n", "S.n", "T.n"],
        lateness=span(6),
    )
    how: dict[str, Any] = {
        "watermark": policy,
        "lateness": {"R": span(3), "S": span(10)},
        "key_groups": 4,
        "partitions": 2,
    }
    running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)

    too_late = {name: Counter(late[name]) for name in schemas}
    on_time = {
        name: [row for row in stream_rows if (row["batch"], row["t"]) not in too_late[name]]
        for name, stream_rows in rows.items()
    }
    want = Counter(
        (r["n"], s["n"], t["n"])
        for r in on_time["R"]
        for s in on_time["S"]
        for t in on_time["T"]
        if r["a"] == s["a"] and s["b"] == t["b"]
        if max(r["t"], s["t"], t["t"]) - min(r["t"], s["t"], t["t"]) <= WINDOW
    )
    got = published(tmp_path / "out")
    assert sum(want.values()) > 50
    assert Counter(zip(*(column.to_pylist() for column in got.columns), strict=True)) == want
    per_batch = [
        sum(number == batch_number for name in schemas for batch_number, _ in late[name]) for number in range(BATCHES)
    ]
    assert running.batches()["late"].to_pylist() == per_batch
    again = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)
    for driver in (running, again):
        for name in schemas:
            frame = driver.late(name).toArrow()
            numbers = [row["n"] for row in rows[name] if (row["batch"], row["t"]) in too_late[name]]
            assert sorted(frame["n"].to_pylist()) == sorted(numbers), name
            assert frame.schema.field("t").type == kind
    with pytest.raises(SparkJoinError, match="the query has no such stream; its streams are R, S, T"):
        running.late("X")


def two_streams(choices: Mapping[str, Any] | None = None, **more: Any) -> tuple[eddy.Query, pa.Schema]:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    streams = [eddy.Stream(name, schema, eddy.Range(50), "t", late=(choices or {}).get(name)) for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], **more), schema


def test_late_rows_go_where_the_query_says(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A function takes those of R and fails at first; those of S are only counted."""
    taken: list[tuple[str, list[dict[str, int]]]] = []
    lock = threading.Lock()  # cannot be sent to a worker
    failing = True

    def take(name: str, table: pa.Table) -> None:
        with lock:
            taken.append((name, table.to_pylist()))
        if failing:
            raise OSError("no route to host")

    query, schema = two_streams({"R": take}, late="count")
    inputs = Inputs(tmp_path / "in", R=schema, S=schema)
    for r, s in (([100], [100]), ([40, 150], [30, 20, 150]), ([45, 160], [10, 160])):
        inputs.add("R", [{"k": 1, "t": t} for t in r])
        inputs.add("S", [{"k": 1, "t": t} for t in s])
    where = (inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    with pytest.raises(Exception, match=r"stream R: the function .* batch 1: OSError: no route to host; .* committed"):
        run(query, *where)
    assert taken == [("R", [{"k": 1, "t": 40}])]
    assert len(published(tmp_path / "out")) == 4  # one pair, and both with the rows at 150
    records = [record.getMessage() for record in caplog.records if record.name.startswith("eddy.")]
    assert len(records) == 2
    assert records[0].startswith("stream R: batch 1 has its first late rows since the start: 1 rows,")
    assert "60 ticks older than the watermark" in records[0]
    assert records[1].startswith("stream S: batch 1 has its first late rows since the start: 2 rows,")
    assert "80 ticks older than the watermark" in records[1]

    failing = False
    running = run(query, *where)
    assert taken[1:] == [("R", [{"k": 1, "t": 40}]), ("R", [{"k": 1, "t": 45}])]
    assert running.late_counts == {"R": 1, "S": 1}  # since this start
    assert running.batches()["late"].to_pylist() == [2]
    assert sorted(row["t"] for row in running.late("R").toArrow().to_pylist()) == [40, 45]
    assert running.late("S").count() == 0
    assert len(list((tmp_path / "state" / "late").glob("*.parquet"))) == 2


def test_a_silent_source_is_waited_for_unless_it_is_idle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds pass from batch to batch; S is silent from batch 1 on and sends an old row in batch 3."""
    query, schema = two_streams(lateness=5)
    inputs = Inputs(tmp_path / "in", R=schema, S=schema)
    for number in range(4):
        inputs.add("R", [{"k": 1, "t": 100 * number}])
        inputs.add("S", {0: [{"k": 1, "t": 0}], 3: [{"k": 1, "t": 150}]}.get(number, []))

    def watermarks(place: str, **how: Any) -> tuple[list[int], list[int]]:
        now = iter(range(1000, 2000, 10))
        clock = SimpleNamespace(time=lambda: float(next(now)), perf_counter=time.perf_counter)
        monkeypatch.setattr("eddy.spark.streaming.driver.micro_batch.time", clock)
        running = run(query, inputs.frames(spark), tmp_path / place, tmp_path / place / "out", **how)
        figures = running.batches()
        return figures["watermark"].to_pylist(), figures["late"].to_pylist()

    assert watermarks("waits") == ([-5, -5, -5, 145], [0, 0, 0, 0])
    assert watermarks("idle", idle_after=15) == ([-5, -5, 195, 195], [0, 0, 0, 1])
    assert watermarks("longer", idle_after=dt.timedelta(seconds=25)) == ([-5, -5, -5, 145], [0, 0, 0, 0])


def test_rows_with_null_keys_move_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """Such rows match nothing and are not kept, but their event times count."""
    query, schema = two_streams(lateness=5)
    inputs = Inputs(tmp_path / "in", R=schema, S=schema)
    for number in range(2):
        inputs.add("R", [{"k": 1, "t": 100 * number}])
        inputs.add("S", [{"k": None, "t": 100 * number + 10}])
    running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert running.batches().select(["watermark", "rows", "results"]).to_pylist() == [
        {"watermark": -5, "rows": 1, "results": 0},
        {"watermark": 95, "rows": 1, "results": 0},
    ]


def test_a_stream_without_rows_holds_everything(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is late and nothing is evicted, also after batches without rows."""
    query, schema = two_streams()
    inputs = Inputs(tmp_path / "in", R=schema, S=schema)
    for number in range(3):
        inputs.add("R", [{"k": 1, "t": 100 * (2 - number)}] if number != 1 else [])
        inputs.add("S", [])
    running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert running.batches().select(["watermark", "rows", "late", "groups"]).to_pylist() == [
        {"watermark": None, "rows": rows, "late": 0, "groups": rows} for rows in (1, 0, 1)
    ]
    assert running.late("R").count() == 0
    assert published(tmp_path / "out").num_rows == 0

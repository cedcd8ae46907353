"""As-of joins as streams: each row comes once, with the version of the oracle, through restarts and splits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.fuzz.as_of.case import AsOfQuery
from eddy.fuzz.as_of.draw import ROW_BYTES, AsOfArrivalWriter
from eddy.fuzz.as_of.play import batches, known, shown_rows
from eddy.spark import SparkJoinError, join
from eddy.spark.partitioning.latest import latest_versions
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.state import compaction
from tests.spark.streaming.jobs import Inputs, published
from tests.spark.test_as_of import AT, counted, drawn_query, in_order, of_bids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 40


def drawn(seed: int) -> AsOfQuery:
    """Return a query for a streaming join: it waits for the slowest source, and no window counts rows."""
    chance = Random(seed)
    while True:
        asked = drawn_query(chance)
        counts = any(stream.window == "rows" for stream in asked.streams)
        if not counts and asked.watermark == "slowest" and asked.idle_after is None:
            return asked


class AsOfRun:
    """A running join to which a test adds files, one micro-batch after the other, and its oracle."""

    def __init__(self, spark: SparkSession, root: Path, asked: AsOfQuery) -> None:
        self.spark, self.root, self.asked = spark, root, asked
        self.inputs = Inputs(root / "in", **{name: batch.schema for name, batch in batches(asked, ()).items()})
        self.oracle, self.writer, self.chance = asked.oracle(False), AsOfArrivalWriter(asked), Random(3)
        self.expected, self.late, self.unlogged = Counter[Any](), Counter[str](), 0

    def start(self, **how: Any) -> StreamingJoinQuery:
        how = {"rebalance": "off", "keep": 2, **how}
        joined = join(self.asked.query(), self.inputs.frames(self.spark), checkpoint=self.root / "state", **how)
        return joined.writeStream.toParquet(self.root / "out")

    def batch(self, running: StreamingJoinQuery) -> None:
        """Add a file to each input, and compare what has been published with the rows of the oracle."""
        arrivals = [*self.writer.arrivals(self.chance.randbytes(ROWS * ROW_BYTES))]
        self.chance.shuffle(arrivals)
        before = running.batches().num_rows
        files = {name: one_table(batch) for name, batch in batches(self.asked, arrivals).items()}
        self.inputs.add_together(files, running)
        while running.batches().num_rows == before and running.isActive:
            running.processAllAvailable()
        running.processAllAvailable()
        watermark = running.batches()["watermark"][-1].as_py()
        now = self.oracle.clock.now
        self.late.update(arrival.name for arrival in arrivals if now is not None and arrival.row["t"] < now)
        rows = self.oracle.push(known(self.asked, in_order(self.asked, arrivals)), int(watermark))[1]
        self.expected.update(shown_rows(self.asked, self.oracle, rows, False))
        assert counted(published(self.root / "out")) == self.expected


def one_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


@pytest.mark.campaign(0)
@pytest.mark.parametrize(
    ("seed", "transport"), [(1, "packed"), (2, "packed"), (3, "rows"), (4, "packed"), (5, "packed"), (6, "packed")]
)
def test_key_groups_change_under_as_of_joins(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, transport: str
) -> None:
    monkeypatch.setattr(compaction, "MERGED", 3)
    run = AsOfRun(spark, tmp_path, drawn(seed))
    running = run.start(transport=transport)
    for _ in range(2):
        run.batch(running)
    tree = running.explain()
    if "one key group" not in tree and run.asked.query().partition_classes:
        running.split(0)
        run.batch(running)
        running.move(1, 0)
    running.forget_engines()  # they load what compaction has written
    run.batch(running)
    if run.asked.branch is None:
        running.fragment(0, "R")
        run.batch(running)
        running.forget_engines()
        run.batch(running)
        running.gather(0)
    run.batch(running)
    late = running.late_counts
    # Some engines fit into the memory of the host, and the others are in files.
    memory = 3 * max(running.groups().column("state_bytes").to_pylist())
    running.stop()
    running = run.start(partitions=1, transport=transport, memory=memory)
    for _ in range(2):
        run.batch(running)
        running.forget_engines()
    for _ in range(2):
        run.batch(running)
    ran = running.groups()
    few = len(set(ran.column("group").to_pylist())) < 5
    assert {"loaded", *([] if few else ["mapped"])} <= set(ran.column("source").to_pylist())
    assert running.compaction_problem is None
    assert Counter(late) + Counter(running.late_counts) == run.late
    assert sum(running.late(name).count() for name in run.inputs.schemas) == run.late.total()
    running.stop()
    assert run.expected


def bids(files: int) -> tuple[eddy.Query, list[dict[str, pa.Table]]]:
    """Return a query of one stream, and the rows of some files, none of which is late."""
    _, _, rate, rows = of_bids()
    query = eddy.Query([eddy.Stream("bid", AT, time="at")], as_of=[eddy.AsOf(rate, ["bid.k = rate.k"], how="left")])
    spans = [(30 * k, 30 * k + 30) for k in range(files)]
    of = {name: rows[name].filter(pc.less(rows[name]["at"], 90)) for name in ("bid", "rate")}
    return query, [
        {
            name: table.filter(pc.and_(pc.greater_equal(table["at"], low), pc.less(table["at"], high)))
            for name, table in of.items()
        }
        for low, high in spans
    ]


@pytest.mark.parametrize("what", ["rows", "groups"])
def test_the_end_of_the_input_gives_the_rows_of_a_batch_join(spark: SparkSession, tmp_path: Path, what: str) -> None:
    query, files = bids(3)
    if what == "groups":
        sums: dict[str, Any] = {"aggregates": {"n": eddy.agg.count(), "s": eddy.agg.sum("rate.v")}}
        query = eddy.Query(query.core_streams, as_of=query.as_of, group_window=eddy.Tumbling(10), **sums)
    inputs = Inputs(tmp_path / "in", bid=AT, rate=AT)
    for k, rows in enumerate(files):
        inputs.add_together(rows)
        joined = join(query, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4)
        writer = joined.writeStream.trigger(availableNow=True, finish=k == 2).format("parquet")
        assert writer.start(tmp_path / "out").awaitTermination(120)
    whole = counted(join(query, inputs.batch_frames(spark)).toArrow())
    assert counted(published(tmp_path / "out")) == whole
    assert whole


def test_a_changed_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query, _ = bids(1)
    inputs = Inputs(tmp_path / "in", bid=AT, rate=AT)
    with pytest.raises(SparkJoinError, match="rows wait for versions of rate"):
        join(query, inputs.frames(spark), checkpoint=tmp_path / "state", change="handover")


def test_a_row_is_kept_until_the_latest_version_that_it_may_get_is_certain() -> None:
    bid, ask, rate, _ = of_bids()
    later = eddy.AsOf(rate, ["bid.k = rate.k"], "bid.at", direction="forward", tolerance=20)
    assert eddy.Query([bid, ask], ["bid.k = ask.k"], as_of=[later]).spans == [27, 27, None]


def test_compaction_keeps_the_versions_that_a_row_may_get() -> None:
    table = eddy.VersionedTable("T", AT, key="k", time="at", ops="column")
    rows = [
        (1, 5, 0, "c"),
        (1, 5, 1, "d"),
        (1, 3, 2, "u"),
        (2, 1, 3, "c"),
        (1, 8, 4, "c"),
        (1, 8, 5, "-U"),
        (1, 9, 6, "c"),
    ]
    schema = AT.append(pa.field("op", pa.string()))
    given = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def kept(limit: int | None) -> list[int]:
        versions = latest_versions(table, lambda batch: batch.column("at").to_numpy(), limit, given)
        values: list[int] = versions.column("v").to_pylist()
        return values

    assert kept(None) == [1, 2, 3, 4, 6]
    assert kept(4) == [1, 2, 3, 4, 6]
    assert kept(5) == [1, 3, 4, 6]
    assert kept(8) == [3, 4, 6]
    assert kept(100) == [3, 6]

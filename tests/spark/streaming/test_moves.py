"""Key groups change partitions while the join runs, and the results stay the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.streaming.driver import micro_batch as batches
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Automatic, Load
from eddy.spark.streaming.driver.sheet import join_sheet
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, await_rows, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
GROUPS = 6
ALL_LIVE = {group: {"live"} for group in range(GROUPS)}


def query() -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(60), time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], lateness=60)


class MovesRun:
    """A running join to whose streams a test adds files."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
        self.chance = random.Random(21)

    def start(self, **how: Any) -> StreamingJoinQuery:
        frames = self.inputs.frames(self.spark)
        joined = join(query(), frames, checkpoint=self.root / "state", key_groups=GROUPS, **how)
        return joined.writeStream.toParquet(self.root / "out")

    def batch(self, running: StreamingJoinQuery) -> dict[int, int]:
        """Add a file to each stream and wait for it; return the partition in which each key group ran."""
        number = len(self.inputs.tables["R"])
        draw = self.chance.randrange
        rows = [{"k": draw(40), "t": 40 * number + draw(50), "n": draw(10**9)} for _ in range(80)]
        self.before = before = running.batches().num_rows
        self.inputs.add_together({"R": rows[:40], "S": rows[40:]})
        await_rows(running, len(rows), before)
        newest = figures_since(running, before)
        return dict(zip(newest["group"].to_pylist(), newest["partition"].to_pylist(), strict=True))

    def check(self) -> None:
        expected = text_rows(join(query(), self.inputs.batch_frames(self.spark)).toArrow())
        assert len(expected) > 100
        assert_same(results(self.root / "out"), expected, "with moves")


def figures_since(running: StreamingJoinQuery, before: int) -> pa.Table:
    """Return the figures of the key groups after the first `before` micro-batches.

    Spark may begin a micro-batch when only some of several new files are there, so these may come with more than one.
    """
    figures = running.groups()
    return figures.filter(pc.is_in(figures["batch"], running.batches()["batch"][before:].combine_chunks()))


def sources(running: StreamingJoinQuery, before: int) -> dict[int, set[str]]:
    """Return the sources of each key group's engine after the first `before` micro-batches."""
    newest = figures_since(running, before)
    by_group: dict[int, set[str]] = {}
    for group, source in zip(newest["group"].to_pylist(), newest["source"].to_pylist(), strict=True):
        by_group.setdefault(group, set()).add(source)
    return by_group


def test_groups_asked_for_move_and_stay_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    run = MovesRun(spark, tmp_path)
    running = run.start(partitions=2, rebalance="off")
    even = dict(enumerate((0, 0, 0, 1, 1, 1)))
    assert run.batch(running) == even
    running.move(4, 0)
    running.move([0, 4], to=1)
    moved = {**even, 0: 1}
    assert run.batch(running) == moved
    assert sources(running, run.before) == ALL_LIVE, "a group that moves takes its engine along"
    assert run.batch(running) == moved
    assert sources(running, run.before) == ALL_LIVE
    assert running.partition_map == PartitionMap(tuple(moved.values()), 2)
    (place,) = running.operators()[0]
    assert place.startswith(f"{GROUPS} nodes by")
    assert running.operators()[1] == running.operators()[0]
    assert "update(R)" in running.operators()[0][place]
    assert sum(running.batches()["moved"].to_pylist()) == 1
    said = running.messages().to_pylist()
    assert [(sent["step"], sent["kind"], sent["from"], sent["to"]) for sent in said] == [
        (2, "PartitionsToMove", "request", "driver"),
        (5, "SendPartitions", "driver", "partition 0"),
        (6, "ReceivePartitions", "partition 0", "partition 1"),
        (7, "Received", "partition 1", "driver"),
        (8, "ReactivatePartitions", "driver", "all partitions"),
    ]
    assert {sent["group"] for sent in said} == {0}
    assert said[2]["bytes"] > 1000
    assert said[2]["seconds"] > 0
    running.move(0, 0, how="jit")
    running.move([1, 2], 1)
    run.batch(running)
    running.move([1, 2], 0)
    running.move(0, 1)
    assert run.batch(running) == moved
    assert sources(running, run.before) == ALL_LIVE, "there and back again"
    assert [sent["from"] for sent in running.messages().to_pylist() if sent["step"] == 6] == [
        *("partition 0", "log", "partition 0", "partition 0"),
        *("partition 0", "partition 1", "partition 1"),
    ]
    gains = running.history().to_pylist()
    assert [(gain["group"], gain["from"], gain["to"], gain["how"], gain["by"]) for gain in gains[:2]] == [
        (0, 0, 1, "state", "request"),
        (0, 1, 0, "jit", "request"),
    ]
    assert all(gain["fullness_before"] >= 1 and gain["fullness_predicted"] >= 1 for gain in gains)
    (shown,) = [table for table in join_sheet("job", running._batches).tables if table.title.startswith("Moves")]
    columns = [shown.columns.index(name) for name in ("batch", "group", "from", "to", "how")]
    assert [tuple(row[k] for k in columns) for row in reversed(shown.rows)] == [
        tuple(gain[name] for name in ("batch", "group", "from", "to", "how")) for gain in gains
    ]
    refused = {
        "key group 6 does not exist": (GROUPS, 0),
        "cannot be in partition 2": (0, 2),
        "how='parallel' .* use 'state', .* or 'jit'": (0, 1, "parallel"),
        "how='other'; pass 'state' or 'jit'": (0, 1, "other"),
    }
    for message, asked in refused.items():
        with pytest.raises(SparkJoinError, match=message):
            running.move(*asked)
    running.stop()
    running = run.start(partitions=2, rebalance="off")
    assert run.batch(running) == moved
    assert sum(running.batches()["moved"].to_pylist()) == running.messages().num_rows == 0
    running.stop()
    running = run.start(partitions=3, rebalance="off")
    placed = run.batch(running)
    # Now each partition has two groups, by the fewest moves.
    assert sorted(placed.values()) == [0, 0, 1, 1, 2, 2]
    assert sum(placed[group] != partition for group, partition in moved.items()) == 2
    running.stop()
    run.check()


class Crowd:
    """A user's rebalancer: it first moves everything to partition 0, and then `then` decides."""

    def __init__(self, then: Automatic | None = None) -> None:
        self.then = then
        self.loads: list[Load] = []

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        self.loads.append(load)
        if batch == 0:
            return partition_map.with_moves(dict.fromkeys(range(partition_map.groups), 0))
        return partition_map if self.then is None else self.then.plan(partition_map, load, batch)


@pytest.fixture
def equal_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every key group with rows the same cost, independent of this machine's speed."""
    monkeypatch.setattr(batches, "cost_of", lambda figures: 1.0)


@pytest.mark.usefixtures("equal_costs")
def test_a_crowded_partition_is_relieved(spark: SparkSession, tmp_path: Path) -> None:
    """The automatic rebalancer moves groups after some batches."""
    run = MovesRun(spark, tmp_path)
    crowd = Crowd(Automatic(patience=2, max_moves=2))
    running = run.start(partitions=2, rebalance=crowd)
    assert set(run.batch(running).values()) == {0}
    placed = dict.fromkeys(range(GROUPS), 0)
    while set(placed.values()) == {0}:
        assert running.batches().num_rows < 5
        placed = run.batch(running)
    assert running.batches().num_rows > 2, "two crowded micro-batches come before a move"
    assert sum(partition == 1 for partition in placed.values()) == 2
    assert [load.batches for load in crowd.loads] == list(range(len(crowd.loads)))
    assert crowd.loads[1].per_group == (1.0,) * GROUPS
    moved = running.batches()["moved"].to_pylist()
    assert moved[0] == GROUPS // 2
    assert sum(moved[1:]) == 2
    running.stop()
    run.check()


@pytest.mark.usefixtures("equal_costs")
def test_rebalance_deals_by_load(spark: SparkSession, tmp_path: Path) -> None:
    run = MovesRun(spark, tmp_path)
    crowd = Crowd()
    running = run.start(partitions=2, rebalance=crowd)
    assert set(run.batch(running).values()) == {0}
    running.rebalance()
    placed = run.batch(running)
    assert set(placed.values()) == {0, 1}
    load = crowd.loads[1]
    assert load.fullness(PartitionMap(tuple(placed.values()), 2)) < load.fullness(PartitionMap((0,) * GROUPS, 2)) == 2
    running.stop()
    run.check()


def test_a_rebalancer_that_plans_for_another_job_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    class Other:
        def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
            return PartitionMap.even(partition_map.groups, 3)

    run = MovesRun(spark, tmp_path)
    run.inputs.add("R", [{"k": 1, "t": 1, "n": 1}])
    running = run.start(partitions=2, rebalance=Other())
    with pytest.raises(Exception, match=r"rebalancer Other planned 3 partitions for 6 key groups, but .* has 2 for 6"):
        running.processAllAvailable()
    running.stop()

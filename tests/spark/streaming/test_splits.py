"""Key groups are split while the join runs, and the results stay the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.partitioning.job import make_job
from eddy.spark.partitioning.pieces import Splitter
from eddy.spark.streaming.driver import micro_batch as batches
from eddy.spark.streaming.driver.rebalancing import Automatic
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, await_rows, results
from tests.spark.streaming.test_moves import sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
R, S, T = (eddy.Stream(name, SCHEMA, window=eddy.Range(120), time="t") for name in "RST")
QUERIES = {
    "one key": eddy.Query([R, S, T], ["R.k = S.k", "S.k = T.k"], lateness=60),
    "chain": eddy.Query([R, S, T], ["R.k = S.k", "S.j = T.j"], lateness=60),
    "branch": eddy.Query(
        [R, S], ["R.k = S.k"], branches=[eddy.Branch([T], ["R.k = T.k", "R.j = T.j"], "left")], lateness=60
    ),
}


class SplitsRun:
    """A running join of three streams to which a test adds files."""

    def __init__(self, spark: SparkSession, root: Path, kind: str = "one key") -> None:
        self.spark = spark
        self.root = root
        self.query = QUERIES[kind]
        self.inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA, T=SCHEMA)
        self.chance = random.Random(33)
        self.keys: Sequence[int] = range(40)
        self.before = 0
        """Micro-batches before the newest rows."""

    def start(self, **how: Any) -> StreamingJoinQuery:
        frames = self.inputs.frames(self.spark)
        joined = join(self.query, frames, checkpoint=self.root / "state", **{"rebalance": "off", **how})
        return joined.writeStream.toParquet(self.root / "out")

    def batch(self, running: StreamingJoinQuery, rows: int = 40) -> None:
        """Add a file with some of the keys to each stream, and wait for it."""
        number, draw = len(self.inputs.tables["R"]), self.chance.randrange
        self.before = running.batches().num_rows
        made: dict[str, list[dict[str, int]]] = {}
        for name in "RST":
            keys = self.chance.choices(self.keys, k=rows)
            made[name] = [{"k": k, "j": draw(12), "t": 40 * number + draw(50), "n": draw(10**9)} for k in keys]
        self.inputs.add_together(made)
        await_rows(running, 3 * rows, self.before)

    def end_of_time(self, running: StreamingJoinQuery) -> None:
        """Add a row without partners to each stream, which passes the windows of all others."""
        self.before = running.batches().num_rows
        for name in "RST":
            self.inputs.add(name, [{"k": 1000 + ord(name), "j": 0, "t": 10**6, "n": 0}])
        await_rows(running, 3, self.before)

    def check(self, least: int = 100) -> None:
        expected = text_rows(join(self.query, self.inputs.batch_frames(self.spark)).toArrow())
        assert len(expected) > least
        assert_same(results(self.root / "out"), expected, "with splits")


@pytest.mark.campaign(1)
@pytest.mark.parametrize(
    ("kind", "transport"), [("one key", "packed"), ("one key", "rows"), ("chain", "packed"), ("branch", "packed")]
)
def test_splits_on_request(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, transport: str
) -> None:
    monkeypatch.setattr(compaction, "MERGED", 3)
    run = SplitsRun(spark, tmp_path, kind)
    running = run.start(partitions=2, key_groups=2, transport=transport, keep=2)
    for _ in range(2):
        run.batch(running)
    running.split(0)
    run.batch(running)
    assert running.partition_map.groups == 3
    assert {group for group, origins in sources(running, run.before).items() if "loaded" in origins} == {0, 2}
    assert sources(running, run.before)[1] == {"live"}
    run.batch(running)
    running.split(0)
    running.split(2)
    run.batch(running)
    assert sources(running, run.before)[1] == {"live"}
    running.forget_engines()  # they load what compaction has written
    run.batch(running)
    running.stop()
    running = run.start(partitions=2, transport=transport, keep=2)
    assert running.partition_map.groups == 5
    for _ in range(3):
        run.batch(running)
    with pytest.raises(SparkJoinError, match=r"key group 5 does not exist; .* from 0 to 4"):
        running.split(5)
    assert running.compaction_problem is None
    text = running.explain()
    manifest = Checkpoint(tmp_path / "state").newest()
    run.end_of_time(running)
    running.stop()
    assert "key group 0 was split along [" in text
    assert text.count("was split along") == 3
    run.check()
    assert manifest is not None
    assert [split.group for split in manifest.splits] == [0, 0, 2]
    newest = [segment for state in manifest.groups.values() for segment in state.chain[-1].segments]
    # Rows of streams with copies are written for a whole cell.
    followed = {segment.splits for segment in newest}
    assert followed == {3} if kind != "chain" else 0 in followed


@pytest.fixture
def costs_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cost of a key group follow its rows, independent of this machine's speed."""
    monkeypatch.setattr(batches, "cost_of", lambda figures: 0.01 * figures["rows"])


@pytest.mark.usefixtures("costs_by_rows")
def test_a_hot_group_is_split_by_itself(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A group with most rows is split; one in which a key has most rows gets fragments."""
    run = SplitsRun(spark, tmp_path)
    splitter = Splitter(make_job(run.query, partitions=2), 0)
    every = pa.record_batch([pa.array(range(40), pa.int64())] * 4, schema=SCHEMA)
    (of_0,) = (piece.tuples["k"].to_pylist() for piece in [*splitter.add(every), *splitter.finish()] if piece.cell == 0)
    running = run.start(partitions=2, key_groups=2, rebalance=Automatic(patience=1))
    run.keys = [*of_0 * 4, *range(40)]
    while running.partition_map.groups == 2:
        assert running.batches().num_rows < 6, running.groups().to_pylist()
        run.batch(running)
    (split,) = running.history().to_pylist()
    assert (split["kind"], split["by"], split["group"], split["child"], split["to"]) == ("split", "rule", 0, 2, 1)
    assert split["fullness_predicted"] < split["fullness_before"]
    caplog.set_level("INFO", logger="eddy")
    run.keys = [*[of_0[0]] * 400, *range(40)]
    while not running.batches()["fragments"][-1].as_py():
        assert running.batches().num_rows < 18, running.groups().to_pylist()
        run.batch(running, rows=8)
    said = f"one key (R.k = {of_0[0]}) has "
    assert [record.levelname for record in caplog.records if said in record.getMessage()] == ["INFO"]
    figures = running.groups().to_pylist()
    assert max(row["key_share"] or 0 for row in figures) > 0.85
    assert sum(event["kind"] == "split" for event in running.history().to_pylist()) == 1, "a hot key is no reason"
    run.batch(running, rows=8)
    made = [
        (event["kind"], event["by"], event["refused"])
        for event in running.history().to_pylist()
        if event["kind"] != "move"
    ]
    assert made == [(kind, "rule", None) for kind in ("split", "fragment")]
    running.stop()
    run.check()

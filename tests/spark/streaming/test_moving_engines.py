"""The arrival of a key group in another worker: with its plan and its stored states, or with its plan alone."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import make_job
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.distribution import distribute
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import GroupState, ManifestLink
from eddy.spark.streaming.worker.engines import Engines, JoinStart
from eddy.spark.streaming.worker.partition_join import PartitionJoin
from eddy.spark.streaming.worker.tasks import GroupTask, PartitionTask
from tests.cases import assert_same, text_rows
from tests.spark.streaming.manifests import make_manifest
from tests.spark.streaming.test_join_stage import SCHEMA, logged

PLAN = "(S T) R"
TREE = SplitTree(1, 1)


def test_a_group_arrives_with_its_plan_and_under_state_with_its_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(300), time="t") for name in "RST"]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"])
    job = make_job(query, options=EngineOptions(plan="((R S) T)", strategy="moving-state"), partitions=1)
    chance = random.Random(5)

    def rows(batch: int) -> dict[str, pa.Table]:
        times = range(200 * batch, 200 * batch + 200, 4)
        return {
            name: pa.Table.from_pylist([{"k": chance.randrange(9), "t": t, "n": t} for t in times], schema=SCHEMA)
            for name in "RST"
        }

    tables = [rows(0), rows(1)]
    checkpoint = Checkpoint(tmp_path / "state")
    locations = Locations(tmp_path / "state", "test", tmp_path / "scratch")
    (tmp_path / "staging").mkdir()
    segments = [tuple(logged(job, locations, stream_tables, batch)) for batch, stream_tables in enumerate(tables)]
    start = JoinStart("one", pickle.dumps((job, locations, (), None)), b"a secret of a test", True)

    def task(batch: int, group: GroupTask) -> PartitionTask:
        marks = (None, 199, 399)[batch : batch + 2]
        return PartitionTask(batch, 0, batch - 1 if batch else None, None, *marks, tmp_path / "staging", (group,), TREE)

    def run(engines: Engines, batch: int, group: GroupTask) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
        report = PartitionJoin(engines, task(batch, group), {}).run()
        joined = pa.concat_tables([pq.read_table(tmp_path / "staging" / output.file) for output in report.results])
        return report.groups[0], text_rows(joined)

    sender = Engines(start)
    run(sender, 0, GroupTask(0, None, "zero", segments[0], None))
    runtime = sender._kept[0].engine
    assert isinstance(runtime, eddy.Runtime)
    runtime.transition(PLAN)
    stored = sum(stair.rows for stair in runtime.stairs)
    assert stored > 100
    state = GroupState(0, "zero", (ManifestLink(0, None, segments[0]),), PLAN)
    checkpoint.commit(make_manifest(0, partition_map=(0,), groups={0: state}))

    wanted = GroupTask(0, "zero", "one", segments[1], PLAN)
    holdings = [sender.holding(), replace(Engines(start).holding(), partitions=(0,))]
    for by_log in (True, False):
        first, second = distribute([task(1, replace(wanted, by_log=by_log))], 1, holdings, {0: state})
        assert first.hand_over == (() if by_log else (0,))
        assert second.tasks[0].groups[0].handed is not by_log

    # "jit": the log alone.
    figures, by_log_results = run(Engines(start), 1, wanted)
    assert (figures["source"], figures["plan"]) == ("loaded", PLAN)
    assert figures["received_bytes"] == sum(segment.length for segment in segments[0])
    # "state": the engine in its file.
    sender.hand_over([0])
    receiver = Engines(start)
    with receiver.loan(0, "zero", "zero", True) as engine:
        assert isinstance(engine.runtime, eddy.Runtime)
        assert engine.runtime.plan == PLAN
        assert sum(stair.rows for stair in engine.runtime.stairs) == stored
    receiver.hand_over([0])
    receiver = Engines(start)
    figures, results = run(receiver, 1, replace(wanted, handed=True))
    assert (figures["source"], figures["plan"]) == ("live", PLAN)
    assert figures["received_bytes"] > 10_000
    assert_same(results, by_log_results, "the two ways")
    whole = eddy.Runtime(query)
    whole.push(tables[0])
    assert_same(results, text_rows(whole.push(tables[1])), "with moves")
    assert len(results) > 1000
    receiver.drop()

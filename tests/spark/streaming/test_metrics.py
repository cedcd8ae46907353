"""Metrics of a running join: its own tables, Spark's progress, and listeners."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.spark import SparkJoinError, explain, join
from eddy.spark.streaming.driver.explanation import ranges
from eddy.spark.streaming.driver.metrics import BATCHES, BATCHES_KEPT, BLOCK, GROUPS, STEPS, Metrics
from eddy.spark.streaming.worker.log_stage import LogReport
from eddy.spark.streaming.worker.tasks import LIVE
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.streaming.manifests import make_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])


def query() -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(20), time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], select=["R.n", "S.n"])


def filled(root: Path) -> Inputs:
    """Return inputs of three batches: R has 40, 40 and 0 rows, S 40, 20 and 1, the last of which is late."""
    inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
    for number, (r, s) in enumerate(((40, 40), (40, 20), (0, 1))):
        begin = 50 * number if number < 2 else 0
        inputs.add("R", [{"k": n % 10, "t": begin + n, "n": n} for n in range(r)])
        inputs.add("S", [{"k": n % 10, "t": begin + n, "n": n} for n in range(s)])
    return inputs


def test_rows_of_key_groups_are_those_of_the_newest_batches(tmp_path: Path) -> None:
    metrics, count = Metrics(tmp_path), BATCHES_KEPT + 3 * BLOCK // 2
    zeros = {field.name: 0 for field in GROUPS} | {"source": LIVE, "plan": "R S", "reason": None, "join_seconds": 1.0}
    layout: dict[str, Any] = {"placement": "grid", "shipped_bytes": 0, "late": 0, "moved": 0, "split": 0, "hot_keys": 0}
    for batch in range(count):
        logged = LogReport((1, 0), 8, (batch, None), ())
        rows = [zeros | {"batch": batch, "group": group} for group in range(batch % 3)]
        metrics.add(make_manifest(batch), logged, None, rows, layout, dict.fromkeys(STEPS, 0.0))
    kept = range(count - BATCHES_KEPT - BLOCK // 2, count)
    assert metrics.groups()["batch"].to_pylist() == [batch for batch in kept for _ in range(batch % 3)]
    assert metrics.groups()["group"].to_pylist() == [group for batch in kept for group in range(batch % 3)]
    assert metrics.batches()["batch"].to_pylist() == list(range(count - BATCHES_KEPT, count))


def test_tables_and_progress_tell_what_happened(spark: SparkSession, tmp_path: Path) -> None:
    inputs = filled(tmp_path)
    running = run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", partitions=2)
    batches, groups = running.batches(), running.groups()
    assert batches.schema == BATCHES
    assert groups.schema == GROUPS
    assert batches["batch"].to_pylist() == [0, 1, 2]
    assert batches["rows"].to_pylist() == [80, 60, 1]
    assert batches["late"].to_pylist() == [0, 0, 1]
    assert batches["watermark"].to_pylist() == [39, 69, 69]
    written = [pq.ParquetFile(p).metadata.num_rows for p in sorted((tmp_path / "out").glob("batch=0/*.parquet"))]
    assert batches["results"].to_pylist()[0] == sum(written) > 0
    assert sum(batches["results"].to_pylist()) == published(tmp_path / "out").num_rows
    log = sum(path.stat().st_size for path in (tmp_path / "state" / "log").iterdir())
    assert 0 < sum(batches["log_bytes"].to_pylist()) <= log
    for name in ("log", "join", "commit", "publish"):
        assert all(seconds > 0 for seconds in batches[f"{name}_seconds"].to_pylist())
    for number, batch in enumerate(batches.to_pylist()):
        group_rows = groups.filter(pc.equal(groups["batch"], number)).to_pylist()
        assert batch["groups"] == len(group_rows) == len({row["group"] for row in group_rows})
        for figure in ("late", "results", "state_bytes", "transitions"):
            assert batch[figure] == sum(row[figure] for row in group_rows), figure
        assert batch["rows"] == sum(row["rows"] + row["late"] for row in group_rows)
        assert batch["loaded"] == sum(row["source"] == "loaded" for row in group_rows)
        assert {row["partition"] for row in group_rows} <= {0, 1}
        assert {row["plan"] for row in group_rows} == {"R S"}
    assert {row["source"] for row in groups.to_pylist() if row["batch"] == 0} == {"new"}
    assert {row["source"] for row in groups.to_pylist() if row["batch"] == 1} <= {"loaded", "live"}
    last = running.lastProgress
    assert last is not None
    assert last["batchId"] == 2
    assert last["eddy"] == batches.to_pylist()[2]
    assert [
        (progress["batchId"], progress["eddy"]["rows"]) for progress in running.recentProgress if progress["eddy"]
    ] == [
        (0, 80),
        (1, 60),
        (2, 1),
    ]
    assert [progress["numInputRows"] for progress in running.recentProgress if progress["eddy"]] == [80, 60, 1]
    assert last["eventTime"] == {"max": "0", "watermark": "69"}
    (state,) = last["stateOperators"]
    assert (state["numRowsUpdated"], state["numRowsDroppedByWatermark"]) == (0, 1)
    assert state["numRowsTotal"] == batches["state_rows"].to_pylist()[2] > 0
    kept = [pq.read_table(path) for path in sorted((tmp_path / "state" / "metrics").iterdir())]
    assert pa.concat_tables(kept) == groups


def test_a_text_says_how_a_join_will_run_and_how_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    frames, state = filled(tmp_path).frames(spark), tmp_path / "state"

    def text() -> str:
        return explain(query(), frames, checkpoint=state, key_groups=4, lateness=3, plan="(S R)")

    before = text()
    assert before.startswith("key groups: 4 partitions by key: R.k = S.k\ntasks of a micro-batch: 2\n"), before
    assert "watermark: slowest (rows behind the slowest stream are late); lateness in ticks: R 3, S 3\n" in before
    assert f"state: new, in {state}\n" in before
    assert "S R" in before.split("a new engine of a key group:")[1]
    assert not state.exists(), "the text needs no checkpoint"
    running = run(query(), frames, state, tmp_path / "out", lateness=3, plan="(S R)")
    rows = running.batches()["state_rows"].to_pylist()[-1]
    now = running.explain()
    assert f"state: batch 2 is committed; watermark 66; the log keeps {rows} rows\n" in now, now
    assert "\n  plan S R: key groups 0-3\n" in now
    assert "\n  task 0: key groups 0-1\n" in now
    assert f"state: after batch 2, in {state}\n" in text()


def test_runs_of_numbers_are_shortened() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges([]) == ""


def test_a_hot_key_group_stands_out(spark: SparkSession, tmp_path: Path) -> None:
    """One key has nearly all rows, so its group takes nearly all the time.

    The batch before it starts the processes and the engines, which takes longer than a group without that key.
    """
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    few = [{"k": k, "t": 0, "n": k} for k in range(100, 164)]
    hot = [{"k": 1000, "t": n // 4, "n": n} for n in range(6000)]
    for rows in (few, [*hot, *few]):
        for name in "RS":
            inputs.add(name, rows)
    running = run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", "noop", key_groups=16)
    batch = running.batches().to_pylist()[-1]
    groups = {row["group"]: row for row in running.groups().to_pylist() if row["batch"] == batch["batch"]}
    assert len(groups) == 16
    hottest = max(groups, key=lambda group: groups[group]["rows"])
    assert batch["slowest_group"] == hottest
    assert batch["slowest_share"] > 2
    assert batch["results"] > 100_000


def test_listeners_of_spark_see_the_figures_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Under "eddy" in `observedMetrics`; of files that the workers read, only the progress of the handle has them."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    seen: list[tuple[str, int, dict[str, Any]]] = []
    ended = threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            if "eddy" in progress.observedMetrics:
                seen.append((str(progress.id), progress.batchId, progress.observedMetrics["eddy"].asDict()))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            ended.set()

    inputs = filled(tmp_path)
    for transport in ("rows", "packed"):
        listener = Listener()
        spark.streams.addListener(listener)
        try:
            ended.clear()
            place = tmp_path / transport
            running = run(query(), inputs.frames(spark), place, place / "out", transport=transport)
            assert ended.wait(30)
        finally:
            spark.streams.removeListener(listener)
        observed = {
            progress["batchId"]: progress["observedMetrics"]["eddy"]
            for progress in running.recentProgress
            if progress["eddy"]
        }
        if transport == "rows":
            assert observed == {batch: metrics for id, batch, metrics in seen if id == running.id}
        log_bytes = running.batches()["log_bytes"].to_pylist()
        assert observed == {
            0: {"rows": 80, "bytes": log_bytes[0], "rows of R": 40, "last of R": 39, "rows of S": 40, "last of S": 39},
            1: {"rows": 60, "bytes": log_bytes[1], "rows of R": 40, "last of R": 89, "rows of S": 20, "last of S": 69},
            2: {"rows": 1, "bytes": log_bytes[2], "rows of R": 0, "last of R": None, "rows of S": 1, "last of S": 0},
        }, transport
        progress = running.lastProgress
        assert progress is not None
        assert progress["observedMetrics"]["eddy"]["rows of S"] == 1


def test_prometheus_reads_the_figures_of_a_running_join(spark: SparkSession, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    frames = filled(tmp_path).frames(spark)
    joined = join(query(), frames, checkpoint=tmp_path / "state", key_groups=4)
    assert "not started" in repr(joined)
    assert "4 key groups" in repr(joined)
    assert "<svg" in joined._repr_html_()
    running = joined.writeStream.format("noop").queryName("orders").start()
    port = running.serve_metrics(0)
    running.processAllAvailable()
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    values = {sample.name: sample.value for sample in samples}
    assert {sample.labels["query"] for sample in samples} == {"orders"}
    batches = running.batches()
    for name in ("rows", "late", "results", "log_bytes", "transitions"):
        assert values[f"eddy_{name}_total"] == sum(batches[name].to_pylist()), name
    assert values["eddy_batches_total"] == 3
    assert (values["eddy_batch"], values["eddy_watermark"]) == (2, 69)
    assert abs(time.time() - values["eddy_published_timestamp_seconds"]) < 600
    steps = {sample.labels["step"] for sample in samples if sample.name == "eddy_seconds_total"}
    assert steps == {"log", "join", "commit", "publish"}
    with pytest.raises(SparkJoinError, match=f"serve_metrics: cannot listen on 127.0.0.1 port {port}: .*; pass"):
        running.serve_metrics(port)
    server = running.serve(0)
    with urlopen(f"{server.url}figures") as answer:
        sheet = json.load(answer)
    assert (sheet["title"], sheet["name"]) == ("streaming join", "orders")
    shown = {figure["name"]: figure["value"] for figure in sheet["figures"]}
    assert (shown["rows"], shown["batch"], shown["watermark"]) == (sum(batches["rows"].to_pylist()), 2, 69)
    tables = {table["title"]: table["rows"] for table in sheet["tables"]}
    groups = running.groups().to_pylist()
    assert {row[0] for row in tables["Key groups"]} == {group["group"] for group in groups}
    assert [row[0] for row in tables["Micro-batches, newest first"]] == [2, 1, 0]
    assert {plan["plan"] for plan in sheet["plans"]} == {group["plan"] for group in groups}
    with urlopen(f"{server.url}events") as answer:
        drawn = json.loads(answer.readline().removeprefix(b"data: "))
    assert all(svg.startswith("<svg") for plan in drawn["plans"] for svg in plan["svgs"])
    assert "orders, running, after micro-batch 2" in repr(running)
    assert "key groups" in running._repr_html_()
    running.stop()
    for url in (f"http://127.0.0.1:{port}/metrics", server.url):
        with pytest.raises(URLError):
            urlopen(url)
    with pytest.raises(SparkJoinError, match="the join orders has ended"):
        running.serve_metrics(0)

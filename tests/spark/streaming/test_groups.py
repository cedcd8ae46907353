"""Aggregates of streaming joins: each window once and exactly, whatever the batches, failures and restarts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, StreamingStateError, join, sql
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.state.batch_names import batch_of
from eddy.spark.streaming.state.copies import COPY
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.worker.operator_files import GROUPS
from tests.cases import text_rows
from tests.spark.streaming.jobs import Inputs, newest_manifest, results, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = pa.schema([("k", pa.int64()), ("name", pa.string()), ("x", pa.float64()), ("t", pa.int64())])
STREAMS = [eddy.Stream(name, ROWS, window=eddy.Range(8), time="t") for name in "RS"]
FUNCTIONS = {
    "n": agg.count(),
    "total": agg.sum("S.x"),
    "most": agg.max("R.name"),
    "kinds": agg.count_distinct("S.name"),
}


def grouped(window: Any, by: Sequence[str] = ("R.name",), **more: Any) -> eddy.Query:
    """Return a query whose groups have results from all key groups."""
    return eddy.Query(STREAMS, ["R.k = S.k"], group_by=list(by), aggregates=FUNCTIONS, group_window=window, **more)


def add(inputs: Inputs, chance: random.Random, batches: int, begin: int) -> int:
    """Add files with rows of 10 ticks each; return the next time."""
    for _ in range(batches):
        for name in "RS":
            rows = [
                {
                    "k": chance.randint(0, 9),
                    "name": chance.choice(["a", "b", None]),
                    "x": chance.choice([0.1, -2.5, 1e17, None]),
                    "t": begin + t,
                }
                for t in sorted(chance.randrange(10) for _ in range(25))
            ]
            inputs.add(name, rows)
        begin += 10
    return begin


def group_files(checkpoint: Path) -> list[Path]:
    """Return the files of groups in the log, with their copies."""
    return sorted((checkpoint / "log").glob("*-groups-*"))


def named_files(checkpoint: Path) -> set[str]:
    """Return the files of the log that the manifests of a checkpoint name."""
    manifests = (Manifest.from_bytes(path.read_bytes()) for path in (checkpoint / "manifests").glob("*.manifest"))
    return {name for manifest in manifests for name in manifest.log_files()}


def wanted(query: eddy.Query, inputs: Inputs) -> list[tuple[str, ...]]:
    """Return the windows that the watermark has passed: the least of the greatest event times of the streams."""
    runtime = eddy.Runtime(query)
    pushed = {name: pa.concat_tables(inputs.tables[name]) for name in "RS"}
    watermark = min(max(row["t"] for row in inputs.rows(name)) for name in "RS")
    windows = runtime.push(pushed, watermark=watermark)
    return sorted(text_rows(windows))


@pytest.mark.parametrize(
    "window",
    [eddy.Hopping(12, 4, time="S.t"), eddy.Session(2)],
    ids=["hopping", "sessions"],
)
def test_windows_are_given_once_over_restarts(spark: SparkSession, tmp_path: Path, window: Any) -> None:
    inputs, chance = Inputs(tmp_path / "in", R=ROWS, S=ROWS), random.Random(3)
    query, at = grouped(window), 0
    for batches, placement, partitions in ((2, "grid", 2), (3, "hops", 2), (2, "grid", 1), (2, "grid", 2)):
        at = add(inputs, chance, batches, at)
        how = {"partitions": partitions, "placement": placement}
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", **how)
        assert sorted(results(tmp_path / "out")) == wanted(query, inputs)
        # The number of parts is that of the first start; each task has written those that it has.
        newest = newest_manifest(tmp_path / "state")
        parts = newest.operators[""].parts
        written = {name for part in parts for name in part.files if batch_of(name) == newest.batch}
        assert (len(parts), len(written) <= partitions) == (8, True)
    assert len(results(tmp_path / "out")) > 5
    # Files of groups that no kept manifest names are gone.
    assert {path.name.removesuffix(COPY) for path in group_files(tmp_path / "state")} <= named_files(tmp_path / "state")


def test_many_results_travel_as_their_groups(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("x", pa.float64())])
    streams = [eddy.Stream(name, rows) for name in "RS"]
    sums = {"n": agg.count(), "total": agg.sum("S.x"), "most": agg.max("R.x")}
    query = eddy.Query(streams, ["R.k = S.k"], group_by=["R.g"], aggregates=sums)
    inputs, chance = Inputs(tmp_path / "in", R=rows, S=rows), random.Random(8)

    def drawn(n: int, keys: int, groups: int) -> list[dict[str, Any]]:
        draw = chance.randrange
        return [{"k": draw(keys), "g": draw(groups), "x": chance.choice([0.1, -2.5, 1e17])} for _ in range(n)]

    def logged() -> list[bool]:
        """Return of the newest files in the log whether a part has groups in place of results."""
        parts = newest_manifest(tmp_path / "state").operators[""].parts
        files = {(number, part.files[-1]) for number, part in enumerate(parts) if len(part.files) > 1}
        whole = {name: GROUPS.unpack((tmp_path / "state" / "log" / name).read_bytes()) for _, name in files}
        return [whole[name].part("parts").part(str(number)).flag("merged") for number, name in files]

    for size, groups, wanted in (((3000, 60, 3000), 3000, set()), ((40, 1, 8), 8, {True}), ((30, 60, 50), 50, {False})):
        inputs.add_together({"R": drawn(*size), "S": drawn(60 if groups != 8 else 15_000, size[1], 1)})
        running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
        # The results are 5 MB and more; without more than one task, none of them goes to another one.
        assert sum(running.batches()["shipped_bytes"].to_pylist()) < 500_000
        if wanted:
            assert wanted <= set(logged())
    net: Counter[tuple[Any, ...]] = Counter()
    for op, *row in pq.read_table(tmp_path / "out").select(["op", "R.g", *sums]).to_pandas().itertuples(index=False):
        net[tuple(row)] += -1 if op in ("-D", "-U") else 1
    of_key: dict[int, Counter[float]] = defaultdict(Counter)
    for row in inputs.rows("S"):
        of_key[row["k"]][row["x"]] += 1
    groups_of: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in inputs.rows("R"):
        if row["k"] in of_key:
            groups_of[row["g"]].append(row)
    expected: Counter[tuple[Any, ...]] = Counter()
    for g, members in groups_of.items():
        values = [(x, count) for row in members for x, count in of_key[row["k"]].items()]
        # Sums are exact: they are rounded once.
        total = float(sum((Fraction(x) * count for x, count in values), Fraction(0)))
        expected[g, sum(count for _, count in values), total, max(row["x"] for row in members)] = 1
    assert +net == expected
    assert sum(row[1] for row in expected) > 600_000


@pytest.mark.parametrize("kind", ["windows", "changelog"])
def test_a_first_batch_in_which_nothing_joins(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    ends: dict[str, Any] = {"group_window": eddy.Tumbling(5)} if kind == "windows" else {"expiry": "final"}
    query = eddy.Query(STREAMS, ["R.k = S.k"], group_by=["R.name"], aggregates=FUNCTIONS, **ends)
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    for k in (None, 1):
        rows = [{"k": k, "name": "a", "x": 1.0, "t": t} for t in (3, 50 if k else 3)]
        inputs.add_together(dict.fromkeys("RS", rows))
        run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", transport="rows")
    assert len(results(tmp_path / "out")) == 1


class Fails(Sink):
    """Keeps rows by batch, and fails in one batch before or after it has kept them."""

    def __init__(self, rows: dict[int, list[tuple[str, ...]]], batch: int, after: bool) -> None:
        self._rows, self._fails, self._after = rows, batch, after

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        if batch == self._fails and not self._after:
            raise OSError("before")
        rows = [row for path in self.paths(batch, files) for row in text_rows(pq.ParquetFile(path).read())]
        assert self._rows.get(batch, rows) == rows, "a batch that comes again has the same rows"
        self._rows[batch] = rows
        if batch == self._fails:
            raise OSError("after")


def kept_through_failures(query: eddy.Query, inputs: Inputs, spark: SparkSession, state: Path) -> list[tuple[str, ...]]:
    """Return the rows of a job whose sink fails before and after it has kept those of a batch."""
    kept: dict[int, list[tuple[str, ...]]] = {}
    for batch, after in ((1, False), (2, True), (3, False), (-1, False)):
        joined = join(query, inputs.frames(spark), checkpoint=state, key_groups=4)
        running = joined.writeStream.trigger(availableNow=True).sink(Fails(kept, batch, after)).start()
        if batch < 0:
            assert running.awaitTermination(120)
        else:
            with pytest.raises(Exception, match="after" if after else "before"):
                running.awaitTermination(120)
    return [row for rows in kept.values() for row in rows]


def test_a_batch_that_fails_in_the_sink_comes_again_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    add(inputs, random.Random(4), 5, 0)
    query = grouped(eddy.Tumbling(5), having=None)
    assert sorted(kept_through_failures(query, inputs, spark, tmp_path / "state")) == wanted(query, inputs)


def test_a_damaged_file_is_read_from_its_copy_and_other_queries_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs, chance = Inputs(tmp_path / "in", R=ROWS, S=ROWS), random.Random(5)
    query = grouped(eddy.Tumbling(7))
    at = add(inputs, chance, 2, 0)
    run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    for path in group_files(tmp_path / "state"):
        if not path.name.endswith(COPY):
            path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StreamingStateError, match="groups of another query"):
        run(grouped(eddy.Tumbling(6)), inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    plain = eddy.Query(STREAMS, ["R.k = S.k"], select=["R.name", "S.x", "S.name", "R.t", "S.t"])
    with pytest.raises(StreamingStateError, match="belongs to a join with aggregates"):
        run(plain, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    add(inputs, chance, 1, at)
    running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert any("was restored from" in text for text in running.recoveries)
    assert sorted(results(tmp_path / "out")) == wanted(query, inputs)
    run(plain, inputs.frames(spark), tmp_path / "other", tmp_path / "pairs")
    with pytest.raises(StreamingStateError, match="join without aggregates"):
        run(query, inputs.frames(spark), tmp_path / "other", tmp_path / "out2")


def test_sql_with_a_window_runs_on_streaming_views(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    add(inputs, random.Random(6), 3, 0)
    for name, frame in inputs.frames(spark).items():
        frame.createOrReplaceTempView(f"streaming_{name}")
    text = """
        SELECT r.name AS name, window_start, window_end, COUNT(*) AS n, COUNT(s.there) AS partners
        FROM streaming_R AS r LEFT JOIN (SELECT k, t, 'yes' AS there FROM streaming_S) AS s
        ON r.k = s.k AND s.t BETWEEN r.t - 8 AND r.t + 8 GROUP BY r.name, TUMBLE(r.t, 7)
    """
    times = {"streaming_R": "t", "streaming_S": "t"}
    joined = sql(spark, text, times=times, checkpoint=tmp_path / "state", key_groups=4)
    running = joined.writeStream.trigger(availableNow=True).format("parquet").start(tmp_path / "out")
    assert running.awaitTermination(120)
    streams = [eddy.Stream(f"streaming_{name}", ROWS, time="t") for name in "RS"]
    runtime = eddy.Runtime(eddy.sql(text, streams))
    pushed = {f"streaming_{name}": pa.concat_tables(inputs.tables[name]) for name in "RS"}
    watermark = min(max(row["t"] for row in inputs.rows(name)) for name in "RS")
    expected = text_rows(runtime.push(runtime.query.inputs(pushed), watermark=watermark))
    assert sorted(results(tmp_path / "out")) == sorted(expected)
    assert expected


def test_what_a_stream_cannot_give_names_what_it_can(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    frames = inputs.frames(spark)
    endless = [eddy.Stream("R", ROWS, time="t"), *STREAMS[1:]]
    open_end = eddy.Query(endless, ["R.k = S.k"], aggregates=FUNCTIONS, group_window=eddy.Tumbling(5, time="R.t"))
    with pytest.raises(SparkJoinError, match="group_window: results with any event time may come"):
        join(open_end, frames, checkpoint=tmp_path / "state")
    single = eddy.Query(STREAMS[:1], aggregates={"n": agg.count()}, group_window=eddy.Tumbling(5))
    with pytest.raises(SparkJoinError, match="aggregate one stream with Spark"):
        join(single, {"R": frames["R"]}, checkpoint=tmp_path / "state")
    with pytest.raises(SparkJoinError, match="change= is for queries without aggregates"):
        join(grouped(eddy.Tumbling(5)), frames, checkpoint=tmp_path / "state", change="immediate")
    batch = {"R": spark.createDataFrame([], frames["R"].schema)}
    with pytest.raises(SparkJoinError, match="placement= places the joins of several streams"):
        join(single, batch, placement="hops")
    joined = join(grouped(eddy.Tumbling(5)), frames, checkpoint=tmp_path / "state")
    assert "aggregates: results are dealt to the tasks by " in joined.explain()

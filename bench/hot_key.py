"""A streaming join on Spark in which one key has half of the rows: its key group in one piece, and in fragments."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness.figure import Point, Row, Say, Table, spread
from bench.harness.turns import agree
from bench.spark import SCHEMA, Feed, bench_session
from eddy import Query, Range, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS, GROUPS = 2, 8
HOT = 0
"""The key that has half of the rows."""
WARM_ROWS = 4_000
"""Rows of the micro-batches before those that are measured."""
WAYS = ("whole", "fragments")


def hot_key_point(full: bool) -> Point:
    """Return the job on Spark."""
    sizes = (60, 20_000, 8, 3, 400) if full else (2, 2_000, 2, 1, 100)
    return {"part": "hot key", **dict(zip(("warm", "rows", "batches", "turns", "live_rows"), sizes, strict=True))}


def hot_key_rows(point: Point, say: Say) -> list[Row]:
    """Measure both ways in turns, in one session."""
    taken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder,
        bench_session(f"local[{PARTITIONS}]") as spark,
    ):
        feed = _fed(Path(folder) / "in", point)
        for turn in range(point["turns"] + 1):  # the first turn warms up
            found = {}
            for way in WAYS:
                say(f"hot key, turn {turn} of {point['turns']}: {way}")
                found[way] = _job(spark, feed, Path(folder) / f"{way}-{turn}", way == "fragments", point)
                if turn:
                    taken[way].append(found[way])
            agree("a join with a hot key", {way: one["results"] for way, one in found.items()})
    whole, fragments = taken["whole"], taken["fragments"]

    def ratios(of: str) -> list[float]:
        return [one[of] / other[of] for one, other in zip(fragments, whole, strict=True)]

    rows: list[Row] = [
        {"shows": "hot key", "way": way, **{name: median(one[name] for one in own) for name in own[0]}}
        for way, own in taken.items()
    ]
    named = {"spark.fragments_task_vs_whole": "task_s", "spark.fragments_rows_per_s_vs_whole": "rows_per_s"}
    return [*rows, *({"figure": name, **spread(ratios(of), "value")} for name, of in named.items())]


def _query(live_rows: int) -> Query:
    """Return R joined with S, each with this number of rows in its window."""
    streams = [Stream(name, SCHEMA, window=Range(2 * live_rows), time="ts") for name in "RS"]
    return Query(streams, ["R.key = S.key"], select={"key": "R.key", "R": "R.val", "S": "S.val"})


def _fed(folder: Path, point: Point) -> Feed:
    """Return a feed whose first two streams have rows: half of them with the hot key, the others spread evenly."""
    rng, feed, position = np.random.default_rng(1), Feed(folder), 0
    for size in [min(WARM_ROWS, point["rows"])] * point["warm"] + [point["rows"]] * (1 + point["batches"]):
        times, stream = np.arange(position, position + size), rng.integers(0, 2, size)
        keys = np.where(rng.random(size) < 0.5, HOT, rng.integers(1, point["live_rows"], size))
        values = rng.integers(0, 1 << 40, size)
        feed.write([[column[stream == i] for column in (keys, times, values)] for i in range(4)])
        position += size
    return feed


def _job(spark: SparkSession, feed: Feed, checkpoint: Path, divided: bool, point: Point) -> dict[str, Any]:
    """Run the job, in which the group of the hot key gets a second fragment, or not, before what is measured."""
    from eddy.spark import join

    frames = {name: frame for name, frame in feed.frames(spark).items() if name in "RS"}
    joined = join(
        _query(point["live_rows"]),
        frames,
        checkpoint=checkpoint,
        partitions=PARTITIONS,
        key_groups=GROUPS,
        rebalance="off",
    )
    running = joined.writeStream.format("noop").start()

    def until(batches: int) -> None:
        while running.isActive and running.batches().num_rows < batches:
            running.processAllAvailable()
        if (problem := running.exception()) is not None:
            raise problem

    warm, last = point["warm"], point["warm"] + 1 + point["batches"]
    while running.isActive and not running.batches().num_rows:
        pass
    hot = max(running.groups().to_pylist(), key=lambda one: one["results"])["group"]
    partition = running.partition_map.partitions[hot]
    if divided:
        running.fragment(hot, "R", to=[1 - partition])
    # Without it, all else in the other partition: the best that moves can do.
    for group in range(GROUPS):
        if group != hot:
            running.move(group, 1 - partition)
    until(last)
    batches, groups = running.batches().to_pylist(), running.groups().to_pylist()
    taken = [one["durationMs"]["triggerExecution"] / 1000 for one in running.recentProgress if one["numInputRows"]]
    running.stop()
    tasks: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for one in groups:
        tasks[one["batch"]][one["partition"]] += one["ready_seconds"] + one["join_seconds"]
    measured = range(warm + 1, last)
    return {
        "results": sum(one["results"] for one in batches),
        "rows_per_s": median(batches[number]["rows"] / taken[number] for number in measured),
        "trigger_s": median(taken[number] for number in measured),
        "task_s": median(max(tasks[batches[number]["batch"]].values()) for number in measured),
        "state_bytes": batches[-1]["state_bytes"],
    }


HOT_KEY_TABLE = Table(
    "A key with half of the rows on Spark, two partitions",
    {"way": "its key group"},
    {
        "rows_per_s": "rows/s",
        "trigger_s": "micro-batch, s",
        "task_s": "longest task, s",
        "state_bytes": "bytes of all engines",
        "results": "results",
    },
    where={"shows": "hot key"},
)

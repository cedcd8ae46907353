"""A streaming join on Spark in which one key has half of the rows, with its key group whole and in fragments."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness.figure import Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree
from bench.spark import SCHEMA, FileFeed, bench_session
from eddy import Query, Range, Stream
from eddy.demo.workers import driver_jvm, workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS, GROUPS = 2, 8
HOT = 0
"""The key that has half of the rows."""
WARM_ROWS = 4_000
"""Rows of the micro-batches before the measured ones."""
WAYS = ("whole", "fragments")


def hot_key_point(full: bool) -> Point:
    """Return the job on Spark."""
    sizes = (20, 40_000, 10, 5, 2_000) if full else (2, 2_000, 2, 1, 100)
    return {"part": "hot key", **dict(zip(("warm", "rows", "batches", "turns", "live_rows"), sizes, strict=True))}


def hot_key_rows(point: Point, say: Say) -> list[Row]:
    """Measure both ways in turns, in one session."""
    taken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder,
        bench_session(f"local[{PARTITIONS}]") as spark,
    ):
        for turn in range(point["turns"] + 1):  # the first turn warms up
            jobs = {}
            for way in WAYS:
                say(f"hot key, turn {turn} of {point['turns']}: {way}")
                jobs[way] = _job(spark, Path(folder) / f"{way}-{turn}", way == "fragments", point)
                if turn:
                    taken[way].append(jobs[way])
            agree("a join with a hot key", {way: job["results"] for way, job in jobs.items()})
    whole, fragments = taken["whole"], taken["fragments"]

    def ratios(of: str) -> list[float]:
        return [divided[of] / other[of] for divided, other in zip(fragments, whole, strict=True)]

    rows: list[Row] = [
        {"shows": "hot key", "way": way, **{name: median(figures[name] for figures in turns) for name in turns[0]}}
        for way, turns in taken.items()
    ]
    named = {"spark.fragments_worker_vs_whole": "worker_s", "spark.fragments_rows_per_s_vs_whole": "rows_per_s"}
    return [*rows, *({"figure": name, **spread(ratios(of), "value")} for name, of in named.items())]


def _query(live_rows: int) -> Query:
    """Return R joined with S, each with this number of rows in its window."""
    streams = [Stream(name, SCHEMA, window=Range(2 * live_rows), time="ts") for name in "RS"]
    return Query(streams, ["R.key = S.key"], select={"key": "R.key"})


class _Arrivals:
    """Files of micro-batches with rows of two streams: half of them with the hot key, the others spread evenly."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.feed = FileFeed(folder)
        self._keys = keys
        self._chance = np.random.default_rng(1)
        self._position = 0

    def add(self, rows: int) -> None:
        """Draw the rows of a micro-batch and write them."""
        chance, times = self._chance, np.arange(self._position, self._position + rows)
        stream, values = chance.integers(0, 2, rows), chance.integers(0, 1 << 40, rows)
        keys = np.where(chance.random(rows) < 0.5, HOT, chance.integers(1, self._keys, rows))
        self.feed.write([[column[stream == i] for column in (keys, times, values)] for i in range(4)])
        self._position += rows


def _job(spark: SparkSession, folder: Path, divided: bool, point: Point) -> dict[str, Any]:
    """Run the job; the group of the hot key may get a second fragment before the measured micro-batches."""
    from eddy.spark import join

    arrivals = _Arrivals(folder / "in", point["live_rows"])
    frames = {name: frame for name, frame in arrivals.feed.frames(spark).items() if name in "RS"}
    joined = join(
        _query(point["live_rows"]),
        frames,
        checkpoint=folder / "checkpoint",
        partitions=PARTITIONS,
        key_groups=GROUPS,
        rebalance="off",
    )
    running = joined.writeStream.format("noop").start()
    added = 0

    def run(rows: int, batches: int) -> None:
        nonlocal added
        for _ in range(batches):
            arrivals.add(rows)
        added += rows * batches
        while running.isActive and sum(running.batches()["rows"].to_pylist()) < added:
            running.processAllAvailable()
        if (problem := running.exception()) is not None:
            raise problem

    run(min(WARM_ROWS, point["rows"]), point["warm"])
    hot = max(running.groups().to_pylist(), key=lambda row: row["results"])["group"]
    partition = running.partition_map.partitions[hot]
    if divided:
        running.fragment(hot, "R", to=[1 - partition])
    for group in range(GROUPS):
        # All other groups are in the other partition, which is the best assignment that moves can reach.
        if group != hot:
            running.move(group, 1 - partition)
    run(point["rows"], 1)
    before, warm = _cpu(spark), running.batches().num_rows
    run(point["rows"], point["batches"])
    used = [seconds - before.get(pid, 0.0) for pid, seconds in _cpu(spark).items()]
    batches = running.batches().to_pylist()
    taken = [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in running.recentProgress
        if progress["numInputRows"]
    ]
    running.stop()
    return {
        "results": sum(batch["results"] for batch in batches),
        "rows_per_s": median(
            batch["rows"] / seconds for batch, seconds in zip(batches[warm:], taken[warm:], strict=True)
        ),
        "trigger_s": median(taken[warm:]),
        "worker_s": max(used) / len(batches[warm:]),
        "workers_s": sum(used) / len(batches[warm:]),
        "state_bytes": batches[-1]["state_bytes"],
    }


def _cpu(spark: SparkSession) -> dict[int, float]:
    """Return the CPU seconds of each Python worker so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for pid in workers(driver_jvm(spark)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds[pid] = (int(fields[11]) + int(fields[12])) / ticks
    return seconds


HOT_KEY_TABLE = ReportTable(
    "A key with half of the rows on Spark, two partitions",
    {"way": "its key group"},
    {
        "rows_per_s": "rows/s",
        "trigger_s": "micro-batch, s",
        "worker_s": "CPU s of the busiest worker",
        "workers_s": "CPU s of all",
        "state_bytes": "bytes of all engines",
        "results": "results",
    },
    where={"shows": "hot key"},
)

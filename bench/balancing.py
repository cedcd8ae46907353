"""`eddy bench balancing`: partition groups that move, on simulated nodes and in streaming joins on Spark.

On simulated nodes, JIT is compared with PTLB and MSLB. On Spark there is no PTLB, since no row is in transit when a
group moves between two micro-batches; "jit", which loads a group from the log, is compared with "state", which moves
the engine.
"""

from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say
from bench.harness.turns import agree
from bench.hot_key import HOT_KEY_TABLE, hot_key_point, hot_key_rows
from bench.papers.balancing.figures import WAYS_TABLE, accumulated, moves, points_over_time, runs, summary
from bench.papers.balancing.runs import COST_TITLES, BalancingSetting, fitted_rows
from bench.spark import STREAMS, FileFeed, bench_session, query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.move_records import How
    from eddy.spark.streaming.driver.partition_map import PartitionMap
    from eddy.spark.streaming.driver.rebalancing import Load

RIVALS = ("LM-PTLB", "LM-MSLB", "LM-PTLB, jisc", "LM-MSLB, jisc")
"""The paper's protocols with the paper's strategy of plan changes and with that of eddy."""
WORKERS, GROUPS = 4, 32


class SparkWay(NamedTuple):
    """A way to adapt a streaming join: whether engines choose their plans, and how groups move; None = no moves."""

    lm: bool
    how: How | None


SPARK_WAYS = {
    "No-Adapt": SparkWay(False, None),
    "LM only": SparkWay(True, None),
    "state only": SparkWay(False, "state"),
    "jit only": SparkWay(False, "jit"),
    "LM-state": SparkWay(True, "state"),
    "LM-jit": SparkWay(True, "jit"),
}
PLAN = "((R S) T) U"
"""The plan of all engines at the start, and of engines with a fixed plan."""


def points(full: bool) -> list[Point]:
    """Return the simulated cluster, and the jobs on Spark."""
    rows = {"rows": 200_000, "live_rows": 100_000} if full else {"rows": 10_000, "live_rows": 5_000}
    job = {"part": "spark", "warm": 12 if full else 4, "batches": 12 if full else 4, "seed": 1, **rows}
    return [*({"part": "simulation", **point} for point in points_over_time(full)), job, hot_key_point(full)]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part."""
    if point["part"] == "simulation":
        return _simulation(point, say)
    if not find_spec("pyspark"):
        return [{"skipped": "streaming on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    if point["part"] == "hot key":
        return hot_key_rows(point, say)
    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder, bench_session(f"local[{WORKERS}]") as spark:
        return _spark(spark, Path(folder), point, say)


def _simulation(point: Point, say: Say) -> list[Row]:
    outcomes = runs(BalancingSetting.of(point), ("No-Adapt", *RIVALS, "LM-JIT"), say)
    moved = {name: moves(outcome) for name, outcome in outcomes.items() if outcome.moves}
    jit = moved["LM-JIT"]
    ratios = {
        "jit.pause_vs_mslb": jit["pause_s"] / min(moved[rival]["pause_s"] for rival in RIVALS if "MSLB" in rival),
        "jit.sender_work_vs_ptlb": jit["sender_work_s"] / min(moved[o]["sender_work_s"] for o in RIVALS if "PTLB" in o),
        "lm_and_jit.vs_better_of_ptlb_mslb": accumulated(outcomes["LM-JIT"])
        / max(accumulated(outcomes[rival]) for rival in RIVALS),
    }
    rows: list[Row] = [summary(name, outcomes) for name in outcomes]
    return [*rows, *({"figure": name, "value": value} for name, value in ratios.items()), *fitted_rows()]


# Spark


class Half:
    """A rebalancer that gives half of the key groups to partition 0 at the start, and moves no group later."""

    def plan(self, partition_map: PartitionMap, load: Load, batch: int) -> PartitionMap:
        """Return the map for a batch."""
        if batch:
            return partition_map
        n, half = partition_map.n, partition_map.groups // 2
        return partition_map.with_moves({g: 0 if g < half else 1 + g % (n - 1) for g in range(partition_map.groups)})


def _fed(folder: Path, point: Point) -> FileFeed:
    """Return files for all micro-batches; half-way through, the rates of S, T and U fall to a twentieth."""
    rng, feed, position = np.random.default_rng(point["seed"]), FileFeed(folder), 0
    total = point["warm"] + point["batches"]
    for batch in range(total):
        weights = np.array([1.0, 1, 1, 1] if batch < total - point["batches"] // 2 else [1.0, 0.05, 0.05, 0.05])
        n = point["rows"] if batch < total - point["batches"] // 2 else int(point["rows"] * weights.sum() / 4)
        stream = rng.choice(len(STREAMS), n, p=weights / weights.sum())
        columns = rng.integers(0, point["live_rows"], n), np.arange(position, position + n), rng.integers(0, 1 << 40, n)
        feed.write([[column[stream == i] for column in columns] for i in range(len(STREAMS))])
        position += n
    return feed


def _spark(spark: SparkSession, folder: Path, point: Point, say: Say) -> list[Row]:
    feed = _fed(folder / "in", point)
    jobs: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(("warm", *SPARK_WAYS)):
        say(f"Spark: {name}")
        figures = _job(
            spark, feed, folder / f"checkpoint-{number}", SPARK_WAYS.get(name, SPARK_WAYS["No-Adapt"]), point
        )
        if name != "warm":
            jobs[name] = figures
    agree("a join on Spark", {name: job["results"] for name, job in jobs.items()})
    for job in jobs.values():
        job["vs_no_adapt"] = job["rows_per_s"] / jobs["No-Adapt"]["rows_per_s"]
    rows: list[Row] = [{"shows": "spark", "way": name, **job} for name, job in jobs.items()]
    state, jit = jobs["LM-state"], jobs["LM-jit"]
    ratios = {
        "spark.jit_pause_vs_state": jit["pause_s"] / state["pause_s"],
        "spark.jit_sent_bytes_vs_state": jit["sender_mb"] / state["sender_mb"],
        "spark.lm_and_jit_vs_lm_and_state": jit["rows_per_s"] / state["rows_per_s"],
    }
    return [*rows, *({"figure": name, "value": value} for name, value in ratios.items())]


def _job(spark: SparkSession, feed: FileFeed, checkpoint: Path, way: SparkWay, point: Point) -> dict[str, Any]:
    """Run the job, in which groups of partition 0 move after the micro-batches of warming up."""
    from eddy.spark import join

    options: dict[str, Any] = {} if way.lm else {"strategy": "jisc", "policy": "fixed"}
    joined = join(
        query(point["live_rows"]),
        feed.frames(spark),
        checkpoint=checkpoint,
        partitions=WORKERS,
        key_groups=GROUPS,
        rebalance=Half(),
        plan=PLAN,
        **options,
    )
    running = joined.writeStream.format("noop").start()
    warm, last = point["warm"], point["warm"] + point["batches"]
    while running.isActive and running.batches().num_rows < warm:
        time.sleep(0.01)
    if way.how is not None:
        for to in range(1, WORKERS):
            running.move([group for group in range(GROUPS // 4) if 1 + group % (WORKERS - 1) == to], to, way.how)
    while running.isActive and running.batches().num_rows < last:
        running.processAllAvailable()
    if (problem := running.exception()) is not None:
        raise problem
    batches, said = running.batches().to_pylist(), running.messages().to_pylist()
    taken = [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in running.recentProgress
        if progress["numInputRows"]
    ]
    running.stop()
    begun = max([number for number, batch in enumerate(batches) if batch["moved"]], default=warm) if way.how else warm
    received = [message for message in said if message["kind"] == "ReceivePartitions"]
    after = range(begun + 1, last)
    return {
        "results": sum(batch["results"] for batch in batches),
        "rows_per_s": sum(batches[number]["rows"] for number in after) / sum(taken[number] for number in after),
        "before_s": median(taken[warm // 2 : begun]),
        "moving_s": taken[begun] if way.how else None,
        "moved": len({message["group"] for message in received}),
        "pause_s": max((message["seconds"] for message in received), default=None),
        "received_mb": sum(message["bytes"] for message in received) / 1e6,
        "sender_mb": sum(message["bytes"] for message in received if message["from"] != "log") / 1e6,
        "transitions": sum(batch["transitions"] for batch in batches),
    }


_SPARK_TABLE = ReportTable(
    "A join on Spark with four worker processes",
    {"way": "way"},
    {
        "rows_per_s": "rows/s after the move",
        "vs_no_adapt": "/ No-Adapt",
        "before_s": "micro-batch before, s",
        "moving_s": "with the move, s",
        "moved": "groups moved",
        "pause_s": "longest until a moved group was ready, s",
        "received_mb": "MB received",
        "sender_mb": "of these from the sender",
        "transitions": "plans changed",
    },
    where={"shows": "spark"},
)

FIGURES = (
    Figure(
        "balancing",
        "*Simulation*: the cluster of the paper's figures 7 and 8, with local optimization (LM) and each protocol. The "
        "rivals of JIT (ours) are PTLB and MSLB with the strategy moving-state, as in the paper, and with jisc; the "
        "ratios are taken to the best of them. Accumulated results are compared by their mean over the input. "
        "*Spark*: W1 in Structured Streaming on `local[4]`, partition 0 has half of 32 key groups; 8 of them move to "
        "the others, either with their engines or just in time from the log, and later three of the streams slow down "
        "to a twentieth. LM is the default policy; otherwise all plans are fixed. There is no PTLB on Spark. "
        "*Hot key*: R joined with S on `local[2]`; one key has half of the rows of both, and gives nearly all results. "
        "Its key group has a partition of its own; in fragments, half of its rows of R are in the other partition, and "
        "all of those of S in both.",
        points,
        measure,
        tables=(NAMED, WAYS_TABLE, _SPARK_TABLE, HOT_KEY_TABLE),
        titles={
            "jit.pause_vs_mslb": "Longest pause of a moved group: JIT / MSLB",
            "jit.sender_work_vs_ptlb": "Work at the sender after the decision: JIT / PTLB",
            "lm_and_jit.vs_better_of_ptlb_mslb": "Accumulated results with LM: JIT / the better of PTLB and MSLB",
            "spark.jit_pause_vs_state": "Spark: longest time until a moved group was ready, jit / state",
            "spark.jit_sent_bytes_vs_state": "Spark: bytes from the sender, jit / state",
            "spark.lm_and_jit_vs_lm_and_state": "Spark: rows a second after the move with LM, jit / state",
            "spark.fragments_worker_vs_whole": "Spark, a hot key: CPU time of the busiest worker, fragments / whole",
            "spark.fragments_rows_per_s_vs_whole": "Spark, a hot key: rows a second, fragments / whole",
            **COST_TITLES,
        },
        bars={
            "jit.pause_vs_mslb": "≤ 0.2",
            "jit.sender_work_vs_ptlb": "≤ 0.1",
            "lm_and_jit.vs_better_of_ptlb_mslb": "≥ 1",
        },
    ),
)

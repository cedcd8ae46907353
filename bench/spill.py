"""`eddy bench spill`: a streaming join whose engines may take a part of the memory that they need.

Each micro-batch has rows for a few key groups, drawn with probabilities that fall as 1 / rank (Zipf) or evenly. The
windows keep all rows, so idle groups keep their state. One join without a bound measures the bytes of all engines.
Joins of the same files on the same workers follow, with parts of these bytes as `memory=`.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from bench.harness.figure import NAMED, Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import agree
from bench.spark import SCHEMA, STREAMS, FileFeed, bench_session, query
from eddy import Runtime
from eddy.demo.workers import driver_jvm, workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

GROUPS = 64
PARTS = (1.0, 0.5, 0.25, 0.1)
"""The bounds, as parts of the bytes of all engines at the end."""
FILL = 4
"""Micro-batches with rows for all groups, before those that are measured."""
ACCESS = ("zipf", "even")
HEADLINE = 100_000
"""Live rows of the engine in the headline of reloading."""


def points(full: bool) -> list[Point]:
    """Return a point for each access, and one for each size of an engine that is reloaded."""
    sizes = (1_000, 10_000, HEADLINE, 1_000_000) if full else (1_000,)
    # The first micro-batches of few groups are not measured, because the JVM compiles and the rates of use change.
    rows = {"rows": 20_000, "live_rows": 2_500_000, "warm": 20, "batches": 40, "touched": 8}
    small = {"rows": 1_000, "live_rows": 20_000, "warm": 1, "batches": 2, "touched": 8}
    chosen: list[Point] = [{"part": "reload", "live_rows": size, "turns": 9 if full else 3} for size in sizes]
    return chosen + [{"part": "bounds", "access": access, "seed": 1, **(rows if full else small)} for access in ACCESS]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part."""
    if point["part"] == "reload":
        return _reload(point, say)
    if not find_spec("pyspark"):
        return [{"skipped": "streaming on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    with tempfile.TemporaryDirectory(prefix="eddy-spill-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session("local[2]", **{"spark.local.dir": scratch}) as spark:
            return _bounds(spark, Path(folder), point, say)


# An engine, spilled and mapped, or dropped and loaded from the log


def _drawn(chance: np.random.Generator, rows: int, first: int, keys: int) -> dict[str, pa.RecordBatch]:
    """Return rows of W1 from the arrival with number `first` on."""
    stream, key = chance.integers(0, len(STREAMS), rows), chance.integers(0, keys, rows)
    columns = key, np.arange(first, first + rows), key
    return {
        name: pa.record_batch([pa.array(column[stream == i]) for column in columns], schema=SCHEMA)
        for i, name in enumerate(STREAMS)
    }


def _reload(point: Point, say: Say) -> list[Row]:
    """Measure the time to map an engine of W1 again, and the time to load all rows of its windows into a new engine."""
    from eddy.live.engine_file import EngineFile

    live, chance, asked = point["live_rows"], np.random.default_rng(1), query(point["live_rows"])
    size, position = len(STREAMS) * live, 0
    engine = Runtime(asked)
    for _ in range(2):
        engine.push(_drawn(chance, size, position, live))
        position += size
    nbytes, taken = engine.nbytes, dict[str, list[float]](map=[], spill=[], load=[])
    with tempfile.TemporaryDirectory(prefix="eddy-spill-") as folder:
        file = EngineFile(Path(folder, "engine"), secrets.token_bytes(32))
        with file:
            file.save(engine, b"0")
        logged = _drawn(chance, size, position, live)
        for name, batch in logged.items():
            with pa.ipc.new_file(Path(folder, name), SCHEMA) as writer:
                writer.write_batch(batch)
        for turn in range(point["turns"]):
            say(f"an engine of {live:,} live rows a stream, turn {turn + 1}")
            began = time.perf_counter()
            rows = {name: pa.ipc.open_file(pa.memory_map(str(Path(folder, name)))).read_all() for name in STREAMS}
            other = Runtime(asked)
            other.load(rows)
            taken["load"].append(time.perf_counter() - began)
            with file:
                began = time.perf_counter()
                mapped = file.load(str(turn).encode(), asked)
                taken["map"].append(time.perf_counter() - began)
                assert mapped is not None
                mapped.push(_drawn(chance, 100, position, live))
                position += 100
                began = time.perf_counter()
                file.save(mapped, str(turn + 1).encode())
                taken["spill"].append(time.perf_counter() - began)
    ms = {f"{name}_ms": 1000 * median(seconds) for name, seconds in taken.items()}
    ratio = (ms["map_ms"] + ms["spill_ms"]) / ms["load_ms"]
    name = "spill.vs_log" if live == HEADLINE else f"spill.vs_log.{live}"
    return [{"mb": nbytes / 1e6, **ms}, {"figure": name, "value": ratio}]


# A job


def _keys_of_groups(keys: int) -> list[npt.NDArray[np.int64]]:
    """Return the keys of each key group."""
    from eddy.spark.partitioning.job import make_job
    from eddy.spark.partitioning.pieces import Splitter

    splitter = Splitter(make_job(query(), partitions=GROUPS), 0)
    numbers = pa.array(np.arange(keys))
    pieces = [*splitter.add(pa.record_batch([numbers] * len(SCHEMA), schema=SCHEMA)), *splitter.finish()]
    by_group: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(GROUPS)]
    for piece in pieces:
        by_group[piece.cell].append(piece.tuples.column("key").to_numpy())
    return [np.concatenate(parts) for parts in by_group]


def _fed(folder: Path, point: Point) -> FileFeed:
    """Return the files of a job."""
    chance, rows, live = np.random.default_rng(point["seed"]), point["rows"], point["live_rows"]
    feed, groups = FileFeed(folder / "in"), _keys_of_groups(live)
    chances = 1 / np.arange(1, GROUPS + 1) if point["access"] == "zipf" else np.ones(GROUPS)
    order, position = chance.permutation(GROUPS), 0
    for batch in range(FILL + point["warm"] + point["batches"]):
        n = live // FILL if batch < FILL else rows
        touched = order if batch < FILL else chance.choice(order, (point["touched"],), False, chances / chances.sum())
        candidates, stream = np.concatenate([groups[group] for group in touched]), chance.integers(0, len(STREAMS), n)
        key = chance.choice(candidates, n)
        columns = key, np.arange(position, position + n), key
        feed.write([[column[stream == i] for column in columns] for i in range(len(STREAMS))])
        position += n
    return feed


def _bounds(spark: SparkSession, folder: Path, point: Point, say: Say) -> list[Row]:
    """Run the job twice without a bound, where the first run warms up, and once with each bound."""
    feed = _fed(folder, point)
    rows = point["live_rows"] + point["rows"] * (point["warm"] + point["batches"])
    figures: list[Row] = []
    state, results = 0, dict[str, int]()
    rates: dict[str, float] = {}
    for name, part in (("warm", None), ("none", None), *((f"{part:g}", part) for part in PARTS)):
        say(f"{point['access']}: memory={name}")
        bound = None if part is None else int(state * part)
        batches, seconds, uss = _run(spark, feed, folder / f"checkpoint-{name}", rows, bound)
        state = state or max(batch["memory_bytes"] for batch in batches)
        results[name] = sum(batch["results"] for batch in batches)
        if name == "warm":
            continue
        measured, used = batches[-point["batches"] :], seconds[-point["batches"] :]
        joins = {source: sum(batch[source] for batch in measured) for source in ("live", "mapped", "loaded")}
        rates[name] = point["rows"] / median(used)
        figures.append(
            {
                "bound": name,
                "bound_mb": None if bound is None else bound / 1e6,
                "hit_rate": joins["live"] / sum(joins.values()),
                "loaded": joins["loaded"],
                "rows_per_s": rates[name],
                "vs_none": rates[name] / rates["none"],
                "batch_ms": 1000 * median(used),
                "memory_mb": max(batch["memory_bytes"] for batch in batches) / 1e6,
                "peak_mb": max(batch["memory_peak_bytes"] for batch in measured) / 1e6,
                "spilled_mb": measured[-1]["spilled_bytes"] / 1e6,
                "python_mb": uss / 1e6,
            }
        )
        if bound is not None:
            kept = max(batch["memory_bytes"] for batch in batches) / bound
            figures.append({"figure": f"spill.{point['access']}_used.{name}", "value": kept})
    agree(f"{point['access']}: results", results)
    tenth = f"spill.{point['access']}_tenth_vs_none"
    return [
        *figures,
        {"figure": tenth, "value": rates["0.1"] / rates["none"]},
        {"figure": f"spill.{point['access']}_results_compared", "value": results["none"]},
    ]


def _run(
    spark: SparkSession, feed: FileFeed, checkpoint: Path, rows: int, memory: int | None
) -> tuple[list[dict[str, Any]], list[float], float]:
    """Return the figures of all micro-batches, their seconds, and the bytes that the workers share with no process."""
    from eddy.spark import join

    joined = join(query(rows), feed.frames(spark), checkpoint=checkpoint, key_groups=GROUPS, memory=memory)
    running: StreamingJoinQuery = joined.writeStream.format("noop").start()
    while running.isActive and sum(running.batches()["rows"].to_pylist()) < rows:
        running.processAllAvailable()
    uss = _unshared(workers(driver_jvm(spark)))
    progress = [report for report in running.recentProgress if report["numInputRows"]]
    batches = running.batches().to_pylist()
    running.stop()
    return batches, [report["durationMs"]["triggerExecution"] / 1000 for report in progress], uss


def _unshared(pids: Sequence[int]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().uss
    return total


_USED = {
    f"spill.{access}_used.{part:g}": f"Most bytes of live engines after a micro-batch / the bound of {part:g}, {access}"
    for access in ACCESS
    for part in PARTS
}

FIGURES = (
    Figure(
        "spill",
        "W1 in Structured Streaming on `local[2]`, files in, results dropped, 64 key groups with 2.5 million rows to "
        "begin with, which stay in their windows. A micro-batch of 20 000 rows has rows of 8 key groups, drawn by Zipf "
        "with exponent 1, or evenly. `memory=` is a part of the bytes of all engines at the end. A hit is a join of a "
        "key group whose engine is in memory; after a miss it is mapped from a file, or loaded from the log. "
        "Throughput is that of the median micro-batch after twenty others. *Reloading*: an engine of W1 is mapped and "
        "spilled again, against a new engine that loads the rows of its windows from Arrow files. Numbers of "
        "results are compared. The memory of the workers is what they share with no other process: mapped "
        "files are in it while they are mapped.",
        points,
        measure,
        plots=(
            Plot(
                "Throughput against hit rate",
                "hit_rate",
                "vs_none",
                by="access",
                x_label="hit rate",
                y_label="throughput / that without a bound",
                where={"part": "bounds"},
            ),
        ),
        tables=(
            NAMED,
            ReportTable(
                "Bounds",
                {"access": "access", "bound": "memory"},
                {
                    "bound_mb": "bound, MB",
                    "hit_rate": "hit rate",
                    "loaded": "loaded from the log",
                    "rows_per_s": "rows/s",
                    "vs_none": "× no bound",
                    "batch_ms": "micro-batch, ms",
                    "memory_mb": "engines, MB",
                    "peak_mb": "at most, MB",
                    "spilled_mb": "files, MB",
                    "python_mb": "workers, MB",
                },
                where={"part": "bounds"},
            ),
            ReportTable(
                "Reloading",
                {"live_rows": "live rows a stream"},
                {"mb": "engine, MB", "map_ms": "map, ms", "spill_ms": "spill, ms", "load_ms": "load rows, ms"},
                where={"part": "reload"},
            ),
        ),
        titles={
            **_USED,
            **{
                "spill.vs_log" if size == HEADLINE else f"spill.vs_log.{size}": (
                    f"An engine of {size:,} live rows a stream: mapped and spilled / loaded from rows"
                )
                for size in (1_000, 10_000, HEADLINE, 1_000_000)
            },
            **{
                f"spill.{access}_tenth_vs_none": f"Throughput with a tenth of the memory / without a bound, {access}"
                for access in ACCESS
            },
            **{f"spill.{access}_results_compared": f"Results compared, {access}" for access in ACCESS},
        },
        bars=dict.fromkeys(_USED, "≤ 1"),
    ),
)

"""`eddy bench soak`: one streaming join for an hour, with drift, killed workers and restarts; growth indicates a leak.

Files arrive every second. In turn, the keys of one stream rarely match, so plans change all the time. Every few minutes
all workers with engines are killed, or the query is stopped and started again. The join publishes to a sink that
counts, and one engine in this process counts the results of the same rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.figure import NAMED, Figure, Plot, Point, Row, Say, number
from bench.harness.turns import agree
from bench.spark import COLUMNS, SCHEMA, STREAMS, FileFeed, bench_session, query
from bench.streaming import kill_workers
from eddy import Runtime
from eddy.spark.streaming.driver.metrics import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

DRIFT_S, KILL_S, RESTART_S = 60, 420, 600
"""Seconds from one change of the data, from one kill and from one restart to the next."""
LIVE_ROWS = KEYS = 100_000
"""Live rows of a stream at full size, and keys, so that an arrival has about one result."""
SELDOM = 20
"""Factor of the number of keys in the stream that rarely matches."""
KEPT_FILES = 100
"""Files of a stream that stay after the join has read them."""
SAMPLE_S = 5
FIGURES_OF = {
    "driver_mb": "Memory of this process, which also feeds and counts, MB",
    "jvm_mb": "Memory of the JVM, MB",
    "python_mb": "Memory of Spark's Python processes, MB",
    "descriptors": "Open files of all processes",
    "files": "Files of the checkpoint and of the workers' directories",
    "files_mb": "Their size, MB",
    "batch_ms": "Time of a micro-batch, ms",
}
"""The title of each sampled quantity. Memory counts the pages that a process does not share with others."""
SAWTOOTH = "files_mb"
"""A figure that rises until files are compacted, at varying moments: a leak would raise the least values."""


class _Rows:
    """Draws the rows of each second, writes them as files, and counts their results in one engine."""

    def __init__(self, folder: Path, rows: int, seed: int) -> None:
        self._feed = FileFeed(folder, seed=seed)
        self._folder = folder
        self._chance = np.random.default_rng(seed)
        self._rows = rows
        self._engine = Runtime(query(LIVE_ROWS), count_only=True)
        self.seconds = 0

    def add(self) -> None:
        """Write the rows of the next second."""
        stream = self._chance.integers(0, len(STREAMS), self._rows)
        seldom = stream == self.seconds // DRIFT_S % len(STREAMS)
        keys = self._chance.integers(0, np.where(seldom, KEYS * SELDOM, KEYS))
        times = np.arange(self._rows) + self.seconds * self._rows
        columns = [[column[stream == i] for column in (keys, times, keys)] for i in range(len(STREAMS))]
        self._feed.write(columns)
        self._push(columns, stream)
        self.seconds += 1
        for name in STREAMS:
            (self._folder / name / f"{self.seconds - KEPT_FILES:06d}.parquet").unlink(missing_ok=True)

    def _push(self, columns: list[list[npt.NDArray[np.int64]]], stream: npt.NDArray[np.int64]) -> None:
        batches = {
            name: pa.record_batch([pa.array(column) for column in values], schema=SCHEMA)
            for name, values in zip(STREAMS, columns, strict=True)
        }
        self._engine.push(batches, order=stream)

    @property
    def results(self) -> int:
        """The results of all rows so far."""
        return int(self._engine.metrics()["results"])


class _Counting:
    """Makes a sink that counts the results of each batch; a batch that is published twice counts once."""

    def __init__(self) -> None:
        self.batches: dict[int, int] = {}

    def sink(self) -> Any:
        from eddy.spark import Sink

        counted = self.batches

        class Counted(Sink):
            def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
                counted[batch] = sum(pq.ParquetFile(path).metadata.num_rows for path in self.paths(batch, files))

        return Counted()


def _processes() -> dict[str, list[psutil.Process]]:
    """Return the processes of the job by figure."""
    processes: dict[str, list[psutil.Process]] = defaultdict(list)
    me = psutil.Process()
    processes["driver_mb"].append(me)
    for process in me.children(recursive=True):
        with suppress(psutil.Error):
            processes["jvm_mb" if process.name() == "java" else "python_mb"].append(process)
    return processes


def _sample(folders: Sequence[Path], running: StreamingJoinQuery) -> dict[str, float]:
    """Return the current figures; those of a micro-batch exist only after the first micro-batch of a start."""
    figures: dict[str, float] = dict.fromkeys(FIGURES_OF, 0.0)
    for figure, processes in _processes().items():
        for process in processes:
            with suppress(psutil.Error):
                figures[figure] += process.memory_full_info().uss / 1e6
                figures["descriptors"] += process.num_fds()
    for path in (Path(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names):
        with suppress(FileNotFoundError):
            figures["files"] += 1
            figures["files_mb"] += path.stat().st_size / 1e6
    newest = running.batches().slice(max(0, running.batches().num_rows - 1)).to_pylist()
    figures["batch_ms"] = 1000 * sum(newest[0][f"{step}_seconds"] for step in STEPS) if newest else 0.0
    return figures


def growth(values: Sequence[float], of: Callable[[Sequence[float]], float] = median) -> float:
    """Return the ratio of the median, or of the function `of`, of the last quarter of values to that of the second.

    >>> growth([9, 9, 2, 2, 5, 5, 3, 3])
    1.5
    >>> growth([9, 9, 2, 8, 5, 5, 3, 7], of=min)
    1.5
    """
    quarter = max(len(values) // 4, 1)
    before, after = of(values[quarter : 2 * quarter] or values), of(values[-quarter:])
    return after / before if before else float(after > 0)


def measure(point: Point, say: Say) -> list[Row]:
    """Run the job; return its samples, a row for each minute, and the growth of each figure."""
    with tempfile.TemporaryDirectory(prefix="eddy-soak-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session("local[2]", **{"spark.local.dir": scratch, "spark.driver.memory": "1g"}) as spark:
            return _soak(spark, Path(folder), point, say)


def _soak(spark: SparkSession, folder: Path, point: Point, say: Say) -> list[Row]:
    from eddy.spark import join

    rows, counting, transitions, killed, starts = (
        _Rows(folder / "in", point["rows"], point["seed"]),
        _Counting(),
        0,
        0,
        0,
    )
    seconds, checkpoint = 60 * point["minutes"], folder / "checkpoint"
    frames = {name: spark.readStream.schema(COLUMNS).parquet(str(folder / "in" / name)) for name in STREAMS}

    def start() -> StreamingJoinQuery:
        joined = join(query(LIVE_ROWS), frames, checkpoint=checkpoint)
        return joined.writeStream.sink(counting.sink()).trigger(processingTime="1 second").start()

    def end(running: StreamingJoinQuery) -> int:
        done = sum(running.batches()["transitions"].to_pylist())
        running.stop()
        assert running.exception() is None
        return done

    samples: list[dict[str, float]] = []
    rows.add()
    running, began = start(), time.monotonic()
    while rows.seconds < seconds:
        now = rows.seconds
        time.sleep(max(0.0, began + now - time.monotonic()))
        if not running.isActive:
            running.awaitTermination()  # raises the error of the query
        if now % RESTART_S == 0:
            transitions, starts = transitions + end(running), starts + 1
            running = start()
        elif now % KILL_S == 0:
            killed += kill_workers(spark)
        rows.add()
        if now % SAMPLE_S == 0:
            samples.append(_sample((checkpoint, folder / "scratch"), running) | {"minute": now / 60})
            say(f"minute {now // 60} of {point['minutes']}, {len(counting.batches)} micro-batches")
    say("the last rows")
    running.processAllAvailable()
    transitions += end(running)
    agree("results", {"the job": sum(counting.batches.values()), "one engine": rows.results})
    amounts = {
        "soak.rows": rows.seconds * point["rows"],
        "soak.results_compared": rows.results,
        "soak.batches": len(counting.batches),
        "soak.transitions": transitions,
        "soak.workers_killed": killed,
        "soak.restarts": starts,
        **{f"soak.{figure}_growth": growth([sample[figure] for sample in samples]) for figure in FIGURES_OF},
    }
    minutes = list(_minutes(samples))
    amounts[f"soak.{SAWTOOTH}_growth"] = growth([number(row, SAWTOOTH) for row in minutes], min)
    return [*minutes, *({"figure": name, "value": value} for name, value in amounts.items())]


def _minutes(samples: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    """Yield the median of each figure in each minute."""
    by_minute: dict[int, list[Mapping[str, float]]] = defaultdict(list)
    for sample in samples:
        by_minute[int(sample["minute"])].append(sample)
    for minute, rows in by_minute.items():
        yield {"minute": minute, **{figure: median(row[figure] for row in rows) for figure in FIGURES_OF}}


def points(full: bool) -> list[Point]:
    """Return the one point."""
    return [{"minutes": 60 if full else 1, "rows": 20_000 if full else 2_000, "seed": 1}]


_BARS = dict.fromkeys((f"soak.{figure}_growth" for figure in FIGURES_OF), "≤ 1.1")

FIGURES = (
    Figure(
        "soak",
        "A streaming join of W1 with 100 000 live rows a stream on `local[2]`, 20 000 rows and a micro-batch "
        "every second. Every minute another stream becomes the one that seldom matches; workers are killed every seven "
        "minutes, and the query is stopped and started every ten. Growth is the median of the last quarter of the time "
        "over that of the second one; for the size of files, which rises until they are compacted, the least of the "
        "medians by minute. The number of results is compared with that of one engine.",
        points,
        measure,
        plots=tuple(
            Plot(title, "minute", figure, name=figure, x_label="minute", y_label="")
            for figure, title in FIGURES_OF.items()
        ),
        tables=(NAMED,),
        titles={
            "soak.rows": "Rows",
            "soak.results_compared": "Results, equal to those of one engine",
            "soak.batches": "Micro-batches",
            "soak.transitions": "Changes of plans and stored states",
            "soak.workers_killed": "Workers killed",
            "soak.restarts": "Restarts of the query",
            **{f"soak.{figure}_growth": f"Growth: {title}" for figure, title in FIGURES_OF.items()},
        },
        bars=_BARS,
    ),
)

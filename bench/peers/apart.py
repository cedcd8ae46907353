"""Peers in separate processes, on W1 with RANGE windows: Spark, Flink, Pathway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
import pyarrow.dataset as ds

from bench.harness.figure import Say
from bench.peers.environment import Unavailable, answers, python_of
from bench.peers.works import SPAN, STREAMS, PeerWork
from bench.spark import BEST, DEFAULT, FileFeed, bench_session, spark_triggers
from eddy import EddyError
from eddy.spark.environment.java import java_home

TIMEOUT = 600.0


@dataclass(frozen=True)
class PeerOutcome:
    """Result of a peer for a work.

    seconds  wall time of `arrivals` arrivals at full windows, once for each measurement
    results  number of results of all arrivals, including those before the clock; total: the sum of their values
    """

    seconds: list[float]
    arrivals: int
    results: int
    total: int
    version: str


Measure = Callable[[PeerWork, int, int, Say], PeerOutcome]
"""Does a work `repeats` times with `threads` threads. Raises Unavailable."""
Runs = Callable[[list[Path]], list[dict[str, object]]]
"""Joins files of arrivals one after the other; returns an answer for each file."""


def slope(name: str, work: PeerWork, repeats: int, runs: Runs) -> PeerOutcome:
    """Measure the difference between runs of all arrivals and the median run of the arrivals before the clock.

    So neither the start of a run nor the filling of the windows counts. Raises Unavailable if the difference is lost in
    noise.
    """
    with TemporaryDirectory(prefix="eddy-peers-") as folder:
        small, large = Path(folder) / "small.csv", Path(folder) / "large.csv"
        work.write(small, work.warm)
        work.write(large, work.arrivals)
        printed = runs([small, large] * repeats)
    taken = [float(str(answer["seconds"])) for answer in printed]
    seconds = beyond(name, taken[::2], taken[1::2], f"{work.timed:,} more arrivals")
    last = printed[-1]
    return PeerOutcome(seconds, work.timed, int(str(last["results"])), int(str(last["total"])), str(last["version"]))


def beyond(name: str, few: Sequence[float], of_all: Sequence[float], more: str) -> list[float]:
    """Return the seconds of runs of all arrivals beyond the median run of the first arrivals.

    Raises Unavailable if `more`, the arrivals in between, took no longer.
    """
    seconds = [whole - median(few) for whole in of_all]
    if min(seconds) <= 0:
        raise Unavailable(f"{name}: {more} took no longer; the machine is too busy, or there are too few")
    return seconds


def flink_runs(timeout: float = TIMEOUT) -> Callable[[str, Sequence[str]], list[dict[str, object]]]:
    """Return a function that runs a script with arguments in the environment of Flink, with a Java.

    Raises Unavailable if the environment is not installed or this machine has no Java.
    """
    python = python_of("flink")
    try:
        java = java_home()
    except EddyError as missing:
        raise Unavailable(f"flink: no Java: {missing}") from missing
    return partial(answers, "flink", python, timeout=timeout, variables={"JAVA_HOME": str(java)})


def _flink(multi_join: bool, work: PeerWork, repeats: int, threads: int, say: Say) -> PeerOutcome:
    """Run Flink SQL in a cluster embedded in one JVM."""
    started = flink_runs()
    say(f"flink, {work.arrivals:,} arrivals")

    def runs(files: list[Path]) -> list[dict[str, object]]:
        # The first job lets the JVM compile and is not counted.
        arguments = ["multi-join" if multi_join else "interval", str(SPAN), str(threads), str(files[-1])]
        return started("flink_w1.py", [*arguments, *map(str, files)])[1:]

    return slope("flink", work, repeats, runs)


def _pathway(work: PeerWork, repeats: int, threads: int, say: Say) -> PeerOutcome:
    """Run Pathway with a Python connector that commits after each step."""
    python = python_of("pathway")
    say(f"pathway, {work.arrivals:,} arrivals")

    def runs(files: list[Path]) -> list[dict[str, object]]:
        arguments, variables = [str(SPAN), str(work.batch)], {"PATHWAY_THREADS": str(threads)}
        run = partial(answers, "pathway", python, "pathway_w1.py", timeout=TIMEOUT, variables=variables)
        return [run([*arguments, str(file)])[-1] for file in files]

    return slope("pathway", work, repeats, runs)


def _spark(settings: str, work: PeerWork, repeats: int, threads: int, say: Say) -> PeerOutcome:
    """Run Spark's own stream-stream joins once; each micro-batch after the warm ones is a measurement."""
    if not find_spec("pyspark"):
        raise Unavailable("spark: not installed (pip install 'eddy-join[spark]')")
    with TemporaryDirectory(prefix="eddy-peers-") as folder:
        feed = FileFeed(Path(folder) / "in")
        for step in work.steps:
            batches = step.batches.values()
            feed.write([[batch.column(name).to_numpy() for name in ("k", "ts", "v")] for batch in batches])
        out = Path(folder) / "out"
        say(f"{settings}, {work.arrivals:,} arrivals")
        try:
            with bench_session(f"local[{threads}]") as spark:
                seconds = spark_triggers(spark, feed, Path(folder) / "checkpoint", settings, out)
        except EddyError as missing:
            raise Unavailable(f"spark: {missing}") from missing
        table = ds.dataset(out, format="parquet").to_table()
    total = sum(pc.sum(table[name]).as_py() or 0 for name in STREAMS)
    return PeerOutcome(seconds[work.warm // work.batch :], work.batch, table.num_rows, total, version("pyspark"))


APART: dict[str, tuple[str, Measure]] = {
    "Spark": ("Spark, stream-stream joins", partial(_spark, DEFAULT)),
    BEST: ("Spark, stream-stream joins, best settings", partial(_spark, BEST)),
    "Flink": ("Flink SQL, interval joins", partial(_flink, False)),
    "Flink MultiJoin": ("Flink SQL, MultiJoin operator", partial(_flink, True)),
    "Pathway": ("Pathway", _pathway),
}
"""Peers by the name in their points: their name in the report, and the function that measures them."""

"""Spark's own stream-stream joins, R with S, then T, then U (`bench.streaming.spark_join`), a step a micro-batch."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
import pyarrow.dataset as ds

from bench.harness.figure import Say
from bench.peers.apart import Apart, Outcome
from bench.peers.environment import Unavailable
from bench.peers.works import STREAMS, Work
from bench.streaming import Feed, bench_session, spark_triggers
from eddy import EddyError


def measure(work: Work, repeats: int, threads: int, say: Say) -> Outcome:
    """Join the work once; each micro-batch after the warm ones is a measurement. Raises Unavailable."""
    if not find_spec("pyspark"):
        raise Unavailable("spark: not installed (pip install 'eddy-join[spark]')")
    with TemporaryDirectory(prefix="eddy-peers-") as folder:
        feed = Feed(Path(folder) / "in")
        for step in work.steps:
            feed.write(
                [[batch.column(name).to_numpy() for name in ("k", "ts", "v")] for batch in step.batches.values()]
            )
        out = Path(folder) / "out"
        say(f"spark, {work.arrivals:,} arrivals")
        try:
            with bench_session(f"local[{threads}]") as spark:
                seconds = spark_triggers(spark, feed, Path(folder) / "checkpoint", out)
        except EddyError as missing:
            raise Unavailable(f"spark: {missing}") from missing
        table = ds.dataset(out, format="parquet").to_table()
    total = sum(pc.sum(table[name]).as_py() or 0 for name in STREAMS)
    timed = seconds[work.warm // work.batch : len(work.steps)]
    return Outcome(timed, work.batch, table.num_rows, total, version("pyspark"))


SPARK = Apart("Spark, stream-stream joins", measure)

"""A program that starts a join and stops it at several moments; a test checks its standard error."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark import join, session
from eddy.spark.environment.daemon import warm
from tests.spark.streaming.faults.traps import Trap, Traps
from tests.spark.streaming.faults.workload import LATENESS, SPARK_SCHEMA, STREAMS, FaultsWorkload, query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

BEGIN, END = "the first start", "the last stop"


def start(spark: SparkSession, root: Path, batches: int, *traps: Trap) -> StreamingJoinQuery:
    """Start a join over this number of batches of files, with traps."""
    FaultsWorkload(7, batches).write(root / "sources")
    armed = Traps(root)
    armed.arm(list(traps))
    armed.at(0)
    frames = {
        name: spark.readStream.schema(SPARK_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "sources" / name))
        for name in STREAMS
    }
    joined = join(query(root), frames, checkpoint=root / "checkpoint", lateness=LATENESS, key_groups=4, partitions=1)
    return joined.writeStream.format("parquet").start(root / "out")


def stop(running: StreamingJoinQuery, through_spark: bool = False) -> None:
    running.inner.stop() if through_spark else running.stop()
    assert running.exception() is None
    running._batches.close()


def main(root: Path) -> None:
    spark = session("local[2,1]", **{"spark.driver.memory": "1g", "spark.local.dir": str(root / "local")})
    warm()  # or a worker of this program would say that it compiles kernels
    print(BEGIN, file=sys.stderr, flush=True)
    for place in ("split", "join"):
        for through_spark in (False, True):
            here = root / f"{place}-{through_spark}"
            trap = Trap(0, place, "hold")
            running = start(spark, here, 2, trap)
            while not (Traps(here).sprung / trap.name).exists():
                assert running.isActive, running.exception()
                time.sleep(0.005)
            stop(running, through_spark)
            Traps(here).release()
    for number in range(3):  # stop at any step
        running = start(spark, root / f"any-{number}", 30)
        while not running.batches().num_rows:
            time.sleep(0.005)
        time.sleep(0.15 * number)
        stop(running)
    running = start(spark, root / "idle", 1)
    running.processAllAvailable()
    stop(running)
    print(END, file=sys.stderr, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

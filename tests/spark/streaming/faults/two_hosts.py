"""Runs the join on a cluster that Spark takes for two hosts, where slow tasks get a second attempt.

    python -m tests.spark.streaming.faults.two_hosts DIRECTORY

Spark starts a second attempt on another host only, and none at all when its master is local. So this starts a master
and two workers, 127.0.0.1 and 127.0.0.2, inside the driver's JVM, each with an executor of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.spark import join, session
from eddy.spark.environment.java import java_home
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from tests.spark.streaming.faults.traps import Traps
from tests.spark.streaming.faults.workload import LATENESS, SPARK_SCHEMA, STREAMS, query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

HOSTS = ("127.0.0.1", "127.0.0.2")
WAIT_S = 90.0
EAGER = {
    "spark.speculation": True,
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "100ms",
}


def master(host: str, settings: Mapping[str, str]) -> str:
    """Start a master inside the driver's JVM; return its URL."""
    from pyspark import SparkConf, SparkContext

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["SPARK_LOCAL_IP"] = host
    SparkContext._ensure_initialized(conf=SparkConf(False).set("spark.driver.memory", "600m"))
    started = _deploy().master.Master.startRpcEnvAndEndpoint(host, 0, 0, _settings(settings))._1()
    return f"spark://{host}:{started.address().port()}"


def workers(root: Path, url: str) -> None:
    """Start the workers inside the driver's JVM."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    urls = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    for number, host in enumerate(HOSTS):
        work = str(root / "work" / str(number))
        which = jvm.scala.Option.apply(number)
        none = jvm.scala.Option.empty()
        _deploy().worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 700, urls, work, which, _settings({}), none)


def _deploy() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm.org.apache.spark.deploy


def _settings(more: Mapping[str, str]) -> Any:
    from pyspark import SparkContext

    settings = SparkContext._jvm.org.apache.spark.SparkConf(False)
    for key in ("spark.master.rest.enabled", "spark.shuffle.service.enabled", "spark.worker.cleanup.enabled"):
        settings.set(key, "false")
    for key, value in more.items():
        settings.set(key, value)
    return settings


def start(
    root: Path, spark: SparkSession, disturb: Callable[[MicroBatches, int], None], **how: Any
) -> StreamingJoinQuery:
    """Run the join to its end, with a call before each batch; return its handle."""
    traps = Traps(root)
    call = MicroBatches.__call__

    def wrapped(batches: MicroBatches, frame: object, batch: int) -> None:
        traps.at(batch)
        disturb(batches, batch)
        call(batches, frame, batch)  # type: ignore[arg-type]

    MicroBatches.__call__ = wrapped  # type: ignore[method-assign,assignment]
    frames = {
        name: spark.readStream.schema(SPARK_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "sources" / name))
        for name in STREAMS
    }
    joined = join(query(root), frames, checkpoint=root / "checkpoint", lateness=LATENESS, key_groups=8, **how)
    running = joined.writeStream.format("parquet").trigger(availableNow=True).start(root / "out")
    running.awaitTermination()
    late = {name: [list(row.values()) for row in running.late(name).toArrow().to_pylist()] for name in STREAMS}
    (root / "late.json").write_text(json.dumps(late))
    return running


def until_slots(spark: SparkSession, wanted: int) -> None:
    """Wait until Spark can run this many tasks at a time."""
    inner, until = spark.sparkContext._jsc.sc(), time.monotonic() + WAIT_S
    while inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()) != wanted:
        assert time.monotonic() < until, f"Spark has no {wanted} slots after {WAIT_S:.0f} s"
        time.sleep(0.2)


def main(root: Path) -> None:
    url = master(HOSTS[0], {})
    workers(root, url)
    spark = session(
        url,
        **{
            **EAGER,
            "spark.driver.host": HOSTS[0],
            "spark.executor.memory": "600m",
            "spark.executor.cores": 1,
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.cores.max": 2,
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": str(root / "warehouse"),
        },
    )
    until_slots(spark, len(HOSTS))
    start(root, spark, lambda batches, batch: None, partitions=2, transport="rows")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)

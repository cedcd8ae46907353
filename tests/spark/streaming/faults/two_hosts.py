"""Runs the join on a cluster that Spark takes for two hosts, where slow tasks get a second attempt.

    python -m tests.spark.streaming.faults.two_hosts DIRECTORY [kill]

With "kill", executors are killed before batch 1 and in the middle of batch 2, and the workers read the files.

Spark starts a second attempt on another host only, and none at all when its master is local. So this starts a master
and two workers, 127.0.0.1 and 127.0.0.2, inside the driver's JVM, each with an executor of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.spark import join, session
from eddy.spark.environment.java import java_home
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from tests.spark.streaming.faults.processes import below, processes
from tests.spark.streaming.faults.traps import Traps
from tests.spark.streaming.faults.workload import LATENESS, SPARK_SCHEMA, STREAMS, query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS = ("127.0.0.1", "127.0.0.2")
EAGER = {
    "spark.speculation": True,
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "100ms",
}


def cluster(root: Path) -> str:
    """Start master and workers; return the master's URL."""
    from pyspark import SparkConf, SparkContext

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["SPARK_LOCAL_IP"] = HOSTS[0]
    SparkContext._ensure_initialized(conf=SparkConf(False).set("spark.driver.memory", "600m"))
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    settings = jvm.org.apache.spark.SparkConf(False)
    for key in ("spark.master.rest.enabled", "spark.shuffle.service.enabled", "spark.worker.cleanup.enabled"):
        settings.set(key, "false")
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, settings)._1()
    url = f"spark://{HOSTS[0]}:{master.address().port()}"
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    for number, host in enumerate(HOSTS):
        work = str(root / "work" / str(number))
        which = jvm.scala.Option.apply(number)
        none = jvm.scala.Option.empty()
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 700, urls, work, which, settings, none)
    return url


def kill_an_executor() -> None:
    """Kill one of the executors, which Spark starts again."""
    os.kill(below(os.getpid(), "CoarseGrainedExecutorBackend", processes())[0], signal.SIGKILL)


def start(root: Path, spark: SparkSession, kill: bool) -> None:
    traps = Traps(root)
    call = MicroBatches.__call__

    def wrapped(batches: MicroBatches, frame: object, batch: int) -> None:
        traps.at(batch)
        if kill and batch == 1:
            kill_an_executor()
        if kill and batch == 2:
            threading.Timer(0.1, kill_an_executor).start()
        call(batches, frame, batch)  # type: ignore[arg-type]

    MicroBatches.__call__ = wrapped  # type: ignore[method-assign,assignment]
    frames = {
        name: spark.readStream.schema(SPARK_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "sources" / name))
        for name in STREAMS
    }
    how: dict[str, Any] = {"lateness": LATENESS, "key_groups": 8, "partitions": 2}
    how["transport"] = "packed" if kill else "rows"
    joined = join(query(root), frames, checkpoint=root / "checkpoint", **how)
    running = joined.writeStream.format("parquet").trigger(availableNow=True).start(root / "out")
    running.awaitTermination()
    late = {name: [list(row.values()) for row in running.late(name).toArrow().to_pylist()] for name in STREAMS}
    (root / "late.json").write_text(json.dumps(late))
    print("engines loaded from the log:", running.batches()["loaded"].to_pylist(), flush=True)


def main(root: Path, kill: bool) -> None:
    spark = session(
        cluster(root),
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
    # Wait for both executors before the join starts.
    hosts = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getpid()).collect()
    print("executors answer", hosts, flush=True)
    start(root, spark, kill)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["kill"])
    sys.stdout.flush()
    os._exit(0)

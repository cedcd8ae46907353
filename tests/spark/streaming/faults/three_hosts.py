"""Runs the join on a cluster of three hosts: an executor dies, a host is cut off and comes back, another one dies.

    unshare --net --mount python -m tests.spark.streaming.faults.three_hosts DIRECTORY [elastic]

    batch 1   the executor of host 2 was killed before, and runs again
    batch 2   host 0 is cut off in the middle: its connections hang
    batch 4   host 0 is connected again, and Spark starts an executor there
    batch 5   the join runs in hops from now on
    batch 6   host 1 dies with its executor, in the middle

`elastic` stands for dynamic allocation, with which the stages are no barrier stages. Prints the number of tasks that
ran each batch, its placement, and the number of engines, or of nodes in hops, that it loaded from the log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from eddy.spark import session
from eddy.spark.environment.java import java_home
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from eddy.spark.streaming.driver.workers import Workers
from tests.spark.streaming.faults.network import DRIVER, NetworkHost, hosts
from tests.spark.streaming.faults.processes import kill
from tests.spark.streaming.faults.two_hosts import master, start, until_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS = 3
PATIENCE_S = 8
"""After so many seconds without an answer Spark takes a host for dead."""
JVM = os.environ.get("SPARK_SUBMIT_OPTS", "")
"""Options of all JVMs."""


class Cluster:
    """A master in this process, and a worker with one executor on each host."""

    def __init__(self, root: Path, made: list[NetworkHost]) -> None:
        self._root = root
        self.hosts = made
        self.url = master(DRIVER, {"spark.worker.timeout": str(PATIENCE_S)})
        self.workers = [self._worker(host) for host in made]

    def _worker(self, host: NetworkHost) -> subprocess.Popen[bytes]:
        environment = {
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_WORKER_OPTS": f"{JVM} -Dspark.worker.timeout={PATIENCE_S} -Dspark.network.timeout={PATIENCE_S}s",
        }
        work = self._root / "work" / host.name
        arguments = ["--host", host.address, "--cores", "1", "--memory", "700m", "--work-dir", str(work), self.url]
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), "org.apache.spark.deploy.worker.Worker", *arguments]
        return host.run(command, self._root / "local", {**os.environ, **environment})

    def stop(self, number: int) -> None:
        """Kill all that runs on a host."""
        kill(self.workers[number].pid, "")
        self.workers[number].wait()

    def kill_executor(self, number: int) -> None:
        """Kill the executor of a host, which its worker starts again."""
        kill(self.workers[number].pid, "CoarseGrainedExecutorBackend")


def run(root: Path, cluster: Cluster, spark: SparkSession) -> None:
    def disturb(batches: MicroBatches, batch: int) -> None:
        if batch == 1:
            cluster.kill_executor(2)
            time.sleep(0.5)
            until_slots(spark, HOSTS)
        if batch == 2:
            threading.Timer(0.1, cluster.hosts[0].connected, [False]).start()
        if batch == 4:
            cluster.hosts[0].connected(True)
            until_slots(spark, HOSTS)
        if batch == 5:
            batches.place("hops")
        if batch == 6:
            threading.Timer(0.1, cluster.stop, [1]).start()

    tasks: list[int] = []
    run_once = Workers._run_once

    def counted(workers: Workers, batch: int, parts: list[object], decide: object) -> object:
        reports = run_once(workers, batch, parts, decide)  # type: ignore[arg-type]
        tasks.append(len(parts))
        return reports

    Workers._run_once = counted  # type: ignore[method-assign,assignment]
    until_slots(spark, HOSTS)
    running = start(root, spark, disturb, partitions=HOSTS, transport="packed", rebalance="off")
    print("tasks", *tasks)
    for column in ("placement", "loaded"):
        print(column, *running.batches()[column].to_pylist())


def main(root: Path, elastic: bool) -> None:
    (root / "local").mkdir()
    cluster = Cluster(root, hosts(HOSTS, root / "scratch"))
    try:
        spark = session(
            cluster.url,
            **{
                "spark.driver.host": DRIVER,
                "spark.driver.bindAddress": DRIVER,
                "spark.local.dir": str(root / "local"),
                "spark.network.timeout": f"{PATIENCE_S}s",
                "spark.network.timeoutInterval": "2s",
                "spark.executor.heartbeatInterval": "1s",
                "spark.executor.memory": "600m",
                "spark.executor.cores": 1,
                "spark.executor.extraJavaOptions": JVM,
                "spark.ui.enabled": False,
                "spark.dynamicAllocation.enabled": elastic,
                "spark.dynamicAllocation.minExecutors": HOSTS,
                "spark.dynamicAllocation.maxExecutors": HOSTS,
                "spark.sql.warehouse.dir": str(root / "warehouse"),
            },
        )
        run(root, cluster, spark)
        spark.stop()
    finally:
        for number in range(HOSTS):
            cluster.stop(number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "elastic" in sys.argv)
    sys.stdout.flush()
    os._exit(0)

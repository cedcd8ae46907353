"""The program that is broken: runs the join until every batch is done, and resumes after each fault.

    python -m tests.spark.streaming.faults.driver DIRECTORY

The directory holds config.json, the sources, the checkpoint and all other files; a second start resumes where the first
was killed. Exits with 0 when all batches are done, and with 3 after an event that no fault explains.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.parquet as pq

import eddy
from eddy.spark import SparkJoinError, join, session
from eddy.spark.streaming.driver.batch_plan import BatchPlan
from eddy.spark.streaming.driver.key_groups import KeyGroupLayout, KeyGroups
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from tests.spark.streaming.faults.daemon import MODULE
from tests.spark.streaming.faults.damage import Damager
from tests.spark.streaming.faults.points import Points
from tests.spark.streaming.faults.schedule import PLACES
from tests.spark.streaming.faults.traps import WORKER_KILLED, Injected, Traps
from tests.spark.streaming.faults.workload import PLACEMENTS, PLANS, SPARK_SCHEMA, STREAMS, counted, query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

REGROUPED = "regrouped"
"""File with a line for each move, split, fragment and gathering that took effect, and for each placement in which a
micro-batch ran, fragments on the grid included."""
MOST_GROUPS = 14
SHARE, SHARE_BETWEEN = 0.7, 0.08
"""Share of the points at which such a change is requested, and of the looks of the main thread in between."""
WORKER_DIED = ("Python worker exited unexpectedly", "PythonWorkerFactory.createWorker")
"""In Spark's errors: a worker died at its work, or before it said its number."""


class Unexplained(Exception):
    """An event that must not happen, whatever the faults."""


class ProgramRun:
    """One run of the program.

    PLANS    with which it starts
    PLACES   whether its join steps are placed in other ways while it runs
    REFUSED  texts in the errors of requests that key groups may refuse
    """

    PLACES: ClassVar[bool] = True
    PLANS: ClassVar[tuple[str | None, ...]] = PLANS
    REFUSED: ClassVar[tuple[str, ...]] = ("is in fragments", "is not in fragments", "is kept for a fragment of")

    def __init__(self, root: Path) -> None:
        self._root = root
        self._config: dict[str, Any] = json.loads((root / "config.json").read_text())
        lives = root / "lives"
        with open(lives, "a") as file:
            file.write(f"{os.getpid()}\n")
        self._start_number = len(lives.read_text().splitlines())
        self._chance = random.Random(f"driver {self._config['seed']} {self._start_number}")
        self._traps = Traps(root)
        self._kills_before = 0
        """Workers killed when the run began."""
        self._local = root / "local"
        self._damager = Damager(root, self._config["sink"], self._chance)
        self._points = Points(root, self._traps, self._chance)
        self._points.install()
        self._running: StreamingJoinQuery | None = None
        self._asked: set[str] = set()
        """The kinds of changes that were requested in the present run."""
        self._fewest_tasks = 1
        self._regroups = random.Random(f"regroups {self._config['seed']} {self._start_number}")
        self._places = itertools.islice(itertools.cycle(PLACEMENTS), self._start_number, None)
        self._regrouping = threading.Lock()
        self._record_changes()
        reach = self._points.reach

        def reached(place: str) -> None:
            self._regroup(SHARE)
            reach(place)

        self._points.reach = reached  # type: ignore[method-assign]
        self._spark = session(
            "local[3,4]",
            **{
                "spark.driver.memory": "700m",
                "spark.python.daemon.module": MODULE,
                "spark.local.dir": str(self._local),
                "spark.sql.warehouse.dir": str(root / "warehouse"),
            },
        )

    # Moves, splits and fragments at every point

    def _record_changes(self) -> None:
        committed, path = KeyGroups.committed, self._root / REGROUPED

        def wrapped(key_groups: KeyGroups, batch: int, layout: KeyGroupLayout, *given: Any) -> None:
            committed(key_groups, batch, layout, *given)
            with open(path, "a") as file:
                for change in layout.changes:
                    file.write(f"{'moved by ' + change.how if change.kind == 'move' else change.kind}\n")

        KeyGroups.committed = wrapped  # type: ignore[method-assign]
        measured = MicroBatches._measured

        def wrapped_measured(batches: MicroBatches, plan: BatchPlan, *given: Any) -> None:
            measured(batches, plan, *given)
            with open(path, "a") as file:
                file.write(f"ran in {'grid' if plan.hops is None else 'hops'}\n")
                if plan.hops is None and plan.layout.tree.dealt:  # hops know no fragments
                    file.write("ran in fragments\n")

        MicroBatches._measured = wrapped_measured  # type: ignore[method-assign]

    def _had(self) -> set[str]:
        """Return the changes that took effect in the job so far, and the placements in which it ran."""
        path = self._root / REGROUPED
        return set(path.read_text().splitlines()) if path.exists() else set()

    def _placement(self) -> Any:
        """Return the next placement; first those in which the job has not run, so that a short campaign has all."""
        missing = {"ran in grid", "ran in hops"} - self._had()
        fit = (
            place
            for place in self._places
            if not missing or f"ran in {'grid' if place == 'grid' else 'hops'}" in missing
        )
        return next(fit)

    def _regroup(self, share: float) -> None:
        """Request a move, a split or fragments, and perhaps another placement; any thread."""
        with self._regrouping:
            running, chance = self._running, self._regroups
            if running is None or chance.random() > share:
                return
            if self.PLACES and chance.random() < 0.5:
                running.place(self._placement())
            mapped = running.partition_map
            group = chance.randrange(mapped.groups)
            others = [partition for partition in range(mapped.n) if partition != mapped.partitions[group]]
            dealt, had = running._batches.key_groups.tree.dealt, self._had()
            weights = {
                "fragment": 30 * (mapped.groups < (MOST_GROUPS + 6 if "split" in had else MOST_GROUPS - 2)),
                "gather": 20 * bool(dealt),
                "split": (20 if others else 50) * (mapped.groups < MOST_GROUPS),
                "moved by state": 15 * bool(others),
                "moved by jit": 15 * bool(others),
            }
            possible = [kind for kind, weight in weights.items() if weight]
            if not possible:
                return
            # First those that the job has not had, once in each run, so that a short campaign has all.
            kinds = [kind for kind in possible if kind not in had | self._asked] or possible
            (kind,) = chance.choices(kinds, [weights[kind] for kind in kinds])
            try:
                if kind == "fragment":
                    to = chance.choices(range(mapped.n), k=chance.randrange(1, 3))
                    running.fragment(group, chance.choice(STREAMS), to)
                elif kind == "gather":
                    running.gather(chance.choice(dealt).group)
                elif kind == "split":
                    running.split(group)
                else:
                    running.move(group, chance.choice(others), how=kind.removeprefix("moved by "))  # type: ignore[arg-type]
                self._asked.add(kind)
            except SparkJoinError as problem:
                if not any(text in str(problem) for text in self.REFUSED):
                    raise Unexplained(f"a request was refused: {problem}") from problem

    def run(self) -> None:
        """Run until all batches are done."""
        over = False
        while not over:
            self._damage()
            self._kills_before = self._worker_kills()
            self._running = None
            self._asked.clear()
            self._running = running = self._start()
            if running is not None:
                over = self._wait(running)
        self._spark.stop()

    # Between runs

    def _worker_kills(self) -> int:
        """Return how many workers were killed so far, by a trap or at random."""
        traps = sum(trap.action == "kill" and trap.place in PLACES for trap in self._traps.happened())
        return traps + len(list(self._root.glob(f"{WORKER_KILLED}*")))

    def _damage(self) -> None:
        present = self._damager.present
        if present is not None and present.must is None:
            self._note(f"{present.kind}, not read")
            self._damager.repair()
            present = None
        ended = {(trap.batch, trap.place) for trap in self._traps.happened()}
        for trap in self._traps.left():
            if present is None and (trap.batch, trap.place.removeprefix("after_")) in ended:
                (self._traps.armed / trap.name).unlink()
                if trap.place.startswith("after_"):
                    present = self._damager.inflict(trap.action)
                    if present is not None and present.must is None and present.may is None:
                        self._note(present.kind)

    def _note(self, outcome: str) -> None:
        with open(self._root / "outcomes", "a") as file:
            file.write(f"{outcome}\n")

    # A run

    def _start(self) -> StreamingJoinQuery | None:
        """Start the join with a random plan and number of partitions; return None if it was rightly refused."""
        frames = {
            name: self._spark.readStream.schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._root / "sources" / name))
            for name in STREAMS
        }
        asked, more = self._joined()
        joined = join(
            asked,
            frames,
            **self._checkpoint(),
            plan=self._chance.choice(self.PLANS),
            transport=self._config["transport"],
            lateness=self._config["lateness"],
            key_groups=8,
            partitions=self._tasks(),
            keep=self._config["keep"],
            **more,
        )
        writer = joined.writeStream
        if self._config["sink"] == "callback":
            writer = writer.foreachBatch(self._call)
        else:
            writer = writer.format(self._config["sink"]).option("path", self._root / "out")
        trigger: dict[str, Any] = {"availableNow": True}
        if self._config["trigger"] == "processingTime":
            trigger = {"processingTime": "0 seconds"}
        self._points.stop_asked.clear()
        try:
            return writer.trigger(**trigger).start()
        except SparkJoinError as refusal:
            self._explain(str(refusal))
            return None

    def _checkpoint(self) -> dict[str, Any]:
        """Return the options of the join that say where its checkpoint is."""
        return {"checkpoint": self._root / "checkpoint"}

    def _joined(self) -> tuple[eddy.Query, dict[str, Any]]:
        """Return the query, and further options of the join."""
        return query(self._root), {"placement": self._placement()}

    def _tasks(self) -> int:
        """Return how many tasks a start has; in the short form no fewer than the starts before it in this life.

        Fewer would have workers of their own (`eddy/spark/environment/pools.py`), which take long to start.
        """
        tasks = self._chance.randrange(self._fewest_tasks, 4)
        if not self._config["long"]:
            self._fewest_tasks = tasks
        return tasks

    def _wait(self, running: StreamingJoinQuery) -> bool:
        """Wait until a run ends; return whether all batches are done."""
        last = self._config["batches"] - 1
        while running.isActive and not self._points.stop_asked.is_set() and not self._is_committed(last):
            time.sleep(0.02)
        if self._points.stop_asked.is_set():
            running.stop()
            return False
        if self._is_committed(last):
            running.stop()
            self._finish(running)
            return True
        problem = running.exception()
        try:
            running.awaitTermination(1)
        except Exception as raised:
            problem = problem or raised
        if problem is None:
            raise Unexplained(f"the query ended and batch {last} is not done")
        self._explain(str(problem))
        return False

    def _is_committed(self, batch: int) -> bool:
        self._regroup(SHARE_BETWEEN)  # the main thread looks some fifty times a second
        running = self._running
        # A checkpoint in an object store has a working directory of each start.
        root = self._root / "checkpoint" if running is None else running._batches._context.checkpoint.root
        return (root / "spark" / "commits" / str(batch)).exists()

    def _explain(self, problem: str) -> None:
        """Raise Unexplained unless a fault is the reason: present damage, a killed worker, or an injected error."""
        present = self._damager.present
        pattern = None if present is None else present.must or present.may
        if present is not None and pattern is not None and re.search(pattern, problem, re.DOTALL):
            self._note(present.kind if present.must else f"{present.kind}, refused")
            self._damager.repair()
        elif any(text in problem for text in WORKER_DIED) and self._worker_kills() > self._kills_before:
            # A kill took the last attempt of a micro-batch that other faults had failed before.
            return
        elif "injected: " not in problem:
            raise Unexplained(problem)

    def _finish(self, running: StreamingJoinQuery) -> None:
        present = self._damager.present
        if present is not None and present.must is not None:
            raise Unexplained(f"{present.kind}: the error {present.must!r} did not come")
        late = {name: [list(row.values()) for row in running.late(name).toArrow().to_pylist()] for name in STREAMS}
        (self._root / "late.json").write_text(json.dumps(late))

    def _call(self, results: DataFrame, batch: int) -> None:
        """Write the rows of a batch under its number; on a second call check that they are the same."""
        self._points.fail_once(lambda: Injected("injected: the callback fails"))
        rows = results.toArrow()
        path = self._root / "out" / f"{batch:06d}.parquet"
        path.parent.mkdir(exist_ok=True)
        if path.exists() and counted(pq.read_table(path)) != counted(rows):
            raise Unexplained(f"batch {batch} was given again with other rows")
        unfinished = path.with_suffix(".tmp")
        pq.write_table(rows, unfinished)
        os.replace(unfinished, path)


def main(root: Path, kind: type[ProgramRun] = ProgramRun) -> int:
    try:
        kind(root).run()
    except Exception:
        with open(root / "unexplained", "a") as file:
            traceback.print_exc(file=file)
        traceback.print_exc()
        sys.stderr.flush()
        # Threads of a query that was not stopped must not keep the program alive.
        threading.Timer(5, os._exit, (3,)).start()
        return 3
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)

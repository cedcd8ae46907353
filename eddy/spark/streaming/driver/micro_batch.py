"""The driver's part of a micro-batch: log, join, commit, publish. Spark calls it with each batch, some of them twice.

    batch <= the newest manifest   it was decided before a crash: only its results may still have to be published
    else                           log (stage one), join (stage two), commit the manifest, publish

The manifest is the one place where a batch becomes true. Whatever ran before it can run again: other attempts write
other files, and a state that was computed but never named has a token nobody asks for.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eddy.log import LOG
from eddy.query.lateness import Late
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError, error_of_worker
from eddy.spark.job_description import described
from eddy.spark.streaming.driver.context import Run
from eddy.spark.streaming.driver.late_output import LateOutput
from eddy.spark.streaming.driver.maintenance import Tidying
from eddy.spark.streaming.driver.metrics import Figures
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load, Manual, Rebalancer, balanced
from eddy.spark.streaming.driver.resume import resume
from eddy.spark.streaming.driver.stopping import Stopping
from eddy.spark.streaming.driver.watermarks import WatermarkRules, Watermarks
from eddy.spark.streaming.state.checkpoint import recover
from eddy.spark.streaming.state.manifest import GroupState, Link, Manifest
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.state.spark_files import check_spark_files
from eddy.spark.streaming.worker.compaction import prune
from eddy.spark.streaming.worker.join_stage import (
    DONE_COLUMNS,
    LOADED,
    GroupTask,
    JoinGroups,
    PartitionDone,
    PartitionTask,
)
from eddy.spark.streaming.worker.split_stage import Told
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Settings:
    """What a job runs under that may change from one start to the next.

    partitions  tasks of the second stage
    rules       how watermarks follow from event times
    rebalancer  decides which key groups change partitions
    keep        manifests kept, and what they need
    late        per stream, what becomes of its late rows
    """

    partitions: int
    rules: WatermarkRules
    rebalancer: Rebalancer
    keep: int
    late: tuple[Late, ...]


def token_after(before: str | None, segments: Sequence[Segment], watermark: int | None) -> str:
    """Return the token of the state that these rows lead to. A replayed batch has other files, so another token."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{before} {watermark}".encode())
    for one in segments:
        digest.update(f" {one.file} {one.offset} {one.digest}".encode())
    return digest.hexdigest()


def cost_of(figures: Mapping[str, Any]) -> float:
    """Return what a key group cost in a batch, from its row of figures: seconds until its rows were joined."""
    return float(figures["ready_seconds"] + figures["join_seconds"])


class Batches:
    """Runs the micro-batches of one job, one call for each."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self._run = run
        self._settings = settings
        job, places = run.job, run.places
        self._timed = job.query.graph.timed
        streams = len(job.query.streams)
        self.figures = Figures(places.root)
        check_spark_files(run.checkpoint.spark)
        self.manifest = recover(run.checkpoint)
        self._known_to_spark = run.checkpoint.spark_planned()
        """The newest batch that Spark had planned before this start."""
        self._told = 0
        """Recoveries that were logged."""
        groups = job.shares.partitions
        if self.manifest is None:
            self._watermarks = Watermarks.none(streams)
            self._map = PartitionMap.even(groups, settings.partitions)
            self._load = Load.none(groups)
        else:
            found = resume(self.manifest, job, run.checkpoint.manifests)
            self._watermarks = found.watermarks.resumed(time.time())
            self._map = found.partition_map.with_partitions(settings.partitions)
            self._load = found.load
        self.stopping = Stopping(run.spark)
        """How the query of these batches is stopped."""
        self.problem: EddyError | None = None
        """What the last micro-batch failed with, if it is an error of this library."""
        self._asked = Manual()
        self._closing = threading.Lock()
        self._tidying = Tidying(run, settings.keep)
        self._late = LateOutput(job.query, settings.late, places.late)
        places.forget_others()
        run.sink.prepare(schema=job.query.output_schema, owner=places.state, scratch=places.root)
        self._tell_recoveries()
        LOG.info("%s starts after batch %s", self.title, "none" if self.manifest is None else self.manifest.batch)

    @property
    def title(self) -> str:
        """How log records name the job."""
        return f"{self._run.name} ({self._run.checkpoint.root})"

    def _tell_recoveries(self) -> None:
        found = self._run.checkpoint.recoveries
        for text in found[self._told :]:
            LOG.warning("%s: %s", self.title, text)
        self._told = len(found)

    @property
    def partition_map(self) -> PartitionMap:
        """The partition of each key group, as the newest batch had it."""
        return self._map

    @property
    def query(self) -> Query:
        """The query as the workers run it."""
        return self._run.job.query

    def move(self, moves: Mapping[int, int]) -> None:
        """Move key groups to other partitions from the next batch on."""
        self._map.with_moves(moves)
        self._asked.move(moves)

    def rebalance(self) -> None:
        """Deal the key groups by their load from the next batch on."""
        wanted = balanced(self._map, self._load)
        self._asked.move({one.group: one.receiver for one in self._map.moved(wanted)})

    def late_files(self, stream: int) -> list[str]:
        """Return the files of late rows of a stream, of all batches committed that are still kept."""
        return [str(path) for path in self._run.checkpoint.late_files(stream)]

    @property
    def late_counts(self) -> dict[str, int]:
        """Late rows of each stream since the start."""
        return self._late.counts

    @property
    def compaction_problem(self) -> BaseException | None:
        """Why the newest compaction failed, None if it did not."""
        return self._tidying.problem

    @property
    def recoveries(self) -> list[str]:
        """What of the checkpoint was found damaged and put right since the start, in words."""
        return list(self._run.checkpoint.recoveries)

    def forget_live_engines(self) -> None:
        """Delete the live engines of this host."""
        self._run.places.forget_arenas()

    def close(self) -> None:
        """Let another driver have the checkpoint; twice is like once, from any thread."""
        with self._closing:
            self._tidying.wait()
            self._run.checkpoint.unlock()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Run a micro-batch. `frame` is the plan of `splitting.py`; nothing of it has run yet."""
        with self.stopping.micro_batch():
            try:
                self._run_batch(frame, batch)
            except Exception as problem:
                self.problem = error_of_worker(problem)
                raise

    def _run_batch(self, frame: DataFrame, batch: int) -> None:
        if self.manifest is not None and batch <= self.manifest.batch:
            LOG.warning("%s: batch %d comes again; it was joined, and is only published", self.title, batch)
            self._publish(self.manifest)
            return
        if self._known_to_spark is not None and batch <= self._known_to_spark:
            LOG.warning("%s: batch %d comes again; it was not committed before this start", self.title, batch)
        began = time.perf_counter()
        with self._described(batch, "log rows"):
            told = Told.of(frame.toArrow(), len(self._run.job.query.streams))
        logged = time.perf_counter()
        self.stopping.check()
        ran = self._map
        manifest, done = self._join(batch, told)
        joined = time.perf_counter()
        self._run.checkpoint.commit(manifest)
        committed = time.perf_counter()
        self.manifest = manifest
        self._late.note(batch, (part.late_rows for part in done))
        self._publish(manifest)
        seconds = {
            "log": logged - began,
            "join": joined - logged,
            "commit": committed - joined,
            "publish": time.perf_counter() - committed,
        }
        groups = [one for part in done for one in part.groups]
        self.figures.add(manifest, told, self._watermarks, groups, len(ran.moved(self._map)), seconds)
        self._tidying.after(manifest, self._watermarks.engine)
        self._tell_recoveries()
        self._tell(batch, groups, ran)

    def _tell(self, batch: int, groups: list[dict[str, Any]], ran: PartitionMap) -> None:
        """Log what a batch did that an operator may want to know."""
        loaded = [one["group"] for one in groups if one["source"] == LOADED]
        if loaded:
            LOG.warning("%s: batch %d: engines of key groups %s were rebuilt from the log", self.title, batch, loaded)
        if moves := ran.moved(self._map):
            LOG.debug("%s: batch %d: key groups changed partitions: %s", self.title, batch, moves)
        for one in groups:
            if one["transitions"]:
                decided = one["group"], one["plan"], one["reason"]
                LOG.debug("%s: batch %d: key group %d runs plan %s; because: %s", self.title, batch, *decided)

    def _described(self, batch: int, stage: str) -> AbstractContextManager[None]:
        return described(self._run.spark, f"{self._run.name}: batch {batch}, {stage}")

    def _publish(self, manifest: Manifest) -> None:
        if not self._run.checkpoint.is_published(manifest.batch):
            with self._described(manifest.batch, "publish results"):
                self._run.sink.publish(manifest.batch, [one.file for one in manifest.results], self._run.spark)
            self._late.hand_over(manifest)
            self._run.checkpoint.mark_published(manifest.batch)

    def _join(self, batch: int, told: Told) -> tuple[Manifest, list[PartitionDone]]:
        """Run the second stage; return what is to be committed."""
        before = self._watermarks
        greatest = told.greatest if self._timed else (None,) * len(told.greatest)
        watermarks = before.after(greatest, time.time(), self._settings.rules)
        mapped = self._asked.plan(self._planned(batch), self._load, batch)
        rows: dict[int, list[Segment]] = defaultdict(list)
        for segment in told.segments:
            rows[segment.group].append(segment)
        groups = {} if self.manifest is None else self._tidying.compacted(self.manifest.groups)
        tasks = self._tasks(batch, rows, groups, mapped, watermarks)
        done = self._in_spark(tasks)
        plans = {one["group"]: one["plan"] for part in done for one in part.groups}
        for task in tasks:
            for one in task.groups:
                chain = groups[one.group].chain if one.group in groups else ()
                link = Link(batch, before.late_below, one.segments)
                groups[one.group] = GroupState(batch, one.after, (*chain, link), plans[one.group])
        if watermarks.engine is not None:
            spans = self._tidying.spans
            groups = {
                group: replace(state, chain=prune(state.chain, watermarks.engine, spans))
                for group, state in groups.items()
            }
        load = self._load.after({one["group"]: cost_of(one) for part in done for one in part.groups})
        manifest = Manifest(
            batch=batch,
            watermarks=watermarks.to_json(),
            partition_map=mapped.partitions,
            groups=groups,
            results=tuple(file for part in done for file in part.results),
            late=tuple(file for part in done for file in part.late),
            extra={"partitions": mapped.n, "load": load.to_json(), "options": self._run.job.options.text},
        )
        self._watermarks, self._map, self._load = watermarks, mapped, load
        return manifest, done

    def _planned(self, batch: int) -> PartitionMap:
        """Return the map that the rebalancer wants."""
        planned = self._settings.rebalancer.plan(self._map, self._load, batch)
        if (planned.groups, planned.n) != (self._map.groups, self._map.n):
            raise SparkJoinError(
                f"batch {batch}: the rebalancer {type(self._settings.rebalancer).__name__} planned {planned.n}"
                f" partitions for {planned.groups} key groups, and the join has {self._map.n} for {self._map.groups};"
                " let it answer partition_map.with_moves(…)"
            )
        return planned

    def _tasks(
        self,
        batch: int,
        rows: dict[int, list[Segment]],
        groups: dict[int, GroupState],
        mapped: PartitionMap,
        watermarks: Watermarks,
    ) -> list[PartitionTask]:
        # A plan that was found goes on, but not in place of one that is asked for now.
        same = self.manifest is not None and self.manifest.extra["options"] == self._run.job.options.text
        by_partition: dict[int, list[GroupTask]] = defaultdict(list)
        for group, own in sorted(rows.items()):
            state = groups.get(group)
            before = None if state is None else state.token
            task = GroupTask(
                group=group,
                before=before,
                after=token_after(before, own, watermarks.engine),
                segments=tuple(own),
                plan=state.plan if state is not None and same else None,
            )
            by_partition[mapped.partitions[group]].append(task)
        return [
            PartitionTask(
                batch=batch,
                partition=partition,
                previous=None if self.manifest is None else self.manifest.batch,
                late_below=self._watermarks.late_below,
                forgotten=self._watermarks.engine,
                watermark=watermarks.engine,
                staging=self._run.sink.staging(batch) if self._run.sink.writes else None,
                groups=tuple(own),
            )
            for partition, own in sorted(by_partition.items())
        ]

    def _in_spark(self, tasks: list[PartitionTask]) -> list[PartitionDone]:
        if not tasks:
            return []
        numbers = self._run.spark.range(0, len(tasks), 1, len(tasks))
        run = self._run
        with self._described(tasks[0].batch, "join"):
            joined = numbers.mapInArrow(JoinGroups(run.job, run.places, tasks, run.key), DONE_COLUMNS).toArrow()
        return [PartitionDone.unpacked(one) for one in joined.column(0).to_pylist()]

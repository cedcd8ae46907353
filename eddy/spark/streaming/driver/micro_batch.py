"""The driver's part of a micro-batch: log, join, commit, publish. Spark calls it once per batch, or again on a replay.

        batch <= the newest manifest   the batch was committed before a stop; at most its results remain to be published
    else                           log and join, commit the manifest, publish

Rows that Spark carries are logged in one Spark job and joined in another. Rows that the workers read themselves are
read, logged and joined in one Spark job.

The manifest is the single point of commitment. All earlier steps can be repeated: another attempt writes other files,
and the token of a state that no manifest names is never used.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from eddy.log import LOG, log_endless
from eddy.query.query import Query
from eddy.routing.policies import Policy, PolicyName
from eddy.spark.environment.session import one_host
from eddy.spark.errors import SparkJoinError, StreamingStateError, error_of_worker
from eddy.spark.groups.operators import operator_of
from eddy.spark.hops.placing import Placement
from eddy.spark.hops.saved import UNPLACED
from eddy.spark.job_description import described
from eddy.spark.partitioning.fragments import why_undealt
from eddy.spark.partitioning.operators import grid_operators, operator_texts, why_unplaced
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.batch_plan import BatchPlan, cost_of
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.distribution import distribute
from eddy.spark.streaming.driver.engine_requests import EngineRequests
from eddy.spark.streaming.driver.events import Events
from eddy.spark.streaming.driver.explanation import explain_job, explain_progress
from eddy.spark.streaming.driver.feed import Feed, Taken
from eddy.spark.streaming.driver.hop_works import hop_works
from eddy.spark.streaming.driver.join_tasks import partition_tasks, regrouped_states
from eddy.spark.streaming.driver.key_groups import KeyGroupLayout, KeyGroups
from eddy.spark.streaming.driver.late_output import JobLateOutput
from eddy.spark.streaming.driver.maintenance import Maintenance
from eddy.spark.streaming.driver.memory import explain_memory, shares
from eddy.spark.streaming.driver.metrics import Metrics
from eddy.spark.streaming.driver.operator_works import (
    Above,
    check_operator,
    operator_tasks,
    operators_after,
    placed,
)
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.placement import Placing
from eddy.spark.streaming.driver.rebalancing import Load
from eddy.spark.streaming.driver.resume import resume
from eddy.spark.streaming.driver.settings import Settings
from eddy.spark.streaming.driver.stopping import Stopping
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.driver.workers import Workers
from eddy.spark.streaming.state.identity import QueryChange
from eddy.spark.streaming.state.late_files import check_late_file
from eddy.spark.streaming.state.manifest import GroupState, Manifest, OperatorState, OutputFile
from eddy.spark.streaming.state.recovery import recover
from eddy.spark.streaming.state.spark_files import check_spark_files
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.input_reader import Part
from eddy.spark.streaming.worker.join_stage import Orders, Said
from eddy.spark.streaming.worker.log_stage import SPLITS, LogReport, reports_of, splits_text
from eddy.spark.streaming.worker.tasks import (
    LIVE,
    LOADED,
    MAPPED,
    BatchTask,
    OperatorsTask,
    PartitionReport,
    VersionTask,
)
from stairs.errors import EddyError
from stairs.storage.json_form import Form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MicroBatches:
    """Runs the micro-batches of one job, one call for each. `HubBatches` runs those of several queries.

    EXTRA        further state in the manifests, and its form
    KEEPS_PLANS  whether an engine that is loaded begins with the plan that it had
    """

    EXTRA: ClassVar[Mapping[str, Form]] = {}
    KEEPS_PLANS: ClassVar[bool] = True

    def __init__(self, context: JobContext, settings: Settings) -> None:
        self._context = context
        self._settings = settings
        job, locations = context.job, context.locations
        self._timed = job.query.graph.timed
        streams = len(job.query.streams)
        self.metrics = Metrics(locations.root)
        check_spark_files(context.checkpoint.spark)
        self.manifest = recover(context.checkpoint)
        self.change = self._changed()
        """The change of the query with the next batch, None without one."""
        self._planned_before = context.checkpoint.spark_planned()
        """The newest batch that Spark had planned before this start."""
        groups = job.shares.partitions
        if self.manifest is None:
            self._watermarks = Watermarks.none(streams)
            tree = SplitTree(groups, len(job.shares.counts))
            mapped, load = PartitionMap.even(groups, settings.partitions), Load.none(groups)
            placed = None
        else:
            resumed = resume(self.manifest, job, context.checkpoint.manifests, self.EXTRA)
            self._watermarks = resumed.watermarks.resumed(time.time())
            tree, load, placed = resumed.tree, resumed.load, resumed.placement
            mapped = resumed.partition_map.with_partitions(settings.partitions)
        self.key_groups = KeyGroups(
            self.title, job.shares, tree, mapped, load, settings.rebalancer, self._why_undealt()
        )
        """The key groups, and the requests to change them."""
        self._memory = settings.partitioning.memory_bytes
        self.placing = Placing(job, settings.partitions, settings.partitioning.placement, self._memory, placed)
        """Where the steps of the join run."""
        self.requests = EngineRequests(self.title, job)
        """Plans and a policy that the user requests."""
        self._held: str | None = None
        """The state of the copies of windows after the newest batch; None if it ran in one round."""
        self.stopping = Stopping(context.spark)
        """Stops the query of these batches."""
        self.problem: EddyError | None = None
        """The error of the last micro-batch, if it is an error of this library."""
        self._closing = threading.Lock()
        self._closed = False
        self._at_end = ExitStack()
        self._maintenance = Maintenance(context, settings.streaming.keep)
        self._late = JobLateOutput(job.query, settings.late, settings.failed, locations)
        names = [stream.name for stream in job.query.streams]
        self._feed = Feed(context.checkpoint.root, names, context.carried.inputs)
        self._forget = False
        locations.delete_old_engines()
        self._check_operators()
        context.sink.prepare(schema=self._schema(), job=locations.state, scratch=locations.root)
        self._events = Events(self.title, self._memory, self.metrics)
        self._events.recoveries(context.checkpoint.recoveries)
        self._workers = Workers(context, settings.partitions)
        LOG.info("%s starts after batch %s", self.title, "none" if self.manifest is None else self.manifest.batch)
        log_endless(self.title, job.query.endless)

    def _why_undealt(self) -> list[str | None]:
        """Return per stream why its rows cannot be dealt to fragments of a key group, None if they can."""
        query = self._context.job.query
        return [why_undealt(query, stream) for stream in range(len(query.streams))]

    def _schema(self) -> pa.Schema:
        """Return the columns of the rows for the sink."""
        job, grouped = self._context.job, self._context.grouped
        return job.output_schema if grouped is None else operator_of(grouped).schema

    def _changed(self) -> QueryChange | None:
        """Return the change that takes effect with the next batch, and turn the manifest into a state of the new query.

        The plans in the manifest are those of the old query, so they are left out. After an immediate change all key
        groups are new. Each start repeats this until the manifest of the next batch exists.
        """
        manifest = self.manifest
        if manifest is None:
            return None
        due = [change for change in self._context.changes if change.batch is None or change.batch > manifest.batch]
        if not due:
            return None
        fresh = any(change.how == "immediate" for change in due)
        groups = {} if fresh else {group: replace(state, plan=None) for group, state in manifest.groups.items()}
        # Rows of the new query may not be dealt in the same way, and the steps of its join have other places.
        extra = {**manifest.extra, "placement": UNPLACED}
        self.manifest = replace(manifest, groups=groups, dealt=() if fresh else manifest.dealt, extra=extra)
        return QueryChange("immediate" if fresh else "handover", manifest.batch + 1)

    @property
    def title(self) -> str:
        """The name of the job in log records."""
        return f"{self._context.name} ({self._context.checkpoint.place})"

    @property
    def checkpoint(self) -> str:
        """The directory or the URL of the checkpoint."""
        return self._context.checkpoint.place

    @property
    def query(self) -> Query:
        """The query that the workers run."""
        return self._context.job.query

    def late_files(self, stream: int) -> list[Path]:
        """Return the files of a stream's late rows, of all committed batches.

        Raises StreamingStateError for a file that is missing, damaged, or in the place of another one.
        """
        paths = self._context.checkpoint.late_files(stream)
        for path in paths:
            check_late_file(path)
        return paths

    def failed_files(self) -> list[Path]:
        """Return the files of failed rows of all committed batches; the files are checked as in `late_files`."""
        paths = self._context.checkpoint.late_files(None)
        for path in paths:
            check_late_file(path)
        return paths

    @property
    def failed_count(self) -> int:
        """Number of failed rows and groups since the start that were kept."""
        return self._late.failed_count

    @property
    def late_counts(self) -> dict[str, int]:
        """Number of late rows of each stream since the start."""
        return self._late.counts

    @property
    def compaction_problem(self) -> BaseException | None:
        """The error of the newest compaction, None if it succeeded."""
        return self._maintenance.problem

    @property
    def recoveries(self) -> list[str]:
        """Texts on damage of the checkpoint that was found and repaired since the start."""
        return list(self._context.checkpoint.recoveries)

    def explain(self) -> str:
        """Return a text on the job and on its state after the newest batch."""
        if self.manifest is None:
            state = "no batch is committed"
        else:
            state = explain_progress(self.manifest, self.key_groups)
        memory = explain_memory(self._memory, self.metrics.memory, self.metrics.hits())
        shown = f"{state}\n{memory}\n{self.placing.explain()}"
        return explain_job(self.requests.job, self._settings, self._context.carried.remark, shown)

    def operators(self) -> dict[int, dict[str, list[str]]]:
        """Return the operators of each task; see `StreamingJoinQuery.operators`."""
        job = self._context.job
        why = why_unplaced(job.query)
        if why is not None:
            raise SparkJoinError(f"this join has no node operator sets: {why}")
        hops = self.placing.hops
        if hops is not None:
            return dict.fromkeys(range(hops.partitions), operator_texts(job.query, job.shares, hops.operators()))
        operators = grid_operators(job.query, job.shares)
        return dict.fromkeys(sorted(set(self.key_groups.partition_map.partitions)), operators)

    def transition(self, plan: str, groups: int | Iterable[int] | None) -> None:
        """Change the plan of key groups with the next batch; see `StreamingJoinQuery.transition`."""
        self._check_one_plan("transition")
        self.requests.transition(plan, None if groups is None else self.key_groups.numbers(groups))

    def set_policy(self, policy: PolicyName | Policy | None) -> None:
        """Change the policy of all engines with the next batch; see `StreamingJoinQuery.set_policy`."""
        self._check_one_plan("set_policy")
        self.requests.set_policy(policy)

    def _check_one_plan(self, call: str) -> None:
        """Raise SparkJoinError unless each key group has an engine with a plan."""
        if self.placing.hops is not None:
            raise SparkJoinError(f"{call}: this join runs in hops, whose plans are those of its placement: call place")

    def place(self, placement: Placement) -> None:
        """Place the join steps in another way from the next batch on; see `StreamingJoinQuery.place`."""
        self.placing.ask(placement)

    def query_rows(self) -> list[tuple[str, str, int, int, str]]:
        """Return name, state, version, results and text of each query; none if the join is the only one."""
        return []

    def forget_engines(self) -> None:
        """Let the workers drop their engines in the next batch that runs."""
        self._forget = True

    def at_end(self, act: Callable[[], None]) -> bool:
        """Have `close` call a function. If `close` was called before, call the function now and return False."""
        with self._closing:
            if not self._closed:
                self._at_end.callback(act)
                return True
        act()
        return False

    @property
    def closed(self) -> bool:
        """Whether the job has ended."""
        return self._closed

    def close(self) -> None:
        """Release the checkpoint for another driver. Idempotent; callable from any thread."""
        with self._closing:
            self._closed = True
            self._at_end.close()
            self._workers.close()
            self._context.locations.delete_engines()
            self._maintenance.wait()
            self._context.checkpoint.lock.release()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Run a micro-batch. `frame` is a plan that has not run yet: it logs the rows that Spark carries."""
        with self.stopping.micro_batch():
            try:
                self._run_batch(frame, batch)
            except Exception as problem:
                self.problem = error_of_worker(problem)
                remote = self._context.checkpoint.remote
                if self.problem is not None and remote is not None:
                    self.problem = remote.told(self.problem)
                if self.problem is None or self.stopping.stopped():
                    raise
                # This record precedes Spark's own, which contains the whole trace and the trace of this error.
                LOG.error("%s has failed in batch %d: %s", self.title, batch, self.problem)
                raise copy(self.problem).with_traceback(None) from None

    def _run_batch(self, frame: DataFrame, batch: int) -> None:
        if self.manifest is not None and batch <= self.manifest.batch:
            LOG.warning("%s: Spark replays batch %d, which is committed; publishing it if needed", self.title, batch)
            self._publish(self.manifest)
            return
        if self._planned_before is not None and batch <= self._planned_before:
            LOG.warning("%s: Spark replays batch %d, which was not committed before this start", self.title, batch)
        if self._watermarks.has_ended:
            raise StreamingStateError(
                f"{self.title}: rows came after the end of the input, which trigger(…, finish=True) has declared; start"
                " with a new checkpoint, or take these rows away"
            )
        began = time.perf_counter()
        self._maintenance.check()
        self._begin(batch)
        layout = self.key_groups.layout(batch)
        if self.placing.next() is None and self._held is not None:
            # After hops the engines of the key groups are always loaded from the log, so no recovery is reported.
            layout = replace(layout, by_log=frozenset(range(layout.tree.groups)))
        if self._context.carried.inputs:
            plan, reports = self._join_inputs(batch, layout)
        else:
            plan, reports = self._join_rows(batch, layout, frame)
        shown = [row for report in reports for row in report.groups]
        groups = [row for row in shown if row["group"] is not None]
        load = layout.load.after({row["group"]: cost_of(row) for row in groups})
        manifest = self._manifest(batch, plan, load, reports)
        joined_at = time.perf_counter()
        self._context.checkpoint.commit(manifest)
        committed_at = time.perf_counter()
        self.manifest, self._watermarks = manifest, plan.watermarks
        self.requests.committed(manifest.groups)
        if reports:  # else no row came, and all engines and copies are unchanged
            self._held = None if plan.hops is None else plan.token
        self.key_groups.committed(batch, layout, load, {row["group"]: row for row in groups}, committed_at - joined_at)
        self._measured(plan, reports)
        self._late.count(batch, (report.late_rows for report in reports))
        self._late.count_failed(batch, sum(file.rows for file in manifest.late if file.stream is None))
        self._publish(manifest)
        seconds = {
            "log": plan.logged_at - began,
            "join": joined_at - plan.logged_at,
            "commit": committed_at - joined_at,
            "publish": time.perf_counter() - committed_at,
        }
        self.metrics.add(manifest, plan.logged, self._watermarks.engine, shown, self._figures(plan, reports), seconds)
        self._maintenance.begin(manifest, self._watermarks.engine)
        self._context.checkpoint.recoveries += [
            text for report in reports for operator in report.operators.values() for text in operator.repairs
        ]
        self._events.recoveries(self._context.checkpoint.recoveries)
        self._events.batch(batch, groups, layout)
        lost = [row["partition"] for row in shown if row["group"] is None and row["source"] == LOADED]
        if lost and plan.held is not None:
            LOG.warning("%s: batch %d: loaded the windows of nodes %s from the log", self.title, batch, lost)

    def _check_operators(self) -> None:
        """Raise StreamingStateError if the operators of the checkpoint are not those of the query, or are lost."""
        if self.manifest is not None:
            check_operator(self.manifest, self._context.grouped, self._context.locations)

    @property
    def _operators(self) -> Mapping[str, OperatorState]:
        """The states of the operators after the newest batch."""
        return {} if self.manifest is None else self.manifest.operators

    def _above(self, batch: int) -> Sequence[Above]:
        """Return the operators above the joins in a batch."""
        context, sink = self._context, self._context.sink
        if context.grouped is None:
            return ()
        return (Above("", "", context.grouped, sink.staging(batch) if sink.writes else None),)

    def _measured(self, plan: BatchPlan, reports: Sequence[PartitionReport]) -> None:
        """Pass the figures of a batch to a placement that decides by figures."""
        if not reports or not self.placing.measures:
            return
        live = plan.live_rows(self._context.job.shares)
        ran = [row for report in reports for row in report.groups]
        # The time to load or make an engine or a copy does not depend on the placement.
        usual = ran and all(row["source"] in (LIVE, MAPPED) for row in ran)
        seconds = sum(report.cpu_s for report in reports) if usual else None
        self.placing.saw(plan.logged.rows, live, [report.samples for report in reports], seconds)

    def _figures(self, plan: BatchPlan, reports: Sequence[PartitionReport]) -> dict[str, Any]:
        """Return figures of a batch for its metrics."""
        return {
            "placement": "grid" if plan.hops is None else "hops",
            "shipped_bytes": sum(report.shipped for report in reports),
            "late": sum(count.rows for report in reports for count in report.late_rows.values()),
            **self.key_groups.figures(plan.layout),
        }

    def _begin(self, batch: int) -> None:
        """Prepare a batch that was not committed before."""

    def _described(self, batch: int, stage: str) -> AbstractContextManager[None]:
        return described(self._context.spark, f"{self._context.name}: batch {batch}, {stage}")

    def _publish(self, manifest: Manifest) -> None:
        if not self._context.checkpoint.is_published(manifest.batch):
            remote = self._context.checkpoint.remote
            if remote is not None:
                remote.lease.confirm()
            with self._described(manifest.batch, "publish results"):
                self._publish_results(manifest)
            self._late.hand_over(manifest)
            self._context.checkpoint.mark_published(manifest.batch)

    def _publish_results(self, manifest: Manifest) -> None:
        sink = self._context.sink
        remote = self._context.checkpoint.remote
        if remote is not None and not one_host(self._context.spark):
            remote.fetch_staged(manifest.batch)
        try:
            sink.publish(manifest.batch, [file.file for file in manifest.results], self._context.spark)
        except Exception as problem:
            if error_of_worker(problem) is not None or self.stopping.stopped():
                raise
            raise SparkJoinError(
                f"the sink {sink._title} failed in batch {manifest.batch}: {type(problem).__name__}: {problem};"
                " the batch is committed, and the next start of the job publishes it again with the same files"
            ) from problem

    def _join_rows(
        self, batch: int, layout: KeyGroupLayout, frame: DataFrame
    ) -> tuple[BatchPlan, list[PartitionReport]]:
        """Log rows that Spark carries in one Spark job, and join them in another one."""
        with self._described(batch, "log rows"):
            # None removes the property, which pyspark's annotation does not allow.
            self._context.spark.sparkContext.setLocalProperty(SPLITS, splits_text(layout.tree))  # type: ignore[arg-type]
            logged = LogReport.of(reports_of(frame.toArrow()), len(self._context.job.query.streams))
        plan = self._plan(batch, layout, logged, None)
        self.stopping.check()
        if plan.idle:
            return plan, []
        return plan, self._run_tasks(batch, layout, lambda tasks: [[]] * tasks, lambda said: plan, logged.seconds)[1]

    def _join_inputs(self, batch: int, layout: KeyGroupLayout) -> tuple[BatchPlan, list[PartitionReport]]:
        """Read, log and join the files and messages of a batch in one Spark job."""
        streams = len(self._context.job.query.streams)
        start = self._feed.begin() if self.manifest is None else tuple(self.manifest.extra["taken"])
        end, ends = self._feed.end(batch)

        def plan(said: Sequence[Said]) -> BatchPlan:
            logged = LogReport.of((report for task in said for report in task.logged), streams)
            return self._plan(batch, layout, logged, end, ends)

        return self._run_tasks(batch, layout, lambda tasks: self._feed.deal(start, end, tasks), plan)

    def _run_tasks(
        self,
        batch: int,
        layout: KeyGroupLayout,
        deal: Callable[[int], Sequence[Sequence[Part]]],
        plan: Callable[[Sequence[Said]], BatchPlan],
        busy_s: float = 0.0,
    ) -> tuple[BatchPlan, list[PartitionReport]]:
        """Run the tasks of a batch; return the plan that the last attempt made, and the reports.

        busy_s  seconds of tasks that the batch took already
        """
        plans: list[BatchPlan] = []
        peers, policy = self.placing.hops is not None or bool(self._above(batch)), self.requests.policy

        def decide(said: Sequence[Said]) -> list[BatchTask]:
            plans.append(plan(said))
            made, holdings = plans[-1], [answer.holding for answer in said]
            addresses = tuple(answer.address for answer in said if answer.address is not None)
            operators = None
            if made.operators:
                previous = None if self.manifest is None else self.manifest.batch
                parts = placed(made.operators, holdings)
                operators = OperatorsTask(batch, previous, made.watermarks.engine, parts, self._forget)
            return [
                replace(work, addresses=addresses, operators=operators) for work in join_works(made, said, holdings)
            ]

        def join_works(made: BatchPlan, said: Sequence[Said], holdings: Sequence[Holding]) -> list[BatchTask]:
            if made.hops is not None:
                return hop_works(batch, made, said, self._forget, self._context.job.shares)
            if self._forget:
                holdings = [replace(holding, engines=dict.fromkeys(holding.engines, "")) for holding in holdings]
            lack = [policy is not None and holding.policy != policy.number for holding in holdings]
            # An engine of another policy is loaded from the log by a worker that did not have it.
            works = [
                replace(work, policy=policy if lacks else None)
                for work, lacks in zip(self._distribute(made, holdings, not any(lack)), lack, strict=True)
            ]
            if self._memory is None:
                return works
            return [
                replace(work, share=share) for work, share in zip(works, shares(self._memory, holdings), strict=True)
            ]

        def orders(tasks: int) -> list[Orders]:
            return [Orders(batch, parts, layout.tree, peers) for parts in deal(tasks)]

        with self._described(batch, "join"):
            most, check = layout.partition_map.n, self.stopping.check
            done = self._workers.run(batch, most, orders, decide, check, busy_s)
        self._forget = False
        self.metrics.memory = [task_report.memory for task_report in done]
        return plans[-1], [report for task_report in done for report in task_report.partitions]

    def _distribute(self, plan: BatchPlan, holdings: Sequence[Holding], movable: bool) -> list[BatchTask]:
        """Return the work of each task; `movable`: see `distribute`."""
        return distribute(plan.tasks, plan.layout.partition_map.n, holdings, plan.groups, movable)

    def _versions(self, batch: int) -> tuple[VersionTask, ...] | None:
        """Return the versions of queries in a batch, None if the join is the only query."""
        return None

    def _owned(
        self, batch: int, plan: BatchPlan, reports: Sequence[PartitionReport]
    ) -> tuple[tuple[OutputFile, ...], dict[str, Any]]:
        """Return the result files that count, and the further state in the manifest.

        A hub also determines here which rows the log keeps."""
        if self._context.grouped is None:
            return tuple(file for report in reports for file in report.results), {}
        done = [operator for report in reports for operator in report.operators.values()]
        return tuple(file for report in done for file in report.files), {}

    def _plan(
        self, batch: int, layout: KeyGroupLayout, logged: LogReport, taken: Taken | None, ends: bool = False
    ) -> BatchPlan:
        """Return the work on the rows of a batch; `ends` states that the batch has no rows and that the input ends."""
        logged_at, marks = time.perf_counter(), self._watermarks
        greatest = logged.greatest if self._timed else (None,) * len(logged.greatest)
        watermarks = marks.after(greatest, time.time(), self._settings.rules)
        if ends:
            watermarks = watermarks.ended()
        groups: dict[int, GroupState] = {}
        if self.manifest is not None:
            compacted = self._maintenance.compacted(self.manifest.groups)
            trees = replace(layout.tree, splits=self.manifest.splits, dealt=self.manifest.dealt)
            groups = regrouped_states(compacted, trees, layout.tree)
            if self.manifest.extra["options"] != self._context.job.options.text:
                # The plan of the last engine stays in use, unless a restart has changed the options of the join.
                groups = {group: replace(state, plan=None) for group, state in groups.items()}
        if self.KEEPS_PLANS:
            groups = self.requests.states(groups)
        sink, above, token = self._context.sink, self._above(batch), uuid.uuid4().hex
        plan = BatchPlan(
            logged=logged,
            logged_at=logged_at,
            taken=taken,
            watermarks=watermarks,
            late_below=marks.late_below,
            layout=layout,
            groups=groups,
            forgotten=marks.engine,
            staging=sink.staging(batch) if sink.writes else None,
            hops=self.placing.hops,
            held=self._held,
            token=token,
            steps=self.placing.steps(logged.rows),
            above=above,
            operators=operator_tasks(above, self._operators, token, watermarks.engine, self._settings.partitions),
        )
        tasks = partition_tasks(batch, self.manifest, plan, self._versions(batch), self.requests.first_plan)
        return replace(plan, tasks=tasks)

    def _manifest(self, batch: int, plan: BatchPlan, load: Load, reports: list[PartitionReport]) -> Manifest:
        """Return the manifest to commit."""
        watermarks, layout = plan.watermarks, plan.layout
        results, extra = self._owned(batch, plan, reports)
        # After `_owned`, because the log keeps the rows that a version of this batch needs.
        groups = plan.groups_after(batch, reports, self._maintenance.spans, self.KEEPS_PLANS)
        return Manifest(
            batch=batch,
            watermarks=watermarks.to_json(),
            partition_map=layout.partition_map.partitions,
            splits=layout.tree.splits,
            dealt=layout.tree.dealt,
            groups=groups,
            results=results,
            late=(*plan.logged.failed, *(file for report in reports for file in report.late)),
            extra={
                "partitions": layout.partition_map.n,
                "load": load.to_json(),
                "options": self._context.job.options.text,
                "taken": plan.taken,
                "placement": self.placing.saved(plan.hops),
                **extra,
            },
            operators=operators_after(plan.above, plan.operators, self._operators, reports),
        )

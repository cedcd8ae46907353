"""The task of a micro-batch: it joins its key groups (`partition_join.py`) or its nodes (`hop_join.py`).

If the rows are in files, each task first reads and logs a part of them. Then the tasks meet: the tasks report the
logged rows and the engines of their workers, and the driver distributes the key groups.

A file that a task writes does not count until the driver's manifest names it: another attempt of the same task may run
at the same time, on this host or another, and the manifest may name the files of either attempt.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from eddy.spark.errors import MalformedMessageError
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines, Holding, JoinStart, engines_of
from eddy.spark.streaming.worker.hop_join import HopJoinTask
from eddy.spark.streaming.worker.input_reader import Part, logged_inputs
from eddy.spark.streaming.worker.log_stage import StreamReport
from eddy.spark.streaming.worker.meeting import MeetingPlace, Seat, TurnedAwayError
from eddy.spark.streaming.worker.operator_stage import OperatorStage
from eddy.spark.streaming.worker.partition_join import PartitionJoin
from eddy.spark.streaming.worker.peers import Peers
from eddy.spark.streaming.worker.queries_join import QueriesJoin
from eddy.spark.streaming.worker.tasks import (
    BatchTask,
    PartitionReport,
    PartitionTask,
    TaskFailure,
    TaskReport,
)

TURNED_AWAY_S = 0.3
"""Seconds for which a worker continues to live after its meeting has ended."""
MEETING = "eddy.meeting"
"""The property of a Spark job that names the meeting of its tasks."""


@dataclass(frozen=True)
class Said:
    """The message of a task to the driver.

    holding  the engines of its worker
    logged   report on the rows that the task logged
    address  where the task listens for rows of other tasks, None if the micro-batch runs in one round
    """

    holding: Holding
    logged: tuple[StreamReport, ...]
    address: tuple[str, int] | None = None


@dataclass(frozen=True)
class Orders:
    """The first message of the driver to a task.

    batch  number of the micro-batch
    parts  the parts of files that the task reads and logs
    tree   splits of key groups
    peers  whether tasks send rows to each other: in hops, or to operators above the joins
    """

    batch: int
    parts: Sequence[Part]
    tree: SplitTree
    peers: bool = False


class RunTask:
    """The function that Spark runs in each task. The function is the same in all micro-batches, so Spark pickles it
    once.

    alone  whether Spark would repeat a task that fails alone. It would repeat it in vain, as the meeting is over, so
           the task then returns its error as a `TaskFailure`
    """

    def __init__(self, start: JoinStart, place: MeetingPlace, alone: bool) -> None:
        self._start = start
        self._place = place
        self._alone = alone

    def __call__(self, numbers: Iterable[int]) -> Iterator[TaskReport | TaskFailure]:
        (number,) = numbers  # Spark does not reuse a worker whose task leaves input unread
        try:
            return iter([self._run(number)])
        except Exception as problem:
            turned_away = isinstance(problem, TurnedAwayError)
            if self._alone:
                return iter([TaskFailure(None if turned_away else _trace(problem))])
            if turned_away:
                # Another task failed, or the query was stopped: Spark ends this task and its worker. During the pause
                # Spark gets the cause first. Without the pause the worker would print an error, as Spark no longer
                # reads.
                time.sleep(TURNED_AWAY_S)
                os._exit(0)
            if isinstance(problem, MalformedMessageError):
                # Spark logs the trace of each task: the message names the place, and the trace of the decoder adds no
                # information.
                raise problem.with_traceback(None) from None
            raise

    def _run(self, number: int) -> TaskReport:
        """Run task `number` of the meeting that its Spark job names."""
        from pyspark import TaskContext

        began = time.monotonic()
        context = TaskContext.get()
        assert context is not None
        engines = engines_of(self._start)
        with self._place.seat(context.getLocalProperty(MEETING) or "", number) as seat:
            try:
                reports, waited_s = self._work(engines, seat)
            except TurnedAwayError:
                raise
            except Exception as problem:
                if self._alone:
                    seat.fail(_trace(problem))
                raise
            busy_s = time.monotonic() - began - waited_s
            seat.leave()
        return TaskReport(reports, engines.report(), busy_s)

    def _work(self, engines: Engines, seat: Seat) -> tuple[list[PartitionReport], float]:
        """Read, meet and join; return the reports, and the seconds of waits for other tasks."""
        orders: Orders = seat.orders
        with (
            Peers(seat, self._place.key) if orders.peers else nullcontext() as peers,
            logged_inputs(engines, orders.tree, orders.batch, orders.parts) as logged,
        ):
            address = None if peers is None else peers.address
            work: BatchTask = seat.say(Said(engines.holding(), logged.reports, address))
            engines.drop(work.drop)
            engines.follow_policy(work.policy)
            engines.hand_over(work.hand_over)
            engines.partitions = work.partitions
            engines.learn(work.queries, work.versions)
            engines.begin(
                orders.batch,
                work.share,
                (group_task.group for task in work.tasks for group_task in task.groups),
            )
            reports = self._join(engines, work, peers, seat.task, logged.rows)
        return reports, seat.waited_s + (0.0 if peers is None else peers.waited_s)

    def _join(
        self,
        engines: Engines,
        work: BatchTask,
        peers: Peers | None,
        number: int,
        rows: Mapping[Segment, pa.RecordBatch],
    ) -> list[PartitionReport]:
        """Join the key groups or the nodes of task `number`, and let the operators above take the results."""
        stage = None
        if peers is not None:
            rounds = 0 if work.hops is None else work.hops.hops.rounds
            peers.meet(work.addresses, rounds + (work.operators is not None))
            if work.operators is not None:
                stage = OperatorStage(engines, peers, number, work.operators, rounds)
        if work.hops is None:
            engines.nodes.clear()
            reports = [partition_join(engines, task, rows, stage).run() for task in work.tasks]
        else:
            assert peers is not None
            reports = [HopJoinTask(engines, peers, number, work.hops, rows, stage).run()]
        if stage is None or peers is None:
            return reports
        last = stage.run()
        last.shipped = peers.sent - sum(report.shipped for report in reports)
        return [*reports, last]


def _trace(problem: Exception) -> str:
    return "".join(traceback.format_exception(problem))


def partition_join(
    engines: Engines, task: PartitionTask, known: Mapping[Segment, pa.RecordBatch], stage: OperatorStage | None
) -> PartitionJoin:
    """Return the join of a partition: of one query, or of the queries of a hub."""
    if task.versions is None:
        return PartitionJoin(engines, task, known, stage)
    return QueriesJoin(engines, task, known, stage)

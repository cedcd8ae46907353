"""The operators above the joins of a micro-batch, in the tasks that join it: groups, and first rows.

    join of each task -> results, dealt by group - exchange -> parts of the operator -> rows for the sink
                                                                                     -> file of the log

An operator has parts, each with all results of its groups. A part is in one task, that of the worker that has it; any
other worker loads it from the log. The manifest names the rows and the files of the parts, so the results of a batch
count once, with its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from eddy.spark.groups.batch import as_rows
from eddy.spark.groups.deal import Deal
from eddy.spark.groups.operators import Followed, ResultOperator, operator_of
from eddy.spark.groups.partial import SAMPLE, PartialGroups
from eddy.spark.streaming.state.manifest import Manifest, OutputFile, PartState
from eddy.spark.streaming.state.recovery import read_manifest
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.spark.streaming.worker.operator_files import GROUPS as FILE
from eddy.spark.streaming.worker.operator_files import HeldPart, OperatorFile, OperatorFiles, QueryAbove
from eddy.spark.streaming.worker.output_files import ROW_GROUP_BYTES, ResultFile
from eddy.spark.streaming.worker.peers import GROUPS, RESULTS, Peers
from eddy.spark.streaming.worker.tasks import OperatorReport, OperatorsTask, OperatorTask, PartitionReport
from eddy.spark.types import spark_schema

_PACKED = pa.schema([pa.field("groups", pa.large_binary(), False)])
"""The schema of a message with groups."""


class DealtResults:
    """Takes results of a join, and sends them to the parts of its operator, or their groups if these are far fewer."""

    def __init__(self, peers: Peers, exchange: int, code: int, task: OperatorTask, above: QueryAbove) -> None:
        self._peers, self._exchange, self._code, self._places = peers, exchange, code, task.places
        self._deal, self._schema, self._groups = Deal(above.query, len(task.places)), above.rows, above.empty.partial()
        self._sample: list[pa.Table] = []
        self._pays = False
        self.failed: list[pa.RecordBatch] = []
        """Rows of `eddy.results.failed_rows.FAILED`: results that have no group."""
        self._few: list[pa.Table] = []
        self._bytes = 0
        self.rows = 0
        """Results taken."""

    def write(self, results: pa.Table) -> None:
        """Take results."""
        if results.num_rows:
            self.rows += results.num_rows
            self._few.append(results)
            self._bytes += results.nbytes
            if self._bytes >= ROW_GROUP_BYTES:
                self._pass_on()

    def _pass_on(self) -> None:
        """Send results that wait, or let them join their groups; the first ones decide, and wait until then."""
        waiting, self._few, self._bytes = pa.concat_tables(self._few), [], 0
        if self._groups is None:
            self._send(waiting)
        elif self._pays:
            self.failed += self._groups.add(waiting)
        else:
            self._sample.append(waiting)
            if sum(map(len, self._sample)) >= SAMPLE:
                self.failed += self._groups.add(pa.concat_tables(self._sample))
                self._decide(self._groups.pays)

    def _decide(self, pays: bool) -> None:
        """Go on with groups if these pay; otherwise send the results so far."""
        sample, self._sample, self._pays = self._sample, [], pays
        if not pays:
            self._groups, self.failed = None, []
            for results in sample:
                self._send(results)

    def _send(self, results: pa.Table) -> None:
        for batch in as_rows(self._schema, results).combine_chunks().to_batches():
            for part, piece in self._deal.pieces(batch):
                self._peers.send(self._exchange, self._places[part], RESULTS, self._code, -1 - part, piece)

    def flush(self) -> None:
        """Send what is left."""
        if not self._pays:  # so few results cost less than their groups
            self._decide(False)
        if self._few:
            self._pass_on()
        if self._groups is not None:
            for part, groups in self._groups.pieces(self._deal):
                packed = pa.RecordBatch.from_arrays([pa.array([FILE.pack(groups)], pa.large_binary())], schema=_PACKED)
                self._peers.send(self._exchange, self._places[part], GROUPS, self._code, -1 - part, packed)

    def close(self) -> list[OutputFile]:
        """Return no files: the results go on when all joins of the task have ended."""
        return []


@dataclass
class _Came:
    """The results that a part received from tasks, and the packed groups of further results."""

    results: list[pa.RecordBatch] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)

    def taken_by(
        self, operator: ResultOperator, watermark: int | None, batch: int
    ) -> tuple[pa.Table | PartialGroups, Followed]:
        """Let an operator take it; return it in one piece, and the rows that follow."""
        rows = pa.Table.from_batches(self.results, operator.rows)
        if not self.groups:
            return rows, operator.follow(rows, watermark, batch)
        taken = operator.partial()
        assert taken is not None
        failed = taken.add(rows)
        for packed in self.groups:
            taken.merge(FILE.unpack(packed))
        followed = operator.follow_groups(taken, watermark)
        return taken, followed._replace(failed=(*failed, *followed.failed))


class OperatorStage:
    """The parts of all operators in one task of a micro-batch.

    number    the number of the task
    exchange  the number of the exchange of results
    """

    def __init__(self, engines: Engines, peers: Peers, number: int, task: OperatorsTask, exchange: int) -> None:
        self._engines, self._peers, self._number, self._task, self._exchange = engines, peers, number, task, exchange
        self.outlets = {
            operator.key: DealtResults(peers, exchange, code, operator, engines.above(operator.key))
            for code, operator in enumerate(task.operators)
        }
        """By key of a query where its results go."""

    def run(self) -> PartitionReport:
        """Send the results that are left, take those of the parts of this task, and return the rows that follow."""
        report, failed = PartitionReport(), FailedRows()
        for operator in self._task.operators:
            outlet = self.outlets[operator.key]
            outlet.flush()
            self._note_failed(operator, outlet.failed, failed)
        self._peers.end(self._exchange)
        came: dict[tuple[int, int], _Came] = defaultdict(_Came)
        schemas = [self._engines.above(operator.key).rows for operator in self._task.operators]
        for parcel in self._peers.receive(self._exchange):
            of_part = came[parcel.code, -1 - parcel.node]
            if parcel.kind == GROUPS:
                of_part.groups.append(parcel.batch(_PACKED).column(0)[0].as_py())
            else:
                of_part.results.append(parcel.batch(schemas[parcel.code]))
        for code, operator in enumerate(self._task.operators):
            of_parts = {part: taken for (of, part), taken in came.items() if of == code}
            report.operators[operator.key] = self._follow(operator, of_parts, failed)
        self._peers.let_go(self._exchange)
        report.late = failed.write(self._engines.locations, self._task.batch)
        return report

    def _note_failed(self, task: OperatorTask, rows: Sequence[pa.RecordBatch], failed: FailedRows) -> None:
        if self._engines.above(task.key).query.failed != "count":
            failed.add(rows, task.name.rpartition("/")[0] or None)

    def _follow(self, task: OperatorTask, came: Mapping[int, _Came], failed: FailedRows) -> OperatorReport:
        """Let the parts of an operator in this task take their results."""
        above, locations, batch = self._engines.above(task.key), self._engines.locations, self._task.batch
        if self._task.forget:
            self._engines.parts.pop(task.key, None)
        parts = self._engines.parts.setdefault(task.key, {})
        saved = OperatorFiles(locations, task.name)
        file = OperatorFile(locations, batch, task.name, self._task.watermark)
        out = ResultFile(task.staging, self._number, spark_schema(above.empty.schema), locations.keep)
        report, changed = OperatorReport(), dict[int, HeldPart]()
        for part, place in enumerate(task.places):
            held = parts.get(part)
            if held is not None and (place != self._number or held.token != task.before):
                del parts[part]
                held = None
            if place != self._number:
                continue
            if part not in came and part not in task.due:
                if held is not None:
                    held.token = task.after
                continue
            if held is None:
                held = HeldPart(operator_of(above.query, task.since), self._state(task, part))
                saved.fill(part, held.state, held.operator)
            parts.pop(part, None)  # after an error, the next attempt loads it
            taken, followed = came.get(part, _Came()).taken_by(held.operator, self._task.watermark, batch)
            out.write(followed.rows)
            self._note_failed(task, followed.failed, failed)
            held.state = report.parts[part] = file.add(part, held.state, held.operator, taken)
            changed[part] = held
        file.write()
        for part, held in changed.items():
            held.token, parts[part] = task.after, held
        report.rows, report.files, report.repairs = out.rows, out.close(), saved.repairs
        return report

    def _state(self, task: OperatorTask, part: int) -> PartState:
        """Return the state of a part before the batch."""
        return PartState() if task.before is None else self._manifest.operators[task.name].parts[part]

    @cached_property
    def _manifest(self) -> Manifest:
        assert self._task.previous is not None
        return read_manifest(self._engines.locations, self._task.previous)


Outlet = ResultFile | DealtResults
"""Where the results of a join go."""


def outlet(
    stage: OperatorStage | None,
    key: str,
    staging: Path | None,
    partition: int,
    schema: pa.Schema,
    keep: Callable[[Path], None],
) -> Outlet:
    """Return where the results of a query go: to the operator above it, or into a file of the task (`ResultFile`)."""
    if stage is not None and key in stage.outlets:
        return stage.outlets[key]
    return ResultFile(staging, partition, schema, keep)

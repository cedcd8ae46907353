"""Play a case over tables: take a runtime and the oracles through the same steps, and compare them after each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from eddy.fuzz.case import NAMES
from eddy.fuzz.play import Expected, PlanModel, RuntimeGame, Tally, compare_late, counted, policy_of
from eddy.fuzz.tables.case import (
    SCHEMA,
    BadChangeStep,
    TableArrival,
    TableCase,
    TableLoadStep,
    TablePushStep,
    TablesQuery,
    TableStep,
    TrimStep,
    WatermarkStep,
)
from eddy.fuzz.tables.changes import compare_changes
from eddy.fuzz.tables.reference import TableReference
from eddy.runtime import Runtime
from stairs.errors import InputError

BAD_OP = "delete"


class AcceptingSwitch:
    """A filter of results that accepts all, and raises while it is on."""

    on = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Accept all rows."""
        if self.on and len(batch):
            raise ValueError("the switch is on")
        return pa.repeat(True, len(batch))


class TableModel(PlanModel):
    """Expected state in the middle of a case: the oracles and the plan."""

    def __init__(self, case: TableCase) -> None:
        super().__init__(case.plan, case.strategy, case.policy, bool(case.asked.branches))
        self.case, self.reference = case, TableReference(case.asked, case.output, case.results)

    @property
    def position(self) -> int:
        """The number of the next arrival."""
        return self.reference.oracle.position

    def loads(self) -> bool:
        """Return whether rows can be loaded now: `load` finds no joined rows, and comes before all arrivals."""
        asked = self.case.asked
        special = asked.branches or asked.timed or asked.grouped is not None or asked.top is not None
        return not (special or self.position or self.reference.begun or self.scheduled)

    def watermark(self, step: WatermarkStep) -> int | None:
        """Return the watermark of a step, None if it is skipped."""
        now = self.reference.clock.now
        return (0 if now is None else now) + step.ahead if self.case.asked.timed else None


class TableGame(RuntimeGame[TableModel]):
    """A runtime in the middle of a case, and its model."""

    def __init__(self, case: TableCase) -> None:
        self.case, self.switch = case, AcceptingSwitch()
        query = case.asked.query(self.switch)
        runtime = Runtime(query, case.plan, policy=policy_of(case.policy, case.seed), **case.options())
        super().__init__(query, runtime, TableModel(case))

    def do(self, step: TableStep) -> None:
        """Do a step."""
        match step:
            case TablePushStep():
                self.push(step)
            case TableLoadStep(arrivals):
                if self.model.loads():
                    self.runtime.load(batches(self.case.asked, arrivals))
                    self.model.reference.load(arrivals)
                    self.compare_late({}, 0)
            case BadChangeStep():
                self.fail(step)
            case WatermarkStep():
                watermark = self.model.watermark(step)
                if watermark is not None:
                    table = self.runtime.push({}, watermark=watermark)
                    self.compare(table, self.model.reference.advance(watermark), 0)
            case TrimStep():
                self.runtime.trim()
            case _:
                super().do(step)

    def take(self, step: TableStep) -> bool:
        """Do a step; return False if it was refused, for lack of room or by the filter of results."""
        if not (isinstance(step, TablePushStep) and step.switched):
            return super().take(step)
        # Late rows make room for what a bound lets in.
        before, self.switch.on = self.kept(), True
        try:
            return super().take(step)
        except InputError:
            assert self.kept() == before, "a push that failed has changed the runtime"
        finally:
            self.switch.on = False
        self.check()
        return False

    def push(self, step: TablePushStep) -> None:
        """Push rows and changes, and compare the changes of the answer, the late rows and the watermark."""
        dropped = sum(self.runtime._pipeline.late.rows.dropped)
        order = [arrival.input for arrival in step.arrivals]
        table = self.runtime.push(batches(self.case.asked, step.arrivals), order, atomic=step.atomic)
        self.compare(table, self.model.reference.push(step.arrivals, step.atomic), dropped)
        self.tally.arrivals += len(step.arrivals)

    def compare(self, table: pa.Table, wanted: Expected, dropped: int) -> None:
        """Compare what a push has given with what it must give."""
        reference = self.model.reference
        compare_changes(rows_of(table), wanted.groups, reference.key)
        now = reference.clock.now
        assert self.runtime.watermark == now, f"watermark {self.runtime.watermark}, not {now}"
        self.compare_late(wanted.late, dropped)
        self.tally.pushes += 1
        self.tally.results += wanted.results

    def compare_late(self, late: dict[str, list[Any]], dropped: int) -> None:
        """Compare the late rows and the stale changes of a push."""
        got = {name: rows_of(table) for name, table in self.runtime.late().items()}
        dropped = sum(self.runtime._pipeline.late.rows.dropped) - dropped
        compare_late(got, {name: late[name] for name in self.case.asked.names if name in late}, dropped)

    def fail(self, step: BadChangeStep) -> None:
        """Push what must be refused, and check that nothing has changed."""
        arrivals = bad_arrivals(self.case.asked, step)
        if not arrivals and step.how != "order":
            return
        order = [*(arrival.input for arrival in arrivals), *([0] if step.how == "order" else [])]
        before = self.kept()
        try:
            self.runtime.push(batches(self.case.asked, arrivals), order)
        except InputError:
            assert self.kept() == before, "a push that was refused has changed the runtime"
            return
        raise AssertionError("a push that must fail did not")

    def kept(self) -> object:
        """Return what a push that fails must not change. A decision of a policy before its first row may remain."""
        return counted(self.runtime) if self.model.free else self.runtime.snapshot()


def bad_arrivals(asked: TablesQuery, step: BadChangeStep) -> tuple[TableArrival, ...]:
    """Return what a push that must fail has; what must fail for its changes has none if there is no table."""
    if step.how == "order":
        return step.arrivals
    if True not in asked.tables:
        return ()
    row = {"a": 1, "b": 1, "k": "x", "p": 1, "v": "", "w": 1, "t": 0, "z": 9}
    if step.how == "key":
        row[asked.key[-1]] = None
    op = BAD_OP if step.how == "op" else "c"
    return *step.arrivals, TableArrival(asked.tables.index(True), tuple(row.values()), op)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    return [tuple(row.values()) for row in table.to_pylist()]


def batches(asked: TablesQuery, arrivals: Sequence[TableArrival]) -> dict[str, pa.RecordBatch]:
    """Return arrivals as the batches that a push takes."""
    by_name = {}
    for i in sorted({arrival.input for arrival in arrivals}):
        rows = [{**arrival.row, "op": arrival.op} for arrival in arrivals if arrival.input == i]
        schema = SCHEMA.append(pa.field("op", pa.string())) if asked.tables[i] else SCHEMA
        by_name[NAMES[i]] = pa.RecordBatch.from_pylist(rows, schema=schema)
    return by_name


def play(case: TableCase) -> Tally:
    """Play a case to its end and return the counts of its steps. Raises the error of the first step that fails."""
    game = TableGame(case)
    for step in case.steps:
        game.take(step)
    return game.tally


def refusals(case: TableCase) -> frozenset[int]:
    """Play a case up to its first error and return the numbers of the steps that were refused."""
    game, refused = TableGame(case), set()
    with suppress(Exception):
        for k, step in enumerate(case.steps):
            if not game.take(step):
                refused.add(k)
    return frozenset(refused)

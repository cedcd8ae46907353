"""Play a case of as-of joins: take a runtime and the oracle through the same steps, and compare them after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from eddy.fuzz.as_of.answer import compare_answer
from eddy.fuzz.as_of.case import COLUMNS, AsOfArrival, AsOfCase, AsOfPushStep, AsOfQuery, AsOfStep
from eddy.fuzz.as_of.draw import DELETED
from eddy.fuzz.as_of_oracle import AsOfOracle
from eddy.fuzz.branch_oracle import Numbers
from eddy.fuzz.oracle import Row
from eddy.fuzz.play import PlanModel, RuntimeGame, Tally, policy_of
from eddy.runtime import Runtime

Changed = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]
"""The rows that end, and those that begin."""


class AsOfModel(PlanModel):
    """Expected state in the middle of a case: the oracle and the plan."""

    def __init__(self, case: AsOfCase) -> None:
        super().__init__(case.plan, case.strategy, case.policy, case.asked.branch is not None)
        self.case, self.oracle = case, case.asked.oracle(case.output == "changelog")

    @property
    def position(self) -> int:
        """The number of the next arrival."""
        return sum(map(len, self.oracle.positions.values()))

    def watermark(self, step: AsOfPushStep) -> int | None:
        """Return the watermark to give with a push: that of the step, or the present one if it is greater."""
        now = self.oracle.clock.now
        return step.watermark if step.watermark is None or now is None else max(step.watermark, now)

    def push(self, step: AsOfPushStep) -> Changed:
        """Take a push; return the rows that end, and those that begin."""
        return self._shown(*self.oracle.push(known(self.case.asked, step.arrivals), self.watermark(step)))

    def finish(self) -> Changed:
        """End the input; return the rows that end, and those that begin."""
        return self._shown(*self.oracle.finish())

    def _shown(self, ended: list[Numbers], begun: list[Numbers]) -> Changed:
        ids = self.case.results == "ids"
        return shown_rows(self.case.asked, self.oracle, ended, ids), shown_rows(
            self.case.asked, self.oracle, begun, ids
        )


class AsOfGame(RuntimeGame[AsOfModel]):
    """A runtime in the middle of a case, and its model."""

    def __init__(self, case: AsOfCase) -> None:
        self.case, query = case, case.asked.query()
        runtime = Runtime(query, case.plan, policy=policy_of(case.policy, case.seed), **case.options())
        super().__init__(query, runtime, AsOfModel(case))

    def do(self, step: AsOfStep) -> None:
        """Do a step."""
        match step:
            case AsOfPushStep(arrivals):
                order = [self.case.asked.inputs.index(arrival.name) for arrival in arrivals]
                watermark = self.case.asked.ticks(self.model.watermark(step))
                table = self.runtime.push(batches(self.case.asked, arrivals), order, watermark=watermark)
                ended, begun = self.model.push(step)
                compare_answer(table, ended, begun)
                now = self.case.asked.ticks(self.model.oracle.clock.now)
                assert self.runtime.watermark == now, f"watermark {self.runtime.watermark}, not {now}"
                self.tally.pushes += 1
                self.tally.arrivals += len(arrivals)
                self.tally.results += len(table)
            case _:
                super().do(step)

    def finish(self) -> None:
        """End the input, and compare what that decides."""
        table = self.runtime.finish()
        compare_answer(table, *self.model.finish())
        self.tally.results += len(table)
        self.runtime.check()


def known(asked: AsOfQuery, arrivals: Sequence[AsOfArrival]) -> list[tuple[str, Row, bool]]:
    """Return arrivals as the oracle takes them: what the filter of a table rejects is a delete."""
    return [
        (arrival.name, arrival.row, arrival.op in DELETED or (arrival.name in asked.rejects and not arrival.row["v"]))
        for arrival in arrivals
    ]


def shown_rows(asked: AsOfQuery, oracle: AsOfOracle, rows: Sequence[Numbers], ids: bool) -> list[tuple[Any, ...]]:
    """Return rows of the oracle as a table shows them."""
    shown: list[tuple[Any, ...]] = []
    for row in rows:
        numbers = [dict(zip(oracle.names, row, strict=True))[name] for name in asked.shown]
        if ids:
            shown.append(tuple(numbers))
            continue
        parts = [
            {} if n is None else asked.pushed(name, oracle.row(name, n))
            for name, n in zip(asked.shown, numbers, strict=True)
        ]
        shown.append(tuple(part.get(column) for part in parts for column in COLUMNS))
    return shown


def batches(asked: AsOfQuery, arrivals: Sequence[AsOfArrival]) -> dict[str, pa.RecordBatch]:
    """Return arrivals as the batches that a push takes."""
    pushed = {}
    for name in asked.inputs:
        schema, ops = asked.schema(name), name in asked.deletes
        rows = [
            {**asked.pushed(name, arrival.row), **({"op": arrival.op} if ops else {})}
            for arrival in arrivals
            if arrival.name == name
        ]
        pushed[name] = pa.RecordBatch.from_pylist(rows, schema.append(pa.field("op", pa.string())) if ops else schema)
    return pushed


def play(case: AsOfCase) -> Tally:
    """Play a case to its end and return the counts of its steps. Raises the error of the first step that fails."""
    game = AsOfGame(case)
    for step in case.steps:
        game.take(step)
    game.finish()
    return game.tally

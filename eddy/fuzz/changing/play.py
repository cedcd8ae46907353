"""Play a case: take an engine and the reference through the same steps and compare them after each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from eddy.fuzz.case import NAMES, PushStep, Row
from eddy.fuzz.changing.case import (
    BadOrderStep,
    ChangeStep,
    Element,
    EngineCase,
    EngineReloadStep,
    StartStep,
    Step,
    StopStep,
)
from eddy.fuzz.changing.given import Expected, compare_given, given_rows
from eddy.fuzz.changing.oracle import EngineOracle, OracleResult, RefusedError
from eddy.fuzz.play import Tally, policy_of
from eddy.queries.engine import Engine
from eddy.queries.kept import KeptRows
from eddy.queries.sources import POSITION
from stairs.errors import EddyError


class EngineModel:
    """The reference of a case, in terms of its steps."""

    def __init__(self, case: EngineCase) -> None:
        self.case = case
        self.oracle: EngineOracle = case.sources.oracle()
        self.versions: dict[str, int] = {}
        """Query -> the number of its next version."""

    def position(self, step: Element) -> int | None:
        """Return the argument `at` of a step."""
        return None if step.ahead is None else self.oracle.position + step.ahead

    def version(self, step: Element) -> int:
        """Return the number of the version that a step makes."""
        return 0 if isinstance(step, StartStep) else len(self.oracle.queries[step.name].versions)

    def skips(self, step: Step) -> bool:
        """Return whether a step has no query to act on."""
        return isinstance(step, ChangeStep | StopStep) and step.name not in self.oracle.queries

    def take(self, step: Element) -> bool:
        """Take a control element; return False if the engine must refuse it."""
        position = self.oracle.position + (step.ahead or 0)
        if isinstance(step, StartStep | ChangeStep) and self.case.sources.counts_otherwise(step.asked):
            return False
        try:
            match step:
                case StartStep(name, asked, _, warm):
                    self.oracle.start(name, asked.oracle(self.case.sources), position, warm)
                case ChangeStep(name, asked, how, _):
                    self.oracle.change(name, asked.oracle(self.case.sources), how, position)
                case StopStep(name, how, _):
                    self.oracle.stop(name, how, position)
        except RefusedError:
            return False
        return True

    def warm(self, name: str, version: int) -> int | None:
        """Return the greatest position from which a version may have all results; None if it did not start warm."""
        newest = self.oracle.queries[name].versions[-1]
        if newest.number != version or not newest.warm:
            return None
        assert newest.start is not None
        return min(self.oracle.kept_from(newest.query), newest.start)

    def push(self, rows: Sequence[Row]) -> dict[str, list[list[Expected]]]:
        """Take arrivals; return the results of each query in groups that may come in any order."""
        given = self.oracle.push([(NAMES[row.stream], self.case.sources.values(row)) for row in rows])
        return {name: self.groups(results) for name, results in given.items()}

    def groups(self, given: Sequence[OracleResult]) -> list[list[Expected]]:
        """Return results in groups of one version and one arrival."""
        arrived = self.oracle.arrived
        return [
            [(result.version, result.first, tuple(arrived[p].row["n"] for p in result.places)) for result in group]
            for _, group in groupby(given, key=lambda result: (result.version, result.last))
        ]

    def forget_stopped(self) -> None:
        """Forget the queries that have stopped."""
        self.oracle.queries = {name: query for name, query in self.oracle.queries.items() if query.live}

    def states(self) -> dict[str, tuple[str, list[int]]]:
        """Return the state and the live versions of each query."""
        return {name: (query.state, [v.number for v in query.live]) for name, query in self.oracle.queries.items()}


class EngineGame:
    """An engine in the middle of a case, and its model."""

    def __init__(self, case: EngineCase) -> None:
        self.case, self.model, self.tally = case, EngineModel(case), Tally(cases=1)
        policy: Any = policy_of(case.policy, case.seed)
        self.engine = Engine(case.sources.streams(), policy=policy, **case.options)
        self.engine.options["decide_every"] = case.decide_every
        self.complete_from: dict[str, dict[int, int]] = {}
        """Query -> the versions that started warm, and the positions from which their results are complete."""
        self.given: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        """The results of each query so far: the version, and the column n of each component."""

    def take(self, step: Step) -> None:
        """Do a step. Raises AssertionError if the engine is wrong."""
        if self.model.skips(step):
            return
        match step:
            case PushStep(rows):
                self.push(rows)
            case BadOrderStep(rows):
                before = seen(self.engine)
                refused(lambda: self.engine.push(batches(self.case, rows), [*(row.stream for row in rows), 0]))
                assert seen(self.engine) == before, "a push that was refused has changed the engine"
            case EngineReloadStep():
                self.reload()
            case _:
                self.order(step)
        self.check()

    def push(self, rows: Sequence[Row]) -> None:
        """Push rows and compare the results of all queries."""
        tables = self.engine.push(batches(self.case, rows), [row.stream for row in rows])
        wanted = self.model.push(rows)
        assert tables.keys() == wanted.keys(), f"results of {list(tables)}, not of {list(wanted)}"
        for name, groups in wanted.items():
            compare_given(tables[name], groups, self.complete_from[name])
            self.given.setdefault(name, []).extend(given_rows(tables[name]))
            self.tally.results += sum(map(len, groups))
        now = self.case.sources.times.ticks(self.model.oracle.clock.now)
        assert self.engine.watermark == now, f"watermark {self.engine.watermark}, not {now}"
        self.tally.pushes += 1
        self.tally.arrivals += len(rows)

    def reload(self) -> None:
        """Continue with an engine restored from a snapshot. Queries that have stopped are in neither."""
        saved, history = self.engine.snapshot(), self.engine.history()
        queries = {
            query.name: [version.query for version in query.versions]
            for query in self.engine.queries.values()
            if query.live
        }
        policy: Any = policy_of(self.case.policy, self.case.seed)
        self.engine = Engine.restore(saved, self.case.sources.streams(), queries, policy=policy)
        assert self.engine.snapshot() == saved, "the snapshot of a restored engine differs"
        assert self.engine.history().equals(history), "a restored engine has another history"
        self.model.forget_stopped()

    def order(self, step: Element) -> None:
        """Give a control element, which the engine must refuse if the model does."""
        before, version, at = seen(self.engine), self.model.version(step), self.model.position(step)
        wanted = self.model.take(step)
        if not wanted:
            refused(lambda: self.give(step, version, at))
            assert seen(self.engine) == before, "a control element that was refused has changed the engine"
            return
        self.give(step, version, at)
        self.tally.elements += 1
        if isinstance(step, StartStep):
            self.complete_from[step.name] = {}
        most = self.model.warm(step.name, version)
        if most is not None:
            known = self.engine[step.name].complete_from
            assert known <= most, f"a warm start has all results from {known} only, not from {most}"
            self.complete_from[step.name][version] = known
            kept = zip(self.case.sources.names, self.engine.joins.kept, strict=True)
            oldest = {name: _oldest(rows, self.engine.position) for name, rows in kept}
            self.model.oracle.queries[step.name].versions[-1].oldest = oldest

    def give(self, step: Element, version: int, at: int | None) -> None:
        """Call the engine."""
        match step:
            case StartStep(name, asked, _, warm):
                self.engine.start(name, asked.query(self.case.sources, version), at=at, warm=warm)
            case ChangeStep(name, asked, how, _):
                self.engine[name].change(asked.query(self.case.sources, version), how, at)
            case StopStep(name, how, _):
                self.engine[name].stop(how, at)

    def check(self) -> None:
        """Check the joins, and compare the position, the late rows and the states of the queries."""
        self.engine.check()
        oracle = self.model.oracle
        assert self.engine.position == oracle.position, f"position {self.engine.position}, not {oracle.position}"
        assert self.engine.late_counts == oracle.late, f"late rows {self.engine.late_counts}, not {oracle.late}"
        got = {name: (query.state, [v.number for v in query.live]) for name, query in self.engine.queries.items()}
        assert got == self.model.states(), f"states {got}, not {self.model.states()}"


def _oldest(kept: KeptRows, position: int) -> int:
    rows = kept.rows()
    return position if rows is None else int(rows.column(POSITION)[0].as_py())


def refused(call: Any) -> None:
    """Call the engine and expect an error of its family."""
    try:
        call()
    except EddyError:
        return
    raise AssertionError("a call that must be refused was not")


def seen(engine: Engine) -> Any:
    """Return what a call that is refused must not change."""
    states = {name: (query.state, query.complete_from, query.live) for name, query in engine.queries.items()}
    return engine.position, states, engine.history().to_pylist(), engine.metrics(), engine.late_counts


def batches(case: EngineCase, rows: Sequence[Row]) -> dict[str, pa.RecordBatch]:
    """Return rows as the batches that a push takes."""
    return {
        NAMES[i]: pa.RecordBatch.from_pylist(
            [case.sources.pushed(row) for row in rows if row.stream == i], schema=case.sources.schema(NAMES[i])
        )
        for i in sorted({row.stream for row in rows})
    }


def play(case: EngineCase) -> Tally:
    """Play a case to its end and return the counts of its steps. Raises the error of the first step that fails."""
    game = EngineGame(case)
    for step in case.steps:
        game.take(step)
    return game.tally

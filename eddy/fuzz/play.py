"""Play a case: take a runtime and the oracle through the same steps and compare them after each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from eddy.fuzz.branch_oracle import BranchOracle, Numbers
from eddy.fuzz.case import (
    CHAOS,
    NAMES,
    BadPushStep,
    Case,
    DemoteStep,
    LimitStep,
    PushStep,
    ReloadStep,
    Row,
    Step,
    TransitionStep,
)
from eddy.fuzz.chaos import Chaos
from eddy.fuzz.compare import Group, compare
from eddy.fuzz.oracle import ArrivalOutcome, Oracle, Result
from eddy.query.query import Query
from eddy.routing.policies import Policy, PolicyName
from eddy.routing.router import policy_name
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from jisc.strategies import STRATEGIES
from stairs.descriptors import C_NEXT
from stairs.errors import CapacityError, InputError, PlanError

M = TypeVar("M", bound="PlanModel")


@dataclass
class Tally:
    """Counts of the steps and rows of cases."""

    cases: int = 0
    pushes: int = 0
    arrivals: int = 0
    transitions: int = 0
    snapshots: int = 0
    elements: int = 0
    results: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class PlanModel:
    """Expected strategy, policy, plan and scheduled transitions of a runtime in the middle of a case.

    Where a policy decides, the plan is unknown until a step sets it. If the query has branches, each of its inner joins
    has a plan, and none is compared.
    """

    def __init__(self, plan: str | None, strategy: str, policy: str, branched: bool) -> None:
        self.plan, self.strategy, self.policy, self.branched = plan, strategy, policy, branched
        self.scheduled: list[tuple[int, str]] = []

    @property
    def position(self) -> int:
        """The number of the next arrival."""
        raise NotImplementedError

    @property
    def fixed(self) -> bool:
        """True if the strategy cannot change the plan."""
        return not STRATEGIES[self.strategy].changes

    @property
    def free(self) -> bool:
        """True if a policy may change the plan."""
        return not self.fixed and self.policy != "fixed"

    def at(self, step: TransitionStep) -> int | None:
        """Return the position of a transition, None for an immediate transition."""
        return None if step.ahead is None else self.position + step.ahead

    def change(self, step: TransitionStep) -> None:
        """Record a transition."""
        if step.ahead:
            self.scheduled.append((self.position + step.ahead, step.plan))
            self.scheduled.sort(key=lambda entry: entry[0])
        else:
            self.plan, self.scheduled = step.plan, self.waiting()

    def reload(self, step: ReloadStep) -> None:
        """Record a restored runtime."""
        self.plan = None if self.free else self.plan
        self.strategy, self.policy = step.strategy or self.strategy, step.policy or self.policy
        if step.plan is not None:
            self.plan, self.scheduled = step.plan, self.waiting()

    def waiting(self) -> list[tuple[int, str]]:
        """Return the transitions that are not due yet."""
        return [entry for entry in self.scheduled if entry[0] > self.position]

    def plans(self) -> list[str]:
        """Return the plans that may run now; an empty list allows any.

        A transition before the next arrival may have happened already, or wait for that arrival.
        """
        while self.scheduled and self.scheduled[0][0] < self.position:
            self.plan = self.scheduled.pop(0)[1]
        if self.free or self.plan is None or self.branched:
            return []
        return [self.plan, *(plan for at, plan in self.scheduled if at == self.position)]


class CaseModel(PlanModel):
    """Expected state in the middle of a case: the oracle and the plan."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.plan, case.strategy, case.policy, bool(case.shape.branches))
        shape, self.case = case.shape, case
        self.oracle: Oracle | BranchOracle = (
            shape.branch_oracle(case.output == "changelog") if shape.branches else shape.oracle()
        )

    @property
    def position(self) -> int:
        """The number of the next arrival."""
        return self.oracle.position


class RuntimeGame(Generic[M]):
    """A runtime in the middle of a case, its model, and the steps that all kinds of cases have."""

    def __init__(self, query: Query, runtime: Runtime, model: M) -> None:
        self.query, self.runtime, self.model, self.tally = query, runtime, model, Tally(cases=1)

    def take(self, step: Any) -> bool:
        """Do a step; return False if it was refused for lack of room. Raises AssertionError if the runtime is wrong."""
        before = counted(self.runtime)
        done = True
        try:
            self.do(step)
        except CapacityError:
            if self.runtime.max_bytes is None:
                raise
            done = False
            self.tally.refused += 1
            after = counted(self.runtime)
            assert after == before, f"a step that was refused changed the counts from {before} to {after}"
        self.check()
        return done

    def do(self, step: Any) -> None:
        """Do a step."""
        match step:
            case TransitionStep():
                self.change(step)
            case ReloadStep():
                self.reload(step)
            case DemoteStep():
                self.demote(step)
            case LimitStep(max_bytes):
                self.runtime.max_bytes = max_bytes
            case _:
                raise AssertionError(f"{step} is no step of this kind of case")

    def change(self, step: TransitionStep) -> None:
        """Change the plan, or expect an error if the strategy cannot change it."""
        if not self.model.fixed:
            self.runtime.transition(step.plan, self.model.at(step), step.store, box=step.box)
            self.model.change(step)
            self.tally.transitions += 1
            return
        try:
            self.runtime.transition(step.plan, at=self.model.at(step))
        except PlanError:
            return
        raise AssertionError("another plan was taken")

    def reload(self, step: ReloadStep) -> None:
        """Continue with a runtime restored from a snapshot."""
        policy = policy_of(step.policy, step.seed)
        snapshot = self.runtime.snapshot()
        strategy = None if step.strategy is None else strategy_name(step.strategy)
        self.runtime = Runtime.restore(
            snapshot, self.query, step.plan, strategy, policy=policy, spill=self.runtime.spill
        )
        self.model.reload(step)
        self.tally.snapshots += 1

    def demote(self, step: DemoteStep) -> None:
        """Demote a key of a state, if there is one."""
        stairs = self.runtime.stairs
        if stairs:
            stair = stairs[step.state % len(stairs)]
            keys = int(stair.modules.classes[stair.by, C_NEXT])
            if keys:
                stair.demote(step.key % keys)

    def check(self) -> None:
        """Check the state, and compare the position, the plan and the scheduled transitions."""
        self.runtime.check()
        position, plans = self.model.position, self.model.plans()
        assert self.runtime.position == position, f"position {self.runtime.position}, not {position}"
        assert not plans or self.runtime.plan in plans, f"plan {self.runtime.plan}, not {' or '.join(plans)}"
        waiting = [tuple(entry) for entry in self.runtime.scheduled() if entry[0] > position]
        assert waiting == self.model.waiting(), f"scheduled {waiting}, not {self.model.waiting()}"


class Game(RuntimeGame[CaseModel]):
    """A runtime in the middle of a case, and its model."""

    def __init__(self, case: Case) -> None:
        self.case, query = case, case.shape.query()
        runtime = Runtime(query, case.plan, policy=policy_of(case.policy, case.seed), **case.options())
        super().__init__(query, runtime, CaseModel(case))
        self.use_bands()

    def do(self, step: Step) -> None:
        """Do a step."""
        match step:
            case PushStep():
                self.push(step)
            case BadPushStep():
                self.fail(step)
            case _:
                super().do(step)

    def push(self, step: PushStep) -> None:
        """Push rows and compare the results, the late rows and the watermark."""
        oracle, rows = self.model.oracle.copy(), step.rows
        watermark = given_watermark(oracle, step)
        wanted = expected(self.case, oracle, rows, watermark)
        pipeline, most = self.runtime._pipeline, self.runtime.max_bytes
        dropped = sum(pipeline.late.rows.dropped)
        times = self.case.shape.times
        order, given = [row.stream for row in rows], times.ticks(watermark)
        table = self.runtime.push(batches(self.case, rows), order, watermark=given)
        self.model.oracle = oracle
        now = times.ticks(oracle.clock.now)
        assert self.runtime.watermark == now, f"watermark {self.runtime.watermark}, not {now}"
        compare(table, wanted.groups)
        used = pipeline.nbytes
        assert most is None or used <= most, f"{used} bytes, not {most} at most"
        got = {name: late_rows["n"].to_pylist() for name, late_rows in self.runtime.late().items()}
        dropped = sum(pipeline.late.rows.dropped) - dropped
        assert most is not None or not dropped, f"{dropped} late rows were dropped without a bound"
        compare_late(got, wanted.late, dropped)
        self.tally.pushes += 1
        self.tally.arrivals += len(rows)
        self.tally.results += wanted.results

    def fail(self, step: BadPushStep) -> None:
        """Push bad rows; expect an error if the push must fail."""
        if not must_fail(self.case, self.model.oracle, step):
            return
        order = [row.stream for row in step.rows] + [0] * (step.how == "order")
        before = self.runtime.history().num_rows
        try:
            self.runtime.push(batches(self.case, step.rows, v=0 if step.how == "where" else 1), order)
        except InputError:
            # A decision made before the first row may remain; a decision made within the push must be undone.
            changed = self.runtime.history()["position"].to_pylist()[before:]
            if self.case.shape.branches:
                # Positions are those of the inner joins.
                return
            assert set(changed) <= {self.runtime.position}, f"changes of plan at {changed} were not taken back"
            return
        raise AssertionError("a push that must fail did not")

    def reload(self, step: ReloadStep) -> None:
        """Continue with a runtime restored from a snapshot."""
        super().reload(step)
        self.use_bands()

    def use_bands(self) -> None:
        """Let scans use bands as the case wants."""
        if self.case.bands:
            for engine in self.runtime._pipeline.joins.values():
                engine.modules.bands.sizes = self.case.bands

    def finish(self) -> None:
        """End the input, if the query has branches, and compare what that decides."""
        oracle = self.model.oracle
        if isinstance(oracle, BranchOracle):
            compare(self.runtime.finish(), branch_groups(self.case, oracle, [], oracle.finish()))


def play(case: Case) -> Tally:
    """Play a case to its end and return the counts of its steps. Raises the error of the first step that fails."""
    game = Game(case)
    for step in case.steps:
        game.take(step)
    game.finish()
    return game.tally


def refusals(case: Case) -> frozenset[int]:
    """Play a case up to its first error and return the numbers of the steps that were refused for lack of room."""
    game, refused = Game(case), set()
    with suppress(Exception):
        for k, step in enumerate(case.steps):
            if not game.take(step):
                refused.add(k)
    return frozenset(refused)


def counted(runtime: Runtime) -> tuple[int, int, int, list[tuple[int, str]]]:
    """Return the figures that a refused step must not change."""
    figures = runtime.metrics()
    return runtime.position, figures["results"], figures["late"], runtime.scheduled()


def policy_of(name: str | None, seed: int) -> Policy | PolicyName | None:
    """Return the argument `policy` of a runtime."""
    return Chaos(seed) if name == CHAOS else None if name is None else policy_name(name)


def compare_late(got: Mapping[str, list[Any]], late: Mapping[str, list[Any]], dropped: int) -> None:
    """Raise AssertionError unless the late rows are those expected, without as many of the oldest as were dropped."""
    kept = {name: numbers[len(numbers) - len(got.get(name, ())) :] for name, numbers in late.items()}
    assert got == {name: numbers for name, numbers in kept.items() if numbers}, f"late rows {got}, not {late}"
    lost = sum(map(len, late.values())) - sum(map(len, got.values()))
    assert lost == dropped, f"{lost} of the late rows {late} are missing, and {dropped} were dropped"


@dataclass(frozen=True)
class Expected:
    """The expected outcome of a push: result rows in groups, numbers of late rows by stream, and the result count."""

    groups: list[Group]
    late: dict[str, list[int]]
    results: int


def given_watermark(oracle: Oracle | BranchOracle, step: PushStep) -> int | None:
    """Return the watermark to give with a push: that of the step, or the present one if it is greater."""
    now = oracle.clock.now
    return step.watermark if step.watermark is None or now is None else max(step.watermark, now)


def expected(case: Case, oracle: Oracle | BranchOracle, rows: Sequence[Row], watermark: int | None = None) -> Expected:
    """Feed a push, which may give a watermark, to the oracle; return what it must give."""
    if isinstance(oracle, Oracle):
        outcomes, late = expected_outcomes(case, oracle, rows, watermark)
        results = sum(len(outcome.results) + len(outcome.expired) + len(outcome.displaced) for outcome in outcomes)
        return Expected(expected_groups(case, oracle, outcomes), late, results)
    ended, begun, fates = oracle.push(named_rows(case, rows), watermark)
    late = {}
    for row, in_time in zip(rows, fates, strict=True):
        if not in_time:
            late.setdefault(NAMES[row.stream], []).append(row.number)
    return Expected(branch_groups(case, oracle, ended, begun), late, len(ended) + len(begun))


def named_rows(case: Case, rows: Iterable[Row]) -> list[tuple[str, dict[str, Any]]]:
    """Return rows with the names of their streams."""
    return [(NAMES[row.stream], case.shape.values(row)) for row in rows]


def branch_groups(case: Case, oracle: BranchOracle, ended: list[Numbers], begun: list[Numbers]) -> list[Group]:
    """Return the rows of the table of a query with branches: those that end, then those that begin."""
    changelog = case.output == "changelog"
    if case.results == "count":
        return [[("+I", len(begun))], [("-D", len(ended))]] if changelog else [[(len(begun),)]]
    groups: list[Group] = []
    for sign, rows in (("-D", ended), ("+I", begun)):
        group: list[tuple[Any, ...]] = []
        for row in rows:
            shown = [(NAMES[i], row[i]) for i in case.shape.shown]
            ids = case.results == "ids"
            values = (n if ids or n is None else oracle.rows[name][n]["n"] for name, n in shown)
            group.append((sign, *values) if changelog else tuple(values))
        groups.append(group)
    return [group for group in groups if group]


def expected_outcomes(
    case: Case, oracle: Oracle, rows: Sequence[Row], watermark: int | None = None
) -> tuple[list[ArrivalOutcome], dict[str, list[int]]]:
    """Feed rows to the oracle; return their outcomes, and the numbers of the late rows by name of stream.

    With a watermark, the last outcome is what it ends.
    """
    late: dict[str, list[int]] = {}
    named = named_rows(case, rows)
    if watermark is None:
        outcomes = [oracle.arrive(*arrival) for arrival in named]
    else:
        outcomes, ended = oracle.push(named, watermark)
        outcomes.append(ArrivalOutcome("rejected", expired=ended))
    for row, outcome in zip(rows, outcomes, strict=False):
        if outcome.fate == "late":
            late.setdefault(NAMES[row.stream], []).append(row.number)
    return outcomes, {name: late[name] for name in NAMES if name in late}


def must_fail(case: Case, oracle: Oracle | BranchOracle, step: BadPushStep) -> bool:
    """Return whether a bad push must fail (see BadPushStep)."""
    if step.how == "order" or not case.shape.breakable:
        return step.how == "order"
    if isinstance(oracle, BranchOracle):
        # The streams of the core come first.
        first = len(oracle.rows[NAMES[0]])
        _, begun, _ = oracle.copy().push(named_rows(case, step.rows))
        return any(row[0] is not None and row[0] >= first for row in begun)
    first = len(oracle.tuples[NAMES[0]])
    outcomes, _ = expected_outcomes(case, oracle.copy(), step.rows)
    return any(result[0] >= first for outcome in outcomes for result in outcome.results)


def expected_groups(case: Case, oracle: Oracle, outcomes: Iterable[ArrivalOutcome]) -> list[Group]:
    """Return the rows of the table that a push returns: groups that follow each other, rows of a group in any order.

    In a case whose results are `ordered` each row is a group: the oracle gives them by their arrival numbers.
    """
    groups: list[Group] = []
    ended = begun = 0
    for outcome in outcomes:
        ended += len(outcome.expired) + len(outcome.displaced)
        begun += len(outcome.results)
        if case.output == "changelog":
            for group in (outcome.expired, outcome.displaced):
                groups.append([("-D", *row) for row in expected_rows(case, oracle, group)])
            groups.append([("+I", *row) for row in expected_rows(case, oracle, outcome.results)])
        else:
            groups.append(list(expected_rows(case, oracle, outcome.results)))
    if case.results == "count":
        return [[("+I", begun)], [("-D", ended)]] if case.output == "changelog" else [[(begun,)]]
    if case.ordered:
        return [[row] for group in groups for row in group]
    return [group for group in groups if group]


def expected_rows(case: Case, oracle: Oracle, results: Iterable[Result]) -> Iterator[tuple[int, ...]]:
    """Yield results in the form of a table: the column n of each of their rows, or arrival numbers."""
    for result in results:
        named = zip(case.shape.names, result, strict=True)
        yield result if case.results == "ids" else tuple(oracle.row(name, number)["n"] for name, number in named)


def batches(case: Case, rows: Iterable[Row], v: int = 1) -> dict[str, pa.RecordBatch]:
    """Return rows as the batches that a push takes; `v` is the value of column v in rows of the first stream."""
    by_stream: dict[int, list[Row]] = {}
    for row in rows:
        by_stream.setdefault(row.stream, []).append(row)
    return {
        NAMES[i]: pa.RecordBatch.from_pylist(
            [case.shape.pushed(row, v if i == 0 else 1) for row in stream_rows], schema=case.shape.schema(i)
        )
        for i, stream_rows in sorted(by_stream.items())
    }

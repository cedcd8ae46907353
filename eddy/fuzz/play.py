"""Play a case: take a runtime and a judge through the same steps and compare them after each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from eddy.fuzz.case import CHAOS, NAMES, BadPush, Case, Demote, Limit, Push, Reload, Step, Transition
from eddy.fuzz.chaos import Chaos
from eddy.fuzz.compare import Group, compare
from eddy.fuzz.judge import Judge, Result, Row, Verdict
from eddy.routing.policies import Policy
from eddy.runtime import Runtime
from jisc.strategies import STRATEGIES
from stairs.descriptors import C_NEXT
from stairs.errors import CapacityError, InputError, PlanError


@dataclass
class Tally:
    """What was done, in numbers."""

    cases: int = 0
    pushes: int = 0
    arrivals: int = 0
    transitions: int = 0
    snapshots: int = 0
    results: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        """Add the numbers of another one."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Course:
    """What is known in the middle of a case: the judge, the strategy, the plan and the changes of plan to come.

    Where a policy decides, the plan is not known until it is changed or fixed again.
    """

    case: Case
    judge: Judge = field(init=False)
    strategy: str = field(init=False)
    policy: str = field(init=False)
    plan: str | None = field(init=False)
    scheduled: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judge, self.strategy, self.plan = self.case.shape.judge(), self.case.strategy, self.case.plan
        self.policy = self.case.policy

    @property
    def fixed(self) -> bool:
        """Whether the plan cannot change."""
        return not STRATEGIES[self.strategy].changes

    @property
    def free(self) -> bool:
        """Whether a policy may change the plan."""
        return not self.fixed and self.policy != "fixed"

    def at(self, step: Transition) -> int | None:
        """Give the position of a transition, None for one at once."""
        return None if step.ahead is None else self.judge.position + step.ahead

    def change(self, step: Transition) -> None:
        """Note a transition."""
        if step.ahead:
            self.scheduled.append((self.judge.position + step.ahead, step.plan))
            self.scheduled.sort(key=lambda entry: entry[0])
        else:
            self.plan, self.scheduled = step.plan, self.waiting()

    def reload(self, step: Reload) -> None:
        """Note a restored runtime."""
        self.plan = None if self.free else self.plan
        self.strategy, self.policy = step.strategy or self.strategy, step.policy or self.policy
        if step.plan is not None:
            self.plan, self.scheduled = step.plan, self.waiting()

    def waiting(self) -> list[tuple[int, str]]:
        """Give the changes of plan that are not due yet."""
        return [entry for entry in self.scheduled if entry[0] > self.judge.position]

    def plans(self) -> list[str]:
        """Give the plans that may run now: a change before the next arrival may have happened, or wait for it.

        None at all = any may.
        """
        while self.scheduled and self.scheduled[0][0] < self.judge.position:
            self.plan = self.scheduled.pop(0)[1]
        if self.free or self.plan is None:
            return []
        return [self.plan, *(plan for at, plan in self.scheduled if at == self.judge.position)]


class Game:
    """A runtime in the middle of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.course, self.tally = case, Course(case), Tally(cases=1)
        self.query = case.shape.query()
        self.runtime = Runtime(self.query, case.plan, policy=policy_of(case.policy, case.seed), **case.options())

    def take(self, step: Step) -> bool:
        """Do a step; False = it was refused for lack of room. Raises AssertionError where the runtime is wrong."""
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
        self.see()
        return done

    def do(self, step: Step) -> None:
        """Do a step."""
        match step:
            case Push(rows):
                self.push(rows)
            case BadPush():
                self.fail(step)
            case Transition():
                self.change(step)
            case Reload():
                self.reload(step)
            case Demote():
                self.demote(step)
            case Limit(max_bytes):
                self.runtime.max_bytes = max_bytes

    def push(self, rows: tuple[Row, ...]) -> None:
        """Push rows and compare the results and the late rows."""
        judge = self.course.judge.fork()
        verdicts, late = judged(judge, rows)
        table = self.runtime.push(batches(self.case, rows), [row.stream for row in rows])
        self.course.judge = judge
        compare(table, expected_groups(self.case, judge, verdicts))
        engine, most = self.runtime._engine, self.runtime.max_bytes
        used = engine.modules.allowance.used + engine.late.rows.nbytes
        assert most is None or used <= most, f"{used} bytes, not {most} at most"
        got = {name: found["n"].to_pylist() for name, found in self.runtime.late().items()}
        assert got == late, f"late rows {got}, not {late}"
        self.tally.pushes += 1
        self.tally.arrivals += len(rows)
        self.tally.results += sum(len(v.results) + len(v.expired) + len(v.displaced) for v in verdicts)

    def fail(self, step: BadPush) -> None:
        """Push rows and expect it to fail, if it must."""
        if not must_fail(self.case, self.course.judge, step):
            return
        order = [row.stream for row in step.rows] + [0] * (step.how == "order")
        before = self.runtime.history().num_rows
        try:
            self.runtime.push(batches(self.case, step.rows, v=0 if step.how == "where" else 1), order)
        except InputError:
            # What a policy decided when the push began may stand; what it did within is gone.
            changed = self.runtime.history()["position"].to_pylist()[before:]
            assert set(changed) <= {self.runtime.position}, f"changes of plan at {changed} were not taken back"
            return
        raise AssertionError("a push that must fail did not")

    def change(self, step: Transition) -> None:
        """Change the plan, or expect to be refused."""
        if not self.course.fixed:
            self.runtime.transition(step.plan, self.course.at(step), step.store)
            self.course.change(step)
            self.tally.transitions += 1
            return
        try:
            self.runtime.transition(step.plan, at=self.course.at(step))
        except PlanError:
            return
        raise AssertionError("another plan was taken")

    def reload(self, step: Reload) -> None:
        """Go on with what is restored from a snapshot."""
        policy = policy_of(step.policy, step.seed)
        snapshot = self.runtime.snapshot()
        self.runtime = Runtime.restore(snapshot, self.query, step.plan, step.strategy, policy=policy)
        self.course.reload(step)
        self.tally.snapshots += 1

    def demote(self, step: Demote) -> None:
        """Demote a key of a state, if there is one."""
        stairs = self.runtime.stairs
        if stairs:
            stair = stairs[step.state % len(stairs)]
            keys = int(stair.modules.classes[stair.by, C_NEXT])
            if keys:
                stair.demote(step.key % keys)

    def see(self) -> None:
        """Check the state, and compare what can be seen of plans."""
        self.runtime.check()
        position, plans = self.course.judge.position, self.course.plans()
        assert self.runtime.position == position, f"position {self.runtime.position}, not {position}"
        assert not plans or self.runtime.plan in plans, f"plan {self.runtime.plan}, not {' or '.join(plans)}"
        waiting = [tuple(entry) for entry in self.runtime.scheduled() if entry[0] > position]
        assert waiting == self.course.waiting(), f"scheduled {waiting}, not {self.course.waiting()}"


def play(case: Case) -> Tally:
    """Play a case to its end and return what was done. Raises whatever goes wrong."""
    game = Game(case)
    for step in case.steps:
        game.take(step)
    return game.tally


def refusals(case: Case) -> frozenset[int]:
    """Play a case as far as it goes well and return which of its steps were refused for lack of room."""
    game, refused = Game(case), set()
    with suppress(Exception):
        for k, step in enumerate(case.steps):
            if not game.take(step):
                refused.add(k)
    return frozenset(refused)


def counted(runtime: Runtime) -> tuple[int, int, int, list[tuple[int, str]]]:
    """Give what a step that is refused leaves as it was."""
    figures = runtime.metrics()
    return runtime.position, figures["results"], figures["late"], runtime.scheduled()


def policy_of(name: str | None, seed: int) -> Policy | str | None:
    """Give what `policy=` takes."""
    return Chaos(seed) if name == CHAOS else name


def judged(judge: Judge, rows: Iterable[Row]) -> tuple[list[Verdict], dict[str, list[int]]]:
    """Let rows arrive; return the verdicts, and the tags of the late ones by the name of their stream."""
    verdicts: list[Verdict] = []
    late: dict[str, list[int]] = {}
    for row in rows:
        verdicts.append(judge.arrive(row))
        if verdicts[-1].late:
            late.setdefault(NAMES[row.stream], []).append(row.tag)
    return verdicts, {name: late[name] for name in NAMES if name in late}


def must_fail(case: Case, judge: Judge, step: BadPush) -> bool:
    """Tell whether a bad push fails: see BadPush."""
    if step.how == "order" or not case.shape.breakable:
        return step.how == "order"
    first = len(judge.rows[0])
    verdicts, _ = judged(judge.fork(), step.rows)
    return any(result[0] >= first for verdict in verdicts for result in verdict.results)


def expected_groups(case: Case, judge: Judge, verdicts: Iterable[Verdict]) -> list[Group]:
    """Return what a push gives, written as its table has it: groups that follow each other, rows in any order."""
    groups: list[Group] = []
    ended = begun = 0
    for verdict in verdicts:
        ended += len(verdict.expired) + len(verdict.displaced)
        begun += len(verdict.results)
        if case.output == "changelog":
            for group in (verdict.expired, verdict.displaced):
                groups.append([("-D", *row) for row in written(case, judge, group)])
            groups.append([("+I", *row) for row in written(case, judge, verdict.results)])
        else:
            groups.append(list(written(case, judge, verdict.results)))
    if case.results == "count":
        return [[("+I", begun)], [("-D", ended)]] if case.output == "changelog" else [[(begun,)]]
    return [group for group in groups if group]


def written(case: Case, judge: Judge, results: Iterable[Result]) -> Iterator[tuple[int, ...]]:
    """Write results as a table has them: by the tags of their rows, or by arrival numbers."""
    for result in results:
        yield result if case.results == "ids" else tuple(judge.rows[i][n].tag for i, n in enumerate(result))


def batches(case: Case, rows: Iterable[Row], v: int = 1) -> dict[str, pa.RecordBatch]:
    """Return rows as the engine takes them; `v` is written into the rows of the first stream."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.stream, []).append(row)
    return {
        NAMES[i]: pa.RecordBatch.from_pylist(
            [case.shape.values(row, v if i == 0 else 1) for row in own], schema=case.shape.schema(i)
        )
        for i, own in sorted(found.items())
    }

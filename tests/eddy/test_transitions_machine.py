"""Changing plans against the oracle: pushes, transitions, snapshots, demotions and failures in any order.

One machine serves all strategies and policies: results are the same under each of them, so a step may also change the
strategy or the policy.
A policy decides every few arrivals, so most of its decisions fall within pushes; the one called "trouble" raises now
and then, and a bound on bytes is drawn as well: a push that fails so must leave no trace.
"""

from __future__ import annotations

from tempfile import gettempdir
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import eddy
from eddy.fuzz.oracle import Oracle
from eddy.inspect.history import SCHEMA
from eddy.routing.plan_change import NO_ROOM
from jisc.plan.states import Masks, states_of
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES
from stairs.descriptors import C_NEXT
from stairs.memory.spill import SpillDirectory
from tests.cases import Arrival, BatchedPush, JoinCase, assert_changes, changes, late_rows, text_rows
from tests.draws import TIME, VALUE, fewer, plans
from tests.eddy.machine_queries import DRAWN_POLICIES, OWN_POLICIES, TroubleError, policy_of, queries

MOST_RESULTS = 60
"""Upper bound of the results of one arrival: rows with more are not pushed."""
EVERY = (1, 2, 3, 7, 20, None)
FIGURES = [name for name in SCHEMA.names if name not in ("position", "reason", "strategy", "old", "new", "stored")]
"""Columns of the history that change after the transition."""


class PlansInMotion(RuleBasedStateMachine):
    """One runtime and its oracle. The plan, the strategy and the stored states change; the results must not."""

    runtime: eddy.Runtime
    oracle: Oracle

    @initialize(
        data=st.data(),
        case=queries(),
        strategy=st.sampled_from(tuple(STRATEGIES)),
        output=st.sampled_from(("append", "changelog")),
        form=st.sampled_from(("ids", "ids", "rows", "count")),
        ordered=st.booleans(),
        renumber_at=st.sampled_from((None, 40, 80)),
        drift=st.sampled_from((0, 1)),
        skew=st.sampled_from(((0, 0, 0, 1, 1, 2), (0,), (0, 1, 2, 3))),
        background=st.sampled_from((0, 1, 3)),
        policy=st.sampled_from(DRAWN_POLICIES),
        every=st.sampled_from(EVERY),
        seed=st.integers(0, 1000),
        bound=st.sampled_from((None, None, 1.0, 1.1, 1.2, 1.4, 2.0)),
    )
    def begin(
        self,
        data: st.DataObject,
        case: JoinCase,
        strategy: str,
        output: str,
        form: str,
        ordered: bool,
        renumber_at: int | None,
        drift: int,
        skew: tuple[int, ...],
        background: int,
        policy: str,
        every: int | None,
        seed: int,
        bound: float | None,
    ) -> None:
        # The oracle would take too long without bounded windows or keys.
        drift |= len(case.streams) > 3 and any(stream.window == "unbounded" for stream in case.streams)
        self.case, self.output, self.form, self.drift, self.skew = case, output, form, drift, skew
        self.query, self.oracle, self.clock = case.query(), case.oracle(), 0
        options: dict[str, Any] = {} if renumber_at is None else {"renumber_at": renumber_at}
        if strategy in ("jisc", "eddy"):
            options["background"] = background
        self.strategy, self.policy, self.ordered = strategy, policy, ordered and form != "count"
        # Relative to the bytes of a new runtime.
        self.plans = [self._new_plan(data)]
        self.scheduled: list[tuple[int, str]] = []
        made: dict[str, Any] = {"strategy": strategy, "output": output, "store": self._store(data, self.plans[0])}
        made |= {"ids_only": form == "ids", "count_only": form == "count"}
        made["spill"] = SpillDirectory(gettempdir(), least=1) if seed % 3 == 0 else None
        empty = eddy.Runtime(self.query, self.plans[0], policy="fixed", **made)
        self.max_bytes = None if bound is None else int(bound * empty.nbytes)
        self.runtime = eddy.Runtime(
            self.query,
            self.plans[0],
            policy=policy_of(policy, seed),
            decide_every=every,
            max_bytes=self.max_bytes,
            ordered=self.ordered,
            **made,
            **options,
        )
        self.plan = self.runtime.plan

    def _new_plan(self, data: st.DataObject) -> str:
        graph = self.query.graph
        return str(data.draw(plans(self.case, lambda left, right: bool(graph.shared(left, right)))))

    def _plan(self, data: st.DataObject, back: int) -> str:
        """Draw a plan, or an earlier one."""
        if back >= len(self.plans):
            self.plans.append(self._new_plan(data))
            return self.plans[-1]
        return self.plans[-1 - back]

    def _store(self, data: st.DataObject, plan: str) -> list[str] | None:
        """Draw states of a plan to store, if the strategy lets the caller choose."""
        if self.strategy != "eddy":
            return None
        graph, names = self.query.graph, self.case.names
        known = [" ".join(names[j] for j in state.streams) for state in states_of(parse(plan, names), Masks(graph))]
        return data.draw(st.none() | st.lists(st.sampled_from(known), unique=True)) if known else None

    @property
    def fixed(self) -> bool:
        """True if the strategy cannot change the plan."""
        return not STRATEGIES[self.strategy].changes

    @property
    def free(self) -> bool:
        """True if the policy may change the plan."""
        return not self.fixed and self.policy != "fixed"

    def _canonical(self, plan: str) -> str:
        return parse(plan, self.case.names).text(self.case.names)

    @property
    def position(self) -> int:
        return sum(map(len, self.oracle.tuples.values()))

    def _rows(self, picks: bytes, value: int = 1) -> list[Arrival]:
        """Make a row of each six bytes. With a drift, all keys disappear in the end and their ids are reused."""
        rows = []
        for k in range(0, len(picks) - 5, 6):
            pick = picks[k : k + 6]
            i = (k // 6 + pick[0]) % len(self.case.streams)
            self.clock += pick[1] % 3 == 1
            age = pick[2] % (self.case.lateness + 3) if pick[2] % 4 == 3 else 0
            row = {VALUE: value if i == 0 else pick[5] % 4, TIME: self.clock - age}
            keys = self.case.streams[i].schema.names[:-2]
            for x, column in enumerate(keys):
                row[column] = self.skew[pick[3 + x % 3] % len(self.skew)] + self.drift * self.clock // 4
            if pick[2] == 255 and keys:
                row = {**row, keys[0]: None}
            rows.append((i, row))
        return rows

    def _take(self, rows: list[Arrival], full: set[int] | None = None) -> None:
        """Push rows, without those that have too many results and those of streams that are `full`, and compare."""
        full = set() if full is None else full
        arrivals, outcomes, oracle = [], [], self.oracle.copy()
        for i, row in rows:
            if i not in full and not self.oracle.completes_more_than(MOST_RESULTS, self.case.names[i], row):
                arrivals.append((i, row))
                outcomes.append(self.oracle.arrive(self.case.names[i], row))
        dropped = self.runtime.metrics()["late_dropped"]
        table = self._pushed(BatchedPush(tuple(arrivals)))
        if table is None:
            self.oracle = oracle
            # Rows that do not fit together are pushed in parts. A stream whose single row does not fit is full.
            half = len(arrivals) // 2
            full |= {i for i, _ in arrivals} if len(arrivals) == 1 else set()
            for part in (arrivals[:half], arrivals[half:]) if half else ():
                self._take(part, full)
            return
        expected = changes(self.case, outcomes, self.oracle, self.output, self.form, self.ordered)
        assert_changes(table, expected, self.form)
        self._assert_late(late_rows(self.case, arrivals, outcomes), dropped)
        self._pass()

    def _assert_late(self, expected: dict[str, list[tuple[str, ...]]], dropped: int) -> None:
        """Compare the late rows of a push; for lack of room the oldest may be dropped and are then counted."""
        late = {name: text_rows(table) for name, table in self.runtime.late().items()}
        lost = {name: len(rows) - len(late.get(name, ())) for name, rows in expected.items()}
        assert late == {name: rows[lost[name] :] for name, rows in expected.items() if lost[name] < len(rows)}
        assert sum(lost.values()) == self.runtime.metrics()["late_dropped"] - dropped
        assert self.max_bytes is not None or not any(lost.values())

    def _pushed(self, batched: BatchedPush) -> pa.Table | None:
        """Push until the policy does not raise; a push in which it raises has not happened. None = no room."""
        may_fail = self.max_bytes is not None or self.policy == "trouble"
        while True:
            before = self._seen() if may_fail else ()
            try:
                table = self.runtime.push(batched.batches(self.case), batched.order())
                assert self.max_bytes is None or self.runtime.nbytes <= self.max_bytes
                return table
            except eddy.CapacityError:
                assert self.max_bytes is not None
                # States that could be dropped are not the reason.
                assert not self.runtime.stairs or self.strategy != "eddy" or self._too_large(batched)
                self._as_before(before)
                return None
            except TroubleError:
                assert self.policy == "trouble"
                self._as_before(before)

    def _too_large(self, batched: BatchedPush) -> bool:
        """Return whether windows, keys and payload alone leave no room for the rows of a push."""
        counts = [sum(at == i for at, _ in batched.arrivals) for i in range(len(self.case.streams))]
        try:
            self.runtime._pipeline.join.bound.room(counts)
        except eddy.CapacityError:
            return True
        return False

    def _seen(self) -> tuple[Any, ...]:
        runtime = self.runtime
        return runtime.scheduled(), runtime.position, runtime.plan, runtime.history().drop_columns(FIGURES)

    def _as_before(self, before: tuple[Any, ...]) -> None:
        """Compare with the figures before a push that failed.

        A decision made at the beginning of the push may remain, and states may have been dropped for lack of room.
        """
        scheduled, position, plan, history = self._seen()
        assert (scheduled, position) == before[:2]
        self.runtime.check()
        reasons = history["reason"].to_pylist()[before[3].num_rows :]
        decided = sum(reason != NO_ROOM for reason in reasons)
        assert decided in ((0, 1) if self.free else (0,))
        assert decided == len(reasons) or self.max_bytes is not None
        assert history.slice(0, before[3].num_rows).equals(before[3])
        assert decided or plan == before[2]
        assert all(at == position for at in history["position"].to_pylist()[before[3].num_rows :])

    def _pass(self) -> None:
        """Record the transitions that happened."""
        while self.scheduled and self.scheduled[0][0] < self.position:
            self.plan = self.scheduled.pop(0)[1]

    @rule(picks=st.binary(min_size=6, max_size=30))
    def push_few(self, picks: bytes) -> None:
        self._take(self._rows(picks))

    @rule(picks=st.binary(min_size=60, max_size=240))
    def push_many(self, picks: bytes) -> None:
        self._take(self._rows(picks))

    @rule()
    def trim(self) -> None:
        self.runtime.trim()

    @rule(picks=st.binary(min_size=12, max_size=60))
    def push_one_by_one(self, picks: bytes) -> None:
        for row in self._rows(picks):
            self._take([row])

    @precondition(lambda self: not self.fixed)
    @rule(data=st.data(), back=st.integers(0, 4), more=st.integers(0, 2))
    def change_plans(self, data: st.DataObject, back: int, more: int) -> None:
        """Change the plan, perhaps several times without an arrival between."""
        for _ in range(1 + more):
            plan, before = self._plan(data, back), self._seen()
            store = self._store(data, plan)
            try:
                assert self.runtime.transition(plan, store=store) is not None
            except eddy.CapacityError:
                assert self.max_bytes is not None
                self._as_before(before)
                return
            self.plan, self.scheduled = self._canonical(plan), [s for s in self.scheduled if s[0] > self.position]

    @precondition(lambda self: not self.fixed)
    @rule(data=st.data(), back=st.integers(0, 4), ahead=st.integers(1, 20))
    def schedule(self, data: st.DataObject, back: int, ahead: int) -> None:
        plan = self._plan(data, back)
        assert self.runtime.transition(plan, self.position + ahead, self._store(data, plan)) is None
        self.scheduled.append((self.position + ahead, self._canonical(plan)))
        self.scheduled.sort(key=lambda entry: entry[0])

    @precondition(lambda self: self.fixed)
    @rule(data=st.data(), ahead=st.sampled_from((None, 0, 3)))
    def be_refused(self, data: st.DataObject, ahead: int | None) -> None:
        with pytest.raises(eddy.PlanError):
            self.runtime.transition(self._plan(data, 4), at=None if ahead is None else self.position + ahead)

    @rule(picks=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), min_size=1, max_size=4))
    def demote(self, picks: list[tuple[int, int]]) -> None:
        stairs = self.runtime.stairs
        for pick, key in picks if stairs else ():
            stair = stairs[pick % len(stairs)]
            keys = int(stair.modules.classes[stair.by, C_NEXT])
            if keys:
                stair.demote(key % keys)

    @rule(
        data=st.data(),
        back=st.none() | st.integers(0, 4),
        strategy=st.none() | st.sampled_from(tuple(STRATEGIES)),
        policy=st.none() | st.sampled_from(DRAWN_POLICIES),
        seed=st.integers(0, 1000),
    )
    def restore(
        self, data: st.DataObject, back: int | None, strategy: str | None, policy: str | None, seed: int
    ) -> None:
        """Resume from a snapshot, with another plan, strategy or policy."""
        if strategy is not None and not STRATEGIES[strategy].changes and self.scheduled:
            return
        if policy is None and self.policy in OWN_POLICIES:
            # A snapshot has the name of a policy only.
            policy = self.policy
        plan = None if back is None else self._plan(data, back)
        was, given = self.runtime, policy_of(policy, seed)
        self.runtime = eddy.Runtime.restore(was.snapshot(), self.query, plan, strategy, policy=given, spill=was.spill)
        self.strategy, self.policy = self.runtime.strategy, self.runtime.policy
        assert self.policy == policy or policy is None
        assert plan is not None or self.runtime.plan == was.plan
        if plan is None and strategy in (None, was.strategy):
            assert (
                self.runtime._pipeline.join.present_options()["store"] == was._pipeline.join.present_options()["store"]
            )
        self.plan = self.runtime.plan
        if plan is not None:
            self.scheduled = [s for s in self.scheduled if s[0] > self.position]

    @rule(picks=st.binary(min_size=6, max_size=60))
    def fail_early(self, picks: bytes) -> None:
        """Push with an order that is too long: refused before the state changes."""
        clock = self.clock
        batched = BatchedPush(tuple(self._rows(picks)))
        self._refused(batched, [*(i for i, _ in batched.arrivals), 0])
        self.clock = clock

    @precondition(lambda self: self.case.where is not None)
    @rule(picks=st.binary(min_size=24, max_size=90))
    def fail_late(self, picks: bytes) -> None:
        """Push rows with results on which the result filter raises: the walk and its transitions are taken back."""
        clock = self.clock
        tried, arrivals = self.oracle.copy(), []
        for i, row in self._rows(picks, value=0):
            if not tried.completes_more_than(MOST_RESULTS, self.case.names[i], row):
                arrivals.append((i, row))
                try:
                    tried.arrive(self.case.names[i], row)
                except ZeroDivisionError:
                    self._refused(BatchedPush(tuple(arrivals)), [i for i, _ in arrivals])
                    break
        self.clock = clock

    def _refused(self, batched: BatchedPush, order: list[int]) -> None:
        before = self._seen()
        others = [TroubleError] * (self.policy == "trouble") + [eddy.CapacityError] * (self.max_bytes is not None)
        with pytest.raises((eddy.InputError, *others)):
            self.runtime.push(batched.batches(self.case), order)
        self._as_before(before)

    @invariant()
    def all_is_well(self) -> None:
        if not hasattr(self, "runtime"):
            return
        self.runtime.check()
        assert self.runtime.position == self.position
        if not self.free:
            due = [plan for at, plan in self.scheduled if at == self.position]
            assert self.runtime.plan in (self.plan, *due)
        waiting = [(at, plan) for at, plan in self.runtime.scheduled() if at > self.position]
        assert waiting == [entry for entry in self.scheduled if entry[0] > self.position]


TestPlansInMotion = pytest.mark.slow(PlansInMotion.TestCase)
TestPlansInMotion.settings = settings(fewer(2), stateful_step_count=40)

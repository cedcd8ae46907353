"""A refused change of plan, and a change within a push that fails, leave everything as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import eddy
from jisc.strategies import STRATEGIES
from stairs.errors import CapacityError
from stairs.stair import Stair
from tests.cases import BatchedPush, Condition, JoinCase, raising
from tests.eddy.runtime_and_oracle import CHAIN, ONE_CLASS, A, B, C, Twins, query

FIXED = [name for name, strategy in STRATEGIES.items() if not strategy.changes]


# --- refusals --------------------------------------------------------------------------------------------------------

BAD_PLANS: list[tuple[Any, str]] = [
    ("((R S) T) X", "X"),
    ("(R S) T", "U"),
    ("((R S) T) (U R)", "R"),
    ("((R S) T U", "are not closed"),
    ("(R S) T) U", "closes no '\\('"),
    ("", "empty parentheses"),
    (None, "text"),
    (7, "text"),
    ("((R T) S) U", "no predicate"),
]


@pytest.mark.parametrize(("plan", "named"), BAD_PLANS)
@pytest.mark.parametrize("at", [None, 2, 3])
def test_a_bad_plan_changes_nothing(strategy: str, plan: Any, named: str, at: int | None) -> None:
    twins = Twins(CHAIN, "((R S) T) U", strategy)
    twins.push("R1 S1.2")
    with pytest.raises(eddy.PlanError, match=named):
        twins.runtime.transition(plan, at=at)
    assert twins.runtime.plan == "((R S) T) U"
    assert twins.runtime.scheduled() == []
    assert twins.runtime.history().num_rows == 0
    assert len(twins.push("T2.3 U3")) == 1


@pytest.mark.parametrize("at", [1, 0, -1, True, "4", 4.0])
def test_a_position_that_is_past_or_none_is_refused(strategy: str, at: Any) -> None:
    twins = Twins(ONE_CLASS, A, strategy)
    twins.push("R1 S1")
    with pytest.raises(eddy.InputError, match=str(at)):
        twins.runtime.transition(B, at=at)
    assert twins.runtime.plan == A
    assert twins.runtime.scheduled() == []
    assert len(twins.push("T1 U1")) == 1


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("at", [None, 2, 5])
def test_a_strategy_whose_plan_cannot_change_says_so(name: str, at: int | None, output: str) -> None:
    twins = Twins(ONE_CLASS, A, name, output)
    twins.push("R1 S1")
    with pytest.raises(eddy.PlanError, match=name):
        twins.runtime.transition(B, at=at)
    assert twins.runtime.plan == A
    assert len(twins.push("T1 U1")) == 1


# --- pushes that fail ------------------------------------------------------------------------------------------------


def breakable(case: JoinCase) -> JoinCase:
    """Return a query with a result filter that raises on a result whose R has v = 0."""
    where = Condition(raising("R.v"), lambda row: 1 // row["R.v"] > 0)
    return replace(case, select=None, where=where)


def fail(twins: Twins, text: str) -> None:
    """Push rows with a result on which the filter raises."""
    batched = BatchedPush(tuple(twins.arrivals(text, v=0)))
    with pytest.raises(eddy.InputError, match="where"):
        twins.runtime.push(batched.batches(twins.case), [i for i, _ in batched.arrivals])
    twins.runtime.check()


@pytest.mark.parametrize("ats", [(4,), (5,), (8,), (4, 4, 6), (5, 6, 7, 8), (4, 20)])
def test_a_failed_push_takes_its_transitions_back(strategy: str, output: str, ats: tuple[int, ...]) -> None:
    twins = Twins(breakable(query(["a"] * 4, size=3)), A, strategy, output)
    twins.push("S1 T1 U1 S2")
    asked = [(at, (B, C, A, "(R T) (S U)")[k % 4]) for k, at in enumerate(ats)]
    now = [plan for at, plan in asked if at == 4]
    for at, plan in asked:
        twins.runtime.transition(plan, at=at)
    plan, before, to_come = twins.runtime.plan, twins.runtime.history(), twins.runtime.scheduled()
    assert plan == (now[-1] if now else A)
    for text in ("S1 T1 R1 U1", "R1 R1 S1", "T1 U1 S1 R1 S1 S1"):
        fail(twins, text)
        assert twins.runtime.plan == plan
        assert twins.runtime.scheduled() == to_come
        assert twins.runtime.position == 4
        assert twins.runtime.history().num_rows == before.num_rows
    twins.push("S1 T2 R1 T1")
    twins.push("U1 R2 U2 R1")
    assert twins.runtime.plan == ([p for at, p in asked if at < 20] or [plan])[-1]


def test_a_failed_push_between_transitions(strategy: str, output: str) -> None:
    twins = Twins(breakable(query(["a"] * 4, size=3)), A, strategy, output)
    twins.push("S1 T1 U1")
    for plan in (B, C, A, B, "(R U) (S T)"):
        twins.transition(plan)
        fail(twins, "S1 R1 T1")
        twins.push("T1")
        fail(twins, "R1")
        twins.push("R1 S1")


def test_a_transition_without_room_leaves_the_old_plan(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(ONE_CLASS, A, "moving-state", output)
    twins.push("R1 S1 T1 U1 R2 T2")

    def no_room(stair: Stair) -> None:
        raise CapacityError("there is no room")

    with monkeypatch.context() as patch:
        patch.setattr(Stair, "promote_all", no_room)
        with pytest.raises(CapacityError):
            twins.runtime.transition(C)
    assert twins.runtime.plan == A
    assert twins.runtime.history().num_rows == 0
    twins.runtime.check()
    twins.push("S2 U2 R1 S1 T1 U1")
    twins.transition(C)
    twins.push("S2 U2 R1 S1 T1 U1")

"""Changes of plan by name: cases that went wrong in a paper, in a sketch or in thought, under every strategy.

Arrivals are written "R1 S1.2 T1@5": the stream, its keys in the order of its columns, and its event time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from jisc.strategies import STRATEGIES
from stairs.errors import CapacityError
from stairs.fields import C_NEXT
from stairs.stair import Stair
from tests.cases import Arrival, Case, Condition, Push, StreamCase, assert_changes, changes
from tests.oracle import Oracle

CHANGING = [name for name, strategy in STRATEGIES.items() if strategy.changes]
FIXED = [name for name, strategy in STRATEGIES.items() if not strategy.changes]
MODES = ("append", "changelog")

A, B, C = "((R S) T) U", "((S T) R) U", "((S T) U) R"
"""The plans of the paper's figures 2 and 4: RS and RST; ST and RST; ST and STU."""


def query(columns: Sequence[str], window: str = "rows", size: int = 100, lateness: int = 0, **sizes: int) -> Case:
    """Give a query over R, S, T, … by the names of their key columns: "ab" has a and b. Columns of a name are equal."""
    timed = window == "range"
    streams, predicates = [], []
    last: dict[str, str] = {}
    for name, own in zip("RSTUVW", columns, strict=False):
        schema = pa.schema([(column, pa.int64()) for column in (*own, "t", "v")])
        streams.append(StreamCase(name, schema, window, sizes.get(name, size), "t" if timed else None))  # type: ignore[arg-type]
        for column in own:
            if column in last:
                predicates.append((((last[column], column), (name, column)),))
            last[column] = name
    return Case(tuple(streams), tuple(predicates), lateness=lateness)


ONE_CLASS = query(["a"] * 4)
CHAIN = query(["a", "ab", "bc", "c"])


class Twins:
    """A runtime and an oracle that are told the same."""

    def __init__(self, case: Case, plan: str, strategy: str, output: str = "changelog", **options: Any) -> None:
        self.case, self.output, self.oracle = case, output, case.oracle()
        self.runtime = eddy.Runtime(case.query(), plan, strategy=strategy, output=output, ids_only=True, **options)

    def arrivals(self, text: str, v: int = 1) -> list[Arrival]:
        """Read arrivals."""
        found = []
        for word in text.split():
            keys, _, time = word[1:].partition("@")
            i = self.case.names.index(word[0])
            own = self.case.streams[i].schema.names[:-2]
            values = dict(zip(own, map(int, keys.split(".")), strict=True))
            found.append((i, {**values, "t": int(time or 0), "v": v}))
        return found

    def push(self, text: str) -> list[tuple[Any, ...]]:
        """Push arrivals, compare with the oracle and return the changes."""
        one = Push(tuple(self.arrivals(text)))
        table = self.runtime.push(one.batches(self.case), [i for i, _ in one.arrivals])
        outcomes = [self.oracle.arrive(self.case.names[i], row) for i, row in one.arrivals]
        assert_changes(table, changes(self.case, outcomes, self.oracle, self.output, "ids"), "ids")
        self.runtime.check()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def each(self, text: str) -> list[tuple[Any, ...]]:
        """Push arrivals one by one."""
        return [row for word in text.split() for row in self.push(word)]

    def transition(self, *plans: str) -> None:
        """Change plans."""
        for plan in plans:
            self.runtime.transition(plan)
            self.runtime.check()
            assert self.runtime.plan == plan

    def demote_all(self) -> None:
        """Drop all that states store."""
        for stair in self.runtime.stairs:
            for kid in range(int(stair.modules.classes[stair.by, C_NEXT])):
                stair.demote(kid)


@pytest.fixture(params=CHANGING)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MODES)
def output(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- the papers ------------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_all_there_is(strategy: str) -> None:
    """A composite found after a transition says nothing of older ones: JISC's Procedure 1 loses (r, s_old)."""
    twins = Twins(ONE_CLASS, A, strategy, "append")
    twins.push("S1 T1")
    twins.transition(B)
    twins.push("S1")  # probes T, which is complete: (s_new, t) is known, (s_old, t) is not
    assert twins.push("R1") == []
    assert sorted(twins.push("U1")) == [(0, 0, 0, 0), (0, 1, 0, 0)]


def test_what_is_there_is_not_all_there_is_at_any_level(strategy: str) -> None:
    twins = Twins(query(["a"] * 5), "(((R S) T) U) V", strategy, "append")
    twins.push("S1 T1 U1")
    twins.transition("(((S T) U) R) V")
    twins.each("S1 U1 V1")
    assert len(twins.push("R1")) == 4
    twins.transition("((S T) (R U)) V")
    twins.each("T1 R1")
    assert len(twins.push("V1")) == 2 * 2 * 2 * 2


def test_scenario_1_an_answer_is_not_missed(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.each("S1 T1 U1")
    twins.transition(B)
    assert [row[-4:] for row in twins.push("R1")] == [(0, 0, 0, 0)]


def test_scenario_2_an_answer_that_ends_is_deleted(strategy: str) -> None:
    twins = Twins(query(["a"] * 4, S=1), A, strategy)
    twins.push("R1 S1 T1 U1")
    twins.transition(B)
    assert twins.push("S2") == [("-D", 0, 0, 0, 0)]
    assert twins.push("U1 R1 T1") == []


def test_scenario_3_what_has_left_joins_no_more(strategy: str, output: str) -> None:
    twins = Twins(query(["a"] * 4, S=1), A, strategy, output)
    twins.each("R1 S1 T1")
    twins.transition(B)
    twins.push("S2")
    assert twins.push("U1") == []


def test_scenario_3_in_event_time(strategy: str, output: str) -> None:
    twins = Twins(query(["a"] * 4, "range", 50, S=3), A, strategy, output)
    twins.each("R1@0 S1@0 T1@2")
    twins.transition(B)
    twins.push("T2@4")
    assert twins.push("U1@4") == []
    assert [row[-4:] for row in twins.each("S1@4 R1@5")] == [(0, 1, 0, 0), (1, 1, 0, 0)]


def test_figure_4_overlapping_transitions(strategy: str, output: str) -> None:
    """ST is incomplete in plan (b), so it is in plan (c)."""
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("S1 T1 S2 T2")
    twins.transition(B)
    twins.push("R1")  # key 1 of ST is completed, key 2 is not
    twins.transition(C)
    twins.push("S2")
    assert [row[-4:] for row in twins.push("U1")] == [(0, 0, 0, 0)]
    assert twins.push("U2") == []
    assert sorted(row[-4:] for row in twins.push("R2")) == [(1, 1, 1, 1), (1, 2, 1, 1)]


def test_figure_4_with_no_arrival_between(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("S1 T1 U1 U1")
    twins.transition(B, C)
    assert len(twins.push("R1")) == 2


# --- there and back --------------------------------------------------------------------------------------------------


def test_back_to_a_plan_left_half_complete(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("S1 T1 S2 T2 U1 U2")
    twins.transition(B)
    assert len(twins.push("R1")) == 1
    twins.transition(C)  # keeps ST, half complete
    twins.each("S1 T2")
    twins.transition(B)
    assert len(twins.push("R1")) == 2
    assert len(twins.push("R2")) == 2
    twins.transition(A, B, C, B)
    assert len(twins.push("U2 U1")) == 2 + 2 * 2


def test_a_state_dropped_incomplete_comes_back_with_no_mark(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("S1 T1 U1")
    twins.transition(B)
    twins.push("R1")  # key 1 of ST is attempted ...
    twins.transition(A)  # ... and ST dropped
    twins.push("S1 T1")
    twins.transition(B)
    twins.push("S1")
    assert len(twins.push("R1")) == 3 * 2


def test_a_key_taken_back_and_given_again_in_between(strategy: str, output: str) -> None:
    """Key ids are used again: a mark of the old key must not speak for the new one."""
    twins = Twins(query(["a"] * 4, size=1), A, strategy, output, renumber_at=40)
    twins.push("R1 S1 T1 U1")
    twins.transition(B)
    for key in range(2, 60):
        twins.push(f"R{key} S{key} T{key}")
        if key % 7 == 0:
            twins.transition((A, B, C)[key // 7 % 3])
        assert twins.push(f"U{key}")[-1][-4:] == (key - 1,) * 4


def test_demoted_states_are_found_again(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("R1 S1 T1")
    for plan in (B, C, "(R S) (T U)", A):
        twins.demote_all()
        twins.push("S1")
        twins.transition(plan)
        twins.push("T1")
        twins.demote_all()
        twins.push("U1")
        twins.push("R1")


def test_the_same_streams_by_another_attribute_are_another_state(strategy: str, output: str) -> None:
    """ST is indexed on `a` where R probes it, on `c` where U does."""
    twins = Twins(CHAIN, "((S T) R) U", strategy, output)
    twins.push("S1.2 T2.3 S1.5 T5.4")
    twins.transition("((S T) U) R")
    assert twins.each("U3 U4") == []
    assert len(twins.push("R1")) == 2
    twins.transition("((S T) R) U")
    twins.push("S1.2")
    assert len(twins.push("U3")) == 2
    assert len(twins.push("R1")) == 2 * 2 + 1


def test_bushy_and_back(strategy: str, output: str) -> None:
    twins = Twins(CHAIN, "((R S) T) U", strategy, output)
    twins.push("R1 S1.2 T2.3 U3")
    for plan in ("(R S) (T U)", "R (S (T U))", "(R (S T)) U", "(T U) (R S)", "((T S) R) U"):
        twins.transition(plan)
        twins.push("T2.3")
        twins.push("R1")
        twins.push("U3 S1.2")


def test_the_same_plan_again(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.push("R1 S1 T1")
    twins.transition(A)
    assert len(twins.push("U1")) == 1
    twins.transition(B)
    twins.push("S1")
    twins.transition(B, B)
    assert len(twins.push("R1")) == 2
    assert twins.runtime.history().num_rows == 4


def test_before_the_first_arrival(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    twins.transition(B, C)
    assert len(twins.each("R1 S1 T1 U1")) == 1


# --- windows that turn over while states are completed ----------------------------------------------------------------


def test_results_end_as_they_would_without_a_transition(strategy: str) -> None:
    twins = Twins(query(["a"] * 4, R=2, S=3, T=1, U=2), A, strategy)
    for k, plan in enumerate((B, C, A, "(R T) (S U)", B, A, C)):
        twins.push("R1 S1 T1 U1")
        twins.transition(plan)
        twins.push(f"S1 R{k % 2} U1 T1 S1")
        ended = twins.push("T1")
        assert [row for row in ended if row[0] == "-D"]


def test_late_rows_and_old_rows_across_transitions(strategy: str, output: str) -> None:
    case = query(["a"] * 3, "range", 4, lateness=5)
    twins = Twins(case, "(R S) T", strategy, output)
    twins.push("R1@10 S1@8 T1@9 S1@6")
    twins.transition("(S T) R")
    assert twins.push("S1@4") == []  # late
    twins.push("R1@7 T1@12 S1@11")
    twins.transition("(R T) S")
    twins.each("R1@9 S1@13 T1@17 R1@17 S1@18 T1@30")
    assert sum(len(table) for table in twins.runtime.late().values()) == 1


# --- transitions at a position ---------------------------------------------------------------------------------------

ROWS = "S1 T1 U1 S1 R1 T1 S2 U1 T2 R2 U2 R1 S1 T1"


@pytest.mark.parametrize("at", range(len(ROWS.split()) + 1))
def test_in_the_middle_of_a_push_is_between_two(strategy: str, at: int) -> None:
    case = query(["a"] * 4, size=2)
    words = ROWS.split()
    whole, split = Twins(case, A, strategy), Twins(case, A, strategy)
    whole.runtime.transition(B, at=at)
    together = whole.push(ROWS)
    apart = split.push(" ".join(words[:at]))
    split.transition(B)
    apart += split.push(" ".join(words[at:]))
    assert together == apart
    # One due before the arrival that is next may wait for it.
    assert whole.runtime.plan == B or whole.runtime.scheduled() == [(at, B)]
    assert whole.push("R1 U1 U2") == split.push("R1 U1 U2")
    assert whole.runtime.plan == split.runtime.plan == B
    figures = ["position", "strategy", "old", "new", "kept", "incomplete", "dropped"]
    assert whole.runtime.history().select(figures) == split.runtime.history().select(figures)


def test_several_in_one_push_and_several_at_one_position(strategy: str, output: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy, output)
    for at, plan in ((3, C), (1, B), (3, A), (3, B), (9, C), (2, "(R T) (S U)")):
        assert twins.runtime.transition(plan, at=at) is None
    assert [at for at, _ in twins.runtime.scheduled()] == [1, 2, 3, 3, 3, 9]
    twins.push("S1 T1 U1 R1 S1 T1")
    assert twins.runtime.scheduled() == [(9, C)]
    table = twins.runtime.history()
    assert table["position"].to_pylist() == [1, 2, 3, 3, 3]
    assert table["new"].to_pylist() == [B, "(R T) (S U)", C, A, B]
    assert table["old"].to_pylist() == [A, B, "(R T) (S U)", C, A]
    assert table["strategy"].to_pylist() == [strategy] * 5
    twins.transition(A)
    assert twins.runtime.scheduled() == [(9, C)]
    twins.push("U1 R1 S1")
    twins.push("T1")
    assert twins.runtime.plan == C


def test_at_the_position_is_at_once(strategy: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy)
    twins.push("R1 S1")
    done = twins.runtime.transition(B, at=twins.runtime.position)
    assert done is not None
    assert twins.runtime.plan == B
    assert twins.runtime.scheduled() == []
    assert len(twins.push("T1 U1")) == 1


def test_rows_that_do_not_arrive_do_not_count(strategy: str) -> None:
    case = query(["a"] * 2, "range", 5)
    twins = Twins(case, "R S", strategy)
    twins.runtime.transition("S R", at=3)
    twins.push("R1@10 R1@2 S1@3 R1@11")  # two are late
    assert twins.runtime.position == 2
    assert twins.runtime.scheduled() == [(3, "S R")]
    twins.push("S1@11 S1@11")
    assert twins.runtime.history()["position"].to_pylist() == [3]


# --- what is refused -------------------------------------------------------------------------------------------------

BAD_PLANS: list[tuple[Any, str]] = [
    ("((R S) T) X", "X"),
    ("(R S) T", "U"),
    ("((R S) T) (U R)", "R"),
    ("((R S) T U", "not closed"),
    ("(R S) T) U", "closes nothing"),
    ("", "nothing"),
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


def breakable(case: Case) -> Case:
    """Give a query with a result filter that fails on a result whose R has v = 0."""
    where = Condition(pc.divide(pc.scalar(1), pc.field("R.v")) > 0, lambda row: 1 // row["R.v"] > 0)
    return Case(case.streams, case.predicates, where=where)


def fail(twins: Twins, text: str) -> None:
    """Push rows of which a result breaks the filter."""
    one = Push(tuple(twins.arrivals(text, v=0)))
    with pytest.raises(eddy.InputError, match="where"):
        twins.runtime.push(one.batches(twins.case), [i for i, _ in one.arrivals])
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


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_transition_tells_its_figures(strategy: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy)
    twins.push("R1 S1 T1")
    done = twins.runtime.transition(B)
    assert done is not None
    assert (done.position, done.strategy, done.old, done.new) == (3, strategy, A, B)
    assert done.seconds > 0
    assert twins.runtime.history().to_pylist()[0].items() >= {"position": 3, "old": A, "new": B}.items()


def test_the_oracle_of_these_tests_sees_a_result_lost() -> None:
    """A test of the tests: a row less is noticed."""
    twins = Twins(ONE_CLASS, A, CHANGING[0])
    push: Callable[..., pa.Table] = twins.runtime.push
    twins.runtime.push = lambda *arguments: push(*arguments).slice(1)  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="1 missing"):
        twins.push("R1 S1 T1 U1")


def test_the_maintained_answer_is_what_the_changes_add_up_to(strategy: str) -> None:
    twins = Twins(query(["a", "ab", "b"], size=3), "(R S) T", strategy)
    oracle: Oracle = twins.oracle
    answer: set[tuple[int, ...]] = set()
    for k, plan in enumerate(("R (S T)", "(R S) T", "(S T) R", "T (S R)") * 3):
        for op, *row in twins.push(f"R{k % 2} S{k % 2}.1 T1 R1 S1.{k % 3} T{k % 3}"):
            result = tuple(row)
            assert (result in answer) == (op == "-D")
            answer ^= {result}
        assert sorted(answer) == oracle.answer()
        twins.transition(plan)

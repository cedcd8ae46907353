"""Single changes of plan: cases that a paper gets wrong or that are easy to get wrong, under every strategy."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.eddy.runtime_and_oracle import CHAIN, ONE_CLASS, A, B, C, Twins, query

# --- the papers ------------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_all_there_is(strategy: str) -> None:
    """A combination found after a transition implies nothing about older ones: JISC's Procedure 1 loses (r, s_old)."""
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


# --- back and forth --------------------------------------------------------------------------------------------------


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
    """Key ids are reused: the mark of an old key must not count for a new one."""
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
    """ST is indexed on `a` for probes by R, and on `c` for probes by U."""
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


# --- windows that turn over while states are completed ---------------------------------------------------------------


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
    # A transition that is due before the next arrival may wait for it.
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


# --- figures ---------------------------------------------------------------------------------------------------------


def test_a_transition_tells_its_figures(strategy: str) -> None:
    twins = Twins(ONE_CLASS, A, strategy)
    twins.push("R1 S1 T1")
    done = twins.runtime.transition(B)
    assert done is not None
    assert (done.position, done.strategy, done.old, done.new) == (3, strategy, A, B)
    assert done.seconds > 0
    # S T is the only new state below the root. Eager strategies compute it within the call.
    assert done.recomputed == (1 if strategy in ("moving-state", "stairs", "eddy-stairs") else 0)
    assert twins.runtime.history()["recomputed"].to_pylist() == [done.recomputed]
    assert twins.runtime.history().to_pylist()[0].items() >= {"position": 3, "old": A, "new": B}.items()


def test_the_oracle_of_these_tests_sees_a_result_lost(strategy: str) -> None:
    """A test of the tests: a missing row is noticed."""
    twins = Twins(ONE_CLASS, A, strategy)
    push: Callable[..., pa.Table] = twins.runtime.push
    twins.runtime.push = lambda *arguments: push(*arguments).slice(1)  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="1 missing"):
        twins.push("R1 S1 T1 U1")


def test_the_maintained_answer_is_what_the_changes_add_up_to(strategy: str) -> None:
    twins = Twins(query(["a", "ab", "b"], size=3), "(R S) T", strategy)
    oracle = twins.oracle
    answer: set[tuple[int, ...]] = set()
    for k, plan in enumerate(("R (S T)", "(R S) T", "(S T) R", "T (S R)") * 3):
        for op, *row in twins.push(f"R{k % 2} S{k % 2}.1 T1 R1 S1.{k % 3} T{k % 3}"):
            result = tuple(row)
            assert (result in answer) == (op == "-D")
            answer ^= {result}
        assert sorted(answer) == oracle.answer()
        twins.transition(plan)

"""States of plans and the difference of two plans: the figures of the JISC paper, and identities."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.states import Difference, Masks, StateId, difference, states_of
from jisc.plan.tree import Tree, join, parse
from stairs.graph import JoinGraph, Window, WindowKind

NAMES = ("R", "S", "T", "U")
FOREVER = Window(WindowKind.UNBOUNDED)
ONE_CLASS = JoinGraph(NAMES, (FOREVER,) * 4, ((0,),) * 4, (1,))
CHAIN = JoinGraph(NAMES, (FOREVER,) * 4, ((0,), (0, 1), (1, 2), (2,)), (1,) * 3)


def texts(states: tuple[StateId, ...] | list[StateId], graph: JoinGraph = ONE_CLASS) -> list[str]:
    """Return the streams of states, without the class."""
    return [state.text(graph).rpartition(" ")[0] for state in states]


def change(old: str, new: str, incomplete: tuple[str, ...] = ()) -> Difference:
    masks = Masks(ONE_CLASS)
    return difference(parse(old, NAMES), parse(new, NAMES), masks, lambda state: texts([state])[0] not in incomplete)


def test_figure_3b_nothing_is_shared() -> None:
    states = change("((R S) T) U", "((U T) S) R")
    assert texts(states.complete) == []
    assert texts(states.incomplete) == ["T U", "S T U"]
    assert texts(states.dropped) == ["R S", "R S T"]
    assert texts(states.kept) == []


def test_figure_3c_the_lowest_state_is_shared() -> None:
    states = change("((R S) T) U", "((R S) U) T")
    assert texts(states.complete) == ["R S"]
    assert texts(states.incomplete) == ["R S U"]
    assert texts(states.dropped) == ["R S T"]


def test_figure_3d_an_upper_state_is_complete_over_one_that_is_not() -> None:
    states = change("((R S) T) U", "((S T) R) U")
    assert texts(states.complete) == ["R S T"]
    assert texts(states.incomplete) == ["S T"]
    assert texts(states.dropped) == ["R S"]


def test_figure_4_a_state_kept_incomplete_is_incomplete() -> None:
    first = change("((R S) T) U", "((S T) R) U")
    assert texts(first.incomplete) == ["S T"]
    second = change("((S T) R) U", "((S T) U) R", incomplete=("S T",))
    assert texts(second.kept) == ["S T"]
    assert texts(second.complete) == []
    assert texts(second.incomplete) == ["S T", "S T U"]
    # ST would be complete if it had been completed in the meantime.
    assert texts(change("((S T) R) U", "((S T) U) R").complete) == ["S T"]


def test_bushy_plans() -> None:
    states = change("(R S) (T U)", "((R S) T) U")
    assert texts(states.kept) == ["R S"]
    assert texts(states.missing) == ["R S T"]
    assert texts(states.dropped) == ["T U"]
    assert texts(change("(R S) (T U)", "(U T) (S R)").missing) == []


def test_the_same_streams_on_another_class_are_another_state() -> None:
    # R probes S T by class 0, U by class 2.
    masks = Masks(CHAIN)
    states = difference(parse("R (S T) U", NAMES), parse("R ((S T) U)", NAMES), masks)
    assert [state.text(CHAIN) for state in states.dropped] == ["S T [1]", "R S T [3]"]
    assert [state.text(CHAIN) for state in states.missing] == ["S T [3]", "S T U [1]"]
    assert states.kept == ()


def test_two_streams_have_no_state() -> None:
    graph = JoinGraph(("R", "S"), (FOREVER,) * 2, ((0,), (0,)), (1,))
    assert states_of(parse("R S", graph.names), Masks(graph)) == []


@st.composite
def trees(draw: st.DrawFn, streams: int = 6) -> Tree:
    left = [Tree(i) for i in draw(st.permutations(range(streams)))]
    while len(left) > 1:
        k = draw(st.integers(0, len(left) - 2))
        left[k : k + 2] = [join(left[k], left[k + 1])]
    return left[0]


@given(trees(), trees())
def test_the_parts_of_a_difference(old: Tree, new: Tree) -> None:
    graph = JoinGraph(tuple("RSTUVW"), (FOREVER,) * 6, ((0,),) * 6, (1,))
    masks = Masks(graph)
    states = difference(old, new, masks, lambda state: state.mask % 3 != 0)
    assert sorted(states.kept + states.missing) == sorted(states.new)
    assert sorted(states.kept + states.dropped) == sorted(states.old)
    assert sorted(states.complete + states.incomplete) == sorted(states.new)
    assert set(states.complete) == {state for state in states.kept if state.mask % 3 != 0}
    assert len(states.new) == 4
    # Children come before their parents.
    for k, state in enumerate(states.new):
        assert all(other.mask & ~state.mask or other == state for other in states.new[k:])
    inside = {node.mask for node in new.inner()} - {new.mask}
    assert {state.mask for state in states.new} == inside

"""Plans as text and as trees, errors in them, and the default plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.tree import Tree, check_connected, default_plan, join, left_deep, parse
from stairs.errors import PlanError
from stairs.graph import JoinGraph
from tests.jisc.graphs import chain, clique, cycle, graph_of, star

NAMES = ("R", "S", "T", "U")
ANY_NAME = st.text(min_size=1, max_size=6)


@st.composite
def trees(draw: st.DrawFn, n: int) -> Tree:
    """Draw any tree over streams 0 .. n - 1: join two of the remaining trees until one is left."""
    left = [Tree(k) for k in draw(st.permutations(range(n)))]
    while len(left) > 1:
        k = draw(st.integers(0, len(left) - 2))
        left[k : k + 2] = [join(left[k], left[k + 1])]
    return left[0]


NAMED_TREES = st.lists(ANY_NAME, min_size=2, max_size=8, unique=True).flatmap(
    lambda names: st.tuples(st.just(tuple(names)), trees(len(names)))
)


@given(NAMED_TREES)
def test_a_plan_reads_back_from_its_text(case: tuple[tuple[str, ...], Tree]) -> None:
    names, tree = case
    assert parse(tree.text(names), names) == tree


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("R S T U", "((R S) T) U"),
        ("(((R S) T) U)", "((R S) T) U"),
        ("((R))(S)T U", "R S T U"),
        ("R (S T U)", "R ((S T) U)"),
        ('  "R"\n( S\tT )U  ', "(R (S T)) U"),
    ],
)
def test_texts_of_the_same_plan(text: str, same_as: str) -> None:
    assert parse(text, NAMES) == parse(same_as, NAMES)


def test_names_that_are_no_plain_words_are_quoted() -> None:
    names = ["odd name", 'a "quoted" one', "(", "é"]
    assert left_deep([0, 1, 2, 3]).text(names) == '(("odd name" "a ""quoted"" one") "(") é'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("R S T", r"plan 'R S T' lacks U; a plan names every stream of the query once"),
        ("R", "lacks S, T, U"),
        ("R S T U R", "names stream R twice"),
        ("R S T X", "there is no stream 'X'; the streams are R, S, T, U"),
        ("r S T U", "there is no stream 'r'"),
        ("(R S) T) U", r"the '\)' at 7 closes no '\('"),
        ("((R S) T U", r"1 '\(' are not closed"),
        ("(((R S T U", r"3 '\(' are not closed"),
        ("R () S T U", "empty parentheses; an example of a plan is"),
        ("", "empty parentheses"),
        ('R S T "U', "cannot be read from .* on \\(an unclosed quote\\?\\)"),
        ('R S T "U "', "there is no stream 'U '"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse(text, NAMES)


@given(st.text(alphabet='RSTU()" \n', max_size=20))
def test_any_text_is_a_plan_or_a_plan_error(text: str) -> None:
    try:
        tree = parse(text, NAMES)
    except PlanError:
        return
    assert sorted(tree.leaves()) == [0, 1, 2, 3]


def test_parts_of_a_tree() -> None:
    tree = parse("(R S) (T U)", NAMES)
    assert list(tree.leaves()) == [0, 1, 2, 3]
    assert [node.text(NAMES) for node in tree.inner()] == ["R S", "T U", "(R S) (T U)"]
    assert tree.streams == {0, 1, 2, 3}
    assert [(node.text(NAMES), other.text(NAMES)) for node, other in tree.path(2)] == [("T", "U"), ("T U", "R S")]
    assert Tree(3).children == ()
    assert list(Tree(3).path(3)) == []


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (chain(4), "((R S) T) U"),
        (star(4), "((R S) T) U"),
        (cycle(4), "((R S) T) U"),
        (clique(4), "((R S) T) U"),
        # S joins no stream before U is placed; T joins R.
        (graph_of(4, [(0, 2), (2, 3), (3, 1)]), "((R T) U) S"),
        (graph_of(4, [(0, 3), (1, 3), (2, 3)]), "((R U) S) T"),
    ],
)
def test_the_default_is_query_order_as_far_as_predicates_connect(graph: JoinGraph, expected: str) -> None:
    tree = default_plan(graph)
    assert tree.text(graph.names) == expected
    check_connected(tree, graph)


@pytest.mark.parametrize(
    ("graph", "text", "message"),
    [
        (chain(4), "((R T) S) U", "the plan joins 'R' with 'T', but no predicate connects them"),
        (chain(4), "(R S) T U", None),
        (chain(4), "R (S T) U", None),
        (chain(4), "(R U) (S T)", "joins 'R' with 'U'"),
        (star(4), "(R S) (T U)", "joins 'T' with 'U'"),
        (star(4), "((R U) S) T", None),
        (cycle(4), "(R T) S U", "joins 'R' with 'T'"),
        (cycle(4), "(R U) (S T)", None),
        (clique(4), "(R T) (S U)", None),
        (chain(5), "(R S) (U V) T", r"joins 'R S' with 'U V'"),
    ],
)
def test_cross_products_are_refused(graph: JoinGraph, text: str, message: str | None) -> None:
    tree = parse(text, graph.names)
    if message is None:
        check_connected(tree, graph)
        return
    with pytest.raises(PlanError, match=message):
        check_connected(tree, graph)

"""The plan whose states weigh least, against all plans of small queries; and plans of many streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.bushy import ALL, Bushy
from jisc.plan.states import Masks
from jisc.plan.tree import Tree, check_connected, join
from stairs.graph import JoinGraph
from tests.jisc import graphs


def all_trees(masks: Masks, streams: tuple[int, ...]) -> Iterator[Tree]:
    """Yield every plan over some streams without a cross product, each with its first stream on the left."""
    if len(streams) == 1:
        yield Tree(streams[0])
    for bits in range(1, 1 << (len(streams) - 1)):
        left = tuple(i for k, i in enumerate(streams) if not k or not bits >> (k - 1) & 1)
        right = tuple(i for i in streams if i not in left)
        for tree in all_trees(masks, left):
            for other in all_trees(masks, right):
                if masks.classes_of(tree) & masks.classes_of(other):
                    yield join(tree, other)


def weight(tree: Tree, bushy: Bushy, weights: np.ndarray) -> float:
    """Return the sum of the weights of the inner states of a plan."""
    return float(sum(weights[bushy.sets.index(node.mask)] for node in tree.inner() if node is not tree))


@st.composite
def drawn_graphs(draw: st.DrawFn) -> JoinGraph:
    """Draw a connected graph of two to six streams, some of which have several classes."""
    m = draw(st.integers(2, 6))
    attributes = [{draw(st.integers(0, i))} for i in range(m)]
    for i in range(1, m):
        attributes[i].add(draw(st.sampled_from(sorted(attributes[draw(st.integers(0, i - 1))]))))
    numbers = {c: k for k, c in enumerate(sorted(set().union(*attributes)))}
    return graphs.classes_of([sorted(numbers[c] for c in stream_classes) for stream_classes in attributes])


@given(drawn_graphs(), st.integers(0, 2**32 - 1))
def test_no_plan_weighs_less(graph: JoinGraph, seed: int) -> None:
    masks = Masks(graph)
    bushy = Bushy(masks)
    # Sums of these are exact.
    weights = np.random.default_rng(seed).choice([0.0, 1.0, 3.5, 1e9], len(bushy.sets))
    plan = bushy.lightest(weights)
    check_connected(plan, graph)
    plans = list(all_trees(masks, tuple(range(graph.n_streams))))
    assert {node.mask for tree in plans for node in tree.inner()} <= set(bushy.sets)
    assert weight(plan, bushy, weights) == min(weight(tree, bushy, weights) for tree in plans)


@pytest.mark.parametrize("graph", [graphs.chain(ALL + 3), graphs.star(ALL + 3), graphs.same_key(ALL + 3)])
def test_plans_of_many_streams_join_intervals(graph: JoinGraph) -> None:
    bushy = Bushy(Masks(graph))
    weights = np.random.default_rng(1).random(len(bushy.sets))
    check_connected(bushy.lightest(weights), graph)
    assert len(bushy.sets) <= (ALL + 3) * (ALL + 4) // 2


def test_a_long_chain_is_cut_where_its_states_are_light() -> None:
    m = ALL + 4
    bushy = Bushy(Masks(graphs.chain(m)))
    # The two halves are light, and whatever crosses the middle is heavy.
    half = (1 << m // 2) - 1
    weights = np.array([1.0 if not mask & half or not mask & ~half else 1e6 for mask in bushy.sets])
    left, right = bushy.lightest(weights).children
    assert {left.mask, right.mask} == {half, half << m // 2}


def test_the_most_streams_of_a_query_take_a_plan() -> None:
    graph = graphs.chain(128)
    bushy = Bushy(Masks(graph))
    check_connected(bushy.lightest(np.ones(len(bushy.sets))), graph)

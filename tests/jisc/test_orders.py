"""Connected orders of streams, and the queries in which a plan makes a difference."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.connected import connected_order
from jisc.plan.orders import has_choice, random_order, trunk_of
from jisc.plan.routes import compile_routes, route
from jisc.plan.states import Masks
from jisc.plan.tree import left_deep
from stairs.descriptors import H_TARGET
from stairs.graph import JoinGraph
from tests.jisc.graphs import chain, classes_of, clique, connected_orders, cycle, graph_of, same_key, star

GRAPHS = {
    "two": chain(2),
    "chain of three": chain(3),
    "chain of four": chain(4),
    "chain of five": chain(5),
    "star": star(5),
    "cycle": cycle(4),
    "clique": clique(4),
    "same key": same_key(4),
    "snowflake": graph_of(6, [(0, 1), (0, 2), (1, 3), (2, 4), (0, 5)]),
    "two classes": classes_of([[0], [0, 1], [0, 1], [1]]),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> JoinGraph:
    return GRAPHS[request.param]


def connects(order: tuple[int, ...], graph: JoinGraph) -> bool:
    """Return, from the attributes alone, whether each stream joins one before it."""
    return all(
        any(set(graph.attributes[order[k]]) & set(graph.attributes[order[i]]) for i in range(k))
        for k in range(1, len(order))
    )


def test_connected_orders_are_all_there_are(graph: JoinGraph) -> None:
    orders = list(connected_orders(Masks(graph)))
    assert orders == [order for order in permutations(range(graph.n_streams)) if connects(order, graph)]


def test_random_orders_connect_and_reach_every_one(graph: JoinGraph) -> None:
    masks, rng = Masks(graph), np.random.default_rng(1)
    drawn = {random_order(masks, rng) for _ in range(1500)}
    assert drawn == set(connected_orders(masks))


@given(st.data())
def test_the_nearest_connected_order(data: st.DataObject) -> None:
    graph = GRAPHS[data.draw(st.sampled_from(sorted(GRAPHS)))]
    wanted = data.draw(st.permutations(range(graph.n_streams)))
    order = tuple(connected_order(wanted, graph.class_bits))
    assert sorted(order) == sorted(wanted)
    assert connects(order, graph)
    if connects(tuple(wanted), graph):
        assert order == tuple(wanted)
    assert order[0] == wanted[0]


def test_what_is_called_a_trunk_hop_is_one_in_the_routes(graph: JoinGraph) -> None:
    masks, m = Masks(graph), graph.n_streams
    for order in connected_orders(masks):
        for i in range(m):
            bound, left = masks.classes[i], (1 << m) - 1 & ~(1 << i)
            waiting = [j for j in order if j != i]
            hops = {hop.stream: hop for hop in route(left_deep(order), i, graph)}
            while waiting:
                j = next(j for j in waiting if masks.classes[j] & bound)
                # A route also binds classes that no later stream has, so it may have more trunk hops than necessary.
                if trunk_of(masks, j, bound, left):
                    assert not hops[j].leaf
                waiting.remove(j)
                bound |= masks.classes[j]
                left &= ~(1 << j)


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("two", False),
        ("chain of three", False),
        ("chain of four", False),
        ("chain of five", True),
        ("star", False),
        ("cycle", True),
        ("clique", True),
        ("same key", False),
        ("snowflake", True),
        ("two classes", True),
    ],
)
def test_where_there_is_a_choice(name: str, choice: bool) -> None:
    assert has_choice(Masks(GRAPHS[name])) is choice


def test_without_a_choice_all_orders_route_alike(graph: JoinGraph) -> None:
    masks = Masks(graph)
    if has_choice(masks):
        return
    taken = set()
    for order in connected_orders(masks):
        routes = compile_routes(left_deep(order), graph)
        trunks = []
        for span in routes.span.tolist():
            # All leaf hops are looked up before the walk continues, so their order does not matter.
            leaves = sorted(routes.hops[span[1] : span[3], H_TARGET].tolist())
            trunks.append((tuple(routes.hops[span[0] : span[1], H_TARGET].tolist()), tuple(leaves)))
        taken.add(tuple(trunks))
    assert len(taken) == 1

"""The fixed plans: the default order among them, no cross product, one of each kind of work."""

from __future__ import annotations

import numpy as np
import pytest

from bench.fixed_plans import MOST_LISTED, all_orders, extensions, fixed_plans, work
from bench.workloads.families import SHAPES
from jisc.plan.tree import check_connected, default_plan, left_deep

FAMILIES = {shape.family: shape.query.graph for shape in SHAPES.values()}


@pytest.mark.parametrize("most", [3, 50])
@pytest.mark.parametrize("family", FAMILIES)
def test_plans_begin_with_the_default_and_have_no_cross_product(family: str, most: int) -> None:
    graph = FAMILIES[family]
    plans = fixed_plans(graph, most)
    assert plans[0] == tuple(default_plan(graph).leaves())
    assert len({work(order, graph) for order in plans}) == len(plans) <= most
    for order in plans:
        assert sorted(order) == list(range(graph.n_streams))
        check_connected(left_deep(order), graph)
    assert fixed_plans(graph, most) == plans


@pytest.mark.parametrize("family", ["same-key-4", "chain-6", "cycle-4", "clique-4"])
def test_all_orders_are_listed_once(family: str) -> None:
    graph = FAMILIES[family]
    orders = list(all_orders(graph))
    assert len(orders) == len(set(orders))
    rng = np.random.default_rng(1)
    for _ in range(20):
        order = (int(rng.integers(graph.n_streams)),)
        while len(order) < graph.n_streams:
            order = (*order, int(rng.choice(extensions(order, graph))))
        first, second, *rest = order
        assert (min(first, second), max(first, second), *rest) in orders


def test_all_orders_of_the_shapes_are_examined() -> None:
    graphs = [graph for graph in FAMILIES.values() if graph.n_classes > 1]
    assert max(len(list(all_orders(graph))) for graph in graphs) < MOST_LISTED


def test_kinds_of_work() -> None:
    kinds = {family: len(fixed_plans(graph)) for family, graph in FAMILIES.items()}
    assert kinds["same-key-4"] == kinds["same-key-20"] == kinds["star-5"] == kinds["chain-4"] == 1
    assert min(kinds[family] for family in ("chain-6", "cycle-4", "clique-4", "snowflake-7")) > 1

"""The simulated cluster gives the results of one engine, under every placement, through changes, faults and crashes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated.placement.network import Faults
from bench.simulated.placement.simulation import PlacementSimulation
from eddy import Query
from tests.eddy.placement.chains import batches, chain, expected, results, rows, star


@pytest.mark.parametrize(
    ("nodes", "placement"), [(None, "greedy"), (4, "grid"), (6, "grid"), (5, "hops"), (8, "auto"), (1, "auto")]
)
@pytest.mark.parametrize("shape", ["chain", "star", "text"])
def test_results_are_those_of_one_engine(nodes: int | None, placement: str, shape: str) -> None:
    query = star(4) if shape == "star" else chain(4, text=shape == "text")
    epochs = rows(query, 8, 8, 4 if shape == "star" else 3, 1, text=shape == "text")
    wanted = expected(query, epochs)
    assert wanted
    cluster = PlacementSimulation(query, nodes, placement=placement)
    assert results(cluster.push(batches(query, epoch)) for epoch in epochs) == wanted


def drawn_plan(query: Query, draw: random.Random) -> dict[str, list[tuple[str, str]]]:
    """Return a random plan: each head joins connected streams in a random order, at random places."""
    names = [stream.name for stream in query.streams]
    plan = {}
    for head in names:
        reached, hops = {head}, []
        while len(reached) < len(names):
            near = [
                n
                for n in names
                if n not in reached
                and any(reached & key_class.columns.keys() and n in key_class.columns for key_class in query.classes)
            ]
            hops.append((draw.choice(near), draw.choice(("ship", "window"))))
            reached.add(hops[-1][0])
        plan[head] = hops
    return plan


@given(st.data(), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_results_through_changes_at_random_moments(data: st.DataObject, seed: int) -> None:
    """Any placement, with changes while tuples are under way, in any order of delivery, with losses and crashes."""
    draw = random.Random(seed)
    m = data.draw(st.integers(2, 4))
    query = data.draw(st.sampled_from((chain, star)))(m, data.draw(st.sampled_from((20, 0, None))))
    epochs = rows(query, 5, 3, data.draw(st.integers(2 if m > 2 else 1, 5)), seed)
    faulty = data.draw(st.booleans())
    faults = Faults(0.1, 0.1, data.draw(st.booleans()), 0.1, seed) if faulty else None
    migration = data.draw(st.sampled_from(("log", "track")))
    if data.draw(st.booleans()):
        nodes: int | None = data.draw(st.sampled_from((1, 2, 3, 5, 6, 11)))
        placement = data.draw(st.sampled_from(("grid", "hops", "auto")))
    else:
        nodes, placement = None, data.draw(st.sampled_from(("greedy", drawn_plan(query, draw))))
    update = data.draw(st.sampled_from(("central", "shared", "distributed")))
    cluster = PlacementSimulation(query, nodes, placement=placement, update=update, migration=migration, faults=faults)
    tables = []
    for epoch in epochs:
        if data.draw(st.booleans()):
            tables.append(cluster.push(batches(query, epoch)))
        else:
            cluster.feed(batches(query, epoch), data.draw(st.integers(0, 40)))
        if data.draw(st.booleans()):
            cluster.change(drawn_plan(query, draw) if nodes is None else draw.choice(("grid", "hops")))
        if faulty and data.draw(st.booleans()):
            node = draw.randrange(len(cluster.nodes))
            cluster.crash(node)
            cluster.feed({}, data.draw(st.integers(0, 40)))
            cluster.restart(node)
        for node in cluster.nodes:
            node.check()
    tables.append(cluster.drain())
    assert results(tables) == expected(query, epochs)
    assert {node.current for node in cluster.nodes} == {cluster.nodes[0].newest}

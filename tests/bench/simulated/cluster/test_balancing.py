"""Balancing in the simulation: what triggers a move, which moves are made, and what the history says about them."""

from __future__ import annotations

import itertools

import pytest

from bench.simulated.cluster import Automatic, Balance, ClusterSimulation, Costs, Node
from bench.simulated.cluster.balancing import Balancer, GroupMemory
from bench.simulated.cluster.sender import closest
from tests.bench.simulated.cluster.cases import STREAMS, query

OWNERS = [0] * 8 + [1, 2, 3, 1, 2, 3, 1, 2]


def run(balance: Balance, ticks: int = 60, owners: list[int] = OWNERS) -> ClusterSimulation:
    simulation = ClusterSimulation(query(), [Node(speed=0.05)] * 4, groups=owners, balance=balance)
    keys = itertools.count()
    for t in range(ticks):
        rows = [{"k": next(keys) % 160, "t": t, "v": 0} for _ in range(8)]
        simulation.push(dict.fromkeys(STREAMS, rows), at=t * 0.05)
    simulation.run(ticks * 0.05)
    return simulation


@pytest.mark.parametrize(("how", "measure"), [("jit", "time"), ("state", "memory"), ("parallel", "memory")])
def test_the_fullest_node_sends_groups(how: str, measure: str) -> None:
    simulation = run(Balance(Automatic(patience=2), every=0.25, how=how, measure=measure))
    history = simulation.history().to_pylist()
    assert history
    assert {row["how"] for row in history} == {how}
    assert history[0]["sender"] == 0
    assert max(simulation.owners.count(node) for node in range(4)) < 8
    first = history[0]
    assert first["predicted_gain"] > 0
    assert first["predicted_cost"] > 0
    assert first["measured_gain"] > 0


def test_a_balanced_cluster_stays() -> None:
    simulation = run(Balance(Automatic(threshold=1.8), every=0.25), owners=[group % 4 for group in range(16)])
    assert simulation.history().num_rows == 0


def test_a_move_that_does_not_pay_is_not_made() -> None:
    simulation = run(Balance(Automatic(patience=2), every=0.25, how="state", payback=1e-6))
    assert simulation.history().num_rows == 0


def test_a_slow_drift_triggers() -> None:
    balancer = Balancer(Balance(payback=None), [0, 0, 1, 1], 2, Costs())
    states = {group: GroupMemory(10, 0) for group in range(4)}
    moved_at = None
    for period in range(200):
        loads = {0: 1.0 + period / 100, 1: 1.0, 2: 1.0, 3: 1.0}
        if balancer.plan([0, 0, 1, 1], loads, states, frozenset()):
            moved_at = period
            break
    assert moved_at is not None
    assert 60 < moved_at < 150  # above 1.25 of the mean from a load of 2.33 on


def test_groups_on_their_way_stay() -> None:
    balancer = Balancer(Balance(Automatic(patience=1), payback=None), [0, 0, 0, 1], 2, Costs())
    states = {group: GroupMemory(10, 0) for group in range(4)}
    assert balancer.plan([0, 0, 0, 1], {0: 3.0, 1: 3.0, 2: 3.0, 3: 1.0}, states, frozenset(range(4))) == []


def test_closest_groups() -> None:
    assert closest({0: 5.0, 1: 3.0, 2: 1.0}, 4.2) == [1, 2]
    assert closest({0: 5.0, 1: 3.0}, 2.0) == [1]
    assert closest({0: 0.0}, 2.0) == []

"""A process that is lost at any step loses and doubles no result, and its groups end at the old or the new node."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated.cluster import ClusterSimulation, Link, Node
from bench.simulated.cluster.messages import STEPS
from tests.bench.simulated.cluster.cases import cluster, drawn_cluster, expected, feed, finished, moved_once, results_of

HOW = ("parallel", "state", "jit")


def lost_at(how: str, process: int | str, at: float, restart: float | None) -> ClusterSimulation:
    simulation = cluster()
    feed(simulation, 1)
    simulation.run(min(at, 0.15))
    if at >= 0.15:
        simulation.move([0, 2], 1, how)
        simulation.run(at)
    simulation.lose(process, restart)
    finished(simulation)
    return simulation


@pytest.mark.campaign(2)
@pytest.mark.parametrize("process", [0, 1, "manager", "split B"])
@pytest.mark.parametrize("how", HOW)
def test_a_process_is_lost_while_a_message_of_each_step_is_on_its_way(how: str, process: int | str) -> None:
    sent = moved_once(how).messages().to_pylist()
    for step in range(1, len(STEPS[how]) + 1):
        message = next(row for row in sent if row["step"] == step)
        simulation = lost_at(how, process, message["sent"] + message["seconds"] / 2, 0.004)
        assert results_of(simulation) == expected(1), (how, process, step)
        old_or_new = [[0, 1, 0, 1], [1, 1, 1, 1]]
        assert simulation.owners in old_or_new, (how, process, step)
        states = simulation.history()["state"].to_pylist()
        assert set(states) <= {"done", "aborted"}
        if not isinstance(process, int):
            # The journal of the manager and the logs of the splits keep all: the move goes on.
            assert states == ["done"]


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("how", HOW)
def test_a_node_is_lost_for_good_at_each_step(how: str, process: int) -> None:
    sent = moved_once(how).messages().to_pylist()
    for step in range(1, len(STEPS[how]) + 1, 2):
        message = next(row for row in sent if row["step"] == step)
        simulation = lost_at(how, process, message["sent"] + message["seconds"] / 2, None)
        assert results_of(simulation) == expected(1), (how, process, step)
        assert simulation.owners == [1 - process] * 4


def test_a_node_is_lost_when_nothing_moves() -> None:
    simulation = lost_at("jit", 0, 0.1, 0.05)
    assert results_of(simulation) == expected(1)
    history = simulation.history().to_pylist()
    assert [(row["how"], row["groups"], row["state"]) for row in history] == [("recover", [0, 2], "done")]
    kinds = simulation.messages()["kind"].to_pylist()
    assert sorted(set(kinds)) == ["FencePartitions", "Fenced", "RecoverPartitions", "Recovered"]


def test_results_of_a_lost_node_that_are_on_their_way_count_once() -> None:
    """The union takes a commit or refuses it; it never takes what a successor gives again."""
    simulation = cluster([Node(), Node()], link=Link(delay=lambda source, to, number: 0.2 if to == "union" else 0.0))
    feed(simulation, 2)
    simulation.run(0.1)
    simulation.lose(0, 0.001)
    finished(simulation)
    assert results_of(simulation) == expected(2)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_losses_at_any_time(seed: int) -> None:
    drawn, data, simulation = drawn_cluster(seed)
    down: set[int | str] = set()
    for at in sorted(drawn.random() * 0.45 for _ in range(5)):
        simulation.run(at)
        process = drawn.choice([0, 1, 2, "manager", "split A"])
        if drawn.random() < 0.6 and "manager" not in simulation.carrier.held:
            gone = simulation.carrier.gone
            simulation.move(
                drawn.sample(range(4), 2), drawn.choice([n for n in range(3) if n not in gone]), drawn.choice(HOW)
            )
        elif process not in down:
            down.add(process)  # each process is lost once, for good only if others are left
            for_good = isinstance(process, int) and drawn.random() < 0.3 and len(simulation.carrier.gone) < 1
            if not for_good or all(machine is not None for machine in simulation.carrier.machines):
                simulation.lose(process, None if for_good else drawn.choice([0.0, 0.003, 0.1]))
    finished(simulation)
    assert results_of(simulation) == expected(data)

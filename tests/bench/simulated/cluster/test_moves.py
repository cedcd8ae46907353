"""Moves change no result: under every strategy, with other plans, overlapping, and whatever the links deliver first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated.cluster import Link, Node, Variants
from jisc.strategies import STRATEGIES
from tests.bench.simulated.cluster.cases import PLANS, cluster, delays, expected, feed, finished, moved_once, results_of

HOW = ("parallel", "state", "jit")


def test_no_move() -> None:
    simulation = cluster()
    feed(simulation, 1)
    finished(simulation)
    assert results_of(simulation) == expected(1)
    assert len(expected(1)) > 100
    assert simulation.messages().num_rows == simulation.history().num_rows == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("how", HOW)
def test_other_plans_under_every_strategy(how: str, strategy: str) -> None:
    nodes = [Node("(A B) C", strategy, speed=0.01), Node("(B C) A", strategy, speed=0.01)]
    simulation = moved_once(how, nodes=nodes, variants=Variants(copy="sender"))
    assert results_of(simulation) == expected(1)
    assert simulation.owners == [1, 1, 1, 1]


@pytest.mark.parametrize("how", HOW)
def test_other_strategies_on_both_sides(how: str) -> None:
    nodes = [Node("(A B) C", "moving-state"), Node("(B C) A", "eddy", "rank")]
    assert results_of(moved_once(how, nodes=nodes, variants=Variants(copy="sender"))) == expected(1)


@pytest.mark.parametrize("how", HOW)
def test_there_and_back_at_once(how: str) -> None:
    """A -> B -> A in one step: the second move begins when the first one has ended."""
    simulation = cluster()
    feed(simulation, 3)
    simulation.run(0.1)
    simulation.move([0, 2], 1, how)
    simulation.move([0, 2], 0, how)
    finished(simulation)
    assert simulation.owners == [0, 1, 0, 1]
    assert results_of(simulation) == expected(3)
    assert simulation.history()["state"].to_pylist() == ["done", "done"]


def test_overlapping_moves_of_all_kinds() -> None:
    """Groups go around in a ring, each node sends and receives at once, and each move is asked for at one time."""
    simulation = cluster([Node(plan, speed=0.01) for plan in PLANS], groups=6)
    feed(simulation, 4)
    for k in range(9):
        simulation.run(0.02 * k)
        for group in range(6):
            simulation.move([group], (group + k) % 3, HOW[(group + k) % 3])
    finished(simulation)
    assert results_of(simulation) == expected(4)
    assert set(simulation.history()["state"].to_pylist()) <= {"done", "nothing"}
    assert simulation.owners == [(group + 8) % 3 for group in range(6)]


def test_a_plan_changes_while_its_groups_move() -> None:
    for how in HOW:
        simulation = cluster()
        feed(simulation, 5)
        simulation.run(0.1)
        simulation.move([0, 2], 1, how)
        simulation.run(0.101)
        simulation.transition(0, "(A C) B")
        simulation.run(0.102)
        simulation.transition(1, "(A B) C")
        finished(simulation)
        assert results_of(simulation) == expected(5)


def test_the_sender_chooses_groups_by_their_rows() -> None:
    simulation = cluster([Node(), Node()], groups=[0] * 8)
    feed(simulation, 6)
    simulation.run(0.2)
    kept = sum(track.n_rows for track in simulation.carrier.machines[0].processor.tracks.values())  # type: ignore[union-attr]
    number = simulation.move_load(0, 1, kept / 2, "state")
    finished(simulation)
    assert results_of(simulation) == expected(6)
    move = simulation.history().to_pylist()[number]
    assert 0 < len(move["groups"]) < 8
    assert simulation.owners.count(1) == len(move["groups"])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_any_interleaving_of_links(seed: int) -> None:
    drawn = random.Random(seed)
    data = drawn.randrange(4)
    nodes = [
        Node(drawn.choice(PLANS), drawn.choice(list(STRATEGIES)), speed=drawn.choice([1, 0.01, 0.002]))
        for _ in range(3)
    ]
    simulation = cluster(
        nodes,
        link=Link(drawn.choice([0.0, 0.001]), delay=delays(seed, drawn.choice([0.0005, 0.01, 0.1]))),
        variants=Variants(copy=drawn.choice(["log", "sender"]), purge=drawn.choice(["exact", "paper"])),
        turn_rows=drawn.choice([1, 8, 256]),
    )
    feed(simulation, data)
    for at in sorted(drawn.random() * 0.45 for _ in range(drawn.randint(1, 4))):
        simulation.run(at)
        simulation.move(drawn.sample(range(4), drawn.randint(1, 3)), drawn.randrange(3), drawn.choice(HOW))
    finished(simulation)
    assert results_of(simulation) == expected(data)
    assert set(simulation.history()["state"].to_pylist()) <= {"done", "nothing"}


def test_a_simulation_is_repeatable() -> None:
    first, second = (moved_once("jit", link=Link(delay=delays(3, 0.01))) for _ in range(2))
    assert first.results().equals(second.results())
    assert first.messages().equals(second.messages())


def test_matching_states_are_taken_along_if_that_is_cheaper() -> None:
    from bench.simulated.cluster import Costs

    for costs, taken in ((Costs(entry=1e-5), True), (Costs(entry=1e-9), False)):
        nodes = [Node("(A B) C", speed=0.01), Node("(A B) C", speed=0.01)]
        simulation = moved_once("jit", nodes=nodes, variants=Variants(copy="sender"), costs=costs)
        assert results_of(simulation) == expected(1)
        (base,) = [row for row in simulation.messages().to_pylist() if row["kind"] == "BaseWindows"]
        assert (base["bytes"] > 100 + 40 * base["rows"]) == taken

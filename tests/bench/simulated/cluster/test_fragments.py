"""A hot key in fragments: the results stay the same, whatever moves, and whatever is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated.cluster import Balance, ClusterSimulation, Node
from bench.simulated.cluster.messages import STEPS
from eddy.errors import InputError
from tests.bench.simulated.cluster.cases import (
    PLANS,
    STREAMS,
    cluster,
    drawn_cluster,
    expected,
    feed,
    finished,
    joined,
    query,
    results_of,
)

KEY = 3


def fragmented(deal: str = "A", *, gather: float | None = 0.25, seed: int = 1, **options: object) -> ClusterSimulation:
    simulation = cluster([Node(plan, speed=0.01) for plan in PLANS], **options)  # type: ignore[arg-type]
    feed(simulation, seed)
    simulation.run(0.1)
    assert simulation.fragment(KEY, deal, to=[1, 2]) == [4, 5]
    if gather is not None:
        simulation.run(gather)
        assert simulation.gather(KEY) == [4, 5]
    finished(simulation)
    return simulation


@pytest.mark.parametrize("deal", ["A", "B", "C"])
def test_fragments_of_each_stream(deal: str) -> None:
    simulation = fragmented(deal)
    assert results_of(simulation) == expected(1)
    key_rows = [row for row in simulation.union.with_positions().to_pylist() if row["Ak"] == KEY]
    assert len(key_rows) > 20
    history = simulation.history().to_pylist()
    assert [(row["how"], row["groups"], row["state"]) for row in history] == [
        *(("fragment", [group], "done") for group in (4, 5)),
        *(("gather", [group], "done") for group in (4, 5)),
    ]
    assert simulation.owners[4:] == [-1, -1]
    of_first = [row for row in simulation.messages().to_pylist() if row["move"] in (0, 2)]
    kinds = list(dict.fromkeys((row["how"], row["kind"]) for row in of_first))
    assert [kind for how, kind in kinds if how == "fragment"] == list(STEPS["fragment"])
    assert [kind for how, kind in kinds if how == "gather" and kind != "EndOfPartitions"] == list(STEPS["gather"])
    assert all(key[0] < 4 for machine in simulation.carrier.machines if machine for key in machine.processor.tracks)
    with pytest.raises(InputError, match="has been gathered"):
        simulation.move([4], 0)


def test_each_fragment_has_a_share_of_the_dealt_stream_and_all_rows_of_the_others() -> None:
    simulation = fragmented(gather=None)
    assert results_of(simulation) == expected(1)
    table = {row["group"]: row["joined"] for row in simulation.groups().to_pylist()}
    dealt = [table[group][0] for group in (4, 5)]
    assert min(dealt) > 1
    assert abs(dealt[0] - dealt[1]) <= 1
    assert table[4][1:] == table[5][1:]
    assert min(table[4][1:]) > max(dealt)
    given = simulation.union.ledger
    assert all(any(emitted.known.rows for emitted in given[group].values()) for group in (4, 5))


def test_a_fragment_needs_rows_that_came_before_it() -> None:
    """The copy in the logs: without it, rows dealt to a new fragment lack partners."""
    simulation = cluster([Node(speed=0.01)] * 2)
    for t in range(4):
        simulation.push({"A": [{"k": KEY, "t": t, "v": t}], "B": [{"k": KEY, "t": t, "v": 10 + t}]}, at=t * 0.01)
    simulation.push({"C": [{"k": KEY, "t": 3, "v": 20}]}, at=0.03)
    simulation.run()
    simulation.fragment(KEY, "A", to=[1])
    simulation.run()
    rows = [{"k": KEY, "t": 4, "v": 30 + n} for n in range(2)]
    simulation.push({"A": rows}, at=1.0)
    simulation.run()
    results = results_of(simulation)
    assert sum(count for (a, _, _), count in results.items() if a >= 30) == 2 * 4
    assert results.total() == 4 * 4 + 8


@pytest.mark.campaign(2)
@pytest.mark.parametrize("process", [0, 1, "manager", "split A", "split B"])
def test_a_process_is_lost_at_each_step(process: int | str) -> None:
    quiet = fragmented().messages().to_pylist()
    for how in ("fragment", "gather"):
        for step in range(1, len(STEPS[how]) + 1):
            message = next(row for row in quiet if row["how"] == how and row["step"] == step)
            at = message["sent"] + message["seconds"] / 2
            simulation = cluster([Node(plan, speed=0.01) for plan in PLANS])
            feed(simulation, 1)
            lost = False
            for moment, call in ((0.1, "fragment"), (0.25, "gather")):
                if at < moment and not lost:
                    simulation.run(at)
                    simulation.lose(process, 0.003)
                    lost = True
                simulation.run(max(moment, simulation.time))
                while "manager" in simulation.carrier.held:
                    simulation.run(simulation.time + 0.001)
                if call == "fragment":
                    simulation.fragment(KEY, "A", to=[1, 2])
                else:
                    simulation.gather(KEY)
            if not lost:
                simulation.run(at)
                simulation.lose(process, 0.003)
            finished(simulation)
            assert results_of(simulation) == expected(1), (how, step, process)
            assert simulation.owners[4:] == [-1, -1], (how, step, process)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_fragments_among_moves_and_losses(seed: int) -> None:
    drawn, data, simulation = drawn_cluster(seed)
    down: set[int | str] = set()
    dealt: dict[int, str] = {}
    for at in sorted(drawn.random() * 0.4 for _ in range(8)):
        simulation.run(at)
        if "manager" in simulation.carrier.held:
            continue
        kind, key = drawn.choice(["fragment", "gather", "move", "lose"]), drawn.randrange(6)
        if kind == "fragment":
            live = simulation._fragments(simulation.query.hash_of(key))
            deal = dealt.setdefault(key, drawn.choice("ABC")) if live else drawn.choice("ABC")
            dealt[key] = deal
            simulation.fragment(key, deal, to=[drawn.choice([n for n in range(3) if n not in simulation.carrier.gone])])
        elif kind == "gather" and simulation._fragments(simulation.query.hash_of(key)):
            simulation.gather(key)
        elif kind == "move":
            groups = [group for group, node in enumerate(simulation.owners) if node >= 0]
            to = drawn.choice([n for n in range(3) if n not in simulation.carrier.gone])
            simulation.move(drawn.sample(groups, 2), to, drawn.choice(["parallel", "state", "jit"]))
        elif kind == "lose":
            process = drawn.choice([0, 1, 2, "manager", "split A"])
            if process not in down:
                down.add(process)
                for_good = isinstance(process, int) and not simulation.carrier.gone and not down & {0, 1, 2} - {process}
                simulation.lose(process, None if for_good else drawn.choice([0.0, 0.003, 0.05]))
    finished(simulation)
    assert results_of(simulation) == expected(data)


def test_errors() -> None:
    simulation = cluster()
    simulation.fragment(KEY, "A", to=[1])
    for call, says in (
        (lambda: simulation.fragment(KEY, "D", to=[1]), "there is no stream 'D'"),
        (lambda: simulation.fragment("x", "A", to=[1]), "does not fit the key"),
        (lambda: simulation.fragment((1, 2), "A", to=[1]), "a value for each column of the key: k"),
        (lambda: simulation.fragment(None, "A", to=[1]), "join no others"),
        (lambda: simulation.fragment(KEY, "B", to=[1]), "in fragments by stream A"),
        (lambda: simulation.fragment(KEY, "A", to=[]), "no node for a fragment"),
        (lambda: simulation.fragment(KEY, "A", to=[7]), "there is no node 7"),
        (lambda: simulation.gather(4), "key 4 is not in fragments"),
    ):
        with pytest.raises(InputError, match=says):
            call()


def test_a_hot_key_gets_fragments_and_loses_them_when_it_cools() -> None:
    """Half of all rows have one key for a while: no move of its group can balance the nodes."""
    simulation = ClusterSimulation(query(), [Node(speed=0.05)] * 4, groups=16, balance=Balance(every=0.25))
    others = itertools.cycle(range(100, 260))
    numbers, rows = itertools.count(), list[dict[str, Any]]()
    for t in range(120):
        for name in STREAMS:
            keys = [next(others) for _ in range(4)] + [KEY] * (4 if 10 <= t < 60 and name != "C" else 0)
            stream_rows = [{"k": k, "t": t, "v": next(numbers)} for k in keys]
            rows += [{"stream": name, **row} for row in stream_rows]
            simulation.push({name: stream_rows}, at=t * 0.05)
    simulation.run(3.0)
    assert max(simulation.owners[16:], default=-1) >= 0, "no fragment"
    finished(simulation)
    hows = [row["how"] for row in simulation.history().to_pylist()]
    assert hows.count("fragment") == hows.count("gather") >= 1
    assert set(simulation.owners[16:]) == {-1}
    assert results_of(simulation) == joined(rows)

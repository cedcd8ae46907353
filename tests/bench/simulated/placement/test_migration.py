"""Two-phase migration: its messages, and that no node switches before all have full windows; windows in both ways."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow.compute as pc
import pytest

from bench.simulated.placement.migration import TwoPhase
from bench.simulated.placement.network import Faults
from bench.simulated.placement.pieces import GlobalReady, Install, LocalReady
from bench.simulated.placement.simulation import PlacementSimulation
from eddy import StateError
from tests.eddy.placement.chains import batches, chain, expected, results, rows


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("doubled", [False, True])
def test_all_switch_after_all_are_ready(n: int, doubled: bool) -> None:
    draw = random.Random(n)
    nodes = [TwoPhase(7, node, frozenset(range(n))) for node in range(n)]
    pending: list[tuple[int, LocalReady | GlobalReady]] = []
    full, sent = list(range(n)), Counter[str]()
    while full or pending:
        if full and (not pending or draw.random() < 0.3):
            answers = nodes[full.pop(draw.randrange(len(full)))].full()
        else:
            to, message = pending[draw.randrange(len(pending))]
            if not doubled or draw.random() < 0.5:
                pending.remove((to, message))
            answers = nodes[to].handle(message)
        assert not (full and any(node.switched for node in nodes))
        sent.update(type(envelope.message).__name__ for envelope in answers)
        pending += [(envelope.to, envelope.message) for envelope in answers]
    assert all(node.switched for node in nodes)
    assert sent.total() == 2 * n * (n - 1)
    assert nodes[0].full() == []


SPAN = 10
KEYS = {"S0": ["k0"], "S1": ["k0", "k1"], "S2": ["k1"]}
PLAN = {
    "S0": [("S1", "ship"), ("S2", "ship")],
    "S1": [("S0", "ship"), ("S2", "ship")],
    "S2": [("S1", "ship"), ("S0", "ship")],
}
OTHER = {head: [(stream, "window") for stream, _ in hops] for head, hops in PLAN.items()}


def changed(migration: str, keys: int = 40) -> tuple[PlacementSimulation, Counter[str], float]:
    """Change the plan of a chain after four epochs; return the messages since then, and the bytes of windows."""
    query = chain(3, None)
    epochs = rows(query, 6, 20, keys, 3)
    cluster = PlacementSimulation(query, placement=PLAN, migration=migration)
    tables = [cluster.push(batches(query, epoch)) for epoch in epochs[:4]]
    cluster.change(OTHER)
    tables += [cluster.push(batches(query, epoch)) for epoch in epochs[4:]]
    assert results(tables) == expected(query, epochs)
    told = cluster.messages()
    base = pc.sum(told.filter(pc.equal(told["name"], "Base"))["bytes"]).as_py()
    return cluster, Counter(told["name"].to_pylist()), base


def test_messages_of_the_distributed_track() -> None:
    cluster, names, _ = changed("track")
    copies = 6  # each node now keeps the windows of the two other streams
    assert names == {"Install": 2, "Request": copies, "Base": copies, "LocalReady": 6, "GlobalReady": 6}
    assert {len(node.programs) for node in cluster.nodes} == {1}


def test_just_in_time_moves_the_rows_that_are_probed() -> None:
    _, names, in_time = changed("log", 1000)
    _, _, whole = changed("track", 1000)
    assert not {"LocalReady", "GlobalReady"} & names.keys()
    assert in_time < whole


def test_operators_follow_the_plan() -> None:
    cluster, _, _ = changed("track")
    assert cluster.operators()[0]["N0"] == [
        "join(S0, S1)",
        "join(S1^S0, S2)",
        "ship(S0, N1)",
        "ship(S0, N2)",
        "ship(S2^S0, site)",
        "update(S1)",
        "update(S2)",
    ]
    assert cluster.history()["reason"].to_pylist() == ["asked for"]


def test_a_node_that_is_down_is_named_and_comes_back() -> None:
    query = chain(3)
    epochs = rows(query, 2, 10, 3, 1)
    cluster = PlacementSimulation(query, placement=PLAN, faults=Faults(resend_after=0.1))
    first = cluster.push(batches(query, epochs[0]))
    cluster.crash(1)
    cluster.feed(batches(query, epochs[1]), 20)
    with pytest.raises(StateError, match=r"wait for nodes \[1\], which are down"):
        cluster.drain()
    cluster.restart(1)
    assert results([first, cluster.drain()]) == expected(query, epochs)
    with pytest.raises(StateError, match="perfect network"):
        PlacementSimulation(query, placement=PLAN).crash(1)


def test_rows_that_no_tuple_probes_are_not_requested() -> None:
    query = chain(3, None)
    epochs = rows(query, 3, 20, 40, 3)
    apart = {
        name: {
            c: [value if c in "tn" or value is None else value + 1000 for value in rows_]
            for c, rows_ in columns.items()
        }
        for name, columns in epochs[2].items()
    }
    cluster = PlacementSimulation(query, placement=PLAN)
    for epoch in epochs[:2]:
        cluster.push(batches(query, epoch))
    cluster.change(OTHER)
    cluster.push(batches(query, apart))
    told = Counter(cluster.messages()["name"].to_pylist())
    assert told == {"Install": 2, "BaseKeys": 6}  # each node now keeps the windows of the two other streams
    tables = cluster.push(batches(query, epochs[2]))
    assert {"Request", "Base"} < set(cluster.messages()["name"].to_pylist())
    assert tables.num_rows


def test_rows_that_are_due_before_a_tuple_are_not_requested() -> None:
    """The first rows after a change have the keys of the base, but lie beyond its windows."""
    query = chain(3, SPAN)
    early, late = ({name: {"t": [t], "n": [t], **{c: [1] for c in KEYS[name]}} for name in KEYS} for t in (0, SPAN + 1))
    between = {"S0": {**early["S0"], "t": [SPAN]}}
    for rows_, requested in ((late, False), (between, True)):
        cluster = PlacementSimulation(query, placement=PLAN)
        assert cluster.push(early).num_rows == 1
        cluster.change(OTHER)
        cluster.push({})  # the nodes change
        assert cluster.push(rows_).num_rows == 1
        assert ("Request" in cluster.messages()["name"].to_pylist()) == requested


@pytest.mark.parametrize("nodes", [1, 2, 9, 10, 64])
@pytest.mark.parametrize("root", [0, 1])
def test_a_program_reaches_every_node_once(nodes: int, root: int) -> None:
    root %= nodes
    program = PlacementSimulation(chain(3), nodes, placement="grid").nodes[0].programs[1]
    message, reached = Install(program, False, root), [root]
    for node in reached:
        reached += message.children(node, nodes)
    assert sorted(reached) == list(range(nodes))

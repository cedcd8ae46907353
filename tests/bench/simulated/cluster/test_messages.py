"""The protocols send exactly the messages of the paper, in its order."""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc
import pytest

from bench.simulated.cluster import Variants
from bench.simulated.cluster.messages import STEPS
from bench.simulated.cluster.records import MESSAGES, MOVES
from tests.bench.simulated.cluster.cases import expected, moved_once, results_of

M, N0, N1, A, B, C = "manager", "node 0", "node 1", "split A", "split B", "split C"
SPLITS = (A, B, C)
ASKED = [(1, "ComputePartitionsToMove", M, (N0,)), (2, "PartitionsToMove", N0, (M,))]
EXACT = {
    "parallel": [
        *ASKED,
        (3, "DuplicatePartitions", M, (N0, *SPLITS)),
        (4, "AllOldPurged", N0, (M,)),
        (5, "DeletePartitions", M, (N0, *SPLITS)),
        *((5, "EndOfPartitions", split, (N0,)) for split in SPLITS),
    ],
    "state": [
        *ASKED,
        (3, "DeactivatePartitions", M, (N0, *SPLITS)),
        *((3, "EndOfPartitions", split, (N0,)) for split in SPLITS),
        *((4, "Deactivated", process, (M,)) for process in (*SPLITS, N0)),
        (5, "SendPartitions", M, (N0,)),
        (6, "ReceivePartitions", N0, (N1,)),
        (7, "Received", N1, (M,)),
        (8, "ReactivatePartitions", M, SPLITS),
    ],
    "jit": [
        *ASKED,
        (3, "CopyPartitions", M, SPLITS),
        *((4, "BaseWindows", split, (N1,)) for split in SPLITS),
        (5, "Copied", N1, (M,)),
        (6, "SwitchPartitions", M, (N0, *SPLITS)),
        *((6, "EndOfPartitions", split, (N0,)) for split in SPLITS),
        (7, "RemainingPartitions", N0, (N1,)),
        (8, "Switched", N1, (M,)),
    ],
}
"""Per protocol: step, message, from, to."""


@pytest.mark.parametrize("how", EXACT)
def test_a_move_sends_the_messages_of_its_protocol(how: str) -> None:
    simulation = moved_once(how)
    assert results_of(simulation) == expected(1)
    table = simulation.messages()
    assert table.schema == MESSAGES
    sent = [(row["step"], row["kind"], row["from"], row["to"]) for row in table.to_pylist()]
    assert Counter(sent) == Counter((step, kind, sender, to) for step, kind, sender, tos in EXACT[how] for to in tos)
    # A message leaves after the messages that it answers; flags and the reports of splits may interleave.
    firsts = [next(k for k, row in enumerate(sent) if row[1] == kind) for kind in STEPS[how]]
    assert firsts == sorted(firsts)
    for before, after in zip(STEPS[how], STEPS[how][1:], strict=False):
        messages = [row for row in table.to_pylist() if row["kind"] in (before, after)]
        arrived = [row["sent"] + row["seconds"] for row in messages if row["kind"] == before]
        assert min(arrived) <= min(row["sent"] for row in messages if row["kind"] == after)
    assert pc.min(table["seconds"]).as_py() > 0


@pytest.mark.parametrize("how", EXACT)
def test_history_of_a_move(how: str) -> None:
    simulation = moved_once(how)
    history = simulation.history()
    assert history.schema == MOVES
    (move,) = history.to_pylist()
    assert (move["how"], move["groups"], move["sender"], move["receiver"]) == (how, [0, 2], 0, 1)
    assert move["state"] == "done"
    assert move["asked"] == pytest.approx(0.15)
    assert move["asked"] <= move["began"] < move["ended"]
    assert move["messages"] == simulation.messages().num_rows
    assert move["bytes"] == pc.sum(simulation.messages()["bytes"]).as_py()
    assert (move["pause"] > 0) == (how != "parallel")
    assert simulation.owners == [1, 1, 1, 1]


def test_jit_from_the_sender_forwards_what_still_comes() -> None:
    simulation = moved_once("jit", variants=Variants(copy="sender"))
    assert results_of(simulation) == expected(1)
    table = simulation.messages()
    windows = table.filter(pc.equal(table["kind"], "BaseWindows")).to_pylist()
    assert [(row["from"], row["to"]) for row in windows] == [(N0, N1)]
    assert windows[0]["rows"] > 0
    flags = table.filter(pc.equal(table["kind"], "EndOfPartitions")).to_pylist()
    assert Counter((row["from"], row["to"]) for row in flags) == Counter([(N0, N1)] * 3 + [(s, N0) for s in SPLITS])


def test_jit_from_the_logs_makes_the_sender_pack_nothing() -> None:
    from_log, from_sender = (
        moved_once("jit", variants=Variants(copy=copy)).history().to_pylist()[0] for copy in ("log", "sender")
    )
    assert from_log["sender_work"] < from_sender["sender_work"]


def test_ptlb_takes_a_window_and_two_windows_in_the_paper() -> None:
    exact, paper = (
        moved_once("parallel", variants=Variants(purge=purge), at=0.1).history().to_pylist()[0]
        for purge in ("exact", "paper")
    )
    # Windows are 6 to 10 ticks of 0.01 s; the split's progress and the links add a tick.
    assert 0.09 < exact["ended"] - exact["asked"] < 0.14
    assert 0.19 < paper["ended"] - paper["asked"] < 0.24


def test_mslb_takes_matching_states_and_computes_the_others() -> None:
    """Equal plans: all states match. Other plans: states are computed at the receiver."""
    from bench.simulated.cluster import Node

    work = {}
    for plan in ("(A B) C", "(B C) A"):
        nodes = [Node("(A B) C", "moving-state"), Node(plan, "moving-state")]
        simulation = moved_once("state", nodes=nodes, seed=2)
        assert results_of(simulation) == expected(2)
        work[plan] = simulation
    same, other = (work[plan].carrier.machines[1] for plan in ("(A B) C", "(B C) A"))
    assert same is not None
    assert other is not None
    runtime = same.processor.tracks[2, 1].runtime
    assert runtime is not None
    assert runtime.changes == 0
    runtime = other.processor.tracks[2, 1].runtime
    assert runtime is not None
    assert runtime.history().select(["new", "kept", "recomputed"]).to_pylist() == [
        {"new": "(B C) A", "kept": 0, "recomputed": 1}
    ]

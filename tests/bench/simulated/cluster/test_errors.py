"""Errors of a simulation and their messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bench.simulated.cluster import Balance, ClusterSimulation, Link, Node, Variants
from eddy import Branch, Query, Range, Rows, Stream, Unbounded
from eddy.errors import EddyError, InputError, QueryError
from tests.bench.simulated.cluster.cases import SCHEMA, cluster, feed, query


def streams(*windows: object) -> list[Stream]:
    return [Stream(name, SCHEMA, window=window, time="t") for name, window in zip("RS", windows, strict=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Query(streams(Rows(3), Range(3)), ["R.k = S.k"]), "stream R: a window of .* use a Range window"),
        (lambda: Query(streams(Unbounded(), Unbounded()), ["R.k = S.k"]), "no stream has a Range window"),
        (
            lambda: Query(streams(Range(3), Range(3)), ["R.k < S.k"]),
            "no attribute class has columns of all streams R, S",
        ),
        (
            lambda: Query(
                streams(Range(3), Range(3))[:1],
                branches=[Branch(streams(Range(3), Range(3))[1:], ["R.k = S.k"], "left")],
            ),
            "inner joins, and this query has branches",
        ),
    ],
)
def test_queries(made, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(QueryError, match=says):
        ClusterSimulation(made())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": []}, "at least 1 node"),
        ({"nodes": [Node(speed=0)]}, "speed=0; give a speed above 0"),
        ({"groups": 0}, "groups=0"),
        ({"groups": []}, r"groups=\[\]"),
        ({"groups": [0, 5]}, r"groups=\[0, 5\]: name a node of 0 to 1 for each group"),
        ({"nodes": [Node("A B")]}, "plan"),
    ],
)
def test_arguments(options: dict[str, object], says: str) -> None:
    with pytest.raises(EddyError, match=says):
        ClusterSimulation(query(), **options)  # type: ignore[arg-type]


def test_links_variants_and_balances() -> None:
    with pytest.raises(InputError, match="purge='never': choose one of 'exact', 'paper'"):
        Variants(purge="never")
    with pytest.raises(InputError, match="copy='tape'"):
        Variants(copy="tape")
    with pytest.raises(InputError, match="a latency is 0 or more"):
        Link(latency=-1)
    for arguments in ({"how": "magic"}, {"measure": "height"}, {"every": 0}, {"payback": -1}):
        with pytest.raises(InputError, match=next(iter(arguments))):
            Balance(**arguments)  # type: ignore[arg-type]


def test_calls() -> None:
    simulation = cluster()
    feed(simulation, 1, 5)
    simulation.run(0.02)
    for call, says in (
        (lambda: simulation.move([0], 2), "there is no node 2"),
        (lambda: simulation.move([4], 1), "there is no partition group 4"),
        (lambda: simulation.move([], 1), "no groups to move"),
        (lambda: simulation.move([0], 1, "magic"), "'parallel', 'state', 'jit'"),
        (lambda: simulation.push({"D": []}), "there is no stream 'D'"),
        (lambda: simulation.push({"A": []}, at=0.01), "the simulated clock is at 0.0"),
        (lambda: simulation.lose("node 0", 1), "there is no process 'node 0'"),
        (lambda: simulation.lose("manager"), "has to come back"),
    ):
        with pytest.raises(InputError, match=says):
            call()
    simulation.lose("manager", 1)
    with pytest.raises(InputError, match="the manager is down"):
        simulation.move([0], 1)
    simulation.lose(0)
    with pytest.raises(InputError, match="last one that runs"):
        simulation.lose(1)
    with pytest.raises(InputError, match="node 0 was lost"):
        simulation.move([0], 0)
    with pytest.raises(InputError, match="node 0 is down"):
        simulation.transition(0, "(A B) C")


def test_ptlb_needs_windows_that_end() -> None:
    joined = Query(streams(Range(3), Unbounded()), ["R.k = S.k"])
    simulation = ClusterSimulation(joined, groups=2)
    with pytest.raises(InputError, match="stream S is unbounded"):
        simulation.move([0], 1, "parallel")
    rows = pa.record_batch({"k": [1, 2], "t": [0, 1], "v": [0, 0]}, schema=SCHEMA)
    simulation.push({"R": rows, "S": rows})
    simulation.run()
    for to, how in ((1, "state"), (0, "jit")):
        simulation.move([0, 1], to, how)
        simulation.run()
    simulation.push({"R": rows.set_column(1, "t", pa.array([50, 50]))})
    simulation.run()
    assert simulation.results().num_rows == 4


def test_late_rows_are_counted() -> None:
    simulation = ClusterSimulation(query(lateness=2), groups=2)
    simulation.push({"A": [{"k": 1, "t": t, "v": 0} for t in (10, 8, 7, 12, 9)]})
    simulation.run()
    assert simulation.late_counts == {"A": 2, "B": 0, "C": 0}

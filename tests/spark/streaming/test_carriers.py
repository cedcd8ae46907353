"""The same moves on both carriers of the protocols: simulated nodes, and partitions of a streaming join on Spark."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bench.simulated.cluster import ClusterSimulation
from bench.simulated.cluster.messages import STEPS
from eddy.spark import join
from tests.bench.simulated.cluster.cases import SCHEMA, STREAMS, TICK, arrivals, expected, finished, query, results_of
from tests.spark.streaming.jobs import Inputs, await_rows, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED, GROUPS, CHUNK, LATENESS = 1, 4, 8, 8
"""Chunks of ticks arrive together on Spark, in any order within them."""
HOW = ("state", "jit")


class TwoPlaceJoin(Protocol):
    """A join on two places, of which the first has groups 0 and 1 at the start, and the other one 2 and 3."""

    def chunk(self, number: int) -> None:
        """Let the rows of a chunk arrive and be joined."""
        ...

    def move(self, groups: Sequence[int], to: int, how: str) -> None:
        """Request a move."""
        ...

    def lose(self) -> None:
        """Lose the engines of a place, which comes back empty."""
        ...

    def owners(self) -> list[int]:
        """Return the place of each group."""
        ...

    def steps(self) -> list[tuple[str, int, str]]:
        """Return how, step and kind of all messages of moves so far."""
        ...

    def end(self) -> Counter[tuple[int, ...]]:
        """End the input; return the results as (v, v, v)."""
        ...


def rows_of(number: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a chunk by stream."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in STREAMS}
    for row in arrivals(SEED):
        if row["t"] // CHUNK == number:
            rows[row["stream"]].append({name: row[name] for name in SCHEMA.names})
    return rows


class Simulated:
    """The carrier of `bench.simulated.cluster`."""

    def __init__(self) -> None:
        self.simulation = ClusterSimulation(query(LATENESS), 2, groups=[0, 0, 1, 1])

    def chunk(self, number: int) -> None:
        rows = rows_of(number)
        times = sorted({row["t"] for stream_rows in rows.values() for row in stream_rows})
        for t in times:
            batches = {name: [row for row in stream_rows if row["t"] == t] for name, stream_rows in rows.items()}
            self.simulation.push({name: batch for name, batch in batches.items() if batch}, at=t * TICK)
        self.simulation.run(times[-1] * TICK + TICK / 2)

    def move(self, groups: Sequence[int], to: int, how: str) -> None:
        self.simulation.move(groups, to, how)

    def lose(self) -> None:
        self.simulation.lose(1, restart=TICK / 10)

    def owners(self) -> list[int]:
        return self.simulation.owners

    def steps(self) -> list[tuple[str, int, str]]:
        return [(row["how"], row["step"], row["kind"]) for row in self.simulation.messages().to_pylist()]

    def end(self) -> Counter[tuple[int, ...]]:
        finished(self.simulation)
        return results_of(self.simulation)


class OnSpark:
    """The carrier of streaming joins."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.inputs = Inputs(root / "in", **dict.fromkeys(STREAMS, SCHEMA))
        joined = join(
            query(LATENESS),
            self.inputs.frames(spark),
            checkpoint=root / "state",
            partitions=2,
            key_groups=GROUPS,
            rebalance="off",
            strategy="jisc",
        )
        self.running = joined.writeStream.toParquet(root / "out")
        self.seen = 0

    def chunk(self, number: int) -> None:
        rows = rows_of(number)
        self.inputs.add_together(rows)
        self.seen += sum(map(len, rows.values()))
        await_rows(self.running, self.seen)

    def move(self, groups: Sequence[int], to: int, how: str) -> None:
        self.running.move(groups, to, how)  # type: ignore[arg-type]

    def lose(self) -> None:
        self.running.forget_engines()

    def owners(self) -> list[int]:
        return list(self.running.partition_map.partitions)

    def steps(self) -> list[tuple[str, int, str]]:
        how = {row["move"]: row["how"] for row in self.running.history().to_pylist()}
        return [(how[row["move"]], row["step"], row["kind"]) for row in self.running.messages().to_pylist()]

    def end(self) -> Counter[tuple[int, ...]]:
        self.running.stop()
        table = published(self.root / "out")
        return Counter(zip(*(table.column(f"{name}v").to_pylist() for name in STREAMS), strict=True))


@pytest.fixture(params=["simulated", "spark"])
def carrier(request: pytest.FixtureRequest, tmp_path: Path) -> TwoPlaceJoin:
    if request.param == "simulated":
        return Simulated()
    return OnSpark(request.getfixturevalue("spark"), tmp_path)


def test_the_same_moves_on_both_carriers(carrier: TwoPlaceJoin) -> None:
    """Moves of both kinds, there and back at once, overlapping moves, and lost engines while groups move."""
    assert carrier.owners() == [0, 0, 1, 1]
    chunks = itertools.count()
    carrier.chunk(next(chunks))
    carrier.move([0], 1, "state")
    carrier.move([2], 0, "jit")
    carrier.chunk(next(chunks))
    assert carrier.owners() == [1, 0, 0, 1]
    said = carrier.steps()
    assert {how for how, _, _ in said} == set(HOW)
    state = [(step, kind) for how, step, kind in said if how == "state" and kind in STEPS["state"]]
    # A carrier names the messages as the paper does, and sends them in this order. On Spark the boundary of a
    # micro-batch stands for the others.
    assert state == sorted(state, key=lambda message: message[0])
    assert all(STEPS["state"][step - 1] == kind for step, kind in state)
    assert {"PartitionsToMove", "SendPartitions", "ReceivePartitions", "Received", "ReactivatePartitions"} <= {
        kind for _, kind in state
    }
    for how in HOW:
        carrier.move([1, 3], 0, how)
        carrier.move([1], 1, how)
        carrier.move([1], 0, how)
    carrier.move([3], 1, "jit")
    carrier.chunk(next(chunks))
    assert carrier.owners() == [1, 0, 0, 1]
    carrier.move([0], 0, "jit")
    carrier.move([1], 1, "state")
    carrier.lose()
    carrier.chunk(next(chunks))
    carrier.chunk(next(chunks))
    # A move whose engines are lost ends in the old or the new place; the others stay.
    assert carrier.owners()[2:] == [0, 1]
    assert carrier.end() == expected(SEED)

"""Cases of clusters: a query of three streams, rows of a seed, and the results by a nested loop."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from bench.simulated.cluster import ClusterSimulation, Link, Node, Variants
from eddy import Query, Range, Stream
from jisc.strategies import STRATEGIES

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
STREAMS = ("A", "B", "C")
SPANS = {"A": 8, "B": 6, "C": 10}
PLANS = ("(A B) C", "(B C) A", "(A C) B")
TICK = 0.01
"""Seconds of the simulated clock per unit of event time."""


def query(lateness: int = 0) -> Query:
    streams = [Stream(name, SCHEMA, window=Range(SPANS[name]), time="t") for name in STREAMS]
    select = {f"{name}{column}": f"{name}.{column}" for name in STREAMS for column in ("k", "t", "v")}
    return Query(streams, ["A.k = B.k", "B.k = C.k"], select=select, lateness=lateness)


@cache
def arrivals(seed: int, ticks: int = 40, rows: int = 2, keys: int = 6) -> tuple[dict[str, Any], ...]:
    """Return the rows in order of arrival, with distinct values v; event times of a stream do not decrease."""
    drawn, numbers = random.Random(seed), itertools.count()
    arrived = []
    for t in range(ticks):
        for name in STREAMS:
            for _ in range(drawn.randint(0, rows)):
                arrived.append({"stream": name, "k": drawn.randrange(keys), "t": t, "v": next(numbers)})
    return tuple(arrived)


@cache
def expected(seed: int, ticks: int = 40) -> Counter[tuple[int, ...]]:
    """Return the results as (v, v, v) of the arrivals of a seed."""
    return joined(arrivals(seed, ticks))


def joined(rows: Sequence[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    """Return the results as (v, v, v) by a nested loop over rows in the form of `arrivals`."""
    by_stream = {name: [row for row in rows if row["stream"] == name] for name in STREAMS}
    results: Counter[tuple[int, ...]] = Counter()
    for a in by_stream["A"]:
        for b in (b for b in by_stream["B"] if b["k"] == a["k"]):
            for c in (c for c in by_stream["C"] if c["k"] == a["k"]):
                newest = max(a["t"], b["t"], c["t"])
                if all(newest - row["t"] <= SPANS[row["stream"]] for row in (a, b, c)):
                    results[a["v"], b["v"], c["v"]] += 1
    return results


def results_of(simulation: ClusterSimulation) -> Counter[tuple[int, ...]]:
    """Return the results of a simulation as (v, v, v)."""
    table = simulation.results()
    return Counter(zip(*(table.column(f"{name}v").to_pylist() for name in STREAMS), strict=True))


def feed(simulation: ClusterSimulation, seed: int, ticks: int = 40) -> None:
    """Let all rows arrive, one unit of event time each TICK."""
    for t, of_time in itertools.groupby(arrivals(seed, ticks), key=lambda row: row["t"]):
        batches: dict[str, list[dict[str, int]]] = {}
        for row in of_time:
            batches.setdefault(row["stream"], []).append({name: row[name] for name in SCHEMA.names})
        simulation.push(batches, at=t * TICK)


def cluster(
    nodes: Sequence[Node] | None = None, *, groups: int | Sequence[int] = 4, link: Link | None = None, **options: Any
) -> ClusterSimulation:
    """Return a simulation of slow nodes with different plans, two if none are given."""
    given = nodes or [Node(plan, speed=0.01) for plan in PLANS[:2]]
    return ClusterSimulation(query(), given, link, groups=groups, **options)


def finished(simulation: ClusterSimulation) -> None:
    """Run to the end: of the input, of the windows, of all moves."""
    simulation.run()
    simulation.finish()
    simulation.run()
    assert simulation.manager.idle


def moved_once(how: str, seed: int = 1, at: float = 0.15, **options: Any) -> ClusterSimulation:
    """Return a simulation in which groups 0 and 2 moved from node 0 to node 1, at its end."""
    simulation = cluster(**options)
    feed(simulation, seed)
    simulation.run(at)
    simulation.move([0, 2], 1, how)
    finished(simulation)
    return simulation


def delays(seed: int, most: float) -> Callable[[str, str, int], float]:
    """Return delays of messages up to a number of seconds."""
    drawn = random.Random(seed)
    return lambda source, to, number: drawn.random() * most


def drawn_cluster(seed: int) -> tuple[random.Random, int, ClusterSimulation]:
    """Return the generator of a seed, the number of the data, and three random nodes to which the data goes."""
    drawn = random.Random(seed)
    data = drawn.randrange(4)
    nodes = [Node(drawn.choice(PLANS), drawn.choice(list(STRATEGIES)), speed=drawn.choice([1, 0.01])) for _ in range(3)]
    simulation = cluster(
        nodes,
        link=Link(delay=delays(seed, drawn.choice([0.0, 0.02]))),
        variants=Variants(copy=drawn.choice(["log", "sender"])),
    )
    feed(simulation, data)
    return drawn, data, simulation

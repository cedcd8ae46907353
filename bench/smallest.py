"""The smallest size of each figure, with which a run shows only that the figure can be measured.

The structure is that of a quick run (the numbers of joins and streams, strategies, shapes, workloads), since code may
fail for a single one of these; only amounts shrink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.harness.figure import Figure, Point, Scalar

ONCE: Mapping[str, Scalar] = {"rounds": 1, "turns": 1, "repeats": 1, "seeds": 1}
AMOUNTS: Mapping[str, Mapping[str, Scalar]] = {
    "peers": {"warm": 2_000, "arrivals": 1_000, "batch": 1_000},
    "peers-batch": {"warm": 100_000, "arrivals": 100_000},
    "nexmark": {"events": 2_000},
    "limit": {"arrivals": 20_000},
    "streaming": {"rows": 2_000, "live_rows": 1_000},
    "hub": {"rows": 2_000, "batches": 2, "number": 3},
    "spark-aggregates": {"rows": 2_000, "batches": 1},
    "spill": {"rows": 200, "live_rows": 500, "batches": 1},
    "spill-runtime": {"window": 2_000, "push": 500, "turns": 1},
    "soak": {"rows": 200},
    "adaptivity": {"part": 0.01},
    "strategies": {"part": 0.01},
    "transitions": {"window": 500, "calls": 2},
    "joins": {"window": 200, "rows": 2_000},
    "aggregates": {"window": 500, "rows": 1_000},
    "changes": {"window": 1_000, "pushes": 1},
    "changes-drift": {"window": 1_000, "push": 500, "pushes": 1},
    "sharing": {"window": 500, "push": 500, "pushes": 1, "graphs": 2, "keys": 500},
    "filters": {"rows": 2_000},
    "shedding": {"seconds": 0.5, "window": 0.05},
    "placement-spark": {"streams": 4, "rows": 1_000},
    "placement-spark-costs": {"joins": 3},
    "placement-stream": {"streams": 4, "rows": 100, "batches": 2},
    "lifecycle": {"window": 10},
    "placement": {"epochs": 2, "rows": 100},
    "balancing": {"seconds": 20, "rows": 200, "live_rows": 100},
    "latency": {"accesses": 1_000},
    "floor": {"window": 1_000, "arrivals": 2_000, "push": 1_000},
    "profile": {"window": 1_000, "arrivals": 5_000},
    "propositions": {"joins": 10},
    "fig7": {"window": 20},
    "fig8": {"window": 20},
    "fig9": {"window": 50, "step": 5_000},
    "fig10": {"window": 50},
    "fig11": {"window": 20, "tuples": 5_000, "period": 1_000},
    "fig12": {"window": 20, "tuples": 5_000, "period": 1_000},
    "growth": {"settle": 2_000, "window": 100, "arrivals": 1_000, "push": 500},
}
"""Per figure, or the start of the names of several, the columns of a point that shrink, and their values."""

FEWER: Mapping[str, Mapping[str, Scalar]] = {"streaming": {"warm": 2}, "hub": {"warm": 2}}
"""Per figure, amounts that points do not have otherwise: the micro-batches before the measured ones."""


def with_smallest_points(figure: Figure) -> Figure:
    """Return a figure whose points are those of a quick run in the smallest sizes, each once."""
    name = figure.name if figure.name in AMOUNTS else figure.name.partition("-")[0]
    values, smallest = {**ONCE, **AMOUNTS.get(name, {})}, list[Point]()
    for point in figure.points(False):
        reduced = {column: values.get(column, value) for column, value in point.items()} | dict(
            FEWER.get(figure.name, {})
        )
        if reduced not in smallest:
            smallest.append(reduced)
    return replace(figure, points=lambda full: smallest)

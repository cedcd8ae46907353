"""Measuring figures, point after point."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from rich.console import Console

import eddy
from bench.harness.figure import Figure, Point
from bench.harness.others import Others
from bench.harness.stamp import stamp
from bench.harness.store import Store, record_of
from bench.measure import progress

BUSY = 0.5
"""More processes than so many, waiting for a core when a run begins, are said to disturb it."""


@dataclass(frozen=True)
class Failure:
    """A point that was not measured, and why."""

    figure: str
    point: Point
    reason: str


def missing(figure: Figure, store: Store, full: bool) -> list[Point]:
    """Return the points that were not measured yet with these sources on this machine."""
    here = stamp()
    points = figure.points(full)
    done = [dict(record.point) for record in store.of_points(figure.name, points) if record.stamp == here]
    return [point for point in points if dict(point) not in done]


def measure(figures: Sequence[Figure], store: Store, *, full: bool, again: bool, console: Console) -> list[Failure]:
    """Measure what is missing, or everything if `again`; return what failed.

    A point that fails keeps nothing and does not stop the others: what failed is measured when the run is taken up.
    """
    todo = [(figure, list(figure.points(full)) if again else missing(figure, store, full)) for figure in figures]
    count = sum(len(points) for _, points in todo)
    known = sum(len(figure.points(full)) for figure in figures) - count
    if known:
        console.print(f"{known} points are known from before, measured with the same sources here (--again: anew)")
    if not count:
        return []
    if os.getloadavg()[0] > BUSY:
        console.print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): figures may suffer from it")
    eddy.warmup()
    failures = []
    with progress(console) as bar:
        task = bar.add_task("", total=count)
        for figure, points in todo:
            for point in points:
                bar.update(task, description=figure.name)

                def say(doing: str, name: str = figure.name) -> None:
                    bar.update(task, description=f"{name}: {doing}")

                start, others = perf_counter(), Others()
                try:
                    rows = figure.measure(point, say)
                except Exception as error:
                    failures.append(Failure(figure.name, point, f"{type(error).__name__}: {error}"))
                    console.print(f"{figure.name} {dict(point)}: {type(error).__name__}: {error}", markup=False)
                else:
                    taken, cores = perf_counter() - start, others.cores()
                    store.add(figure.name, record_of(point, rows, stamp(), taken, round(cores, 2)))
                bar.advance(task)
    return failures

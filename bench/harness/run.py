"""Measuring figures, point by point."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import eddy
from bench.harness.figure import Figure, Point
from bench.harness.store import Store, machine, record_of, sources

BUSY = 0.5
"""Load average above which a run logs a warning at its beginning."""


class Others:
    """CPU time of other processes, or of the host of a virtual machine, from now on."""

    def __init__(self) -> None:
        self._start, self._busy, self._used = perf_counter(), _busy_s(), _own_s()

    def cores(self) -> float:
        """Return the average number of cores that other processes have used since the start."""
        taken = (_busy_s() - self._busy) - (_own_s() - self._used)
        return max(taken, 0.0) / (perf_counter() - self._start)


def _busy_s() -> float:
    """Return the CPU seconds that all cores have worked, including those that the host gave to other guests."""
    times = psutil.cpu_times()._asdict()
    # `user` already includes the time of guests.
    return float(sum(times[name] for name in times if name not in ("idle", "iowait", "guest", "guest_nice")))


def _own_s() -> float:
    """Return the CPU seconds of this process and of all processes that it started, running or ended."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # the child has ended in the meantime, and its time counts as time of its parent
        total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass(frozen=True)
class FailedPoint:
    """A point that could not be measured, and the reason."""

    figure: str
    point: Point
    reason: str


def missing(figure: Figure, store: Store, points: Sequence[Point]) -> list[Point]:
    """Return the points that were not measured with the current sources on this machine."""
    here = (machine(), sources())
    done = [record.point for record in store.of_points(figure.name, points) if (record.machine, record.sources) == here]
    return [point for point in points if dict(point) not in done]


def chosen(figure: Figure, full: bool, where: Sequence[str]) -> list[Point]:
    """Return the points of a run that match every "column=value" of `where`; a point without the column matches."""
    pairs = [condition.partition("=")[::2] for condition in where]
    return [p for p in figure.points(full) if all(str(p.get(name, value)) == value for name, value in pairs)]


def measure(
    figures: Sequence[Figure], store: Store, *, full: bool, again: bool, console: Console, where: Sequence[str] = ()
) -> list[FailedPoint]:
    """Measure the points that are missing, or all of them if `again`; return the failures.

    A point that fails has no record and does not stop the other points; the next run measures it again.
    """
    wanted = [(figure, chosen(figure, full, where)) for figure in figures]
    todo = [(figure, points if again else missing(figure, store, points)) for figure, points in wanted]
    count = sum(len(points) for _, points in todo)
    known = sum(len(points) for _, points in wanted) - count
    if known:
        console.print(f"{known} points were measured before with the same sources on this machine (--again: repeat)")
    if not count:
        return []
    if os.getloadavg()[0] > BUSY:
        console.print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): the figures may suffer from it")
    eddy.warmup()
    failures = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
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
                    failures.append(FailedPoint(figure.name, point, f"{type(error).__name__}: {error}"))
                    console.print(f"{figure.name} {dict(point)}: {type(error).__name__}: {error}", markup=False)
                else:
                    store.add(figure.name, record_of(point, rows, perf_counter() - start, others.cores()))
                bar.advance(task)
    return failures

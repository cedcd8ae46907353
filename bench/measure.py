"""Repeated measurement of several ways to do the same work, in turn, so that a drift of the machine hits all of them.

A ratio is taken round by round and its median is quoted; times are CPU times of the thread where everything runs in
one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from time import thread_time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.harness.stamp import processor, versions
from eddy import EddyError

Work = Callable[[], object]


class Mismatch(EddyError):
    """Two ways to do the same work gave different numbers of results."""


def agree(name: str, found: Mapping[str, object]) -> None:
    """Raise Mismatch unless all ways to do one work found the same."""
    values = list(found.values())
    if any(value != values[0] for value in values):
        raise Mismatch(f"{name}: numbers of results differ: {dict(found)}; no figure of it means anything")


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the garbage collector from running, as `timeit` does; what there is by now it will not look at either."""
    ran = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if ran:
            gc.enable()


def seconds(work: Work) -> float:
    """Return the CPU seconds of one call."""
    start = thread_time()
    work()
    return thread_time() - start


def progress(report: Console) -> Progress:
    """Return a progress bar on `report`."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=report
    )


def rounds(works: dict[str, Callable[[], float]], count: int, title: str, report: Console) -> dict[str, list[float]]:
    """Call each work once a round and return the seconds it gives, `count` rounds. One round before is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    with progress(report) as bar:
        task = bar.add_task(title, total=(count + 1) * len(works))
        for turn in range(count + 1):
            for name, work in works.items():
                elapsed = work()
                if turn:
                    taken[name].append(elapsed)
                bar.advance(task)
    return taken


def ratio(taken: dict[str, list[float]], slower: str, faster: str) -> float:
    """Return the speed of `slower` in terms of that of `faster`: the median over the rounds."""
    return median(one / other for one, other in zip(taken[faster], taken[slower], strict=True))


def machine() -> str:
    """Return the processor, the core count, and the versions of what the figures depend on."""
    return f"{processor()}, {versions()}"

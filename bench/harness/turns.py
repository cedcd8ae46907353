"""Several ways to do the same work, measured in turns, so that a slower machine affects all ways.

A ratio is computed for each round, and the median is reported. Times are CPU times of the thread if all work runs in
one thread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.harness.figure import Row, Say, spread
from eddy import EddyError

Work = Callable[[], tuple[float, object]]
"""A function that does the work once and returns its seconds and its results, usually their number. All ways must
return the same results."""
Taken = dict[str, list[float]]
"""Seconds of each way, one entry for each round."""


class Mismatch(EddyError):
    """Two ways to do the same work gave different results."""


def agree(name: str, results: Mapping[str, object]) -> None:
    """Raise Mismatch unless all ways to do one work found the same results."""
    values = list(results.values())
    if any(value != values[0] for value in values):
        raise Mismatch(f"{name}: numbers of results differ: {dict(results)}; no figure of it means anything")


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the garbage collector from running, as `timeit` does, and exempt the objects that exist already."""
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


def take_turns(name: str, works: Mapping[str, Work], count: int, say: Say) -> Taken:
    """Call each work once a round and return its seconds in `count` rounds; one round before them is not counted.

    Raises Mismatch if the results of a round differ.
    """
    taken: Taken = {way: [] for way in works}
    with without_gc():
        for turn in range(count + 1):
            results = {}
            for way, work in works.items():
                say(f"{name}, round {turn} of {count}: {way}")
                seconds, results[way] = work()
                if turn:
                    taken[way].append(seconds)
            agree(name, results)
    return taken


def speed(taken: Taken, way: str, other: str, name: str = "value") -> Row:
    """Return the speed of `way` relative to `other`: median, least and most of the rounds."""
    return spread([b / a for a, b in zip(taken[way], taken[other], strict=True)], name)


def time(taken: Taken, way: str, other: str, name: str = "value") -> Row:
    """Return the time of `way` over that of `other`: median, least and most of the rounds."""
    return speed(taken, other, way, name)

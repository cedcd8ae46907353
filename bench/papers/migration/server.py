"""A slow processor by a virtual clock: when pushes are done that come at a rhythm and take what was measured.

The machine of the paper could not keep up with the old plan in the high configuration; one of today can. So a push is
there at the end of its stream time, and the processor takes the seconds measured for it times a factor, one push after
another. The factor is the same for everything that is compared; it is such that the old plan of the high configuration
asks for `load` times the time there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Served:
    """ms of the clock, an entry for each push: when its work began, and when its results came out."""

    begun: list[float]
    done: list[float]


def slow_down(seconds: Sequence[float], stream_ms: float, load: float) -> float:
    """Return the factor by which these pushes, over so much stream time, make that load."""
    return load * stream_ms / (1e3 * sum(seconds))


def serve(available: Sequence[float], seconds: Sequence[float], factor: float, stalls: Sequence[float] = ()) -> Served:
    """Return when pushes are served.

    available  ms, when each push is there, ascending
    seconds    CPU seconds of each, measured
    factor     how much slower the processor is
    stalls     seconds of what is done just before each push and gives no output; none if left out
    """
    begun, done = [], []
    clock = 0.0
    for k, (there, taken) in enumerate(zip(available, seconds, strict=True)):
        clock = max(clock, there)
        begun.append(clock)
        clock += 1e3 * factor * (taken + (stalls[k] if stalls else 0.0))
        done.append(clock)
    return Served(begun, done)


def first_begun(served: Served, ms: float) -> int:
    """Return the number of the first push whose work begins at a moment or after it; how many there are if none."""
    return next((k for k, begun in enumerate(served.begun) if begun >= ms), len(served.begun))


def longest_silence(done: Sequence[float], results: Sequence[int], start: float, end: float) -> float:
    """Return the longest time without output that is at least partly between two moments, in ms.

    Only pushes with results are output. Silence before the first output and after the last one is none.
    """
    outputs = [at for at, found in zip(done, results, strict=True) if found]
    gaps = [after - before for before, after in pairwise(outputs) if after > start and before < end]
    return max(gaps, default=0.0)


def rates(done: Sequence[float], results: Sequence[int], width: float) -> list[tuple[float, float]]:
    """Return (ms, results a second) for each stretch of `width` ms from 0 to the last push; ms is its end."""
    counts = [0] * (int(max(done, default=0.0) // width) + 1)
    for at, found in zip(done, results, strict=True):
        counts[int(at // width)] += found
    return [((k + 1) * width, 1e3 * count / width) for k, count in enumerate(counts)]

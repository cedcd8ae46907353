"""Several ways side by side on the same arrivals, chunk by chunk: windows full first, then timed rounds."""

from __future__ import annotations

from collections.abc import Mapping

from bench.growth.runners import LoopRunner, Runner
from bench.growth.sources import Chunk, Source
from bench.harness.figure import Say
from bench.measure import agree, without_gc

LARGEST = 1 << 20
"""Arrivals drawn at once while windows fill."""


def turn(runners: Mapping[str, Runner], chunk: Chunk, first: int) -> tuple[dict[str, float], int]:
    """Let each way take the chunk; return the CPU seconds of each, and the results.

    Who comes first goes round with `first`; loops come after the others, which tell them how many results there are.
    Raises Mismatch if the results of any push differ.
    """
    names = [name for name, runner in runners.items() if not isinstance(runner, LoopRunner)]
    names = names[first % len(names) :] + names[: first % len(names)]
    names += [name for name in runners if name not in names]
    seconds: dict[str, float] = {}
    found: dict[str, list[int]] = {}
    for name in names:
        known = next(iter(found.values()), None)
        seconds[name], found[name] = runners[name].take(chunk, known)
    agree("the pushes of one round", found)
    return seconds, sum(found[names[0]])


def fill(runners: Mapping[str, Runner], source: Source, arrivals: int, push: int) -> None:
    """Let each way take so many arrivals or a few more, in pushes of `push`, comparing results as `turn` does."""
    done = 0
    while done < arrivals:
        size = max(min(arrivals - done, LARGEST), push)
        turn(runners, source.draw(size, push), 0)
        done += size


def rounds(
    runners: Mapping[str, Runner], source: Source, arrivals: int, push: int, count: int, say: Say
) -> tuple[dict[str, list[float]], int]:
    """Take `count` rounds of so many arrivals; return CPU seconds by way and round, and the results of all rounds.

    One round before is not counted. Raises Mismatch if ways differ in the results of any push.
    """
    taken: dict[str, list[float]] = {name: [] for name in runners}
    results = 0
    with without_gc():
        for number in range(count + 1):
            say(f"round {number} of {count}")
            seconds, found = turn(runners, source.draw(arrivals, push), number)
            if number:
                results += found
                for name, one in seconds.items():
                    taken[name].append(one)
    return taken, results

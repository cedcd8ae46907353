"""The figure `latency`: the cost of an access to memory, by the size of the working set."""

from __future__ import annotations

from time import thread_time

import numpy as np
import numpy.typing as npt

from bench.harness.figure import Figure, Plot, Point, Row, Say, number, spread
from bench.harness.turns import without_gc
from bench.machine_limit.memory_kernels import chase, scatter, sweep_over

LINE = 64
"""Bytes of a cache line."""
LEAST = 4096


def powers_of_two(n_bytes: float) -> int:
    """Return the power of two nearest to n_bytes, by ratio, and at least LEAST."""
    return max(LEAST, 1 << round(np.log2(max(n_bytes, 1))))


def cycle(lines: int, seed: int) -> npt.NDArray[np.int32]:
    """Return int32[lines, 16] in which column 0 leads through all lines in one random cycle."""
    path = np.random.default_rng(seed).permutation(lines).astype(np.int32)
    made = np.zeros((lines, LINE // 4), np.int32)
    made[path, 0] = np.roll(path, -1)
    return made


def costs(n_bytes: int, rounds: int, accesses: int, seed: int = 1) -> dict[str, list[float]]:
    """Return the nanoseconds of accesses to n_bytes (a power of two >= 4096) of memory, by kind and round.

    dependent    an access to a random line that must end before the next access begins
    independent  an access to a random line, many of them in flight
    sequential   a line read in order

    There are `accesses` of each kind a round. The memory comes from NumPy, as the engine's does, so its pages have the
    same size. A first round, which warms the caches, is not counted; each round continues where the one before ended.
    """
    lines = cycle(n_bytes // LINE, seed)
    words = lines.reshape(-1).view(np.int64)
    shift = 64 - (len(lines).bit_length() - 1)
    passes = max(1, accesses // len(lines))
    nanoseconds: dict[str, list[float]] = {"dependent": [], "independent": [], "sequential": []}
    at = 0
    with without_gc():
        for number in range(rounds + 1):
            start = thread_time()
            at = chase(lines, at, accesses)
            chased = thread_time()
            scatter(lines, shift, number * accesses, accesses)
            two = thread_time()
            sweep_over(words, passes)
            three = thread_time()
            if number:
                taken = (chased - start) / accesses, (two - chased) / accesses, (three - two) / (passes * len(lines))
                for samples, seconds in zip(nanoseconds.values(), taken, strict=True):
                    samples.append(1e9 * seconds)
    return nanoseconds


def _points(full: bool) -> list[Point]:
    accesses, rounds = (4_000_000, 7) if full else (1_000_000, 3)
    powers = range(12, 31) if full else range(12, 29, 2)
    return [{"bytes": 1 << power, "accesses": accesses, "rounds": rounds, "seed": 1} for power in powers]


def _measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each kind of access: `ns` for a line of 64 bytes, and that as `gb_per_s`."""
    n_bytes = point["bytes"]
    say(f"{n_bytes:,} bytes")
    nanoseconds = costs(n_bytes, point["rounds"], point["accesses"], point["seed"])
    taken = {kind: spread(samples, "ns") for kind, samples in nanoseconds.items()}
    return [{"access": kind, **figures, "gb_per_s": LINE / number(figures, "ns")} for kind, figures in taken.items()]


FIGURES = (
    Figure(
        "latency",
        "Random accesses to cache lines of a working set: `dependent`, each line names the next; `independent`, "
        "addresses are computed and values summed, so many accesses are in flight; `sequential`, a sum over the same "
        "memory. CPU time per line of 64 bytes, the loop included, one thread.",
        _points,
        _measure,
        plots=[
            Plot(
                "Time per cache line",
                "bytes",
                "ns",
                "access",
                x_label="working set, bytes",
                y_label="ns per line",
                log="xy",
            )
        ],
    ),
)

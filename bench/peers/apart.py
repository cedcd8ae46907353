"""Peers that run in processes of their own, on W1 with RANGE windows: what one made of a work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.harness.figure import Say
from bench.peers.environment import Unavailable
from bench.peers.works import Work


@dataclass(frozen=True)
class Outcome:
    """What a peer made of a work.

    seconds  wall time of `arrivals` arrivals at full windows, once for each time it was measured
    results  of all arrivals of the work, those before the clock included
    total    the sum of all values in them
    """

    seconds: list[float]
    arrivals: int
    results: int
    total: int
    version: str


@dataclass(frozen=True)
class Apart:
    """A peer in processes of its own.

    measure  does a work so many times over, with so many threads. Raises Unavailable
    """

    name: str
    measure: Callable[[Work, int, int, Say], Outcome]


Runs = Callable[[Path, Path, int], list[dict[str, object]]]
"""Given a file of the arrivals before the clock and one of all, joins the one, then the other, so many times."""


def slope(name: str, work: Work, repeats: int, runs: Runs) -> Outcome:
    """Measure by how much longer runs of all arrivals take than the median run of those before the clock.

    So what a run costs beside its arrivals does not count, nor does filling the windows. Raises Unavailable if the
    difference is lost in what else the machine does.
    """
    with TemporaryDirectory(prefix="eddy-peers-") as folder:
        small, large = Path(folder) / "small.csv", Path(folder) / "large.csv"
        work.write(small, work.warm)
        work.write(large, work.arrivals)
        found = runs(small, large, repeats)
    before = median(map(_seconds, found[::2]))
    seconds = [_seconds(of_all) - before for of_all in found[1::2]]
    if min(seconds) <= 0:
        raise Unavailable(f"{name}: {work.timed:,} arrivals more took no longer: the machine was busy, or take more")
    last = found[-1]
    return Outcome(seconds, work.timed, int(str(last["results"])), int(str(last["total"])), str(last["version"]))


def _seconds(answer: dict[str, object]) -> float:
    return float(str(answer["seconds"]))

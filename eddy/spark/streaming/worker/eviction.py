"""The order in which a worker evicts engines when they take more than its share of the memory: by benefit per byte.

    rate     rate of use of a key group: micro-batches with rows for the group, each weighted by half for each HALF_LIFE
             that has passed since
    benefit  rate * additional seconds of the next use / bytes

An engine can be *trimmed* (`Runtime.trim`): its next push then rebuilds stored states and buffers for results. An
engine can also be *spilled* to mapped files; its next use maps the files. At equal rates, a trim costs less per byte
than a spill. So an engine that is rarely used is first trimmed and then spilled, and the stored states of a busy group
may stay in memory longer than the windows of an idle group. Engines that this micro-batch still has to join are evicted
last.

Source of the cost and the rate in one figure: Cao and Irani, "Cost-aware WWW proxy caching algorithms", USITS 1997
(GreedyDual-Size); with the frequency: Cherkasova, HPL-98-69R1, 1998.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from eddy.spark.streaming.worker.kept_engine import KeptEngine

HALF_LIFE = 16
"""Number of micro-batches after which a use counts half."""
MAP_S, MAP_S_PER_BYTE = 4e-3, 5e-10
"""Seconds to save and map one runtime again, measured for 1 to 300 MB: a seal is computed twice."""
TRIM_S_PER_BYTE = 3e-10
"""Seconds per byte to rebuild trimmed memory, measured under strategy "jisc"."""
LEAST_TRIM = 1 << 16
"""Least number of spare bytes for a trim: a trimmed engine has some spare bytes, too."""


class Eviction(NamedTuple):
    """A step: the engine of a group is trimmed, or else spilled."""

    group: int
    trims: bool


class Uses:
    """The rates of use of the key groups of a worker."""

    def __init__(self) -> None:
        self._uses: dict[int, tuple[float, int]] = {}

    def note(self, group: int, batch: int) -> None:
        """Record that a group has rows in a micro-batch."""
        self._uses[group] = self.rate(group, batch) + 1, batch

    def rate(self, group: int, batch: int) -> float:
        """Return the rate in a micro-batch, 0 for a group that was never used."""
        rate, newest = self._uses.get(group, (0.0, batch))
        return float(rate * 0.5 ** ((batch - newest) / HALF_LIFE))


def evictions(kept: Mapping[int, KeptEngine], rates: Mapping[int, float], due: Collection[int]) -> list[Eviction]:
    """Return the steps that would evict all live engines, in order. O(engines * log engines).

    rates  key group -> its rate of use
    due    key groups that this micro-batch still has to join
    """
    steps: list[tuple[bool, float, Eviction]] = []
    for group, engine in kept.items():
        if not engine.live:
            continue
        rate, is_due = rates[group], group in due
        if engine.spare >= LEAST_TRIM:
            steps.append((is_due, rate * TRIM_S_PER_BYTE, Eviction(group, True)))
        seconds = MAP_S * engine.parts / max(1, engine.nbytes) + MAP_S_PER_BYTE
        steps.append((is_due, rate * seconds, Eviction(group, False)))
    return [step for _, _, step in sorted(steps, key=lambda entry: entry[:2])]

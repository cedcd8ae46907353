"""Who runs in `eddy bench adaptivity`, and all of them side by side on the same pushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import numpy as np

from bench.hindsight import Times
from bench.measure import agree, without_gc
from bench.shapes import Shape
from eddy import Query, Runtime

DEFAULT, CACQ, ALL_STORED = "default", "cacq", "all stored"
GATHERING, NOT_GATHERING = "statistics gathered", "no statistics gathered"

STATISTICS: Mapping[str, Mapping[str, Any]] = {GATHERING: {"statistics": True}, NOT_GATHERING: {"statistics": False}}
"""Options of a Runtime with a fixed plan."""


def runtime(name: str, query: Query, default_order: str) -> Runtime:
    """Return the runtime of a contender. What is none of the names above is the plan of one that keeps it.

    CACQ ranks by the default order, and all states are stored under it.
    """
    if name == DEFAULT:
        return Runtime(query, count_only=True)
    if name == CACQ:
        return Runtime(query, default_order, strategy="cacq", statistics=False, count_only=True)
    if name == ALL_STORED:
        return Runtime(query, default_order, strategy="jisc", statistics=False, count_only=True)
    if name in STATISTICS:
        return Runtime(query, default_order, policy="fixed", count_only=True, **STATISTICS[name])
    # The baselines keep no statistics.
    return Runtime(query, name, strategy="mjoin", statistics=False, count_only=True)


@dataclass(frozen=True)
class Race:
    """What became of all contenders on the same arrivals.

    transitions   how often each changed its plan
    """

    times: Times
    results: int
    transitions: dict[str, int] = field(default_factory=dict)


def race(shape: Shape, names: list[str], default_order: str, seed: int) -> Race:
    """Push the arrivals of a seed to all contenders, push by push, and time each push.

    Who comes first on a push goes round. The pushes that fill the windows are not timed. Raises Mismatch when two find
    different numbers of results on any push.
    """
    pushes = shape.draw(seed).pushes(shape.push)
    runtimes = [runtime(name, shape.query, default_order) for name in names]
    warm = sum(not phase for phase, _ in pushes)
    seconds = np.zeros((len(names), len(pushes)))
    results = 0
    with without_gc():
        for k, (phase, (rows, order)) in enumerate(pushes):
            found = {}
            for turn in range(len(names)):
                i = (turn + k) % len(names)
                start = thread_time()
                table = runtimes[i].push(rows, order)
                seconds[i, k] = thread_time() - start
                found[names[i]] = table["count"][0].as_py()
            agree(f"{shape.name}, push {k}", found)
            results += found[names[0]] if phase else 0
    times = Times(names, seconds[:, warm:], [phase for phase, _ in pushes[warm:]])
    return Race(times, results, {n: one.history().num_rows for n, one in zip(names, runtimes, strict=True)})

"""One transition from the old plan to the new one: how long the stage lasts, how long nothing comes out.

stage  stream time from the transition until its stage ended, as `Runtime.history` has it
stall  processing time of the call of `transition`
"""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

import numpy as np

import eddy
from bench.harness.figure import Say
from bench.measure import agree
from bench.papers.migration.arrivals import NEW, OLD, Arrivals, Setting, counted

STRATEGIES = ("moving-state", "parallel-track", "jisc", "mjoin")
PUSH_MS = 250
"""Stream time of a push."""
LOOKS = 50
"""Pushes a window takes while a stage goes on: its end is known to that part of a window."""


def steps(first: float, last: float, step: float) -> list[float]:
    """Return the edges of pushes after `first`, up to `last` itself."""
    return [*np.arange(first + step, last - step / 1e3, step).tolist(), float(last)] if last > first else []


def stages(arrivals: Arrivals, change_ms: int, stream_ms: int, name: str, say: Say) -> dict[str, float | None]:
    """Return the ms of stream time that each strategy's stage takes, None if it is not over with the stream.

    Raises bench.measure.Mismatch if a push has not the same number of results under all strategies.
    """
    window = arrivals.setting.w_ms
    fine = min(change_ms + 2.5 * window, stream_ms)
    edges = steps(0, change_ms, PUSH_MS)
    before = len(edges)
    edges += steps(change_ms, fine, window / LOOKS) + steps(fine, stream_ms, PUSH_MS)
    pushes = arrivals.pushes(edges)
    results: dict[str, list[int]] = {}
    found: dict[str, float | None] = {}
    for strategy in STRATEGIES:
        say(f"{name}: stage of {strategy}")
        runtime = eddy.Runtime(arrivals.setting.query(), OLD, strategy=strategy, count_only=True)
        results[strategy] = [counted(runtime.push(*push)) for push in pushes[:before]]
        runtime.transition(NEW)
        results[strategy] += [counted(runtime.push(*push)) for push in pushes[before:]]
        ended = runtime.history().column("ended")[0].as_py()
        found[strategy] = None if ended is None else float(arrivals.times[ended - 1]) / 1e3 - change_ms
    agree(name, results)
    return found


def purged_as_in_the_paper(arrivals: Arrivals, change_ms: int) -> float:
    """Return the ms from the transition until the old plan has nothing old, by the paper's rule of purging.

    By its lemma 2.2 a composite stays until a tuple comes to the other side which is more than a window younger than
    the *youngest* component; here an entry is dead once its oldest component has left. So this is not measured but
    found from the arrivals: the last composite of each inner state of the old plan that has an old component, and the
    first tuple after it that purges it.
    """
    window = arrivals.setting.w_ms
    first, last = arrivals.first_at(change_ms - window), arrivals.first_at(change_ms + window)
    rows, order = arrivals.between(first, last)
    purged = float(window)
    for names, purger in (("AB", 2), ("ABC", 3)):
        runtime = eddy.Runtime(arrivals.setting.query(names), strategy="mjoin", ids_only=True)
        found = runtime.push({name: rows[name] for name in names}, order[order < len(names)])
        times = np.array(
            [arrivals.times[first:last][order == i][found.column(name).to_numpy()] for i, name in enumerate(names)]
        )
        old = times.min(axis=0) < 1e3 * change_ms
        if old.any():
            after = float(times.max(axis=0)[old].max()) + 1e3 * window
            others = arrivals.times[arrivals.order == purger]
            later = others[np.searchsorted(others, after, side="right") :]
            purged = max(purged, (float(later[0]) if len(later) else after) / 1e3 - change_ms)
    return purged


@dataclass(frozen=True)
class Stall:
    """A call of `transition`.

    call     its seconds
    latency  seconds of the call and of the push after it: how long until there is output again
    entries  stored in inner states when it returned
    """

    call: float
    latency: float
    entries: int


def stalls(arrivals: Arrivals, change_ms: int, repeats: int, name: str, say: Say) -> dict[str, list[Stall]]:
    """Return the transitions of each strategy, measured in turns, in CPU time. A first round does not count.

    All runs in one thread, so on a processor of its own that is the time it takes. The garbage collector should be off.
    Raises bench.measure.Mismatch if a push has not the same number of results under all strategies.
    """
    pushes = arrivals.pushes(steps(0, change_ms + PUSH_MS, PUSH_MS))
    query = arrivals.setting.query()
    found: dict[str, list[Stall]] = {strategy: [] for strategy in STRATEGIES}
    for turn in range(repeats + 1):
        results: dict[str, list[int]] = {}
        for strategy in STRATEGIES:
            say(f"{name}: {strategy}, round {turn} of {repeats}")
            runtime = eddy.Runtime(query, OLD, strategy=strategy, count_only=True)
            own = results[strategy] = [counted(runtime.push(*push)) for push in pushes[:-1]]
            start = thread_time()
            runtime.transition(NEW)
            call = thread_time() - start
            entries = sum(stair.rows for stair in runtime.stairs)
            start = thread_time()
            own.append(counted(runtime.push(*pushes[-1])))
            latency = call + thread_time() - start
            runtime.dismantle()
            if turn:
                found[strategy].append(Stall(call, latency, entries))
        agree(name, results)
    return found


def setting_name(setting: Setting) -> str:
    """Return what a point is called while it is measured."""
    return f"windows of {setting.w_ms} ms, I_B {setting.delays[1]:g} ms, scale {setting.scale}"

"""How much of the machine other work took while something was measured, so that a figure tells what disturbed it."""

from __future__ import annotations

from time import perf_counter

import psutil

MUCH = 0.2
"""Cores of other work beside which a figure is said to have been measured; a system that idles takes less."""


def _busy_s() -> float:
    """Return the CPU seconds that all cores have worked, with those that the host gave to somebody else."""
    times = psutil.cpu_times()._asdict()
    # What guests took is in `user` already.
    return float(sum(times[name] for name in times if name not in ("idle", "iowait", "guest", "guest_nice")))


def _own_s() -> float:
    """Return the CPU seconds of this process and of all that it started, whether they run or have ended."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it has ended since, and its time is its parent's
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Others:
    """What others take from now on."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = perf_counter(), _busy_s(), _own_s()

    def cores(self) -> float:
        """Return how many cores other processes, or the host, have taken since, in the mean."""
        taken = (_busy_s() - self._busy) - (_own_s() - self._own)
        return max(taken, 0.0) / (perf_counter() - self._start)

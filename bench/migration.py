"""What the migration stage of a large plan costs, by strategy: figures 7 and 8 of the JISC paper.

101 streams are joined on one key, each stream repeating its own permutation of the keys, in pushes of 1 000 arrivals.
The stage is a turnover of all windows, after which Parallel Track drops its old plan; every strategy takes the same
arrivals, and its call of `transition` counts, whatever it does there.

best    the new plan has one state that the old one has not, just below the root
worst   it shares none with the old one

Times are CPU times. The next stage begins where the last one ended, with every state complete.
Source: Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, sec. 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time
from typing import Any

import eddy
from bench.measure import Mismatch, agree, without_gc
from bench.pauses import BATCH, CHANGING, check_complete, timed_pushes
from bench.workloads import permutations

STREAMS = 101
COUNTED = ("intermediate", "duplicates", "promoted")
"""Columns of `Runtime.transitions` given for the strategies whose stage lasts: jisc and parallel-track."""


def migration_figures(window: int, transitions: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures: medians over so many transitions there and back of each kind.

    The paper's windows have 10 000 rows. A strategy that stores states then takes some 25 s for each stage and 900 MB,
    because an arrival stores 50 entries of 68 numbers on average; so windows are smaller here.
    """
    figures: dict[str, Any] = {"migration100.window": window}
    turnover = permutations(STREAMS, window)
    pushes = turnover.pushes(BATCH)
    counts: dict[str, list[int]] = {}
    for strategy in CHANGING:
        runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
        own = counts[strategy] = [timed_pushes(runtime, pushes)[1]]
        with without_gc():
            start = thread_time()
            own.append(timed_pushes(runtime, pushes)[1])
            figures[f"migration100.steady.{strategy}"] = thread_time() - start
            for case, there in (("best", turnover.swapped_plan), ("worst", turnover.reversed_plan)):
                taken = []
                for number in range(transitions):
                    check_complete(runtime)
                    start = thread_time()
                    runtime.transition(turnover.plan if number % 2 else there)
                    own.append(timed_pushes(runtime, pushes)[1])
                    taken.append(thread_time() - start)
                figures[f"migration100.{case}.{strategy}"] = median(taken)
                last = runtime.history().to_pylist()[-1]
                if last["ended"] is None:
                    raise Mismatch(f"{strategy}: the stage is not over after a turnover of all windows")
                if strategy in ("jisc", "parallel-track"):
                    figures |= {f"migration100.{case}.{name}.{strategy}": last[name] for name in COUNTED}
                if transitions % 2:  # the next kind begins with the first plan too
                    runtime.transition(turnover.plan)
                    own.append(timed_pushes(runtime, pushes)[1])
        advance(f"100 joins: {strategy}")
    agree("migration100", counts)
    return figures

"""W1 in Polars, a micro-batch at a time: what one would write without a streaming join at hand.

Each step joins all rows that can matter (the windows and the new rows) on the key and keeps the combinations whose last
component is new and whose others were in their windows when it came: each row has the time from which on it is in its
window no more, and no component of a result may have one that is not after the last component's time.
"""

from __future__ import annotations

import os
from typing import Any

# One thread on each side; Polars reads this once, when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars as pl

from bench.peers.turns import WALL, Peer
from bench.peers.works import ROWS, SPAN, STREAMS, Step, Work
from bench.workloads import WINDOW

FOREVER = 1 << 62
TIMES, ENDS = [f"ts{name}" for name in STREAMS], [f"end{name}" for name in STREAMS]


class Polars:
    """The rows of the windows as a frame a stream."""

    def __init__(self, work: Work) -> None:
        self.rows = work.windows == ROWS
        self.kept = [
            pl.DataFrame(schema={"k": pl.Int64, f"ts{name}": pl.Int64, f"v{name}": pl.Int64}) for name in STREAMS
        ]

    def _end(self, name: str) -> pl.Expr:
        time = pl.col(f"ts{name}")
        # The row that pushes it out may not have come yet.
        return time.shift(-WINDOW).fill_null(FOREVER) if self.rows else time + SPAN + 1

    def push(self, given: Any) -> pl.DataFrame:
        first, following, batches = given
        # Of few new rows few keys can have results: that pays until they are as many as the rows there are.
        few = following - first < sum(map(len, self.kept))
        frames, keys = [], []
        for i, name in enumerate(STREAMS):
            new = pl.DataFrame(pl.from_arrow(batches[name])).rename({"ts": f"ts{name}", "v": f"v{name}"})
            keys.append(new.select("k"))
            self.kept[i] = pl.concat([self.kept[i], new])
            frames.append(self.kept[i].with_columns(self._end(name).alias(f"end{name}")))
        joined = frames[0].join(pl.concat(keys), on="k", how="semi") if few else frames[0]
        for other in frames[1:]:
            joined = joined.join(other, on="k")
        joined = joined.with_columns(last=pl.max_horizontal(TIMES)).filter(
            (pl.col("last") >= first) & (pl.col("last") < pl.min_horizontal(ENDS))
        )
        if self.rows:
            self.kept = [frame.tail(WINDOW) for frame in self.kept]
        else:
            self.kept = [
                frame.filter(pl.col(time) >= following - SPAN) for frame, time in zip(self.kept, TIMES, strict=True)
            ]
        return joined.select("k", *(f"v{name}" for name in STREAMS))

    def count(self, results: pl.DataFrame) -> int:
        return len(results)

    def total(self, results: pl.DataFrame) -> int:
        return int(sum(results[f"v{name}"].sum() for name in STREAMS))


def _batches(work: Work, step: Step) -> Any:
    return int(step.times[0]), step.following, step.batches


def polars_peer() -> Peer:
    """Return it. It works in a thread of its pool, not in the one that calls, so the clock is the process's."""
    threads = pl.thread_pool_size()
    clock = "CPU, process" if threads == 1 else WALL
    return Peer("Polars, micro-batch", Polars, _batches, pl.__version__, clock=clock, threads=threads)

"""W1 in Polars and in DuckDB, one micro-batch at a time, as a user would write it without a streaming join.

Each step joins the rows of the windows and the new rows on the key. The step keeps the combinations whose last
component is new and whose other components were in their windows when the last component came: each row has the time at
which it leaves its window, and no component of a result may have left before the time of the last component.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bench.peers.works import ROWS, SCHEMA, SPAN, STREAMS, WALL, Peer, PeerEngine, PeerWork, WorkStep, total_of
from bench.workloads.sources import WINDOW

FOREVER = 1 << 62
TIMES, ENDS = [f"ts{name}" for name in STREAMS], [f"end{name}" for name in STREAMS]


class Micro(PeerEngine):
    """An engine that is given the first tick of a step, the tick after it, and the rows."""

    @staticmethod
    def prepare(step: WorkStep) -> Any:
        return int(step.times[0]), step.following, step.batches


class Polars(Micro):
    """The rows of the windows as one frame for each stream."""

    def __init__(self, work: PeerWork) -> None:
        import polars as pl

        self.pl, self.rows = pl, work.windows == ROWS
        columns = [("k", f"ts{name}", f"v{name}") for name in STREAMS]
        self.kept = [pl.DataFrame(schema=dict.fromkeys(names, pl.Int64)) for names in columns]

    def _end(self, name: str) -> Any:
        time = self.pl.col(f"ts{name}")
        # The row that evicts this row may not have arrived yet.
        return time.shift(-WINDOW).fill_null(FOREVER) if self.rows else time + SPAN + 1

    def push(self, given: Any) -> Any:
        pl = self.pl
        first, following, batches = given
        # A few new rows have few keys; filtering by these keys pays until the new rows outnumber the rows of the
        # windows.
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
            ends = zip(self.kept, TIMES, strict=True)
            self.kept = [frame.filter(pl.col(time) >= following - SPAN) for frame, time in ends]
        return joined.select("k", *(f"v{name}" for name in STREAMS))

    def total(self, results: Any) -> int:
        return int(sum(results[f"v{name}"].sum() for name in STREAMS))


def _of_all(column: str) -> str:
    return ", ".join(f"{name}.{column}" for name in STREAMS)


QUERY = (
    f"SELECT R.k, {', '.join(f'{name}.v AS v{name}' for name in STREAMS)} "
    "FROM R JOIN S ON R.k = S.k JOIN T ON R.k = T.k JOIN U ON R.k = U.k "
    f"WHERE greatest({_of_all('ts')}) >= {{first}} AND greatest({_of_all('ts')}) < least({_of_all('ends')})"
)


class DuckDB(Micro):
    """The rows of the windows as one Arrow table for each stream, joined by one SQL query."""

    def __init__(self, work: PeerWork, threads: int) -> None:
        import duckdb

        self.rows = work.windows == ROWS
        self.kept = {name: SCHEMA.empty_table() for name in STREAMS}
        self.database = duckdb.connect()
        self.database.execute(f"SET threads = {threads}")

    def push(self, given: Any) -> pa.Table:
        first, following, batches = given
        for name, batch in batches.items():
            whole = pa.concat_tables([self.kept[name], pa.Table.from_batches([batch])]).combine_chunks()
            self.kept[name] = whole
            times = whole["ts"].to_numpy()
            later = np.concatenate((times[WINDOW:], np.full(min(WINDOW, len(times)), FOREVER)))
            ends = pa.array(later if self.rows else times + SPAN + 1)
            self.database.register(name, whole.append_column("ends", ends))
        results = self.database.sql(QUERY.format(first=first)).to_arrow_table()
        for name, whole in self.kept.items():
            # Rows are in the order of arrival.
            left = len(whole) - WINDOW if self.rows else int(np.searchsorted(whole["ts"].to_numpy(), following - SPAN))
            self.kept[name] = whole.slice(max(0, left))
        return results

    def total(self, results: pa.Table) -> int:
        return total_of(results)


def polars_peers() -> list[Peer]:
    """Return Polars, which works in a thread of its pool."""
    # One thread, as for all other peers; Polars reads this setting once, when it is imported.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import polars as pl

    threads = pl.thread_pool_size()
    clock = "CPU, process" if threads == 1 else WALL
    return [Peer("Polars, micro-batch", Polars, pl.__version__, clock=clock, threads=threads)]


def duckdb_peers() -> list[Peer]:
    """Return DuckDB with one thread and with two."""
    import duckdb

    return [
        Peer(f"DuckDB, micro-batch, {text}", partial(DuckDB, threads=n), duckdb.__version__, clock, n)
        for n, text, clock in ((1, "1 thread", "CPU, process"), (2, "2 threads", WALL))
    ]

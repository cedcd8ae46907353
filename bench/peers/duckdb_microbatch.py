"""W1 in DuckDB, a micro-batch at a time: one SQL query over Arrow tables, in process.

As in Polars (polars_microbatch.py), each step joins the windows and the new rows, each row with the time from which on
it is in its window no more, and keeps what ends with a new row.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute

from bench.peers.turns import WALL, Peer
from bench.peers.works import ROWS, SCHEMA, SPAN, STREAMS, Step, Work
from bench.workloads import WINDOW

FOREVER = 1 << 62


def _of_all(column: str) -> str:
    return ", ".join(f"{name}.{column}" for name in STREAMS)


QUERY = (
    f"SELECT R.k, {', '.join(f'{name}.v AS v{name}' for name in STREAMS)} "
    "FROM R JOIN S ON R.k = S.k JOIN T ON R.k = T.k JOIN U ON R.k = U.k "
    f"WHERE greatest({_of_all('ts')}) >= {{first}} AND greatest({_of_all('ts')}) < least({_of_all('ends')})"
)


class DuckDB:
    """The rows of the windows as an Arrow table a stream."""

    def __init__(self, work: Work, threads: int) -> None:
        self.rows = work.windows == ROWS
        self.kept = {name: SCHEMA.empty_table() for name in STREAMS}
        self.database = duckdb.connect()
        self.database.execute(f"SET threads = {threads}")

    def _ends(self, times: Any) -> Any:
        if not self.rows:
            return times + SPAN + 1
        # The row that pushes it out may not have come yet.
        return np.concatenate((times[WINDOW:], np.full(min(WINDOW, len(times)), FOREVER)))

    def push(self, given: Any) -> pa.Table:
        first, following, batches = given
        for name, batch in batches.items():
            whole = pa.concat_tables([self.kept[name], pa.Table.from_batches([batch])]).combine_chunks()
            self.kept[name] = whole
            ends = pa.array(self._ends(whole["ts"].to_numpy()))
            self.database.register(name, whole.append_column("ends", ends))
        results = self.database.sql(QUERY.format(first=first)).to_arrow_table()
        for name, whole in self.kept.items():
            # In the order of arrival: what has left is in front.
            left = len(whole) - WINDOW if self.rows else int(np.searchsorted(whole["ts"].to_numpy(), following - SPAN))
            self.kept[name] = whole.slice(max(0, left))
        return results

    def count(self, results: pa.Table) -> int:
        return int(results.num_rows)

    def total(self, results: pa.Table) -> int:
        return sum(pa.compute.sum(results[f"v{name}"]).as_py() or 0 for name in STREAMS)


def _batches(work: Work, step: Step) -> Any:
    return int(step.times[0]), step.following, step.batches


def duckdb_peer(threads: int) -> Peer:
    """Return it with so many threads."""
    return Peer(
        f"DuckDB, micro-batch, {threads} thread{'s' * (threads > 1)}",
        partial(DuckDB, threads=threads),
        _batches,
        duckdb.__version__,
        clock="CPU, process" if threads == 1 else WALL,
        threads=threads,
    )

"""A track: the engine of one partition group at one node, and the rule for its results.

A group has one track, or two tracks during a move. One rule divides the results between them, for every protocol and
after a loss: a track emits a result unless all components of the result are in a set of positions whose results another
track emits. Results of windows of event time do not depend on the order of arrival, so a set of rows determines its
results, and a processor, a receiver or the union needs to know only such sets.

    PTLB   sender    elsewhere = the rows flagged new, from the first one on: no new-with-new at the root
           receiver  has only new rows, so it emits the results of new rows only
    MSLB, JIT   receiver  elsewhere = the rows that the sender had joined
    loss   successor given = the results that the union has taken

Source of the rule for PTLB: the paper, sec. 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bench.simulated.cluster.messages import EmittedResults, Entry
from bench.simulated.cluster.package import Package, installed
from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.positions import ENDLESS, Positions
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.split import POSITION, newest
from bench.simulated.cluster.work import WorkCounts, counters
from eddy.results.failed_rows import ENDS_AT_FAILED, failed_text
from eddy.routing.router import policy_name
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from stairs.errors import InputError
from stairs.graph import FOREVER


class GroupTrack:
    """The engine of one group at one node.

    setting   plan, strategy and policy of the node
    """

    def __init__(self, query: Partitioned, setting: EngineSetting, group: int, epoch: int) -> None:
        self.query, self.setting, self.group, self.epoch = query, setting, group, epoch
        n = len(query.names)
        self.runtime: Runtime | None = None
        self.known = Positions.none(n)
        """The rows that the engine has, and rows that have left the windows."""
        self.new: Positions | None = None
        """Rows that also go to a receiver, which emits the results among these rows (PTLB)."""
        self.before: Positions | None = None
        """Rows of the previous track, which has emitted the results among these rows."""
        self.given: tuple[EmittedResults, ...] = ()
        """Results that lost tracks have emitted."""
        self.floor = [-FOREVER] * n
        """Per split, the progress that applies until the split sends to this track."""
        self.heard: set[int] = set()
        """Splits that send all later rows of this track over their own link."""
        self.old_newest = [-FOREVER] * n
        """Per split, the greatest event time of rows that are not flagged new."""
        self.windows: list[list[pa.RecordBatch]] = [[] for _ in range(n)]
        """The rows in the windows, with their positions."""
        self.inbox: list[list[pa.RecordBatch]] = [[] for _ in range(n)]
        self.watermark = -FOREVER
        self.committed = self.known
        """The rows that the last commit counted."""
        self.final = False
        """Whether all results of this track have been emitted."""

    def start(self, package: Package | None = None) -> WorkCounts:
        """Make the engine, from a package or empty; return the work."""
        if package is None:
            self.runtime = _runtime(self.query, self.setting)
            return WorkCounts()
        self.runtime, work = installed(self.query, self.setting, package)
        self.known, self.watermark = package.known, package.watermark
        for i, rows in enumerate(package.rows):
            if rows is not None and rows.num_rows:
                self.windows[i].append(rows)
                self.old_newest[i] = max(self.old_newest[i], newest(rows))
        self.floor = [package.watermark] * len(self.floor)
        return work

    def take(self, split: int, entry: Entry) -> None:
        """Take rows of an entry; `push` joins them."""
        self.add(split, entry.rows, entry.new)
        self.known = self.known.with_interval(split, entry.start, entry.end_position)
        if entry.new and (self.new is None or not self.new.intervals[split]):
            new = self.new or Positions.none(len(self.inbox))
            self.new = new.with_interval(split, entry.start, ENDLESS)

    def add(self, split: int, rows: pa.RecordBatch | None, new: bool = False) -> None:
        """Take rows; `new` states whether the rows also go to a receiver."""
        if rows is not None and rows.num_rows:
            self.inbox[split].append(rows)
            if not new:
                self.old_newest[split] = max(self.old_newest[split], newest(rows))

    def time(self, progress: Sequence[int]) -> int:
        """Return the watermark, given the progress that each split has sent to the node."""
        marks = (progress[i] if i in self.heard else floor for i, floor in enumerate(self.floor))
        return max(self.watermark, min(marks))

    def push(self, watermark: int) -> tuple[pa.Table | None, WorkCounts]:
        """Join the taken rows; return the results to emit, with positions, and the work."""
        assert self.runtime is not None
        self.watermark = max(self.watermark, watermark)
        if not any(self.inbox):
            return None, WorkCounts()
        names, batches = self.query.names, {}
        for i, parts in enumerate(self.inbox):
            if parts:
                batches[names[i]] = rows = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
                self.windows[i].append(rows)
        self.inbox = [[] for _ in self.inbox]
        before = counters(self.runtime)
        results = self.runtime.push(batches, watermark=self.watermark)
        if self.runtime.failed_count and self.query.query.failed != "count":
            raise InputError(f"{failed_text(self.runtime.failed())}. A cluster {ENDS_AT_FAILED}")
        work = counters(self.runtime) - before
        results = self._emitted(results)
        n_rows = sum(map(len, batches.values()))
        return results, work + WorkCounts(pushes=1, rows=n_rows, results=results.num_rows)

    @property
    def elsewhere(self) -> tuple[Positions, ...]:
        """Sets of rows such that another track emits the results among the rows of a set."""
        return tuple(region for region in (self.before, self.new) if region is not None)

    def _emitted(self, results: pa.Table) -> pa.Table:
        """Return the results that this track emits."""
        elsewhere = self.elsewhere
        if not results.num_rows or not (elsewhere or self.given):
            return results
        columns = [results.column(name).to_numpy() for name in self.query.hidden]
        others = np.zeros(results.num_rows, np.bool_)
        for region in elsewhere:
            others |= region.contain_all(columns)
        for record in self.given:
            emitted = record.known.contain_all(columns)
            for region in record.elsewhere:
                emitted &= ~region.contain_all(columns)
            others |= emitted
        return results.filter(pa.array(~others)) if others.any() else results

    def as_given(self) -> EmittedResults:
        """Return the record of the results that this track has emitted, for the union."""
        return EmittedResults(self.known, self.elsewhere, self.final, self.watermark)

    def trim(self) -> None:
        """Drop rows that have left their windows. O(batches)."""
        for i, span in enumerate(self.query.spans):
            if span is not None:
                window = self.windows[i]
                while window and newest(window[0]) < self.watermark - span:
                    del window[0]

    def rows(self) -> list[pa.RecordBatch | None]:
        """Return the rows in the windows by stream."""
        self.trim()
        return [pa.concat_batches(window) if window else None for window in self.windows]

    def rows_outside(self, known: Positions) -> list[pa.RecordBatch | None]:
        """Return the rows that `known` does not have, by stream."""
        outside: list[pa.RecordBatch | None] = []
        for i, batch in enumerate(self.rows()):
            if batch is not None:
                batch = batch.filter(pa.array(~known.contain(i, batch.column(POSITION).to_numpy())))
            outside.append(batch if batch is not None and batch.num_rows else None)
        return outside

    @property
    def n_rows(self) -> int:
        """The number of rows kept."""
        return sum(map(len, (rows for window in self.windows for rows in window)))

    @property
    def purged_at(self) -> list[int]:
        """Per stream, the watermark above which no row that came before the move can join; PTLB only."""
        return [
            old if old == -FOREVER else old + (span or 0)
            for old, span in zip(self.old_newest, self.query.spans, strict=True)
        ]


def _runtime(query: Partitioned, setting: EngineSetting) -> Runtime:
    return Runtime(
        query.inner, setting.plan, strategy=strategy_name(setting.strategy), policy=policy_name(setting.policy)
    )

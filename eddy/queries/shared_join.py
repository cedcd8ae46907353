"""The join of one family over shared SteMs: its plan, its walks, its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Order
from eddy.join.join import Join
from eddy.query.query import Query
from eddy.routing.plan_change import follow_router
from eddy.routing.router import Router, make_policy
from jisc.plan.tree import Tree, default_plan
from jisc.strategies.base import Strategy
from jisc.strategies.eddy import Unstored
from jisc.strategies.mjoin import MJoin
from stairs.clock_reading import ClockReading
from stairs.descriptors import S_BASE
from stairs.gathered import ColumnId
from stairs.payload import Payload
from stairs.share import Share

STRATEGIES: dict[object, tuple[type[Strategy], str]] = {"eddy": (Unstored, "cost"), "mjoin": (MJoin, "fixed")}
"""Strategies that can share, by name, and their default policies."""


class SharedJoin:
    """The join of one family over shared SteMs.

    query     the query whose results are those of the family
    share     its windows over the shared SteMs
    columns   its output columns in the shared payload
    strategy, router   as in `eddy.join.join.Join`
    """

    def __init__(
        self,
        query: Query,
        share: Share,
        columns: Sequence[ColumnId],
        options: Mapping[str, Any],
        before: SharedJoin | Join | None,
        tree: Tree | None,
    ) -> None:
        self.query, self.share, self._columns = query, share, tuple(columns)
        self.seconds = 0.0
        kind, policy = STRATEGIES[options.get("strategy", "eddy")]
        if before is not None:
            tree = before.strategy.tree
        self.strategy: Strategy = kind(share, tree or default_plan(query.graph))
        known = options.get("policy") or policy if before is None else before.router.policy
        self.router: Router = Router(
            share, self.strategy, make_policy(known, self.strategy), None, options.get("statistics", True)
        )

    def begin(self, order: Order, ends: Sequence[int], reading: ClockReading | None) -> None:
        """Open a push, given the order of arrivals of all shared streams, where its chunks end, and its time."""
        number = np.full(256, 255, np.uint8)
        number[list(self.share.place.streams)] = np.arange(len(self.query.streams))
        mine = number[order]
        belongs = mine < 255
        self._order = mine[belongs]
        self._reading = reading.of(np.flatnonzero(belongs)) if reading is not None and self.query.graph.timed else None
        self._stops = np.cumsum(belongs)[np.array(ends, np.int64) - 1].tolist() if ends else []
        self._done = self._count = 0
        self._ids: list[npt.NDArray[np.int32]] = []

    def probe(self, chunk: int) -> None:
        """Find the results of the arrivals of a chunk, which have been inserted."""
        stop = self._stops[chunk]
        if stop == self._done:
            return
        began = thread_time()
        if self._reading is not None:
            # Other joins walk in the same memory.
            self.share.read_clock(self._reading)
        ids = self.share.probe(self.strategy.routes, self._order, self._done, stop)
        if len(ids):
            self._ids.append(ids)
        seconds = thread_time() - began
        self.seconds += seconds
        self.router.note(stop - self._done, seconds)
        self._done = stop
        if self.router.due:
            follow_router(self)

    def results(self, payload: Payload) -> pa.Table:
        """Return the results of the push, in the order of their last components."""
        if not self._ids:
            # Arrow cannot make empty arrays of every type.
            return pa.Table.from_batches([], schema=self.query.output_schema)
        streams, m = self.share.place.streams, len(self.query.streams)
        ids = np.concatenate(self._ids)
        self._count, self._ids = len(ids) // m, []
        bases = self.share.streams[:, S_BASE].copy()
        columns = payload.gather(ids, self._count, bases, streams=streams, columns=frozenset(self._columns))
        return pa.Table.from_arrays([columns[place] for place in self._columns], schema=self.query.output_schema)

    def close(self) -> None:
        """Close the push. It may be repeated."""
        self.share.close(self._count)
        self.strategy.after_push(self._done)

"""The runtime: Arrow batches in, Arrow results out, state in between.

A push goes through five steps: *admit* (validate, filter, order, set late rows aside), *open* (sweep dead keys, make
room), *load* (keys as words, payload into rings), *walk* (one kernel call), *materialise* (gather columns, `where`,
projection). Only then is it committed; whatever fails before takes the push back, so that the state is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.arrivals import Arrivals, Gate
from eddy.explain import explain
from eddy.filters import FAILURES, accepted_rows
from eddy.loader import Loader
from eddy.metrics import metrics
from eddy.query import Query
from eddy.snapshot import Held, Snapshot, write
from jisc.plan import Tree, check_connected, default_plan, parse
from jisc.routes import compile_routes
from stairs.errors import InputError, PlanError, StateError
from stairs.fields import H_PROBES, M_WATERMARK, S_BASE, S_LO
from stairs.modules import RENUMBER_AT, Modules
from stairs.payload import Payload


class Runtime:
    """Runs one query over its streams.

    plan        a join tree such as "((R S) T) U"; None = left-deep in query order as far as predicates connect
    count_only  results are counted, not built: `push` returns one row with column "count"
    ids_only    results are row numbers: an int64 column per stream, the arrival number of the component in its stream

    Not thread-safe. Raises PlanError for a plan that does not fit the query.

    >>> rows = pa.schema([("a", pa.int64())])
    >>> from eddy import Query, Stream
    >>> rt = Runtime(Query([Stream("R", rows), Stream("S", rows)], ["R.a = S.a"]))
    >>> rt.push({"R": pa.record_batch({"a": [1, 2]}), "S": pa.record_batch({"a": [2]})}, order=[0, 0, 1]).to_pylist()
    [{'R.a': 2, 'S.a': 2}]
    """

    def __init__(
        self,
        query: Query,
        plan: str | None = None,
        *,
        count_only: bool = False,
        ids_only: bool = False,
        renumber_at: int = RENUMBER_AT,
    ) -> None:
        if not isinstance(query, Query):
            raise InputError(f"a Runtime runs an eddy.Query, not {type(query).__name__}")
        if count_only and ids_only:
            raise InputError("count_only and ids_only exclude each other: leave one out")
        self.query = query
        self.count_only = count_only
        self.ids_only = ids_only
        graph = query.graph
        self._tree = self._checked_plan(plan)
        self._routes = compile_routes(self._tree, graph)
        self._gate = Gate(query)
        self._modules = Modules(graph, renumber_at)
        kept: list[dict[str, None]] = [{} for _ in query.streams]
        wanted = () if count_only or ids_only else tuple(query.select.values())
        for name, column in query.where_columns + wanted:
            kept[query.index(name)][column] = None
        self._kept = [list(columns) for columns in kept]
        """Per stream the columns that results or `where` need."""
        kinds = [
            [query.streams[i].type_of(column) for column in columns] for i, columns in enumerate(self._kept)
        ]
        self._payload = Payload(kinds, self._modules.capacity)
        self._loader = Loader(query, self._kept, self._modules, self._payload)
        places = {
            (stream.name, column): (i, k)
            for i, stream in enumerate(query.streams)
            for k, column in enumerate(self._kept[i])
        }
        self._where = [(f"{name}.{column}", places[name, column]) for name, column in query.where_columns]
        self._chosen = [] if count_only or ids_only else [places[place] for place in query.select.values()]
        self._ids_schema = pa.schema([pa.field(name, pa.int64(), False) for name in graph.names])
        self._late: list[list[pa.RecordBatch]] = [[] for _ in query.streams]
        self._late_rows = [0] * graph.n_streams
        self._results = 0

    def _checked_plan(self, plan: str | None) -> Tree:
        graph = self.query.graph
        if plan is None:
            return default_plan(graph)
        if not isinstance(plan, str):
            raise PlanError(f"a plan is text like '((R S) T) U', not {plan!r}")
        tree = parse(plan, graph.names)
        check_connected(tree, graph)
        return tree

    @property
    def plan(self) -> str:
        """The plan that runs, as text."""
        return self._tree.text(self.query.graph.names)

    # Pushing

    def push(self, batches: Mapping[str, pa.RecordBatch | pa.Table], order: Any = None) -> pa.Table:
        """Take arrivals in and return the results they complete, in the order of their last components.

        batches  rows by stream; absent streams and empty batches are fine; columns not in its schema are ignored
        order    int[rows of all streams]: the stream (its position in the query) of each arrival; None = by event time,
                 ties by stream order in the query, then by row

        Returns a table of `query.output_schema` (see count_only, ids_only). Raises InputError for rows that do not fit,
        with the state as it was. Cost: O(arrivals + chains walked + results).
        """
        arrivals = self._gate.admit(batches, order, int(self._modules.meta[M_WATERMARK]))
        counters = self._routes.hops[:, H_PROBES:].copy()
        try:
            count = self._walk(arrivals)
            results, table = self._materialise(count)
        except BaseException:
            self._modules.undo()
            self._payload.undo()
            self._routes.hops[:, H_PROBES:] = counters
            raise
        self._modules.commit()
        self._results += results
        if self._payload.logged:
            self._payload.expire((self._modules.streams[:, S_LO] + self._modules.streams[:, S_BASE]).tolist())
        for i, rows in arrivals.late.items():
            self._late[i].append(rows)
            self._late_rows[i] += len(rows)
        return table

    def _walk(self, arrivals: Arrivals) -> int:
        modules, payload = self._modules, self._payload
        payload.begin()
        modules.begin([0 if batch is None else len(batch) for batch in arrivals.batches])
        if not len(arrivals.order):
            return 0
        if modules.capacity != payload.room:
            for i, room in enumerate(modules.capacity):
                if room != payload.room[i]:
                    payload.resize(i, room, int(modules.streams[i, S_LO]), modules.following[i])
        self._loader.load(arrivals)
        return modules.run(self._routes, arrivals.order, self.count_only and self.query.where is None)

    # Results

    def _materialise(self, count: int) -> tuple[int, pa.Table]:
        """Return how many of `count` combinations are results, and the results."""
        modules, keep = self._modules, None
        columns: dict[tuple[int, int], pa.Array] = {}
        if self._where or self._chosen:
            columns = self._payload.gather(modules.walk.ids, count, modules.streams[:, S_BASE])
        if self.query.where is not None:
            keep = self._accepted(columns, count)
            count = len(keep)
        if self.count_only:
            return count, pa.table({"count": pa.array([count], pa.int64())})
        if self.ids_only:
            numbers = modules.arrival_numbers()
            if keep is not None:
                numbers = numbers[:, keep]
            return count, pa.Table.from_arrays([pa.array(row) for row in numbers], schema=self._ids_schema)
        chosen = [columns[place] for place in self._chosen]
        if keep is not None:
            chosen = [column.take(pa.array(keep)) for column in chosen]
        return count, pa.Table.from_arrays(chosen, schema=self.query.output_schema)

    def _accepted(self, columns: Mapping[tuple[int, int], pa.Array], count: int) -> npt.NDArray[np.int64]:
        """Return the results that `where` accepts, ascending."""
        assert self.query.where is not None
        names, places = [name for name, _ in self._where], [place for _, place in self._where]
        # The column of row numbers gives a table without other columns its length.
        arrays = [*(columns[place] for place in places), pa.array(np.arange(count))]
        try:
            return accepted_rows(self.query.where, pa.Table.from_arrays(arrays, names=[*names, "\0row"]))
        except FAILURES as error:
            raise InputError(f"where failed on these results: {error}") from error

    # Snapshots

    def snapshot(self) -> bytes:
        """Return the live windows, the counters and the options as bytes from which `restore` goes on exactly.

        Nothing in the runtime changes; without a push between, two snapshots are equal byte for byte. Raises
        SnapshotError while a push is under way. O(live tuples).
        """
        return write(self._held(), self._options())

    @classmethod
    def restore(
        cls,
        data: bytes,
        query: Query,
        plan: str | None = None,
        strategy: str | None = None,
        background: int | None = None,
    ) -> Runtime:
        """Return a runtime that goes on where the one that gave the snapshot stood. O(live tuples).

        data        what `snapshot` returned, in this process or another
        query       the same query; docs/snapshots.md says what may be written differently
        plan        another plan for it; None = the plan of the snapshot
        strategy    None or "mjoin", background None or 0: there are no others yet

        Results, arrival numbers, lateness and counts go on as if nothing had happened; the counts of hops (probes,
        matches, walked) start anew. Raises SnapshotError for what is damaged or of another query, PlanError for a plan
        that does not fit, InputError for an unknown strategy.
        """
        if not isinstance(query, Query):
            raise InputError(f"a snapshot is restored for an eddy.Query, not {type(query).__name__}")
        if strategy not in (None, "mjoin"):
            raise InputError(f"there is no strategy {strategy!r}; there is 'mjoin'")
        if background:
            raise InputError(f"background={background!r}: the strategy 'mjoin' completes nothing in the background")
        snapshot = Snapshot(data, query)
        options = snapshot.options
        if plan is not None:
            options["plan"] = plan
        runtime = cls(query, **options)
        snapshot.fill(runtime._held())
        runtime._results = snapshot.counts["results"]
        runtime._late_rows = snapshot.counts["late"]
        return runtime

    def _options(self) -> dict[str, Any]:
        """Return the arguments that make this runtime again, as JSON can say them; they go into snapshots."""
        return {
            "plan": self.plan,
            "count_only": self.count_only,
            "ids_only": self.ids_only,
            "renumber_at": self._modules.renumber_at,
        }

    def _held(self) -> Held:
        counts = {"results": self._results, "late": list(self._late_rows)}
        return Held(self.query, self._modules, self._payload, self._kept, self._late, counts)

    # Looking in

    def late(self) -> dict[str, pa.Table]:
        """Return the late rows since the last call, by stream (streams without any left out), and forget them."""
        found = {
            stream.name: pa.Table.from_batches(batches)
            for stream, batches in zip(self.query.streams, self._late, strict=True)
            if batches
        }
        self._late = [[] for _ in self.query.streams]
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, key directories, payload and the room for results."""
        return self._modules.nbytes + self._payload.nbytes

    def metrics(self) -> dict[str, Any]:
        """Return counts since the start, in all and per state: arrivals, probes, results, expired, late, bytes, …"""
        return metrics(self._modules, self._routes, self._payload, self._late_rows, self._results)

    def explain(self) -> str:
        """Return the plan as a tree with live figures: rows, keys, bytes of each state, selectivity of each probe."""
        return explain(self.query, self._tree, self._routes, self.metrics())

    def check(self) -> None:
        """Raise StateError unless all invariants of all state modules hold. O(state), for tests."""
        self._modules.check()
        if self._payload.room != self._modules.capacity:
            raise StateError(f"rings of payload {self._payload.room} and of records {self._modules.capacity} differ")

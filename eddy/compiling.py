"""Compile the kernels, or load them from the cache, before the first push."""

from __future__ import annotations

import contextlib
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy import agg
from eddy.filters import ranges
from eddy.filters.conditions import Predicate
from eddy.ingest.clock import clock_of
from eddy.ingest.gate import Gate
from eddy.ingest.keys import key_hash
from eddy.pipeline.push import prepare
from eddy.queries.grouped_filters import GroupedFilters, TextCuts
from eddy.query.as_of import AsOf
from eddy.query.branch import Branch
from eddy.query.query import Query
from eddy.query.top import Top
from eddy.runtime import Runtime
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows
from stairs.errors import InputError
from stairs.kernels.marks import clear_all
from stairs.kernels.payload import spread


def warmup() -> None:
    """Compile or load all kernels of pushes, transitions and snapshots, by tiny joins.

    Call it at the start of a service, or in a process before it forks workers. It takes a minute or two with an empty
    cache, a few seconds when the kernels are on disk, and almost no time when it is called again.

    >>> warmup()  # doctest: +SKIP
    """
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
    streams = [Stream(name, schema, window=Range(10), time="t") for name in ("R", "S")]
    query = Query(streams, ["R.k = S.k", "R.s = S.s"], lateness=1)
    runtime = Runtime(query)
    rows = 200
    batch = pa.record_batch(
        {"k": list(range(rows)), "s": [f"{k:0100}" for k in range(rows)], "t": list(range(rows))}, schema=schema
    )
    for start in (0, 100):
        runtime.push({"R": batch.slice(start, 80), "S": batch.slice(start, 80)})
    # Late rows, without the warning that a runtime logs for the first one.
    gate, clock = Gate(query), clock_of(query)
    assert clock is not None
    for start in (100, 20):
        admitted = gate.admit({"R": batch.slice(start, 80), "S": batch.slice(start, 80)}, None, clock)
        assert admitted.clock is not None
        clock.state = admitted.clock
    Runtime.restore(runtime.snapshot(), query)
    key_hash(query, 0, "R", batch)
    failing = Query(streams, ["R.k = S.k", "R.s = S.s"], where=_FAILS)
    with contextlib.suppress(InputError):
        Runtime(failing).push({"R": batch, "S": batch})
    # A given order and row numbers have their own kernels.
    Runtime(query, ids_only=True).push({"R": batch, "S": batch}, order=[0] * rows + [1] * rows)
    # Few results without strings become one message.
    numbers = Query(streams, ["R.k = S.k"], select=["R.k", "S.t"])
    Runtime(numbers).push({name: batch.slice(0, 5) for name in ("R", "S")})
    rest = [streams[1], Stream("T", schema, window=Range(10), time="t")]
    third = Query([streams[0], *rest], ["R.k = S.k", "S.s = T.s"])
    # A policy takes samples and tries plans when it decides.
    deciding = Runtime(third, decide_every=50)
    for start in (0, 100):
        deciding.push({name: batch.slice(start, 100) for name in ("R", "S", "T")})
    deciding.stats()
    # `Modules.clear_marks` calls it only if there are marks.
    clear_all(deciding._pipeline.join.modules.arena)
    # Only rows in files need it.
    value = np.zeros(2, np.int64)
    spread(value.ctypes.data, 8, value.ctypes.data + 8, 8, 8, 1)
    _warm_grouped_filters()
    _warm_branches([streams[0], *rest], batch)
    _warm_groups(streams[:2], batch)
    _warm_tables(schema, batch)
    _warm_as_of(streams[0], schema, batch)
    _warm_tops(schema, batch)
    for strategy in ("stairs", "jisc"):
        changing = Runtime(third, "(R S) T", strategy=strategy)
        changing.push(dict.fromkeys(("R", "S", "T"), batch))
        changing.transition("R (S T)")
        changing.push({name: batch.slice(rows - 5, 5) for name in ("R", "S", "T")})
        for stair in changing.stairs:
            stair.demote(0)
            stair.make_room(0)


def _quotient(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater(pc.divide(1, rows.column("R.k")), 0)


_FAILS = Predicate(_quotient, columns=["R.k"])
"""A condition that raises for the first result, so that its push is undone."""


def _warm_grouped_filters() -> None:
    filters = GroupedFilters([[ranges.ColumnSet("x", ranges.within(low, low + 1))] for low in range(2)])
    for ask in (filters.share, filters.wanted):
        ask(3, lambda _: np.arange(3))
    TextCuts([(b"a", 0)]).codes(pa.array(["a"]))


def _warm_groups(streams: list[Stream], batch: pa.RecordBatch) -> None:
    """Compile or load the kernels of queries with aggregates."""
    mean = agg.avg(pc.field("R.k").cast(pa.float64()))
    functions = {"mean": mean, "least": agg.min("R.t"), "last": agg.last("R.s")}
    runtime = Runtime(Query(streams[:1], group_by=["R.k"], aggregates=functions), output="changelog")
    for start in (0, 100):
        # The second push evicts the rows of the first push, except the last few.
        runtime.push({"R": batch.slice(start, 100)})
    counted = {"n": agg.count()}
    joined = Query(streams, ["R.k = S.k"], group_by=["R.k"], aggregates=counted, watermark="fastest")
    for runtime in (Runtime(joined, output="changelog"), Runtime(joined, bounded=True)):
        rings = runtime._pipeline.join.rings
        assert rings is not None
        rings.choice.forced = True
        runtime.push({"R": batch, "S": batch})


def _warm_tables(schema: pa.Schema, batch: pa.RecordBatch) -> None:
    """Compile or load the kernels of queries with tables."""
    inputs = [Stream("R", schema, window=Rows(9)), Table("T", schema, key="t")]
    runtime = Runtime(Query(inputs, ["R.k = T.k"]), output="changelog")
    for atomic in (False, False, True):
        runtime.push({"R": batch.slice(0, 2), "T": batch.slice(0, 2)}, order=[0, 0, 1, 1], atomic=atomic)
    # A dead version between two that live.
    runtime.push({"T": batch.slice(1, 1)})
    runtime.trim()
    dated = Runtime(Query([inputs[0], Table("T", schema, key="s", version="t")], ["R.k = T.k"]), output="changelog")
    dated.push({"T": batch.slice(0, 2)})
    Runtime.restore(dated.snapshot(), dated.query)
    runtime = Runtime(Query(inputs[1:], branches=[Branch(inputs[:1], ["R.k = T.k"], "left")]), output="changelog")
    for _ in range(2):
        runtime.push({"T": batch.slice(0, 2)})


def _warm_as_of(stream: Stream, schema: pa.Schema, batch: pa.RecordBatch) -> None:
    """Compile or load the kernels of queries with as-of joins."""
    table = VersionedTable("V", schema, key="s", time="t")
    query = Query([stream], as_of=[AsOf(table, ["R.s = V.s"])], where=_FAILS)
    runtime = Runtime(query, bounded=True)
    runtime.push({"R": batch.slice(0, 80), "V": batch.slice(0, 80)}, watermark=0)
    with contextlib.suppress(InputError):
        runtime.finish()
    Runtime.restore(runtime.snapshot(), query)
    runtime = Runtime(Query([stream], as_of=query.as_of), output="changelog")
    for _ in range(2):
        runtime.push({"R": batch.slice(0, 80), "V": batch.slice(0, 80)}, watermark=0)


def _warm_tops(schema: pa.Schema, batch: pa.RecordBatch) -> None:
    """Compile or load the kernels of queries with `top`; the second push is taken back."""
    query = Query([Stream("R", schema, window=Rows(150))], top=Top(1, "R.s", ["R.s desc", "R.t"]))
    runtime = Runtime(query, output="changelog")
    runtime.push({"R": batch})
    prepare(runtime._pipeline, {"R": batch}, None, None)
    runtime._pipeline.roll_back()


def _warm_branches(streams: list[Stream], batch: pa.RecordBatch) -> None:
    """Compile or load the kernels of queries with branches."""
    branches = [Branch([stream], [f"R.k = {stream.name}.k"], "left") for stream in streams[1:]]
    rows = {stream.name: batch.slice(0, 80) for stream in streams[:2]}
    kinds: list[tuple[Literal["append", "changelog"], list[Branch], Predicate | None]] = [
        ("append", branches, None),
        ("changelog", branches, None),
        ("append", branches[:1], _FAILS),
    ]
    for output, query_branches, where in kinds:
        query = Query(streams[:1], branches=query_branches, where=where, watermark="fastest")
        runtime = Runtime(query, output=output)
        with contextlib.suppress(InputError):
            runtime.push({name: rows[name] for name in query.graph.names if name in rows})
        runtime.push({"R": batch.slice(100, 80)})
        Runtime.restore(runtime.snapshot(), query)

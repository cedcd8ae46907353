"""A program that uses the library in every way that could compile a kernel again, and prints the compiled signatures.

    python -m tests.varied_use      {"stairs.kernels.arena.undo": 1, …}: signatures of each kernel, not of its steps

Arrays come as int32 and uint16, with strides, read-only; columns sliced, from read-only memory, with and without nulls;
pushes of one row and of many; some fail.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba.core.registry import CPUDispatcher

import eddy
import stairs
from eddy.ingest.keys import key_hash
from eddy.live.engine_file import EngineFile
from eddy.spark.hops import windows
from eddy.spark.partitioning import pieces
from eddy.spark.partitioning.job import make_job
from jisc.strategies import STRATEGIES
from tests.cases import raising

ROWS = 200
MS = timedelta(milliseconds=1)
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "n": pa.int32(),
        "s": pa.string(),
        "d": pa.decimal128(22, 2),
        "b": pa.bool_(),
        "t": pa.timestamp("ms"),
        "f": pa.float32(),
        "v": pa.int16(),
    }
)


def batch(start: int, rows: int, nulls: bool = False) -> pa.RecordBatch:
    """Return rows that are a slice of longer ones, in read-only memory."""
    n = np.arange(start, start + rows + 2)
    columns: list[Any] = [
        pa.Array.from_buffers(pa.int64(), len(n), [None, pa.py_buffer(n.astype(np.int64).tobytes())]),
        pa.array(n[::-1].astype(np.int32)),
        pa.array([None if nulls and k % 5 == 0 else f"text {k} " * 9 for k in n]),
        pa.array(n).cast(pa.decimal128(22, 2)),
        pa.array(n % 3 == 0),
        pa.array(n).cast(pa.timestamp("ms")),
        pa.array(n.astype(np.float32), mask=(n % 4 == 0) & nulls),
        pa.array(n.astype(np.int16), mask=(n % 7 == 0) & nulls),
    ]
    made = pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(1, rows)
    if start % 3:
        return made
    # Columns read from a stream lie in read-only memory, strings included.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(made)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def orders(total: int) -> list[Any]:
    """Return the order "R and S in turn" as every kind of array."""
    turns = np.arange(total) % 2
    frozen = turns.astype(np.uint8)
    frozen.setflags(write=False)
    strided = np.repeat(turns, 2).astype(np.uint8)[::2]
    return [turns, turns.astype(np.int32), turns.astype(np.uint16), frozen, strided, turns.tolist(), pa.array(turns)]


def query(predicates: list[str], ranged: bool, where: Any = None) -> eddy.Query:
    window = eddy.Range(300 * MS) if ranged else eddy.Rows(150)
    accept = pc.field("v") != 13 if ranged else None
    streams = [eddy.Stream(name, SCHEMA, window=window, time="t", filter=accept) for name in "RS"]
    return eddy.Query(streams, predicates, where=where, lateness=3 * ranged * MS)


def use_as_of(column: str) -> None:
    """Use as-of joins by one column, with versions that come with deletes and in a given order."""
    table = eddy.VersionedTable("V", SCHEMA, key=column, time="t", ops="column")
    at = eddy.AsOf(table, [f"R.{column} = V.{column}"], how="left", direction="nearest", tolerance=5 * MS)
    runtime = eddy.Runtime(eddy.Query([eddy.Stream("R", SCHEMA, time="t")], as_of=[at]), bounded=True)
    for start, order in enumerate(orders(2 * ROWS)):
        rows = batch(start * ROWS, ROWS)
        ops = pa.array(["d" if k % 3 else "c" for k in range(ROWS)])
        changes = pa.RecordBatch.from_arrays([*rows.columns, ops], [*rows.schema.names, "op"])
        runtime.push({"R": rows, "V": changes}, order)
    runtime.finish()


def use_runtime(asked: eddy.Query, **options: Any) -> None:
    runtime = eddy.Runtime(asked, **options)
    start = 0
    for nulls in (False, True):
        for order in orders(2 * ROWS):
            batches = {name: batch(start, ROWS, nulls) for name in "RS"}
            runtime.push(batches, order)
            start += ROWS
        runtime.push({"R": pa.Table.from_batches([batch(start, 1), batch(start + 1, 1)]), "S": batch(start, 1)})
        runtime.push({"S": batch(start, 1).slice(0, 0)})
        late = {"S": batch(0, 3), "R": batch(0, 2)}
        runtime.push(late)
        runtime.late()
        with contextlib.suppress(eddy.EddyError):
            runtime.push({"R": batch(start, 70, nulls)}, [0] * 69 + [1])
        # As after a push that was interrupted while it counted strings.
        runtime._pipeline.join.modules._doubt = True
        runtime.push({"R": batch(start, 2)})
        runtime = eddy.Runtime.restore(runtime.snapshot(), asked)
        runtime.check()
    runtime.metrics()
    runtime.explain()


def use_strategy(strategy: str, output: str) -> None:
    """Change plans while three streams are joined, under one of the strategies."""
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(300 * MS), time="t") for name in "RST"]
    asked = eddy.Query(streams, ["R.k = S.k", "S.n = T.n", "R.k = T.k"])
    runtime = eddy.Runtime(asked, strategy=strategy, output=output, renumber_at=1000)
    plans = ["(R S) T", "R (S T)", "(R T) S"]
    for step in range(9):
        if STRATEGIES[strategy].changes:
            runtime.transition(plans[step % 3], at=runtime.position + 100 * (step % 2))
        runtime.push({name: batch(step * ROWS, ROWS) for name in "RST"}, np.arange(3 * ROWS) % 3)
        for stair in runtime.stairs:
            stair.demote(0)
            stair.make_room(0)
            assert stair.settle() or stair.pending
    runtime.check()
    key = b"a secret of this program"
    with tempfile.TemporaryDirectory() as folder, EngineFile(Path(folder) / "engine", key) as live:
        # From here on arrays lie in mapped memory.
        live.save(runtime, b"1")
        loaded = live.load(b"1", asked)
        assert loaded is not None
        for step in range(9, 12):
            loaded.push({name: batch(step * ROWS, ROWS) for name in "RST"}, np.arange(3 * ROWS) % 3)


def use_watermarks() -> None:
    """Load rows, and push with watermarks."""
    for output in ("append", "changelog"):
        runtime = eddy.Runtime(query(["R.k = S.k"], True), output=output)
        runtime.load({name: batch(0, ROWS) for name in "RS"}, watermark=ROWS // 2)
        for step in (1, 2):
            rows = {name: batch(step * ROWS, ROWS) for name in "RS"}
            runtime.push(rows, orders(2 * ROWS)[step], watermark=step * ROWS)
        runtime.push({}, watermark=10 * ROWS)


def use_groups() -> None:
    """Aggregate over one stream and over a join, with every kind of column; restore."""
    columns = ("k", "n", "s", "d", "b", "t", "f", "v")
    functions = {
        f"{name} {k}": aggregate(f"R.{k}")
        for name in ("min", "max", "count_distinct")
        for k in columns
        for aggregate in [getattr(eddy.agg, name)]
    }
    functions |= {f"sum {k}": eddy.agg.sum(f"R.{k}") for k in "kndfv"} | {
        f"last {k}": eddy.agg.last(f"R.{k}") for k in columns
    }
    for names in ("R", "RS"):
        streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(300 * MS), time="t") for name in names]
        on = ["R.k = S.k"] if names == "RS" else []
        for output, window in (
            ("changelog", None),
            ("append", eddy.Hopping(300 * MS, 200 * MS)),
            ("append", eddy.Session(2 * MS)),
        ):
            asked = eddy.Query(streams, on, group_by=["R.s", "R.b"], aggregates=functions, group_window=window)
            runtime = eddy.Runtime(asked, output=output)
            for step in range(4):
                runtime.push({name: batch(step * ROWS, ROWS, step % 2 == 1) for name in names})
                runtime.groups()
                runtime = eddy.Runtime.restore(runtime.snapshot(), asked)
                runtime.check()
            runtime.finish()


def use_tops() -> None:
    """Rank rows by every kind of column, of streams whose rows leave and of those whose rows stay; restore."""
    columns = [f"R.{k} desc" for k in ("k", "n", "s", "d", "b", "t", "f", "v")]
    for window, n in ((eddy.Range(300 * MS), 2), (None, 3)):
        stream = eddy.Stream("R", SCHEMA, window=window, time="t")
        asked = eddy.Query([stream], top=eddy.Top(n, ["R.s", "R.b"], columns))
        runtime = eddy.Runtime(asked, output="changelog")
        for step in range(4):
            runtime.push({"R": batch(step * ROWS, ROWS, step % 2 == 1)})
            runtime = eddy.Runtime.restore(runtime.snapshot(), asked)
            runtime.check()


def use_branches() -> None:
    """Join with branches, and restore."""
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(300 * MS), time="t") for name in "RST"]
    for how in ("left", "semi", "anti"):
        branches = [eddy.Branch([stream], [f"R.k = {stream.name}.k"], how) for stream in streams[1:]]
        for output in ("append", "changelog"):
            runtime = eddy.Runtime(eddy.Query(streams[:1], branches=branches), output=output)
            for step in range(4):
                runtime.push({name: batch(step * ROWS, ROWS, step == 2) for name in "RST"}, np.arange(3 * ROWS) % 3)
                runtime = eddy.Runtime.restore(runtime.snapshot(), runtime.query)
            runtime.push({name: batch(0, 0) for name in "RST"})
            runtime.finish()
    inputs = [
        eddy.Table("R", SCHEMA, key=["k", "s", "d"], version="t", tombstones=2 * MS),
        eddy.Table("S", SCHEMA, key="k"),
    ]
    asked = eddy.Query(inputs[:1], branches=[eddy.Branch(inputs[1:], ["R.k = S.k"], "left")])
    runtime = eddy.Runtime(asked, output="changelog")
    for _ in range(2):
        runtime.push({name: batch(0, ROWS) for name in "RS"})
        runtime.push({name: batch(3, ROWS) for name in "RS"})
        runtime = eddy.Runtime.restore(runtime.snapshot(), asked)


def use_all() -> None:
    use_branches()
    use_groups()
    use_tops()
    for strategy in STRATEGIES:
        for output in ("append", "changelog"):
            use_strategy(strategy, output)
    use_watermarks()
    keys = (["R.k = S.k"], ["(R.n, R.s) = (S.n, S.s)"], ["R.s = S.s", "R.d = S.d"], ["R.b = S.b", "R.f = S.f"])
    for predicates in keys:
        for ranged in (False, True):
            use_runtime(query(predicates, ranged))
    use_as_of("k")
    use_as_of("s")
    use_runtime(query(["R.k = S.k"], False), count_only=True)
    use_runtime(query(["R.k = S.k"], True), ids_only=True, renumber_at=1000)
    # Division by zero: fails when the first result comes, after the walk.
    failing = eddy.Runtime(query(["R.k = S.k"], False, raising("R.v")))
    with contextlib.suppress(eddy.InputError):
        failing.push({name: batch(-50, ROWS) for name in "RS"}, orders(2 * ROWS)[0])
    for predicates in keys:
        for c in range(len(query(predicates, False).classes)):
            key_hash(query(predicates, False), c, "R", batch(0, 10, nulls=True))
    splitter = pieces.Splitter(make_job(query(["R.k = S.k"], True), partitions=3), 0)
    splitter.add(batch(0, ROWS))
    assert splitter.finish()


STEPS = set[str]()
"""Steps of kernels, which may not be loaded by themselves."""


def compiled() -> dict[str, int]:
    """Return the number of signatures of each kernel of `stairs` and `eddy`."""
    counts = {}
    for package in (stairs, eddy):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if any(part.endswith("kernels") for part in module.name.split(".")):
                for name, kernel in vars(importlib.import_module(module.name)).items():
                    defined_here = isinstance(kernel, CPUDispatcher) and kernel.py_func.__module__ == module.name
                    if defined_here and not kernel.targetoptions.get("forceinline"):
                        counts[f"{module.name}.{name}"] = len(kernel.signatures)
                        if kernel.targetoptions["no_cpython_wrapper"]:
                            STEPS.add(f"{module.name}.{name}")
    return counts


if __name__ == "__main__":
    pieces.warmup()
    windows.warmup()
    eddy.warmup()
    warm = compiled()
    use_all()
    signatures = compiled()
    cold = [name for name, count in signatures.items() if count > warm[name]]
    print(json.dumps({"signatures": signatures, "steps": sorted(STEPS), "cold": cold}))

"""A package of partitions: the windows of a group, with or without its stored states, and its installation.

*State matching* (the paper's sec. 4.1): the receiver keeps a state of the sender unchanged if the receiver's plan has
the streams and the attribute of the state; the receiver computes the other states from the base windows, bottom up. In
this implementation the receiver takes the sender's engine as parts, which has the sender's plan, and changes the plan
to its own plan: the strategy of the engine keeps the matching states, drops the others and computes missing states.
`moving-state` does so at once, as in the paper; `jisc` completes missing states just in time. If the strategies differ,
no state matches: the receiver loads the base windows, and its strategy computes all states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bench.simulated.cluster.partitioning import Partitioned
from bench.simulated.cluster.positions import Positions
from bench.simulated.cluster.setting import EngineSetting
from bench.simulated.cluster.work import WorkCounts, counters
from eddy.routing.router import policy_name
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from eddy.storage.arrow_bytes import read_batch
from jisc.strategies import STRATEGIES
from stairs.storage.parts import Memory, Parts, Plain


class Package(NamedTuple):
    """Windows of a group.

    known      the rows that have been processed; `rows` has those that are still in a window
    rows       rows per stream, None = no rows
    watermark  the watermark after these rows
    parts      the engine as plain parts with its stored states, None = windows only
    setting    plan, strategy and policy of that engine
    entries    live entries of its stored states
    """

    known: Positions
    rows: list[pa.RecordBatch | None]
    watermark: int
    parts: Plain | None = None
    setting: EngineSetting | None = None
    entries: int = 0
    entry_bytes: int = 0

    @property
    def n_rows(self) -> int:
        """The number of rows in the windows."""
        return sum(len(rows) for rows in self.rows if rows is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of rows and stored states."""
        return sum(rows.nbytes for rows in self.rows if rows is not None) + self.entry_bytes


class _Copies(Memory):
    """Copies of the arrays of parts, because sender and receiver share no memory."""

    def __init__(self) -> None:
        self.copies: list[Any] = []

    def kept(self, value: Any) -> Any:
        """Return parts with places instead of arrays."""
        if isinstance(value, dict):
            return {name: self.kept(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.kept(part) for part in value]
        if isinstance(value, np.ndarray | pa.Array | memoryview):
            self.copies.append(np.array(value, order="C") if isinstance(value, np.ndarray) else value)
            return len(self.copies) - 1
        return value

    def array(self, place: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Return the copy at a place."""
        return self.copies[place]

    def arrow(self, place: Any, kind: pa.DataType) -> pa.Array:
        """Return the Arrow array at a place."""
        return self.copies[place]

    def batch(self, place: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Return the record batch at a place."""
        return read_batch(pa.py_buffer(self.copies[place]), schema)


def with_states(package: Package, runtime: Runtime, setting: EngineSetting) -> Package:
    """Return the package with the stored states of its engine. O(state)."""
    copies = _Copies()
    parts = {"values": copies.kept(runtime.to_parts()), "memory": copies}
    entries = sum(stair.rows for stair in runtime.stairs)
    entry_bytes = sum(stair.rows * 8 * (1 + len(stair.streams)) for stair in runtime.stairs)
    return package._replace(
        parts=parts, setting=setting._replace(plan=runtime.plan), entries=entries, entry_bytes=entry_bytes
    )


def installed(query: Partitioned, setting: EngineSetting, package: Package) -> tuple[Runtime, WorkCounts]:
    """Return an engine with the windows of a package, and the work of making it."""
    sender = package.setting
    if package.parts is not None and sender is not None and _matches(sender, setting):
        parts = Parts(package.parts["values"], package.parts["memory"], f"partitions of {query.query}")
        runtime = Runtime.from_parts(parts, query.inner)
        before = counters(runtime)
        if runtime.plan != setting.plan:
            runtime.transition(setting.plan)
        work = counters(runtime) - before
        return runtime, work + WorkCounts(loaded=package.n_rows + package.entries)
    runtime = Runtime(
        query.inner, setting.plan, strategy=strategy_name(setting.strategy), policy=policy_name(setting.policy)
    )
    rows = {name: rows for name, rows in zip(query.names, package.rows, strict=True) if rows is not None}
    runtime.load(rows, watermark=package.watermark)
    return runtime, counters(runtime) + WorkCounts(loaded=package.n_rows)


def _matches(sender: EngineSetting, receiver: EngineSetting) -> bool:
    """Return whether the receiver can keep states: it has the same strategy, which can change plans if they differ."""
    changes = STRATEGIES[receiver.strategy].changes
    return sender[1:] == receiver[1:] and (changes or sender.plan == receiver.plan)

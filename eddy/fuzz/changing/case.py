"""A case of an engine with queries that change, as plain data.

A case is complete: playing it twice does the same twice. Streams are called NAMES[i]; their columns are two keys `k0`
and `k1`, a value `x` that filters and comparisons read, `t` (event time, if the streams have some) and `n`, the number
of the row in the case. Results of version v have a column "v_R" for each stream R: the n of its component.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.fuzz.case import NAMES, PushStep, Row, oracle_window
from eddy.fuzz.changing.oracle import EngineOracle
from eddy.fuzz.oracle import Comparison, OracleQuery, OracleStream
from eddy.fuzz.times import CaseTimes
from eddy.queries.changes import How
from eddy.queries.lineage import Stop as Stopping
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.streams.stream import Stream
from eddy.streams.windows import Range, Window

KEYS = ("k0", "k1")
EARLIER = -1
"""The value of `ahead` for a position that has passed."""


@dataclass(frozen=True)
class EngineStreams:
    """The streams of an engine: the window of each, None for none. All have event times, or none has."""

    windows: tuple[Window | None, ...]
    timed: bool = True
    lateness: int = 0
    watermark: WatermarkOf = "slowest"
    idle_after: int | None = None
    late_of: Mapping[str, int] = field(default_factory=dict)
    """The lateness of some streams; the others have that of the engine."""
    times: CaseTimes = field(default_factory=CaseTimes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(NAMES[: len(self.windows)])

    def schema(self, name: str) -> pa.Schema:
        """Return the columns of a stream."""
        times = [("t", self.times.kind(NAMES.index(name)))] if self.timed else []
        return pa.schema([*((column, pa.int64()) for column in (*KEYS, "x")), *times, ("n", pa.int64())])

    def streams(self) -> list[Stream]:
        """Return the streams as the engine takes them."""
        streams = [self.stream(name, window) for name, window in zip(self.names, self.windows, strict=True)]
        late = {name: self.times.span(lateness) for name, lateness in self.late_of.items()}
        return [replace(stream, lateness=late.get(stream.name)) for stream in streams]

    def stream(self, name: str, window: Window | None, least: int | None = None) -> Stream:
        """Return a stream with a window, and a filter if there is a least value."""
        keep = None if least is None else pc.field("x") >= least
        time = "t" if self.timed else None
        return Stream(name, self.schema(name), window=self.times.window(window), time=time, filter=keep)

    def counts_otherwise(self, asked: EngineQuery) -> bool:
        """Return whether the streams of a query with windows of time all have coarser event times than another one."""
        timed = any(isinstance(member.window, Range) for member in asked.streams)
        numbers = [member.stream for member in asked.streams]
        return timed and bool(self.times.units) and self.times.finest(numbers) < self.times.finest()

    def oracle(self) -> EngineOracle:
        """Return a fresh reference."""
        windows = {
            name: None if window is None else oracle_window(window)
            for name, window in zip(self.names, self.windows, strict=True)
        }
        time = "t" if self.timed else None
        return EngineOracle(windows, time, self.lateness, self.watermark, self.idle_after, self.late_of)

    def values(self, row: Row) -> dict[str, Any]:
        """Return the columns of a row, as the reference takes them."""
        time = {"t": row.time} if self.timed else {}
        return {**row.keys, "x": row.value, **time, "n": row.number}

    def pushed(self, row: Row) -> dict[str, Any]:
        """Return the columns of a row, as the engine takes them."""
        return self.values(replace(row, time=self.times.moment(row.stream, row.time)))


@dataclass(frozen=True)
class StreamUse:
    """A stream of a query: the number of the stream in the engine, its window, and the least x of its rows."""

    stream: int
    window: Window
    least: int | None = None


@dataclass(frozen=True)
class EngineQuery:
    """A query: its streams, equalities (stream, stream, column) and comparisons x <= x + amount of two streams."""

    streams: tuple[StreamUse, ...]
    equalities: tuple[tuple[int, int, str], ...]
    comparisons: tuple[tuple[int, int, int], ...] = ()

    @property
    def predicates(self) -> list[str]:
        """The predicates as text."""
        equalities = [f"{NAMES[i]}.{column} = {NAMES[j]}.{column}" for i, j, column in self.equalities]
        return equalities + [f"{NAMES[i]}.x <= {NAMES[j]}.x + {amount}" for i, j, amount in self.comparisons]

    def select(self, version: int) -> dict[str, str]:
        """Return the projection of a version."""
        return {f"{version}_{NAMES[member.stream]}": f"{NAMES[member.stream]}.n" for member in self.streams}

    def query(self, sources: EngineStreams, version: int) -> Query:
        """Return the query as the engine takes it."""
        streams = [sources.stream(NAMES[member.stream], member.window, member.least) for member in self.streams]
        return Query(streams, self.predicates, select=self.select(version))

    def oracle(self, sources: EngineStreams) -> OracleQuery:
        """Return the query for the reference."""
        time = "t" if sources.timed else None
        streams = [
            OracleStream(NAMES[member.stream], *oracle_window(member.window), time, keep=_keep(member.least))
            for member in self.streams
        ]
        equalities = [((NAMES[i], column), (NAMES[j], column)) for i, j, column in self.equalities]
        comparisons: list[Comparison] = [
            ((NAMES[i], "x"), "<=", (NAMES[j], "x"), amount) for i, j, amount in self.comparisons
        ]
        return OracleQuery(streams, equalities, comparisons=comparisons)


def _keep(least: int | None) -> Any:
    return None if least is None else lambda row: row["x"] >= least


@dataclass(frozen=True)
class BadOrderStep:
    """Push rows with an order that is longer than they are, which must fail and change nothing."""

    rows: tuple[Row, ...]


@dataclass(frozen=True)
class StartStep:
    """Start a query at the position that is `ahead` arrivals from now, or EARLIER; None: without a position, so now."""

    name: str
    asked: EngineQuery
    ahead: int | None = None
    warm: bool = False


@dataclass(frozen=True)
class ChangeStep:
    """Change a query; without such a query the step is skipped."""

    name: str
    asked: EngineQuery
    how: How
    ahead: int | None = None


@dataclass(frozen=True)
class StopStep:
    """Stop a query; without such a query the step is skipped."""

    name: str
    how: Stopping
    ahead: int | None = None


@dataclass(frozen=True)
class EngineReloadStep:
    """Restore a snapshot, and continue with the restored engine."""


Element = StartStep | ChangeStep | StopStep
Step = PushStep | BadOrderStep | EngineReloadStep | Element


@dataclass(frozen=True)
class EngineCase:
    """Streams, the options of the joins, and steps.

    The policy is a name of `eddy.routing.policies.POLICIES`, or CHAOS, which is created from `seed`.
    """

    sources: EngineStreams
    strategy: str
    steps: tuple[Step, ...] = ()
    policy: str = "fixed"
    seed: int = 0
    decide_every: int = 5

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the engine without the policy."""
        sources = self.sources
        timing = {"lateness": sources.lateness, "watermark": sources.watermark, "idle_after": sources.idle_after}
        return {**sources.times.timing(timing), "strategy": self.strategy}

"""A case of a query with as-of joins, as plain data.

The streams of the core are called NAMES[0], NAMES[1], …; then comes the stream of a branch, if there is one, and then
the tables X0, X1, …. All have the columns of COLUMNS: two keys, the event time, a value, and the number of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eddy.fuzz.as_of_oracle import AsOfOracle, OracleAsOf
from eddy.fuzz.branch_oracle import BranchOracle, OracleBranch
from eddy.fuzz.case import (
    NAMES,
    DemoteStep,
    Hanging,
    OutputMode,
    ReloadStep,
    Results,
    TransitionStep,
    chosen_options,
    is_chaotic,
    links_of,
    paths_of,
)
from eddy.fuzz.oracle import Column, OracleQuery, OracleStream
from eddy.fuzz.table_oracle import TableBranch, TableInput, TableOracle
from eddy.fuzz.times import CaseTimes
from eddy.query.as_of import AsOf
from eddy.query.branch import Branch
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows, Unbounded, Window

COLUMNS = ("a", "b", "t", "v", "p")
TYPES: Mapping[str, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
}
"""Types of columns by the name that a case has for them."""


@dataclass(frozen=True)
class AsOfBranch:
    """A branch: its stream, how it is joined, and the equalities."""

    stream: OracleStream
    how: Literal["left", "semi", "anti"]
    equalities: tuple[tuple[Column, Column], ...]


@dataclass(frozen=True)
class AsOfQuery:
    """A query with as-of joins.

    keyed    the input that is a table, with its `key`; "" = all are streams
    bare     whether the stream of the core, the only one, has no window: then no row is ever taken back
    types    name of an input -> the types of its columns a, b and p
    implied  the tables whose event time is that of the only stream, without saying so
    deletes  the inputs whose rows say what they do; `rejects`: those whose filter rejects rows with v = 0
    """

    core: tuple[OracleStream, ...]
    equalities: tuple[tuple[Column, Column], ...]
    joins: tuple[OracleAsOf, ...]
    types: Mapping[str, tuple[str, str, str]]
    branch: AsOfBranch | None = None
    keyed: str = ""
    key: tuple[str, ...] = ()
    bare: bool = False
    implied: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()
    lateness: int = 0
    watermark: WatermarkOf = "slowest"
    idle_after: int | None = None
    times: CaseTimes = field(default_factory=CaseTimes)
    """The units of all inputs, also of those whose times are only a column."""

    @property
    def streams(self) -> tuple[OracleStream, ...]:
        """The streams of the core, and that of the branch."""
        return (*self.core, *([self.branch.stream] if self.branch else []))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(join.table.name for join in self.joins)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the streams and tables."""
        return *self.names, *self.tables

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams, of which plans are made."""
        return tuple(stream.name for stream in self.streams)

    @property
    def shown(self) -> tuple[str, ...]:
        """The inputs of which results have columns."""
        branch = [self.branch.stream.name] if self.branch and self.branch.how == "left" else []
        return *(stream.name for stream in self.core), *branch, *self.tables

    @property
    def timed(self) -> bool:
        """Whether the query has a watermark."""
        return any(join.at for join in self.joins) or any(stream.window == "range" for stream in self.streams)

    @property
    def timing(self) -> dict[str, Any]:
        """The options of the query that decide the watermark."""
        if not self.timed:
            return {}
        return {"lateness": self.lateness, "watermark": self.watermark, "idle_after": self.idle_after}

    @property
    def branches(self) -> tuple[Hanging, ...]:
        """The branch by the positions of its streams."""
        return (Hanging(self.branch.how, (len(self.core),)),) if self.branch else ()

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The streams of each inner join."""
        return paths_of(len(self.streams), self.branches)

    @cached_property
    def links(self) -> frozenset[tuple[int, int]]:
        """The pairs of streams that predicates connect."""
        equalities = (*self.equalities, *(self.branch.equalities if self.branch else ()))
        return links_of(self.query(), [((NAMES.index(a), x), (NAMES.index(b), y)) for (a, x), (b, y) in equalities])

    def schema(self, name: str) -> pa.Schema:
        """Return the columns of an input, without that of operations."""
        a, b, p = (TYPES[kind] for kind in self.types[name])
        return pa.schema(
            [("a", a), ("b", b), ("t", self.times.kind(self.inputs.index(name))), ("v", pa.int64()), ("p", p)]
        )

    def pushed(self, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of an input as the engine takes it."""
        return {**row, "t": self.times.moment(self.inputs.index(name), row["t"])} if row else {}

    def ticks(self, time: int | None) -> int | None:
        """Return an event time in ticks of the runtime."""
        timed = [self.inputs.index(name) for name in self.names if name != self.keyed]
        timed += [self.inputs.index(join.table.name) for join in self.joins if join.at is not None]
        return self.times.ticks(time, timed)

    def window(self, stream: OracleStream) -> Window | None:
        """Return the window of a stream."""
        if self.bare:
            return None
        return (
            Rows(stream.size)
            if stream.window == "rows"
            else Range(self.times.span(stream.size))
            if stream.window == "range"
            else Unbounded()
        )

    def query(self) -> Query:
        """Return the query as the engine takes it."""
        branches = []
        if self.branch is not None:
            branches.append(Branch([self._stream(self.branch.stream)], equal(self.branch.equalities), self.branch.how))
        return Query(
            [self._stream(stream) for stream in self.core],
            equal(self.equalities),
            branches=branches,
            as_of=[self._as_of(join) for join in self.joins],
            **self.times.timing(self.timing),
        )

    def _stream(self, stream: OracleStream) -> Stream:
        if stream.name == self.keyed:
            return Table(stream.name, self.schema(stream.name), key=list(self.key), ops="column")
        return Stream(stream.name, self.schema(stream.name), self.window(stream), "t")

    def _as_of(self, join: OracleAsOf) -> AsOf:
        name = join.table.name
        more: dict[str, Any] = {"ops": "column" if name in self.deletes else None}
        if name in self.rejects:
            more["filter"] = pc.field("v") > 0
        if join.at is not None:
            more["time"] = "t"
        kind: Any = Table if join.at is None else VersionedTable
        table = kind(name, self.schema(name), key=list(join.key), **more)
        return AsOf(table, on_text(join), **self.options(join))

    def options(self, join: OracleAsOf) -> dict[str, Any]:
        """Return the options of an as-of join, with the event time that it names."""
        implied = join.at is None or join.table.name in self.implied
        at = {} if implied or join.at is None else {"at": f"{join.at[0]}.{join.at[1]}"}
        tolerance = None if join.tolerance is None else self.times.span(join.tolerance)
        return {"how": join.how, "direction": join.direction, "tolerance": tolerance, **at}

    def oracle(self, changelog: bool) -> AsOfOracle:
        """Return a fresh oracle."""
        joined = [self.branch] if self.branch else []
        if self.keyed:
            branches = [
                TableBranch([self._input(branch.stream)], compared(branch.equalities), branch.how) for branch in joined
            ]
            tables = TableOracle([self._input(stream) for stream in self.core], compared(self.equalities), branches)
            return AsOfOracle(tables, self.joins, **self.timing)
        below = [OracleBranch(OracleQuery([branch.stream], branch.equalities), branch.how) for branch in joined]
        tree = OracleBranch(OracleQuery(self.core, self.equalities), "core", below)
        return AsOfOracle(BranchOracle(tree, changelog), self.joins, **self.timing)

    def _input(self, stream: OracleStream) -> TableInput:
        if stream.name == self.keyed:
            return TableInput(stream.name, self.key)
        rows, span = (stream.size if stream.window == kind else None for kind in ("rows", "range"))
        return TableInput(stream.name, rows=rows, span=span, time="t")


def compared(equalities: Iterable[tuple[Column, Column]]) -> list[tuple[Column, str, Column]]:
    """Return equalities as comparisons."""
    return [(left, "=", right) for left, right in equalities]


def equal(equalities: Iterable[tuple[Column, Column]]) -> list[str]:
    """Return equalities as text."""
    return [f"{a}.{x} = {b}.{y}" for (a, x), (b, y) in equalities]


def on_text(join: OracleAsOf) -> list[str]:
    """Return the equalities of an as-of join as text."""
    return [f"{stream}.{column} = {join.table.name}.{key}" for key, (stream, column) in join.key.items()]


@dataclass(frozen=True)
class AsOfArrival:
    """A row of a stream or a table: its values by COLUMNS, and what it does, for an input whose rows say so."""

    name: str
    values: tuple[Any, ...]
    op: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The values by column."""
        return dict(zip(COLUMNS, self.values, strict=True))


@dataclass(frozen=True)
class AsOfPushStep:
    """Push rows, in this order; with a watermark, unless the present one is greater already."""

    arrivals: tuple[AsOfArrival, ...]
    watermark: int | None = None


AsOfStep = AsOfPushStep | TransitionStep | ReloadStep | DemoteStep


@dataclass(frozen=True)
class AsOfCase:
    """A query with as-of joins, the options of its runtime, and its steps; see `eddy.fuzz.case.Case`."""

    asked: AsOfQuery
    plan: str | None
    strategy: str
    output: OutputMode = "append"
    results: Results = "rows"
    steps: tuple[AsOfStep, ...] = ()
    policy: str = "fixed"
    seed: int = 0
    background: int = 0
    renumber_at: int | None = None
    decide_every: int | None = None
    store: tuple[str, ...] | None = None
    max_bytes: int | None = field(default=None, init=False)

    @property
    def chaotic(self) -> bool:
        """Whether the fuzzer's own policy decides, at the start or later."""
        return is_chaotic(self.policy, self.steps)

    def options(self) -> Mapping[str, Any]:
        """Return the options that differ from their defaults, as the engine takes them, without the policy."""
        return {**chosen_options(self), "bounded": True, "output": self.output}

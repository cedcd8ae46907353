"""A case of a query over tables and streams, as plain data.

A case is complete: playing it twice does the same twice. Input i is called NAMES[i]. All inputs have the columns of
SCHEMA: keys and values `a`, `b`, `k`, `p`, `v`, `w`, the event time `t` of streams, and the version `z` of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eddy import agg
from eddy.filters.conditions import Predicate
from eddy.fuzz.aggregate_oracle import OracleAggregate
from eddy.fuzz.case import (
    NAMES,
    DemoteStep,
    Hanging,
    LimitStep,
    ReloadStep,
    Results,
    TransitionStep,
    chosen_options,
    is_chaotic,
    links_of,
    nodes_of,
    paths_of,
    shown_of,
)
from eddy.fuzz.oracle import OracleClock
from eddy.fuzz.table_oracle import TableBranch, TableInput, TableOracle
from eddy.fuzz.top_oracle import OracleOrder, OracleTop
from eddy.query.branch import Branch
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.query.top import Top
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Range, Rows, Unbounded, Window

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("k", pa.string()),
        ("p", pa.int8()),
        ("v", pa.string()),
        ("w", pa.int32()),
        ("t", pa.int64()),
        ("z", pa.int64()),
    ]
)
WHERE = 8
"""Rows with a greater `w` are rejected, where a query has filters."""
LATENESS = 2
RANK = "place"
"""The name of the column that numbers the first rows of a group."""
UPSERTS, DELETES = ("+I", "+U", "c", "r", "u"), ("-D", "d")
ChangelogMode = Literal["changelog", "upsert"]
Compared = tuple[tuple[str, str], str, tuple[str, str]]
"""(input, column), operator, (input, column)."""


@dataclass(frozen=True)
class TablesQuery:
    """A query: which inputs are tables, their windows (None = all rows, -d = RANGE d), predicates, columns shown.

    A predicate belongs to the branch of its later input.

    switched   whether the results have a filter that fails at times
    grouped    the group columns of a query with aggregates; None = the results are the joined rows
    tombstones those of tables with versions; -1 = without end, None = tables without versions
    top        the first rows of groups, of the joined rows or of the rows of groups; `rank`: whether they have numbers
    """

    tables: tuple[bool, ...]
    windows: tuple[int | None, ...]
    predicates: tuple[Compared, ...]
    key: tuple[str, ...]
    filtered: bool
    switched: bool
    shown: str
    grouped: tuple[str, ...] | None
    tombstones: int | None = None
    expiry: Literal["retract", "final"] = "retract"
    branches: tuple[Hanging, ...] = ()
    top: OracleTop | None = None
    rank: bool = False
    watermark: WatermarkOf = "fastest"
    idle_after: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(NAMES[: len(self.tables)])

    @property
    def timed(self) -> bool:
        """Whether a window is a RANGE."""
        windows = zip(self.tables, self.windows, strict=True)
        return any(not table and size is not None and size < 0 for table, size in windows)

    @property
    def atomic(self) -> bool:
        """Whether each push is atomic."""
        return bool(self.branches)

    @property
    def versions(self) -> dict[str, Any]:
        """The options of tables on versions."""
        if self.tombstones is None:
            return {}
        return {"version": "z", "tombstones": None if self.tombstones < 0 else self.tombstones}

    @property
    def timing(self) -> dict[str, Any]:
        """The options of the query that decide the watermark."""
        idle = {} if self.idle_after is None else {"idle_after": self.idle_after}
        return {"lateness": LATENESS, "watermark": self.watermark, **idle} if self.timed else {}

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The inputs of the core, and those of each branch."""
        return nodes_of(len(self.tables), self.branches)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The inputs of each inner join."""
        return paths_of(len(self.tables), self.branches)

    @cached_property
    def visible(self) -> tuple[int, ...]:
        """The inputs of which results have columns."""
        return shown_of(len(self.tables), self.branches)

    @cached_property
    def links(self) -> frozenset[tuple[int, int]]:
        """The pairs of inputs that predicates connect."""
        equal = [((NAMES.index(a), x), (NAMES.index(b), y)) for (a, x), op, (b, y) in self.predicates if op == "="]
        return links_of(self.query(), equal)

    @property
    def functions(self) -> dict[str, OracleAggregate]:
        """The aggregates of a query that has some."""
        last = NAMES[self.visible[-1]]
        return {
            "n": OracleAggregate("count"),
            "s": OracleAggregate("sum", "R.w"),
            "a": OracleAggregate("avg", f"{last}.p"),
            "lo": OracleAggregate("min", "R.b"),
            "hi": OracleAggregate("max", f"{last}.v"),
            "f": OracleAggregate("first", "R.k", f"{last}.w"),
        }

    @property
    def outputs(self) -> list[str]:
        """The columns of results, without the number of a first row."""
        if self.grouped is not None:
            return [*self.grouped, *self.functions]
        return [f"{NAMES[i]}.{column}" for i in self.visible for column in self.shown]

    @property
    def ranking(self) -> OracleTop | None:
        """The first rows with the complete order of groups: rows of groups come in the order of their columns last."""
        if self.top is None or self.grouped is None:
            return self.top
        taken = [sort_key.column for sort_key in self.top.order]
        more = tuple(OracleOrder(column) for column in self.grouped if column not in taken)
        return replace(self.top, order=self.top.order + more)

    @property
    def order(self) -> list[str]:
        """The order of the first rows as text."""
        assert self.top is not None
        return [
            sort_key.column + " desc" * sort_key.descending + " nulls first" * sort_key.nulls_first
            for sort_key in self.top.order
        ]

    def window(self, i: int) -> Window:
        """Return the window of a stream."""
        size = self.windows[i]
        return Unbounded() if size is None else Rows(size) if size > 0 else Range(-size)

    def predicates_of(self, node: int = -1) -> list[Compared]:
        """Return the predicates of a branch, -1 = those of the core."""
        streams = self.nodes[1 + node]
        return [
            predicate
            for predicate in self.predicates
            if max(NAMES.index(predicate[0][0]), NAMES.index(predicate[2][0])) in streams
        ]

    def below(self, node: int = -1) -> list[int]:
        """Return the branches that hang on a branch, -1 = on the core."""
        return [k for k, branch in enumerate(self.branches) if branch.parent == node]

    def query(self, accepts: Callable[[pa.RecordBatch], pa.Array] | None = None) -> Query:
        """Return the query as the engine takes it; `accepts` is the filter of a switched one."""

        def branches(node: int) -> list[Branch]:
            return [
                Branch(
                    [self._input(i) for i in self.branches[k].streams],
                    texts(self.predicates_of(k)),
                    self.branches[k].how,
                    branches(k),
                )
                for k in self.below(node)
            ]

        more: dict[str, Any] = {"branches": branches(-1), "expiry": self.expiry, **self.timing}
        if self.switched and accepts is not None:
            more["where"] = Predicate(accepts, ["R.a"])
        if self.top is not None:
            more["top"] = Top(self.top.n, list(self.top.by), self.order, RANK if self.rank else None)
        if self.grouped is not None:
            more |= {
                "group_by": self.grouped,
                "aggregates": {n: made(aggregate) for n, aggregate in self.functions.items()},
            }
        else:
            more["select"] = self.outputs
        return Query([self._input(i) for i in self.nodes[0]], texts(self.predicates_of()), **more)

    def _input(self, i: int) -> Stream:
        kept = pc.field("w") <= WHERE if self.filtered else None
        if self.tables[i]:
            return Table(NAMES[i], SCHEMA, key=self.key, ops="column", filter=kept, **self.versions)
        return Stream(NAMES[i], SCHEMA, window=self.window(i), time="t" if self.timed else None, filter=kept)

    def oracle(self) -> TableOracle:
        """Return a fresh oracle."""

        def branches(node: int) -> list[TableBranch]:
            return [
                TableBranch(
                    [self._oracle_input(i) for i in self.branches[k].streams],
                    self.predicates_of(k),
                    self.branches[k].how,
                    branches(k),
                )
                for k in self.below(node)
            ]

        inputs = [self._oracle_input(i) for i in self.nodes[0]]
        return TableOracle(inputs, self.predicates_of(), branches(-1), self.expiry)

    def _oracle_input(self, i: int) -> TableInput:
        size, table = self.windows[i], self.tables[i]
        return TableInput(
            NAMES[i],
            key=self.key if table else (),
            rows=None if table or size is None or size < 0 else size,
            span=-size if not table and size is not None and size < 0 else None,
            time="t" if self.timed and not table else "",
            keep=keeps if self.filtered else None,
            **(self.versions if table else {}),
        )

    def clock(self) -> OracleClock:
        """Return the clock of the streams."""
        names = [name for name, table in zip(self.names, self.tables, strict=True) if not table]
        return OracleClock(dict.fromkeys(names, LATENESS), self.watermark, self.idle_after)


def texts(predicates: Sequence[Compared]) -> list[str]:
    """Return predicates as text."""
    return [f"{a}.{x} {op} {b}.{y}" for (a, x), op, (b, y) in predicates]


def made(aggregate: OracleAggregate) -> agg.Aggregate:
    """Return an aggregate as the engine takes it."""
    columns = [aggregate.column, *([aggregate.by] if aggregate.function == "first" else [])]
    engine_aggregate: agg.Aggregate = getattr(agg, aggregate.function)(
        *(column for column in columns if column is not None)
    )
    return engine_aggregate


def keeps(row: Mapping[str, Any]) -> bool:
    """Return whether a filter accepts a row."""
    return bool(row["w"] <= WHERE)


@dataclass(frozen=True)
class TableArrival:
    """A row of a stream, or a change of a table: its input, the values of SCHEMA, and the operation of a change."""

    input: int
    values: tuple[Any, ...]
    op: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The values by column."""
        return dict(zip(SCHEMA.names, self.values, strict=True))


@dataclass(frozen=True)
class TablePushStep:
    """Push rows and changes, in this order.

    switched   while the filter of the results fails: either there is no result, or nothing happens
    """

    arrivals: tuple[TableArrival, ...]
    atomic: bool = False
    switched: bool = False


@dataclass(frozen=True)
class TableLoadStep:
    """Load rows and changes, if the query allows it, and nothing has arrived yet."""

    arrivals: tuple[TableArrival, ...]


@dataclass(frozen=True)
class BadChangeStep:
    """Push what must be refused, and check that nothing has changed.

    how="order": an order that is longer than the rows; "key": a change without a key; "op": an unknown operation. The
    last two follow the arrivals.
    """

    arrivals: tuple[TableArrival, ...]
    how: Literal["order", "key", "op"]


@dataclass(frozen=True)
class WatermarkStep:
    """Give a watermark that is `ahead` of the present one, without rows; without event times the step is skipped."""

    ahead: int


@dataclass(frozen=True)
class TrimStep:
    """Give memory back."""


TableStep = (
    TablePushStep
    | TableLoadStep
    | BadChangeStep
    | WatermarkStep
    | TrimStep
    | TransitionStep
    | ReloadStep
    | DemoteStep
    | LimitStep
)


@dataclass(frozen=True)
class TableCase:
    """A query over tables, the options of its runtime, and its steps; see `eddy.fuzz.case.Case`.

    plan   None for one input without branches
    """

    asked: TablesQuery
    plan: str | None
    strategy: str
    output: ChangelogMode = "changelog"
    results: Results = "rows"
    background: int = 0
    renumber_at: int | None = None
    steps: tuple[TableStep, ...] = ()
    policy: str = "fixed"
    seed: int = 0
    decide_every: int | None = None
    store: tuple[str, ...] | None = None
    max_bytes: int | None = None

    @property
    def chaotic(self) -> bool:
        """Whether the fuzzer's own policy decides, at the start or later."""
        return is_chaotic(self.policy, self.steps)

    def options(self) -> Mapping[str, Any]:
        """Return the options that differ from their defaults, as the engine takes them, without the policy."""
        return {**chosen_options(self), "output": self.output}

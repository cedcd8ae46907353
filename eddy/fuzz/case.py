"""A case of the fuzzer as plain data: a query, the options of its runtime, and the steps that the runtime takes.

A case is complete: playing it twice does the same twice. Its names are fixed: stream i is called NAMES[i], and its
columns are its keys, `t` (event time, if some window is a RANGE or follows from intervals), `x` (a value, if
comparisons read it), `v` (1, but 0 where a push must fail) and `n` (the number of the row in its stream, by which
results are recognised).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from tempfile import gettempdir
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import Predicate
from eddy.fuzz.branch_oracle import BranchOracle, OracleBranch
from eddy.fuzz.oracle import Comparison, Oracle, OracleQuery, OracleStream
from eddy.fuzz.times import CaseTimes
from eddy.query.branch import Branch
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.streams.stream import Stream
from eddy.streams.windows import Range, Rows, Unbounded, Window
from stairs.bands import Sizes
from stairs.memory.spill import SpillDirectory

NAMES = "RSTUVWXY"

CHAOS = "chaos"
"""The fuzzer's own policy, `eddy.fuzz.chaos`."""

OutputMode = Literal["append", "changelog"]
Results = Literal["rows", "ids", "count"]
Column = tuple[int, str]
"""Position of a stream, and the name of a column of it."""
Operator = Literal["<", "<=", ">", ">=", "!="]
Compared = tuple[Column, Operator, Column, int]
"""left, operator, right, amount: the predicate left operator right + amount, on columns t or x."""


@dataclass(frozen=True)
class Row:
    """A row: its stream, its keys by column, its event time, its number (column `n`), and its value (column `x`)."""

    stream: int
    keys: Mapping[str, Any]
    time: int = 0
    number: int = 0
    value: int = 0


@dataclass(frozen=True)
class Hanging:
    """A branch: its streams, and the number of the branch on which it hangs, -1 = the core.

    Branches come in the order in which the query lists their streams: each after the one on which it hangs.
    """

    how: Literal["left", "semi", "anti", "full"]
    streams: tuple[int, ...]
    parent: int = -1


def nodes_of(n: int, branches: Sequence[Hanging]) -> tuple[tuple[int, ...], ...]:
    """Return which of n streams are those of the core, and those of each branch."""
    below = [i for branch in branches for i in branch.streams]
    core = tuple(i for i in range(n) if i not in below)
    return core, *(branch.streams for branch in branches)


def paths_of(n: int, branches: Sequence[Hanging]) -> tuple[tuple[int, ...], ...]:
    """Return the streams of each inner join: those of the core, and of each branch with all on which it hangs."""
    paths = [nodes_of(n, branches)[0]]
    for branch in branches:
        paths.append((*paths[1 + branch.parent], *branch.streams))
    return tuple(path for path in paths if len(path) > 1)


def shown_of(n: int, branches: Sequence[Hanging]) -> tuple[int, ...]:
    """Return the streams of which results have columns: not those of semi and anti branches, and what hangs on them."""
    hidden: list[bool] = [False]
    for branch in branches:
        hidden.append(branch.how in ("semi", "anti") or hidden[1 + branch.parent])
    return tuple(i for streams, gone in zip(nodes_of(n, branches), hidden, strict=True) for i in streams if not gone)


def links_of(query: Query, equalities: Iterable[tuple[Column, Column]]) -> frozenset[tuple[int, int]]:
    """Return the pairs of streams that predicates connect, in both orders, as plans need it."""
    joins = query.inner_joins().values()
    links = [(NAMES.index(a), NAMES.index(b)) for join in joins for a, b in join.scans]
    links += [(i, j) for (i, _), (j, _) in equalities]
    return frozenset(links) | {(j, i) for i, j in links}


@dataclass(frozen=True)
class Shape:
    """A query. `columns[i]` are the key columns of stream i; keys are int64, or strings; `breakable`: see BadPushStep.

    A window that is None follows from the intervals. A predicate belongs to the branch of its later stream.
    """

    windows: tuple[Window | None, ...]
    columns: tuple[tuple[str, ...], ...]
    equalities: tuple[tuple[Column, Column], ...]
    lateness: int = 0
    watermark: WatermarkOf = "slowest"
    idle_after: int | None = None
    late_of: tuple[int | None, ...] = ()
    """The lateness of each stream, None for that of the query; empty = all have that."""
    text: bool = False
    breakable: bool = False
    comparisons: tuple[Compared, ...] = ()
    branches: tuple[Hanging, ...] = ()
    times: CaseTimes = field(default_factory=CaseTimes)

    @property
    def timed(self) -> bool:
        """Whether rows have event times."""
        return any(isinstance(window, Range | None) for window in self.windows)

    @property
    def valued(self) -> bool:
        """Whether rows have values."""
        return any(left[1] == "x" for left, _, _, _ in self.comparisons)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(NAMES[: len(self.windows)])

    @cached_property
    def links(self) -> frozenset[tuple[int, int]]:
        """The pairs of streams that predicates connect, in both orders, as plans need it."""
        return links_of(self.query(), self.equalities)

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The streams of the core, and those of each branch."""
        return nodes_of(len(self.windows), self.branches)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The streams of each inner join: those of the core, and of each branch with all on which it hangs."""
        return paths_of(len(self.windows), self.branches)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """The streams of which results have columns: not those of semi and anti branches, and of what hangs on them."""
        return shown_of(len(self.windows), self.branches)

    def _join(self, streams: Iterable[int]) -> OracleQuery:
        """Return some streams for an oracle, with the predicates of which one of them is the later stream."""
        numbers, time = list(streams), "t" if self.timed else None
        equalities = [((NAMES[i], x), (NAMES[j], y)) for (i, x), (j, y) in self.equalities if max(i, j) in numbers]
        comparisons: list[Comparison] = [
            ((NAMES[i], x), op, (NAMES[j], y), amount)
            for (i, x), op, (j, y), amount in self.comparisons
            if max(i, j) in numbers
        ]
        oracle_streams = [
            OracleStream(NAMES[i], *oracle_window(self.windows[i]), time, lateness=self.lateness_of(i)) for i in numbers
        ]
        return OracleQuery(
            oracle_streams,
            equalities,
            self.lateness,
            comparisons=comparisons,
            watermark=self.watermark,
            idle_after=self.idle_after,
        )

    def lateness_of(self, i: int) -> int | None:
        """Return the lateness that a stream has of its own, None for none."""
        return self.late_of[i] if self.late_of else None

    @property
    def timing(self) -> Mapping[str, Any]:
        """The options of the query that decide the watermark, where they differ from their defaults."""
        return {
            **({"lateness": self.lateness} if self.lateness else {}),
            **({"watermark": self.watermark} if self.watermark != "slowest" else {}),
            **({"idle_after": self.idle_after} if self.idle_after is not None else {}),
        }

    def oracle(self) -> Oracle:
        """Return a fresh oracle for the inner join of all streams."""
        return Oracle(self._join(range(len(self.windows))))

    def branch_oracle(self, changelog: bool) -> BranchOracle:
        """Return a fresh oracle for the query with its branches."""

        def branch(k: int) -> OracleBranch:
            below = [branch(b) for b, hanging in enumerate(self.branches) if hanging.parent == k]
            query = replace(self._join(self.nodes[1 + k]), lateness=0)
            how = self.branches[k].how if k >= 0 else "core"
            assert how != "full"
            return OracleBranch(query, how, below)

        return BranchOracle(branch(-1), changelog, self.lateness, self.watermark, self.idle_after)

    def schema(self, stream: int) -> pa.Schema:
        """Return the columns of a stream."""
        keys = [(column, pa.string() if self.text else pa.int64()) for column in self.columns[stream]]
        times = [("t", self.times.kind(stream))] if self.timed else []
        others = ["x"] * self.valued + ["v", "n"]
        return pa.schema([*keys, *times, *((name, pa.int64()) for name in others)])

    def predicates(self, node: int = -1) -> list[str]:
        """Return the predicates of a branch as text, -1 = those of the core."""
        streams = self.nodes[1 + node]
        equalities = [f"{NAMES[i]}.{x} = {NAMES[j]}.{y}" for (i, x), (j, y) in self.equalities if max(i, j) in streams]
        return equalities + [
            f"{NAMES[i]}.{x} {op} {NAMES[j]}.{y}{self.times.later(n, y)}"
            for (i, x), op, (j, y), n in self.comparisons
            if max(i, j) in streams
        ]

    def query(self) -> Query:
        """Return the query as the engine takes it."""
        streams = [
            Stream(
                name,
                self.schema(i),
                window=self.times.window(self.windows[i]),
                time="t" if self.timed else None,
                lateness=None if (lateness := self.lateness_of(i)) is None else self.times.span(lateness),
            )
            for i, name in enumerate(self.names)
        ]

        def below(k: int) -> list[Branch]:
            return [
                Branch([streams[i] for i in branch.streams], self.predicates(b), branch.how, below(b))
                for b, branch in enumerate(self.branches)
                if branch.parent == k
            ]

        return Query(
            [streams[i] for i in self.nodes[0]],
            self.predicates(),
            branches=below(-1),
            select=[f"{NAMES[i]}.n" for i in self.shown],
            where=Predicate(quotient, columns=["R.v"]) if self.breakable else None,
            **self.times.timing(self.timing),
        )

    def values(self, row: Row, v: int = 1) -> dict[str, Any]:
        """Return the columns of a row, as the oracles take them."""
        more = ({"t": row.time} if self.timed else {}) | ({"x": row.value} if self.valued else {})
        return {**row.keys, **more, "v": v, "n": row.number}

    def pushed(self, row: Row, v: int = 1) -> dict[str, Any]:
        """Return the columns of a row, as the engine takes them."""
        return self.values(replace(row, time=self.times.moment(row.stream, row.time)), v)


def quotient(rows: pa.RecordBatch) -> pa.Array:
    """Return whether 1 / R.v is positive. Raises an error for 0, which is one of the push: this is a function."""
    return pc.greater(pc.divide(1, rows.column("R.v")), 0)


def oracle_window(window: Window | None) -> tuple[Literal["rows", "range", "unbounded", "derived"], int]:
    """Return the kind and the size of a window as the oracle takes them."""
    match window:
        case Rows(n):
            return "rows", n
        case Range(int(d)):
            return "range", d
        case Unbounded():
            return "unbounded", 0
        case None:
            return "derived", 0
    raise AssertionError(f"windows of the fuzzer count ticks, not {window}")


@dataclass(frozen=True)
class PushStep:
    """Push rows, in this order; with a watermark, unless the present one is greater already."""

    rows: tuple[Row, ...]
    watermark: int | None = None


@dataclass(frozen=True)
class BadPushStep:
    """Push rows in a way that must fail, and check that nothing has changed.

    how="order": with an order longer than the rows. how="where": each row of R has v = 0, by which the result filter of
    a breakable query divides: it fails after the walk, if a result has such a row. Without such a result the step is
    skipped.
    """

    rows: tuple[Row, ...]
    how: Literal["order", "where"]


@dataclass(frozen=True)
class TransitionStep:
    """Change the plan and the stored states: at once, or before the arrival that is `ahead` arrivals from now.

    box   a name of the subtree that changes: all streams; None = the smallest subtree
    """

    plan: str
    ahead: int | None = None
    store: tuple[str, ...] | None = None
    box: str | None = None


@dataclass(frozen=True)
class ReloadStep:
    """Take a snapshot and continue with the runtime restored from it, with another plan, strategy or policy if given.

    The fuzzer's own policy is created again, from `seed`.
    """

    plan: str | None = None
    strategy: str | None = None
    policy: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class DemoteStep:
    """Drop the entries of one key from one state; both are picked by number, modulo their counts."""

    state: int
    key: int


@dataclass(frozen=True)
class LimitStep:
    """A step that sets `Runtime.max_bytes`; None removes the bound."""

    max_bytes: int | None


Step = PushStep | BadPushStep | TransitionStep | ReloadStep | DemoteStep | LimitStep


class RuntimeCase(Protocol):
    """The options of a runtime that a case of any kind has; see `Case`."""

    @property
    def strategy(self) -> str: ...
    @property
    def results(self) -> Results: ...
    @property
    def background(self) -> int: ...
    @property
    def renumber_at(self) -> int | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def decide_every(self) -> int | None: ...
    @property
    def store(self) -> tuple[str, ...] | None: ...
    @property
    def max_bytes(self) -> int | None: ...


def chosen_options(case: RuntimeCase) -> Mapping[str, Any]:
    """Return the options of any runtime that differ from their defaults, as the engine takes them."""
    return {
        "strategy": case.strategy,
        **({"decide_every": case.decide_every} if case.decide_every else {}),
        **({"store": list(case.store)} if case.store is not None else {}),
        **({"max_bytes": case.max_bytes} if case.max_bytes else {}),
        **({"background": case.background} if case.background else {}),
        **({"ids_only": True} if case.results == "ids" else {}),
        **({"count_only": True} if case.results == "count" else {}),
        **({"renumber_at": case.renumber_at} if case.renumber_at else {}),
        **({"purge": "paper"} if case.strategy == "parallel-track" and case.seed % 3 == 1 else {}),
        **({"spill": SpillDirectory(gettempdir(), case.seed)} if case.seed % 5 == 2 else {}),
    }


def is_chaotic(policy: str, steps: Iterable[object]) -> bool:
    """Return whether the fuzzer's own policy decides, at the start or later."""
    return CHAOS in (policy, *(step.policy for step in steps if isinstance(step, ReloadStep)))


@dataclass(frozen=True)
class Case:
    """A query, the options of its runtime, and its steps.

    The policy is a name of `eddy.routing.policies.POLICIES`, or CHAOS, which is created from `seed`. With a bound on
    bytes a step may be refused for lack of room; then nothing has changed, and the case continues.
    """

    shape: Shape
    plan: str
    strategy: str
    output: OutputMode = "append"
    results: Results = "rows"
    background: int = 0
    renumber_at: int | None = None
    steps: tuple[Step, ...] = ()
    policy: str = "fixed"
    seed: int = 0
    decide_every: int | None = None
    store: tuple[str, ...] | None = None
    max_bytes: int | None = None

    @property
    def chaotic(self) -> bool:
        """Whether the fuzzer's own policy decides, at the start or later."""
        return is_chaotic(self.policy, self.steps)

    @property
    def ordered(self) -> bool:
        """Whether results come in the order of their timestamps: in half of the cases in which that is possible."""
        return self.seed % 2 == 1 and self.results != "count" and not self.shape.branches

    @property
    def bands(self) -> Sizes | None:
        """When scans use bands: in most cases also in small windows. None = as by default."""
        return Sizes(0, 1, 2) if self.shape.comparisons and self.seed % 4 else None

    def options(self) -> Mapping[str, Any]:
        """Return the options that differ from their defaults, as the engine takes them, without the policy."""
        return {
            **chosen_options(self),
            **({"bounded": True} if self.shape.branches else {}),
            **({"output": self.output} if self.output != "append" else {}),
            **({"ordered": True} if self.ordered else {}),
        }

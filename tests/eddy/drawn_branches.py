"""Random queries with branches, for the oracle and for eddy, and random pushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import eddy
from eddy.fuzz.branch_oracle import BranchOracle, OracleBranch
from eddy.fuzz.oracle import Comparison, OracleQuery, OracleStream
from eddy.query.clock_rule import WatermarkOf

NAMES = "RSTUVW"
COLUMNS = ("a", "b", "t", "v", "p")
SCHEMA = pa.schema([*((name, pa.int64()) for name in COLUMNS[:-1]), ("p", pa.string())])
WINDOWS = {"rows": eddy.Rows, "range": eddy.Range, "unbounded": lambda _: eddy.Unbounded(), "derived": lambda _: None}


class DrawnBranches:
    """A query with branches, for the oracle and for eddy."""

    def __init__(self, draw: st.DrawFn, kinds: Sequence[tuple[str, ...]]) -> None:
        self.draw = draw
        self.kinds = draw(st.sampled_from(kinds))
        self.streams: dict[str, OracleStream] = {}
        full = draw(st.integers(0, 9)) == 9
        self.core, self.query_args = self._core(full)
        ranged = any(stream.window == "range" for stream in self.streams.values())
        self.lateness = draw(st.sampled_from((0, 0, 3))) if ranged else 0
        self.watermark: WatermarkOf = draw(st.sampled_from(("slowest", "slowest", "fastest"))) if ranged else "slowest"
        self.idle_after = draw(st.sampled_from((None, 2))) if ranged and self.watermark == "slowest" else None
        self.query = self._query()

    def _stream(self) -> OracleStream:
        name = NAMES[len(self.streams)]
        kind = self.draw(st.sampled_from(self.kinds))
        size = self.draw(st.integers(1, 5)) if kind == "rows" else self.draw(st.sampled_from((0, 2, 5, 12)))
        time = "t" if {"range", "derived"} & set(self.kinds) else None
        self.streams[name] = OracleStream(name, kind, size, time)
        return self.streams[name]

    def _edge(self, above: list[str], below: str) -> tuple[list[Any], list[Comparison], list[str]]:
        draw, partner = self.draw, self.draw(st.sampled_from(above))
        x = draw(st.sampled_from("ab"))
        equalities, comparisons, texts = [((partner, x), (below, x))], [], [f"{partner}.{x} = {below}.{x}"]
        if "derived" in self.kinds:
            low, high = draw(st.sampled_from(((0, 4), (-3, 3), (-5, 0))))
            comparisons += [((below, "t"), ">=", (partner, "t"), low), ((below, "t"), "<=", (partner, "t"), high)]
            texts.append(f"{below}.t between {partner}.t + {low} and {partner}.t + {high}")
        if draw(st.integers(0, 4)) == 4:
            comparisons.append(((partner, "v"), "<=", (below, "v"), 0))
            texts.append(f"{partner}.v <= {below}.v")
        return equalities, comparisons, texts

    def _joined(self, above: list[str], most: int) -> tuple[list[OracleStream], OracleQuery, list[str]]:
        streams: list[OracleStream] = []
        equalities: list[Any] = []
        comparisons: list[Comparison] = []
        texts: list[str] = []
        for _ in range(self.draw(st.integers(1, most))):
            stream, near = self._stream(), above + [joined_stream.name for joined_stream in streams]
            streams.append(stream)
            if near:
                more = self._edge(near, stream.name)
                equalities, comparisons, texts = equalities + more[0], comparisons + more[1], texts + more[2]
        return streams, OracleQuery(streams, equalities, comparisons=comparisons), texts

    def _branch(self, above: list[str], left: int, how: Any) -> tuple[OracleBranch, eddy.Branch]:
        streams, query, texts = self._joined(above, min(2, left))
        names = above + [stream.name for stream in streams]
        below = self._branches(names, 2 if len(self.streams) < 5 else 0)
        given_streams = [self._given(stream) for stream in streams]
        where: dict[str, Any] = {}
        if self.draw(st.integers(0, 3)) == 3:
            first, other = names[0], names[-1]
            where["where"] = pc.equal(pc.bit_wise_and(pc.field(f"{first}.v") + pc.field(f"{other}.v"), 1), 0)
        oracle = OracleBranch(query, how, [oracle_branch for oracle_branch, _ in below])
        if where:
            oracle = replace(oracle, where=lambda rows: (rows[first]["v"] + rows[other]["v"]) % 2 == 0)
        return oracle, eddy.Branch(given_streams, texts, how, [two for _, two in below], **where)

    def _branches(self, above: list[str], most: int) -> list[tuple[OracleBranch, eddy.Branch]]:
        branches = []
        for _ in range(self.draw(st.integers(0, most))):
            if len(self.streams) < 5:
                branches.append(
                    self._branch(above, 5 - len(self.streams), self.draw(st.sampled_from(("left", "semi", "anti"))))
                )
        return branches

    def _core(self, full: bool) -> tuple[OracleBranch, tuple[Any, ...]]:
        streams, query, texts = self._joined([], 1 if full else 2)
        names = [stream.name for stream in streams]
        if full:
            self._stream()
            edge = self._edge(names, "S")
            other = [self.streams["S"]]
            inner = OracleQuery(other, edge[0], comparisons=edge[1])
            branch = eddy.Branch([self._given(self.streams["S"])], edge[2], "full")
            self.full = True
            return OracleBranch(query, "core", [OracleBranch(inner, "left")]), ([self._given(streams[0])], [], [branch])
        self.full = False
        below = self._branches(names, 3) or [
            self._branch(names, 2, self.draw(st.sampled_from(("left", "semi", "anti"))))
        ]
        given_streams = [self._given(stream) for stream in streams]
        return OracleBranch(query, "core", [oracle_branch for oracle_branch, _ in below]), (
            given_streams,
            texts,
            [two for _, two in below],
        )

    def _given(self, stream: OracleStream) -> eddy.Stream:
        return eddy.Stream(stream.name, SCHEMA, window=WINDOWS[stream.window](stream.size), time=stream.time)

    def _query(self) -> eddy.Query:
        streams, texts, branches = self.query_args
        return eddy.Query(streams, texts, branches=branches, **self.timing)

    @property
    def timing(self) -> dict[str, Any]:
        """The options of the query that decide its watermark."""
        return {"lateness": self.lateness, "watermark": self.watermark, "idle_after": self.idle_after}

    def oracles(self, changelog: bool) -> list[BranchOracle]:
        """Return the oracle; for a full outer join, also that of the rows of the second stream."""
        timing = self.lateness, self.watermark, self.idle_after
        oracles = [BranchOracle(self.core, changelog, *timing)]
        if self.full:
            (branch,) = self.core.branches
            turned = OracleQuery(self.core.query.streams, branch.query.equalities, comparisons=branch.query.comparisons)
            second = OracleQuery(branch.query.streams, ())
            oracles.append(
                BranchOracle(
                    OracleBranch(second, "core", [OracleBranch(turned, "anti")]), changelog, *timing, oracles[0].spans
                )
            )
        return oracles


KINDS = (("rows",), ("range",), ("range", "derived"), ("rows", "range", "unbounded"))
"""The kinds of windows of a query."""


@st.composite
def drawn(draw: st.DrawFn, kinds: Sequence[tuple[str, ...]] = KINDS) -> DrawnBranches:
    """Draw a query with branches."""
    while True:
        try:
            return DrawnBranches(draw, kinds)
        except eddy.QueryError as problem:
            # A stream would be kept forever, or intervals contradict each other.
            if "forever" not in str(problem) and "fulfil" not in str(problem):
                raise
            return draw(st.nothing())


ROWS = st.integers(0, 5 * 5 * 3 * 4 * 3 - 1)
"""A row as one number: its stream, both keys, the step of the clock, and its value."""
KEYS: dict[str, tuple[int | None, ...]] = {"a": (1, 1, 2, 0, None), "b": (1, 1, 0)}
STEPS = (0, 1, 0, -1)


def steps(draw: st.DrawFn, names: list[str], stride: int = 1) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield pushes: rows whose event times rise, now and then not."""
    clock = 10
    for _ in range(draw(st.integers(1, 6))):
        arrivals = []
        for number in draw(st.lists(ROWS, max_size=10)):
            rest, k = divmod(number, 5)
            rest, a = divmod(rest, 5)
            rest, b = divmod(rest, 3)
            v, step = divmod(rest, 4)
            clock += STEPS[step] if stride == 1 else abs(STEPS[step]) * stride
            name, keys = names[k % len(names)], {"a": KEYS["a"][a], "b": KEYS["b"][b]}
            arrivals.append((name, {**keys, "t": clock, "v": v, "p": f"{name} at {clock}"}))
        yield arrivals

"""Left, semi, anti and full outer joins against their oracle: random trees of branches, windows, plans and pushes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy.fuzz.branch_oracle import BranchOracle, Numbers, OracleBranch
from eddy.fuzz.oracle import Comparison, OracleQuery, OracleStream
from jisc.plan.tree import connected_order, left_deep
from jisc.strategies import STRATEGIES

NAMES = "RSTUVW"
COLUMNS = ("a", "b", "t", "v", "p")
SCHEMA = pa.schema([*((name, pa.int64()) for name in COLUMNS[:-1]), ("p", pa.string())])
WINDOWS = {"rows": eddy.Rows, "range": eddy.Range, "unbounded": lambda _: eddy.Unbounded(), "derived": lambda _: None}
CHANGING = [name for name, kind in STRATEGIES.items() if kind.changes]


class Drawn:
    """A query with branches, for the oracle and for eddy."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.kinds = draw(
            st.sampled_from((("rows",), ("range",), ("range", "derived"), ("rows", "range", "unbounded")))
        )
        self.streams: dict[str, OracleStream] = {}
        full = draw(st.integers(0, 9)) == 9
        self.core, self.query_args = self._core(full)
        ranged = any(stream.window == "range" for stream in self.streams.values())
        self.lateness = draw(st.sampled_from((0, 0, 3))) if ranged else 0
        self.query = self._query()

    def _stream(self) -> OracleStream:
        name = NAMES[len(self.streams)]
        kind = self.draw(st.sampled_from(self.kinds))
        size = self.draw(st.integers(1, 5)) if kind == "rows" else self.draw(st.sampled_from((0, 2, 5, 12)))
        time = "t" if {"range", "derived"} & set(self.kinds) else None
        self.streams[name] = OracleStream(name, kind, size, time)
        return self.streams[name]

    def _edge(self, above: list[str], below: str) -> tuple[list[Any], list[Comparison], list[str]]:
        draw, one = self.draw, self.draw(st.sampled_from(above))
        x = draw(st.sampled_from("ab"))
        equalities, comparisons, texts = [((one, x), (below, x))], [], [f"{one}.{x} = {below}.{x}"]
        if "derived" in self.kinds:
            low, high = draw(st.sampled_from(((0, 4), (-3, 3), (-5, 0))))
            comparisons += [((below, "t"), ">=", (one, "t"), low), ((below, "t"), "<=", (one, "t"), high)]
            texts.append(f"{below}.t between {one}.t + {low} and {one}.t + {high}")
        if draw(st.integers(0, 4)) == 4:
            comparisons.append(((one, "v"), "<=", (below, "v"), 0))
            texts.append(f"{one}.v <= {below}.v")
        return equalities, comparisons, texts

    def _joined(self, above: list[str], most: int) -> tuple[list[OracleStream], OracleQuery, list[str]]:
        streams: list[OracleStream] = []
        equalities: list[Any] = []
        comparisons: list[Comparison] = []
        texts: list[str] = []
        for _ in range(self.draw(st.integers(1, most))):
            stream, near = self._stream(), above + [one.name for one in streams]
            streams.append(stream)
            if near:
                more = self._edge(near, stream.name)
                equalities, comparisons, texts = equalities + more[0], comparisons + more[1], texts + more[2]
        return streams, OracleQuery(streams, equalities, comparisons=comparisons), texts

    def _branch(self, above: list[str], left: int, how: Any) -> tuple[OracleBranch, eddy.Branch]:
        streams, query, texts = self._joined(above, min(2, left))
        names = above + [one.name for one in streams]
        below = self._branches(names, 2 if len(self.streams) < 5 else 0)
        given_streams = [self._given(one) for one in streams]
        return (
            OracleBranch(query, how, [one for one, _ in below]),
            eddy.Branch(given_streams, texts, how, [two for _, two in below]),
        )

    def _branches(self, above: list[str], most: int) -> list[tuple[OracleBranch, eddy.Branch]]:
        found = []
        for _ in range(self.draw(st.integers(0, most))):
            if len(self.streams) < 5:
                found.append(
                    self._branch(above, 5 - len(self.streams), self.draw(st.sampled_from(("left", "semi", "anti"))))
                )
        return found

    def _core(self, full: bool) -> tuple[OracleBranch, tuple[Any, ...]]:
        streams, query, texts = self._joined([], 1 if full else 2)
        names = [one.name for one in streams]
        if full:
            self._stream()
            edge = self._edge(names, "S")
            other = [self.streams["S"]]
            inner = OracleQuery(other, edge[0], comparisons=edge[1])
            branch = eddy.Branch([self._given(self.streams["S"])], edge[2], "full")
            self.full = True
            return OracleBranch(query, "core", [OracleBranch(inner, "left")]), ([self._given(streams[0])], [], [branch])
        self.full = False
        below = self._branches(names, 2) or [
            self._branch(names, 2, self.draw(st.sampled_from(("left", "semi", "anti"))))
        ]
        given_streams = [self._given(one) for one in streams]
        return OracleBranch(query, "core", [one for one, _ in below]), (given_streams, texts, [two for _, two in below])

    def _given(self, stream: OracleStream) -> eddy.Stream:
        return eddy.Stream(stream.name, SCHEMA, window=WINDOWS[stream.window](stream.size), time=stream.time)

    def _query(self) -> eddy.Query:
        streams, texts, branches = self.query_args
        return eddy.Query(streams, texts, branches=branches, lateness=self.lateness)

    def oracles(self, changelog: bool) -> list[BranchOracle]:
        """Return the oracle; for a full outer join, also that of the rows of the second stream."""
        found = [BranchOracle(self.core, changelog)]
        if self.full:
            (branch,) = self.core.branches
            turned = OracleQuery(self.core.query.streams, branch.query.equalities, comparisons=branch.query.comparisons)
            own = OracleQuery(branch.query.streams, ())
            found.append(
                BranchOracle(OracleBranch(own, "core", [OracleBranch(turned, "anti")]), changelog, found[0].spans)
            )
        return found


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Draw a query with branches."""
    while True:
        try:
            return Drawn(draw)
        except eddy.QueryError as problem:
            # A stream would be kept forever, or intervals contradict each other.
            if "forever" not in str(problem) and "fulfil" not in str(problem):
                raise
            return draw(st.nothing())


ROWS = st.tuples(
    st.integers(0, 4), st.sampled_from((0, 1, 1, 2, None)), st.integers(0, 1), st.integers(0, 4), st.integers(0, 2)
)


Form = Literal["ids", "rows", "count"]


def comparable(table: pa.Table, sign: str | None) -> list[str]:
    """Return the rows of a result that have this sign, as sorted text."""
    rows = [row for row in table.to_pylist() if sign is None or row.pop("op") == sign]
    return sorted(str(list(row.values())) for row in rows)


def wanted(oracle: BranchOracle, rows: list[Numbers], query: eddy.Query, form: Form) -> list[str]:
    """Return rows of an oracle as `comparable` returns those of eddy."""
    found, shown = [], [stream.name for stream in query.shown]
    for row in rows:
        numbers = dict(zip(oracle.names, row, strict=True))
        if form == "ids":
            found.append([numbers[name] for name in shown])
        else:
            parts = [oracle.rows[name][n] if (n := numbers[name]) is not None else {} for name in shown]
            found.append([part.get(column) for part in parts for column in COLUMNS])
    return sorted(map(str, found))


def steps(draw: st.DrawFn, names: list[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield pushes: rows whose event times rise, now and then not."""
    clock = 10
    for _ in range(draw(st.integers(1, 6))):
        arrivals = []
        for k, a, b, step, v in draw(st.lists(ROWS, max_size=8)):
            clock += step - 1
            name = names[k % len(names)]
            arrivals.append((name, {"a": a, "b": b, "t": clock, "v": v, "p": f"{name} at {clock}"}))
        yield arrivals


@settings(max_examples=150, deadline=None)
@given(
    drawn(),
    st.sampled_from(CHANGING),
    st.sampled_from(("append", "changelog")),
    st.sampled_from(("ids", "rows")),
    st.data(),
)
def test_rows_are_those_of_the_oracle(one: Drawn, strategy: str, output: str, form: Form, data: st.DataObject) -> None:
    """Every push begins and ends the rows that the definition says, also with transitions and restarts between."""
    changelog = output == "changelog"
    oracles = one.oracles(changelog)
    names = oracles[0].names
    rt = eddy.Runtime(one.query, strategy=strategy, output=output, ids_only=form == "ids", bounded=True)
    timed = one.query.graph.timed
    for arrivals in steps(data.draw, names):
        lateness = one.lateness if timed else 0
        expected = [(oracle, oracle.push(arrivals, lateness=lateness)) for oracle in oracles]
        batches = {
            name: pa.RecordBatch.from_pylist([row for own, row in arrivals if own == name], schema=SCHEMA)
            for name in names
        }
        table = rt.push(batches, order=[names.index(name) for name, _ in arrivals])
        for sign, part in (("-D", 0), ("+I", 1)):
            if changelog or part:
                want = sorted(row for oracle, got in expected for row in wanted(oracle, got[part], one.query, form))
                assert comparable(table, sign if changelog else None) == want, rt.explain()
        if data.draw(st.integers(0, 3)) == 3:
            move(rt, data.draw)
        if data.draw(st.integers(0, 3)) == 3:
            plan, strategy = data.draw(st.sampled_from((None, rt.plan))), data.draw(st.sampled_from((None, *CHANGING)))
            saved = rt.snapshot()
            rt = eddy.Runtime.restore(saved, one.query, plan, strategy)
            assert rt.snapshot() == saved or strategy or plan
    want = sorted(row for oracle in oracles for row in wanted(oracle, oracle.finish(), one.query, form))
    assert comparable(rt.finish(), None) == want
    rt.check()


def move(rt: eddy.Runtime, draw: st.DrawFn) -> None:
    """Change the plan of one inner join to another one, if it has one."""
    join = draw(st.sampled_from(sorted(rt._engine.joins)))
    graph = rt._engine.joins[join].query.graph
    order = draw(st.permutations(range(graph.n_streams)))
    rt.transition(left_deep(connected_order(order, graph.class_bits)).text(graph.names))


def test_a_push_after_the_end_is_refused() -> None:
    query = eddy.Query(
        [eddy.Stream("R", SCHEMA)], branches=[eddy.Branch([eddy.Stream("S", SCHEMA)], ["R.a = S.a"], "left")]
    )
    rt = eddy.Runtime(query, bounded=True)
    rt.finish()
    with pytest.raises(eddy.InputError, match="the input has ended"):
        rt.push({"R": [{"a": 1, "b": 1, "t": 1, "v": 1}]})

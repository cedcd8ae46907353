"""Joins of tables and streams against the oracle: changes, plans, refusals, snapshots and live files in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import eddy
from eddy.fuzz.aggregate_oracle import TIME, OracleAggregate, grouped
from eddy.fuzz.oracle import OracleClock
from eddy.fuzz.table_oracle import Change, TableInput, TableOracle
from eddy.live.engine_file import EngineFile
from eddy.show.formats import FORMATS
from jisc.strategies import STRATEGIES
from tests.eddy.drawn_aggregates import row_texts
from tests.eddy.live_engines import KEY

NAMES = "RSTU"
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
UPSERTS, DELETES = ("+I", "+U", "c", "r", "u"), ("-D", "d")
WHERE = 8
LATENESS = 2
"""Rows with a greater `w` are rejected, where a query has filters."""


class AcceptingSwitch:
    """A filter of results that accepts all, and raises while it is on."""

    on = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Accept all rows."""
        if self.on and len(batch):
            raise ValueError("the switch is on")
        return pa.repeat(True, len(batch))


@dataclass(frozen=True)
class TablesQuery:
    """A query: which inputs are tables, their windows (None = all rows, -d = RANGE d), predicates, columns shown.

    switched   whether the results have a filter that fails at times
    grouped    the group columns of a query with aggregates; None = the results are the joined rows
    tombstones those of tables with versions; -1 = without end, None = tables without versions
    """

    tables: tuple[bool, ...]
    windows: tuple[int | None, ...]
    predicates: tuple[tuple[tuple[str, str], str, tuple[str, str]], ...]
    key: tuple[str, ...]
    filtered: bool
    switched: bool
    shown: str
    grouped: tuple[str, ...] | None
    tombstones: int | None = None
    expiry: Literal["retract", "final"] = "retract"

    @property
    def versions(self) -> dict[str, Any]:
        """The options of tables on versions."""
        if self.tombstones is None:
            return {}
        return {"version": "z", "tombstones": None if self.tombstones < 0 else self.tombstones}

    @property
    def functions(self) -> dict[str, OracleAggregate]:
        """The aggregates of a query that has some."""
        last = self.names[-1]
        return {
            "n": OracleAggregate("count"),
            "s": OracleAggregate("sum", "R.w"),
            "a": OracleAggregate("avg", f"{last}.p"),
            "lo": OracleAggregate("min", "R.b"),
            "hi": OracleAggregate("max", f"{last}.v"),
            "f": OracleAggregate("first", "R.k", f"{last}.w"),
        }

    @property
    def timed(self) -> bool:
        windows = zip(self.tables, self.windows, strict=True)
        return any(not table and own is not None and own < 0 for table, own in windows)

    @property
    def names(self) -> str:
        return NAMES[: len(self.tables)]

    def query(self, switch: AcceptingSwitch) -> eddy.Query:
        inputs: list[eddy.Stream] = []
        kept = pa.compute.field("w") <= WHERE if self.filtered else None
        for name, table, rows in zip(self.names, self.tables, self.windows, strict=True):
            if table:
                inputs.append(eddy.Table(name, SCHEMA, key=self.key, ops="column", filter=kept, **self.versions))
            else:
                window: Any = eddy.Unbounded() if rows is None else eddy.Rows(rows) if rows > 0 else eddy.Range(-rows)
                time = "t" if self.timed else None
                inputs.append(eddy.Stream(name, SCHEMA, window=window, time=time, filter=kept))
        on = [f"{a}.{x} {op} {b}.{y}" for (a, x), op, (b, y) in self.predicates]
        shown = [f"{name}.{column}" for name in self.names for column in self.shown]
        more: dict[str, Any] = {"lateness": LATENESS, "watermark": "fastest"} if self.timed else {}
        more["expiry"] = self.expiry
        if self.switched:
            more["where"] = eddy.Predicate(switch, ["R.a"])
        if self.grouped is not None:
            functions = {
                name: getattr(eddy.agg, one.function)(*(c for c in (one.column, one.by) if c not in (None, TIME)))
                for name, one in self.functions.items()
            }
            return eddy.Query(inputs, on, group_by=self.grouped, aggregates=functions, **more)
        return eddy.Query(inputs, on, select=shown, **more)

    def oracle(self) -> TableOracle:
        def keep(row: Mapping[str, Any]) -> bool:
            return bool(row["w"] <= WHERE)

        inputs = [
            TableInput(
                name,
                key=self.key if table else (),
                rows=None if table or rows is None or rows < 0 else rows,
                span=-rows if not table and rows is not None and rows < 0 else None,
                time="t" if self.timed and not table else "",
                keep=keep if self.filtered else None,
                **(self.versions if table else {}),
            )
            for name, table, rows in zip(self.names, self.tables, self.windows, strict=True)
        ]
        return TableOracle(inputs, self.predicates, expiry=self.expiry)

    def clock(self) -> OracleClock:
        names = [name for name, table in zip(self.names, self.tables, strict=True) if not table]
        return OracleClock(dict.fromkeys(names, LATENESS), "fastest")


@st.composite
def shapes(draw: st.DrawFn) -> TablesQuery:
    grouped = draw(st.sampled_from([None, None, (), ("R.a",), ("R.v", "R.p")]))
    m = draw(st.integers(2 if grouped is None else 1, 4))
    # Often there is a table.
    table = draw(st.integers(0, m - 1) | st.integers(0, m))
    tables = [k == table or (table < m and draw(st.booleans())) for k in range(m)]
    windows = draw(st.lists(st.none() | st.integers(1, 5) | st.integers(-9, -1), min_size=m, max_size=m))
    predicates = []
    for i in range(1, m):
        other = NAMES[draw(st.integers(0, i - 1))]
        sides = draw(st.sampled_from([("b", "=", "a"), ("a", "=", "a"), ("p", "=", "a"), ("b", "<=", "a")]))
        predicates.append(((other, sides[0]), sides[1], (NAMES[i], sides[2])))
    if m > 2 and draw(st.booleans()):
        predicates.append(((NAMES[0], "a"), draw(st.sampled_from(["=", "!="])), (NAMES[m - 1], "b")))
    key = draw(st.sampled_from([("k",), ("p",), ("k", "p")]))
    shown = draw(st.sampled_from(["abkpvw", "abkpvw", "a", "v"]))
    parts = tuple(tables), tuple(windows), tuple(predicates), key, draw(st.booleans()), draw(st.booleans()), shown
    tombstones, expiry = draw(st.sampled_from([None, None, -1, 0, 3])), draw(st.sampled_from(["retract", "final"]))
    return TablesQuery(*parts, grouped, tombstones, expiry)


NUMBERS = st.sampled_from([0, 0, 0, 1, 1, 2, None])
ROWS = st.fixed_dictionaries(
    {
        "a": NUMBERS,
        "b": NUMBERS,
        "k": st.sampled_from(["x", "y", "zz", ""]),
        "p": st.integers(0, 2),
        "v": st.none() | st.text("uv", max_size=2),
        "w": st.integers(0, 10),
        "t": st.just(0),
        "z": st.integers(0, 9),
    }
)
OPS = st.sampled_from([*UPSERTS, *DELETES, "-U"])
Row = dict[str, Any]


def plan_over(names: Sequence[str]) -> str:
    plan = names[0]
    for name in names[1:]:
        plan = f"({plan} {name})"
    return plan[1:-1]


class TableMachine(RuleBasedStateMachine):
    """A runtime and the oracle, taken through the same changes."""

    @initialize(shape=shapes(), strategy=st.sampled_from(sorted(STRATEGIES)), few=st.booleans(), ids=st.booleans())
    def begin(self, shape: TablesQuery, strategy: Any, few: bool, ids: bool) -> None:
        self.switch = AcceptingSwitch()
        self.shape, self.query, self.oracle = shape, shape.query(self.switch), shape.oracle()
        self.ids = ids and shape.grouped is None
        self.runtime = eddy.Runtime(
            self.query, strategy=strategy, output="changelog", ids_only=self.ids, renumber_at=50 if few else 1 << 30
        )
        self.clock, self.now = shape.clock(), 0
        self.sum = Counter[tuple[Any, ...]]()
        self.moved = self.begun = False
        self.stale = Counter[str]()

    @precondition(
        lambda self: (
            not (
                self.shape.grouped is not None or self.shape.timed or self.runtime.position or self.runtime.scheduled()
            )
        )
    )
    @rule(arrivals=st.lists(st.tuples(st.integers(0, 3), ROWS, OPS), min_size=6, max_size=30))
    def load(self, arrivals: list[tuple[int, Row, str]]) -> None:
        """Load changes and rows, stream by stream."""
        pushed, order = self.batches(arrivals)
        self.runtime.load(pushed)
        for k, (_, row, op) in sorted(enumerate(arrivals), key=lambda one: order[one[0]]):
            name = self.shape.names[order[k]]
            unread = self.shape.tables[order[k]] and (op == "-U" or self.oracle.is_stale(name, row, op in DELETES))
            if not unread:
                self.oracle.arrive(name, row, op in DELETES)
        self.sum.update(self.shown(("", one))[1:] for one in self.oracle.answer)

    def batches(self, arrivals: Sequence[tuple[int, Row, str]]) -> tuple[dict[str, list[Row]], list[int]]:
        """Return what is pushed for arrivals, and their order."""
        pushed: dict[str, list[Row]] = {}
        order = []
        for i, row, op in arrivals:
            i %= len(self.shape.names)
            order.append(i)
            if self.shape.timed:
                self.now += row["w"] % 3
                row["t"] = self.now - (row["w"] + len(order)) % 4
            pushed.setdefault(self.shape.names[i], []).append({**row, "op": op} if self.shape.tables[i] else row)
        return pushed, order

    def answer(self) -> Counter[tuple[Any, ...]]:
        """Return the rows that are the answer."""
        if self.shape.grouped is None:
            return Counter(self.shown(("", one))[1:] for one in self.oracle.answer)
        if not self.begun:
            return Counter()
        rows = []
        for result in self.oracle.answer:
            own = [(name, self.oracle.row(name, n)) for name, n in zip(self.shape.names, result, strict=True)]
            rows.append({f"{name}.{column}": value for name, row in own for column, value in row.items()})
        found = grouped(rows, self.shape.grouped, [*self.shape.functions.values()])
        return row_texts((*key, *values) for key, values in found.items())

    def shown(self, change: Change) -> tuple[Any, ...]:
        op, result = change
        if self.ids:
            return op, *result
        rows = [self.oracle.row(name, n) for name, n in zip(self.shape.names, result, strict=True)]
        return op, *(row[column] for row in rows for column in self.shape.shown)

    @rule(
        arrivals=st.lists(st.tuples(st.integers(0, 3), ROWS, OPS), min_size=6, max_size=30),
        atomic=st.sampled_from([False, False, True]),
    )
    def push(self, arrivals: list[tuple[int, Row, str]], atomic: bool) -> None:
        atomic &= any(self.shape.tables)
        table = self.runtime.push(*self.batches(arrivals), atomic=atomic)
        if atomic:
            self.follow_at_once(arrivals, table)
        else:
            self.follow(arrivals, table)

    def follow_at_once(self, arrivals: list[tuple[int, Row, str]], table: pa.Table) -> None:
        """Take the last change of each key in the oracle, then the rows, and compare the answers."""
        before, results = self.answer(), set(self.oracle.answer)
        last, rows = dict[Any, tuple[int, Row, str]](), list[tuple[int, Row, str]]()
        for i, row, op in arrivals:
            i %= len(self.shape.names)
            if not self.shape.tables[i]:
                rows.append((i, row, op))
            elif op != "-U" and not self.is_stale(i, row, op):
                key = i, *(row[column] for column in self.shape.key)
                last.pop(key, None)
                last[key] = i, row, op
        for i, row, op in [*last.values(), *rows]:
            self.arrive(i, row, op)
        self.begun = True
        found = [tuple(row.values()) for row in table.to_pylist()]
        if self.shape.grouped is None:
            wanted = self.without_equal([self.shown(one) for one in self.oracle.since(results)])
            assert [one[0] for one in found] == [one[0] for one in wanted]
            assert Counter(pairs_of(found)) == Counter(pairs_of(wanted))
        self.count(found, before)

    def is_stale(self, i: int, row: Row, op: str) -> bool:
        """Return whether a change is stale in the oracle, and count it then."""
        found = self.oracle.is_stale(self.shape.names[i], row, op in DELETES)
        self.stale[self.shape.names[i]] += found
        return found

    def arrive(self, i: int, row: Row, op: str) -> list[Change]:
        """Take a row or a change in the oracle, and return the changes of the answer. A late row does not arrive."""
        name, kept = self.shape.names[i], not self.shape.filtered or row["w"] <= WHERE
        if self.shape.timed and not self.shape.tables[i] and kept and self.clock.tick(name, row["t"]):
            return []
        return self.oracle.arrive(name, row, op in DELETES, self.clock.now)

    def without_equal(self, changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return changes without the pairs whose rows are equal."""
        equal = {k for k in range(len(changes) - 1) if changes[k][0] == "-U" and changes[k][1:] == changes[k + 1][1:]}
        return [one for k, one in enumerate(changes) if k not in equal and k - 1 not in equal]

    def follow(self, arrivals: list[tuple[int, Row, str]], table: pa.Table) -> None:
        """Take arrivals in the oracle, and compare the changes of the answer with those of the runtime."""
        before = self.answer()
        found = [tuple(row.values()) for row in table.to_pylist()]
        at = 0
        for i, row, op in arrivals:
            i %= len(self.shape.names)
            if self.shape.tables[i] and (op == "-U" or self.is_stale(i, row, op)):
                continue
            changes = self.without_equal([self.shown(one) for one in self.arrive(i, row, op)])
            if self.shape.grouped is not None:
                continue
            part, at = found[at : at + len(changes)], at + len(changes)
            # The order within one operation of one arrival is not defined, but pairs are adjacent.
            assert [row[0] for row in part] == [row[0] for row in changes]
            assert Counter(pairs_of(part)) == Counter(pairs_of(changes))
        assert self.shape.grouped is not None or at == len(found)
        self.begun = True
        self.count(found, before)

    def count(self, found: list[tuple[Any, ...]], before: Counter[tuple[Any, ...]]) -> None:
        """Count the changes of the answer, which was `before`; compare those of groups, which are a difference."""
        if self.shape.grouped is not None:
            found = [(op, *one) for op, *row in found for one in row_texts([row])]
            after = self.answer()
            assert Counter(found) == Counter(
                (op, *row) for op, rows in (("-D", before - after), ("+I", after - before)) for row in rows.elements()
            )
        for op, *row in found:
            self.sum[tuple(row)] += 1 if op in ("+I", "+U") else -1
        event(f"results: {bool(found)}, taken back: {any(op in ('-D', '-U') for op, *_ in found)}")

    @rule(order=st.permutations(NAMES), ahead=st.none() | st.integers(0, 20))
    def change_plan(self, order: list[str], ahead: int | None) -> None:
        names = [name for name in order if name in self.shape.names]
        if len(names) == 1:
            return
        at = None if ahead is None else self.runtime.position + ahead
        # Some strategies keep their plan, and some plans have a cross product.
        with suppress(eddy.PlanError):
            self.runtime.transition(plan_over(names), at)

    @precondition(lambda self: any(self.shape.tables))
    @rule(arrivals=st.lists(st.tuples(st.integers(0, 3), ROWS, OPS), max_size=10), fault=st.sampled_from(["key", "op"]))
    def refuse(self, arrivals: list[tuple[int, Row, str]], fault: str) -> None:
        i = self.shape.tables.index(True)
        row: Row = {"a": 1, "b": 1, "k": "x", "p": 1, "v": "", "w": 1, "t": 0, "z": 9}
        bad = (i, {**row, self.shape.key[-1]: None}, "c") if fault == "key" else (i, row, "delete")
        with pytest.raises(eddy.InputError, match=f"table {self.shape.names[i]}"):
            self.runtime.push(*self.batches([*arrivals, bad]))

    @rule(arrivals=st.lists(st.tuples(st.integers(0, 3), ROWS, OPS), min_size=5, max_size=30), tight=st.booleans())
    def fail(self, arrivals: list[tuple[int, Row, str]], tight: bool) -> None:
        """Push while the filter of results fails, or memory is short: either there is no result, or nothing happens."""
        # Stale changes make room for what a bound lets in.
        self.runtime.late()
        before, batches, self.switch.on = self.runtime.snapshot(), self.batches(arrivals), not tight
        if tight:
            self.runtime.max_bytes = self.runtime.nbytes
        try:
            table = self.runtime.push(*batches)
        except (eddy.InputError, eddy.CapacityError) as error:
            self.runtime.max_bytes = None
            assert self.runtime.snapshot() == before
            event(f"a push failed: {type(error).__name__}")
        else:
            self.follow(arrivals, table)
        self.switch.on, self.runtime.max_bytes = False, None

    @rule()
    def look(self) -> None:
        """Call what describes a runtime, which changes nothing."""
        before = self.runtime.snapshot()
        for form in FORMATS:
            assert self.runtime.explain(form)
        assert len(self.runtime.metrics()["classes"]) == self.query.graph.n_classes
        assert self.runtime.stats() is not None
        assert repr(self.runtime)
        assert self.runtime.history().num_rows >= 0
        # Without live rows there are no figures.
        with suppress(eddy.InputError):
            assert eddy.plans(self.query, self.runtime.stats())
        self.runtime.trim()
        assert self.runtime.snapshot() == before

    @rule()
    def keep(self) -> None:
        """Take a snapshot, before which tables are compacted, and go on."""
        self.runtime.snapshot()

    @rule(strategy=st.none() | st.sampled_from(sorted(STRATEGIES)))
    def restart(self, strategy: Any) -> None:
        with suppress(eddy.PlanError):
            self.runtime = eddy.Runtime.restore(self.runtime.snapshot(), self.query, strategy=strategy)
            self.moved = False

    @precondition(lambda self: not self.moved)
    @rule()
    def move(self) -> None:
        with TemporaryDirectory() as folder, EngineFile(Path(folder) / "live", KEY) as live:
            live.save(self.runtime, b"here")
            loaded = live.load(b"here", self.query)
        assert isinstance(loaded, eddy.Runtime)
        # It could be saved again in the context in which it was loaded only.
        self.runtime, self.moved = loaded, True

    @invariant()
    @precondition(lambda self: hasattr(self, "runtime"))
    def holds(self) -> None:
        self.runtime.check()
        late = self.runtime.late_counts
        assert all(late[name] == self.stale[name] for name in self.shape.names if self.stale[name])
        assert +self.sum == self.answer()


def pairs_of(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with both members of a pair as one."""
    found, k = [], 0
    while k < len(rows):
        paired = rows[k][0] == "-U"
        found.append((rows[k], rows[k + 1]) if paired else (rows[k],))
        k += 1 + paired
    return found


def test_any_changes_in_any_order() -> None:
    run_state_machine_as_test(TableMachine, settings=settings(stateful_step_count=12))


ROW = pa.schema([("id", pa.int64()), ("k", pa.int64())])
TIMED = pa.schema([("k", pa.int64()), ("at", pa.int64())])


def table(name: str = "T", **more: Any) -> eddy.Table:
    return eddy.Table(name, ROW, **{"key": "id", **more})


def joined(**more: Any) -> eddy.Query:
    return eddy.Query([eddy.Stream("S", ROW, window=eddy.Rows(5)), table()], ["S.k = T.k"], **more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ()}, "name the columns that identify a row"),
        ({"key": "x"}, "no column"),
        ({"key": ["id", "id"]}, "occurs twice"),
        ({"key": 7}, "key is a column or a list of columns"),
        ({"key": {"id", "k"}}, "key is a column or a list of columns"),
        ({"key": iter(["id"])}, "key is a column or a list of columns"),
        ({"window": eddy.Rows(3)}, "leave the window out"),
        ({"time": "id"}, "leave time out"),
        ({"late": "count"}, "leave late out"),
        ({"late": "never", "version": "k"}, "late must be"),
        ({"version": "id"}, "is the version of a row, and no part of its key"),
        ({"version": "x"}, "no column 'x'"),
        ({"version": 7}, "version is the name of a column"),
        ({"schema": ROW.append(pa.field("v", pa.string())), "version": "v"}, "a version is an integer"),
        ({"tombstones": 3}, "leave tombstones out"),
        ({"version": "k", "tombstones": -1}, "is negative"),
        ({"version": "k", "tombstones": timedelta(1)}, "event times are integers"),
        ({"ops": "avro"}, "ops is None or one of 'column'"),
        ({"schema": ROW.append(pa.field("op", pa.string())), "ops": "column"}, "rename it"),
        ({"schema": pa.schema([("id", pa.list_(pa.int64())), ("k", pa.int64())])}, "cannot be a key"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    schema = options.pop("schema", ROW)
    with pytest.raises(eddy.QueryError, match=f"table T.*{message}|T .*{message}"):
        eddy.Table("T", schema, **{"key": "id", **options})


def test_queries_and_hosts_without_tables_say_so() -> None:
    with pytest.raises(eddy.QueryError, match="table T: windows of event time take no table"):
        joined(aggregates={"n": eddy.agg.count()}, group_window=eddy.Tumbling(5))
    with pytest.raises(eddy.InputError, match="output='changelog'"):
        eddy.Runtime(joined())
    with pytest.raises(eddy.InputError, match="ordered is for streams"):
        eddy.Runtime(joined(), output="changelog", ordered=True)
    with pytest.raises(eddy.InputError, match="atomic is for changes of tables"):
        eddy.Runtime(eddy.Query([eddy.Stream("S", ROW), eddy.Stream("T", ROW)], ["S.k = T.k"])).push({}, atomic=True)
    with pytest.raises(eddy.QueryError, match="table T: the text of a query"):
        eddy.to_sql(joined())
    with pytest.raises(eddy.QueryError, match="table 'T': the engine takes streams"):
        eddy.Engine([table()])
    engine = eddy.Engine([eddy.Stream("S", ROW), eddy.Stream("T", ROW)])
    with pytest.raises(eddy.QueryError, match="table T: the engine takes streams"):
        engine.start("q", joined(), output="changelog")


def test_a_table_is_joined_by_sql() -> None:
    query = eddy.sql(
        "SELECT s.id, t.id AS other FROM S AS s JOIN T AS t ON s.k = t.k", [eddy.Stream("S", ROW), table()]
    )
    assert isinstance(query, eddy.Query)
    runtime = eddy.Runtime(query, output="changelog")
    found = runtime.push({"S": [{"id": 1, "k": 5}], "T": [{"id": 9, "k": 5}]}, [0, 1])
    assert found.to_pylist() == [{"op": "+I", "id": 1, "other": 9}]
    assert "SteM T [TABLE BY id]" in runtime.explain()
    assert repr(query) == "Query(S [UNBOUNDED], T [TABLE BY id]; S.k = T.k)"
    text = "EXPLAIN SELECT s.id FROM S AS s JOIN T AS t ON s.k = t.k"
    assert "stream T [TABLE BY id]" in str(eddy.sql(text, [eddy.Stream("S", ROW), table()]))


def test_no_good_marks_follow_the_changes_of_tables() -> None:
    """A chain in which few rows have partners at its end: lists are marked, and versions in them are buried."""
    columns, draw = {"A": "a", "B": "ab", "C": "bc", "D": "cd", "E": "d"}, random.Random(1)
    schemas = {name: pa.schema([(c, pa.int64()) for c in f"i{own}"]) for name, own in columns.items()}
    query = eddy.Query(
        [eddy.Table(name, schema, key="i") for name, schema in schemas.items()],
        ["A.a = B.a", "B.b = C.b", "C.c = D.c", "D.d = E.d"],
    )
    options: dict[str, Any] = {"output": "changelog", "ids_only": True}
    marked, other = (eddy.Runtime(query, strategy=strategy, **options) for strategy in ("mjoin", "symmetric-hash"))
    most = found = 0
    for _ in range(30):
        order = [draw.randrange(5) for _ in range(200)]
        pushed: dict[str, list[Row]] = {name: [] for name in columns}
        for i in order:
            row = {column: draw.randrange(60 if column == "i" else 30) for column in schemas["ABCDE"[i]].names}
            if "ABCDE"[i] == "D" and draw.random() > 0.02:
                row["d"] += 1000
            pushed["ABCDE"[i]].append(row)
        tables = [runtime.push(pushed, order).to_pylist() for runtime in (marked, other)]
        marked.check()
        assert Counter(map(str, tables[0])) == Counter(map(str, tables[1]))
        found += len(tables[0])
        most = max(most, sum(state["marks"] for state in marked.metrics()["states"].values()))
    assert most > 20
    assert found > 300
    assert not sum(state["marks"] for state in other.metrics()["states"].values())


def test_groups_follow_the_changes_of_tables_in_sql() -> None:
    text = "SELECT t.k, COUNT(*) AS n, MAX(t.id) AS newest FROM T AS t GROUP BY t.k HAVING COUNT(*) > 1"
    query = eddy.sql(text, [table(ops="column")])
    assert isinstance(query, eddy.Query)
    runtime = eddy.Runtime(query, output="changelog")

    def changes(*rows: tuple[int, int, str]) -> list[tuple[Any, ...]]:
        found = runtime.push({"T": [{"id": k, "k": v, "op": op} for k, v, op in rows]}).to_pylist()
        return [tuple(row.values()) for row in found]

    assert changes((1, 5, "c"), (2, 5, "c")) == [("+I", 5, 2, 2)]
    assert changes((3, 5, "c")) == [("-D", 5, 2, 2), ("+I", 5, 3, 3)]
    assert changes((3, 6, "u")) == [("-D", 5, 3, 3), ("+I", 5, 2, 2)]
    assert changes((2, 5, "u")) == []
    assert changes((2, 0, "d")) == [("-D", 5, 2, 2)]
    two = eddy.Runtime(joined(aggregates={"n": eddy.agg.count()}), output="changelog")
    assert "groups by enumeration: the rows of a table change" in two.explain()


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in rows] for name in rows[0]}


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist, pl.DataFrame, pd.DataFrame, _columns])
def test_a_delete_needs_its_key_in_each_form(form: Any) -> None:
    runtime = eddy.Runtime(eddy.Query([table(ops="column")], aggregates={"n": eddy.agg.count()}), output="changelog")
    runtime.push({"T": [{"id": key, "k": 1, "op": "c"} for key in (1, 2, 3)]})
    assert runtime.push({"T": form([{"id": 1, "op": "d"}, {"id": 3, "op": "-D"}])}).to_pylist()[-1] == {
        "op": "+I",
        "n": 1,
    }
    with pytest.raises(eddy.InputError, match="column 'k' is missing in "):
        runtime.push({"T": form([{"id": 2, "op": "d"}, {"id": 3, "op": "u"}])})
    with pytest.raises(eddy.InputError, match=r"column 'id' is missing in "):
        runtime.push({"T": form([{"op": "d"}])})


def test_of_a_delete_only_the_key_has_a_meaning() -> None:
    """Also where its other values are no keys, or cannot be compared, and where the filter makes it a delete."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("x", pa.int64())])
    kept = [pa.compute.match_substring_regex(pa.compute.field("text"), "^[0-9]+$"), pa.compute.field("x") < 100]
    changing = eddy.Table("T", schema, key="id", ops="column", filter=kept)
    streams = [eddy.Stream("S", pa.schema([("k", pa.int64()), ("y", pa.int64())]))]
    query = eddy.Query([*streams, changing], ["CAST(T.text AS BIGINT) = S.k", "T.x < S.y"], select=["T.id"])
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"k": 5, "y": 50}]})

    def ops(*rows: dict[str, Any]) -> list[str]:
        return [row["op"] for row in runtime.push({"T": rows}).to_pylist()]

    row = {"id": 1, "text": "5", "x": 1, "op": "c"}
    assert ops(row, {**row, "text": "abc"}, row) == ["+I", "-D", "+I"]
    assert ops({**row, "x": 1 << 62}, row) == ["-D", "+I"]
    assert ops({**row, "text": "abc", "x": 1 << 62, "op": "d"}, row) == ["-D", "+I"]
    assert ops({"id": 1, "op": "d"}) == ["-D"]
    runtime.check()


def test_ended_versions_give_their_memory_back_before_a_push_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    query = eddy.Query(
        [eddy.Stream("S", ROW), eddy.Table("T", schema, key="id", ops="column")], ["S.id = T.id"], select=["T.p"]
    )
    free, bound = (eddy.Runtime(query, output="changelog", max_bytes=most) for most in (None, 200_000))
    for k in range(4_000):
        row = {"id": k % 400, "p": "y" * 100, "op": "c"}
        for runtime in (free, bound):
            runtime.push({"T": [row]})
    for k in range(400):
        bound.push({"T": [{"id": k, "op": "d"}]})
    before = bound.nbytes
    bound.trim()
    assert bound.nbytes < before
    bound.check()


def test_what_two_tables_change_at_once_comes_as_one() -> None:
    tables = [table(name, ops="column") for name in "AB"]
    query = eddy.Query([eddy.Stream("S", ROW), *tables], ["S.k = A.id", "A.k = B.id"], select=["A.k", "B.k"])
    runtime = eddy.Runtime(query, output="changelog")

    def changes(*rows: tuple[str, int, int, str], atomic: bool = True) -> list[tuple[Any, ...]]:
        pushed: dict[str, list[Row]] = {}
        for name, key, k, op in rows:
            pushed.setdefault(name, []).append({"id": key, "k": k, "op": op})
        found = runtime.push(pushed, [" AB".index(name) for name, *_ in rows], atomic=atomic).to_pylist()
        return [tuple(row.values()) for row in found]

    runtime.push({"S": [{"id": 1, "k": 1}]})
    assert changes(("A", 1, 7, "c"), ("B", 8, 3, "c"), ("A", 1, 8, "c")) == [("+I", 8, 3)]
    # Both versions are replaced; so is the result, once. The pair has other keys in between.
    assert changes(("A", 1, 9, "c"), ("B", 8, 4, "c"), ("A", 1, 8, "c"), ("B", 8, 5, "c")) == [
        ("-U", 8, 3),
        ("+U", 8, 5),
    ]
    assert changes(("B", 8, 6, "d"), ("B", 8, 5, "c")) == []
    assert changes(("A", 1, 9, "c"), ("B", 9, 1, "c")) == [("-D", 8, 5), ("+I", 9, 1)]
    assert changes(("B", 9, 2, "c"), ("B", 9, 2, "d")) == [("-D", 9, 1)]
    many = [("B", 9, k, "c") for k in range(20)]
    assert changes(*many) == [("+I", 9, 19)]
    assert len(changes(*many, atomic=False)) == 40


def test_changes_of_what_the_join_reads() -> None:
    """Of a key, of a compared value, and of neither."""
    moved = pa.schema([(name, pa.int64()) for name in ("id", "k", "low", "v")])
    query = eddy.Query(
        [eddy.Stream("S", ROW), eddy.Table("T", moved, key="id")],
        ["S.k = T.k", "S.id >= T.low"],
        select=["S.id", "T.k", "T.low", "T.v"],
    )
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"id": 5, "k": 1}, {"id": 5, "k": 2}]})
    found = []
    for k, low, v in [(1, 3, 0), (1, 3, 1), (1, 9, 2), (1, 4, 3), (2, 4, 4), (3, 4, 5)]:
        rows = runtime.push({"T": [{"id": 7, "k": k, "low": low, "v": v}]}).to_pylist()
        found.append([(one["op"], one["T.v"]) for one in rows])
    assert found == [
        [("+I", 0)], [("-U", 0), ("+U", 1)], [("-D", 1)], [("+I", 3)], [("-D", 3), ("+I", 4)], [("-D", 4)],
    ]  # fmt: skip


def test_what_comes_and_goes_in_one_step_leaves_nothing() -> None:
    query = eddy.Query([eddy.Stream("S", ROW, window=eddy.Rows(1)), table(ops="column")], ["S.k = T.id"])
    runtime = eddy.Runtime(query, output="changelog")
    runtime.load({"T": [{"id": key, "k": 7, "op": op} for key, op in [(1, "c"), (2, "c"), (1, "d")]]})
    rows = [{"id": n, "k": n % 2 + 1} for n in range(3)]
    assert runtime.push({"S": rows}, atomic=True).num_rows == 0
    assert [(one["op"], one["S.id"]) for one in runtime.push({"S": rows[:2]}, atomic=True).to_pylist()] == [("+I", 1)]
    assert runtime.push({"S": [rows[1], rows[0]]}, atomic=True)["op"].to_pylist() == ["-D"]


def test_what_final_results_refuse() -> None:
    streams = [eddy.Stream(name, ROW, window=eddy.Rows(2)) for name in "RS"]
    versions = eddy.VersionedTable("V", TIMED, key="k", time="at")
    for more, message in [
        ({"expiry": "never"}, "expiry='never': .* 'retract', and stays with 'final'; pass one of these two"),
        ({"expiry": None}, "expiry=None: "),
        ({"branches": [eddy.Branch([eddy.Stream("U", ROW)], ["R.k = U.k"], "left")]}, "and not stream U: when a row"),
        ({"branches": [eddy.Branch([table()], ["R.k = T.k"], "full")]}, "and not a full join with table T"),
        ({"as_of": [eddy.AsOf(versions, ["R.k = V.k"], at="R.id")]}, "expiry='final' takes no as-of joins"),
    ]:
        with pytest.raises(eddy.QueryError, match=message):
            eddy.Query(streams, ["R.k = S.k"], **{"expiry": "final", **more})
    saved = eddy.Runtime(joined(expiry="final"), output="changelog").snapshot()
    with pytest.raises(eddy.SnapshotError, match="expiry: final in the snapshot, retract in the query"):
        eddy.Runtime.restore(saved, joined())


def test_an_engine_keeps_final_results() -> None:
    streams = [eddy.Stream(name, ROW, window=eddy.Rows(2)) for name in "RS"]
    engine = eddy.Engine([eddy.Stream(name, ROW) for name in "RS"])
    query = eddy.Query(streams, ["R.k = S.k"], expiry="final")
    pairs = engine.start("pairs", query, output="changelog")
    for n in range(4):
        pairs.change(query, how="immediate")
        found = engine.push({"R": [{"id": n, "k": 1}], "S": [{"id": n, "k": 1}]}, order=[0, 1])
        assert set(found["pairs"]["op"].to_pylist()) == {"+I"}


def test_a_ledger_forgets_the_matches_of_final_rows() -> None:
    streams = [eddy.Stream(name, ROW, window=eddy.Rows(2)) for name in "RS"]
    branch = eddy.Branch([table()], ["R.k = T.id"], "left")
    for core in (streams[:1], streams):
        on = ["R.k = S.k"][: len(core) - 1]
        runtime = eddy.Runtime(eddy.Query(core, on, branches=[branch], expiry="final"), output="changelog")
        for n in range(200):
            rows = [{"id": n, "k": k % 3} for k in range(8)]
            found = runtime.push({one.name: rows for one in core}, order=[k % len(core) for k in range(8 * len(core))])
            assert set(found["op"].to_pylist()) <= {"+I"}
            assert runtime.metrics()["open"] < 600
        ended = runtime.push({"T": [{"id": k, "k": 0} for k in range(3)]})["op"].to_pylist()
        assert 1 <= ended.count("-D") == ended.count("+I") == len(ended) / 2 <= 4
        runtime.check()


def test_pairs_of_atomic_pushes_do_not_depend_on_sequence_numbers() -> None:
    """Numbers of tuples start anew in some pushes: then the first one of the push is not what it was before."""
    query = eddy.Query([table("A"), table("B")], ["A.k = B.id"])
    draw = random.Random(1)
    anew, other = (eddy.Runtime(query, output="changelog", renumber_at=most) for most in (8, 1 << 30))
    for n in range(100):
        pushed = {
            "A": [{"id": draw.randrange(3), "k": draw.randrange(3)} for _ in range(3)],
            "B": [{"id": draw.randrange(3), "k": n} for _ in range(2)],
        }
        found = [runtime.push(pushed, atomic=True).to_pylist() for runtime in (anew, other)]
        assert Counter(map(str, found[0])) == Counter(map(str, found[1]))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_small_table_that_changes_for_long_keeps_its_memory(strategy: Any) -> None:
    runtime = eddy.Runtime(joined(), strategy=strategy, output="changelog", count_only=True)
    rows = [{"id": k, "k": k % 3} for k in range(40)]
    sizes = []
    for k in range(60):
        runtime.push({"T": rows, "S": [{"id": k, "k": k % 3}]}, [1] * 40 + [0])
        sizes.append(runtime.nbytes)
    runtime.check()
    assert max(sizes[20:]) <= max(sizes[:20])


@pytest.mark.parametrize("strategy", ["eddy", "jisc"])
def test_ended_versions_count_in_no_statistics(strategy: Any) -> None:
    """Each row of T is replaced again and again; two rows of S find each one, and it finds two rows of S."""
    query = eddy.Query([eddy.Stream("S", ROW, window=eddy.Rows(200)), table()], ["S.k = T.k"])
    runtime = eddy.Runtime(query, strategy=strategy, output="changelog", ids_only=True, policy="cost")
    for _ in range(30):
        rows = [{"id": k, "k": k} for k in range(100)]
        runtime.push({"S": [*rows, *rows], "T": rows})
    for one in runtime.stats().to_pylist():
        if one["kind"] == "stream":
            assert one["rows"] == {"S": 200, "T": 100}[one["from"]]
        elif one["kind"] == "pair":
            assert (one["hit"], one["fanout"]) == (1, 1 if one["from"] == "S" else 2)
            assert one["recent"] == pytest.approx(one["fanout"], rel=0.1)
    states = runtime.metrics()["states"]
    assert (states["T"]["rows"], states["T"]["arrivals"], states["T"]["expired"]) == (100, 3000, 2900)


def test_columns_of_all_types_follow_a_compaction() -> None:
    nested = pa.list_(pa.string())
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("l", nested), ("b", pa.bool_()), ("d", pa.float64())])
    query = eddy.Query(
        [eddy.Stream("S", ROW, window=eddy.Rows(1)), eddy.Table("T", schema, key="id")],
        ["S.id = T.id"],
        select=["T.s", "T.l", "T.b", "T.d"],
    )
    runtime = eddy.Runtime(query, output="changelog")

    def row(k: int, n: int) -> dict[str, Any]:
        return {"id": k, "s": f"{k} {n}", "l": [str(n)] * k, "b": None if n % 3 == 0 else n % 2 == 0, "d": n / 2}

    for n in range(200):
        runtime.push({"T": [row(k, n) for k in range(n % 7)]})
    newest = {k: max(n for n in range(200) if n % 7 > k) for k in range(6)}
    runtime.check()
    for k, n in newest.items():
        (found,) = runtime.push({"S": [{"id": k, "k": 0}]}).slice(0 if k == 0 else 1).to_pylist()
        assert found == {"op": "+I", **{f"T.{c}": v for c, v in row(k, n).items() if c != "id"}}


def test_equal_nested_values_make_no_pair() -> None:
    schema = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int64())), ("x", pa.int64())])
    query = eddy.Query(
        [eddy.Stream("S", ROW, window=eddy.Rows(1)), eddy.Table("T", schema, key="id")], ["S.id = T.id"], select=["T.l"]
    )
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"id": 1, "k": 1}]})
    assert runtime.push({"T": [{"id": 1, "l": [1, None], "x": 1}]}).num_rows == 1
    assert runtime.push({"T": [{"id": 1, "l": [1, None], "x": 2}]}).num_rows == 0
    assert runtime.push({"T": [{"id": 1, "l": [2], "x": 2}]}).column("op").to_pylist() == ["-U", "+U"]


def test_where_may_accept_one_row_of_a_pair() -> None:
    runtime = eddy.Runtime(joined(where=pa.compute.field("T.id") * pa.compute.field("S.id") < 10), output="changelog")
    runtime.push({"S": [{"id": 1, "k": 5}], "T": [{"id": 3, "k": 5}]})
    query = eddy.Query(
        [eddy.Stream("S", ROW, window=eddy.Rows(5)), eddy.Table("T", TIMED, key="k")],
        ["S.k = T.k"],
        where=pa.compute.field("T.at") < 10,
        select=["T.at"],
    )
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"id": 1, "k": 5}]})
    changes = [runtime.push({"T": [{"k": 5, "at": at}]}).to_pylist() for at in (3, 12, 14, 4, 4, 5)]
    assert [[tuple(row.values()) for row in one] for one in changes] == [
        [("+I", 3)],
        [("-D", 3)],
        [],
        [("+I", 4)],
        [],
        [("-U", 4), ("+U", 5)],
    ]


def test_intervals_bound_streams_beside_a_table() -> None:
    streams = [eddy.Stream(name, TIMED, time="at") for name in "RS"]
    on = ["R.k = S.k", "S.at between R.at and R.at + 10", "R.k = T.k"]
    query = eddy.Query([*streams, table()], on, select=["R.at", "S.at", "T.id"], watermark="fastest")
    assert [query.graph.windows[i].size for i in (0, 1)] == [10, 0]
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"R": [{"k": 1, "at": 5}], "S": [{"k": 1, "at": 7}], "T": [{"id": 3, "k": 1}]})
    assert runtime.watermark == 7
    # The window of S is that of its own time: the result left with the watermark only.
    assert runtime.push({"T": [{"id": 4, "k": 1}]}).to_pylist() == [{"op": "+I", "R.at": 5, "S.at": 7, "T.id": 4}]
    assert runtime.push({}, watermark=8).column("op").to_pylist() == ["-D", "-D"]
    assert runtime.push({"T": [{"id": 4, "k": 2}]}).num_rows == 0


def test_a_pair_of_rows_with_nan_is_left_out() -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.int64())])
    query = eddy.Query([eddy.Table("a", schema, key="id"), eddy.Table("b", schema, key="id")], ["a.id = b.id"])
    chosen = eddy.Query(query.streams, query.on, select=["a.x"])
    runtime = eddy.Runtime(chosen, output="changelog")
    row = {"id": 1, "x": float("nan"), "y": 1}
    assert runtime.push({"a": [row], "b": [row]}).num_rows == 1
    assert runtime.push({"a": [{**row, "y": 2}]}).num_rows == 0
    assert runtime.push({"a": [{**row, "x": 0.5}]}).num_rows == 2

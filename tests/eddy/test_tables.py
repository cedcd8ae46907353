"""Joins of tables and streams against the oracle: changes, plans, refusals, snapshots and live files in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
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
from eddy.fuzz.case import NAMES
from eddy.fuzz.tables.case import BadChangeStep, TableArrival, TablesQuery
from eddy.fuzz.tables.changes import compare_changes
from eddy.fuzz.tables.draw import ROW_BYTES, ArrivalWriter, table_joins
from eddy.fuzz.tables.play import AcceptingSwitch, bad_arrivals, batches, rows_of
from eddy.fuzz.tables.reference import TableReference
from eddy.live.engine_file import EngineFile
from eddy.show.formats import FORMATS
from jisc.strategies import STRATEGIES
from tests.eddy.live_engines import KEY

Row = dict[str, Any]
PICKS = st.binary(min_size=6 * ROW_BYTES, max_size=30 * ROW_BYTES)
"""The bytes that decide the arrivals of a step."""


def plan_over(names: Sequence[str]) -> str:
    plan = names[0]
    for name in names[1:]:
        plan = f"({plan} {name})"
    return plan[1:-1]


class TableMachine(RuleBasedStateMachine):
    """A runtime and the oracle, taken through the same changes."""

    @initialize(asked=table_joins(), strategy=st.sampled_from(sorted(STRATEGIES)), few=st.booleans(), ids=st.booleans())
    def begin(self, asked: TablesQuery, strategy: Any, few: bool, ids: bool) -> None:
        self.switch = AcceptingSwitch()
        self.asked, self.query, self.rows = asked, asked.query(self.switch), ArrivalWriter(asked)
        ids &= asked.grouped is None
        self.runtime = eddy.Runtime(
            self.query, strategy=strategy, output="changelog", ids_only=ids, renumber_at=50 if few else 1 << 30
        )
        self.reference = TableReference(asked, results="ids" if ids else "rows")
        self.sum = Counter[tuple[Any, ...]]()
        self.late = Counter[str]()
        self.moved = False

    @precondition(
        lambda self: (
            not (
                self.asked.grouped is not None or self.asked.timed or self.runtime.position or self.runtime.scheduled()
            )
        )
    )
    @rule(picks=PICKS)
    def load(self, picks: bytes) -> None:
        """Load changes and rows, stream by stream."""
        arrivals = self.rows.arrivals(picks)
        self.runtime.load(batches(self.asked, arrivals))
        self.reference.load(arrivals)
        self.sum.update(self.reference.answer())

    @rule(picks=PICKS, atomic=st.sampled_from([False, False, True]))
    def push(self, picks: bytes, atomic: bool) -> None:
        arrivals, atomic = self.rows.arrivals(picks), atomic and any(self.asked.tables)
        order = [arrival.input for arrival in arrivals]
        self.follow(arrivals, self.runtime.push(batches(self.asked, arrivals), order, atomic=atomic), atomic)

    def follow(self, arrivals: Sequence[TableArrival], table: pa.Table, atomic: bool = False) -> None:
        """Take arrivals in the oracle, and compare the changes of the answer with those of the runtime."""
        wanted, changes = self.reference.push(arrivals, atomic), rows_of(table)
        compare_changes(changes, wanted.groups, None)
        self.late.update({name: len(rows) for name, rows in wanted.late.items()})
        for op, *row in changes:
            self.sum[tuple(row)] += 1 if op in ("+I", "+U") else -1
        event(f"results: {bool(changes)}, taken back: {any(op in ('-D', '-U') for op, *_ in changes)}")

    @rule(order=st.permutations(NAMES[:4]), ahead=st.none() | st.integers(0, 20))
    def change_plan(self, order: list[str], ahead: int | None) -> None:
        names = [name for name in order if name in self.asked.names]
        if len(names) == 1:
            return
        at = None if ahead is None else self.runtime.position + ahead
        # Some strategies keep their plan, and some plans have a cross product.
        with suppress(eddy.PlanError):
            self.runtime.transition(plan_over(names), at)

    @precondition(lambda self: any(self.asked.tables))
    @rule(picks=PICKS, fault=st.sampled_from(["key", "op"]))
    def refuse(self, picks: bytes, fault: Literal["key", "op"]) -> None:
        arrivals = bad_arrivals(self.asked, BadChangeStep(self.rows.arrivals(picks), fault))
        with pytest.raises(eddy.InputError, match=f"table {NAMES[arrivals[-1].input]}"):
            self.runtime.push(batches(self.asked, arrivals), [arrival.input for arrival in arrivals])

    @rule(picks=PICKS, tight=st.booleans())
    def fail(self, picks: bytes, tight: bool) -> None:
        """Push while the filter of results fails, or memory is short: either there is no result, or nothing happens."""
        # Stale changes make room for what a bound lets in.
        self.runtime.late()
        arrivals = self.rows.arrivals(picks)
        before, self.switch.on = self.runtime.snapshot(), not tight
        if tight:
            self.runtime.max_bytes = self.runtime.nbytes
        try:
            table = self.runtime.push(batches(self.asked, arrivals), [arrival.input for arrival in arrivals])
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
        assert +Counter(self.runtime.late_counts) == self.late
        assert +self.sum == self.reference.answer()


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
    with pytest.raises(eddy.InputError, match="atomic is for a changelog"):
        eddy.Runtime(eddy.Query([eddy.Stream("S", ROW), eddy.Stream("T", ROW)], ["S.k = T.k"])).push({}, atomic=True)
    engine = eddy.Engine([eddy.Stream("S", ROW), eddy.Stream("T", ROW)])
    with pytest.raises(eddy.InputError, match="atomic is for changes of tables, and this engine has none"):
        engine.push({}, atomic=True)
    with pytest.raises(eddy.QueryError, match="table T: it is a stream of the engine, and a table of the query"):
        engine.start("q", joined(), output="changelog")


def test_a_table_is_joined_by_sql() -> None:
    query = eddy.sql(
        "SELECT s.id, t.id AS other FROM S AS s JOIN T AS t ON s.k = t.k", [eddy.Stream("S", ROW), table()]
    )
    assert isinstance(query, eddy.Query)
    runtime = eddy.Runtime(query, output="changelog")
    results = runtime.push({"S": [{"id": 1, "k": 5}], "T": [{"id": 9, "k": 5}]}, [0, 1])
    assert results.to_pylist() == [{"op": "+I", "id": 1, "other": 9}]
    assert "SteM T [TABLE BY id]" in runtime.explain()
    assert repr(query) == "Query(S [UNBOUNDED], T [TABLE BY id]; S.k = T.k)"
    text = "EXPLAIN SELECT s.id FROM S AS s JOIN T AS t ON s.k = t.k"
    assert "stream T [TABLE BY id]" in str(eddy.sql(text, [eddy.Stream("S", ROW), table()]))


def test_no_good_marks_follow_the_changes_of_tables() -> None:
    """A chain in which few rows have partners at its end: lists are marked, and versions in them are buried."""
    columns, draw = {"A": "a", "B": "ab", "C": "bc", "D": "cd", "E": "d"}, random.Random(1)
    schemas = {name: pa.schema([(c, pa.int64()) for c in f"i{letters}"]) for name, letters in columns.items()}
    query = eddy.Query(
        [eddy.Table(name, schema, key="i") for name, schema in schemas.items()],
        ["A.a = B.a", "B.b = C.b", "C.c = D.c", "D.d = E.d"],
    )
    options: dict[str, Any] = {"output": "changelog", "ids_only": True}
    marked, other = (eddy.Runtime(query, strategy=strategy, **options) for strategy in ("mjoin", "symmetric-hash"))
    most = n_changes = 0
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
        n_changes += len(tables[0])
        most = max(most, sum(state["marks"] for state in marked.metrics()["states"].values()))
    assert most > 20
    assert n_changes > 300
    assert not sum(state["marks"] for state in other.metrics()["states"].values())


def test_groups_follow_the_changes_of_tables_in_sql() -> None:
    text = "SELECT t.k, COUNT(*) AS n, MAX(t.id) AS newest FROM T AS t GROUP BY t.k HAVING COUNT(*) > 1"
    query = eddy.sql(text, [table(ops="column")])
    assert isinstance(query, eddy.Query)
    runtime = eddy.Runtime(query, output="changelog")

    def changes(*rows: tuple[int, int, str]) -> list[tuple[Any, ...]]:
        results = runtime.push({"T": [{"id": k, "k": v, "op": op} for k, v, op in rows]}).to_pylist()
        return [tuple(row.values()) for row in results]

    assert changes((1, 5, "c"), (2, 5, "c")) == [("+I", 5, 2, 2)]
    assert changes((3, 5, "c")) == [("-D", 5, 2, 2), ("+I", 5, 3, 3)]
    assert changes((3, 6, "u")) == [("-D", 5, 3, 3), ("+I", 5, 2, 2)]
    assert changes((2, 5, "u")) == []
    assert changes((2, 0, "d")) == [("-D", 5, 2, 2)]
    two = eddy.Runtime(joined(aggregates={"n": eddy.agg.count()}), output="changelog")
    assert "groups by enumeration: the rows of a table change" in two.explain()


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


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
        results = runtime.push(pushed, [" AB".index(name) for name, *_ in rows], atomic=atomic).to_pylist()
        return [tuple(row.values()) for row in results]

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
    changes = []
    for k, low, v in [(1, 3, 0), (1, 3, 1), (1, 9, 2), (1, 4, 3), (2, 4, 4), (3, 4, 5)]:
        rows = runtime.push({"T": [{"id": 7, "k": k, "low": low, "v": v}]}).to_pylist()
        changes.append([(row["op"], row["T.v"]) for row in rows])
    assert changes == [
        [("+I", 0)], [("-U", 0), ("+U", 1)], [("-D", 1)], [("+I", 3)], [("-D", 3), ("+I", 4)], [("-D", 4)],
    ]  # fmt: skip


def test_what_comes_and_goes_in_one_step_leaves_nothing() -> None:
    query = eddy.Query([eddy.Stream("S", ROW, window=eddy.Rows(1)), table(ops="column")], ["S.k = T.id"])
    runtime = eddy.Runtime(query, output="changelog")
    runtime.load({"T": [{"id": key, "k": 7, "op": op} for key, op in [(1, "c"), (2, "c"), (1, "d")]]})
    rows = [{"id": n, "k": n % 2 + 1} for n in range(3)]
    assert runtime.push({"S": rows}, atomic=True).num_rows == 0
    assert [(change["op"], change["S.id"]) for change in runtime.push({"S": rows[:2]}, atomic=True).to_pylist()] == [
        ("+I", 1)
    ]
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
        results = engine.push({"R": [{"id": n, "k": 1}], "S": [{"id": n, "k": 1}]}, order=[0, 1])
        assert set(results["pairs"]["op"].to_pylist()) == {"+I"}


def test_a_ledger_forgets_the_matches_of_final_rows() -> None:
    streams = [eddy.Stream(name, ROW, window=eddy.Rows(2)) for name in "RS"]
    branch = eddy.Branch([table()], ["R.k = T.id"], "left")
    for core in (streams[:1], streams):
        on = ["R.k = S.k"][: len(core) - 1]
        runtime = eddy.Runtime(eddy.Query(core, on, branches=[branch], expiry="final"), output="changelog")
        for n in range(200):
            rows = [{"id": n, "k": k % 3} for k in range(8)]
            results = runtime.push(
                {stream.name: rows for stream in core}, order=[k % len(core) for k in range(8 * len(core))]
            )
            assert set(results["op"].to_pylist()) <= {"+I"}
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
        changes = [runtime.push(pushed, atomic=True).to_pylist() for runtime in (anew, other)]
        assert Counter(map(str, changes[0])) == Counter(map(str, changes[1]))


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
    for row in runtime.stats().to_pylist():
        if row["kind"] == "stream":
            assert row["rows"] == {"S": 200, "T": 100}[row["from"]]
        elif row["kind"] == "pair":
            assert (row["hit"], row["fanout"]) == (1, 1 if row["from"] == "S" else 2)
            assert row["recent"] == pytest.approx(row["fanout"], rel=0.1)
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
        (change,) = runtime.push({"S": [{"id": k, "k": 0}]}).slice(0 if k == 0 else 1).to_pylist()
        assert change == {"op": "+I", **{f"T.{c}": v for c, v in row(k, n).items() if c != "id"}}


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
    assert [[tuple(row.values()) for row in rows] for rows in changes] == [
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

"""Left, semi, anti and full joins of tables: after each push, the oracle finds the same rows, by definition."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy import Branch, Query, Range, Runtime, Stream, Table
from eddy.fuzz.case import Hanging
from eddy.fuzz.tables.case import TableArrival, TablesQuery
from eddy.fuzz.tables.changes import compare_changes
from eddy.fuzz.tables.draw import ROW_BYTES, ArrivalWriter, looked_up, table_branches
from eddy.fuzz.tables.play import AcceptingSwitch, batches, rows_of
from eddy.fuzz.tables.reference import TableReference
from eddy.query.result_key import key_lacks, result_key
from jisc.strategies import STRATEGIES
from tests.eddy.test_branches import engine_file, in_another_process
from tests.eddy.test_interrupts import Seen, pushed

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("l", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
SEEDS = st.integers(0, 1 << 32)


class BranchedTables:
    """A query over tables and streams, its oracle, and random pushes."""

    def __init__(self, asked: TablesQuery, draw: Random) -> None:
        self.asked, self.draw, self.query = asked, draw, asked.query(AcceptingSwitch())
        self.rows, self.reference = ArrivalWriter(asked), TableReference(asked)

    def push(self) -> tuple[TableArrival, ...]:
        """Return the arrivals of a push."""
        size = self.draw.choice((0, 1, 2, 4, 8, 16)) * ROW_BYTES
        return self.rows.arrivals(bytes(self.draw.randrange(256) for _ in range(size)))


def order_of(arrivals: tuple[TableArrival, ...]) -> list[int]:
    return [arrival.input for arrival in arrivals]


def play(asked: TablesQuery, draw: Random, strategy: Any, pushes: int) -> None:
    """Push random rows, and compare after each push."""
    case = BranchedTables(asked, draw)
    with engine_file() as live:
        runtime = Runtime(case.query, output="changelog", strategy=strategy, decide_every=3)
        for _ in range(pushes):
            arrivals = case.push()
            pushed_rows, order = batches(asked, arrivals), order_of(arrivals)
            if draw.random() < 0.1:
                saved = runtime.snapshot()
                with pytest.raises(eddy.InputError):
                    runtime.push(pushed_rows, order=[*order, 0])
                assert runtime.snapshot() == saved
            compare_changes(rows_of(runtime.push(pushed_rows, order=order)), case.reference.push(arrivals).groups, None)
            runtime.check()
            if draw.random() < 0.1:
                saved = runtime.snapshot()
                runtime = Runtime.restore(saved, case.query)
                assert runtime.snapshot() == saved
            elif draw.random() < 0.1:
                runtime = in_another_process(runtime, live)
            elif draw.random() < 0.1:
                change_a_plan(draw, runtime)


def change_a_plan(draw: Random, runtime: Runtime) -> None:
    """Try another plan of one of the joins, if there is one and the strategy can change it."""
    joins = [join for join in runtime._pipeline.joins.values() if len(join.query.streams) > 2 and join.strategy.changes]
    if joins:
        names = list(draw.choice(joins).query.graph.names)
        draw.shuffle(names)
        with suppress(eddy.PlanError):
            runtime.transition(" ".join(names))


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=14)
@given(asked=table_branches(), seed=SEEDS)
def test_the_answer_follows_the_oracle(strategy: str, asked: TablesQuery, seed: int) -> None:
    play(asked, Random(seed), strategy, 12)


def with_final_rows(asked: TablesQuery) -> TablesQuery:
    """Return a query with streams in its core, whose rows leave their windows, and tables in its branches."""
    tables = tuple(i not in asked.nodes[0] for i in range(len(asked.tables)))
    windows = tuple(3 if size is None else size for size in asked.windows)
    branches = tuple(replace(branch, how="left") if branch.how == "full" else branch for branch in asked.branches)
    return replace(asked, tables=tables, windows=windows, branches=branches, expiry="final")


@pytest.mark.campaign(0)
@settings(max_examples=14)
@given(table_branches().map(with_final_rows), SEEDS)
def test_final_rows_follow_the_oracle(asked: TablesQuery, seed: int) -> None:
    play(asked, Random(seed), "jisc", 30)


@pytest.mark.campaign(0)
@settings(max_examples=16)
@given(table_branches(), SEEDS)
def test_dead_versions_leave_what_is_kept(asked: TablesQuery, seed: int) -> None:
    """Many changes of few keys."""
    play(asked, Random(seed), "jisc", 40)


def test_what_is_kept_has_the_size_that_living_versions_need() -> None:
    query = Query(
        [Table("r", SCHEMA, key="id")], branches=[Branch([Table("t", SCHEMA, key="id")], ["r.k = t.id"], "left")]
    )
    runtime, sizes = Runtime(query, output="changelog"), []
    for push in range(60):
        values = [(i, i, push, str(push), 0) for i in range(200)]
        batch = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)
        assert len(runtime.push({"r": batch, "t": batch})) == (400 if push else 200)
        sizes.append(runtime.nbytes)
    assert max(sizes) < 3 * sizes[3]


@pytest.mark.campaign(0)
def test_an_exception_at_each_line_of_a_push() -> None:
    draw, seen, quiet = Random(3), Seen(), 0
    on = ((("R", "a"), "=", ("S", "b")), (("S", "b"), "=", ("T", "a")), (("R", "b"), "=", ("U", "a")))
    branches = Hanging("left", (1, 2)), Hanging("anti", (3,))
    asked = TablesQuery((True,) * 4, (None,) * 4, on, ("k",), False, False, "abkpvw", None, branches=branches)
    case = BranchedTables(asked, draw)
    runtime = Runtime(case.query, output="changelog", strategy="jisc")
    while quiet < 6:
        arrivals = case.push()
        if draw.random() < 0.3:
            change_a_plan(draw, runtime)
        # Without an order, changes come table by table.
        results, tries = pushed(runtime, batches(asked, arrivals), seen)
        in_order = sorted(arrivals, key=lambda arrival: arrival.input)
        compare_changes(rows_of(results), case.reference.push(in_order).groups, None)
        quiet = quiet + 1 if tries == 1 else 0
    assert len(seen) > 300


def test_upserts_by_the_keys_of_tables() -> None:
    """A program that keeps the newest row of each key has the answer. Keys that others determine are left out."""
    shorter = list[bool]()

    @settings(max_examples=60)
    @given(table_branches(only=True) | table_branches(only=True).map(looked_up), SEEDS)
    def follow(asked: TablesQuery, seed: int) -> None:
        case = BranchedTables(asked, Random(seed))
        if not set(asked.key) <= set(asked.shown):
            with pytest.raises(eddy.InputError, match=r"needs the key of each table in select: add 'R\."):
                Runtime(case.query, output="upsert")
            return
        runtime, kept = Runtime(case.query, output="upsert"), dict[str, tuple[Any, ...]]()
        keys = result_key(case.query)
        shorter.append(len(keys) < len(asked.visible) * len(asked.key))
        for _ in range(8):
            arrivals = case.push()
            came = set[str]()
            for row in runtime.push(batches(asked, arrivals), order=order_of(arrivals)).to_pylist():
                op, key = row.pop("op"), str([row[name] for name in keys])
                assert op in ("+I", "+U", "-D")
                assert key not in came
                came.add(key)
                assert (key in kept) == (op != "+I")
                kept.pop(key, None)
                if op != "-D":
                    kept[key] = tuple(row.values())
            case.reference.push(arrivals)
            assert Counter(kept.values()) == case.reference.answer()

    follow()
    assert sum(shorter) > 20, sum(shorter)


@pytest.mark.campaign(0)
def test_which_columns_identify_a_result() -> None:
    """No two results of an answer have one key that lacks nothing; keys that lack a column have such results."""
    counts = Counter[str]()

    @settings(max_examples=80)
    @given(
        st.one_of(
            table_branches(only=True),
            table_branches(only=True).map(looked_up),
            table_branches(only=True).map(lambda asked: looked_up(asked, "p")),
        ),
        SEEDS,
    )
    def follow(asked: TablesQuery, seed: int) -> None:
        case, draw = BranchedTables(replace(asked, shown="abkpvw"), Random(seed)), Random(seed)
        names = case.query.output_schema.names
        runtime, kept = Runtime(case.query, output="changelog"), Counter[tuple[Any, ...]]()
        least = result_key(case.query)
        numbers = [name for name in names if name.endswith((".a", ".b", ".k", ".p"))]
        drawn = {tuple(sorted(draw.sample(numbers, draw.randint(1, min(4, len(numbers)))))) for _ in range(60)}
        keys = {candidate: key_lacks(case.query, candidate) for candidate in drawn | {least}}
        assert not keys[least]
        seen = set[tuple[str, ...]]()
        for _ in range(30):
            arrivals = case.push()
            for row in runtime.push(batches(case.asked, arrivals), order=order_of(arrivals)).to_pylist():
                op, values = row.pop("op"), tuple(row.values())
                kept[values] += 1 if op in ("+I", "+U") else -1
            rows = [dict(zip(names, row, strict=True)) for row in (+kept).elements()]
            for key in keys:
                if len({tuple(row[name] for name in key) for row in rows}) < len(rows):
                    seen.add(key)
        for key, lacking in keys.items():
            assert not (key in seen and not lacking), key
            counts["other"] += not lacking and not set(least) <= set(key)
            counts["repeated"] += key in seen
            counts["unrepeated"] += bool(lacking) and key not in seen

    follow()
    assert counts["other"] > 8
    assert counts["repeated"] > counts["unrepeated"]


def test_what_a_key_lacks_is_named() -> None:
    first, other = (Table(name, SCHEMA, key=["id", "k"]) for name in "ab")
    query = Query([first, other, Stream("s", SCHEMA)], ["a.l = b.l", "s.t = a.t"], select={"i": "a.id", "l": "b.l"})
    assert key_lacks(query, ["i", "l"]) == [
        "'a.k' (key of table a; select it, too)",
        "'b.id' (key of table b; select it, too)",
        "'b.k' (key of table b; select it, too)",
        "columns that identify a row of stream s",
    ]
    streams = [Stream(name, SCHEMA, window=Range(5), time="t") for name in "ab"]
    options: dict[str, Any] = {"group_by": {"g": "a.k"}, "aggregates": {"n": eddy.agg.count()}}
    for window, select, lacking in (
        (eddy.Tumbling(5), None, ["'g' (group column)", "'window_start' (bound of the window)"]),
        (
            eddy.Session(5, start=None),
            ["n"],
            ["'g' (group column; select it, too)", "'window_end' (bound of the window; select it, too)"],
        ),
        (
            eddy.Tumbling(5, start=None, end=None),
            {"h": "g", "n": "n"},
            ["'h' (group column)", "a bound of the window (start= of the group_window names its column)"],
        ),
        (None, {"n": "g"}, []),
    ):
        assert key_lacks(Query(streams, ["a.k = b.k"], group_window=window, select=select, **options), ["n"]) == lacking

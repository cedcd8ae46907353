"""Left, semi, anti and full joins of tables: after each push, the oracle finds the same rows, by definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy import Branch, Query, Range, Rows, Runtime, Stream, Table, Unbounded
from eddy.fuzz.table_oracle import Column, Result, TableBranch, TableInput, TableOracle
from eddy.query.result_key import key_lacks, result_key
from jisc.strategies import STRATEGIES
from tests.eddy.test_branches import engine_file, in_another_process
from tests.eddy.test_interrupts import Seen, pushed

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("l", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
ORDER = ("-D", "-U", "+I")
Comparison = tuple[Column, str, Column]


class BranchedTables:
    """A random query over tables and streams, the same in the oracle, and random pushes.

    names, tables   the inputs, and which of them are tables
    query, oracle   the same core and branches
    """

    def __init__(self, draw: Random) -> None:
        n = draw.choice((2, 2, 3, 3, 4))
        self.draw, self.names = draw, [f"t{i}" for i in range(n)]
        self.tables = {name for name in self.names if draw.random() < 0.75} or {draw.choice(self.names)}
        self.inputs = [
            TableInput(name, ("id",))
            if name in self.tables
            else TableInput(
                name, (), *draw.choice(((1, None), (3, None), (5, None), (None, None), (None, 2), (None, 6))), "t"
            )
            for name in self.names
        ]
        if n == 2 and draw.random() < 0.3:
            core, texts, own = (
                1,
                list[Comparison](),
                [TableBranch(self.inputs[1:], self.join(range(1, 2), [0]), "full")],
            )
        else:
            core = draw.randint(1, n - 1)
            texts = self.join(range(core), [])
            own = self.branches(core, n, [*range(core)])
        tables = all(one.key for one in self.inputs[core:]) and own[0].how != "full"
        self.expiry = "final" if tables and draw.random() < 0.5 else "retract"
        self.oracle = TableOracle(self.inputs[:core], texts, own, self.expiry)
        self.query = Query(
            [self.input(one) for one in self.inputs[:core]],
            written(texts),
            branches=[self.branch(one) for one in own],
            watermark="fastest",
            expiry=self.expiry,
        )
        self.pool = draw.choice((3, 5, 9))
        self.number = self.clock = 0

    def input(self, one: TableInput) -> Stream | Table:
        """Return an input as a query takes it."""
        if one.key:
            return Table(one.name, SCHEMA, key="id", ops="column")
        window = Unbounded() if one.span is None else Range(one.span)
        return Stream(one.name, SCHEMA, window=window if one.rows is None else Rows(one.rows), time="t")

    def join(self, own: range, path: list[int]) -> list[Comparison]:
        """Return a random equality of each of some inputs with one before it, or on the path above them."""
        pick, found, path = self.draw.choice, list[Comparison](), list(path)
        for i in own:
            if path:
                found.append(
                    ((self.names[i], pick(["k", "l", "id"])), "=", (self.names[pick(path)], pick(["k", "l", "id"])))
                )
            path.append(i)
        return found

    def branches(self, first: int, end: int, path: list[int]) -> list[TableBranch]:
        """Return branches of inputs first .. end - 1, some below others, that hang on the inputs of a path."""
        found = []
        while first < end:
            own = self.draw.randint(1, min(2, end - first))
            below = self.draw.randint(0, end - first - own) if self.draw.random() < 0.4 else 0
            mine, first = range(first, first + own), first + own
            nested = self.branches(first, first + below, [*path, *mine])
            how = self.draw.choice(("left", "left", "semi", "anti"))
            found.append(TableBranch([self.inputs[i] for i in mine], self.join(mine, path), how, nested))
            first += below
        return found

    def branch(self, one: TableBranch) -> Branch:
        """Return a branch as a query takes it."""
        below = [self.branch(other) for other in one.branches]
        return Branch([self.input(own) for own in one.inputs], written(one.predicates), one.how, branches=below)

    def push(self) -> tuple[dict[str, list[dict[str, Any]]], list[str], set[Result]]:
        """Return the rows of a push, their order, and the answer before it, and tell the oracle."""
        given: dict[str, list[dict[str, Any]]] = {}
        for name in self.names:
            own = []
            for _ in range(self.draw.choice((0, 0, 1, 2, 4, 8))):
                values = (self.draw.choice((None, 0, 1, 2)), self.draw.randrange(3), str(self.number), 0)
                own.append(dict(zip(SCHEMA.names, (self.draw.randrange(self.pool), *values), strict=True)))
                self.number += 1
                if name in self.tables:
                    own[-1]["op"] = self.draw.choice(("u", "u", "u", "d"))
            if own:
                given[name] = own
        order = [name for name, own in given.items() for _ in own]
        self.draw.shuffle(order)
        before, rest = set(self.oracle.answer), {name: iter(own) for name, own in given.items()}
        arrived = [(name, next(rest[name])) for name in order]
        # Of the changes of a key, the last one arrives; changes arrive before rows.
        last = {(name, row["id"]): id(row) for name, row in arrived if name in self.tables}
        for name, row in arrived:
            if name in self.tables and last[name, row["id"]] == id(row):
                self.oracle.arrive(name, row, row["op"] == "d")
        for name, row in arrived:
            if name not in self.tables:
                self.clock += self.draw.choice((0, 0, 1, 2))
                row["t"] = self.clock
                self.oracle.arrive(name, row, watermark=self.clock if any(one.span for one in self.inputs) else None)
        return given, order, before

    def shown(self, result: Result) -> str:
        """Return the columns of a row of the answer, as text."""
        at = [one.name for one in self.oracle.every]
        found = []
        for stream in self.query.shown:
            n = result[at.index(stream.name)]
            row = None if n < 0 else self.oracle.row(stream.name, n)
            found += [None if row is None else row[column] for column in SCHEMA.names]
        return str(found)

    def wanted(self, before: set[Result]) -> Counter[tuple[str, str]]:
        """Return the rows of the last push."""
        return Counter((op, self.shown(one)) for op, one in self.oracle.since(before))


def written(comparisons: Sequence[Comparison]) -> list[str]:
    return [f"{a}.{x} {op} {b}.{y}" for (a, x), op, (b, y) in comparisons]


def texts(table: pa.Table) -> list[tuple[str, str]]:
    """Return the rows of a changelog as the oracle shows them."""
    return [(row.pop("op"), str(list(row.values()))) for row in table.to_pylist()]


def positions(query: Query, order: Sequence[str]) -> pa.Array:
    names = [stream.name for stream in query.streams]
    return pa.array([names.index(name) for name in order], pa.uint8())


def play(draw: Random, strategy: str, pushes: int) -> Runtime:
    """Push random rows, compare after each push, and return the runtime."""
    case = BranchedTables(draw)
    with engine_file() as live:
        runtime = Runtime(case.query, output="changelog", strategy=strategy, decide_every=3)
        for _ in range(pushes):
            given, order, before = case.push()
            if draw.random() < 0.1:
                saved = runtime.snapshot()
                with pytest.raises(eddy.InputError):
                    runtime.push(given, order=positions(case.query, [*order, case.names[0]]))
                assert runtime.snapshot() == saved
            found = texts(runtime.push(given, order=positions(case.query, order)))
            assert Counter(found) == case.wanted(before)
            ops = [ORDER.index(op) for op, _ in found if op != "+U"]
            assert ops == sorted(ops)
            runtime.check()
            if draw.random() < 0.1:
                saved = runtime.snapshot()
                runtime = Runtime.restore(saved, case.query)
                assert runtime.snapshot() == saved
            elif draw.random() < 0.1:
                runtime = in_another_process(runtime, live)
            elif draw.random() < 0.1:
                change_a_plan(draw, runtime)
    return runtime


def change_a_plan(draw: Random, runtime: Runtime) -> None:
    """Try another plan of one of the joins, if there is one and the strategy can change it."""
    joins = [one for one in runtime._pipeline.joins.values() if len(one.query.streams) > 2 and one.strategy.changes]
    if joins:
        names = list(draw.choice(joins).query.graph.names)
        draw.shuffle(names)
        with suppress(eddy.PlanError):
            runtime.transition(" ".join(names))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_answer_follows_the_oracle(strategy: str) -> None:
    for seed in range(14):
        play(Random(f"{strategy} {seed}"), strategy, 12)


def test_dead_versions_leave_what_is_kept() -> None:
    """Many changes of few keys."""
    for seed in range(10):
        play(Random(seed), "jisc", 80)


def test_what_is_kept_has_the_size_that_living_versions_need() -> None:
    query = Query(
        [Table("r", SCHEMA, key="id")], branches=[Branch([Table("t", SCHEMA, key="id")], ["r.k = t.id"], "left")]
    )
    runtime, sizes = Runtime(query, output="changelog"), []
    for push in range(60):
        values = [(i, i, push, str(push), 0) for i in range(200)]
        batch = pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in values], schema=SCHEMA)
        assert len(runtime.push({"r": batch, "t": batch})) == (400 if push else 200)
        sizes.append(runtime.nbytes)
    assert max(sizes) < 3 * sizes[3]


def test_an_exception_at_each_line_of_a_push() -> None:
    draw, seen, quiet = Random(3), Seen(), 0
    case = BranchedTables(draw)
    while len(case.tables) < 4:
        case = BranchedTables(draw)
    runtime = Runtime(case.query, output="changelog", strategy="jisc")
    while quiet < 6:
        given, _, before = case.push()
        if draw.random() < 0.3:
            change_a_plan(draw, runtime)
        results, tries = pushed(runtime, given, seen)
        assert Counter(texts(results)) == case.wanted(before)
        quiet = quiet + 1 if tries == 1 else 0
    assert len(seen) > 300


def test_upserts_by_the_keys_of_tables() -> None:
    """A program that keeps the newest row of each key has the answer. Keys that others determine are left out."""
    shorter = 0
    for seed in range(60):
        draw = Random(seed)
        case = BranchedTables(draw)
        if any(stream.name not in case.tables for stream in case.query.shown):
            with pytest.raises(eddy.InputError, match="results have no key, because stream t"):
                Runtime(case.query, output="upsert")
            continue
        runtime, kept = Runtime(case.query, output="upsert"), dict[str, str]()
        keys = result_key(case.query)
        shorter += len(keys) < len(case.query.shown)
        for _ in range(8):
            given, order, _ = case.push()
            came = set[str]()
            for row in runtime.push(given, order=positions(case.query, order)).to_pylist():
                op, key = row.pop("op"), str([row[name] for name in keys])
                assert op in ("+I", "+U", "-D")
                assert key not in came
                came.add(key)
                assert (key in kept) == (op != "+I")
                kept.pop(key, None)
                if op != "-D":
                    kept[key] = str(list(row.values()))
            assert Counter(kept.values()) == Counter(map(case.shown, case.oracle.answer))
    assert shorter > 5


def test_which_columns_identify_a_result() -> None:
    """No two results of an answer have one key that lacks nothing; keys that lack a column have such results."""
    other, repeated, unrepeated = 0, 0, 0
    for seed in range(120):
        draw = Random(seed)
        case = BranchedTables(draw)
        if any(stream.name not in case.tables for stream in case.query.shown):
            continue
        names = case.query.output_schema.names
        runtime, kept = Runtime(case.query, output="changelog"), Counter[tuple[Any, ...]]()
        least = result_key(case.query)
        # No two rows have one `s`.
        numbers = [name for name in names if name.endswith(("id", ".k", ".l"))]
        drawn = {tuple(sorted(draw.sample(numbers, draw.randint(1, min(4, len(numbers)))))) for _ in range(60)}
        keys = {one: key_lacks(case.query, one) for one in drawn | {least}}
        assert not keys[least]
        seen = set[tuple[str, ...]]()
        for _ in range(6):
            given, order, _ = case.push()
            for row in runtime.push(given, order=positions(case.query, order)).to_pylist():
                op, values = row.pop("op"), tuple(row.values())
                kept[values] += 1 if op in ("+I", "+U") else -1
            rows = [dict(zip(names, row, strict=True)) for row in (+kept).elements()]
            for key in keys:
                if len({tuple(row[name] for name in key) for row in rows}) < len(rows):
                    seen.add(key)
        for key, lacking in keys.items():
            assert not (key in seen and not lacking), (seed, case.query, key)
            other += not lacking and not set(least) <= set(key)
            repeated += key in seen
            unrepeated += bool(lacking) and key not in seen
    assert other > 10
    assert repeated > unrepeated


def test_what_a_key_lacks_is_named() -> None:
    one, other = (Table(name, SCHEMA, key=["id", "k"]) for name in "ab")
    query = Query([one, other, Stream("s", SCHEMA)], ["a.l = b.l", "s.t = a.t"], select={"i": "a.id", "l": "b.l"})
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

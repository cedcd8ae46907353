"""Ring values against the oracle, and against enumeration: switches at any push, plans, snapshots, undo, memory."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Rows, Runtime, Stream, Unbounded, agg
from eddy.aggregates.ring_choice import RingChoice
from eddy.aggregates.ring_tree import served
from eddy.fuzz.aggregate_oracle import OracleAggregate, grouped
from eddy.fuzz.oracle import Oracle, OracleQuery, OracleStream
from eddy.live.engine_file import EngineFile
from jisc.strategies import STRATEGIES
from tests.eddy.drawn_aggregates import VALUES, row_texts, texts
from tests.eddy.test_aggregates_running import TracerInterruption, interrupted_at

NAMES = "RSTUV"
SCHEMA = pa.schema(
    [
        *((column, pa.int64()) for column in "abc"),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.int64()),
    ]
)
TREES: dict[str, list[str]] = {
    "chain": ["R.a = S.a", "S.b = T.b", "T.c = U.c"],
    "star": ["R.a = S.a", "R.b = T.b", "R.c = U.c"],
    "one key": ["R.a = S.a", "S.a = T.a"],
    "mixed": ["R.a = S.a", "S.a = T.a", "T.b = U.b", "T.c = V.c"],
    "pair": ["R.a = S.a"],
}
WINDOWS: dict[str, Any] = {"rows": Rows, "range": Range, "unbounded": lambda _: Unbounded()}


class RingCase:
    """A query that ring values serve, for the oracle and for eddy."""

    def __init__(self, draw: st.DrawFn, kinds: tuple[str, ...], **options: Any) -> None:
        self.on = TREES[draw(st.sampled_from(tuple(TREES)))]
        self.names = [name for name in NAMES if any(name in predicate for predicate in self.on)]
        window_kinds = [draw(st.sampled_from(kinds)) for _ in self.names]
        sizes = [draw(st.integers(1, 5)) for _ in window_kinds]
        time = "t" if "range" in window_kinds or draw(st.booleans()) else None
        streams = [OracleStream(*arguments, time) for arguments in zip(self.names, window_kinds, sizes, strict=True)]
        pairs = [tuple(tuple(side.split(".")) for side in predicate.split(" = ")) for predicate in self.on]
        self.oracle = Oracle(OracleQuery(streams, pairs, 0))  # type: ignore[arg-type]
        roots = draw(
            st.sampled_from((self.names[:1], self.names[-1:], self.names[1:3], self.names[:2], self.names[:3]))
        )
        columns = [f"{name}.{column}" for name in roots for column in "gxa"]
        self.keys = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
        picks = draw(
            st.lists(
                st.tuples(
                    st.sampled_from(("sum", "avg", "count")), st.sampled_from(self.names), st.sampled_from("xid")
                ),
                min_size=1,
                max_size=4,
            )
        )
        self.functions = [
            OracleAggregate("count"),
            *(OracleAggregate(function, f"{name}.{column}") for function, name, column in picks),
        ]
        self.query = Query(
            [
                Stream(stream.name, SCHEMA, window=WINDOWS[stream.window](stream.size), time=stream.time)
                for stream in streams
            ],
            self.on,
            group_by=self.keys,
            aggregates={
                f"f{k}": getattr(agg, function.function)(*([function.column] if function.column else []))
                for k, function in enumerate(self.functions)
            },
            **options,
        )
        self.served = bool(served(self.query).roots)

    def row(self, numbers: Any) -> dict[str, Any]:
        """Return a result by column names."""
        return {
            f"{name}.{column}": value
            for name, n in zip(self.names, numbers, strict=True)
            for column, value in self.oracle.tuples[name][n].items()
        }

    def groups(self, results: Any) -> Counter[tuple[str, ...]]:
        """Return the rows of groups over some results, as text."""
        groups = grouped([self.row(result) for result in results], self.keys, self.functions)
        return row_texts((*key, *values) for key, values in groups.items())


def drawn_rows(draw: st.DrawFn, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Draw arrivals."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    arrivals = []
    for k in range(draw(st.integers(5, 40))):
        row: dict[str, Any] = {column: rng.choice((1, 1, 2, None if rng.random() < 0.1 else 2)) for column in "abc"}
        row |= {column: rng.choice(VALUES[column]) for column in "gxid"}
        row["t"] = k - (rng.randrange(8) if rng.random() < 0.1 else 0)
        arrivals.append((rng.choice(names), row))
    return arrivals


def pushed(runtime: Runtime, names: list[str], rows: list[tuple[str, dict[str, Any]]]) -> pa.Table:
    """Push rows in their order."""
    tables = {name: pa.Table.from_pylist([row for n, row in rows if n == name], schema=SCHEMA) for name in names}
    return runtime.push(tables, [names.index(name) for name, _ in rows])


def forced(runtime: Runtime, on: bool | None) -> RingChoice:
    """Let ring values serve, or not; if they cannot, nothing happens."""
    rings = runtime._pipeline.join.rings
    if rings is None:
        return RingChoice()
    rings.choice.forced = on
    return rings.choice


@given(st.data(), st.sampled_from(("live", "final", "end")))
def test_groups_are_those_of_the_oracle_through_switches(data: st.DataObject, form: str) -> None:
    kinds = data.draw(st.sampled_from((("rows",), ("range", "rows"), ("unbounded", "rows"), ("unbounded",))))
    case = RingCase(data.draw, kinds, expiry="final" if form == "final" else "retract")
    options: dict[str, Any] = {"bounded": True} if form == "end" else {"output": "changelog"}
    strategy = data.draw(st.sampled_from(("jisc", "jisc", *STRATEGIES)))
    runtime = Runtime(case.query, strategy=strategy, **options)
    standing: Counter[tuple[int, ...]] = Counter()
    answer: Counter[tuple[str, ...]] = Counter()
    rows, at, served_pushes = drawn_rows(data.draw, case.names), 0, 0
    while at < len(rows):
        choice = forced(runtime, data.draw(st.sampled_from((True, True, False))))
        size = data.draw(st.sampled_from((1, 3, 12, 0)))
        for name, row in rows[at : at + size]:
            outcome = case.oracle.arrive(name, row)
            if form == "live":
                standing.subtract([*outcome.expired, *outcome.displaced])
            standing.update(outcome.results)
        table = pushed(runtime, case.names, rows[at : at + size])
        served_pushes += choice.on
        at += size
        runtime.check()
        expected = case.groups(standing.elements())
        assert texts(runtime.groups()) == expected
        if form != "end":
            went = texts(table.filter(pc.field("op") == "-D").drop_columns("op"))
            came = texts(table.filter(pc.field("op") == "+I").drop_columns("op"))
            assert not went & came
            answer = answer - went + came
            assert answer == expected
        if data.draw(st.integers(0, 5)) == 0:
            runtime = Runtime.restore(runtime.snapshot(), case.query)
        elif len(case.names) > 2 and STRATEGIES[runtime.strategy].changes and data.draw(st.integers(0, 5)) == 0:
            runtime.transition(reordered(case))
    event(f"pushes by ring values: {min(served_pushes, 5)}")
    if form == "end":
        assert texts(runtime.finish()) == case.groups(standing.elements())


def reordered(case: RingCase) -> str:
    """Return another plan: left-deep, from the last stream on."""
    left = [case.names[-1]]
    text = left[0]
    while len(left) < len(case.names):
        for name in case.names:
            if name not in left and any(
                name in predicate and any(other in predicate for other in left) for predicate in case.on
            ):
                text = f"({text}) {name}" if len(left) > 1 else f"{text} {name}"
                left.append(name)
                break
    return text


LIVE = {"output": "changelog"}


def star(window: Any = None, **more: Any) -> Query:
    """Return a query that ring values serve."""
    shared_window = window or Rows(30)
    return Query(
        [Stream(name, SCHEMA, window=shared_window, time="t") for name in "RST"],
        ["R.a = S.a", "R.b = T.b"],
        **{
            "group_by": ["R.g"],
            "aggregates": {"n": agg.count(), "x": agg.sum("S.x"), "i": agg.avg("T.i"), "d": agg.sum("R.d")},
            **more,
        },
    )


def batch(seed: int, n: int = 12, domain: int = 4) -> dict[str, pa.Table]:
    """Return rows of all streams."""
    rng = random.Random(seed)
    tables = {}
    for name in "RST":
        made: list[dict[str, Any]] = [{column: rng.randrange(domain) for column in "abc"} for _ in range(n)]
        for row in made:
            row |= {"g": rng.choice(("a", "b", None)), "x": rng.random(), "i": rng.randrange(-9, 9), "t": 0}
            row["d"] = Decimal(rng.randrange(-99, 99)) / 4
        tables[name] = pa.Table.from_pylist(made, schema=SCHEMA)
    return tables


def both(query: Query, **options: Any) -> tuple[Runtime, Runtime]:
    """Return a runtime that enumerates, and one with ring values."""
    pair = Runtime(query, **options), Runtime(query, **options)
    for runtime, on in zip(pair, (False, True), strict=True):
        forced(runtime, on)
    return pair


def step(pair: tuple[Runtime, Runtime], seed: int, **more: Any) -> Counter[tuple[str, ...]]:
    """Push the same rows into both; return the rows of groups, which are the same."""
    plain, two = (texts(runtime.push(batch(seed, **more))) for runtime in pair)
    assert plain == two
    pair[1].check()
    assert texts(pair[0].groups()) == texts(pair[1].groups())
    return two


def test_a_push_that_fails_leaves_no_trace() -> None:
    def broken(batch: pa.RecordBatch) -> Any:
        assert (pc.max(batch["i"]).as_py() or 0) < 1 << 50, "too many"
        return pc.is_valid(pc.fill_null(batch["i"], 0))

    having = eddy.Predicate(broken, ["i"])
    pair = both(star(aggregates={"i": agg.sum("T.i"), "x": agg.sum("R.x")}, having=having), **LIVE)
    for number in range(3):
        step(pair, number)
    saved, most = pair[1].snapshot(), 1 << 51
    rows = batch(9)
    huge = [{**row, "a": 1, "b": 1, "i": most} for row in rows["T"].to_pylist()]
    for runtime in pair:
        with pytest.raises(eddy.InputError, match=r"having.*too many"):
            runtime.push({**rows, "T": pa.Table.from_pylist(huge, schema=SCHEMA)})
        runtime.check()
    assert pair[1].snapshot() == saved
    for number in range(4, 7):
        step(pair, number)


def test_counts_beyond_the_limit_are_left_to_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is a constant of compiled kernels, so the test makes a product that is beyond it."""
    n = 1 << 11
    query = Query(
        [Stream(name, SCHEMA, window=Unbounded(), time="t") for name in "RSTUV"],
        ["R.a = S.a", "S.b = T.b", "S.c = U.c", "R.b = V.b"],
        group_by=["R.g"],
        aggregates={"n": agg.count()},
    )
    runtime = Runtime(query, bounded=True)
    choice = forced(runtime, True)
    row = {"a": 1, "b": 1, "c": 1, "g": "x", "t": 0}
    many = pa.Table.from_pylist([row] * n, schema=SCHEMA)
    few = pa.Table.from_pylist([row], schema=SCHEMA)
    runtime.push({"S": few, "T": many, "U": many})
    assert choice.on
    runtime.check()
    # 2^22 partial results with a key of R, and then 2^33 with none: nothing of V arrives.
    runtime.push({"S": many, "R": few})
    assert not choice.on
    assert not len(runtime.groups())
    assert runtime.position == 4 * n + 2 - n
    runtime.check()


@pytest.mark.parametrize("keys", [["R.g"], ["R.g", "S.c"]])
@pytest.mark.parametrize("options", [LIVE, {"bounded": True}])
def test_keys_come_and_go_and_all_arrays_grow(options: dict[str, Any], keys: list[str]) -> None:
    pair = both(star(Rows(50), group_by=keys), renumber_at=100, **options)
    for number in range(12):
        step(pair, number, n=150 if number == 5 else 20, domain=10 ** (1 + number % 4))
    assert pair[1].metrics()["rings"]["serves"]


def test_max_bytes_ends_ring_values_first() -> None:
    query = star(Rows(20))
    plain = Runtime(query, **LIVE)
    forced(plain, False)
    for number in range(6):
        plain.push(batch(number, domain=50))
    runtime = Runtime(query, max_bytes=plain.nbytes, **LIVE)
    choice = forced(runtime, None)
    choice.on = True
    for number in range(6):
        runtime.push(batch(number, domain=50))
        runtime.check()
    assert choice.changes
    assert texts(runtime.groups()) == texts(plain.groups())


def test_sums_of_floats_become_wider_while_ring_values_serve() -> None:
    pair = both(star(Rows(10), aggregates={"x": agg.sum("S.x"), "y": agg.avg("R.x")}), **LIVE)
    for number, x in enumerate((0.0, 1.0, 1e300, 5e-324, float("inf"), float("nan"), -0.1, 0.3, 0.2)):
        rows = batch(number, n=4, domain=2)
        rows["S"] = rows["S"].set_column(4, "x", pa.array([x, 0.1, None, -x]))
        plain, two = (texts(runtime.push(rows)) for runtime in pair)
        assert plain == two
        pair[1].check()


def test_ring_values_stay_behind_when_an_engine_moves(tmp_path: Path) -> None:
    pair = both(star(), **LIVE, strategy="jisc")
    for number in range(3):
        step(pair, number)
    with EngineFile(tmp_path / "engine", b"a key of more than so many bytes") as live:
        live.save(pair[1], b"1")
        moved = live.load(b"1", star())
    assert moved is not None
    moved.check()
    forced(moved, True)
    step((pair[0], moved), 3)


def test_what_serves_is_shown() -> None:
    runtime = Runtime(star(), **LIVE)
    assert "groups by enumeration" in runtime.explain()
    forced(runtime, True)
    runtime.push(batch(1))
    assert "groups by ring values from R" in runtime.explain()
    figures = runtime.metrics()["rings"]
    assert figures["serves"]
    assert figures["roots"] == ["R"]
    assert figures["known"] > 0
    assert 0 < figures["bytes"] < runtime.nbytes
    with_where = Runtime(star(where=pc.field("R.i") > 0), **LIVE)
    assert with_where.metrics()["rings"] is None
    assert "groups by enumeration: `where` reads joined rows" in with_where.explain()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"group_by": ["T.g", "S.g"]}, "all streams"),
        ({"aggregates": {"n": agg.max("R.x")}}, "max is neither"),
        ({"aggregates": {"n": agg.sum(pc.field("R.x") * 2)}}, "expression"),
        ({"where": pc.field("R.x") > 0}, "where"),
    ],
)
def test_queries_that_are_left_to_enumeration(arguments: dict[str, Any], reason: str) -> None:
    ring_roots = served(star(**arguments))
    assert not ring_roots.roots
    assert reason in ring_roots.reason


def test_joins_that_are_left_to_enumeration() -> None:
    streams = [Stream(name, SCHEMA, window=Range(5), time="t") for name in "RST"]
    options: dict[str, Any] = {"aggregates": {"n": agg.count()}}
    cycle = Query(streams, ["R.a = S.a", "S.b = T.b", "T.c = R.c"], **options)
    assert "cycle" in served(cycle).reason
    assert "late" in served(Query(streams, ["R.a = S.a", "S.b = T.b"], lateness=3, **options)).reason
    between = ["R.a = S.a", "S.b = T.b", "R.t between S.t and S.t + 3"]
    assert "comparisons" in served(Query(streams, between, **options)).reason
    # A watermark of the caller: rows may come in any order from then on.
    runtime = Runtime(Query(streams, ["R.a = S.a", "S.b = T.b"], **options), **LIVE)
    choice = forced(runtime, True)
    runtime.push(batch(1), watermark=0)
    assert not choice.on


class CostedPushes:
    """Pushes of which the costs are given."""

    def __init__(self) -> None:
        self.choice = RingChoice()

    def run(self, arrivals: int, rows: float, enumeration: float, ring: float, seen: float = 1.0) -> float:
        """Run; return the share of arrivals that ring values served."""
        served_arrivals, choice = 0, self.choice
        for _ in range(0, arrivals, 500):
            on = choice.wanted()
            if on != choice.on:
                choice.turned(on)
            served_arrivals += 500 * on
            choice.note(500, int(500 * rows * (seen if on else 1)), 500 * (ring if on else enumeration))
        return served_arrivals / arrivals


def test_the_choice_follows_the_costs() -> None:
    clock = CostedPushes()
    assert clock.run(100_000, 2, 1.0, 0.5) == 0  # few joined rows: not even tried
    assert clock.run(100_000, 100, 5.0, 1.0) > 0.9
    assert clock.run(200_000, 5, 1.0, 1.3) < 0.25  # the joined rows become few: enumeration costs less
    changes = clock.choice.changes
    clock.run(2_000_000, 5, 1.0, 1.3)
    assert clock.choice.changes - changes < 16  # trials become rare
    assert clock.run(400_000, 100, 5.0, 1.0) > 0.5
    fresh = CostedPushes()
    assert fresh.run(400_000, 100, 5.0, 1.0, seen=0.01) > 0.9  # they see few of the joined rows


def test_an_interrupted_push_has_happened_in_whole_or_not_at_all() -> None:
    query = star(Rows(20))
    start = Runtime(query, **LIVE)
    for number in range(3):
        start.push(batch(number))
    saved = start.snapshot()
    expected = [texts(start.push(batch(number))) for number in (3, 4, 5)]
    line = 1
    while True:
        runtime = Runtime.restore(saved, query)
        forced(runtime, True)
        assert texts(runtime.push(batch(3))) == expected[0]
        before = runtime.pushes
        try:
            with interrupted_at(line):
                table = runtime.push(batch(4))
        except TracerInterruption:
            if runtime.pushes == before:
                table = runtime.push(batch(4))
            else:
                last = runtime.last_push()
                assert last is not None
                table = last.results
        else:
            break
        runtime.check()
        assert [texts(table), texts(runtime.push(batch(5)))] == expected[1:]
        line += 29
    assert line > 200


def test_trimming_gives_ring_values_back() -> None:
    pair = both(star(), **LIVE)
    step(pair, 1)
    bytes_before, spare = pair[1].nbytes, pair[1].spare_bytes
    known = pair[1].metrics()["rings"]["bytes"]
    assert spare >= known > 0
    pair[1].trim()
    assert pair[1].nbytes <= bytes_before - known
    step(pair, 2)

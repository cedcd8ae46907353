"""Queries of an engine with aggregates: each version gives the windows that it owns, whatever the pushes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import (
    Branch,
    Engine,
    Hopping,
    InputError,
    Predicate,
    Query,
    Range,
    Session,
    Stream,
    Tumbling,
    agg,
)
from eddy.fuzz.aggregate_oracle import TIME, OracleAggregate, OracleWindow, windowed
from eddy.fuzz.oracle import OracleClock
from eddy.queries.changes import CHANGES

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("x", pa.int64()), ("t", pa.int64())])
END = 1 << 30


@dataclass(frozen=True)
class GroupsQuery:
    """A query: how far its join looks back, its window of groups, whether it joins, whether its time is that of R."""

    span: int
    window: OracleWindow
    joins: bool
    of_r: bool
    least: int

    def query(self) -> Query:
        """Return it as a query."""
        time = "R.t" if self.of_r and self.joins else None
        oracle_window = self.window
        if oracle_window.gap:
            window: Any = Session(oracle_window.gap, time=time)
        else:
            window = (
                Tumbling(oracle_window.size, time=time)
                if oracle_window.size == oracle_window.hop
                else Hopping(oracle_window.size, oracle_window.hop, time=time)
            )
        streams = [Stream(name, ROWS, window=Range(self.span), time="t") for name in ("R", "S")[: 1 + self.joins]]
        last = streams[-1].name
        return Query(
            streams,
            ["R.k = S.k"] if self.joins else [],
            group_by={"g": "R.g"},
            aggregates={"n": agg.count(), "total": agg.sum(f"{last}.x"), "kinds": agg.count_distinct(f"{last}.x")},
            having=pc.field("n") >= self.least,
            group_window=window,
        )


@dataclass
class GroupsCase:
    """Rows in order of arrival (stream, row), the options of the clock, and what happens: a change, then a stop."""

    rows: list[tuple[str, dict[str, Any]]]
    timing: dict[str, Any]
    asked: tuple[GroupsQuery, GroupsQuery]
    how: str
    start: int
    change: int
    stop: tuple[str, int]


def drawn(seed: int) -> GroupsCase:
    """Return a random case."""
    rng = random.Random(seed)
    lateness, of = rng.choice((0, 0, 3)), rng.choice(("slowest", "fastest"))
    timing = {"lateness": lateness, "watermark": of}
    timing["idle_after"] = rng.choice((None, 6)) if of == "slowest" else None
    lag = rng.choice((0, 0, 5)) if of == "slowest" else 0
    clock, rows = 0, []
    for _ in range(rng.randint(15, 45)):
        clock += rng.choice((0, 1, 1, 2, 6))
        row = {"k": rng.randint(0, 2), "g": rng.choice(("a", "b")), "x": rng.choice((1, 2, None))}
        late = rng.randint(0, lateness + 1) if lateness else 0
        name = rng.choice("RS")
        rows.append((name, {**row, "t": clock - late - lag * (name == "S")}))
    joins = rng.random() < 0.7

    def asked() -> GroupsQuery:
        size, hop = rng.choice(((4, 4), (10, 10), (6, 2), (5, 3), (2, 5)))
        window = OracleWindow(gap=rng.choice((2, 4))) if rng.random() < 0.3 else OracleWindow(size, hop)
        return GroupsQuery(rng.choice((2, 5, 9)), window, joins, rng.random() < 0.3, rng.choice((0, 0, 2)))

    start = rng.choice((0, 0, rng.randint(0, len(rows) // 3)))
    change = rng.randint(start, len(rows))
    how = rng.choice(sorted(CHANGES))
    # A stop that is given while a version waits for its start keeps it from starting.
    waits = CHANGES[how].waits
    stop = rng.choice(("immediate", "drain")), END if waits else rng.randint(change, len(rows))
    return GroupsCase(rows, timing, (asked(), asked()), how, start, change, stop)


class Reference:
    """The arrivals of a case, and by definition the windows of a version."""

    def __init__(self, case: GroupsCase) -> None:
        timing = case.timing
        clock = OracleClock(dict.fromkeys("RS", timing["lateness"]), timing["watermark"], timing["idle_after"])
        self.places: list[tuple[str, dict[str, Any]]] = []
        self.clock = [-END]
        """By position the greatest event time before it."""
        self.marks = [-END]
        """By position the watermark before it."""
        self.pushed: list[int] = []
        """The arrivals before each row."""
        for name, row in case.rows:
            self.pushed.append(len(self.places))
            if not clock.tick(name, row["t"]):
                self.places.append((name, row))
                self.marks.append(-END if clock.now is None else clock.now)
                self.clock.append(max(self.clock[-1], row["t"]))

    def before(self, position: int) -> int:
        """Return the greatest event time before a position."""
        return self.clock[min(position, len(self.places))]

    def passed(self, time: int, behind: int) -> int:
        """Return the arrival with which the watermark has passed a time; END = none."""
        return next((p for p in range(len(self.places)) if self.marks[p + 1] - behind >= time), END)

    def results(self, asked: GroupsQuery, start: int, warm: bool) -> list[dict[str, Any]]:
        """Return the results of rows from a position on; if warm, those whose last row is such a row."""
        rows = [(p, name, row) for p, (name, row) in enumerate(self.places)]
        if not asked.joins:
            return [{"g": r["g"], "x": r["x"], TIME: r["t"]} for p, name, r in rows if name == "R" and p >= start]
        joined = []
        for p, left, r in rows:
            for q, right, s in rows:
                if (max(p, q) if warm else min(p, q)) < start:
                    continue
                if (left, right) == ("R", "S") and r["k"] == s["k"] and abs(r["t"] - s["t"]) <= asked.span:
                    time = r["t"] if asked.of_r else max(r["t"], s["t"])
                    joined.append({"g": r["g"], "x": s["x"], TIME: time})
        return joined

    def windows(
        self, asked: GroupsQuery, start: int, warm: bool, stop: int, drain: int
    ) -> tuple[list[tuple[int, tuple[Any, ...]]], int]:
        """Return the rows of groups with the arrival of each, and the position from which the version has ended."""
        behind = asked.span if asked.of_r and asked.joins else 0
        functions = [OracleAggregate("count"), OracleAggregate("sum", "x"), OracleAggregate("count_distinct", "x")]
        all_ = windowed(self.results(asked, start, warm), ["g"], functions, asked.window)
        until = self.before(drain) if drain < END else END
        ended, given = stop, []
        if drain < END:
            last = until + 1 if asked.window.gap else 0
            if not asked.window.gap:
                last = until // asked.window.hop * asked.window.hop + asked.window.size
            over = [drain - 1] if until == -END else [drain - 1, self.passed(last, behind)]
        for (begin, end, g), values in all_.items():
            if self.before(start) < begin <= until:
                place = self.passed(end, behind)
                if drain < END and asked.window.gap:
                    over.append(place)
                if place < stop and values[0] >= asked.least:
                    given.append((place, (g, begin, end, *values)))
        if drain < END:
            ended = min(stop, END if max(over) == END else max(over) + 1)
        return [row for row in given if row[0] < END], ended


def wanted(case: GroupsCase, reference: Reference) -> list[tuple[float, tuple[Any, ...]]]:
    """Return the rows of groups, each with when it is given: an arrival, or half an arrival earlier."""
    kind, (old, new) = CHANGES[case.how], case.asked
    how, at = case.stop
    ends = {"stop": at if how == "immediate" else END, "drain": at if how == "drain" else END}

    def version(asked: GroupsQuery, start: int, warm: bool, stop: int = END, drain: int = END) -> Any:
        return reference.windows(asked, start, warm, min(stop, ends["stop"]), min(drain, ends["drain"]))

    drains = kind.drains or kind.warm
    turn = case.change
    if kind.at_result:
        turn = min((place for place, _ in version(new, case.change, False)[0]), default=END)
    former, ended = version(old, case.start, False, *((END, turn) if drains else (turn, END)))
    start = ended if kind.waits else case.change
    later, _ = version(new, start, kind.warm) if start < END else ([], END)
    held = ended - 1.0 if kind.holds else -1.0  # the old version ends with the push of the arrival before
    return [*((float(p), row) for p, row in former), *((max(float(p), held), row) for p, row in later)]


def run(
    case: GroupsCase, reference: Reference, cuts: Sequence[int], share: bool, chance: random.Random
) -> list[Counter[tuple[Any, ...]]]:
    """Return what each push gives; a push ends before each of the rows in `cuts`, and chance restores snapshots."""
    streams = [Stream(name, ROWS, time="t", window=Range(10_000)) for name in ("R", "S")]
    engine = Engine(streams, share=share, **case.timing)
    old, new = (asked.query() for asked in case.asked)
    if share:
        other = Query([Stream(name, ROWS, time="t", window=Range(3)) for name in ("R", "S")], ["R.x = S.x"])
        engine.start("other", other)
    query = None
    given = []
    for first, end in pairwise(cuts):
        if query is None:
            query = engine.start("q", old, at=case.start)
            query.change(new, case.how, at=case.change)  # type: ignore[arg-type]
            if case.stop[1] < END:
                query.stop(case.stop[0], at=case.stop[1])  # type: ignore[arg-type]
        pushed: dict[str, list[Any]] = {"R": [], "S": []}
        for name, row in case.rows[first:end]:
            pushed[name].append(row)
        results = engine.push(pushed, ["RS".index(name) for name, _ in case.rows[first:end]])
        table = results.get("q")
        given.append(Counter() if table is None else Counter(tuple(row.values()) for row in table.to_pylist()))
        engine.check()
        if chance.random() < 0.3:
            saved = engine.snapshot()
            queries = {name: [v.query for v in running.versions] for name, running in engine.queries.items()}
            live = {name: versions for name, versions in queries.items() if engine[name].live}
            early = {name: engine[name].groups() for name in live if name == "q"}
            engine = Engine.restore(saved, streams, live)
            assert engine.snapshot() == saved
            assert {name: engine[name].groups() for name in early} == early
    return given


@pytest.mark.campaign(1)
@pytest.mark.parametrize("block", range(4))
def test_versions_give_the_windows_that_they_own(block: int) -> None:
    total = 0
    for seed in range(12 * block, 12 * block + 12):
        case = drawn(seed)
        reference = Reference(case)
        rows = wanted(case, reference)
        rng = random.Random(seed)
        for cuts in (
            range(len(case.rows) + 1),
            sorted({0, len(case.rows), *(rng.randrange(len(case.rows)) for _ in range(4))}),
        ):
            expected = []
            for first, end in pairwise(cuts):
                low = reference.pushed[first] - 1
                high = (reference.pushed[end] if end < len(case.rows) else len(reference.places)) - 1
                expected.append(Counter(row for when, row in rows if low < when <= high))
            ran = run(case, reference, list(cuts), seed % 2 == 0, rng)
            assert ran == expected, (seed, case, list(cuts))
        total += len(rows)
    assert total > 25


def test_a_push_that_fails_changes_no_group() -> None:
    def fragile(batch: pa.RecordBatch) -> Any:
        if 2 in batch["n"].to_pylist():
            raise ValueError("two")
        return pa.array([True] * len(batch))

    def counted(having: Any, size: int) -> Query:
        streams = [Stream(name, ROWS, time="t", window=Range(5)) for name in ("R", "S")]
        window = Tumbling(size)
        return Query(streams, ["R.k = S.k"], aggregates={"n": agg.count()}, having=having, group_window=window)

    engine = Engine([Stream(name, ROWS, time="t") for name in ("R", "S")])
    engine.start("sound", counted(None, 10))
    engine.start("fragile", counted(Predicate(fragile, columns=["n"]), 5))
    values = {"k": 1, "g": "a", "x": 1}
    engine.push({"R": [{**values, "t": 1}], "S": [{**values, "t": 2}]})
    for _ in range(2):
        with pytest.raises(InputError, match="two"):
            engine.push({"R": [{**values, "t": 3}, {**values, "k": 9, "t": 6}], "S": [{**values, "t": 6}]})
        assert engine.position == 2
        engine.check()
    engine["fragile"].stop()
    engine.push({"S": [{**values, "t": 4}]})
    assert engine.push({"R": [{**values, "k": 9, "t": 20}], "S": [{**values, "t": 20}]})["sound"].column(
        "n"
    ).to_pylist() == [2]


def test_early_results_are_those_of_open_windows_of_each_version() -> None:
    engine = Engine([Stream(name, ROWS, time="t") for name in ("R", "S")])
    query = GroupsQuery(5, OracleWindow(10, 10), False, False, 0).query()
    running = engine.start("q", query)
    assert running.groups().num_rows == 0
    values = {"k": 1, "g": "a", "x": 1}
    engine.push({"R": [{**values, "t": 1}, {**values, "t": 12}], "S": [{**values, "t": 12}]})
    running.change(GroupsQuery(5, OracleWindow(5, 5), False, False, 0).query(), "drain-stream")
    engine.push({"R": [{**values, "t": 14}, {**values, "t": 16}], "S": [{**values, "t": 16}]})
    windows = [(row["window_start"], row["window_end"], row["n"]) for row in running.groups().to_pylist()]
    assert windows == [(10, 20, 3), (15, 20, 1)]
    plain = Query([Stream(name, ROWS, time="t", window=Range(5)) for name in ("R", "S")], ["R.k = S.k"])
    with pytest.raises(InputError, match="groups\\(\\) is for queries with aggregates"):
        engine.start("plain", plain).groups()


def test_what_an_engine_refuses_names_what_it_has() -> None:
    streams = [Stream(name, ROWS, time="t", window=Range(5)) for name in ("R", "S")]
    engine = Engine([Stream(name, ROWS, time="t") for name in ("R", "S")])
    with pytest.raises(InputError, match="give the query a group_window"):
        engine.start("q", Query(streams, ["R.k = S.k"], group_by=["R.g"], aggregates={"n": agg.count()}))
    endless = [Stream("R", ROWS, time="t"), Stream("S", ROWS, time="t", window=Range(5))]
    late = Query(endless, ["R.k = S.k"], aggregates={"n": agg.count()}, group_window=Tumbling(5, time="R.t"))
    with pytest.raises(InputError, match="results with any event time may come"):
        engine.start("q", late)
    groups: dict[str, Any] = {"aggregates": {"n": agg.count()}, "group_window": Tumbling(5)}
    branched = Query(streams[:1], branches=[Branch(streams[1:], ["R.k = S.k"], "left")], **groups)
    assert engine.start("b", branched).state == "running"
    inner = Query(streams, ["R.k = S.k"], **groups)
    with pytest.raises(InputError, match="changelog"):
        engine.start("q", inner, output="changelog")
    assert engine.start("q", inner).groups().num_rows == 0

"""Queries over tables and windows in an engine: a handover leads to what a runtime gives that always ran the new query.

Rows come out of order, and stay in windows in the order of their arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Branch, Engine, Query, Range, Rows, Runtime, Stream, Table, Top, Unbounded, agg

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
VERSIONS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
NAMES = ("r", "s", "t")
Drawn = tuple[dict[str, list[dict[str, Any]]], list[int]]


def windowed(name: str, window: Range | Rows | Unbounded) -> Stream:
    return Stream(name, ROWS, window=window, time="at")


def low(limit: int) -> Table:
    return Table("t", VERSIONS, key="k", ops="column", filter=pc.field("v") < limit)


def joined(limit: int, lateness: int = 0) -> Query:
    inputs = [windowed("r", Range(8)), windowed("s", Range(12)), low(limit)]
    return Query(inputs, ["r.k = s.k", "s.k = t.k"], select={"a": "r.v", "b": "s.v", "c": "t.v"}, lateness=lateness)


def left(limit: int, lateness: int = 0) -> Query:
    branch = Branch([windowed("s", Range(6)), low(limit)], ["r.k = s.k", "s.g = t.g"], "left")
    return Query(
        [windowed("r", Range(8))], branches=[branch], select={"a": "r.v", "b": "s.v", "c": "t.v"}, lateness=lateness
    )


def streams(limit: int, lateness: int = 0) -> Query:
    inputs = [windowed("r", Range(8)), windowed("s", Range(limit % 10 + 1))]
    return Query(
        inputs, ["r.k = s.k"], select={"a": "r.v", "b": "s.v"}, where=pc.field("r.v") < limit, lateness=lateness
    )


def grouped(limit: int, lateness: int = 0) -> Query:
    inputs = [windowed("r", Range(9)), windowed("s", Range(9)), low(limit)]
    values = {"n": agg.count(), "most": agg.max("s.v")}
    return Query(inputs, ["r.k = s.k", "r.g = t.g"], group_by={"g": "t.g"}, aggregates=values, lateness=lateness)


def first(limit: int, lateness: int = 0) -> Query:
    inputs, top = [windowed("r", Range(9)), windowed("s", Range(9)), low(limit)], Top(2, "t.g", ["r.v desc", "s.v"])
    return Query(inputs, ["r.k = s.k", "r.k = t.k"], select={"a": "r.v", "b": "s.v"}, top=top, lateness=lateness)


def counted(limit: int, lateness: int = 0) -> Query:
    inputs = [windowed("r", Rows(4)), windowed("s", Range(9)), low(limit)]
    return Query(inputs, ["r.k = s.k", "r.k = t.k"], select={"a": "r.v", "b": "s.v"}, lateness=lateness)


def over(limit: int, lateness: int = 0) -> Query:
    both = [windowed("r", Range(9)), windowed("s", Range(9))]
    inner = Query(both, ["r.k = s.k"], group_by={"g": "r.g"}, aggregates={"n": agg.count()}, lateness=lateness)
    return Query([Table("d", inner), low(limit)], ["d.g = t.g"], select={"n": "d.n", "v": "t.v"})


MAKERS: list[Callable[..., Query]] = [joined, left, streams, grouped, first, counted, over]


def follow(shown: Counter[str], changes: pa.Table) -> None:
    for row in changes.to_pylist():
        sign = -1 if row.pop("op") in ("-D", "-U") else 1
        shown[str(row)] += sign
    for row in [row for row, n in shown.items() if not n]:
        del shown[row]


def answer(query: Query, pushes: list[Drawn]) -> Counter[str]:
    """Return what a runtime of the query has given after all pushes."""
    runtime, shown = Runtime(query, output="changelog"), Counter[str]()
    used = [name for name in NAMES if query.inputs({name: []})]
    for rows, order in pushes:
        pushed = {name: rows[name] for name in used}
        places = [used.index(NAMES[i]) for i in order if NAMES[i] in used]
        follow(shown, runtime.push(pushed) if runtime.derived else runtime.push(pushed, places))
    return shown


def draw_push(draw: Random, now: int, disorder: bool) -> tuple[Drawn, int]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    order = [draw.randrange(3) for _ in range(draw.randrange(8))]
    for i in order:
        now += draw.randrange(3)
        row = {"k": draw.randrange(3), "g": draw.choice("ab"), "v": draw.randrange(30)}
        late = draw.choice((0, 0, 0, 2, 4)) if disorder else 0
        rows[NAMES[i]].append({**row, "op": draw.choice("cud")} if NAMES[i] == "t" else {**row, "at": now - late})
    return (rows, order), now


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(16))
def test_a_handover_leads_to_the_answer_of_the_new_query(seed: int) -> None:
    draw, lateness, disorder = Random(seed), (0, 0, 3)[seed % 3], seed % 2 == 0
    # Without an order, the rows of a push come by event time, so others of them are late.
    makers = MAKERS[:-1] if disorder else MAKERS
    engine = Engine(
        [*(windowed(name, Unbounded()) for name in "rs"), Table("t", VERSIONS, key="k", ops="column")],
        lateness=lateness,
    )
    running: dict[str, tuple[Callable[..., Query], int, Counter[str]]] = {}
    pushes: list[Drawn] = []
    now = given = 0
    for _ in range(30):
        chance, limit = draw.random(), draw.randrange(5, 31)
        if chance < 0.2 and len(running) < 4:
            make, name = draw.choice(makers), f"q{len(running)}"
            engine.start(name, make(limit), output="changelog", warm=True)
            running[name] = make, limit, Counter()
        elif chance < 0.5 and running:
            name = draw.choice(sorted(running))
            make, _, shown = running[name]
            engine[name].change(make(limit), "handover")
            running[name] = make, limit, shown
        elif chance < 0.6:
            saved, queries = (
                engine.snapshot(),
                {n: [version.query for version in query.versions] for n, query in engine.queries.items()},
            )
            engine = Engine.restore(saved, engine.sources.streams, queries)
            assert engine.snapshot() == saved
        push, now = draw_push(draw, now, disorder)
        pushes.append(push)
        results = engine.push(*push)
        engine.check()
        for name, (make, least, shown) in running.items():
            follow(shown, results[name])
            given += len(results[name])
            assert shown == answer(make(least, lateness), pushes), f"{name}: {make.__name__}"
    assert given > 20

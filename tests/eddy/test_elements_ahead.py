"""Control elements that are given ahead of their positions do what they do when they are given there."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.queries.changes import CHANGES, How

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
END = 60
KINDS: dict[str, tuple[How, ...]] = {
    "joins": tuple(CHANGES),
    "groups": tuple(CHANGES),
    "changelog": ("immediate", "drain-stream"),
    "handovers": ("immediate", "handover"),
    "branches": ("immediate", "handover"),
}
"""The changes of each kind of queries."""


class ElementAhead(NamedTuple):
    """An element of query "q" at a position: the first one starts it, the others change or stop it."""

    at: int
    how: str
    stops: bool
    query: eddy.Query


class Ran(NamedTuple):
    """The results of an engine, its state, its history, and the number of changes that started a stopped query."""

    results: list[tuple[Any, ...]]
    state: str
    history: list[dict[str, Any]]
    again: int


def drawn_query(chance: random.Random, kind: str, counted: bool) -> eddy.Query:
    def window() -> eddy.Rows | eddy.Range:
        return eddy.Rows(chance.randrange(1, 4)) if counted else eddy.Range(chance.randrange(1, 9))

    if kind == "branches" and chance.random() < 0.5:
        core, side = (eddy.Stream(name, SCHEMA, window=eddy.Range(chance.randrange(1, 9)), time="t") for name in "RS")
        return eddy.Query([core], branches=[eddy.Branch([side], ["R.k = S.k"], "left")], select=["R.n", "S.n"])
    least = chance.choice([None, None, 10])
    kept = None if least is None else pc.field("n") >= least
    streams = [eddy.Stream(name, SCHEMA, window=window(), time="t", filter=kept) for name in "RS"]
    if kind == "groups":
        groups: dict[str, Any] = {"aggregates": {"c": eddy.agg.count()}, "group_window": eddy.Tumbling(3)}
        return eddy.Query(streams, ["R.k = S.k"], **groups)
    return eddy.Query(streams, ["R.k = S.k"], select=["R.n", "S.n"])


def drawn_elements(chance: random.Random, kind: str) -> list[ElementAhead]:
    counted = kind in ("joins", "changelog") and chance.random() < 0.5
    places = sorted(chance.randrange(END * 2 // 3) for _ in range(chance.randrange(2, 6)))
    if kind == "handovers":
        # A version that begins where another one takes its place has given its answer, or has not.
        places = sorted(set(places))
    elements = []
    for at in places:
        stops = chance.random() < 0.3
        # Rows without a partner cannot drain.
        plain = not any(given.query.branches for given in elements if given is elements[0] or not given.stops)
        how = chance.choice((["immediate", "drain"] if plain else ["immediate"]) if stops else KINDS[kind])
        elements.append(ElementAhead(at, how, stops, drawn_query(chance, kind, counted)))
    return elements


def run(elements: list[ElementAhead], given_at: list[int], cuts: set[int], output: Any) -> Ran:
    """Give each element of some at a position; pushes are cut there and at other positions."""
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Unbounded(), time="t") for name in "RS"]
    engine, results, again = eddy.Engine(streams), [], 0
    due = defaultdict(list)
    for place, element in zip(given_at, elements, strict=True):
        due[place].append(element)
    stops = sorted({0, END, *cuts, *given_at})
    for first, end in zip(stops, [*stops[1:], END], strict=True):
        for element in due[first]:
            if element is elements[0]:
                engine.start("q", element.query, at=element.at, output=output)
            elif element.stops:
                engine["q"].stop(element.how, element.at)  # type: ignore[arg-type]
            else:
                again += engine["q"].state == "stopped"
                engine["q"].change(element.query, element.how, element.at)  # type: ignore[arg-type]
        rows = [{"k": n * 7 % 3 % 2, "t": n // 3, "n": n} for n in range(first, end)]
        order = [n * 5 % 7 % 2 for n in range(first, end)]
        batches = {name: [row for row, i in zip(rows, order, strict=True) if i == k] for k, name in enumerate("RS")}
        for table in engine.push(batches, order).values():
            results += [tuple(row.values()) for row in table.to_pylist()]
    return Ran(results, engine["q"].state, engine.history().to_pylist(), again)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_given_ahead_do_what_they_do_at_their_positions(kind: str) -> None:
    output, given, again = "changelog" if kind in ("changelog", "handovers") else "append", 0, 0
    for seed in range(60 if kind == "joins" else 30):
        chance = random.Random(seed)
        elements = drawn_elements(chance, kind)
        wanted = run(elements, [element.at for element in elements], set(), output)
        # Never before the elements that it follows.
        ahead = sorted(chance.randrange(element.at + 1) for element in elements)
        ran = run(elements, ahead, {chance.randrange(END) for _ in range(4)}, output)
        alike = sorted if kind != "joins" else list
        assert alike(ran.results) == alike(wanted.results), seed
        assert ran.state == wanted.state, seed
        assert ran.history == wanted.history, seed
        given += len(wanted.results)
        again += wanted.again
    assert given > (1000 if kind == "joins" else 50)
    assert again > 5


@pytest.mark.parametrize("how", ["fresh", "handover", "waits"])
def test_a_drain_ends_without_rows_that_have_a_place_in_a_window_of_rows(how: str) -> None:
    """A filter accepts none, and rows before a fresh start do not count; nor are rows kept for them."""
    rows = pa.schema([("k", pa.int64()), ("n", pa.int64())])

    def query(least: int) -> eddy.Query:
        streams = [
            eddy.Stream(name, rows, window=eddy.Rows(1), filter=pc.field("n") >= least if name == "R" else None)
            for name in "RS"
        ]
        return eddy.Query(streams, ["R.k = S.k"], select=["R.n"])

    engine = eddy.Engine([eddy.Stream(name, rows) for name in "RS"])

    def push(n: int, value: int = 0) -> None:
        for k in range(n):
            engine.push({"RS"[k % 2]: [{"k": 1, "n": value}]})

    push(4, 9)
    engine.start("q", query(100))
    push(200)
    assert sum(len(row_store.rows() or ()) for row_store in engine.joins.kept) < 10
    if how == "handover":
        engine["q"].change(query(100), "handover")
    elif how == "waits":
        engine["q"].change(query(100), "delayed-drain")
    engine["q"].stop("drain", at=engine.position + 3)
    push(5)
    assert engine["q"].state == "stopped"
    # An accepted row stays in its window until another one comes.
    engine.start("q", query(5))
    push(1, 9)
    engine["q"].stop("drain")
    push(8)
    assert engine["q"].state == "draining"
    push(1, 9)
    assert engine["q"].state == "stopped"


@pytest.mark.parametrize("branched", [False, True])
@pytest.mark.parametrize("size", [1, 4, 40])
def test_a_handover_that_finds_that_the_query_had_ended_uses_no_rows_of_before(branched: bool, size: int) -> None:
    """The drain from 2 is over at 14, in the middle of a push or not; the handover at 20 was given before."""
    r, s = (eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS")
    plain = eddy.Query([r, s], ["R.k = S.k"], select=["R.n", "S.n"])
    left = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")], select=["R.n", "S.n"])
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, window=eddy.Unbounded(), time="t") for name in "RS"])
    running = engine.start("q", plain)
    running.stop("drain", at=2)
    running.change(left if branched else plain, "handover", at=20)
    pairs = []
    for first in range(0, 40, size):
        rows = [{"k": 0, "t": n, "n": n} for n in range(first, first + size)]
        parted = {name: [row for row in rows if row["n"] % 2 == k] for k, name in enumerate("RS")}
        table = engine.push(parted, [row["n"] % 2 for row in rows])["q"]
        pairs += [tuple(row.values()) for row in table.to_pylist()]
    wanted = [(m, n) for m in range(0, 40, 2) for n in range(1, 40, 2) if abs(m - n) < 10]
    assert sorted(pairs) == [pair for pair in wanted if min(pair) < 2 or min(pair) >= 20]
    assert running.complete_from == 20


@pytest.mark.parametrize("size", [1, 7, 40])
def test_groups_of_a_handover_that_finds_the_query_ended_come_once(size: int) -> None:
    """Its version has taken the push as one that starts warm when it turns out to start fresh."""

    def counted(tumbling: int) -> eddy.Query:
        r, s = (eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in "RS")
        groups: dict[str, Any] = {"aggregates": {"c": eddy.agg.count()}, "group_window": eddy.Tumbling(tumbling)}
        return eddy.Query([r, s], ["R.k = S.k"], **groups)

    engine = eddy.Engine([eddy.Stream(name, SCHEMA, window=eddy.Unbounded(), time="t") for name in "RS"])
    running = engine.start("q", counted(4))
    running.stop("drain", at=2)
    running.change(counted(5), "handover", at=20)
    counts = {}
    for first in range(0, 40, size):
        rows = [{"k": 0, "t": n, "n": n} for n in range(first, min(first + size, 40))]
        parted = {name: [row for row in rows if row["n"] % 2 == k] for k, name in enumerate("RS")}
        table = engine.push(parted, [row["n"] % 2 for row in rows])["q"]
        counts.update({row["window_start"]: row["c"] for row in table.to_pylist()})
    counts.update({row["window_start"]: row["c"] for row in engine.finish()["q"].to_pylist()})
    assert {start: count for start, count in counts.items() if start >= 20} == {20: 6, 25: 15, 30: 15, 35: 15}


def test_a_change_that_finds_the_query_stopped_may_be_of_any_kind() -> None:
    """Given ahead as well: a drain of rows without partners has no meaning, and nothing has to drain."""
    r, s = (eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS")
    plain = eddy.Query([r, s], ["R.k = S.k"], select=["R.n", "S.n"])
    left = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")], select=["R.n", "S.n"])
    for old, new in ((plain, left), (left, plain)):
        engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
        running = engine.start("q", old)
        running.stop(at=2)
        with pytest.raises(eddy.InputError, match="has no meaning for a query with branches"):
            running.change(new, "drain-stream", at=1)
        running.change(new, "drain-stream", at=4)
        assert running.state == "changing"
        engine.push({"R": [{"k": 0, "t": n, "n": n} for n in range(4)]})
        assert running.state == "running"
        assert running.query is new

"""Control elements that are given ahead of their positions do what they do when they are given there."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.queries.changes import CHANGES

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
END = 60
ALONE = ("immediate", "drain-stream")
"""Changes of changelogs."""


class ElementAhead(NamedTuple):
    """An element of query "q" at a position: the first one starts it, the others change or stop it."""

    at: int
    how: str
    stops: bool
    query: eddy.Query


class Ran(NamedTuple):
    """The results of an engine, its state, its history, and the elements that it refused."""

    results: list[tuple[Any, ...]]
    state: str
    history: list[dict[str, Any]]
    refused: list[ElementAhead]


def drawn_query(chance: random.Random, kind: str, counted: bool) -> eddy.Query:
    def window() -> eddy.Rows | eddy.Range:
        return eddy.Rows(chance.randrange(1, 4)) if counted else eddy.Range(chance.randrange(1, 9))

    least = chance.choice([None, None, 10])
    kept = None if least is None else pc.field("n") >= least
    streams = [eddy.Stream(name, SCHEMA, window=window(), time="t", filter=kept) for name in "RS"]
    if kind == "groups":
        groups: dict[str, Any] = {"aggregates": {"c": eddy.agg.count()}, "group_window": eddy.Tumbling(3)}
        return eddy.Query(streams, ["R.k = S.k"], **groups)
    return eddy.Query(streams, ["R.k = S.k"], select=["R.n", "S.n"])


def drawn_elements(chance: random.Random, kind: str) -> list[ElementAhead]:
    counted = kind != "groups" and chance.random() < 0.5
    hows = ALONE if kind == "changelog" else tuple(CHANGES)
    places = sorted(chance.randrange(END * 2 // 3) for _ in range(chance.randrange(2, 6)))
    elements = []
    for at in places:
        stops = chance.random() < 0.3
        how = chance.choice(["immediate", "drain"] if stops else hows)
        elements.append(ElementAhead(at, how, stops, drawn_query(chance, kind, counted)))
    return elements


def run(elements: list[ElementAhead], given_at: list[int], cuts: set[int], output: Any) -> Ran:
    """Give each element of some at a position; pushes are cut there and at other positions."""
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Unbounded(), time="t") for name in "RS"]
    engine, results, refused = eddy.Engine(streams), [], []
    due = defaultdict(list)
    for place, element in zip(given_at, elements, strict=True):
        due[place].append(element)
    stops = sorted({0, END, *cuts, *given_at})
    for first, end in zip(stops, [*stops[1:], END], strict=True):
        for element in due[first]:
            try:
                if element is elements[0]:
                    engine.start("q", element.query, at=element.at, output=output)
                elif element.stops:
                    engine["q"].stop(element.how, element.at)  # type: ignore[arg-type]
                else:
                    engine["q"].change(element.query, element.how, element.at)  # type: ignore[arg-type]
            except eddy.InputError:
                refused.append(element)
        rows = [{"k": n * 7 % 3 % 2, "t": n // 3, "n": n} for n in range(first, end)]
        order = [n * 5 % 7 % 2 for n in range(first, end)]
        batches = {name: [row for row, i in zip(rows, order, strict=True) if i == k] for k, name in enumerate("RS")}
        for table in engine.push(batches, order).values():
            results += [tuple(row.values()) for row in table.to_pylist()]
    return Ran(results, engine["q"].state, engine.history().to_pylist(), refused)


@pytest.mark.parametrize("kind", ["joins", "groups", "changelog"])
def test_elements_given_ahead_do_what_they_do_at_their_positions(kind: str) -> None:
    output, given, plain = "changelog" if kind == "changelog" else "append", 0, 0
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
        given += len(wanted.results)
        if wanted.refused:
            # A change finds the query stopped: it is refused there, and ahead or without effect.
            void = [event for event in ran.history if event["event"] == "no effect"]
            assert len(void) + len(ran.refused) == len(wanted.refused), seed
        else:
            plain += 1
            assert ran.history == wanted.history, seed
    assert given > (1000 if kind == "joins" else 50)
    assert plain > 15


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

"""An exception at any line of an engine's push or control element: it happened in whole or not at all.

A calm engine gets the same calls without exceptions, and has the same results.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.queries.changes import CHANGES
from eddy.queries.query import RunningQuery
from tests.eddy.test_interrupts import ROOT, Seen, traced

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("x", pa.int64())])
NAMES = ("R", "S", "T")
CALM = frozenset(path.name for path in ROOT.rglob("*") if path.is_dir()) - {"queries", "pipeline"}
"""Folders that other tests interrupt."""


def query(names: str, size: int, kept: Any = None) -> eddy.Query:
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(size), time="t", filter=kept) for n in names]
    return eddy.Query(streams, [f"{names[0]}.k = {n}.k" for n in names[1:]], select={n: f"{n}.x" for n in names})


QUERIES = (
    lambda: query("RS", 8, pc.field("x") != 9),
    lambda: query("RS", 14, pc.field("x") > 5),
    lambda: query("RST", 10),
    lambda: query("ST", 12, lambda batch: pc.greater(batch["x"], 3)),
)


class EngineTwins:
    """Two engines that get the same calls, one of them with exceptions."""

    def __init__(self) -> None:
        self.chance = random.Random(4)
        streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in NAMES]
        self.calm, self.tried = (eddy.Engine(streams, lateness=1) for _ in range(2))
        self.seen = Seen(CALM)
        self.interrupted = 0

    def push(self) -> None:
        rows: dict[str, list[dict[str, int]]] = {name: [] for name in NAMES}
        order = [self.chance.randrange(3) for _ in range(6)]
        for place, i in enumerate(order, self.calm.position):
            late = self.chance.random() < 0.1
            rows[NAMES[i]].append({"k": self.chance.randrange(2), "t": place // 2 - 3 * late, "x": place})
        before = self.tried.position
        self.compare_call(lambda engine: engine.push(rows, order), lambda: self.tried.position > before)

    def rise(self) -> None:
        """Let event time pass without rows."""
        watermark = (self.calm.watermark or 0) + self.chance.randrange(1, 4)
        self.compare_call(
            lambda engine: engine.push({}, watermark=watermark), lambda: self.tried.watermark == watermark
        )

    def finish(self) -> None:
        self.compare_call(lambda engine: engine.finish(), lambda: self.tried.finished)

    def compare_call(self, call: Callable[[eddy.Engine], Any], happened: Callable[[], bool]) -> None:
        """Make a call that takes rows in with both, with one of them until it has happened."""
        wanted = call(self.calm)
        while True:
            results = traced(lambda: call(self.tried), self.seen)
            last = self.tried.last_push()
            if happened():
                break
            self.interrupted += 1
        assert last is not None
        assert last.position == self.tried.position == self.calm.position
        assert results is None or results is last.results
        assert {name: table.to_pylist() for name, table in last.results.items()} == {
            name: table.to_pylist() for name, table in wanted.items()
        }
        self.compare()

    def give(self, element: Callable[[eddy.Engine], Any]) -> None:
        element(self.calm)
        events = self.tried.history().num_rows
        while self.tried.history().num_rows == events:
            traced(lambda: element(self.tried) or True, self.seen)
            self.interrupted += 1
        self.compare()

    def compare(self) -> None:
        assert self.tried.history().equals(self.calm.history())
        assert self.tried.late_counts == self.calm.late_counts
        states = [
            {name: running.state for name, running in engine.queries.items()} for engine in (self.calm, self.tried)
        ]
        assert states[0] == states[1]


def test_an_exception_at_each_line() -> None:
    twins, kinds = EngineTwins(), cycle(CHANGES)
    for number in range(60):
        running = [
            name for name, running_query in twins.calm.queries.items() if running_query.state in ("running", "changing")
        ]
        at = twins.calm.position + twins.chance.randrange(0, 9)
        new, warm = QUERIES[number % len(QUERIES)](), number % 2 == 1
        if len(running) < 3:
            twins.give(lambda engine: engine.start(f"q{number}", new, warm=warm))  # noqa: B023
        name = twins.chance.choice([*running, f"q{number}"]) if len(running) < 3 else twins.chance.choice(running)
        how = next(kinds)
        for paused in [name for name, query in twins.calm.queries.items() if query.state == "paused"]:
            twins.give(lambda engine: engine[paused].resume())  # noqa: B023
        if number % 7 == 3 and twins.calm[name].state == "running" and _may_change(twins.calm[name], at):
            twins.give(lambda engine: engine[name].pause(at))  # noqa: B023
        elif number % 5 == 4:
            twins.give(lambda engine: engine[name].stop("drain" if number % 2 else "immediate", at=at))  # noqa: B023
        elif _may_change(twins.calm[name], at):
            twins.give(lambda engine: engine[name].change(new, how, at))  # noqa: B023
        twins.push()
        twins.rise() if number % 4 == 1 else twins.push()
    twins.finish()
    assert twins.interrupted > 150
    assert len({Path(file).name for file, _ in twins.seen}) >= 8


def _may_change(running: RunningQuery, at: int) -> bool:
    return at >= running._last_element


def test_a_condition_that_fails_leaves_the_engine_as_it_was() -> None:
    def fragile(batch: pa.RecordBatch) -> pa.Array:
        if 7 in batch["x"].to_pylist():
            raise ZeroDivisionError("seven")
        return pc.greater_equal(batch["x"], 0)

    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(20), time="t") for name in "RS"]
    engine, calm = eddy.Engine(streams), eddy.Engine(streams)
    for twin in (engine, calm):
        twin.start("sound", query("RS", 20))
        twin.start("other", query("ST"[:1] + "R", 20))
    engine.start("fragile", query("RS", 20, fragile))
    first = {"R": [{"k": 1, "t": 1, "x": 1}], "S": [{"k": 1, "t": 2, "x": 2}]}
    second = {"R": [{"k": 1, "t": 3, "x": 7}], "S": [{"k": 1, "t": 4, "x": 4}]}
    engine.push(first)
    calm.push(first)
    for _ in range(2):
        with pytest.raises(eddy.InputError, match=r"stream R: its filter.*seven"):
            engine.push(second)
        assert engine.position == 2
    engine["fragile"].stop()
    results, wanted = engine.push(second), calm.push(second)
    assert results["sound"].to_pylist() == wanted["sound"].to_pylist() != []
    assert results["other"].to_pylist() == wanted["other"].to_pylist() != []


def test_one_call_at_a_time() -> None:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    refused: list[str] = []

    def nosy(batch: pa.RecordBatch) -> pa.Array:
        try:
            engine.push({})
        except eddy.StateError as problem:
            refused.append(str(problem))
        return pc.greater(batch["x"], 0)

    engine.start("q", query("RS", 5, nosy))
    engine.push({"R": [{"k": 1, "t": 1, "x": 1}], "S": [{"k": 1, "t": 2, "x": 2}]})
    assert "push: this engine is in the middle of another call" in refused[0]


def test_a_filter_that_fails_for_rows_from_before_its_query_stops_nothing() -> None:
    def fragile(batch: Any) -> Any:
        if 7 in batch["x"].to_pylist():
            raise ZeroDivisionError("seven")
        return pc.greater_equal(batch["x"], 0)

    engine = eddy.Engine([eddy.Stream(name, SCHEMA, window=eddy.Rows(5), time="t") for name in "RS"])
    engine.push({"R": [{"k": 1, "t": 1, "x": 7}], "S": [{"k": 1, "t": 2, "x": 2}]})
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Rows(3), time="t", filter=fragile) for name in "RS"]
    running = engine.start("q", eddy.Query(streams, ["R.k = S.k"]))
    for t in range(3, 12):
        engine.push({name: [{"k": 1, "t": t, "x": t % 3}] for name in "RS"})
    assert engine.snapshot()
    assert running.n_results == 1 + 3 + 5 + 6 * 6
    running.stop("drain")
    assert running.state == "draining"


@pytest.mark.parametrize("values", [100, 200])
def test_dictionaries_of_many_pushes_may_have_more_values_than_one(values: int) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("k", pa.int64()), ("w", kind)])
    inputs = [eddy.Table("T", schema, key="k"), eddy.Stream("R", schema, eddy.Unbounded())]
    engine = eddy.Engine(inputs)

    def row(i: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([[i], pa.array([f"w{i}"]).dictionary_encode().cast(kind)], schema=schema)

    for i in range(values):
        engine.push({"T": row(i), "R": row(i)})
    again = eddy.Engine.restore(engine.snapshot(), inputs, {})
    assert again.snapshot() == engine.snapshot()
    for either in (engine, again):
        over_stream = eddy.Query([inputs[1]], select=["R.w"])
        over_both = eddy.Query(inputs, ["T.k = R.k"], select={"t": "T.w", "r": "R.w"})
        if values > 128:
            with pytest.raises(eddy.InputError, match=r"'w' .* declare the wider type"):
                either.start("s", over_stream, warm=True)
            running = either.start("q", over_both, output="changelog")
            with pytest.raises(eddy.InputError, match=r"'w' .* declare the wider type"):
                either.push({"R": row(5)})
            running.stop()
            assert either.push({"R": row(5)}) == {}
        else:
            either.start("q", over_both, output="changelog")
            assert either.push({"R": row(5)})["q"].to_pylist() == [{"op": "+I", "t": "w5", "r": "w5"}]


@pytest.mark.parametrize("kind", [eddy.Table, eddy.VersionedTable])
def test_a_log_of_a_table_that_is_too_long_for_a_batch_stops_no_push(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(*_: object) -> None:
        raise eddy.InputError("rows do not fit into columns of 2 GiB: use shorter windows")

    timed = {"time": "t"} if kind is eddy.VersionedTable else {}
    table = kind("D", SCHEMA, key="k", **timed)
    engine = eddy.Engine([table, eddy.Stream("R", SCHEMA, window=eddy.Range(3), time="t")])
    monkeypatch.setattr("eddy.queries.kept.KeptTable.LEAST", 2)
    with monkeypatch.context() as patch:
        patch.setattr("eddy.queries.kept.one_batch", too_long)
        for t in range(20):
            engine.push({name: [{"k": t % 2, "t": t, "x": t}] for name in "DR"})
    kept = engine.joins.kept[0]
    assert sum(map(len, kept.batches)) == 20
    for t in range(20, 40):
        engine.push({name: [{"k": t % 2, "t": t, "x": t}] for name in "DR"})
    assert sum(map(len, kept.batches)) < 40
    assert engine.position == 80

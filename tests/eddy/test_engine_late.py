"""Late rows of an engine are those of a runtime over the same streams."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import eddy

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("text", pa.string())])


def streams(**more: Any) -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t", **more) for name in "RS"]


def rows(chance: random.Random, clock: int) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [{"k": 0, "t": clock + chance.randrange(9), "text": chance.choice((None, "a"))} for _ in range(4)]
        for name in "RS"
    }


def test_late_rows_are_kept_until_they_are_taken() -> None:
    chance, sources = random.Random(3), streams()
    engine, lost = eddy.Engine(sources, lateness=1, late_rows=20), 0
    runtime = eddy.Runtime(eddy.Query(sources, ["R.k = S.k"], lateness=1, late_rows=20))
    engine.start("q", eddy.Query(streams(), ["R.k = S.k"]))
    for clock in range(0, 120, 2):
        pushed = rows(chance, clock)
        assert engine.push(pushed)["q"].num_rows == runtime.push(pushed).num_rows
        assert engine.late_counts == runtime.late_counts
        if chance.random() < 0.15:
            saved = engine.snapshot()
            queries = {"q": eddy.Query(streams(), ["R.k = S.k"])}
            engine = eddy.Engine.restore(saved, sources, queries, late_rows=20)
            assert engine.snapshot() == saved
        if chance.random() < 0.1:
            taken, wanted = engine.late(), runtime.late()
            assert taken == wanted
            assert engine.last_late() == runtime.last_late()
            lost += sum(table.num_rows for table in taken.values())
    assert lost > 20
    assert engine.metrics()["late_dropped"] == sum(runtime._pipeline.late.rows.dropped) > 0


@pytest.mark.parametrize("of_stream", [False, True])
def test_a_function_gets_late_rows_again_until_it_returns(of_stream: bool) -> None:
    given: list[tuple[str, int]] = []

    def take(name: str, table: pa.Table) -> None:
        given.append((name, table.num_rows))
        if len(given) == 1:
            raise ValueError("no")

    engine = eddy.Engine(streams(**({"late": take} if of_stream else {})), late="count" if of_stream else take)
    engine.start("q", eddy.Query(streams(), ["R.k = S.k"]))
    engine.push({"R": [{"k": 0, "t": 90, "text": ""}], "S": [{"k": 0, "t": 90, "text": ""}]})
    with pytest.raises(eddy.LateRowsError, match=r"raised ValueError: no.*engine\.last_push"):
        engine.push({"R": [{"k": 0, "t": 1, "text": ""}, {"k": 0, "t": 91, "text": ""}]})
    assert engine.position == 3
    engine.push({"R": [{"k": 0, "t": 2, "text": ""}]})
    assert given == [("R", 1), ("R", 2)]
    assert engine.late() == {}
    assert engine.late_counts == {"R": 2, "S": 0}


def test_late_rows_stay_within_the_bound() -> None:
    engine = eddy.Engine(streams(), max_bytes=1 << 20)
    first = {"k": 0, "t": 10**6, "text": ""}
    engine.push({"R": [first], "S": [first]})
    for _ in range(100):
        engine.push({"R": [{"k": 0, "t": 1, "text": "x" * 100}] * 500})
        assert engine.nbytes <= 1 << 20
    assert engine.late_counts["R"] == 50_000
    assert 0 < sum(table.num_rows for table in engine.late().values()) < 10_000

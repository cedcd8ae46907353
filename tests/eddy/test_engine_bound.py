"""`Engine(max_bytes=…)`: the state never exceeds the bound, and a push that does not fit has not happened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy import agg
from eddy.queries.alone import Output

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("text", pa.string())])
LONG = 10**6
MB = 1 << 20


def stream(name: str, window: Any = None) -> eddy.Stream:
    return eddy.Stream(name, SCHEMA, window=window or eddy.Range(LONG), time="t")


def joined(names: str, **more: Any) -> eddy.Query:
    on = [f"{names[0]}.k = {name}.k" for name in names[1:]]
    return eddy.Query([stream(name) for name in names], on, **{"select": [f"{name}.text" for name in names], **more})


GROUPS: dict[str, Any] = {"group_by": ["R.text"], "aggregates": {"n": agg.count()}, "group_window": eddy.Tumbling(LONG)}
KINDS: dict[str, Sequence[tuple[eddy.Query, Output]]] = {
    "a join": [(joined("RS"), "append")],
    "shared": [(joined("RS"), "append"), (joined("RST"), "append"), (joined("ST"), "append")],
    "groups": [(joined("RS", select=None, **GROUPS), "append")],
    "left": [(eddy.Query([stream("R")], branches=[eddy.Branch([stream("S")], ["R.k = S.k"], "left")]), "append")],
    "a changelog": [(joined("RS"), "changelog")],
    "all": [
        (joined("RS"), "append"),
        (joined("RST"), "append"),
        (joined("RS", select=None, **GROUPS), "append"),
        (joined("ST"), "changelog"),
    ],
}


def engine_of(kind: str, max_bytes: int | None) -> eddy.Engine:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RST"], max_bytes=max_bytes)
    for number, (query, output) in enumerate(KINDS[kind]):
        engine.start(f"q{number}", query, output=output)
    return engine


def rows(chance: random.Random, clock: int, n: int) -> dict[str, pa.RecordBatch]:
    keys = [chance.randrange(1 << 40) for _ in range(n)]
    table = {"k": keys, "t": [clock] * n, "text": [f"{key:030}" for key in keys]}
    return {name: pa.RecordBatch.from_pydict(table, schema=SCHEMA) for name in "RST"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_that_does_not_fit_has_not_happened(kind: str) -> None:
    max_bytes = 4 * MB
    bounded, free, chance = engine_of(kind, max_bytes), engine_of(kind, None), random.Random(1)
    assert bounded.max_bytes == max_bytes
    pushes = refused = given = 0
    for clock in range(150):
        n = chance.choice((10, 100, 1000))
        batches = rows(chance, clock, n)
        before = bounded.snapshot() if refused < 3 and bounded.nbytes > 3 * MB else None
        try:
            results = bounded.push(batches)
        except eddy.CapacityError:
            refused += 1
            assert before is None or bounded.snapshot() == before
            bounded.check()
            continue
        finally:
            assert bounded.nbytes <= max_bytes
        wanted = free.push(batches)
        assert {name: table.num_rows for name, table in results.items()} == {
            name: table.num_rows for name, table in wanted.items()
        }
        given += sum(table.num_rows for table in results.values())
        pushes += 1
    assert refused > 3
    assert bounded.nbytes > max_bytes // 4
    assert given > 1000 or kind == "groups"
    # A restored engine may take more bytes. One that has become full goes on when queries stop.
    sources = [eddy.Stream(name, SCHEMA, time="t") for name in "RST"]
    queries = {f"q{number}": query for number, (query, _) in enumerate(KINDS[kind])}
    with pytest.raises(eddy.CapacityError, match="max_bytes"):
        eddy.Engine.restore(bounded.snapshot(), sources, queries, max_bytes=max_bytes // 8)
    again = eddy.Engine.restore(bounded.snapshot(), sources, queries, max_bytes=2 * max_bytes)
    assert again.max_bytes == 2 * max_bytes
    for engine in (bounded, again):
        for running in engine.queries.values():
            running.stop()
        engine.push(rows(chance, LONG, 1000))
        engine.start("more", joined("RS"))
        engine.push(rows(chance, LONG, 1000))


def test_a_start_that_does_not_fit_is_refused() -> None:
    chance = random.Random(2)
    engine = eddy.Engine([stream(name) for name in "RST"], max_bytes=2 * MB)
    for clock in range(58):
        engine.push(rows(chance, clock, 200))
    with pytest.raises(eddy.CapacityError, match="the rows of this push would take the engine"):
        engine.push(rows(chance, 58, 2000))
    with pytest.raises(eddy.CapacityError):
        engine.start("warm", joined("RS"), warm=True)
    assert not engine.queries
    engine.check()
    assert engine.nbytes <= 2 * MB
    with pytest.raises(eddy.InputError, match="max_bytes is a number of bytes"):
        eddy.Engine([stream("R")], max_bytes=0)


def test_a_handover_of_a_changelog_under_a_bound_takes_the_answer_over() -> None:
    for max_bytes in (None, 16 * MB):
        engine = eddy.Engine([stream(name) for name in "RS"], max_bytes=max_bytes)
        running = engine.start("q", joined("RS"), output="changelog")
        row = {"k": 1, "t": 1, "text": "a"}
        assert engine.push({"R": [row], "S": [row]})["q"].num_rows == 1
        running.change(joined("RS"), "handover")
        assert engine.push({"R": [{**row, "k": 2}]})["q"].num_rows == 0


def test_a_query_that_shares_from_now_on_does_not_count_twice() -> None:
    engine, chance, clock = eddy.Engine([stream(name) for name in "RST"], max_bytes=4 * MB), random.Random(3), 0
    engine.start("a", joined("RST"))
    while engine.nbytes < 2.4 * MB:
        engine.push(rows(chance, clock, 50))
        clock += 1
    other = engine.start("b", joined("ST"))
    engine.push(rows(chance, clock, 1))
    other.stop()
    engine.push(rows(chance, clock, 1))
    assert engine.nbytes <= 4 * MB


def test_failed_rows_and_empty_queries_count() -> None:
    engine = eddy.Engine([stream(name) for name in "RS"], max_bytes=MB)
    failing = eddy.Query(
        [stream(name, eddy.Range(2)) for name in "RS"], ["R.k = S.k"], select={"v": "CAST(R.text AS BIGINT)"}
    )
    engine.start("q", failing)
    for clock in range(100):
        table = [{"k": clock, "t": clock, "text": "z" * 200}] * 5
        engine.push({"R": table, "S": table})
        assert engine.nbytes <= MB
    assert engine["q"].failed_count == 100 * 25
    small = eddy.Engine([stream(name) for name in "RS"], max_bytes=60_000)
    small.start("q0", joined("RS"), output="changelog")
    small.start("q1", joined("RS"), output="changelog")
    small.start("q2", joined("RS"), output="changelog")
    with pytest.raises(eddy.CapacityError, match="the query would take the engine to"):
        small.start("q3", joined("RS"), output="changelog")
    assert small.nbytes <= 60_000
    assert list(small.queries) == ["q0", "q1", "q2"]

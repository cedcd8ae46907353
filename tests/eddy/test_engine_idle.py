"""Queries that are idle cost a push nothing, and queries that have stopped are forgotten in the end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Engine, Query, Range, Stream
from eddy.queries import engine as engines
from eddy.queries import history
from eddy.queries.query import RunningQuery
from stairs.errors import InputError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])


MOST = (1 << 63) - 1
TOO_LARGE = f"R.v + {MOST}"
"""An expression that has a value for a v of 0 only."""


def new_engine() -> Engine:
    return Engine([Stream(name, SCHEMA, time="at") for name in "RS"])


def query(v: int, select: str = "R.v", where: pc.Expression | None = None) -> Query:
    """Return a join of the rows of R with one value of v and all rows of S; rows for which `select` fails are kept."""
    streams = [Stream("R", SCHEMA, Range(5), "at", filter=pc.field("v") == v), Stream("S", SCHEMA, Range(5), "at")]
    return Query(streams, ["R.k = S.k"], select={"x": select, "at": "S.at"}, where=where, failed="keep")


def push(engine: Engine, at: int, values: list[int], k: int = 1) -> dict[str, list[int]]:
    """Push a row of S and rows of R with these values; return the values in the results of the queries with any."""
    rows = {"S": [{"k": k, "v": 0, "at": at}], "R": [{"k": k, "v": v, "at": at} for v in values]}
    tables = engine.push({name: pa.Table.from_pylist(stream_rows, SCHEMA) for name, stream_rows in rows.items()})
    assert all(table.column_names == ["x", "at"] for table in tables.values())
    assert list(tables) == [name for name, running in engine.queries.items() if name in tables]
    return {name: table["x"].to_pylist() for name, table in tables.items() if len(table)}


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the queries that pushes visit, as they do."""
    names, results = list[str](), RunningQuery.results
    monkeypatch.setattr(
        RunningQuery, "results", lambda running, *given: (names.append(running.name), results(running, *given))[1]
    )
    return names


def test_a_push_visits_queries_to_which_something_happens(visits: list[str]) -> None:
    engine = new_engine()
    running = [engine.start(f"q{v}", query(v)) for v in range(40)]
    assert push(engine, 1, [3, 3, 7]) == {"q3": [3, 3], "q7": [7]}
    assert visits == []
    running[3].stop("drain")
    running[7].stop()
    running[5].change(query(50), "graceful")
    # q3 may have results with the rows before its stop; q7 has none any more.
    assert push(engine, 3, [3, 7, 50]) == {"q3": [3, 3, 3], "q5": [50]}
    assert set(visits) == {"q3", "q5"}
    for at in range(10, 40, 10):
        push(engine, at, [1])
    assert running[3].state == running[7].state == "stopped"
    visits.clear()
    assert push(engine, 50, [50, 3, 8]) == {"q5": [50], "q8": [8]}
    assert visits == []
    assert set(engine.metrics()["queries"]) == {f"q{v}" for v in range(40)}
    assert [engine.metrics()["queries"][f"q{v}"]["results"] for v in (3, 5, 7, 8)] == [5, 2, 1, 1]


@pytest.mark.parametrize("failing", [{"select": TOO_LARGE}, {"where": pc.field("R.v") + MOST > 0}])
def test_a_query_with_failed_rows_is_visited_until_they_are_collected(
    visits: list[str], failing: dict[str, Any]
) -> None:
    engine = new_engine()
    fails, other = engine.start("fails", query(2, **failing)), engine.start("other", query(4))
    assert push(engine, 1, [2, 4]) == {"other": [4]}
    assert visits == []
    assert fails.failed_count == 1
    push(engine, 2, [])
    assert visits == ["fails"]
    assert fails.failed().num_rows >= 1
    assert fails.last_failed() is not None
    push(engine, 20, [])
    assert fails.last_failed() is None
    visits.clear()
    assert push(engine, 30, [4]) == {"other": [4]}
    assert visits == []
    assert other.failed().num_rows == 0


def test_a_name_belongs_to_the_query_that_took_it_last(visits: list[str]) -> None:
    engine = new_engine()
    other, old = engine.start("other", query(1)), engine.start("name", query(2))
    old.stop()
    new = engine.start("name", query(3))
    old.stop()  # once more
    assert push(engine, 1, [2, 3]) == {"name": [3]}
    new.change(query(4), "drain-stream")
    old.stop()
    assert push(engine, 100, [3, 4]) == {"name": [4]}
    old.stop()
    assert list(engine.push({})) == list(engine.queries) == ["other", "name"]
    assert new.n_results == 2
    new.stop()
    push(engine, 200, [])
    assert new.state == "stopped"
    assert other.state == "running"


def test_stopped_queries_and_old_elements_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "STOPPED", 3)
    monkeypatch.setattr(history, "MOST", 5)
    engine = new_engine()
    kept = engine.start("kept", query(1))
    for n in range(50):
        engine.start(f"q{n}", query(n)).stop()
        assert len(engine.queries) <= 8
        assert 1 <= engine.history().num_rows <= 10
    assert engine["q49"].state == "stopped"
    with pytest.raises(InputError, match="there is no query 'q0'"):
        engine["q0"]
    assert engine.history()["query"].to_pylist()[-2:] == ["q49", "q49"]
    assert kept.state == "running"
    assert push(engine, 1, [1, 2]) == {"kept": [1]}

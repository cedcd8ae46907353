"""A query that is paused gives the results of one that is not, without those that come meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])


def streams(size: int | None = None) -> list[eddy.Stream]:
    window = None if size is None else eddy.Range(size)
    return [eddy.Stream(name, SCHEMA, window=window, time="t") for name in "RS"]


def joined(size: int, **more: Any) -> eddy.Query:
    return eddy.Query(streams(size), ["R.k = S.k"], **{"select": ["R.n", "S.n"], **more})


def left(size: int) -> eddy.Query:
    r, s = streams(size)
    return eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")], select=["R.n", "S.n"])


@pytest.mark.parametrize("kind", ["alone in its join", "beside another query", "left"])
@pytest.mark.parametrize("seed", range(5))
def test_a_paused_query_gives_what_comes_before_and_after(kind: str, seed: int) -> None:
    chance, size = random.Random(seed), 7
    query = left(size) if kind == "left" else joined(size)
    engine, twin = eddy.Engine(streams()), eddy.Engine(streams())
    running, always = engine.start("q", query), twin.start("q", query)
    if kind == "beside another query":
        engine.start("other", joined(3, select=["R.t"]))
    pauses, place, states = list[list[int]](), 0, Counter[str]()
    given, wanted = Counter[Any](), Counter[Any]()
    for clock in range(60):
        if chance.random() < 0.2 and running.state in ("running", "paused") and place >= running.last_element:
            at = place + chance.choice((0, 0, 3))
            if running.state == "running":
                running.pause(at)
                pauses.append([at, 1 << 40])
            else:
                running.resume(at)
                pauses[-1][1] = at
        states[running.state] += 1
        order = [chance.randrange(2) for _ in range(chance.randrange(5))]
        rows: dict[str, list[dict[str, int]]] = {"R": [], "S": []}
        for i in order:
            rows["RS"[i]].append({"k": chance.randrange(2), "t": clock, "n": place})
            place += 1
        results, all_results = engine.push(rows, order), twin.push(rows, order)
        given.update(tuple(row.values()) for row in results["q"].to_pylist()) if "q" in results else None
        wanted.update(tuple(row.values()) for row in all_results["q"].to_pylist())
        if chance.random() < 0.2:
            saved = engine.snapshot()
            queries = {name: q.query for name, q in engine.queries.items() if q.state != "stopped"}
            engine = eddy.Engine.restore(saved, streams(), queries)
            assert engine.snapshot() == saved
            running = engine["q"]
        engine.check()
    always.stop()
    assert min(states["paused"], states["running"]) > 5
    if kind == "left":
        # A row without a partner comes when its window has passed, which may be within a pause or after it.
        assert not given - wanted
        assert given
    else:
        # The order of arrivals is the number n.
        outside = {pair for pair in wanted if not any(first <= max(pair) < end for first, end in pauses)}
        assert given == Counter(outside)
    assert len(given) < len(wanted)


def test_a_pause_ends_with_any_other_element() -> None:
    engine = eddy.Engine(streams())
    query = engine.start("q", joined(9))
    row = {"k": 0, "t": 1, "n": 0}

    def paused_with_a_row() -> None:
        if query.state == "stopped":
            query.restart()
        engine.push({"R": [row]})
        query.pause()
        assert query.state == "paused"
        assert "q" not in engine.push({"S": [{**row, "k": 7}]})

    paused_with_a_row()
    with pytest.raises(eddy.InputError, match="'q' is paused; it has nothing to pause"):
        query.pause()
    with pytest.raises(eddy.InputError, match="query 'q' is paused; stop or change it"):
        engine.start("q", joined(9))
    query.change(joined(9), "handover")
    assert engine.push({"S": [row]})["q"].num_rows == 1
    paused_with_a_row()
    query.change(joined(9), "drain-stream")
    assert engine.push({"S": [row]})["q"].num_rows == 0
    paused_with_a_row()
    query.stop()
    assert query.state == "stopped"
    engine.push({})
    assert engine.metrics()["kept_bytes"] == {"R": 0, "S": 0}, "a stop ends the pause"
    with pytest.raises(eddy.InputError, match="is stopped, not paused"):
        query.resume()
    paused_with_a_row()
    engine.push({"R": [{**row, "t": 100}], "S": [{**row, "t": 100}]})
    assert engine.metrics()["kept_bytes"] == {"R": 32, "S": 32}, "rows that no window has"
    engine.finish()
    assert query.state == "stopped"


def test_what_could_not_resume_does_not_pause() -> None:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"])
    groups: dict[str, Any] = {"aggregates": {"n": agg.count()}, "select": None}
    for name, query, output in (("changes", joined(9), "changelog"), ("answer", joined(9, **groups), "changelog")):
        with pytest.raises(eddy.InputError, match="a changelog has no pause"):
            engine.start(name, query, output=output).pause()  # type: ignore[arg-type]
    counted = eddy.Query(
        [eddy.Stream("R", SCHEMA, window=eddy.Rows(3), time="t")],
        branches=[eddy.Branch([eddy.Stream("S", SCHEMA, window=eddy.Rows(3), time="t")], ["R.k = S.k"], "left")],
    )
    running = engine.start("rows", counted)
    with pytest.raises(eddy.InputError, match=r"query .rows. cannot pause, because it could not resume: .*Rows window"):
        running.pause()
    assert running.state == "running"
    assert engine.history()["event"].to_pylist().count("pause") == 0


def test_an_old_handle_leaves_a_paused_query_of_its_name_alone() -> None:
    engine, row = eddy.Engine(streams()), {"k": 0, "t": 1, "n": 0}
    old = engine.start("q", joined(9))
    old.stop()
    new = engine.start("q", joined(9))
    engine.push({"R": [row]})
    new.pause()
    old.stop()
    engine.push({"R": [row]}), engine.push({"R": [row]})
    new.resume()
    assert engine.push({"S": [row]})["q"].num_rows == 3


def test_a_pause_ahead_needs_a_query_that_runs_then() -> None:
    engine = eddy.Engine(streams())
    query = engine.start("q", joined(9))
    query.stop(at=5)
    for at in (5, 8):
        with pytest.raises(eddy.InputError, match="stops or drains by then; it has nothing to pause"):
            query.pause(at)
    other = engine.start("r", joined(9))
    other.pause(3)
    engine.finish()
    assert engine.history()["event"].to_pylist().count("end of the input") == 2


def test_a_filter_that_would_count_rows_meanwhile_has_no_pause() -> None:
    kept = [eddy.Stream(name, SCHEMA, window=eddy.Rows(3), time="t", filter=lambda batch: [True]) for name in "RS"]
    engine = eddy.Engine(streams())
    query = engine.start("q", eddy.Query(kept, ["R.k = S.k"], select=["R.n"]))
    with pytest.raises(eddy.InputError, match="stream 'R' has a Rows window and a filter"):
        query.pause()
    assert query.state == "running"


def test_a_handover_has_the_rows_that_no_filter_let_in() -> None:
    def asked(least: int | None) -> eddy.Query:
        kept = None if least is None else pc.field("n") >= least
        inputs = [eddy.Stream(name, SCHEMA, window=eddy.Range(50), time="t", filter=kept) for name in "RS"]
        return eddy.Query(inputs, ["R.k = S.k"], select=["R.n", "S.n"])

    engine = eddy.Engine(streams())
    running = engine.start("q", asked(2))
    engine.push({"R": [{"k": 1, "t": 1, "n": 1}]})
    running.change(asked(None), "handover")
    assert running.complete_from == 0
    assert engine.push({"S": [{"k": 1, "t": 2, "n": 5}]})["q"].to_pylist() == [{"R.n": 1, "S.n": 5}]

"""Several queries that start and stop: each one's results are those of the definition (`engine_queries.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pyarrow as pa
import pytest

import eddy
from stairs.errors import InputError, QueryError
from tests.eddy.engine_queries import NAMES, SCHEMA, WINDOWS, DrawnEngineRun, ReferenceQuery, Result, all_results


@pytest.mark.campaign(8)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_starts_and_stops_at_any_position(seed: int, windows: dict[str, int]) -> None:
    run, chance = DrawnEngineRun(seed), random.Random(seed)
    asked = [
        ReferenceQuery(windows),
        ReferenceQuery(windows, 20),
        ReferenceQuery({name: size + (size > 0) * 5 for name, size in windows.items()}),
    ]
    expected: dict[str, Callable[[list[Result]], list[Result]]] = {}
    kept = run.engine.start("all", asked[2].query())  # keeps rows for warm starts
    for number, (reference, warm, how) in enumerate(product(asked, (False, True), ("immediate", "drain", None))):
        name, begin = f"q{number}", chance.randrange(10, 30)
        end = begin + chance.randrange(0, 25)

        def owns(
            results: list[Result], s: int = begin, e: int = end, warm: bool = warm, how: str | None = how
        ) -> list[Result]:
            begun = [r for r in results if (r[1] if warm else r[0]) >= s]
            return [r for r in begun if how is None or (r[1] if how == "immediate" else r[0]) < e]

        expected[name] = owns
        query = run.engine.start(name, reference.query(), at=begin, warm=warm)
        if how is not None:
            query.stop(how, at=end)  # type: ignore[arg-type]
    while run.engine.position < 100:
        run.push(chance.randrange(1, 20))
    for number, (reference, _, how) in enumerate(product(asked, (False, True), ("immediate", "drain", None))):
        run.check(f"q{number}", expected[f"q{number}"](all_results(reference, run.rows)))
        assert run.engine[f"q{number}"].state == ("running" if how is None else "stopped")
    run.check("all", all_results(asked[2], run.rows))
    assert kept.state == "running"
    families = run.engine.metrics()["joins"]
    assert len(families) <= 2  # windows of rows with a filter have a join of their own


def test_queries_over_the_same_streams_share_a_join_and_the_last_one_takes_it_along() -> None:
    run = DrawnEngineRun(6)
    for number in range(5):
        run.engine.start(f"q{number}", ReferenceQuery({"R": 5 + number, "S": 9}, number).query())
    run.engine.start("other", ReferenceQuery({"S": 5, "T": 5}).query())
    run.push(10)
    joins = run.engine.metrics()["joins"]
    assert [join["queries"] for join in joins] == [["q0", "q1", "q2", "q3", "q4"], ["other"]]
    for query in run.engine.queries.values():
        query.stop()
    run.push(1)
    assert run.engine.metrics()["joins"] == []
    assert sum(run.engine.metrics()["kept_bytes"].values()) == 0


def test_the_windows_of_the_streams_keep_rows_for_a_warm_start() -> None:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(10), time="t") for name in NAMES]
    run = DrawnEngineRun(7)
    run.engine = eddy.Engine(streams)
    for _ in range(6):
        run.push(10)
    asked = ReferenceQuery({"R": 8, "S": 8})
    query = run.engine.start("q", asked.query(), warm=True)
    assert 0 < query.complete_from < 50
    fresh = run.engine.start("fresh", asked.query())
    assert fresh.complete_from == 60
    run.push(60)
    results = all_results(asked, run.rows)
    run.check("q", [r for r in results if r[1] >= 60])
    run.check("fresh", [r for r in results if r[0] >= 60])


@pytest.mark.parametrize("seed", range(4))
def test_a_warm_start_over_another_join_graph_finds_the_rows_that_any_query_needs(seed: int) -> None:
    run = DrawnEngineRun(seed)
    run.engine.start("narrow", ReferenceQuery({"R": 4, "S": 4, "T": 4}).query())
    run.engine.start("wide", ReferenceQuery({"S": 25, "T": 25}).query())
    for _ in range(30):
        run.push(3)
    asked = ReferenceQuery({"R": 4, "S": 20})
    query = run.engine.start("q", asked.query(), warm=True)
    run.push(60)
    run.check("q", [r for r in all_results(asked, run.rows) if r[1] >= 90])
    assert query.complete_from > 0


def test_late_rows_arrive_for_no_query() -> None:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in ("R", "S")], lateness=2)
    engine.start("q", ReferenceQuery({"R": 50, "S": 50}).query())
    engine.push({"R": [{"k": 1, "t": 10, "x": 0}], "S": [{"k": 2, "t": 10, "x": 9}]})
    out = engine.push({"S": [{"k": 1, "t": 7, "x": 1}, {"k": 1, "t": 8, "x": 2}]})["q"]
    assert out.to_pylist() == [{"R": 0, "S": 2}]
    assert engine.late_counts == {"R": 0, "S": 1}
    assert engine.position == 3


# Refusals


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    run = DrawnEngineRun(8)
    engine, asked = run.engine, ReferenceQuery({"R": 5, "S": 5})
    query = engine.start("q", asked.query())
    run.push(10)
    rows = {name: pa.schema([("k", pa.int64()), ("t", pa.int64())]) for name in ("R", "S", "X")}
    unbounded = [eddy.Stream(name, SCHEMA, window=eddy.Unbounded(), time="t") for name in ("R", "S")]
    endless = engine.start("endless", eddy.Query(unbounded, ["R.k = S.k"], select=["R.x"]))
    text = [eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in ("R", "S")]
    history = engine.history()
    for call, error, message in (
        (lambda: engine.start("q", asked.query()), InputError, "query 'q' is running; stop or change it"),
        (lambda: engine.start("r", asked.query(), at=3), InputError, "at=3 is no position to come; .* number 10"),
        (lambda: engine["r"], InputError, "there is no query 'r'; there are q, endless"),
        (lambda: query.stop("now"), InputError, "how is 'immediate' or 'drain', not 'now'"),  # type: ignore[arg-type]
        (lambda: query.change(asked.query(), "swap"), InputError, "how is one of 'immediate', .*, not 'swap'"),  # type: ignore[arg-type]
        (lambda: endless.stop("drain"), InputError, "the drain would never end, because stream 'R' has an UNBOUNDED"),
        (lambda: endless.change(asked.query(), "drain-query"), InputError, "'drain-query' would never end"),
        (lambda: engine.start("r", eddy.Query(text, ["R.k = S.k"], lateness=3)), QueryError, "lateness belongs to the"),
        (
            lambda: engine.start("r", eddy.Query([eddy.Stream(n, rows[n]) for n in "RX"], ["R.k = X.k"])),
            QueryError,
            "the engine has no stream 'X'; its streams are R, S, T",
        ),
        (
            lambda: query.change(eddy.Query([as_text(stream) for stream in text], ["R.k = S.k"])),
            QueryError,
            "the engine has no column 'x' of type string",
        ),
    ):
        with pytest.raises(error, match=message):
            call()  # type: ignore[no-untyped-call]
    assert engine.history() == history
    with pytest.raises(InputError, match="no stream 'X'"):
        engine.push({"X": []})
    with pytest.raises(QueryError, match="all have one, or none"):
        eddy.Engine([eddy.Stream("R", SCHEMA, time="t"), eddy.Stream("S", SCHEMA)])
    with pytest.raises(InputError, match="Engine has no option 'plan'"):
        eddy.Engine([eddy.Stream("R", SCHEMA)], plan="R S")
    query.stop()
    engine.start("q", asked.query())
    with pytest.raises(InputError, match="query 'q' has stopped, and the engine has forgotten it or has another one"):
        query.change(asked.query())


def as_text(stream: eddy.Stream) -> eddy.Stream:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("x", pa.string())])
    return eddy.Stream(stream.name, schema, window=stream.window, time="t")


def test_a_plan_changes_on_live_state_alone_and_shared() -> None:
    run = DrawnEngineRun(5)
    asked = ReferenceQuery({"R": 12, "S": 12, "T": 12})
    query = run.engine.start("q", asked.query())
    run.push(20)
    for plan in ("(S T) R", "(R S) T"):
        query.transition(plan)
        assert query.plan == plan
        run.push(10)
    other = run.engine.start("other", ReferenceQuery({"S": 9, "T": 9}).query())
    assert other.plan == "S T"
    other.transition("T S")
    assert other.plan == "T S"
    run.push(10)
    assert other.plan == "T S"
    assert [join["shared"] for join in run.engine.metrics()["joins"]] == [True, True]
    assert query.plan == "(R S) T"
    query.transition("(S T) R")
    run.push(10)
    assert query.plan == "(S T) R"
    other.change(ReferenceQuery({"S": 30, "T": 9}).query())
    run.push(20)
    assert query.plan == "(S T) R"
    run.check("q", all_results(asked, run.rows))
    with pytest.raises(eddy.PlanError):
        query.transition("R T")
    query.stop()
    with pytest.raises(InputError, match="query 'q' has stopped"):
        query.transition("(R S) T")


def test_a_plan_with_stored_states_is_for_a_join_with_stems_of_its_own() -> None:
    run = DrawnEngineRun(7)
    asked = ReferenceQuery({"R": 12, "S": 12, "T": 12})
    query = run.engine.start("q", asked.query())
    run.push(20)
    query.transition("(S T) R", store=["S T"])
    (family,) = run.engine.joins.families
    assert family.runtime is not None
    assert [len(stair.streams) for stair in family.runtime.stairs] == [2]
    run.push(30)
    run.check("q", all_results(asked, run.rows))
    with pytest.raises(eddy.PlanError):
        query.transition("(S T) R", store=["R S"])
    run.engine.start("other", ReferenceQuery({"S": 9, "T": 9}).query())
    run.push(10)
    with pytest.raises(InputError, match="a join over shared SteMs has no stored states"):
        query.transition("(R S) T", store=["R S"])
    assert query.plan == "(S T) R"


def test_metrics_count_for_each_query() -> None:
    run = DrawnEngineRun(6)
    run.engine.start("a", ReferenceQuery({"R": 12, "S": 12}).query())
    run.engine.start("b", ReferenceQuery({"R": 12, "S": 12}, 15).query())
    run.engine.start("c", ReferenceQuery({"S": 9, "T": 9}).query())
    run.push(60)
    run.engine["c"].stop()
    run.push(1)
    metrics = run.engine.metrics()
    assert metrics["position"] == 61
    assert {name: figures["results"] for name, figures in metrics["queries"].items()} == {
        name: len(run.results.get(name, [])) for name in "abc"
    }
    assert [figures["state"] for figures in metrics["queries"].values()] == ["running", "running", "stopped"]
    assert [(join["streams"], join["queries"], join["plan"]) for join in metrics["joins"]] == [
        (["R", "S"], ["a", "b"], "R S")
    ]
    assert metrics["joins"][0]["seconds"] > 0


def test_a_fresh_start_stays_fresh_when_its_join_begins_to_share() -> None:
    run = DrawnEngineRun(7)
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(100), time="t") for name in NAMES]
    run.engine = eddy.Engine(streams)
    run.push(30)
    asked = ReferenceQuery({"R": 40, "S": 40})
    run.engine.start("q", asked.query())
    run.push(10)
    run.engine.start("other", ReferenceQuery({"S": 9, "T": 9}).query())
    run.push(30)
    assert [join["shared"] for join in run.engine.metrics()["joins"]] == [True, True]
    run.check("q", [result for result in all_results(asked, run.rows) if result[0] >= 30])


def test_an_old_handle_does_not_speak_of_a_new_query_of_its_name() -> None:
    run = DrawnEngineRun(8)
    old = run.engine.start("q", ReferenceQuery({"R": 9, "S": 9}).query())
    old.stop()
    new = run.engine.start("q", ReferenceQuery({"S": 9, "T": 9}).query())
    assert new.plan == "S T"
    with pytest.raises(InputError, match="query 'q' has stopped"):
        assert old.plan


def test_the_plan_of_a_join_in_metrics_is_its_own_while_a_query_changes() -> None:
    run = DrawnEngineRun(9)
    query = run.engine.start("q", ReferenceQuery({"R": 9, "S": 9}).query())
    run.push(10)
    query.change(ReferenceQuery({"S": 9, "T": 9}).query(), "drain-stream")
    assert [(join["streams"], join["plan"]) for join in run.engine.metrics()["joins"]] == [
        (["R", "S"], "R S"),
        (["S", "T"], "S T"),
    ]

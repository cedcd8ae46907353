"""A query of one stream gives the rows that its filter and `where` accept, in a runtime and in an engine."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from bench.simulated.cluster.simulation import ClusterSimulation
from bench.simulated.placement.simulation import PlacementSimulation
from eddy.spark.streaming.driver.prepare import prepare
from jisc.strategies import STRATEGIES

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
WINDOWS = [None, eddy.Rows(3), eddy.Range(5), eddy.Unbounded()]


def query(window: Any, least: int = 2, **options: Any) -> eddy.Query:
    stream = eddy.Stream("R", SCHEMA, window=window, time="t", filter=pc.field("k") >= least)
    return eddy.Query([stream], where=pc.bit_wise_and(pc.field("R.n"), 3) != 0, select={"n": "R.n"}, **options)


def rows_of(chance: random.Random, begin: int) -> list[dict[str, int]]:
    return [{"k": chance.randrange(5), "t": begin + i // 2, "n": begin + i} for i in range(chance.randrange(9))]


def accepted(rows: list[dict[str, int]], least: int = 2) -> list[dict[str, int]]:
    return [{"n": row["n"]} for row in rows if row["k"] >= least and row["n"] & 3]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_results_are_the_accepted_rows(window: Any, strategy: Any) -> None:
    chance, asked = random.Random(1), query(window)
    runtime = eddy.Runtime(asked, strategy=strategy)
    for step in range(20):
        rows = rows_of(chance, 10 * step)
        assert runtime.push({"R": rows}).to_pylist() == accepted(rows)
        if step % 5 == 4:
            runtime = eddy.Runtime.restore(runtime.snapshot(), asked)


def test_a_changelog_takes_rows_back_when_they_leave_their_window() -> None:
    rows = [{"k": 4, "t": t, "n": n} for t, n in ((0, 1), (3, 2), (7, 5))]
    changes = {None: [], eddy.Rows(1): [1, 2], eddy.Range(5): [1], eddy.Unbounded(): []}
    for window, ended in changes.items():
        runtime = eddy.Runtime(query(window), output="changelog")
        results = [row for each in rows for row in runtime.push({"R": [each]}).to_pylist()]
        assert [row["n"] for row in results if row["op"] == "+I"] == [1, 2, 5]
        assert [row["n"] for row in results if row["op"] == "-D"] == ended


@pytest.mark.parametrize("restored", [False, True])
def test_queries_of_one_stream_share_their_filters_with_each_other_and_rows_with_joins(restored: bool) -> None:
    chance = random.Random(2)
    sources = [eddy.Stream(name, SCHEMA, time="t") for name in "RS"]
    queries = {f"{least}{window}": (query(window, least), least) for least in range(5) for window in WINDOWS}
    pairs = eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"], ["R.k = S.k"])
    asked = {"pairs": pairs, **{name: one_stream for name, (one_stream, _) in queries.items()}}
    engine, runtime = eddy.Engine(sources), eddy.Runtime(pairs)
    for name, started in asked.items():
        engine.start(name, started)
    for step in range(12):
        rows, others = rows_of(chance, 10 * step), rows_of(chance, 10 * step)
        results = engine.push({"R": rows, "S": others})
        assert {name: results[name].to_pylist() for name in queries} == {
            name: accepted(rows, least) for name, (_, least) in queries.items()
        }
        wanted = runtime.push({"R": rows, "S": others})
        assert sorted(map(str, results["pairs"].to_pylist())) == sorted(map(str, wanted.to_pylist()))
        engine[f"{step % 5}None"].change(query(None, step % 5), "immediate")
        if restored and step % 3 == 2:
            engine = eddy.Engine.restore(engine.snapshot(), sources, asked)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("output", ["append", "changelog"])
def test_an_engine_gives_what_a_runtime_gives(window: Any, output: Any) -> None:
    chance, asked = random.Random(3), query(window)
    engine, runtime = eddy.Engine([eddy.Stream("R", SCHEMA, time="t")]), eddy.Runtime(asked, output=output)
    engine.start("q", asked, output=output)
    for step in range(12):
        rows = rows_of(chance, 10 * step)
        results = engine.push({"R": rows})["q"]
        # The watermark of the engine follows all rows, also those that the filter of the query rejects.
        assert results == runtime.push({"R": rows}, watermark=engine.watermark if asked.graph.timed else None)
        if step % 4 == 3:
            engine = eddy.Engine.restore(engine.snapshot(), [eddy.Stream("R", SCHEMA, time="t")], {"q": asked})


@pytest.mark.parametrize("window", [None, eddy.Unbounded()])
def test_filters_of_many_queries_are_those_of_one_join(window: Any) -> None:
    """A stream without a window keeps no rows, so its filter decides no places in one."""
    engine = eddy.Engine([eddy.Stream("R", SCHEMA, time="t")])
    for least in range(50):
        engine.start(f"{least}", query(window, least))
    assert len(engine.metrics()["joins"]) == 1
    engine["3"].pause()
    rows = [{"k": k, "t": 1, "n": 1} for k in range(50)]
    results = engine.push({"R": rows})
    assert {name: table.num_rows for name, table in results.items()} == {f"{n}": 50 - n for n in range(50) if n != 3}
    engine["3"].resume()
    assert engine.push({"R": rows})["3"].num_rows == 47


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "best"}, "there is no policy 'best'"),
        ({"strategy": "best"}, "best"),
        ({"store": ["R"]}, "has no inner states"),
        ({"purge": "late"}, "purge='late'"),
        ({"background": -1}, "background is a number of keys"),
    ],
)
def test_options_that_no_query_has_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(eddy.EddyError, match=message):
        eddy.Runtime(query(None), **options)


def test_hosts_that_join_streams_refuse_it() -> None:
    asked = query(eddy.Range(5))
    calls: list[Any] = [
        lambda: PlacementSimulation(asked),
        lambda: ClusterSimulation(asked, nodes=2, groups=4),
        lambda: prepare(asked, {}, *[None] * 3),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(eddy.EddyError, match="query has one"):
            call()

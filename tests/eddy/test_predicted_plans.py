"""`Query.plans`: which plans it lists, and how well its costs order them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.routing.estimates import ALL, plans_of
from jisc.plan.tree import parse
from tests.eddy.decision_cases import CHAIN, A, B, push
from tests.eddy.queries import make_query

STAR = {"M": "abcd", "P": "a", "Q": "bx", "R": "cy", "S": "dz", "X": "x", "Y": "y", "Z": "z"}
FANOUTS = {"a": 1, "b": 4, "c": 16, "d": 2, "x": 2, "y": 1, "z": 8}
"""Partners of a tuple in a window of 64 rows, by column."""


def rows_of(query: eddy.Query, seed: int, count: int = 64) -> dict[str, pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    return {
        stream.name: pa.record_batch(
            {c: rng.integers(0, 64 // FANOUTS[c], count) for c in stream.schema.names}, stream.schema
        )
        for stream in query.streams
    }


def filled(columns: dict[str, str]) -> eddy.Runtime:
    runtime = eddy.Runtime(make_query(columns, eddy.Rows(64)), policy="rank", count_only=True)
    order = np.tile(np.arange(len(columns)), 64)
    for seed in range(3):
        runtime.push(rows_of(runtime.query, seed), order)
    return runtime


def test_it_orders_plans_as_trials_on_live_rows_do() -> None:
    columns = {name: letters for name, letters in STAR.items() if name not in "XYZ"}
    runtime = filled(columns)
    table = eddy.plans(runtime.query, runtime.stats(), 10_000)
    view = runtime._pipeline.join.router.view_now()
    tried = np.array([view.cost(plan) for plan in table["plan"].to_pylist()])
    told = table["ns"].to_numpy()
    assert table.num_rows > 5
    assert (np.diff(told) >= 0).all()
    assert table["times"][0].as_py() == 1
    # The best by the estimate is near the best by trial, and the two orders agree in the large.
    ranks = np.corrcoef(np.argsort(np.argsort(told)), np.argsort(np.argsort(tried)))[0, 1]
    assert tried[0] < 1.2 * tried.min()
    assert ranks > 0.7


def test_the_results_that_it_predicts_are_those_that_come() -> None:
    runtime = filled({name: letters for name, letters in STAR.items() if name not in "XYZ"})
    before = runtime.metrics()
    table = eddy.plans(runtime.query, runtime.stats())
    order = np.tile(np.arange(5), 64)
    for seed in range(20, 40):
        runtime.push(rows_of(runtime.query, seed), order)
    after = runtime.metrics()
    came = (after["results"] - before["results"]) / (after["arrivals"] - before["arrivals"])
    assert table["results"][0].as_py() == pytest.approx(came, rel=0.5)
    # Every plan has the same results.
    assert np.ptp(table["results"].to_numpy()) < 1e-6 * came


def test_all_plans_of_a_few_streams_are_tried() -> None:
    graph = make_query(CHAIN, eddy.Rows(9)).graph
    trees = set(plans_of(graph))
    sets = {frozenset(node.streams for node in tree.inner()) for tree in trees}
    left_deep = [frozenset(node.streams for node in parse(plan, graph.names).inner()) for plan in (A, B)]
    assert {*left_deep, frozenset([frozenset([0, 1]), frozenset([2, 3]), frozenset(range(4))])} <= sets
    # A chain of four has five trees without a cross product, as there are ways to bracket four factors.
    assert len(sets) == 5


def test_many_streams_are_sampled() -> None:
    runtime = filled(STAR)
    assert len(STAR) > ALL
    table = eddy.plans(runtime.query, runtime.stats(), 5)
    assert table.num_rows == 5
    for plan in table["plan"].to_pylist():
        eddy.Runtime(runtime.query, plan)


def test_statistics_of_something_else_are_refused() -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(9)), count_only=True)
    with pytest.raises(eddy.InputError, match="no figures of pairs"):
        eddy.plans(runtime.query, runtime.stats())
    push(runtime, 1, 20)
    other = make_query({"R": "a", "S": "a"}, eddy.Rows(9))
    with pytest.raises(eddy.InputError, match="stats describes the streams R, S, T, U, the query has R, S"):
        eddy.plans(other, runtime.stats())
    for wrong in (pa.table({"a": [1]}), None, {}):
        with pytest.raises(eddy.InputError, match=r"the table of Runtime\.stats"):
            eddy.plans(other, wrong)
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    r, s = (eddy.Stream(name, schema, window=eddy.Range(5), time="at") for name in "RS")
    with pytest.raises(eddy.InputError, match="several inner joins"):
        eddy.plans(eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "anti")]), runtime.stats())

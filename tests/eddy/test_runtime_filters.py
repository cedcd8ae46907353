"""Filters of several conditions in a runtime: results of the oracle, figures, failed pushes, snapshots."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.filters import sampling
from tests.cases import Condition, JoinCase, assert_same, feed, results, text_rows
from tests.draws import VALUE, arrivals, cases, neighbours_by_predicate, plans, splits


@dataclass(frozen=True)
class Listed:
    """Several conditions in place of one (`tests.cases.Condition`)."""

    expression: list[Any]
    inner: tuple[Condition, ...]

    def holds(self, row: Any) -> bool:
        """Return whether all hold."""
        return all(condition.holds(row) is True for condition in self.inner)


def keeps(column: str, declared: bool) -> list[Condition]:
    """Return conditions of each kind on a column of small integers."""
    functions: list[tuple[Any, Any]] = [
        (lambda batch: pc.not_equal(batch[column], 4), lambda row: None if row[column] is None else row[column] != 4),
        (
            lambda batch: np.array([value is None or value > 0 for value in batch[column].to_pylist()], bool),
            lambda row: row[column] is None or row[column] > 0,
        ),
    ]
    expressions = [
        (pc.field(column) < 5, lambda row: None if row[column] is None else row[column] < 5),
        (pc.is_valid(pc.field(column)), lambda row: row[column] is not None),
    ]
    made = [(eddy.Predicate(function, [column]) if declared else function, holds) for function, holds in functions]
    return [Condition(*pair) for pair in made + expressions]


def listed(data: st.DataObject, columns: list[str], declared: bool) -> Listed | None:
    inner = data.draw(
        st.lists(st.sampled_from([condition for name in columns for condition in keeps(name, declared)]), max_size=4)
    )
    return Listed([condition.expression for condition in inner], tuple(inner))


@pytest.mark.campaign(0)
@given(st.data())
def test_filters_of_several_conditions_give_the_results_of_the_oracle(data: st.DataObject) -> None:
    case: JoinCase = data.draw(cases())
    streams = tuple(replace(stream, filter=listed(data, [VALUE], False)) for stream in case.streams)
    columns = [f"{stream.name}.{VALUE}" for stream in streams]
    case = replace(case, streams=streams, where=listed(data, columns, True))
    runtime = eddy.Runtime(case.query(), data.draw(st.none() | plans(case, neighbours_by_predicate(case))))
    oracle = case.oracle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "FIRST_ONE_IN", 1)
        for batched in data.draw(splits(data.draw(arrivals(case)))):
            table = runtime.push(batched.batches(case), batched.order())
            runtime.check()
            expected = [case.project(oracle, result) for result in results(feed(case, oracle, batched.arrivals))]
            assert_same(text_rows(table), expected, "rows of a push")
    figures = runtime.filters().to_pylist()
    assert len(figures) == sum(len(stream.filter.inner) for stream in streams) + len(case.where.inner)
    assert isinstance(runtime.explain(), str)


ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def small(batch: pa.RecordBatch) -> pa.Array:
    """Return which values are small; fails for -1."""
    values = batch["v"].to_pylist()
    if -1 in values:
        raise ValueError("-1 is no value")
    return pa.array([value < 100 for value in values])


def near(batch: pa.RecordBatch) -> pa.Array:
    """Return which results have values close to each other; reads two columns."""
    assert batch.schema.names == ["S.v", "R.v"]
    return pc.less(pc.abs(pc.subtract(batch["S.v"], batch["R.v"])), 50)


def query(**changes: Any) -> eddy.Query:
    """Return a query with lists of conditions on R and on the results."""
    given: dict[str, Any] = {"filter": [pc.field("v") != 7, small], "where": [eddy.Predicate(near, ["S.v", "R.v"])]}
    given.update(changes)
    streams = [eddy.Stream("R", ROWS, filter=given["filter"]), eddy.Stream("S", ROWS)]
    return eddy.Query(streams, ["R.k = S.k"], where=given["where"], select=["R.k"])


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"k": range(len(values)), "v": values}, schema=ROWS)


def test_a_push_that_fails_in_a_function_leaves_the_state() -> None:
    runtime = eddy.Runtime(query())
    runtime.push({"R": rows(1, 7, 200, 60)})
    saved, figures = runtime.snapshot(), runtime.metrics()
    with pytest.raises(eddy.InputError, match=r"stream R: its filter, predicate 'small', .*ValueError: -1 is no value"):
        runtime.push({"S": rows(1, 1, 1, 1), "R": rows(1, -1)}, [1, 1, 1, 1, 0, 0])
    assert runtime.snapshot() == saved
    assert runtime.metrics() == figures
    assert runtime.push({"S": rows(1, 1, 1, 1)}).to_pylist() == [{"R.k": 0}]


def test_a_push_that_fails_in_where_leaves_the_state() -> None:
    def picky(batch: pa.RecordBatch) -> Any:
        return np.ones(2 if 3 in batch["S.v"].to_pylist() else len(batch), bool)

    runtime = eddy.Runtime(query(where=[pc.field("R.v") < 50, eddy.Predicate(picky, ["S.v"], "picky")]))
    runtime.push({"R": rows(1, 2)})
    saved = runtime.snapshot()
    with pytest.raises(eddy.InputError, match=r"where, predicate 'picky', .*2 values for 1 rows"):
        runtime.push({"S": rows(3)})
    assert runtime.snapshot() == saved
    assert runtime.push({"S": rows(5, 5)}).num_rows == 2


def test_figures_and_explain() -> None:
    runtime = eddy.Runtime(query())
    runtime.push({"R": rows(1, 7, 200), "S": rows(1, 1, 1)}, [0, 0, 0, 1, 1, 1])
    figures = runtime.filters().select(["where", "predicate", "position", "rows", "accepted"]).to_pylist()
    assert [tuple(row.values()) for row in figures] == [
        ("R", "(v != 7)", 0, 3, 2),
        ("R", "small", 1, 2, 1),
        ("results", "near", 0, 1, 1),
    ]
    lines = runtime.explain().splitlines()
    assert "where near" in lines
    (asked,) = [line for line in lines if line.startswith("filter of R: ")]
    assert asked.startswith("filter of R: (v != 7) (0.667 of rows, ")
    assert "→ small (0.5 of rows" in asked


def test_two_runtimes_of_a_query_learn_apart() -> None:
    shared_query = query()
    first, second = eddy.Runtime(shared_query), eddy.Runtime(shared_query)
    first.push({"R": rows(1, 2, 3)})
    assert first.filters()["rows"].to_pylist()[:2] == [3, 3]
    assert second.filters()["rows"].to_pylist()[:2] == [0, 0]
    assert eddy.Runtime(query(filter=[], where=None)).filters().num_rows == 0


def test_a_query_with_functions_travels() -> None:
    again = pickle.loads(pickle.dumps(query()))
    runtime = eddy.Runtime(again)
    assert runtime.push({"R": rows(1, 7), "S": rows(2, 2)}, [0, 0, 1, 1]).to_pylist() == [{"R.k": 0}]


def test_a_snapshot_knows_functions_by_name() -> None:
    runtime = eddy.Runtime(query())
    runtime.push({"R": rows(1, 7, 2)})
    saved = runtime.snapshot()
    restored = eddy.Runtime.restore(saved, query())
    assert restored.snapshot() == saved
    assert restored.push({"S": rows(1, 1, 1)}).to_pylist() == runtime.push({"S": rows(1, 1, 1)}).to_pylist()
    # Functions are compared by name only.
    other = [pc.field("v") != 7, eddy.Predicate(lambda batch: pc.is_valid(batch["v"]), name="small")]
    eddy.Runtime.restore(saved, query(filter=other))
    single = eddy.Runtime(query(filter=pc.field("v") > 1)).snapshot()
    eddy.Runtime.restore(single, query(filter=[pc.field("v") > 1]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"filter": [small, pc.field("v") != 7]}, "filter: (v != 7) and small in the snapshot, small and (v != 7) in"),
        ({"filter": small}, "filter: (v != 7) and small in the snapshot, small in the query"),
        ({"filter": None}, "filter: (v != 7) and small in the snapshot, none in the query"),
        ({"filter": [pc.field("v") != 8, small]}, "(v != 8) and small in the query"),
        ({"where": eddy.Predicate(near, ["S.v", "R.v"], "close")}, "where: near in the snapshot, close in the query"),
        ({"where": pc.field("R.v") > 1}, "where: near in the snapshot, (R.v > 1) in the query"),
    ],
)
def test_a_snapshot_of_other_filters_is_refused(changes: dict[str, Any], message: str) -> None:
    # A changelog takes back results as it gave them.
    output: Any = "changelog" if "where" in changes else "append"
    saved = eddy.Runtime(query(), output=output).snapshot()
    with pytest.raises(eddy.SnapshotError) as refused:
        eddy.Runtime.restore(saved, query(**changes))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"where": near}, ["where", "near", "eddy.Predicate(function, columns="]),
        ({"where": [pc.field("R.v") > 1, near]}, ["where, condition 2,", "near"]),
        ({"where": eddy.Predicate(near, ["R.x"])}, ["where", "'R.x'", "R.k, R.v, S.k, S.v"]),
        ({"where": [pc.field("v") > 1]}, ["where, condition 1,", "v"]),
        ({"filter": [small, "v > 1"]}, ["stream R", "condition 2", "str"]),
        ({"filter": eddy.Predicate(small, ["x"])}, ["stream R", "'x'", "k, v"]),
        ({"filter": [small, pc.field("v")]}, ["stream R", "condition 2", "int64"]),
    ],
)
def test_wrong_filters_are_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(eddy.QueryError) as raised:
        query(**changes)
    for word in words:
        assert word in str(raised.value)


def test_count_only_asks_where_too() -> None:
    runtime = eddy.Runtime(query(), count_only=True)
    table = runtime.push({"R": rows(1, 60), "S": rows(2, 5)}, [0, 0, 1, 1])
    assert table.to_pylist() == [{"count": 1}]

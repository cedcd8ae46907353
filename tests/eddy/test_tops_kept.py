"""`top`: what it keeps and for how long, the bound on bytes, what it refuses, and what its errors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy import InputError, Query, QueryError, Runtime, Stream, Top
from eddy.tops import forest as trees
from eddy.tops.forest import Forest
from eddy.tops.stored_rows import StoredRows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int8()))])
BID = Stream("R", SCHEMA)


def query(top: Top, window: Any = None, **more: Any) -> Query:
    return Query([Stream("R", SCHEMA, window=window)], top=top, **more)


def rows(first: int, n: int, groups: int = 5) -> pa.RecordBatch:
    numbers = np.arange(first, first + n)
    return pa.record_batch(
        {
            "k": numbers % groups,
            "x": (numbers * 7919 % 1009).astype(float),
            "s": [f"text {k * 7919 % 1009}" for k in numbers],
            "l": [[1] * (k % 4) for k in numbers],
        },
        schema=SCHEMA,
    )


def forest_of(runtime: Runtime) -> Forest:
    tops = runtime._pipeline.tops
    assert tops is not None
    return tops.forest


# What is kept


@pytest.mark.parametrize("order", ["R.x desc", "R.s"])
def test_only_the_first_rows_are_kept_where_no_row_leaves(order: str) -> None:
    runtime = Runtime(query(Top(3, "R.k", order)), output="changelog")
    for step in range(60):
        runtime.push({"R": rows(100 * step, 100)})
        runtime.check()
    forest = forest_of(runtime)
    assert len(forest) == 15
    assert len(forest.rows) <= 2 * 15 + trees.SPARE_ROWS + 100
    assert int(forest.texts.arena.meta[0]) < 2 * trees.SPARE_TEXTS + 200
    assert runtime.nbytes < 1_000_000


def test_memory_follows_the_window() -> None:
    stream = eddy.Table("R", SCHEMA, key="k", ops="column")
    runtime = Runtime(Query([stream], top=Top(2, (), "R.s")), output="changelog")
    batch = pa.Table.from_batches([rows(0, 20_000, 20_000)])
    runtime.push({"R": batch.append_column("op", pa.array(["c"] * len(batch)))})
    runtime.check()
    full = runtime._pipeline.tops.nbytes  # type: ignore[union-attr]
    runtime.push({"R": batch.append_column("op", pa.array(["d"] * len(batch))).slice(10)})
    runtime.push({"R": [{"k": 1, "x": 1.0, "s": "a", "l": None, "op": "c"}]})
    runtime.check()
    assert len(forest_of(runtime)) == 10
    assert runtime._pipeline.tops.nbytes < full / 8  # type: ignore[union-attr]


def test_a_push_beyond_the_bound_is_refused_and_leaves_no_trace() -> None:
    top_query = query(Top(100_000, "R.k", "R.x"))
    runtime, twin = Runtime(top_query, output="changelog", max_bytes=1_000_000), Runtime(top_query, output="changelog")
    for step in range(15):
        pushed = rows(200 * step, 200)
        assert runtime.push({"R": pushed}).equals(twin.push({"R": pushed}))
        assert runtime.nbytes <= 1_000_000
    saved, pushed = runtime.snapshot(), rows(3_000, 3_000)
    with pytest.raises(eddy.CapacityError, match="rows of top would take"):
        runtime.push({"R": pushed})
    assert runtime.snapshot() == saved
    runtime.check()
    runtime.max_bytes = None
    assert runtime.push({"R": pushed}).equals(twin.push({"R": pushed}))


def test_stored_rows_are_read_by_number_through_all_batches() -> None:
    stored, draw = StoredRows(SCHEMA), np.random.default_rng(3)
    whole = rows(0, 400)
    at = 0
    while at < len(whole):
        n = int(draw.integers(1, 9))
        stored = stored.with_rows([whole.slice(at, n)])
        at += n
    assert len(stored) == len(whole)
    assert 1 < len(stored.batches) < 12
    numbers = draw.permutation(len(whole))[:50]
    assert stored.columns(numbers, [2, 3]) == whole.take(pa.array(numbers)).select([2, 3]).columns
    smaller = stored.only(np.sort(numbers))
    assert smaller.columns(np.arange(50), [0]) == whole.take(pa.array(np.sort(numbers))).select([0]).columns


def test_columns_of_any_type_come_back() -> None:
    kinds = [pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.run_end_encoded(pa.int32(), pa.int64())]
    schema = pa.schema([("k", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))])
    top_query = Query([Stream("R", schema)], top=Top(1, "R.k", ["R.c0", "R.c2 desc"]))
    runtime = Runtime(top_query, output="changelog")
    for step in range(5):
        rows_of = [{"k": k % 3, "c0": "zyx"[k % 3] * (5 - step), "c1": f"v{k}", "c2": k} for k in range(step, step + 9)]
        table = runtime.push({"R": rows_of})
        table.validate(full=True)
        assert table.schema == runtime.output_schema
        runtime = Runtime.restore(runtime.snapshot(), top_query)
    assert len(forest_of(runtime)) == 3


def test_pushes_of_no_rows_and_of_rows_without_a_group_change_nothing() -> None:
    runtime = Runtime(query(Top(1, ["R.k", "R.s"])), output="changelog")
    assert not len(runtime.push({}))
    nothing = [{"k": None, "x": None, "s": None, "l": None}]
    assert len(runtime.push({"R": nothing})) == 1
    assert not len(runtime.push({"R": nothing}))
    assert not len(runtime.finish())


def test_the_first_rows_are_those_of_the_selected_columns_that_have_values() -> None:
    top_query = Query(
        [BID], select={"y": "10 / CAST(R.s AS BIGINT)"}, top=Top(1, "R.k", "R.x * -1", "place"), failed="keep"
    )
    runtime = Runtime(top_query, output="changelog")
    values = [{"k": 1, "x": float(n), "s": s, "l": None} for n, s in enumerate(["5", "2", "no number"])]
    assert runtime.push({"R": values}).to_pylist() == [{"op": "+I", "y": 5.0, "place": 1}]
    assert runtime.failed_count == 1


# Refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Top(0), "n is a number of rows from 1"),
        (lambda: Top(True and 1.5), "n is a number of rows"),  # type: ignore[arg-type]
        (lambda: Top(1, 7), "by is a column or a list of columns"),  # type: ignore[arg-type]
        (lambda: Top(1, order=["R.x", ""]), "order is a column"),
        (lambda: Top(1, rank=""), "rank is the name"),
        (lambda: query(Top(1, "R.z")), "stream R has no column 'z'"),
        (lambda: query(Top(1, order="z.x desc")), "top, order: there is no column 'z.x'"),
        (lambda: query(Top(1, "R.l")), "top, by: R.l is list<item: int8>"),
        (lambda: query(Top(1, rank="R.k")), "the name of another output column"),
        (lambda: query("R.k"), "top must be eddy.Top"),  # type: ignore[arg-type]
        (
            lambda: query(Top(1, "R.x"), group_by=["R.k"], aggregates={"n": eddy.agg.count()}),
            "the columns of the groups are R.k, n",
        ),
        (lambda: query(Top(1, [f"R.x + {k}" for k in range(61)])), "at most 60 columns"),
    ],
)
def test_a_top_that_does_not_fit_says_why(make: Any, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("top", "options", "message"),
    [
        (Top(1, "R.k"), {}, "use output='changelog', or, for input that ends"),
        (Top(2, "R.k"), {"output": "upsert"}, "give Top a rank column"),
        (Top(1, "R.s"), {"output": "upsert"}, "add 'R.s'"),
        (Top(1), {"output": "changelog", "ids_only": True}, "ids_only is for all results"),
        (Top(1), {"output": "changelog", "count_only": True}, "count_only is for all results"),
        (Top(1), {"output": "changelog", "ordered": True}, "ordered is for all results"),
    ],
)
def test_a_runtime_refuses_what_it_cannot_put_out(top: Top, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Runtime(query(top, select=["R.k"]), **options)
    assert message in str(caught.value)


def test_load_is_refused() -> None:
    runtime = Runtime(query(Top(1), eddy.Rows(5)), output="changelog")
    with pytest.raises(InputError, match="load: top needs the results of earlier rows"):
        runtime.load({"R": rows(0, 3)})


def test_a_snapshot_is_of_one_top() -> None:
    saved = Runtime(query(Top(2, "R.k", "R.x")), output="changelog").snapshot()
    for other in (Top(3, "R.k", "R.x"), Top(2, "R.k", "R.x desc"), Top(2, "R.k", "R.x nulls first"), Top(2, (), "R.x")):
        with pytest.raises(eddy.SnapshotError, match="top: "):
            Runtime.restore(saved, query(other))
    with pytest.raises(eddy.SnapshotError):
        Runtime.restore(saved, Query([BID], group_by=["R.k"]))


def test_groups_by_key_without_a_first_push_select_columns() -> None:
    """An empty table of groups has columns without chunks."""
    grouped = Query(
        [Stream("R", SCHEMA, window=eddy.Rows(2))], group_by=["R.k"], aggregates={"n": eddy.agg.count()}, select=["R.k"]
    )
    runtime = Runtime(grouped, output="upsert")
    assert runtime.push({"R": rows(0, 1)}).to_pylist() == [{"op": "+I", "R.k": 0}]

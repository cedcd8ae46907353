"""Split, shuffle, merge and join give the oracle's results for any query, grid and batches. Runs without a JVM."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.spark.batch import blobs
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning import engine, merge, pieces
from eddy.spark.partitioning.job import make_job
from eddy.spark.types import sortable_type
from stairs.plain_types import to_plain
from tests.cases import Arrival, JoinCase, arrow_rows, assert_same, feed, results, text_rows
from tests.draws import arrivals as draw_arrivals
from tests.draws import cases
from tests.spark.pipeline import run_here


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> object:
    """Use small blobs, runs and pushes, so that few rows make many of them; leave types unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_ROWS", 3)
        patch.setattr(pieces, "RUN_ROWS", 7)
        patch.setattr(blobs, "BATCH_BYTES", 1000)
        patch.setattr(merge, "PUSH_ROWS", 5)
        patch.setattr(engine, "OUTPUT_ROWS", 4)
        patch.setattr(engine, "spark_schema", lambda schema: schema)
        yield


def content(schema: pa.Schema, rows: list[dict[str, object]], time: str | None) -> list[int]:
    """Return the rank of each row by (time, content) as Arrow sorts."""
    if not rows:
        return []
    batch = arrow_rows(schema, rows)
    names = [*([time] if time else []), *(name for name in schema.names if name != time)]
    columns = [to_plain(batch.column(name)) for name in names]
    plain = pa.table([column.cast(sortable_type(column.type)) for column in columns], names=names)
    order = pc.sort_indices(plain, sort_keys=[(name, "ascending") for name in names]).to_pylist()
    ranks = [0] * len(rows)
    for rank, row in enumerate(order):
        ranks[row] = rank
    return ranks


def defined_order(case: JoinCase, arrivals: list[Arrival]) -> list[Arrival]:
    """Return arrivals by (time, stream, content); the last two matter only if a window counts rows."""
    if all(stream.time is None for stream in case.streams):
        return arrivals
    keyed = []
    counted = any(stream.window == "rows" for stream in case.streams)
    for i, stream in enumerate(case.streams):
        rows = [row for at, row in arrivals if at == i]
        ranks = content(stream.schema, rows, stream.time) if counted else range(len(rows))
        keyed += [((row[stream.time], i, rank), (i, row)) for rank, row in zip(ranks, rows, strict=True)]
    return [arrival for _, arrival in sorted(keyed, key=lambda pair: pair[0])]


def cut(data: st.DataObject, case: JoinCase, arrivals: list[Arrival]) -> dict[str, list[list[pa.RecordBatch]]]:
    """Deal each stream's rows to map tasks, and a task's rows to batches."""
    tasks: dict[str, list[list[pa.RecordBatch]]] = {}
    for i, stream in enumerate(case.streams):
        rows = [row for at, row in arrivals if at == i]
        if data.draw(st.booleans()):
            rows = data.draw(st.permutations(rows))
        n = data.draw(st.integers(1, 3))
        size = data.draw(st.integers(1, 9))
        tasks[stream.name] = [
            [arrow_rows(stream.schema, part[k : k + size], shape=k % 3) for k in range(0, len(part), size)]
            for part in (rows[t::n] for t in range(n))
        ]
    return tasks


@given(st.data())
def test_any_query_through_the_pipeline(data: st.DataObject) -> None:
    case = data.draw(cases())
    arrivals = data.draw(draw_arrivals(case))
    counted = any(stream.window == "rows" for stream in case.streams)
    query = case.query()
    partitions = 1 if counted else data.draw(st.sampled_from([1, 2, 3, 4, 6]))
    try:
        job = make_job(query, partitions=partitions)
    except SparkJoinError as refusal:
        refusal_text = str(refusal)
    else:
        refusal_text = ""
    if refusal_text:
        assert counted, refusal_text
        assert "no order" in refusal_text or "order of arrival is not defined" in refusal_text
        return
    oracle = case.oracle()
    expected = [case.project(oracle, result) for result in results(feed(case, oracle, defined_order(case, arrivals)))]
    got = run_here(job, cut(data, case, arrivals), seed=data.draw(st.integers(0, 99)))
    assert_same(text_rows(got), expected, "through the pipeline")


def four(window: eddy.Rows | eddy.Range | eddy.Unbounded, **more: object) -> eddy.Query:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("t", pa.int64())])
    streams = [eddy.Stream(name, schema, window=window, time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], **more)


def rows(*tuples: tuple[int | None, ...]) -> list[list[pa.RecordBatch]]:
    names = ("k", "n", "t")
    return [[pa.record_batch({n: pa.array([t[i] for t in tuples], pa.int64()) for i, n in enumerate(names)})]]


def test_null_keys_take_a_place_in_a_rows_window_only() -> None:
    left = rows((1, 0, 0), (None, 1, 1))
    right = rows((1, 0, 2))
    counted = run_here(make_job(four(eddy.Rows(1))), {"R": left, "S": right})
    assert counted.num_rows == 0, "the null tuple is the newest of R"
    ranged = make_job(four(eddy.Range(10)), partitions=4)
    assert run_here(ranged, {"R": left, "S": right}).num_rows == 1


def test_null_times_are_refused_by_name() -> None:
    job = make_job(four(eddy.Range(10)), partitions=2)
    with pytest.raises(SparkJoinError, match=r"stream 'R', column 't': 1 rows are null"):
        run_here(job, {"R": rows((1, 0, None), (1, 0, 3))})


def test_order_by_numbers_instead_of_times() -> None:
    job = make_job(four(eddy.Rows(1)), order_by={"R": "n", "S": "n"})
    # By n: R(k=1), R(k=2), S(k=1) - the first R has left the window; by time it would not have.
    got = run_here(job, {"R": rows((1, 0, 8), (2, 1, 7)), "S": rows((1, 2, 9))})
    assert got.num_rows == 0
    got = run_here(job, {"R": rows((1, 1, 7), (2, 0, 8)), "S": rows((1, 2, 9))})
    assert got.to_pylist() == [{"R.k": 1, "R.n": 1, "R.t": 7, "S.k": 1, "S.n": 2, "S.t": 9}]


def test_only_needed_columns_travel() -> None:
    wide = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("f", pa.int64()), ("w", pa.int64()), ("x", pa.string())])
    streams = [
        eddy.Stream("R", wide, window=eddy.Range(5), time="t", filter=pc.field("f") > 0),
        eddy.Stream("S", wide, window=eddy.Range(5), time="t"),
    ]
    query = eddy.Query(streams, ["R.k = S.k"], select=["S.t"], where=pc.field("R.w") == 1)
    job = make_job(query)
    assert job.query.streams[0].schema.names == ["k", "t", "w"]
    assert job.query.streams[1].schema.names == ["k", "t"]
    assert [schema.names for schema in job.inputs] == [["k", "t", "f", "w"], ["k", "t"]]
    counted = eddy.Query([eddy.Stream(s.name, wide, window=eddy.Rows(2), time="t") for s in streams], ["R.k = S.k"])
    assert make_job(counted).query.streams[0].schema.names == wide.names, "ties are broken by all of the tuple"


def test_memory_waits_for_overlap_only() -> None:
    """Sorted runs that do not overlap are pushed as they arrive, whatever their number."""
    job = make_job(four(eddy.Range(10)))
    merger = merge.Merger(job)
    most = 0
    for k in range(200):
        tuples = rows(*((1, 0, 10 * k + i) for i in range(3)))[0][0]
        for pushed in merger.add(10 * k, 0, tuples):
            assert pushed["R"].num_rows >= merge.PUSH_ROWS
        most = max(most, merger._rows)
    assert most <= 2 * merge.PUSH_ROWS + 3

"""Snapshots: a runtime restored goes on as if nothing had happened, and nothing else is ever restored."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Rows, Runtime, SnapshotError, Stream, Unbounded
from eddy.query_text import difference, query_text
from eddy.snapshot_file import DIGEST_BYTES, MAGIC, VERSION, pack, unpack
from stairs.modules import RENUMBER_AT
from tests.cases import Case, StreamCase, assert_same, feed, id_rows, late_rows, results, text_rows
from tests.strategies import PAYLOADS, arrivals, cases, neighbours_by_predicate, plans, splits

CASES = cases()
MODES: tuple[dict[str, Any], ...] = ({}, {"ids_only": True}, {"count_only": True}, {"strategy": "cacq"})
TOTALS = ("arrivals", "results", "combinations", "inserts", "expired", "late")
STATE_TOTALS = ("arrivals", "inserts", "rows", "expired", "late")


def totals(runtime: Runtime) -> dict[str, Any]:
    """Give the counts that a restore keeps."""
    metrics = runtime.metrics()
    states = {name: [state[total] for total in STATE_TOTALS] for name, state in metrics["states"].items()}
    return {**{total: metrics[total] for total in TOTALS}, **states}


def restored(runtime: Runtime, query: Query, plan: str | None = None) -> Runtime:
    """Take a snapshot twice, restore it, and compare everything that can be seen without a push."""
    saved = runtime.snapshot()
    runtime.check()
    assert runtime.snapshot() == saved
    again = Runtime.restore(saved, query, plan)
    again.check()
    assert totals(again) == totals(runtime)
    if plan is None:
        assert again.plan == runtime.plan
        assert again.snapshot() == saved
    return again


# --- going on --------------------------------------------------------------------------------------------------------


@given(st.data())
def test_a_restored_runtime_gives_what_the_oracle_gives(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    mode = data.draw(st.sampled_from(MODES))
    renumber_at = data.draw(st.sampled_from((RENUMBER_AT, 1, 16)))
    query = case.query()
    runtime = Runtime(query, renumber_at=renumber_at, **mode)
    oracle = case.oracle()
    held: dict[str, list[tuple[str, ...]]] = {}
    restores = 0
    for one in pushes:
        for _ in range(data.draw(st.sampled_from((0, 0, 0, 1, 0, 2)))):
            # A query written anew, as in another process.
            query = case.query()
            runtime = restored(runtime, query, data.draw(st.none() | plans(case, neighbours_by_predicate(case))))
            restores += 1
        table = runtime.push(one.batches(case), one.order())
        outcomes = feed(case, oracle, one.arrivals)
        found = results(outcomes)
        if "count_only" in mode:
            assert table.to_pydict() == {"count": [len(found)]}
        elif "ids_only" in mode:
            assert_same(id_rows(case, table), found, "ids of a push")
        else:
            assert table.schema == query.output_schema
            assert_same(text_rows(table), [case.project(oracle, result) for result in found], "rows of a push")
        for name, rows in late_rows(case, one.arrivals, outcomes).items():
            held.setdefault(name, []).extend(rows)
        if data.draw(st.integers(0, 3)) == 0:
            assert {name: text_rows(rows) for name, rows in runtime.late().items() if rows.num_rows} == held
            held = {}
    runtime = restored(runtime, query)
    assert {name: text_rows(rows) for name, rows in runtime.late().items() if rows.num_rows} == held
    event(f"restores: {'none' if not restores else 'some'}")


@given(st.data())
def test_the_same_plan_gives_the_very_same_tables(data: st.DataObject) -> None:
    case = data.draw(CASES)
    pushes = data.draw(splits(data.draw(arrivals(case))))
    plan = data.draw(st.none() | plans(case, neighbours_by_predicate(case)))
    mode = data.draw(st.sampled_from(MODES))
    whole, broken = (Runtime(case.query(), plan, **mode) for _ in range(2))
    every = data.draw(st.sampled_from((1, 3)))
    for n, one in enumerate(pushes):
        expected = whole.push(one.batches(case), one.order())
        table = broken.push(one.batches(case), one.order())
        assert table.schema == expected.schema
        assert text_rows(table) == text_rows(expected)
        assert totals(broken) == totals(whole)
        if n % every == 0:
            broken = restored(broken, case.query())
            # What passed through a snapshot is the same state to the byte.
            assert broken.snapshot() == whole.snapshot()


PAYLOAD_COLUMNS = [(f"p{k}", kind) for k, kind in enumerate([*PAYLOADS, pa.int16()])]


def long_stream_rows(start: int, rows: int, names: str, text: bool) -> dict[str, pa.RecordBatch]:
    """Give rows of every payload type, nulls in some pushes only, keys that drift and event times that jump."""
    batches = {}
    for name in names:
        rng = random.Random(f"{name}{start}")
        keys = [None if rng.random() < 0.02 else (start + k) // 9 + rng.randrange(80) for k in range(rows)]
        columns = [
            pa.array([None if key is None else f"key {key}" for key in keys] if text else keys),
            pa.array([start + k - rng.randrange(20) for k in range(rows)], pa.int64()),
        ]
        for column, kind in PAYLOAD_COLUMNS:
            own = PAYLOADS.get(kind, (1, 2, -3))
            some_null = start // 100 % 3 == 1
            values = [None if some_null and rng.random() < 0.3 else own[rng.randrange(len(own))] for _ in range(rows)]
            if pa.types.is_dictionary(kind):
                columns.append(pa.array(values, kind.value_type).dictionary_encode().cast(kind))
            elif pa.types.is_duration(kind) or pa.types.is_time(kind):
                columns.append(pa.array(values, pa.int64()).cast(kind))
            else:
                columns.append(pa.array(values, kind))
            assert columns[-1].type == kind, column
        batches[name] = pa.RecordBatch.from_arrays(columns, schema=long_schema(text))
    return batches


def long_schema(text: bool) -> pa.Schema:
    return pa.schema([("k", pa.string() if text else pa.int64()), ("t", pa.int64()), *PAYLOAD_COLUMNS])


@pytest.mark.parametrize("window", [Rows(70), Range(90), "mixed"], ids=str)
@pytest.mark.parametrize("text", [False, True])
def test_windows_that_have_turned_over(window: eddy.Rows | eddy.Range | str, text: bool) -> None:
    kinds = [Rows(33), Range(40), Unbounded()] if isinstance(window, str) else [window] * 3
    schema = long_schema(text)
    streams = [Stream(name, schema, window=kind, time="t") for name, kind in zip("RST", kinds, strict=True)]
    lateness = 0 if window == Rows(70) else 15

    def query() -> Query:
        return Query(streams, ["R.k = S.k", "S.k = T.k"], lateness=lateness)

    whole, broken = (Runtime(query(), "R (S T)", renumber_at=300) for _ in range(2))
    seen = 0
    for n, start in enumerate(range(0, 1000, 40)):
        batches = long_stream_rows(start, 40, "RST", text)
        order = np.random.default_rng(n).permutation(np.repeat([0, 1, 2], 40))
        expected = whole.push(batches, order)
        assert broken.push(batches, order).equals(expected)
        seen += expected.num_rows
        if n % 3 == 2:
            broken = restored(broken, query())
            assert broken.snapshot() == whole.snapshot()
    assert seen > 500
    late, other = whole.late(), broken.late()
    assert late.keys() == other.keys() == (set("RST") if lateness else set())
    assert all(other[name].equals(late[name]) for name in late)


def test_dictionaries_within_lists() -> None:
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    schema = pa.schema([("k", pa.int64()), ("l", kind)])
    query = Query([Stream(name, schema, window=Rows(6)) for name in "RS"], ["R.k = S.k"])
    whole, broken = Runtime(query), Runtime(query)
    for start in range(0, 40, 4):
        lists = pa.array([[f"a{k}", None, f"b{k % 3}"] if k % 5 else None for k in range(start, start + 4)], kind)
        batch = pa.RecordBatch.from_arrays([pa.array([k % 3 for k in range(4)]), lists], schema=schema)
        rows = {"R": batch, "S": batch}, [0, 1] * 4
        assert broken.push(*rows).to_pylist() == whole.push(*rows).to_pylist()
        broken = restored(broken, query)


def test_an_empty_runtime() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    query = Query([Stream(name, schema) for name in "RS"], ["R.k = S.k"])
    again = restored(Runtime(query), query)
    batch = pa.record_batch({"k": ["a"], "v": [1]}, schema=schema)
    assert again.push({"R": batch, "S": batch}, [0, 1]).num_rows == 1


def test_a_window_that_ran_empty() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64())])
    query = Query([Stream(name, schema, window=Range(5), time="t") for name in "RS"], ["R.k = S.k"])
    runtime = Runtime(query, ids_only=True)
    runtime.push({"R": pa.record_batch({"k": ["a", "b"], "t": [0, 1]}, schema=schema)})
    runtime.push({"S": pa.record_batch({"k": ["a"], "t": [100]}, schema=schema)})
    again = restored(runtime, query)
    rows = {"R": pa.record_batch({"k": ["a"], "t": [101]}, schema=schema)}
    assert again.push(rows).to_pylist() == [{"R": 2, "S": 0}]
    with pytest.raises(eddy.InputError):
        again.push({"R": pa.record_batch({"k": ["a"], "t": [None]}, schema=schema)})
    again.push({"R": pa.record_batch({"k": ["a"], "t": [99]}, schema=schema)})
    assert again.late()["R"].to_pylist() == [{"k": "a", "t": 99}]


def test_a_failed_push_leaves_no_trace_in_a_snapshot() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    streams = [Stream(name, schema, window=Rows(5)) for name in "RS"]
    query = Query(streams, ["R.k = S.k"], where=pc.divide(pc.scalar(4), pc.field("R.v")) > 0)
    runtime = Runtime(query)
    runtime.push({"R": pa.record_batch({"k": ["a", "z"], "v": [1, 0]}, schema=schema)})
    saved = runtime.snapshot()
    for one in (runtime, Runtime.restore(saved, query)):
        with pytest.raises(eddy.InputError, match="where failed"):
            one.push({"S": pa.record_batch({"k": ["new", "z"], "v": [1, 1]}, schema=schema)})
        one.check()
        assert one.snapshot() == saved


def test_a_restored_runtime_does_not_keep_the_snapshot() -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64())), ("t", pa.int64())])
    query = Query([Stream(name, schema, window=Range(5), time="t") for name in "RS"], ["R.k = S.k"])
    runtime = Runtime(query)
    for t in (9, 1):
        runtime.push({"R": pa.record_batch({"k": [1], "s": ["x"], "l": [[1, 2]], "t": [t]}, schema=schema)})
    saved = runtime.snapshot()
    references = sys.getrefcount(saved)
    again = Runtime.restore(saved, query)
    assert sys.getrefcount(saved) == references
    assert again.late()["R"].to_pylist() == [{"k": 1, "s": "x", "l": [1, 2], "t": 1}]


def test_no_snapshot_in_the_middle_of_a_push() -> None:
    runtime = Runtime(make_query())
    runtime._modules.begin([0, 0])
    with pytest.raises(SnapshotError, match="between two pushes"):
        runtime.snapshot()


_PRINT = """
import hashlib
from tests.eddy.test_snapshot import filled
print(hashlib.sha256(filled().snapshot()).hexdigest())
"""


def test_another_process_writes_the_same_bytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [hashlib.sha256(filled().snapshot()).hexdigest()]


# --- refusing --------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("ms"))])
FIVE_SECONDS = Range(timedelta(seconds=5))
POSITIVE = pc.field("a") > 0


def make_query(
    names: str = "RS",
    schema: pa.Schema = SCHEMA,
    window: Any = FIVE_SECONDS,
    time: str | None = "t",
    accept: pc.Expression | None = POSITIVE,
    predicates: tuple[str, ...] = ("R.a = S.a", "R.b = S.b"),
    **options: Any,
) -> Query:
    """Give a query of two streams; the first has what is asked for, the second is always the same."""
    first = Stream(names[0], schema, window=window, time=time, filter=accept)
    second = Stream(names[1], SCHEMA, window=FIVE_SECONDS, time="t")
    given = {"where": pc.field("R.a") < 1000, "lateness": timedelta(seconds=2), **options}
    return Query([first, second], list(predicates), **given)


def filled() -> Runtime:
    """Give a runtime of the usual query with rows in its windows, one of them late."""
    runtime = Runtime(make_query())
    n = 30
    batch = pa.record_batch(
        {"a": [k % 4 for k in range(n)], "b": [f"text {k % 3}" for k in range(n)], "t": [k * 100 for k in range(n)]},
        schema=SCHEMA,
    )
    runtime.push({"R": batch, "S": batch}, [0, 1] * n)
    runtime.push({"R": batch.slice(3, 1)})
    return runtime


SAVED = filled().snapshot()


@given(st.data())
def test_damage_is_always_noticed(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("flip", "cut", "extend", "overwrite", "drop", "insert", "swap")))
    at = data.draw(st.integers(0, len(SAVED) - 1))
    some = data.draw(st.binary(min_size=1, max_size=40))
    damaged = bytearray(SAVED)
    if kind == "flip":
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del damaged[at:]
    elif kind == "extend":
        damaged += some
    elif kind == "overwrite":
        damaged[at : at + len(some)] = some
    elif kind == "drop":
        del damaged[at : at + len(some)]
    elif kind == "insert":
        damaged[at:at] = some
    else:
        damaged = damaged[at:] + damaged[:at]
    if damaged != SAVED:
        with pytest.raises(SnapshotError):
            Runtime.restore(bytes(damaged), make_query())


@pytest.mark.parametrize("at", [*range(34), *range(len(SAVED) - 17, len(SAVED))])
def test_every_bit_at_the_ends_counts(at: int) -> None:
    for bit in range(8):
        damaged = bytearray(SAVED)
        damaged[at] ^= 1 << bit
        with pytest.raises(SnapshotError):
            Runtime.restore(bytes(damaged), make_query())


def with_version(version: int) -> bytes:
    return SAVED[: len(MAGIC)] + struct.pack("<Q", version) + SAVED[len(MAGIC) + 8 :]


def sealed(data: bytes) -> bytes:
    """Put the right digest to the bytes."""
    body = data[:-DIGEST_BYTES]
    return body + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "is the bytes that .* gave, not str"),
        (None, "not NoneType"),
        (bytearray(SAVED), "not bytearray"),
        (b"", "is empty"),
        (b"eddy", "cut off"),
        (SAVED[:60], "cut off"),
        (SAVED[:-1], "cut off"),
        (SAVED + b"\0", "behind its end"),
        (SAVED * 2, "behind its end"),
        (b"PAR1" + SAVED, "no snapshot"),
        (b"x", "no snapshot"),
        (with_version(VERSION + 1), f"format version {VERSION + 1}, this version .* reads {VERSION}"),
        (sealed(with_version(0)), "no format version 0"),
        (SAVED[:-1] + bytes([SAVED[-1] ^ 1]), "damaged"),
    ],
)
def test_what_is_no_whole_snapshot_is_refused(data: Any, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        Runtime.restore(data, make_query())


NARROW = SCHEMA.set(0, pa.field("a", pa.int32()))
WITHOUT = SCHEMA.remove(1)
OTHERS: dict[str, tuple[Callable[[], Query], str]] = {
    "name": (
        lambda: make_query("QS", predicates=("Q.a = S.a", "Q.b = S.b"), where=pc.field("Q.a") < 1000),
        "streams: R, S in the snapshot, Q, S in the query",
    ),
    "type": (
        lambda: make_query(schema=NARROW),
        "stream R, column 'a': int64 in the snapshot, int32 in the query",
    ),
    "null": (
        lambda: make_query(schema=SCHEMA.set(1, pa.field("b", pa.string(), False))),
        "stream R, column 'b': string in the snapshot, string not null in the query",
    ),
    "missing": (
        lambda: make_query(schema=WITHOUT, predicates=("R.a = S.a",)),
        "stream R, column 'b': string in the snapshot, absent in the query",
    ),
    "more": (
        lambda: make_query(schema=SCHEMA.append(pa.field("c", pa.int8()))),
        "stream R, column 'c': absent in the snapshot, int8 in the query",
    ),
    "columns": (
        lambda: make_query(schema=pa.schema([SCHEMA.field(k) for k in (1, 0, 2)])),
        "stream R: columns a int64, b string, t timestamp[ms] in the snapshot, b string, a int64, t timestamp[ms]",
    ),
    "window": (
        lambda: make_query(window=Rows(7)),
        "stream R, window: RANGE 5000 ticks in the snapshot, ROWS 7 in the query",
    ),
    "size": (
        lambda: make_query(window=Range(timedelta(seconds=6))),
        "stream R, window: RANGE 5000 ticks in the snapshot, RANGE 6000 ticks in the query",
    ),
    "unbounded": (lambda: make_query(window=Unbounded()), "UNBOUNDED in the query"),
    "filter": (
        lambda: make_query(accept=pc.field("a") > 1),
        "stream R, filter: (a > 0) in the snapshot, (a > 1) in the query",
    ),
    "no filter": (lambda: make_query(accept=None), "stream R, filter: (a > 0) in the snapshot, none in the query"),
    "predicate": (
        lambda: make_query(predicates=("R.a = S.a",)),
        "predicates: (R.a, R.b) = (S.a, S.b) in the snapshot, R.a = S.a in the query",
    ),
    "where": (
        lambda: make_query(where=pc.field("R.a") < 1001),
        "where: (R.a < 1000) in the snapshot, (R.a < 1001) in the query",
    ),
    "no where": (lambda: make_query(where=None), "where: (R.a < 1000) in the snapshot, none in the query"),
    "select": (
        lambda: make_query(select={"x": "R.a"}),
        "in the snapshot, x = R.a in the query",
    ),
    "lateness": (
        lambda: make_query(lateness=timedelta(seconds=3)),
        "lateness: 2000 ticks in the snapshot, 3000 ticks in the query",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_snapshot_of_another_query_is_refused_with_the_difference(other: str) -> None:
    make, message = OTHERS[other]
    with pytest.raises(SnapshotError) as refused:
        Runtime.restore(SAVED, make())
    assert message in str(refused.value)


def test_the_time_column_is_part_of_the_query() -> None:
    schema = SCHEMA.append(pa.field("u", pa.timestamp("ms")))
    saved = Runtime(make_query(schema=schema)).snapshot()
    with pytest.raises(SnapshotError, match="stream R, time column: t in the snapshot, u in the query"):
        Runtime.restore(saved, make_query(schema=schema, time="u"))


def test_long_lists_in_expressions_are_compared_whole() -> None:
    few, many = list(range(100)), [*range(50), 777, *range(51, 100)]
    assert str(pc.field("a").isin(few)) == str(pc.field("a").isin(many))
    saved = Runtime(make_query(accept=pc.field("a").isin(few))).snapshot()
    Runtime.restore(saved, make_query(accept=pc.field("a").isin(few)))
    with pytest.raises(SnapshotError, match="stream R, filter"):
        Runtime.restore(saved, make_query(accept=pc.field("a").isin(many)))


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"text": "0 < a"}, True),
        ({"arrow": ""}, False),
        ({"arrow": base64.b64encode(b"of a later version" * 9).decode()}, False),
    ],
    ids=str,
)
def test_expressions_as_another_version_of_arrow_might_write_them(change: dict[str, str], same: bool) -> None:
    saved = query_text(make_query())
    assert difference(saved, make_query()) is None
    saved["streams"][0]["filter"].update(change)
    found = difference(saved, make_query())
    assert found is None if same else found is not None and found.startswith("stream R, filter")


def test_the_same_query_written_otherwise_is_the_same() -> None:
    metadata = SCHEMA.with_metadata({"made": "elsewhere"})
    same = make_query(
        schema=metadata,
        window=Range(5000),
        predicates=("(S.a, S.b) = (R.a, R.b)",),
        lateness=timedelta(milliseconds=2000),
    )
    assert Runtime.restore(SAVED, same).snapshot() == SAVED


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (eddy.PlanError, {"plan": "R R"}),
        (eddy.InputError, {"strategy": "none such"}),
        (eddy.InputError, {"background": 3}),
        (eddy.InputError, {"query": "R.a = S.a"}),
    ],
)
def test_wrong_arguments(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error):
        Runtime.restore(SAVED, **{"query": make_query(), **arguments})


def rewritten(name: str, change: Callable[[np.ndarray], np.ndarray], dtype: str) -> bytes:
    """Give the usual snapshot with one section changed, and the right digest."""
    header, sections = unpack(SAVED)
    section = change(np.frombuffer(sections[name], dtype).copy())
    changed = {**sections, name: memoryview(section.tobytes())}
    del header["sections"]
    return pack(header, changed)


@pytest.mark.parametrize(
    ("name", "dtype", "change", "message"),
    [
        ("stream 0 class 0", "<i4", lambda kids: kids + 1000, "keys that are not there"),
        ("stream 0 class 0", "<i4", lambda kids: kids - 1000, "keys that are not there"),
        ("stream 1 class 0", "<i4", lambda kids: kids[1:], "keys that are not there"),
        ("stream 1 times", "<i8", lambda times: times[1:], "event times"),
        ("class 0 keys", "<i8", lambda words: np.concatenate([words[:2], words[:-2]]), "a key twice"),
        ("class 0 keys", "<i8", lambda words: words + 1000, "a string that is not there"),
        ("class 0 word 1 text", "<u1", lambda text: text * 0 + 7, "a string twice"),
    ],
)
def test_a_forged_snapshot_does_not_reach_the_kernels(
    name: str, dtype: str, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    with pytest.raises(SnapshotError, match=message):
        Runtime.restore(rewritten(name, change, dtype), make_query())


def test_a_refused_restore_changes_nothing() -> None:
    runtime = filled()
    with pytest.raises(SnapshotError):
        runtime.restore(SAVED[:-1], make_query())
    assert runtime.snapshot() == SAVED


def test_case_without_a_stream_in_common() -> None:
    schema = pa.schema([("k", pa.int64())])
    case = Case(
        tuple(StreamCase(name, schema) for name in "RST"), (((("R", "k"), ("S", "k")),), ((("S", "k"), ("T", "k")),))
    )
    with pytest.raises(SnapshotError, match="streams: R, S in the snapshot, R, S, T in the query"):
        Runtime.restore(SAVED, case.query())

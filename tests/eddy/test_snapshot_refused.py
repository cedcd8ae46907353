"""Anything but a whole snapshot of the same query is refused, with the reason."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Rows, Runtime, SnapshotError, Stream, Table, Unbounded
from eddy.query.text import difference, query_text
from eddy.storage.file_kind import MAGIC, VERSION
from tests.cases import JoinCase, StreamCase
from tests.eddy.opened_files import closed, opened, sealed
from tests.eddy.snapshots import SCHEMA, filled, make_query

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


@pytest.mark.parametrize("at", [*range(66), *range(len(SAVED) - 17, len(SAVED))])
def test_every_bit_at_the_ends_counts(at: int) -> None:
    for bit in range(8):
        damaged = bytearray(SAVED)
        damaged[at] ^= 1 << bit
        with pytest.raises(SnapshotError):
            Runtime.restore(bytes(damaged), make_query())


def with_version(version: int) -> bytes:
    return SAVED[: len(MAGIC)] + struct.pack("<Q", version) + SAVED[len(MAGIC) + 8 :]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "text: the snapshot cannot be read"),
        (None, "not NoneType"),
        (bytearray(SAVED), "not bytearray"),
        (b"", "is empty"),
        (b"eddy", "cut off"),
        (SAVED[:60], "cut off"),
        (SAVED[:-1], "cut off"),
        (SAVED + b"\0", "bytes after its end"),
        (SAVED * 2, "bytes after its end"),
        (b"PAR1" + SAVED, "not a snapshot"),
        (b"x", "not a snapshot"),
        (with_version(VERSION - 1), f"format version {VERSION - 1}, this version .* reads {VERSION}"),
        (with_version(VERSION - 1)[:60], f"format version {VERSION - 1}, this version .* reads {VERSION}"),
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
    # A changelog takes back results as it gave them.
    shown = other in ("where", "no where", "select")
    saved = Runtime(make_query(), output="changelog").snapshot() if shown else SAVED
    with pytest.raises(SnapshotError) as refused:
        Runtime.restore(saved, make())
    assert message in str(refused.value)
    assert ("A changelog takes back" in str(refused.value)) is shown


def test_each_part_of_a_stream_or_table_is_part_of_the_query() -> None:
    """A part that a query has and a saved one does not, or with another value, makes a difference."""
    rows = Stream("R", SCHEMA, window=Rows(5), filter=pc.field("a") > 0)
    query = Query([rows, Table("T", SCHEMA, key="a")], ["R.a = T.a"])
    saved = query_text(query)
    assert difference(saved, query) is None
    for i, stream in enumerate(saved["streams"]):
        for part in stream:
            other = copy.deepcopy(saved)
            value = {
                "columns": [["z", "int8"]],
                "window": ["ROWS", 99],
                "filter": {"text": "z", "arrow": "", "values": ""},
            }
            other["streams"][i][part] = value.get(part, "z")
            assert difference(other, query) is not None, (stream["name"], part)
    other = copy.deepcopy(saved)
    del other["streams"][1]["key"]
    assert "stream T, key of a table: none, a stream in the snapshot, 'a' in the query" in str(difference(other, query))
    runtime = Runtime(query, output="changelog")
    for changed in (Table("T", SCHEMA, key="b"), Stream("T", SCHEMA)):
        with pytest.raises(SnapshotError, match="stream T, key of a table: 'a' in the snapshot"):
            Runtime.restore(runtime.snapshot(), Query([rows, changed], ["R.a = T.a"]))


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
        ({"arrow": "of a later version"}, True),
        ({"arrow": ""}, True),
        ({"values": ""}, True),
        ({"text": "0 < a", "arrow": ""}, False),
        ({"values": "", "arrow": ""}, False),
        ({"arrow": "of a later version", "function": "a > 0"}, False),
    ],
    ids=str,
)
def test_expressions_as_another_version_of_arrow_might_write_them(change: dict[str, str], same: bool) -> None:
    saved = query_text(make_query())
    assert difference(saved, make_query()) is None
    saved["streams"][0]["filter"].update(change)
    message = difference(saved, make_query())
    assert message is None if same else message is not None and message.startswith("stream R, filter")


def test_the_same_query_written_otherwise_is_the_same() -> None:
    metadata = SCHEMA.with_metadata({"made": "elsewhere"})
    same = make_query(
        schema=metadata,
        window=Range(timedelta(minutes=1) - timedelta(seconds=55)),
        predicates=("(S.a, S.b) = (R.a, R.b)",),
        lateness=timedelta(milliseconds=2000),
    )
    assert Runtime.restore(SAVED, same).snapshot() == SAVED


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (eddy.PlanError, {"plan": "R R"}),
        (eddy.InputError, {"strategy": "none such"}),
        (eddy.InputError, {"background": 3, "strategy": "mjoin"}),
        (eddy.InputError, {"policy": "none such"}),
        (eddy.InputError, {"query": "R.a = S.a"}),
    ],
)
def test_wrong_arguments(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error):
        Runtime.restore(SAVED, **{"query": make_query(), **arguments})


def rewritten(name: str, change: Callable[[np.ndarray], np.ndarray], dtype: str) -> bytes:
    """Return the usual snapshot with one section changed, and the right digest."""
    values, contents = opened(SAVED)
    contents[f"joins 0 {name}"] = change(np.frombuffer(contents[f"joins 0 {name}"], dtype).copy()).tobytes()
    return closed(values, contents)


@pytest.mark.parametrize(
    ("name", "dtype", "change", "message"),
    [
        ("stream 0 class 0", "<i4", lambda kids: kids + 1000, "tuples with other keys"),
        ("stream 0 class 0", "<i4", lambda kids: kids - 1000, "keys that do not exist"),
        ("stream 1 class 0", "<i4", lambda kids: kids[1:], "stream S has 30 tuples with 29 keys"),
        ("stream 1 values 0", "<i8", lambda times: times[1:], "values in ring 0"),
        ("class 0 keys", "<i8", lambda words: np.concatenate([words[:2], words[:-2]]), "a key twice"),
        ("class 0 keys", "<i8", lambda words: words + 1000, "a key with another string"),
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
    case = JoinCase(
        tuple(StreamCase(name, schema) for name in "RST"), (((("R", "k"), ("S", "k")),), ((("S", "k"), ("T", "k")),))
    )
    with pytest.raises(SnapshotError, match="streams: R, S in the snapshot, R, S, T in the query"):
        Runtime.restore(SAVED, case.query())

"""Hashes of keys: those for partitioning are the same everywhere, those in memory are different in each engine.

A key has the same hash for partitioning in every stream, type, process and version, and other keys have others. Nothing
that a user can see depends on the seeds of the hashes in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.fuzz.oracle import Row
from eddy.ingest.keys import key_hash
from stairs import seeds
from tests.cases import Arrival, JoinCase, arrow_rows
from tests.draws import arrivals, cases


def plain_key(row: Row, components: tuple[tuple[str, ...], ...]) -> tuple[Any, ...] | None:
    """Return the key of a row; None if it equals nothing: a null, NaN, or unequal columns of one component."""
    key = []
    for columns in components:
        first, *others = (row[column] for column in columns)
        if first is None or first != first or any(other is None or other != first for other in others):
            return None
        key.append(first)
    return tuple(key)


@given(st.data())
def test_equal_keys_have_equal_hashes_in_all_streams(data: st.DataObject) -> None:
    case: JoinCase = data.draw(cases())
    rows: list[Arrival] = data.draw(arrivals(case))
    query: eddy.Query = case.query()
    for c, key_class in enumerate(query.classes):
        hash_of: dict[tuple[Any, ...], int] = {}
        for i, stream in enumerate(case.streams):
            if stream.name not in key_class.columns:
                continue
            stream_rows = [row for at, row in rows if at == i]
            batch = arrow_rows(stream.schema, stream_rows, data.draw(st.integers(0, 2)))
            hashes, joinable = key_hash(query, c, stream.name, batch)
            keys = [plain_key(row, key_class.columns[stream.name]) for row in stream_rows]
            assert joinable.tolist() == [key is not None for key in keys]
            for key, hash_value in zip(keys, hashes.tolist(), strict=True):
                if key is None:
                    assert hash_value == 0
                else:
                    assert hash_of.setdefault(key, hash_value) == hash_value
        assert len(set(hash_of.values())) == len(hash_of)


STABLE: dict[str, tuple[pa.DataType, list[Any], list[int]]] = {
    "int64": (
        pa.int64(),
        [0, 1, -1, 2**62],
        [0xC1B2082C8C7144B7, 0xCB2E1A5F2C450DEA, 0xEE8BBEF93CB2216E, 0xBCE5C3AA26CF189D],
    ),
    "uint8": (
        pa.uint8(),
        [0, 1, 255, 7],
        [0xC1B2082C8C7144B7, 0xCB2E1A5F2C450DEA, 0x0DDC7E99D95B7D50, 0x7D05D60F4E693BF0],
    ),
    "float64": (
        pa.float64(),
        [0.0, -0.0, 1.5, float("inf")],
        [0xC1B2082C8C7144B7, 0xC1B2082C8C7144B7, 0xA8A07D45552AEFE3, 0xCEA1699B4B9A490A],
    ),
    "bool": (pa.bool_(), [True, False, None], [0xCB2E1A5F2C450DEA, 0xC1B2082C8C7144B7, 0]),
    "string": (
        pa.string(),
        ["", "a", "eight by", "a text of more than eight bytes"],
        [0xC1B2082C8C7144B7, 0x13AEE0EF2B43F0F6, 0xA433605D6265D6D8, 0x2466533156C7E5F9],
    ),
    "binary": (
        pa.binary(),
        [b"\0", b"\0\0", b"abcdefghi", b"x" * 33],
        [0xBD81DC3F43F173EE, 0x4EFDA33EB7C7BF8C, 0x27FB58C0DED334EC, 0xA22BCDC31E750546],
    ),
    "decimal": (
        pa.decimal128(20, 2),
        [Decimal("0.01"), Decimal("-1.00"), Decimal("12345678901234567.89")],
        [0x813EF87AC367F470, 0xAF7A9DDA18CFC321, 0xAD16A2A2CDE371A3],
    ),
    "date": (
        pa.date32(),
        [date(1970, 1, 1), date(2024, 2, 29), date(1900, 1, 1)],
        [0xC1B2082C8C7144B7, 0x5E9EA9532871E925, 0x1B0AD95D2257A9CA],
    ),
    "timestamp": (
        pa.timestamp("us"),
        [datetime(1970, 1, 1), datetime(2024, 2, 29, 12), datetime(1900, 1, 1)],
        [0xC1B2082C8C7144B7, 0x06DFA0E30E33A4AE, 0x12B87DD562818561],
    ),
}


@pytest.mark.parametrize("name", STABLE)
def test_hashes_for_partitioning_never_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a streaming job is divided by them, and another version goes on with it."""
    kind, values, expected = STABLE[name]
    for seed in (1, 2):
        monkeypatch.setattr(seeds, "SOURCE", Random(seed).randbytes)
        query = eddy.Query([eddy.Stream(stream_name, pa.schema([("k", kind)])) for stream_name in "RS"], ["R.k = S.k"])
        assert key_hash(query, 0, "R", pa.record_batch({"k": pa.array(values, kind)}))[0].tolist() == expected


def test_hashes_for_partitioning_of_two_columns_never_change() -> None:
    streams = [eddy.Stream(stream_name, pa.schema([("k", pa.int64()), ("t", pa.string())])) for stream_name in "RS"]
    query = eddy.Query(streams, ["R.k = S.k", "R.t = S.t"])
    hashes, _ = key_hash(query, 0, "R", pa.record_batch({"k": [1, 2], "t": ["x", "yy"]}))
    assert hashes.tolist() == [0x543735891A548DF9, 0x0459A38A777D7B69]


# Seeds

ROWS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64()), ("t", pa.int64())])


def _streams(window: eddy.Rows | eddy.Range) -> list[eddy.Stream]:
    return [eddy.Stream(name, ROWS, window=window, time="t") for name in "RST"]


QUERIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one key": (lambda: eddy.Query(_streams(eddy.Rows(40)), ["R.k = S.k", "S.k = T.k"]), {}),
    "strings": (lambda: eddy.Query(_streams(eddy.Range(15)), ["R.s = S.s", "S.k = T.k"], lateness=3), {}),
    "two columns": (
        lambda: eddy.Query(_streams(eddy.Rows(30)), ["R.k = S.k", "R.s = S.s", "S.v = T.v"]),
        {"output": "changelog"},
    ),
    "stored states": (
        lambda: eddy.Query(_streams(eddy.Rows(25)), ["R.k = S.k", "S.s = T.s"]),
        {"strategy": "jisc"},
    ),
    "branches": (
        lambda: eddy.Query(
            _streams(eddy.Range(40))[:2],
            ["R.k = S.k", "R.s = S.s"],
            branches=[eddy.Branch(_streams(eddy.Range(40))[2:], ["R.s = T.s", "S.v = T.v"], "left")],
        ),
        {"output": "changelog"},
    ),
    "groups": (
        lambda: eddy.Query(
            _streams(eddy.Range(50)),
            ["R.k = S.k", "S.k = T.k"],
            group_by=["R.s"],
            aggregates={"n": agg.count(), "most": agg.max("T.v"), "different": agg.count_distinct("S.v")},
        ),
        {"output": "changelog"},
    ),
}


def _pushes() -> Iterator[dict[str, pa.RecordBatch]]:
    rng, clock = np.random.default_rng(3), 0
    for push in range(12):
        rows, sizes = {}, (1, 30, 80)
        for name in "RST":
            n = sizes[push % 3]
            # Keys of every kind that a hash treats in its own way: few, sequential, and multiples that crowd.
            keys = rng.integers(0, 12, n) * (1, 10_946, 1 << 32)[push % 3]
            rows[name] = pa.record_batch(
                [
                    pa.array(keys),
                    pa.array([f"name {k % 7}" for k in keys.tolist()]),
                    pa.array(rng.integers(0, 5, n)),
                    pa.array(clock + np.sort(rng.integers(0, 9, n))),
                ],
                schema=ROWS,
            )
        clock += 8
        yield rows


@pytest.mark.parametrize("name", QUERIES)
def test_nothing_that_a_user_sees_depends_on_the_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, options = QUERIES[name]
    seen: list[list[Any]] = []
    for seed in range(3):
        monkeypatch.setattr(seeds, "SOURCE", Random(seed).randbytes)
        query = build()
        runtime, outputs = eddy.Runtime(query, policy="rank", decide_every=100, **options), list[Any]()
        for push, rows in enumerate(_pushes()):
            outputs.append(runtime.push(rows))
            outputs.append(runtime.plan)
            if push == 6:
                outputs.append(runtime.snapshot())
                runtime = eddy.Runtime.restore(outputs[-1], query)
        outputs += [runtime.snapshot(), runtime.metrics()]
        seen.append(outputs)
    assert sum(output.num_rows for output in seen[0] if isinstance(output, pa.Table))
    for other in seen[1:]:
        assert other == seen[0]

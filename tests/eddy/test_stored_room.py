"""Stored states that outgrow their room within an arrival: the walk is repeated, without duplicates or losses."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddy

SCHEMA = pa.schema([("k", pa.int64())])
STORING = ("symmetric-hash", "jisc", "moving-state", "stairs", "eddy-stairs", "eddy-jisc", "parallel-track")
SIZES = (1, 63, 64, 65, 66, 80, 95, 96, 97, 98, 130, 200)


def rows(key: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"k": [key] * count}, schema=SCHEMA)


@pytest.mark.parametrize("strategy", STORING)
@pytest.mark.parametrize("before", [0, 40])
def test_one_arrival_makes_more_composites_than_there_is_room_for(strategy: str, before: int) -> None:
    query = eddy.Query([eddy.Stream(name, SCHEMA) for name in "RST"], ["R.k = S.k", "S.k = T.k"])
    for size in SIZES:
        runtime = eddy.Runtime(query, "(R S) T", strategy=strategy, count_only=True)
        if before:
            runtime.push({"S": rows(2, before), "R": rows(2, 1)}, order=[1] * before + [0])
        runtime.push({"S": rows(1, size)}, order=[1] * size)
        runtime.push({"R": rows(1, 1)}, order=[0])
        runtime.check()
        (state,) = runtime.stairs
        assert state.rows == before + size
        assert state.counters()["stored"] == before + size
        assert runtime.push({"T": rows(1, 1)}, order=[2])["count"].to_pylist() == [size]
        assert runtime.push({"T": rows(2, 1)}, order=[2])["count"].to_pylist() == [before]


@pytest.mark.parametrize("strategy", STORING)
def test_many_arrivals_over_small_windows(strategy: str) -> None:
    """The ring goes round many times, with live entries at its tail."""
    sizes = {"R": 3, "S": 40, "T": 200}
    query = eddy.Query(
        [eddy.Stream(name, SCHEMA, window=eddy.Rows(size)) for name, size in sizes.items()], ["R.k = S.k", "S.k = T.k"]
    )
    runtime = eddy.Runtime(query, "(S T) R", strategy=strategy, count_only=True)
    plain = eddy.Runtime(query, count_only=True)
    for step in range(30):
        batches = {name: pa.record_batch({"k": [(step + k) % 5 for k in range(20)]}, schema=SCHEMA) for name in sizes}
        order = [k % 3 for k in range(60)]
        assert runtime.push(batches, order).equals(plain.push(batches, order))
    runtime.check()
    (state,) = runtime.stairs
    assert state.capacity <= 4 * max(state.rows, 64)

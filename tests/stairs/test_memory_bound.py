"""Memory follows the live windows and not all keys seen: many distinct keys pass through small windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from stairs.kernels.keys import SLACK

WINDOW_ROWS = 10_000
PUSH_ROWS = 20_000  # as many keys per push as can be live, so that both have the same weight in the bound
LIVE_ROWS = 2 * WINDOW_ROWS

RECORD_BYTES = 8  # (link, key id)
KEY_BYTES = 2 * 4 + 8 + 4 + 16 * 4 // 3  # heads of two streams, the word, an entry of the free stack, slots at 3/4
LIVE_BYTES = LIVE_ROWS * (RECORD_BYTES + KEY_BYTES)
"""The least bytes that the live windows need if every tuple has a key of its own."""

TEXT_BYTES = 20

MOST_TIMES = 4
"""There are at most 2 T + P + 64 ids for T live tuples and P rows in a push (docs/internals/layout.md), here three
times as many as live tuples, and rooms double. Measured: 3.0, all room for input and results included."""


def runtime_over(kind: pa.DataType) -> eddy.Runtime:
    schema = pa.schema([("k", kind)])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(WINDOW_ROWS)) for name in "RS"]
    return eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]), count_only=True)


def distinct_keys(runtime: eddy.Runtime, total: int, text: bool = False) -> Iterator[int]:
    """Push `total` keys, each once, alternately to R and S; return the bytes of state after each push."""
    order = np.tile(np.array([0, 1], np.uint8), PUSH_ROWS // 2)
    schema = runtime.query.streams[0].schema
    for start in range(0, total, PUSH_ROWS):
        keys = pa.array(np.arange(start, start + PUSH_ROWS))
        if text:
            keys = pc.utf8_lpad(keys.cast(pa.string()), TEXT_BYTES, "0")
        batches = {
            name: pa.RecordBatch.from_arrays([keys.take(pa.array(np.arange(first, PUSH_ROWS, 2)))], schema=schema)
            for first, name in enumerate("RS")
        }
        assert runtime.push(batches, order).column("count").to_pylist() == [0]
        yield runtime.nbytes


@pytest.mark.campaign(0)
@pytest.mark.slow
def test_a_hundred_million_keys_pass_through_a_small_state() -> None:
    runtime = runtime_over(pa.int64())
    sizes = list(distinct_keys(runtime, 100_000_000))
    runtime.check()
    assert runtime.metrics()["arrivals"] == 100_000_000
    assert max(sizes) <= MOST_TIMES * LIVE_BYTES
    # The state has its final size after a few pushes and never grows again.
    assert sizes[10] == sizes[-1]
    assert runtime.metrics()["classes"][0]["keys"] <= 2 * LIVE_ROWS + PUSH_ROWS + SLACK


def test_a_million_strings_pass_through_a_small_state() -> None:
    runtime = runtime_over(pa.string())
    sizes = list(distinct_keys(runtime, 1_000_000, text=True))
    runtime.check()
    # In addition to its characters a string takes start, size, hash, users, two slots, entries of two lists: 40 bytes.
    live_bytes = LIVE_BYTES + LIVE_ROWS * (TEXT_BYTES + 40)
    assert max(sizes) <= MOST_TIMES * live_bytes
    assert sizes[10] == sizes[-1]

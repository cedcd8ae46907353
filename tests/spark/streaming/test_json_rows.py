"""Rows as JSON objects: what Polars writes is what the encoder of single rows says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, time
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.spark.streaming.sinks import json_rows as writer


def _whole(at: Any) -> Any:
    return at.replace(microsecond=0)


MOMENTS = st.datetimes(datetime(1975, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
TEXT, BYTES = st.text(max_size=4), st.binary(max_size=4)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.float16(): st.floats(width=16),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from("ab"),
    pa.binary(): BYTES,
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.binary_view(): BYTES,
    pa.decimal128(20, 8): st.decimals(-1000, 1000, places=8),
    pa.decimal256(50, 2): st.decimals(-1000, 1000, places=2),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.time32("s"): st.times().map(_whole),
    pa.duration("us"): st.timedeltas(),
    pa.timestamp("s"): st.datetimes().map(_whole),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): MOMENTS.map(_whole),
    pa.timestamp("us", "Europe/Berlin"): MOMENTS,
    pa.null(): st.none(),
    pa.map_(pa.int8(), pa.float64()): st.dictionaries(st.integers(0, 9), st.floats(), max_size=2).map(
        lambda mapping: list(mapping.items())
    ),
}


def nested(kind: pa.DataType, values: st.SearchStrategy[Any]) -> dict[pa.DataType, st.SearchStrategy[Any]]:
    lists = st.lists(st.none() | values, max_size=2)
    parts = {"a": st.none() | values, "b": st.none() | lists}
    return {pa.list_(kind): lists, pa.struct({"a": kind, "b": pa.list_(kind)}): st.fixed_dictionaries(parts)}


for _kind in list(KINDS):
    KINDS.update(nested(_kind, KINDS[_kind]))


@st.composite
def batches(draw: Callable[..., Any]) -> pa.RecordBatch:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    n = draw(st.integers(0, 4))
    columns = [pa.array([draw(st.none() | KINDS[kind]) for _ in range(n)], kind) for kind in kinds]
    return pa.record_batch(columns, [f"c{i}" for i in range(len(kinds))])


@given(batches())
@example(pa.record_batch([pa.array([math.nan, 1.0]), pa.array(["a", "b"], pa.string_view())], ["x", "view"]))
@example(pa.record_batch([pa.array([], pa.float64()), pa.array([], pa.binary_view())], ["x", "view"]))
def test_polars_writes_what_the_encoder_of_rows_writes(batch: pa.RecordBatch) -> None:
    wanted = [json.loads(writer._encoded(row)) for row in batch.to_pylist()]
    assert [json.loads(line) for line in writer.json_rows(batch)] == wanted


def test_fractions_of_seconds_have_three_digits_or_six() -> None:
    for microseconds, text in ((0, ""), (500_000, ".500"), (1, ".000001")):
        assert writer._plain(time(1, 2, 3, microseconds)) == f"01:02:03{text}"
        assert writer._plain(datetime(2024, 1, 1, 1, 2, 3, microseconds)) == f"2024-01-01T01:02:03{text}"

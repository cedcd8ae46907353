"""The event times of a push: read for all streams at once, they are those of each stream read alone."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.ingest.event_times import EventTimes
from eddy.ingest.validation import checked_times
from stairs.graph import FOREVER

FAMILIES = (
    (pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ns")),
    (pa.int64(), pa.int8(), pa.uint32(), pa.uint64()),
    (pa.date32(), pa.date64()),
)
"""Types of event times that streams of one query may have."""
LIMIT = 2**61


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType) -> pa.Array:
    """Draw a slice of a column of event times, which may have nulls and times out of range."""
    few = st.integers(0, 5) if str(kind).startswith("uint") else st.integers(-5, 5)
    wide = (LIMIT, LIMIT + 1, 2**63) if kind == pa.uint64() else (-LIMIT - 1, -LIMIT, LIMIT, LIMIT + 1)
    values = few | st.none()
    if kind.bit_width == 64 and kind != pa.date64():
        values |= st.sampled_from(wide)
    rows = draw(st.lists(values, min_size=1, max_size=12))
    plain = pa.int32() if kind == pa.date32() else kind if pa.types.is_integer(kind) else pa.int64()
    column = pa.array([time * 86_400_000 if time and kind == pa.date64() else time for time in rows], plain).cast(kind)
    return column.slice(draw(st.integers(0, len(rows) - 1)))


@given(st.data())
def test_times_of_all_streams_are_those_of_each(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(FAMILIES))
    kinds = [data.draw(st.sampled_from(family)) for _ in range(3)]
    window = eddy.Range(1 if pa.types.is_integer(family[0]) else timedelta(days=1))
    streams = [
        eddy.Stream(name, pa.schema([("n", pa.int64()), ("t", kind)]), window=window, time="t")
        for name, kind in zip("RST", kinds, strict=True)
    ]
    unified = eddy.Query(streams, ["R.n = S.n", "S.n = T.n"]).time_type
    batches: list[pa.RecordBatch | None] = []
    for stream, kind in zip(streams, kinds, strict=True):
        times = data.draw(st.none() | columns(kind))
        rows = None if times is None else [pa.array(np.arange(len(times))), times]
        batches.append(None if rows is None else pa.RecordBatch.from_arrays(rows, schema=stream.schema))
    alone, problems = [], set()
    for stream, batch in zip(streams, batches, strict=True):
        try:
            alone.append(None if batch is None else checked_times(stream, batch, unified).tolist())
        except eddy.InputError as error:
            problems.add(str(error))
    reader = EventTimes(streams, unified)
    if problems:
        with pytest.raises(eddy.InputError) as refused:
            reader.read(batches)
        assert str(refused.value) in problems
        return
    pushed_times = reader.read(batches)
    assert [None if ticks is None else ticks.tolist() for ticks in pushed_times.by_stream] == alone
    assert pushed_times.rising.tolist() == [sorted(ticks or []) == (ticks or []) for ticks in alone]
    assert all(abs(time) <= FOREVER for ticks in alone for time in ticks or ())

"""A column kept as Arrow arrays, compared with a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stairs.chunk_log import ChunkLog

KINDS: dict[pa.DataType, tuple[Any, ...]] = {
    pa.string(): ("a", "", None, "a string of some length"),
    pa.large_binary(): (b"\0", None, b"xyz"),
    pa.binary(2): (b"ab", None, b"\0\0"),
    pa.list_(pa.int8()): ([], [1, None], None, [2, 3, 4]),
    pa.struct([("x", pa.int16()), ("y", pa.string())]): ({"x": 1, "y": None}, None, {"x": None, "y": "b"}),
    pa.dictionary(pa.int8(), pa.string()): ("red", None, "green"),
    pa.null(): (None,),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_append_drop_and_take_as_a_list_would(kind: pa.DataType, data: st.DataObject) -> None:
    log, values, low = ChunkLog(kind), [], 0
    steps = data.draw(st.lists(st.tuples(st.lists(st.sampled_from(KINDS[kind]), max_size=9), st.integers(0, 12))))
    for rows, gone in steps:
        if rows:
            around = pa.array([*rows[:1], *rows, *rows[:1]], kind)
            log.append(len(values), around.slice(1, len(rows)))
            values += rows
        low = min(low + gone, len(values))
        log.drop_before(low)
        wanted = data.draw(st.lists(st.integers(low, len(values) - 1))) if low < len(values) else []
        got = log.take(np.array(wanted, np.int64))
        assert got.type == kind
        assert got.to_pylist() == [values[k] for k in wanted]


def test_chunks_stay_few_and_what_is_dropped_is_let_go() -> None:
    log = ChunkLog(pa.string())
    for first in range(0, 4096, 4):
        log.append(first, pa.array(["sixteen bytes ..."] * 4))
        assert len(log.chunks) <= 12
    full = log.nbytes
    log.drop_before(4000)
    assert log.nbytes < full / 20
    assert log.take(np.array([4000, 4095])).to_pylist() == ["sixteen bytes ..."] * 2
    log.drop_before(4096)
    assert log.chunks == []
    assert log.nbytes == 0


def test_the_chunks_before_an_append_are_left_alone() -> None:
    # The undo of a push restores the old list of chunks.
    log = ChunkLog(pa.string())
    log.append(0, pa.array(["a"]))
    before = log.chunks
    log.append(1, pa.array(["b"]))
    log.chunks = before
    assert log.take(np.array([0])).to_pylist() == ["a"]
    log.append(1, pa.array(["c"]))
    assert log.take(np.array([1, 0])).to_pylist() == ["c", "a"]

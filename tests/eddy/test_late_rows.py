"""The store of late rows compared with a list: stored rows, counts, and no other memory kept alive."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.ingest.arrivals import LateBatch
from eddy.results.side_rows import CHUNK_BYTES, CHUNK_ROWS, LateRows

DICTIONARY = pa.dictionary(pa.int16(), pa.string())
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("word", DICTIONARY),
        ("words", pa.list_(DICTIONARY)),
        ("pair", pa.struct([("word", DICTIONARY), ("flag", pa.bool_())])),
    ]
)


def row(n: int) -> dict[str, Any]:
    """Return a row, some with nulls; the words come from a dictionary of 500."""
    word = f"word {n % 500}"
    if n % 7 == 3:
        return {"n": n, "text": None, "word": None, "words": None, "pair": {"word": None, "flag": None}}
    return {"n": n, "text": "x" * (n % 40), "word": word, "words": [word, None], "pair": {"word": word, "flag": True}}


def batch(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(n) for n in range(first, first + count)], schema=SCHEMA)


def late(first: int, count: int) -> LateBatch:
    return LateBatch(batch(first, count), count, 1)


def checked(rows: LateRows) -> LateRows:
    """Check the invariants, and that the bytes are those of the memory kept alive."""
    for i, kept in enumerate(rows.stored):
        chunks = kept.chunks
        assert rows.rows[i] == kept.rows == sum(len(chunk.batch) for chunk in chunks)
        assert kept.n_bytes == sum(chunk.n_bytes for chunk in chunks)
        assert rows.counts[i] >= rows.dropped[i] + rows.rows[i]
        assert rows.dropped[i] >= rows.reported[i]
        for chunk in chunks:
            assert len(chunk.batch) <= chunk.allocated < 2 * len(chunk.batch) + 1
            assert chunk.allocated <= CHUNK_ROWS
            # Arrow frees the validity bits of a column, a few bytes, once it has found that there are no nulls.
            marks = 8 * (1 + chunk.allocated // 64) * 2 * chunk.batch.num_columns
            assert 0 <= chunk.n_bytes - chunk.batch.get_total_buffer_size() <= marks
            chunk.batch.validate(full=True)
        # A chunk is full, or larger than the next one; rows of the oldest may have been dropped.
        for earlier, other in pairwise(chunks[1:]):
            full = earlier.allocated + other.allocated > CHUNK_ROWS or earlier.n_bytes + other.n_bytes > CHUNK_BYTES
            assert full or earlier.allocated > other.allocated
    assert rows.nbytes == sum(kept.n_bytes for kept in rows.stored)
    return rows


steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 60)),
    st.tuples(st.just("many"), st.integers(0, 1), st.integers(1, 9)),
    st.tuples(st.just("count"), st.integers(0, 1), st.integers(1, 60)),
    st.tuples(st.just("rows"), st.just(0), st.integers(1, 80)),
    st.tuples(st.just("bytes"), st.just(0), st.integers(0, 20_000)),
    st.tuples(st.just("take"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("pickle"), st.just(0), st.just(0)),
)


@given(st.lists(steps, max_size=25))
def test_it_keeps_the_newest_rows_and_counts_the_others(script: list[tuple[str, int, int]]) -> None:
    rows, before = LateRows.none(2), LateRows.none(2)
    kept: list[list[int]] = [[], []]
    counts, dropped, following = [0, 0], [0, 0], 0
    for step, i, size in script:
        before, seen = (
            rows,
            [[n for kept_batch in rows.batches(j) for n in kept_batch["n"].to_pylist()] for j in (0, 1)],
        )
        if step in ("add", "many"):
            for part in [size] if step == "add" else [1] * size:
                rows = checked(rows.with_added({i: late(following, part)}))
                kept[i] += range(following, following + part)
                following += part
                counts[i] += part
        elif step == "count":
            rows = rows.with_added({i: LateBatch(None, size, 1)})
            counts[i] += size
        elif step == "rows":
            rows = rows.within(size, float("inf"))
            for j in (0, 1):
                dropped[j] += max(len(kept[j]) - size, 0)
                kept[j] = kept[j][-size:]
        elif step == "bytes":
            rows = rows.within(10**9, size)
            assert rows.nbytes <= size
            for j in (0, 1):
                gone = len(kept[j]) - rows.rows[j]
                dropped[j] += gone
                kept[j] = kept[j][gone:]
        elif step == "take":
            rows = rows.without([i])
            kept[i] = []
        else:
            rows = pickle.loads(pickle.dumps(rows))
        checked(rows)
        assert list(rows.counts) == counts
        assert list(rows.dropped) == dropped
        for j in (0, 1):
            assert [late_row for kept_batch in rows.batches(j) for late_row in kept_batch.to_pylist()] == [
                row(n) for n in kept[j]
            ]
            # The state it was made from has not changed.
            assert [n for kept_batch in before.batches(j) for n in kept_batch["n"].to_pylist()] == seen[j]


def test_rows_by_the_piece_make_few_chunks() -> None:
    rows = LateRows.none(1)
    for n in range(3000):
        rows = rows.with_added({0: late(n, 1)})
    checked(rows)
    most = CHUNK_BYTES // 2  # of the larger of two chunks that were not merged
    assert len(rows.stored[0].chunks) < rows.nbytes / most * 2 + 20


def test_many_rows_at_a_time_are_cut() -> None:
    rows = checked(LateRows.none(1).with_added({0: late(0, 20_000)}))
    assert len(rows.stored[0].chunks) >= 5
    assert rows.nbytes < 3 * batch(0, 20_000).nbytes
    few = checked(rows.within(150, float("inf")))
    assert few.rows == (150,)
    assert few.nbytes <= 2 * CHUNK_BYTES


@pytest.mark.parametrize("kind", [pa.string(), DICTIONARY, pa.list_(DICTIONARY)], ids=str)
def test_a_row_does_not_hold_on_to_its_batch(kind: pa.DataType) -> None:
    """Arrow's copies may share memory: the dictionary has 500 long words, the row has one."""
    words = pa.array([f"{n % 500} {'x' * 1000}" for n in range(5000)], pa.string())
    column = words if kind == pa.string() else words.dictionary_encode().cast(DICTIONARY)
    if pa.types.is_list(kind):
        column = pa.ListArray.from_arrays(pa.array(range(5001), pa.int32()), column)
    whole = pa.record_batch({"word": column})
    single = whole.slice(7, 1)
    rows = LateRows.none(1).with_added({0: LateBatch(single.take(pa.array([0])), 1, 1)})
    assert rows.stored[0].table(single.schema).to_pylist() == single.to_pylist()
    assert rows.stored[0].table(whole.schema).schema == whole.schema
    assert rows.nbytes < 1200 < whole.get_total_buffer_size() / 100

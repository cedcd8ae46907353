"""Columns longer than one array can be: results, windows and snapshots of them come in several arrays.

The true limit is 2 GiB of text. Here it is lowered to some hundred bytes, and nothing but the number of arrays changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
import stairs.plain_types
from stairs.chunk_log import ChunkLog
from tests.cases import text_rows
from tests.key_types import to_arrow

VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.string(): ("a" * 90, "b" * 30, ""),
    pa.string_view(): ("a" * 90, "b" * 30, ""),
    pa.dictionary(pa.int32(), pa.string()): ("a" * 90, "b" * 30, ""),
    pa.run_end_encoded(pa.int32(), pa.string()): ("a" * 90, "b" * 30, ""),
    pa.list_(pa.int64()): (list(range(12)), [1, None], []),
    pa.struct([("x", pa.list_(pa.binary_view()))]): ({"x": [b"a" * 70, b"b"]}, {"x": None}, {"x": []}),
}


def pushes(kind: pa.DataType, output: str) -> tuple[list[pa.Table], eddy.Runtime]:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("x", kind)])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(50)) for name in "RS"]
    where = [
        pc.field("R.n") != 23,
        eddy.Predicate(lambda batch: np.asarray(pc.is_valid(batch["S.n"])), ["S.n", "R.x"]),
    ]
    query = eddy.Query(streams, ["R.k = S.k"], where=where)
    runtime = eddy.Runtime(query, output=output, policy="fixed")
    tables = []
    for start in range(0, 120, 20):
        rows = range(start, start + 20)
        values = to_arrow([VALUES[kind][n % 3] if n % 8 else None for n in rows], kind)
        batch = pa.RecordBatch.from_arrays([pa.array([n % 4 for n in rows]), pa.array(rows), values], schema=schema)
        tables.append(runtime.push({"R": batch, "S": batch}, [0, 1] * 20))
        data = runtime.snapshot()
        runtime = eddy.Runtime.restore(data, query)
        runtime.check()
        assert runtime.snapshot() == data
    return tables, runtime


@pytest.mark.campaign(6)
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_what_one_array_cannot_hold_comes_in_several(
    kind: pa.DataType, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = pushes(kind, output)
    monkeypatch.setattr(stairs.plain_types, "MOST_BYTES", 700)
    cut, _ = pushes(kind, output)
    for uncut, other in zip(whole, cut, strict=True):
        other.validate(full=True)
        assert other.schema == uncut.schema
        assert text_rows(other) == text_rows(uncut)
    assert max(column.num_chunks for table in whole for column in table.columns) == 1
    assert max(column.num_chunks for table in cut for column in table.columns) > 3


def test_arrays_of_a_window_merge_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stairs.plain_types, "MOST_BYTES", 4000)
    log = ChunkLog(pa.string())
    for first in range(0, 1024, 4):
        log.append(first, pa.array([f"{n:016}" for n in range(first, first + 4)]))
    assert all(chunk.values.nbytes <= 4000 for chunk in log.chunks)
    # 20 bytes a row, arrays at least a third full, and a logarithm of small ones.
    assert len(log.chunks) <= 3 * 20 * 1024 / 4000 + 12
    held = log.span(0, 1024)
    assert isinstance(held, pa.ChunkedArray)
    assert held.to_pylist() == [f"{n:016}" for n in range(1024)]
    rows = np.array([1023, 0, 512, 0, 7] * 100)
    assert log.take(rows).to_pylist() == [f"{n:016}" for n in rows]


def test_values_of_lists_are_counted_before_arrow_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Lists of nulls have no bytes, and Arrow lets their offsets wrap around.
    monkeypatch.setattr(stairs.plain_types, "MOST_BYTES", 100)
    log = ChunkLog(pa.list_(pa.null()))
    log.append(0, pa.array([[None] * 30, None, []], pa.list_(pa.null())))
    taken = log.take(np.array([0, 1, 0, 0, 2, 0]))
    assert [len(chunk) for chunk in taken.chunks] == [3, 3]
    assert taken.to_pylist() == [[None] * 30, None, [None] * 30, [None] * 30, [], [None] * 30]


def small_dictionary(values: list[str]) -> pa.Array:
    return pa.array(values).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))


def test_results_with_more_values_than_the_index_of_a_dictionary_can_say() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.dictionary(pa.int8(), pa.string()))])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(500)) for name in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"], select=["R.x"]))
    values = [f"value {n}" for n in range(300)]
    for first in range(0, 300, 100):
        column = small_dictionary(values[first : first + 100])
        runtime.push({"R": pa.record_batch([pa.array([1] * 100), column], schema=schema)})
    batch = pa.record_batch([pa.array([1]), small_dictionary(["q"])], schema=schema)
    results = runtime.push({"S": batch})
    results.validate(full=True)
    assert results.schema.types == [schema.field("x").type]
    assert sorted(results["R.x"].to_pylist()) == sorted(values)


def test_a_table_whose_chunks_are_too_much_for_one_array_is_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.dictionary(pa.int8(), pa.string()))])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(500)) for name in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    parts = [
        pa.record_batch([pa.array([1] * 100), small_dictionary([f"{first + n}" for n in range(100)])], schema=schema)
        for first in (0, 100)
    ]
    with pytest.raises(eddy.InputError, match=r"stream R: column 'x' .*push fewer rows"):
        runtime.push({"R": pa.Table.from_batches(parts)})
    # Different dictionaries alone are no obstacle.
    runtime.push({"R": pa.Table.from_batches([part.slice(0, 50) for part in parts])})
    assert runtime.position == 100
    runtime.check()

"""The loader and Arrow's C data interface: batches that an exception left exported are released by the next push."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eddy import Query, Runtime, Stream
from eddy.ingest import loader

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float32())])
QUERY = Query([Stream("R", SCHEMA), Stream("S", SCHEMA)], ["R.k = S.k"], select=["R.v", "S.v"])


def rows(key: int) -> tuple[pa.RecordBatch, weakref.ref[Any]]:
    """Return a row with this key, and what tells whether its memory is in use."""
    memory = np.array([key, key], np.int64)
    columns = [
        pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(memory)], offset=1),
        pa.array([key], pa.float32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), weakref.ref(memory)


@pytest.mark.parametrize("exported", [0, 1, 2])
def test_an_interrupted_load_leaks_nothing(exported: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(QUERY)
    runtime.push({"R": rows(1)[0], "S": rows(2)[0]}, order=[0, 1])
    batch, used = rows(7)

    class Stopping:
        """A batch that cannot be exported."""

        def __len__(self) -> int:
            return 1

        def _export_to_c(self, address: int) -> None:
            raise KeyboardInterrupt

    def stop(*_: Any) -> int:
        raise KeyboardInterrupt

    batches: list[Any] = [batch, batch]
    if exported < 2:
        batches[exported] = Stopping()
    with monkeypatch.context() as patch:
        patch.setattr(loader, "copy_batches", stop)
        join = runtime._pipeline.join
        join.modules.begin([1, 1])
        known = join.loader._known
        assert known is not None
        with pytest.raises(KeyboardInterrupt):
            join.loader._copy(known[1].copies, batches)
        join.modules.undo()
    del batch, batches
    gc.collect()
    assert (used() is None) == (exported == 0)
    results = runtime.push({"R": rows(2)[0]})
    assert results.to_pylist() == [{"R.v": 2.0, "S.v": 2.0}]
    gc.collect()
    assert used() is None
    assert runtime.push({"S": rows(1)[0]}).to_pylist() == [{"R.v": 1.0, "S.v": 1.0}]


def test_columns_with_nulls_are_loaded_one_by_one_and_the_others_at_once() -> None:
    runtime, schema = Runtime(QUERY), SCHEMA
    first = pa.record_batch([pa.array([1, None, 3], pa.int64()), pa.array([None, 2, 3], pa.float32())], schema=schema)
    second = pa.record_batch([pa.array([3, 1]), pa.array([3.5, 1.5], pa.float32())], schema=schema)
    assert runtime.push({"R": first, "S": second}, order=[0, 0, 0, 1, 1]).to_pylist() == [
        {"R.v": 3.0, "S.v": 3.5},
        {"R.v": None, "S.v": 1.5},
    ]
    assert runtime.push({"S": first.slice(2), "R": second.slice(1)}, order=[1, 0]).to_pylist() == [
        {"R.v": 3.0, "S.v": 3.0},
        {"R.v": 1.5, "S.v": 1.5},
    ]
    runtime._pipeline.check()

"""Malformed Arrow arrays: each damage, of each type, in each role, is refused by name, and the state is as it was.

They come as a batch, as a table of two chunks, as a column of a dict, and through the PyCapsule interface. Before,
some ended the process; so the matrix runs in a child process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg

N = 3
NARROW, WIDE = np.dtype(np.int32), np.dtype(np.int64)
OFFSETS = {
    "beyond the text": (0, 1, 1000, 4),
    "far beyond the text": (0, 1, 2**31 - 1, 4),
    "decreasing": (0, 3, 1, 4),
    "negative": (0, -5, 2, 4),
    "very negative": (0, -(2**31), 2, 4),
}
Offsets = tuple[int, ...]


def _text(kind: pa.DataType, number: np.dtype[Any], given: Offsets) -> pa.Array:
    return pa.Array.from_buffers(kind, N, [None, pa.py_buffer(np.array(given, number)), pa.py_buffer(b"abcd")])


def _sliced(given: Offsets) -> pa.Array:
    """Return three rows that begin at the third of five."""
    offsets = pa.py_buffer(np.array((0, 0, *given), NARROW))
    return pa.Array.from_buffers(pa.string(), N, [None, offsets, pa.py_buffer(b"abcd")], offset=2)


def _list(kind: pa.DataType, number: np.dtype[Any], given: Offsets) -> pa.Array:
    buffers = [None, pa.py_buffer(np.array(given, number))]
    return pa.Array.from_buffers(kind, N, buffers, children=[pa.array([1, 2, 3, 4])])


def _struct(given: Offsets) -> pa.Array:
    child = _text(pa.string(), NARROW, given)
    return pa.Array.from_buffers(pa.struct([("x", pa.string())]), N, [None], children=[child])


def _dictionary(kind: pa.DataType, indices: Offsets, values: tuple[str, ...] = ("a", "b")) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind), pa.array(values, pa.string()), safe=False)


def _dictionary_of(given: Offsets) -> pa.Array:
    values = _text(pa.string(), NARROW, given)
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), values, safe=False)


def _view(kind: pa.DataType, size: int, buffer: int, offset: int) -> pa.Array:
    """Return views of which the third one refers to a place in a buffer."""
    views = np.zeros((N, 4), np.int32)
    views[2] = size, int.from_bytes(b"abcd", "little"), buffer, offset
    return pa.Array.from_buffers(kind, N, [None, pa.py_buffer(views), pa.py_buffer(b"abcd" * 8)])


def _runs(ends: list[int]) -> pa.Array:
    kind = pa.run_end_encoded(pa.int32(), pa.string())
    return pa.Array.from_buffers(kind, N, [None], children=[pa.array(ends, pa.int32()), pa.array(["a", "b"])])


def _nulls_without_bits(kind: pa.DataType) -> pa.Array:
    buffers = pa.array([None, *range(N - 1)], pa.int64()).cast(kind).buffers()
    return pa.Array.from_buffers(kind, N, [None, *buffers[1:]], null_count=1)


def _damaged() -> Iterator[tuple[str, Callable[[], pa.Array]]]:
    """Yield the name of each damage, and a function that makes the array."""
    for damage, given in OFFSETS.items():
        for kind in (pa.string(), pa.binary()):
            yield f"{kind}: {damage}", partial(_text, kind, NARROW, given)
        for kind in (pa.large_string(), pa.large_binary()):
            yield f"{kind}: {damage}", partial(_text, kind, WIDE, given)
        yield f"sliced string: {damage}", partial(_sliced, given)
        yield f"list: {damage}", partial(_list, pa.list_(pa.int64()), NARROW, given)
        yield f"large_list: {damage}", partial(_list, pa.large_list(pa.int64()), WIDE, given)
        yield f"struct: {damage}", partial(_struct, given)
        yield f"dictionary of strings: {damage}", partial(_dictionary_of, given)
    for index in (pa.int8(), pa.int32(), pa.uint16(), pa.int64()):
        yield f"dictionary with {index}: index 100", partial(_dictionary, index, (0, 1, 100))
    yield "dictionary: index -1", partial(_dictionary, pa.int8(), (0, 1, -1))
    yield "dictionary: empty", partial(_dictionary, pa.int32(), (0, 0, 0), ())
    for kind in (pa.string_view(), pa.binary_view()):
        yield f"{kind}: another buffer", partial(_view, kind, 20, 7, 0)
        yield f"{kind}: beyond the buffer", partial(_view, kind, 20, 0, 1 << 20)
        yield f"{kind}: negative place", partial(_view, kind, 20, 0, -4)
        yield f"{kind}: negative size", partial(_view, kind, -7, 0, 0)
    yield "run_end_encoded: decreasing", partial(_runs, [2, 1])
    yield "run_end_encoded: negative", partial(_runs, [-2, 3])
    yield "run_end_encoded: too short", partial(_runs, [1, 2])
    for kind in (pa.int64(), pa.string(), pa.timestamp("us")):
        yield f"{kind}: nulls without a bitmap", partial(_nulls_without_bits, kind)


DAMAGED = dict(_damaged())
ROLES = ("key", "key of two columns", "payload", "filter", "group", "time")


def _fits(kind: pa.DataType, role: str) -> bool:
    """Return whether a column of the type can have the role."""
    if role == "time":
        return kind in (pa.int64(), pa.timestamp("us"))
    return role in ("payload", "filter") or not pa.types.is_nested(kind)


def _runtime(kind: pa.DataType, role: str) -> eddy.Runtime:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64(), "x": kind})
    keep = pc.field("x").is_valid() if role == "filter" else None
    time = "x" if role == "time" else None
    long = timedelta(seconds=1000) if pa.types.is_timestamp(kind) else 10**9
    window = eddy.Range(long) if role == "time" else eddy.Rows(50)
    streams = [eddy.Stream(name, schema, window=window, time=time, filter=keep) for name in "RS"]
    on = {"key": ["R.x = S.x"], "key of two columns": ["R.k = S.k", "R.x = S.x"]}.get(role, ["R.k = S.k"])
    groups: dict[str, Any] = {"group_by": ["R.x"], "aggregates": {"n": agg.count()}} if role == "group" else {}
    return eddy.Runtime(eddy.Query(streams, on, **groups), output="changelog" if groups else "append")


class Capsules:
    """Rows of another library, which gives its columns as Arrow data."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested: object = None) -> object:
        return self._batch.__arrow_c_array__(requested)


def _forms(array: pa.Array) -> Iterator[tuple[str, Any]]:
    numbers = pa.array(range(N), pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers, numbers, array], names=["k", "v", "x"])
    yield "batch", batch
    yield "batch in another order", batch.select(["x", "k", "v"])
    yield "table", pa.Table.from_batches([batch, batch])
    yield "columns", {"k": numbers, "v": [1] * N, "x": array}
    if not pa.types.is_dictionary(array.type):
        yield "PyCapsule", Capsules(batch)


def _answers(damage: str) -> Iterator[str]:
    """Yield what is wrong with the answers to a damaged array, in each role and form."""
    try:
        array = DAMAGED[damage]()
    except pa.ArrowInvalid:
        return  # Arrow itself does not make it.
    for role in ROLES:
        if not _fits(array.type, role):
            continue
        runtime = _runtime(array.type, role)
        before = runtime.snapshot()
        for form, rows in _forms(array):
            what = f"{damage}, as {role}, in a {form}"
            try:
                runtime.push({"R": rows})
            except eddy.InputError as error:
                if not str(error).startswith("stream R") or (form != "PyCapsule" and "'x'" not in str(error)):
                    yield f"{what}: {error}"
            else:
                # An importer takes the size of the text from the last offset, so nothing lies beyond it.
                if not (form == "PyCapsule" and ("beyond" in damage or "view" in damage or "bitmap" in damage)):
                    yield f"{what}: accepted"
            if runtime.snapshot() != before:
                yield f"{what}: the state has changed"
                return


def test_malformed_arrays_are_refused() -> None:
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), (done.stdout + done.stderr)[-3000:]


def test_text_that_is_not_utf_8_is_no_damage() -> None:
    text = _text(pa.string(), NARROW, (0, 1, 2, 4)).cast(pa.binary())
    broken = pa.Array.from_buffers(pa.string(), N, [None, text.buffers()[1], pa.py_buffer(b"\xff\xfe\xfd\xfc")])
    runtime = _runtime(pa.string(), "key")
    for name, expected in (("R", 0), ("S", 3)):
        assert runtime.push({name: next(_forms(broken))[1]}).num_rows == expected


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_malformed_columns_of_data_frames_are_refused(name: str) -> None:
    library = pytest.importorskip(name)
    array = _text(pa.string(), NARROW, OFFSETS["decreasing"])
    columns = {"k": [1] * N, "v": [1] * N}
    if name == "pandas":
        frame = library.DataFrame({**columns, "x": library.array(array, dtype=library.ArrowDtype(pa.string()))})
        with pytest.raises(eddy.InputError, match="stream R"):
            _runtime(pa.string(), "key").push({"R": frame})
    else:
        # Polars reads the text when it makes the column, and refuses it there.
        frame = library.DataFrame({**columns, "x": ["a", "bb", "c"]})
        assert _runtime(pa.string(), "key").push({"R": frame}).num_rows == 0


if __name__ == "__main__":
    print("\n".join(answer for damage in DAMAGED for answer in _answers(damage)), end="")

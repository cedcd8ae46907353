"""Rows in files (`Runtime(spill=…)`): results as in memory, whatever the disk takes, within the bound on memory."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from stairs.memory.spill import SpillDirectory

NUMBERS = [f"v{i}" for i in range(20)]
WIDE = pa.schema([("k", pa.int64()), ("n", pa.int32()), *((name, pa.int64()) for name in NUMBERS), ("s", pa.string())])
TEXT = "a text of some length, " * 4


def rows(seed: int, n: int, keys: int = 50) -> pa.RecordBatch:
    """Return n rows of WIDE; some values are null."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {name: rng.integers(0, 1 << 60, n) for name in NUMBERS}
    columns["k"] = rng.integers(0, keys, n)
    columns["n"] = pa.array(range(n), pa.int32(), mask=rng.random(n) < 0.1)
    columns["s"] = [f"{TEXT}{seed} {i}" for i in range(n)]
    return pa.record_batch(columns, schema=WIDE)


def streams(window: int) -> list[eddy.Stream]:
    return [eddy.Stream(name, WIDE, window=eddy.Rows(window)) for name in "RS"]


def inner(window: int = 500) -> eddy.Query:
    return eddy.Query(streams(window), ["R.k = S.k"])


def left(window: int = 500) -> eddy.Query:
    r, s = streams(window)
    return eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")])


def as_lines(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@contextmanager
def a_disk_that_fails(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[list[int]]:
    """Let all requests to the disk fail after some. Yield a list with the number of requests."""
    asked, written, made = [0], os.pwrite, os.ftruncate

    def count() -> None:
        asked[0] += 1
        if asked[0] > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(descriptor: int, values: Any, at: int) -> int:
        count()
        # A system may write less than it is asked to.
        return written(descriptor, values[: max(len(values) // 2, 1)], at)

    def ftruncate(descriptor: int, size: int) -> None:
        count()
        made(descriptor, size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(os, "ftruncate", ftruncate)
        yield asked


@pytest.mark.parametrize("query", [inner, left])
def test_a_push_that_the_disk_does_not_take_has_not_happened(
    query: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_files = eddy.Runtime(query(), spill=SpillDirectory(tmp_path, least=1), bounded=True)
    in_memory, refused = eddy.Runtime(query(), bounded=True), 0
    told: set[str] = set()
    for turn, n in enumerate((5, 3, 200, 400, 30, 900)):
        name = "RS"[turn % 2]
        batch, before = {name: rows(turn, n)}, (in_files.position, in_files.pushes)
        wanted, table, after = as_lines(in_memory.push(batch)), None, 0
        while table is None:
            with a_disk_that_fails(monkeypatch, after) as asked:
                try:
                    table = in_files.push(batch)
                except eddy.CapacityError as error:
                    told.add(str(error))
                    refused += 1
                    assert (in_files.position, in_files.pushes) == before
                    in_files.check()
            after = asked[0] if table is None else after
            # Not after each of hundreds of requests.
            after += after // 4
        assert as_lines(table) == wanted
        in_files.check()
    assert refused > 20
    assert all(str(tmp_path) in text and os.strerror(errno.ENOSPC) in text for text in told)
    assert as_lines(in_files.finish()) == as_lines(in_memory.finish())


def test_the_system_refuses_bytes_beyond_a_limit(tmp_path: Path) -> None:
    runtime = eddy.Runtime(inner(1 << 14), spill=SpillDirectory(tmp_path, least=1))
    runtime.push({"R": rows(1, 10)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, before[1]))
    try:
        with pytest.raises(eddy.CapacityError, match="does not take"):
            runtime.push({"R": rows(2, 5_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(runtime.push({"R": rows(2, 5_000), "S": rows(3, 100)}, order=[0] * 5_000 + [1] * 100)) > 5_000
    runtime.check()


def test_windows_are_four_times_as_large_as_max_bytes(tmp_path: Path) -> None:
    window, bound = 1 << 14, 2_500_000

    def push(runtime: eddy.Runtime, turn: int) -> pa.Table:
        return runtime.push({"RS"[turn % 2]: rows(turn, 1_000, keys=4_000)})

    in_files = eddy.Runtime(inner(window), max_bytes=bound, spill=SpillDirectory(tmp_path, least=1 << 12))
    in_memory, too_small = eddy.Runtime(inner(window)), eddy.Runtime(inner(window), max_bytes=bound)
    with pytest.raises(eddy.CapacityError, match="max_bytes"):
        too_small.push({"R": rows(0, 20_000)})
    for turn in range(40):
        assert as_lines(push(in_files, turn)) == as_lines(push(in_memory, turn))
        assert in_files.nbytes <= bound
    assert in_files.file_bytes > 4 * bound
    assert in_memory.nbytes > 4 * bound
    assert in_memory.file_bytes == 0
    assert in_files.metrics()["file_bytes"] == in_files.file_bytes
    # A file has no name, so none is left behind.
    assert not os.listdir(tmp_path)


def test_small_windows_stay_in_memory(tmp_path: Path) -> None:
    runtime = eddy.Runtime(inner(100), spill=tmp_path)
    runtime.push({"R": rows(1, 500)})
    assert runtime.file_bytes == 0
    assert runtime.nbytes > 100 * 160


@pytest.mark.parametrize("query", [inner, left])
def test_snapshots_and_parts_come_from_files_and_go_to_them(query: Any, tmp_path: Path) -> None:
    spill = SpillDirectory(tmp_path, least=1)
    was = eddy.Runtime(query(), spill=spill, bounded=True)
    was.push({"R": rows(1, 900), "S": rows(2, 700)}, order=[0] * 900 + [1] * 700)
    data = was.snapshot()
    in_files = eddy.Runtime.restore(data, query(), spill=spill)
    in_memory = eddy.Runtime.restore(data, query())
    assert in_files.file_bytes > 0
    assert in_memory.file_bytes == 0
    assert in_memory.snapshot() == data
    more = {"S": rows(3, 400)}
    wanted = as_lines(was.push(more))
    assert as_lines(in_files.push(more)) == wanted
    assert as_lines(in_memory.push(more)) == wanted


def test_a_copy_after_a_fork_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = eddy.Runtime(inner(), spill=SpillDirectory(tmp_path, least=1))
    runtime.push({"R": rows(1, 10)})
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 0)
        with pytest.raises(eddy.EddyError, match="after a fork"):
            runtime.push({"R": rows(2, 10)})
    assert len(runtime.push({"S": rows(3, 100)})) > 0


def test_directories_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(eddy.InputError, match=f"spill='{path}': no file can be made there"):
            eddy.Runtime(inner(), spill=path)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no directory in memory")
def test_a_directory_in_memory_is_told(caplog: pytest.LogCaptureFixture) -> None:
    eddy.Runtime(inner(), spill="/dev/shm")
    assert "lies in memory" in caplog.text

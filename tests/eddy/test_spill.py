"""Rows in files (`Runtime(spill=…)`): results as in memory, whatever the disk takes, within the bound on memory."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
import stairs.payload
from eddy.live.engine_file import EngineFile
from stairs.chunk_log import ChunkLog
from stairs.memory.spill import SpillDirectory
from stairs.payload import Payload

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


@pytest.mark.parametrize("window", [1 << 14, 1 << 18])
def test_windows_that_grow_step_by_step_go_to_files(window: int, tmp_path: Path) -> None:
    # Large rings of records get room to grow in place, and so would those of columns.
    schema = pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in NUMBERS[: (1 << 18) // window])])
    query = eddy.Query([eddy.Stream(name, schema, window=eddy.Rows(window)) for name in "RS"], ["R.k = S.k"])
    runtime, width = eddy.Runtime(query, spill=tmp_path), 8 * len(schema)
    for turn in range(36):
        keys = np.arange(turn * window // 16, (turn + 1) * window // 16)
        batch = pa.record_batch([pa.array(keys)] * len(schema), schema=schema)
        runtime.push({"RS"[turn % 2]: batch})
        for rings in runtime._pipeline.join.payload._rings:
            assert bool(rings.file_bytes) == (rings.room * width >= 1 << 20)
    assert runtime.file_bytes > 2 * window * width


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
    more = {"S": rows(3, 400)}
    wanted = as_lines(was.push(more))
    assert as_lines(in_files.push(more)) == wanted
    # The parts of a live engine name no directory, so its rows go to memory.
    with EngineFile(tmp_path / "engine", bytes(32)) as file:
        file.save(eddy.Runtime.restore(data, query(), spill=spill), b"1")
        live = file.load(b"1", query())
        assert live is not None
        live.check()
        assert live.file_bytes == 0
        assert as_lines(live.push(more)) == wanted
    assert as_lines(in_memory.push(more)) == wanted


FORK = """
import os, sys
import eddy
from stairs.memory.spill import SpillDirectory
from stairs.payload import Payload
from tests.eddy.test_spill import inner, rows
runtime = eddy.Runtime(inner(), spill=SpillDirectory(sys.argv[1], least=1))
runtime.push({"R": rows(1, 10)})
child = os.fork()
if not child:
    for call in (lambda: runtime.push({"R": rows(2, 10)}), runtime.snapshot, runtime.trim):
        try:
            call()
        except eddy.EddyError as error:
            assert "belong to the process that made it" in str(error), error
        else:
            os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(runtime.push({"S": rows(3, 100)})) > 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_copy_after_a_fork_is_refused(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True)


def test_directories_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(eddy.InputError, match=f"spill='{path}': no file can be made there"):
            eddy.Runtime(inner(), spill=path)
    with pytest.raises(eddy.InputError, match="no file can be made there"):
        eddy.Runtime(inner(), spill="a\0b")
    for other in (3, True, b"/tmp", ""):
        with pytest.raises(eddy.InputError, match="spill is the path of a directory"):
            eddy.Runtime(inner(), spill=other)  # type: ignore[arg-type]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no directory in memory")
def test_a_directory_in_memory_is_told(caplog: pytest.LogCaptureFixture) -> None:
    eddy.Runtime(inner(), spill="/dev/shm")
    assert "lies in memory" in caplog.text


@pytest.mark.parametrize("query", [inner, left])
@pytest.mark.parametrize("spans", [1 << 16, 100])
def test_a_saved_runtime_goes_on_in_memory_and_in_files(
    query: Any, spans: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stairs.payload, "SPAN", spans)
    spill, path = SpillDirectory(tmp_path, least=1), tmp_path / "saved"
    was = eddy.Runtime(query(), spill=spill, bounded=True)
    was.push({"R": rows(1, 900), "S": rows(2, 700)}, order=[0] * 900 + [1] * 700)
    was.save(path)
    assert path.read_bytes() == was.snapshot()
    again = [
        eddy.Runtime.restore(path, query(), spill=spill),
        eddy.Runtime.restore(str(path), query()),
        eddy.Runtime.restore(path.read_bytes(), query(), spill=spill),
    ]
    # The file has been copied.
    path.write_bytes(b"")
    wanted = as_lines(was.push({"S": rows(3, 400)}))
    for runtime in again:
        runtime.check()
        assert as_lines(runtime.push({"S": rows(3, 400)})) == wanted


def test_files_of_snapshots_that_cannot_be_read_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill, path = SpillDirectory(tmp_path, least=1), tmp_path / "saved"
    runtime = eddy.Runtime(inner(), spill=spill)
    runtime.push({"R": rows(1, 300)})
    for directory in (None, spill):
        with pytest.raises(eddy.SnapshotError, match="saved: the snapshot cannot be read"):
            eddy.Runtime.restore(path, inner(), spill=directory)
        path.write_bytes(b"")
        with pytest.raises(eddy.SnapshotError, match="is empty"):
            eddy.Runtime.restore(path, inner(), spill=directory)
        path.unlink()
    with pytest.raises(eddy.SnapshotError, match="the snapshot was not written"):
        runtime.save(tmp_path / "nothing" / "saved")
    with a_disk_that_fails(monkeypatch, 1), pytest.raises(eddy.CapacityError):
        runtime.save(path)
    assert not os.listdir(tmp_path)
    runtime.check()
    assert len(runtime.push({"S": rows(2, 300)})) > 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list descriptors")
def test_texts_in_many_files_take_no_descriptors(tmp_path: Path) -> None:
    runtime, before = (
        eddy.Runtime(inner(1 << 14), spill=SpillDirectory(tmp_path, least=1)),
        len(os.listdir("/proc/self/fd")),
    )
    for turn in range(60):
        runtime.push({"R": rows(turn, 100)})
    log = runtime._pipeline.join.payload._logs[0, WIDE.names.index("s")]
    assert sum(chunk.filed for chunk in log.chunks) == 60
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_rows_in_files_stay_there_when_rings_shrink(tmp_path: Path) -> None:
    runtime = eddy.Runtime(inner(100), max_bytes=1_500_000, spill=SpillDirectory(tmp_path, least=1 << 17))
    runtime.push({"R": rows(1, 3_000)})
    before = runtime.nbytes
    assert runtime.file_bytes > 1 << 17
    assert 0 <= runtime.spare_bytes <= before
    runtime.trim()
    assert 0 < runtime.file_bytes < 1 << 17
    assert runtime.nbytes <= before
    assert len(runtime.push({"S": rows(2, 100)})) > 0


def test_short_texts_do_not_keep_long_ones_in_memory(tmp_path: Path) -> None:
    log = ChunkLog(pa.string(), SpillDirectory(tmp_path, least=100))
    log.append(0, pa.nulls(100_000, pa.string()))
    log.append(100_000, pa.array(["a"] * 1_000))
    for turn in range(50):
        log.append(101_000 + 10 * turn, pa.array(["x" * 1_000] * 10))
    assert log.nbytes < 2 * 16 * 100 + 20_000
    assert log.take(np.array([0, 100_000, 101_499])).to_pylist() == [None, "a", "x" * 1_000]


TABLE = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


def test_a_full_disk_neither_drops_states_nor_stops_a_table_that_was_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = eddy.Query([eddy.Table("R", TABLE, key="k"), eddy.Table("S", TABLE, key="k")], ["R.k = S.k"])
    spill = SpillDirectory(tmp_path, least=1)
    in_files, in_memory = (eddy.Runtime(query, output="changelog", spill=directory) for directory in (spill, None))
    refused = 0
    for turn in range(40):
        keys = np.arange(40) % 37
        texts = [f"{turn} {key}" for key in keys]
        batch = {"RS"[turn % 2]: pa.record_batch([keys, keys + turn, texts], schema=TABLE)}
        wanted = as_lines(in_memory.push(batch))
        before = in_files.position
        with a_disk_that_fails(monkeypatch, 0):
            try:
                table = in_files.push(batch)
            except eddy.CapacityError:
                refused += 1
                table = None
            # Also while the disk is full.
            assert in_files.position == (before if table is None else before + 40)
            assert in_files.nbytes > 0
        table = in_files.push(batch) if table is None else table
        assert as_lines(table) == wanted
        in_files.check()
    assert refused > 20


@pytest.mark.parametrize("renumber_at", range(3_000, 3_900, 97))
@pytest.mark.parametrize("filed", [False, True])
def test_a_trim_that_fails_is_followed_by_a_renumbering(
    filed: bool, renumber_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    query = eddy.Query([eddy.Stream(name, schema, window=eddy.Rows(100)) for name in "RS"], ["R.k = S.k"])
    spill = SpillDirectory(tmp_path, least=1) if filed else None
    first, runtime = 0, eddy.Runtime(query, spill=spill, renumber_at=renumber_at)

    def push(name: str, first: int, n: int) -> pa.Table:
        keys = np.arange(first, first + n)
        return runtime.push({name: pa.record_batch([keys, 10 * keys], schema=schema)})

    for n in (900, *[10] * ((renumber_at - 920) // 10)):
        push("R", first, n)
        first += n
    with monkeypatch.context() as patch:
        # A lack of memory, or of room on the disk.
        patch.setattr(Payload, "resize", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            runtime.trim()
    for _ in range(2):
        push("R", first, 30)
        first += 30
    table = push("S", first - 90, 90)
    runtime.check()
    assert table["R.k"].to_pylist() == table["S.k"].to_pylist() == list(range(first - 90, first))
    assert table["R.v"].to_pylist() == [10 * key for key in range(first - 90, first)]

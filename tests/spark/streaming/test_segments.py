"""The log returns exactly the rows that were written."""

from __future__ import annotations

import os
import resource
import stat
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.segments import ALIGNMENT, MAGIC, VERSION, Segment, SegmentReader, SegmentWriter

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
OTHER = pa.schema([("k", pa.float64()), ("l", pa.list_(pa.int8())), ("b", pa.bool_())])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.none() | st.integers(-5, 5),
    "s": st.none() | st.text(max_size=4),
    "l": st.none() | st.lists(st.integers(-5, 5), max_size=3),
    "b": st.none() | st.booleans(),
}


def batch(start: int, rows: int) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    return pa.record_batch({"k": list(numbers), "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, list[Segment], list[pa.RecordBatch]]:
    rows = [batch(0, 3), batch(10, 1)]
    with SegmentWriter(tmp_path, "000000000007-a.log") as writer:
        for group, some in enumerate(rows):
            writer.add(group, 0, some, 10 * group, 10 * group + some.num_rows - 1)
        segments = writer.finish()
    return tmp_path / "000000000007-a.log", segments, rows


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, pa.RecordBatch]:
    stream = draw(st.integers(0, 1))
    schema = (SCHEMA, OTHER)[stream]
    rows = draw(st.integers(0, 20))
    columns = [
        pa.array(draw(st.lists(VALUES[field.name], min_size=rows, max_size=rows)), field.type) for field in schema
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    begin = draw(st.integers(0, rows))
    return stream, whole.slice(begin)


@settings(max_examples=30)
@given(st.lists(st.lists(batches(), max_size=4), max_size=3))
def test_what_was_written_is_read(files: list[list[tuple[int, pa.RecordBatch]]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        expected: list[tuple[Segment, pa.RecordBatch]] = []
        for number, added in enumerate(files):
            name = f"{number:012d}.log"
            with SegmentWriter(directory, name) as writer:
                given_back = [
                    writer.add(group, stream, rows, -group, group) for group, (stream, rows) in enumerate(added)
                ]
                segments = writer.finish()
            assert segments == given_back
            assert (directory / name).exists() == bool(added)
            for group, (segment, (stream, rows)) in enumerate(zip(segments, added, strict=True)):
                assert (segment.file, segment.group, segment.stream) == (name, group, stream)
                assert (segment.rows, segment.first, segment.last) == (rows.num_rows, -group, group)
                assert segment.offset % ALIGNMENT == 0
                expected.append((segment, rows))
        assert not list(directory.glob("*.tmp"))
        with SegmentReader(directory, (SCHEMA, OTHER)) as reader:
            pairs = [(reader.read(segment), rows) for segment, rows in reversed(expected)]
        for read_rows, rows in pairs:
            read_rows.validate(full=True)
            assert read_rows.schema == rows.schema
            assert read_rows.to_pylist() == rows.to_pylist()


def test_reading_copies_nothing(tmp_path: Path) -> None:
    rows = pa.record_batch({"k": list(range(100_000)), "s": ["some text"] * 100_000}, schema=SCHEMA)
    with SegmentWriter(tmp_path, "000000000001.log") as writer:
        writer.add(0, 0, rows, 0, 0)
        (segment,) = writer.finish()
    before = pa.total_allocated_bytes()
    reader = SegmentReader(tmp_path, (SCHEMA,))
    read_batch = reader.read(segment)
    assert pa.total_allocated_bytes() - before < 10_000
    reader.close()
    (tmp_path / segment.file).unlink()
    # A file that retention deletes stays readable for a reader that has mapped it.
    assert read_batch.equals(rows)


def test_every_byte_counts(written: tuple[Path, list[Segment], list[pa.RecordBatch]]) -> None:
    path, segments, rows = written
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        reader = SegmentReader(path.parent, (SCHEMA,))
        for segment, expected in zip(segments, rows, strict=True):
            if at < ALIGNMENT or segment.offset <= at < segment.offset + segment.length:
                refused += 1
                with pytest.raises(StreamingStateError, match=path.name):
                    reader.read(segment)
            else:
                assert reader.read(segment).equals(expected)
    assert refused == 2 * ALIGNMENT + sum(segment.length for segment in segments)


def test_a_file_cut_off_anywhere(written: tuple[Path, list[Segment], list[pa.RecordBatch]]) -> None:
    path, segments, rows = written
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        reader = SegmentReader(path.parent, (SCHEMA,))
        for segment, expected in zip(segments, rows, strict=True):
            if length < segment.offset + segment.length:
                with pytest.raises(StreamingStateError, match=r"truncated|empty|begins with"):
                    reader.read(segment)
            else:
                assert reader.read(segment).equals(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "000000000001.log"}, "is missing"),
        ({"stream": 5}, "of stream 5, but the query has 2 streams"),
        ({"stream": -1}, "of stream -1"),
        ({"stream": 1}, "Arrow cannot read it"),
        ({"rows": 4}, "it has 3 rows, but 4 were written"),
        ({"digest": "0" * 16}, "damaged"),
        ({"length": 8}, "damaged"),
        ({"offset": 1 << 20}, "truncated"),
    ],
    ids=str,
)
def test_a_segment_of_something_else_is_refused(
    written: tuple[Path, list[Segment], list[pa.RecordBatch]], change: dict[str, Any], message: str
) -> None:
    path, (segment, _), _ = written
    wrong = replace(segment, **change)
    with pytest.raises(StreamingStateError, match=message) as refused:
        SegmentReader(path.parent, (SCHEMA, OTHER)).read(wrong)
    for part in (str(path.parent / wrong.file), f"offset {wrong.offset}", "from a backup"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (MAGIC + struct.pack("<Q", VERSION + 1), f"format version {VERSION + 1}, .* reads {VERSION}; run the job with"),
        (MAGIC + struct.pack("<Q", 0), "beginning of the file is damaged"),
        (b"PAR1", "begins with b'PAR1"),
    ],
)
def test_files_of_another_format(
    written: tuple[Path, list[Segment], list[pa.RecordBatch]], begin: bytes, message: str
) -> None:
    path, (segment, _), _ = written
    path.write_bytes(begin + path.read_bytes()[len(begin) :])
    with pytest.raises(StreamingStateError, match=message):
        SegmentReader(path.parent, (SCHEMA,)).read(segment)


def test_a_file_survives_a_power_cut(tmp_path: Path) -> None:
    """Its bytes are synced before it gets its name, and the directory afterwards."""
    calls: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        sync, rename = os.fsync, os.rename

        def synced(descriptor: int) -> None:
            (name,) = [path.name for path in tmp_path.iterdir()]
            kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
            calls.append(f"{kind} with {'temporary' if name.endswith('.tmp') else 'its'} name")
            if kind == "file":
                assert os.fstat(descriptor).st_size == segment.offset + segment.length
            sync(descriptor)

        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "rename", lambda *names: (calls.append("rename"), rename(*names)))
        writer = SegmentWriter(tmp_path, "000000000001.log")
        segment = writer.add(0, 0, batch(0, 3), 0, 2)
        writer.finish()
    assert calls == ["file with temporary name", "rename", "directory with its name"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with SegmentWriter(tmp_path, "000000000001.log") as writer:
            writer.add(0, 0, batch(0, 3), 0, 2)
            raise KeyError("a task")

    with pytest.raises(KeyError):
        write()
    writer = SegmentWriter(tmp_path, "000000000001.log")
    writer.add(0, 0, batch(0, 3), 0, 2)
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StreamingStateError, match="finished"):
        writer.add(0, 0, batch(0, 3), 0, 2)


@pytest.mark.parametrize("rows", [50, 50_000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, rows: int) -> None:
    def write() -> None:
        with SegmentWriter(tmp_path, "000000000001.log") as writer:
            writer.add(0, 0, some, 0, 2)
            writer.finish()

    some = batch(0, rows)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_used_once(written: tuple[Path, list[Segment], list[pa.RecordBatch]]) -> None:
    path, segments, rows = written
    writer = SegmentWriter(path.parent, path.name)
    writer.add(0, 0, batch(50, 9), 0, 0)
    with pytest.raises(StreamingStateError, match=f"{path.name}: the file exists already"):
        writer.finish()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert SegmentReader(path.parent, (SCHEMA,)).read(segments[0]).equals(rows[0])

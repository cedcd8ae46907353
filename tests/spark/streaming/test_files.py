"""The source of a join over files: which files it finds, in which order, and that it finds each once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddy.spark.directories import File, StreamDirectory
from eddy.spark.environment.stream_reader import ReadAllAvailable, ReadMaxFiles
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.driver.feed import SPLIT_BYTES, Feed
from eddy.spark.streaming.inputs.file_log import EVERY, FileLog
from eddy.spark.streaming.inputs.source import InputsReader
from eddy.spark.transports.parquet_source import FileInput

SOME = ReadMaxFiles(1)


def write(path: Path, at: int, size: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (at, at))
    return path


def files_of(directory: StreamDirectory, root: Path) -> list[str]:
    return [str(Path(file.path).relative_to(root)) for file in directory.new_files(())]


def test_files_come_by_time_without_hidden_ones(tmp_path: Path) -> None:
    root = tmp_path / "a b%"
    for name, at in (("c", 3), ("a", 5), ("b", 3), (".d", 1), ("_e", 1), ("f._COPYING_", 1), ("below/g", 1)):
        write(root / name, at)
    write(root / "_x=1/h", 1)
    directory = StreamDirectory(f"file:{root}")
    assert files_of(directory, root) == ["b", "c", "a"]
    assert files_of(StreamDirectory(f"file:{root}", recursive=True), root) == ["_x=1/h", "below/g", "b", "c", "a"]
    assert files_of(StreamDirectory(f"file:{root}", names="[ab]"), root) == ["b", "a"]
    assert [file.path for file in directory.new_files({str(root / "b")})] == [str(root / "c"), str(root / "a")]
    assert files_of(StreamDirectory(f"file:{root}/a"), root) == ["a"]
    assert StreamDirectory(f"file:{tmp_path}/nothing").new_files(()) == []


def test_paths_with_patterns(tmp_path: Path) -> None:
    for name, at in (("2026/1/a", 1), ("2026/2/b", 2), ("2026/2/deep/c", 3), ("2027/1/d", 4), ("2026/e", 5)):
        write(tmp_path / name, at)
    for path, recursive, expected in (
        ("2026/*", False, ["2026/1/a", "2026/2/b", "2026/e"]),
        ("2026/*", True, ["2026/1/a", "2026/2/b", "2026/2/deep/c", "2026/e"]),
        ("*/[12]", False, ["2026/1/a", "2026/2/b", "2027/1/d"]),
        ("202?/1/*", False, ["2026/1/a", "2027/1/d"]),
        ("x*", False, []),
    ):
        assert files_of(StreamDirectory(f"file:{tmp_path}/{path}", recursive=recursive), tmp_path) == expected, path


@pytest.mark.parametrize(
    ("limits", "ends"),
    [
        ((None, None), [5]),
        ((2, None), [2, 4, 5]),
        ((None, 5), [1, 2, 4, 5]),
        ((3, 100), [3, 5]),
        ((1, 1), [1, 2, 3, 4, 5]),
    ],
)
def test_limits_of_a_micro_batch(limits: tuple[int | None, int | None], ends: list[int]) -> None:
    directory = StreamDirectory("file:/x", max_files=limits[0], max_bytes=limits[1])
    files = [File(str(k), size) for k, size in enumerate((5, 9, 3, 2, 3))]
    at, taken = 0, []
    while at < len(files):
        at = directory.take(files, at)
        taken.append(at)
    assert taken == ends
    assert directory.take(files, 5) == 5


def test_the_list_is_the_same_for_every_reader(tmp_path: Path) -> None:
    log, other = FileLog(tmp_path / "files", 2), FileLog(tmp_path / "files", 2)
    other.refresh()
    assert other.files == [[], []]
    for number in range(2 * EVERY + 3):
        log.add([[File(f"r{number}", number)], [File(f"s{number}", 1)] if number % 3 == 0 else []])
        if number in (0, 5, EVERY):
            other.refresh()
            assert other.files == log.files
    other.refresh()
    fresh = FileLog(tmp_path / "files", 2)
    fresh.refresh()
    assert fresh.files == other.files == log.files
    assert len(list((tmp_path / "files").iterdir())) < 2 * EVERY
    fresh.require((len(fresh.files[0]), 0))
    with pytest.raises(StreamingStateError, match=r"files: it lists .* but Spark has taken .* lists are missing"):
        fresh.require((0, 1000))


def test_files_that_were_taken_long_ago_leave_the_list(tmp_path: Path) -> None:
    log, kept = FileLog(tmp_path / "files", 1), "kept"
    rounds, sizes = 6 * EVERY, []
    for number in range(rounds):
        name = kept if number == 3 else str(number)
        # A batch takes each file at once; files are deleted after ten rounds, but for one.
        there = {kept, *(str(n) for n in range(number - 10, number + 1))}
        log.add([[File(name, 1)]], [number], [there])
        sizes.append(len(log.files[0]) + len(log.old[0]))
    assert log.counts == [rounds]
    assert max(sizes) <= 4 * EVERY
    assert kept in log.old[0]
    assert "7" not in log.old[0]
    assert log.between(0, rounds - 2, rounds) == [File(str(rounds - 2), 1), File(str(rounds - 1), 1)]
    fresh = FileLog(tmp_path / "files", 1)
    fresh.refresh()
    assert (fresh.files, fresh.first, fresh.old) == (log.files, log.first, log.old)
    fresh.require([rounds])
    with pytest.raises(StreamingStateError, match=r"Spark wants the files from \[1\] on"):
        fresh.require([1])
    fresh.forget([rounds - 1])
    assert fresh.files == [[File(str(rounds - 1), 1)]]
    assert fresh.counts == [rounds]


def test_a_look_that_misses_a_file_does_not_make_it_new(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "files", 1)
    for number in range(5 * EVERY):
        missed = number // EVERY == 3  # at the list after that round
        log.add([[File(f"f{number}", 1)]], [number], [set() if missed else {f"f{n}" for n in range(number + 1)}])
    assert {f"f{n}" for n in range(log.first[0])} == log.old[0]


def test_a_source_lets_go_of_files_and_finds_none_twice(tmp_path: Path) -> None:
    source, offset = reader(tmp_path), {"R": 0, "S": 0}
    write(tmp_path / "S" / "stays", 0)
    for number in range(5 * EVERY):
        write(tmp_path / "R" / str(number), number)
        (tmp_path / "R" / str(number - 5)).unlink(missing_ok=True)
        offset = source.latestOffset(offset, SOME)
        assert offset == {"R": number + 1, "S": 1}
        source.commit(offset)
    assert all(len(seen) <= 4 * EVERY for seen in source._seen)
    again = reader(tmp_path)
    assert again.latestOffset(offset, SOME) == offset


def test_two_processes_cannot_both_add(tmp_path: Path) -> None:
    first, two = FileLog(tmp_path, 1), FileLog(tmp_path, 1)
    first.add([[File("a", 1)]])
    with pytest.raises(StreamingStateError, match="another process runs this job"):
        two.add([[File("b", 1)]])
    two.refresh()
    assert two.files == [[File("a", 1)]]


@pytest.mark.parametrize("damage", ["cut", "flip", "streams"])
def test_a_damaged_list_is_named(tmp_path: Path, damage: str) -> None:
    FileLog(tmp_path, 1).add([[File("a", 1)]])
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "cut" else data[:40] + b"?" + data[41:] if damage == "flip" else data)
    with pytest.raises(StreamingStateError, match=f"^{path}: the order in which files were taken is lost: .*backup"):
        FileLog(tmp_path, 2 if damage == "streams" else 1).refresh()


def reader(root: Path, **limits: Any) -> InputsReader:
    names = ("R", "S")
    return InputsReader(root / "files", {name: StreamDirectory(f"file:{root}/{name}", **limits) for name in names})


def test_offsets_count_the_files_of_each_stream(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "R" / str(number), number)
    write(tmp_path / "S" / "0", 0)
    source = reader(tmp_path, max_files=1)
    begin = source.initialOffset()
    assert begin == {"R": 0, "S": 0}
    first = source.latestOffset(begin, SOME)
    assert first == {"R": 1, "S": 1}
    write(tmp_path / "S" / "late", 0)
    assert source.latestOffset(first, SOME) == {"R": 2, "S": 2}
    assert source.latestOffset(first, ReadAllAvailable()) == source.reportLatestOffset() == {"R": 3, "S": 2}
    # After a restart the files keep their numbers, although one is older than those before it.
    again = reader(tmp_path, max_files=1)
    assert again.latestOffset(first, SOME) == {"R": 2, "S": 2}
    assert again.partitions(begin, first) == []
    with pytest.raises(StreamingStateError, match="lists are missing"):
        again.latestOffset({"R": 9, "S": 0}, SOME)


def test_available_now_ends_with_the_files_of_the_start(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "R" / str(number), number)
    source = reader(tmp_path, max_files=1)
    source.prepareForTriggerAvailableNow()
    write(tmp_path / "R" / "later", 9)
    offset, offsets = source.initialOffset(), []
    while (following := source.latestOffset(offset, SOME)) != offset:
        offset = following
        offsets.append(offset["R"])
    assert offsets == [1, 2]


def test_files_are_dealt_evenly_and_large_ones_in_parts(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "files", 2)
    large = tmp_path / "R" / "a"
    large.parent.mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3, 4]}), large, row_group_size=1)
    single = tmp_path / "R" / "e"
    pq.write_table(pa.table({"k": [1, 2, 3, 4]}), single)
    sizes = [(str(large), 10 * SPLIT_BYTES), ("b", 1), (str(single), 2), ("gone", 2)]
    log.add([[File(*entry) for entry in sizes], [File("c", 2), File("d", 0)]])
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"R":2,"S":2}')
    source = FileInput(StreamDirectory(f"file:{large.parent}"), ("k",), {"k": pa.int64()})
    feed = Feed(tmp_path, ("R", "S"), (source, source))
    assert feed.end(0) == ((2, 2), False)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"R":2,"S":2,"":"ended"}')
    assert feed.end(0) == ((2, 2), True)
    dealt = feed.deal((0, 0), (2, 2), 3)
    parts = sorted(part for share in dealt for part in share)
    assert [(part.stream, part.path) for part in parts] == [(0, str(large))] * 3 + [(0, "b"), (1, "c"), (1, "d")]
    assert [(part.part, part.parts) for part in parts[:3]] == [(0, 3), (1, 3), (2, 3)]
    assert all(share == sorted(share) and sum(part.path == str(large) for part in share) == 1 for share in dealt)
    assert feed.deal((2, 1), (2, 2), 2) == [[parts[-1]], []]
    # A file with one row group has one reader, however large it is; so has one that cannot be opened.
    for file in log.files[0][2:]:
        assert feed._parts(0, file._replace(bytes=10 * SPLIT_BYTES), 3) == 1
    for text in ("", "v1\n{}\n{}", "v1\n{}\n[]", "nonsense"):
        (offsets / "0").write_text(text)
        with pytest.raises(StreamingStateError, match=r"offsets/0: Spark planned the batch"):
            feed.end(0)

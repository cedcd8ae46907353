"""Sinks: readers see a whole batch or nothing of it, and once, whenever a crash comes; bad places are refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks import CallbackSink, ConsoleSink, NullSink, ParquetSink, Sink, TransactionSink
from eddy.spark.streaming.sinks.transactions import snapshot, versions
from eddy.storage.durable import make_directories, write_whole
from tests.spark.streaming.sinks import ROWS, Lasting, lasting, ready, stage

STEPS = ("mkdir", "rename", "replace", "fsync")


class Crash(BaseException):
    """Ends the process; no code may catch it."""


@contextmanager
def steps_until(crash_at: int | None) -> Iterator[list[str]]:
    """Record the steps that change the file system; a crash replaces step number `crash_at`."""
    taken: list[str] = []

    def recorded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **options: Any) -> Any:
            if len(taken) == crash_at:
                raise Crash
            taken.append(name)
            return call(*given, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, recorded(name, getattr(os, name)))
        yield taken


def cut_short(at: int, work: Callable[[], object]) -> bool:
    """Run `work` up to step number `at`; return whether there was such a step."""
    with steps_until(at):
        try:
            work()
        except Crash:
            return True
    return False


def seen(sink: Lasting) -> list[int]:
    """Return the keys that a reader of the sink's directory sees."""
    if isinstance(sink, TransactionSink):
        table = pa.concat_tables([pq.read_table(path) for path in snapshot(sink.path)] or [ROWS.empty_table()])
    elif any(sink.path.glob("batch=*")):
        table = pq.read_table(sink.path)
    else:
        return []
    return sorted(table["R.k"].to_pylist())


def tree(path: Path) -> dict[str, tuple[int, int]]:
    """Return all files below a path, with their inodes and modification times."""
    return {str(file.relative_to(path)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in path.rglob("*")}


@lasting
def test_published_batches_are_seen_and_others_are_not(kind: type[Lasting], tmp_path: Path) -> None:
    sink = ready(kind(tmp_path / "results"), tmp_path)
    zero, later = stage(sink, 0, a=[1, 2], b=[3]), stage(sink, 1, a=[4])
    assert seen(sink) == []
    sink.publish(0, zero)
    assert seen(sink) == [1, 2, 3]
    sink.publish(1, later)
    sink.publish(2, [])
    assert seen(sink) == [1, 2, 3, 4]
    sink.clean(2)
    assert [path.name for path in (sink.path / "_staging").iterdir()] == []
    ready(sink, tmp_path)  # the next run of the job
    before = tree(tmp_path)
    for batch, files in ((0, zero), (1, later), (2, [])):
        sink.publish(batch, files)
    assert seen(sink) == [1, 2, 3, 4]
    assert tree(tmp_path) == before


@lasting
def test_a_crash_between_any_two_steps_leaves_all_or_nothing_and_then_one_copy(
    kind: type[Lasting], tmp_path: Path
) -> None:
    for crash_at in count():
        place = tmp_path / str(crash_at)
        sink = ready(kind(place), tmp_path)
        sink.publish(0, stage(sink, 0, a=[7]))
        files = stage(sink, 1, a=[1, 2], b=[3])
        crashed = cut_short(crash_at, partial(sink.publish, 1, files))
        assert seen(sink) in ([7], [1, 2, 3, 7])
        again = ready(kind(place), tmp_path)
        again.publish(1, files)
        assert seen(again) == [1, 2, 3, 7]
        again.clean(2)
        assert seen(again) == [1, 2, 3, 7]
        assert list((place / "_staging").iterdir()) == []
        if not crashed:
            break
    assert crash_at > 4


@lasting
def test_a_crash_in_preparing_leaves_a_place_that_can_be_prepared(kind: type[Lasting], tmp_path: Path) -> None:
    for crash_at in count():
        place = tmp_path / str(crash_at)
        crashed = cut_short(crash_at, partial(ready, kind(place), tmp_path))
        sink = ready(kind(place), tmp_path)
        sink.publish(0, stage(sink, 0, a=[7]))
        assert seen(sink) == [7]
        if not crashed:
            break
    assert crash_at > 4


def test_what_makes_a_batch_seen_is_one_step_and_is_synced(tmp_path: Path) -> None:
    for kind, last in ((ParquetSink, ["fsync", "rename", "fsync"]), (TransactionSink, ["fsync", "replace", "fsync"])):
        sink = ready(kind(tmp_path / kind.__name__), tmp_path)
        files = stage(sink, 0, a=[1], b=[2])
        with steps_until(None) as taken:
            sink.publish(0, files)
        assert taken[-3:] == last
        assert taken.index("replace") < taken.index("fsync")  # the files are in place before anything names them


@lasting
def test_a_place_of_another_job_is_refused(kind: type[Lasting], tmp_path: Path) -> None:
    sink = ready(kind(tmp_path), tmp_path)
    sink.publish(0, stage(sink, 0, a=[1]))
    with pytest.raises(SparkJoinError, match=f"{tmp_path} holds results of job one, and this is job two; give"):
        ready(kind(tmp_path), tmp_path, job="two")
    (tmp_path / "_owner.json").unlink()
    with pytest.raises(SparkJoinError, match="an unknown job, and this is job one"):
        ready(kind(tmp_path), tmp_path)
    (tmp_path / "_owner.json").write_text("{")
    with pytest.raises(SparkJoinError, match=r"_owner.json is damaged; remove it"):
        ready(kind(tmp_path), tmp_path)
    # A batch with other files is refused even for the same job: its manifest may be lost.
    with pytest.raises(SparkJoinError, match=r"only one of .* has '.*a.parquet'.* restore 000000000000.manifest"):
        sink.publish(0, stage(sink, 0, other=[2]))
    assert seen(sink) == [1]


@lasting
def test_a_place_that_will_not_do_is_refused(kind: type[Lasting], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SparkJoinError, match="file is a file; give a directory"):
        ready(kind(tmp_path / "file"), tmp_path)
    with pytest.raises(SparkJoinError, match=r"file/below: .* failed: Not a directory"):
        ready(kind(tmp_path / "file" / "below"), tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(SparkJoinError, match=r"mine holds 'part-0.parquet'.* give an empty directory"):
        ready(kind(tmp_path / "mine"), tmp_path)
    with pytest.raises(SparkJoinError, match="'s3://bucket/results' is not a path of a mounted file system"):
        kind("s3://bucket/results")
    with pytest.raises(SparkJoinError, match=r"Spark reads '\*' in .* as a pattern"):
        kind(tmp_path / "a*")
    assert kind(f"file://{tmp_path}").path == kind(f"file:{tmp_path}").path == tmp_path


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)  # tests may run as a user who may write everywhere
    with pytest.raises(SparkJoinError, match=f"{tmp_path / 'results'}: .* failed: Permission denied; check that"):
        ready(ParquetSink(tmp_path / "results"), tmp_path)


@lasting
def test_a_committed_file_that_is_gone_is_an_error_and_nothing_is_seen(kind: type[Lasting], tmp_path: Path) -> None:
    sink = ready(kind(tmp_path), tmp_path)
    files = stage(sink, 3, a=[1], b=[2])
    (sink.staging(3) / "b.parquet").unlink()
    with pytest.raises(SparkJoinError, match=r"000000000003/b.parquet: this result file of batch 3 is missing"):
        sink.publish(3, files)
    assert seen(sink) == []
    stage(sink, 3, b=[2])
    sink.publish(3, files)
    assert seen(sink) == [1, 2]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["../a.parquet"], "'../a.parquet': give the plain name"),
        (["_a.parquet"], "'_a.parquet': give the plain name"),
        ([""], "'': give the plain name"),
        (["a.parquet", "a.parquet"], "'a.parquet' is named twice"),
    ],
)
@lasting
def test_names_that_readers_would_not_see_are_refused(
    kind: type[Lasting], files: list[str], says: str, tmp_path: Path
) -> None:
    sink = ready(kind(tmp_path), tmp_path)
    stage(sink, 0, a=[1])
    with pytest.raises(SparkJoinError, match=says):
        sink.publish(0, files)
    assert seen(sink) == []


def test_only_staging_of_old_batches_is_cleaned(tmp_path: Path) -> None:
    sink, place = ready(CallbackSink(print), tmp_path), tmp_path / "staging"
    for batch in (8, 9, 10):
        sink.staging(batch)
    (place / "mine-3").mkdir()
    (place / "4").mkdir()
    sink.clean(10)
    left = sorted(path.name for path in place.iterdir())
    assert left == ["000000000010", "4", "_owner.json", "mine-3"]
    with pytest.raises(SparkJoinError, match="batch -1: batches are numbered from 0"):
        sink.staging(-1)


# Parquet


def test_pyarrow_reads_the_number_of_the_batch(tmp_path: Path) -> None:
    sink = ready(ParquetSink(tmp_path), tmp_path)
    sink.publish(12, stage(sink, 12, a=[5]))
    stage(sink, 13, a=[6])
    assert (tmp_path / "batch=12").is_dir()
    assert sorted(path.name for path in (tmp_path / "batch=12").iterdir()) == ["a.parquet"]
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert table.to_pydict() == {"R.k": [5], "S.v": ["5"], "batch": [12]}


def test_a_result_column_named_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkJoinError, match="the results have a column 'batch'"):
        ready(ParquetSink(tmp_path), tmp_path, pa.schema([("Batch", pa.int64())]))


def test_a_file_in_the_way_is_not_published(tmp_path: Path) -> None:
    sink = ready(ParquetSink(tmp_path), tmp_path)
    foreign = tmp_path / "_staging" / "publish-000000000000" / "x.parquet"
    make_directories(foreign.parent)
    foreign.write_bytes(b"")
    with pytest.raises(SparkJoinError, match=r"x.parquet does not belong to batch 0; remove it"):
        sink.publish(0, stage(sink, 0, a=[1]))
    assert seen(sink) == []


# Transactions


def test_the_log_says_rows_and_bytes_and_keeps_versions(tmp_path: Path) -> None:
    sink = TransactionSink(tmp_path)
    assert versions(tmp_path) == []
    with pytest.raises(SparkJoinError, match="has no log of results"):
        snapshot(tmp_path)
    ready(sink, tmp_path)
    with pytest.raises(SparkJoinError, match="batch upto=0 is not published; no batch is published yet"):
        snapshot(tmp_path, 0)
    for batch in range(3):
        # The same name each time: a batch must not replace the files of another.
        sink.publish(batch, stage(sink, batch, a=[batch] * batch) if batch else [])
    assert versions(tmp_path) == [0, 1, 2]
    assert [snapshot(tmp_path, batch) for batch in range(3)] == [
        [],
        [tmp_path / "data" / "000000000001-a.parquet"],
        snapshot(tmp_path),
    ]
    assert seen(sink) == [1, 2, 2]
    entry = (tmp_path / "_log" / "000000000002.json").read_text()
    size = (tmp_path / "data" / "000000000002-a.parquet").stat().st_size
    assert entry == f'{{"batch": 2, "files": [{{"name": "000000000002-a.parquet", "rows": 2, "bytes": {size}}}]}}'
    with pytest.raises(SparkJoinError, match="batch upto=7 is not published; published are batches 0 to 2"):
        snapshot(tmp_path, 7)


def test_a_log_of_other_columns_is_refused(tmp_path: Path) -> None:
    ready(TransactionSink(tmp_path), tmp_path)
    ready(TransactionSink(tmp_path), tmp_path)
    with pytest.raises(SparkJoinError, match=r"columns R.k: int64, S.v: string, not R.k: int64; give"):
        ready(TransactionSink(tmp_path), tmp_path, ROWS.remove(1))


def test_damage_is_named(tmp_path: Path) -> None:
    sink = ready(TransactionSink(tmp_path), tmp_path)
    (sink.staging(0) / "a.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(SparkJoinError, match=r"a.parquet is not a whole Parquet file"):
        sink.publish(0, ["a.parquet"])
    assert versions(tmp_path) == []
    write_whole(tmp_path / "_log" / "000000000000.json", b'{"batch": 0}')
    with pytest.raises(SparkJoinError, match=r"000000000000.json is damaged"):
        snapshot(tmp_path)
    (tmp_path / "_log" / "schema.arrow").write_bytes(b"?")
    with pytest.raises(SparkJoinError, match=r"schema.arrow is damaged; remove it"):
        ready(sink, tmp_path)


# The others


def test_a_null_sink_keeps_nothing(tmp_path: Path) -> None:
    sink: Sink = ready(NullSink(), tmp_path)
    assert not sink.writes
    NullSink().publish(0, [])
    sink.clean(3)
    with pytest.raises(SparkJoinError, match=r"a NullSink keeps no results, but the batch has the file 'a.parquet'"):
        NullSink().publish(0, ["a.parquet"])
    with pytest.raises(SparkJoinError, match="has no staging directory"):
        sink.staging(0)


def test_sinks_without_a_place_stage_where_the_job_says(tmp_path: Path) -> None:
    sinks: list[CallbackSink | ConsoleSink] = [CallbackSink(print), ConsoleSink()]
    for sink in sinks:
        with pytest.raises(SparkJoinError, match="Sink has no staging directory: call prepare first"):
            sink.staging(4)
        ready(sink, tmp_path)
        assert sink.staging(4) == tmp_path / "staging" / "000000000004"
        with pytest.raises(SparkJoinError, match="staging holds results of job one, and this is job two"):
            ready(sink, tmp_path, job="two")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "staging").write_bytes(b"")
    with pytest.raises(SparkJoinError, match="staging is a file; remove it"):
        ready(ConsoleSink(), tmp_path / "other")


def test_sinks_that_cannot_be() -> None:
    with pytest.raises(SparkJoinError, match="'f' is not callable"):
        CallbackSink("f")  # type: ignore[arg-type]
    with pytest.raises(SparkJoinError, match="rows=0"):
        ConsoleSink(rows=0)

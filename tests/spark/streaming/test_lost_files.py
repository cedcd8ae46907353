"""Every file of a checkpoint deleted, cut and swapped, one by one: the job restores it, refuses, or has equal results.

    EDDY_DAMAGE=all python -m pytest tests/spark/streaming/test_lost_files.py

damages every file; `make soak` runs it. Without the variable the test damages some files, drawn from a seed, and all
files of groups: the checks of groups need no JVM, so their test is apart.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, StreamingStateError, join
from eddy.spark.groups.sink import GROUPS_BEGIN, GroupsSink
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest
from tests.cases import text_rows
from tests.spark.streaming.hub_jobs import DrawnRows, finished, hub_of
from tests.spark.streaming.hub_jobs import query as hub_query
from tests.spark.streaming.jobs import results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
STREAMS = [eddy.Stream(name, SCHEMA, window=eddy.Range(8), time="t") for name in "RS"]
SEED, FEW = 5, 2
COLUMNS = {"k": "R.k", "t": "R.t", "v": "S.v"}


# Groups, without a JVM


class KeepingSink(Sink):
    """Keeps the rows of each batch, and the files of each publication."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[str, ...]]] = {}
        self.files: list[Sequence[str]] = []

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        self.files.append(files)
        self.rows[batch] = [row for path in self.paths(batch, files) for row in text_rows(pq.ParquetFile(path).read())]


GROUPED = eddy.Query(
    STREAMS,
    ["R.k = S.k"],
    group_by=["R.k"],
    aggregates={"n": agg.count(), "total": agg.sum("S.v")},
    group_window=eddy.Tumbling(25),
)
CHANGING = eddy.Query(
    STREAMS,
    ["R.k = S.k"],
    expiry="final",
    group_by=["S.v"],
    aggregates={"n": agg.count(), "most": agg.max("R.v")},
    top=eddy.Top(4, order=["n desc", "S.v"]),
)
"""Its groups after the first batch are more than the results of several batches, which are written in their place."""
BATCHES = 4


def manifest(batch: int, first: int | None = 0) -> Manifest:
    """Return the part of a manifest that groups follow."""
    return Manifest(batch, {"engine": batch * 10}, (), {}, (), (), {GROUPS_BEGIN: first})


def staged(sink: GroupsSink, batch: int, attempt: str = "a", query: eddy.Query = GROUPED) -> list[str]:
    """Write the results of a batch, and return the names of their files."""
    chance, name = random.Random(batch), f"part-{attempt}.parquet"
    schema, many = query.row_schema, query is CHANGING
    rows = [
        {
            name: chance.randrange(batch * 10, batch * 10 + 9)
            if name.endswith(".t")
            else chance.randrange(300 if many else 3)
            for name in schema.names
        }
        for _ in range((12 if batch else 300) if many else 60)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), sink.staging(batch) / name)
    return [name]


def run_groups(
    root: Path, batches: Sequence[int], published: bool = True, query: eddy.Query = GROUPED
) -> dict[int, list[tuple[str, ...]]]:
    """Publish batches, of which the first one is committed already if it is not 0, and was published or not."""
    kept = KeepingSink()
    sink = GroupsSink(kept, query, Locations(root, "test", root))
    newest = batches[0] - published
    if newest >= 0:
        sink.committed(manifest(newest))
        sink.check(newest, ["part-a.parquet"], published)
    sink.prepare(schema=query.row_schema, job="test", scratch=root)
    for batch in batches:
        sink.committed(manifest(batch))
        sink.publish(batch, staged(sink, batch, query=query), None)  # type: ignore[arg-type]
    return kept.rows


def damages(files: Sequence[Path]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield ways to damage the files, one at a time: each is deleted, cut, emptied, and swapped with its neighbour."""
    for path in files:
        yield f"{path.name} deleted", path.unlink
        yield f"{path.name} cut", lambda path=path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        yield f"{path.name} emptied", lambda path=path: path.write_bytes(b"")
    by_directory = itertools.groupby(sorted(files), lambda path: path.parent)
    for file, other in ((a, b) for _, siblings in by_directory for a, b in itertools.pairwise(list(siblings))):
        yield f"{file.name} and {other.name} swapped", lambda file=file, other=other: _swap(file, other)


def _swap(path: Path, other: Path) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def pairs_of(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield ways to damage a file of groups together with its copy."""
    files = sorted(path for path in (root / "groups").iterdir() if "copy" not in path.name)
    both = {path: (path, path.with_name(path.name + "-copy")) for path in files}
    for path, (original, copy) in both.items():
        yield (
            f"{path.name} and its copy deleted",
            lambda original=original, copy=copy: (original.unlink(), copy.unlink()),
        )
    for file, other in itertools.permutations(files, 2):
        yield (
            f"{file.name} and its copy replaced by {other.name}",
            lambda file=file, other=other: [shutil.copyfile(other, place) for place in both[file]],
        )


@pytest.mark.parametrize("query", [GROUPED, CHANGING], ids=["windows", "changing"])
@pytest.mark.parametrize("published", [True, False], ids=["published", "not published"])
def test_groups_follow_from_the_batch_that_the_manifest_names(
    tmp_path: Path, published: bool, query: eddy.Query
) -> None:
    pristine = tmp_path / "pristine"
    wanted = run_groups(pristine, range(BATCHES), query=query)
    logged = [path for path in (pristine / "groups").iterdir() if path.name.endswith("-rows")]
    assert len(logged) == (BATCHES - 1 if query is CHANGING else 0)
    if not published:  # the batch is committed, and the job died before its groups were made
        for path in (pristine / "groups").glob(f"*{BATCHES - 1}*"):
            path.unlink()
    rest = range(BATCHES - (not published), BATCHES + 2)
    wanted |= run_groups(shutil.copytree(pristine, tmp_path / "whole"), rest, published, query)
    assert sum(map(len, wanted.values())) >= 6
    files = sorted((pristine / "groups").iterdir())
    names = [name for name, _ in (*damages(files), *pairs_of(pristine))]
    outcomes = []
    for number, name in enumerate(names):
        root = shutil.copytree(pristine, tmp_path / str(number))
        harm = [*damages(sorted((root / "groups").iterdir())), *pairs_of(root)][number]
        harm[1]()
        try:
            rows = run_groups(root, rest, published, query)
        except StreamingStateError as problem:
            outcomes.append("refused" if str(root / "groups") in str(problem) else f"{name}: {problem}")
        else:
            assert rows == {batch: wanted[batch] for batch in rest}, name
            outcomes.append("equal")
        shutil.rmtree(root)
    assert set(outcomes) == {"refused", "equal"}


def test_groups_of_an_attempt_whose_manifest_is_lost_are_made_again(tmp_path: Path) -> None:
    run_groups(tmp_path, range(3))
    kept = KeepingSink()
    sink = GroupsSink(kept, GROUPED, Locations(tmp_path, "test", tmp_path))
    sink.committed(manifest(1))
    sink.check(1, ["part-a.parquet"], True)
    sink.prepare(schema=GROUPED.row_schema, job="test", scratch=tmp_path)
    sink.committed(manifest(2))
    sink.publish(2, staged(sink, 2, "again"), None)  # type: ignore[arg-type]
    again = GroupsSink(kept, GROUPED, Locations(tmp_path, "test", tmp_path))
    again.committed(manifest(2))
    again.check(2, ["part-again.parquet"], True)
    with pytest.raises(StreamingStateError, match="has the groups of other results of the join than the manifest"):
        again.check(2, ["part-a.parquet"], True)
    with pytest.raises(StreamingStateError, match="belongs to a join without aggregates"):
        again.committed(manifest(2, None))


def test_with_a_restored_manifest_the_sink_gets_the_file_that_it_published(tmp_path: Path) -> None:
    kept = KeepingSink()
    sink = GroupsSink(kept, CHANGING, Locations(tmp_path, "test", tmp_path))
    sink.committed(manifest(0))
    sink.prepare(schema=CHANGING.row_schema, job="test", scratch=tmp_path)
    for attempt in ("a", "again", "a"):
        sink.publish(0, staged(sink, 0, attempt, CHANGING), None)  # type: ignore[arg-type]
    (first,), (other,), (restored,) = kept.files
    assert first == restored != other


# All files, with Spark


class DamagedJob:
    """A job of which a test damages the files: it has run, and `go_on` runs it to the end of further input."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.saved = spark, root, root.parent / "saved"
        self.rows = DrawnRows(root.parent / "in", 3, "RS")
        for _ in range(4):
            self.rows.add(12)

    def begin(self) -> None:
        self.go_on()
        self.rows.add(12)
        shutil.copytree(self.root, self.saved)

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.saved, self.root)

    def files(self) -> list[Path]:
        """Return the files of the state. The lock has no content, and no job reads its figures."""
        paths = (path for path in (self.root / "state").rglob("*") if path.is_file())
        return sorted(path for path in paths if path.name != "lock" and "metrics" not in path.parts)

    def go_on(self) -> list[Any]:
        raise NotImplementedError


class JoinJob(DamagedJob):
    """A left join with late rows, or one with aggregates."""

    query = eddy.Query(STREAMS[:1], branches=[eddy.Branch(STREAMS[1:], ["R.k = S.k"], "left")], select=COLUMNS)

    def go_on(self) -> list[Any]:
        frames = self.rows.inputs.frames(self.spark)
        joined = join(self.query, frames, checkpoint=self.root / "state", key_groups=2, partitions=1)
        running = finished(joined.writeStream.trigger(availableNow=True).toParquet(self.root / "out"))
        late = [] if self.query.aggregation else [sorted(map(tuple, running.late(name).collect())) for name in "RS"]
        return [sorted(results(self.root / "out")), late]


class GroupsJob(JoinJob):
    query = GROUPED


class HubJob(DamagedJob):
    """A hub with two queries."""

    def go_on(self) -> list[Any]:
        hub = hub_of(self.spark, self.rows.inputs, self.root / "state", keep=40, key_groups=2, partitions=1)
        for name, width in (("one", 10), ("other", 25)):
            hub.start(name, hub_query({"R": width, "S": width}), ParquetSink(self.root / name))
        finished(hub.run(availableNow=True))
        return [sorted(results(self.root / name)) for name in ("one", "other")]


@pytest.mark.campaign(1)
@pytest.mark.parametrize("kind", [JoinJob, GroupsJob, HubJob])
def test_a_damaged_file_is_restored_refused_or_without_effect(
    spark: SparkSession, tmp_path: Path, kind: type[DamagedJob]
) -> None:
    job = kind(spark, tmp_path / "job")
    job.root.mkdir()
    job.begin()
    wanted = job.go_on()
    assert wanted[0]
    job.restore()
    names = [name for name, _ in damages(job.files())]
    numbers = list(range(len(names)))
    if "EDDY_DAMAGE" not in os.environ:
        numbers = sorted(random.Random(SEED).sample(numbers, FEW))
    wrong = []
    for number in numbers:
        job.restore()
        list(damages(job.files()))[number][1]()
        try:
            outcome = job.go_on()
        except SparkJoinError as problem:
            outcome = wanted if str(job.root) in str(problem) else [str(problem)]
        if outcome != wanted:
            wrong.append((names[number], outcome))
    assert not wrong

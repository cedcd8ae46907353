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
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, StreamingStateError, join
from eddy.spark.groups.operators import operator_of
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import PartState
from eddy.spark.streaming.worker.operator_files import OperatorFile, OperatorFiles
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


def drawn_results(batch: int, schema: pa.Schema, query: eddy.Query) -> pa.Table:
    """Return the results of a batch."""
    chance, many = random.Random(batch), query is CHANGING
    rows = [
        {
            name: chance.randrange(batch * 10, batch * 10 + 9)
            if name.endswith(".t")
            else chance.randrange(300 if many else 3)
            for name in schema.names
        }
        for _ in range((12 if batch else 300) if many else 60)
    ]
    return pa.Table.from_pylist(rows, schema)


def run_groups(root: Path, query: eddy.Query, batches: Sequence[int], states: dict[int, PartState]) -> dict[int, Any]:
    """Let one part take the results of batches, each in a process of its own; return the rows by batch.

    states   the state after each batch, to which this adds those of the batches
    """
    rows, locations = {}, Locations(root, "test", root)
    locations.log.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        operator, state = operator_of(query), states.get(batch - 1, PartState())
        OperatorFiles(locations, "q").fill(3, state, operator)
        given = drawn_results(batch, operator.rows, query)
        rows[batch] = text_rows(operator.follow(given, batch * 10, batch).rows)
        file = OperatorFile(locations, batch, "q", batch * 10)
        states[batch] = file.add(3, state, operator, given)
        file.write()
    return rows


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
    files = sorted(path for path in (root / "log").iterdir() if "copy" not in path.name)
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
def test_groups_follow_from_the_files_that_the_manifest_names(tmp_path: Path, query: eddy.Query) -> None:
    pristine, states = tmp_path / "pristine", dict[int, PartState]()
    wanted = run_groups(pristine, query, range(BATCHES), states)
    assert len(states[BATCHES - 1].files) == (BATCHES if query is CHANGING else 1)
    rest = range(BATCHES, BATCHES + 2)
    wanted |= run_groups(shutil.copytree(pristine, tmp_path / "whole"), query, rest, dict(states))
    assert sum(map(len, wanted.values())) >= 6
    names = [name for name, _ in (*damages(sorted((pristine / "log").iterdir())), *pairs_of(pristine))]
    outcomes = []
    for number, name in enumerate(names):
        root = shutil.copytree(pristine, tmp_path / str(number))
        [*damages(sorted((root / "log").iterdir())), *pairs_of(root)][number][1]()
        try:
            rows = run_groups(root, query, rest, dict(states))
        except StreamingStateError as problem:
            outcomes.append("refused" if str(root / "log") in str(problem) else f"{name}: {problem}")
        else:
            assert rows == {batch: wanted[batch] for batch in rest}, name
            outcomes.append("equal")
        shutil.rmtree(root)
    assert set(outcomes) == {"refused", "equal"}


def test_a_file_of_another_query_is_refused(tmp_path: Path) -> None:
    states = dict[int, PartState]()
    run_groups(tmp_path, GROUPED, [0], states)
    files = OperatorFiles(Locations(tmp_path, "test", tmp_path), "other")
    with pytest.raises(StreamingStateError, match="it has groups of query 'q' after batch 0"):
        files.fill(3, states[0], operator_of(GROUPED))
    with pytest.raises(StreamingStateError, match=r"groups-.*, part 2: .*'2' is missing"):
        OperatorFiles(Locations(tmp_path, "test", tmp_path), "q").fill(2, states[0], operator_of(GROUPED))


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

"""A checkpoint in an object store: a start elsewhere has the whole state, and sweeps delete only what nobody needs."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from eddy.demo.object_server import ObjectServer, object_server
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state import working_directory as working
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import GroupState, Manifest, ManifestLink, OutputFile
from eddy.spark.streaming.state.object_store import ObjectStore
from eddy.spark.streaming.state.recovery import read_manifest, recover
from eddy.spark.streaming.state.remote import LARGE, SWEEP_EVERY, RemoteCheckpoint, read_bundle
from eddy.spark.streaming.state.retention import retain
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.output_files import write_late
from tests.spark.streaming.manifests import make_manifest

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def store(server: ObjectServer, request: pytest.FixtureRequest) -> ObjectStore:
    server.fault = lambda method, path: None
    return server.store(request.node.name.replace("[", "/").replace("]", ""))


class Host:
    """A host with a working directory of its own, whose driver may run the job."""

    def __init__(self, root: Path, store: ObjectStore) -> None:
        root.mkdir(parents=True)
        self.locations = Locations(root, "test", root.parent / "scratch", store)
        self.remote = RemoteCheckpoint(self.locations)

    def start(self) -> Checkpoint:
        """Prepare and begin a run."""
        self.remote.restore()
        checkpoint = Checkpoint(self.locations.root, self.remote)
        checkpoint.lock.acquire()
        return checkpoint

    def log(self, batch: int, chance: random.Random, groups: int = 2) -> list[tuple[Segment, pa.RecordBatch]]:
        """Write a file of the log as a task does; return its segments and their rows."""
        self.locations.begin(batch)
        written = []
        with self.locations.writer(f"{batch_name(batch)}-{chance.randrange(10**9)}") as writer:
            for group in range(groups):
                n = chance.randrange(1, 40)
                rows = pa.record_batch([range(n), [f"{batch} {i}" for i in range(n)]], schema=SCHEMA)
                written.append((writer.add(group, 0, rows, 0, 0), rows))
            if chance.random() < 0.5:
                writer.finish()
            else:
                writer.show()
                writer.sync()
        return written

    def plan(self, batch: int) -> None:
        """Write what Spark writes when it plans a batch, and the identity, which a start has written before."""
        identity = self.locations.root / "identity.json"
        if not identity.exists():
            identity.write_bytes(b"{}")
        for name, last in (("offsets", batch), ("commits", batch - 1)):
            folder = self.locations.root / "spark" / name
            folder.mkdir(parents=True, exist_ok=True)
            if last >= 0:
                (folder / str(last)).write_text('v1\n{"batch": 1}')


def manifest_of(batch: int, links: list[tuple[int, list[Segment]]], late: Sequence[OutputFile] = ()) -> Manifest:
    chain = tuple(ManifestLink(number, None, tuple(segments)) for number, segments in links)
    groups = {0: GroupState(batch, f"token {batch}", chain, None)}
    return make_manifest(batch, groups=groups, late=tuple(late), results=())


@pytest.mark.campaign(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_start_elsewhere_has_the_whole_state(
    tmp_path: Path, server: ObjectServer, store: ObjectStore, seed: int
) -> None:
    """A job commits, is swept and is lost at random; each host after that has what a model says, and reads all rows."""
    chance = random.Random(seed)
    server.fault = lambda method, path: chance.choice([None] * 60 + ["before", "after"])
    files: dict[str, bytes] = {}
    links: list[tuple[int, list[Segment]]] = []
    rows: dict[Segment, pa.RecordBatch] = {}
    strays: list[str] = []
    late: list[str] = []
    batch, published = 0, -1
    for host_number in range(4):
        host = Host(tmp_path / str(host_number), store)
        checkpoint = host.start()
        newest = recover(checkpoint)
        assert (-1 if newest is None else newest.batch) == batch - 1
        assert newest is None or [list(link.segments) for link in newest.groups[0].chain] == [
            segments for _, segments in links
        ]
        for name, data in files.items():
            assert (host.locations.root / name).read_bytes() == data
        with host.locations.reader([SCHEMA]) as reader:
            reader.expect(segment for _, segments in links for segment in segments)
            for segment in (segment for _, segments in links for segment in segments):
                assert reader.read(segment).equals(rows[segment])
        assert [path.name for path in checkpoint.late_files(0)] == sorted(late)
        if batch:
            assert read_manifest(replace(host.locations, root=tmp_path / "nowhere"), batch - 1) == newest
            assert checkpoint.is_published(batch - 1) == (published == batch - 1)
        for _ in range(chance.randrange(1, 12)):
            strays += [segment.file for segment, _ in host.log(batch, chance)] if chance.random() < 0.3 else []
            written = host.log(batch, chance)
            rows.update(written)
            links = links[chance.randrange(2) * len(links) // 2 :]  # compaction and pruning leave links out
            links.append((batch, [segment for segment, _ in written]))
            host.plan(batch)
            for name in ("identity.json", "files/a.new", "files/b.all"):
                if name not in files or chance.random() < 0.3:
                    files[name] = chance.randbytes(chance.choice([10, LARGE + 5]))
                    (host.locations.root / name).parent.mkdir(exist_ok=True)
                    (host.locations.root / name).write_bytes(files[name])
            files_late = [write_late(host.locations, batch, 0, [written[0][1]]) for _ in range(chance.randrange(3))]
            counted = files_late[: chance.randrange(len(files_late) + 1)]  # the others are of another attempt
            late += [output.file for output in counted]
            checkpoint.commit(manifest_of(batch, links, counted))
            batch += 1
            if chance.random() < 0.9:
                checkpoint.mark_published(batch - 1)
                published = batch - 1
            retain(checkpoint, 3)
        for name in strays:
            (host.locations.root / "log" / name).unlink(missing_ok=True)
        host.remote._swept = None
        retain(checkpoint, 3)
        there = {Path(name).name for name in store.names("log")}
        kept = host.remote.numbers()
        wanted = {
            file for number in kept for file in Manifest.from_bytes(read_bundle(store, number).manifest).log_files()
        }
        assert wanted <= there
        # Files of the newest batch may belong to a task that Spark has given up.
        assert all(int(name[:12]) == batch - 1 for name in there - wanted)
        assert kept == list(range(kept[0], batch))
        assert len(kept) <= 3 or not checkpoint.is_published(kept[0])
        if chance.random() < 0.5:
            host.remote.release()
        else:
            _vanish(host, store)


def _vanish(host: Host, store: ObjectStore) -> None:
    """Let a driver end as a killed one does, and the next one know it."""
    host.remote.lease._ends.set()
    store.delete(["lease"])


def test_tasks_of_other_hosts_find_what_a_task_writes(tmp_path: Path, store: ObjectStore) -> None:
    first, other = (Host(tmp_path / name, store).locations for name in ("one", "other"))
    writer = Host(tmp_path / "third", store)
    written = writer.log(4, random.Random(1), groups=3)
    with other.reader([SCHEMA]) as reader:
        reader.expect([segment for segment, _ in written])
        assert [reader.read(segment) for segment, _ in written] == [rows for _, rows in written]
    with other.reader([SCHEMA]) as reader:  # without being told before
        assert reader.read(written[2][0]).equals(written[2][1])
        with pytest.raises(StreamingStateError, match="the file is missing"):
            reader.read(replace(written[0][0], file="000000000004-other"))
        with pytest.raises(StreamingStateError, match="do not match their digest"):
            reader.read(replace(written[0][0], digest="00" * 8))
        with pytest.raises(StreamingStateError, match=r"000000000004-\d+, offset \d+"):
            reader.read(replace(written[0][0], length=10**7))
    first.begin(4)
    late = write_late(first, 4, 0, [written[0][1]])
    path = other.late / late.file
    other.fetch(path)
    assert path.read_bytes() == (first.late / late.file).read_bytes()
    other.fetch(other.late / "none")
    assert not (other.late / "none").exists()
    outside = tmp_path / "outside"
    outside.write_bytes(b"of a sink")
    first.keep(outside)  # is not below the root
    assert not any("outside" in name for name in store.names("late"))


def test_a_host_keeps_files_of_the_log_of_few_batches(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "host", store)
    for batch in range(6):
        host.log(batch, random.Random(batch))
    (host.locations.log / f"{batch_name(0)}-x.tmp").touch()
    host.locations.begin(6)
    kept = sorted(path.name[:12] for path in host.locations.log.iterdir() if path.suffix != ".tmp")
    assert kept == [batch_name(4), batch_name(5)]
    assert len(store.names("log")) == 6


def test_a_driver_that_was_believed_dead_commits_and_deletes_nothing(tmp_path: Path, store: ObjectStore) -> None:
    first, second = Host(tmp_path / "first", store), Host(tmp_path / "second", store)
    checkpoint = first.start()
    first.plan(0)
    for batch in range(2):
        logged = [segment for segment, _ in first.log(batch, random.Random(batch))]
        first.plan(batch)
        checkpoint.commit(manifest_of(batch, [(batch, logged)]))
        checkpoint.mark_published(batch)
    first.remote.lease._ends.set()
    second.remote.lease._term_s = 0.2
    again = second.start()
    segments = [segment for segment, _ in second.log(2, random.Random(7))]
    with pytest.raises(StreamingStateError, match=r"has lost its lease \(epoch 1\).* goes on from the newest"):
        checkpoint.commit(manifest_of(2, []))
    second.plan(2)
    again.commit(manifest_of(2, [(2, segments)]))
    before = store.names("log")
    first.remote._swept = None
    with pytest.raises(StreamingStateError, match="has lost its lease"):
        retain(checkpoint, 2)
    assert store.names("log") == before
    assert [read_bundle(store, batch).epoch for batch in range(3)] == [1, 1, 2]
    second.remote.release()


def test_a_working_directory_that_was_deleted_commits_nothing(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "host", store)
    checkpoint = host.start()
    host.plan(0)
    checkpoint.commit(manifest_of(0, []))
    host.plan(1)
    for name in ("spark", "identity.json"):
        path = host.locations.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(StreamingStateError, match="was deleted while the job ran; batch 1 is not committed"):
            checkpoint.commit(manifest_of(1, []))
        host.plan(1)
    checkpoint.commit(manifest_of(1, []))
    checkpoint.lock.release()


def test_runs_one_after_the_other_share_a_join_and_not_a_lease(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "host", store)
    first = host.start()
    first.lock.acquire()
    host.plan(0)
    first.commit(manifest_of(0, []))
    again = Checkpoint(host.locations.root, host.remote)
    with pytest.raises(StreamingStateError, match="is in use by this process"):
        again.lock.acquire()
    again.lock.release()
    host.plan(1)
    first.commit(manifest_of(1, []))
    (host.locations.root / "files").mkdir(exist_ok=True)
    (host.locations.root / "files" / "left").write_bytes(b"by a commit that failed")
    first.lock.release()
    again.lock.acquire()
    first.lock.release()  # as the handle of the first run does again
    assert not (host.locations.root / "files" / "left").exists()
    host.plan(2)
    again.commit(manifest_of(2, []))
    again.lock.release()


def test_a_start_that_fails_gives_the_lease_back(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, other = Host(tmp_path / "host", store), Host(tmp_path / "other", store)
    host.remote.restore()
    with monkeypatch.context() as patch:
        patch.setattr(host.remote, "numbers", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Checkpoint(host.locations.root, host.remote).lock.acquire()
    other.start().lock.release()


def test_what_a_first_start_has_fixed_stays(tmp_path: Path, store: ObjectStore) -> None:
    """A job that dies before its first commit begins again where it began: topics may have had rows since."""
    host, other = Host(tmp_path / "host", store), Host(tmp_path / "other", store)
    checkpoint = host.start()
    host.plan(0)
    (host.locations.root / "files").mkdir()
    (host.locations.root / "files" / "starts").write_bytes(b"offsets")
    (host.locations.root / "files" / "x.tmp").write_bytes(b"half of a list")
    host.remote.begin()
    checkpoint.lock.release()
    again = other.start()
    assert (other.locations.root / "files" / "starts").read_bytes() == b"offsets"
    assert (other.locations.root / "identity.json").exists()
    assert not (other.locations.root / "files" / "x.tmp").exists()
    assert not (other.locations.root / "spark").exists()
    (other.locations.root / "files" / "starts").write_bytes(b"other offsets")
    other.remote.begin()
    again.lock.release()
    third = Host(tmp_path / "third", store)
    third.remote.restore()
    assert (third.locations.root / "files" / "starts").read_bytes() == b"offsets"


def test_a_commit_that_another_driver_has_made_is_not_made_again(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "one", store)
    checkpoint = host.start()
    host.plan(0)
    checkpoint.commit(manifest_of(0, []))
    host.plan(1)
    store.put(f"manifests/{batch_name(1)}", b"of another driver, between the renewal and the commit")
    with pytest.raises(StreamingStateError, match=r"batch 1 is committed in .* by another driver"):
        checkpoint.commit(manifest_of(1, []))
    host.remote.release()


def test_a_start_after_another_run_goes_on_from_there(tmp_path: Path, store: ObjectStore) -> None:
    """The join was prepared before: its working directory is made anew when it starts."""
    first, other = Host(tmp_path / "one", store), Host(tmp_path / "other", store)
    other.remote.restore()
    checkpoint = first.start()
    first.plan(0)
    checkpoint.commit(manifest_of(0, []))
    first.remote.release()
    late = Checkpoint(other.locations.root, other.remote)
    late.lock.acquire()
    assert late.newest_number() == 0
    assert late.spark_planned() == 0
    other.plan(1)
    late.commit(manifest_of(1, []))
    other.remote.release()


def test_damage_is_refused_by_name(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "host", store)
    checkpoint = host.start()
    host.plan(0)
    (host.locations.root / "files").mkdir()
    (host.locations.root / "files" / "large").write_bytes(bytes(LARGE))
    for batch in range(3):
        host.plan(batch)
        checkpoint.commit(manifest_of(batch, []))
    host.remote.release()
    whole = {name: store.read(name) for name in [*store.names("manifests"), *store.names("kept")]}
    bundle = f"manifests/{batch_name(2)}"
    data = whole[bundle][0]  # type: ignore[index]
    older = read_bundle(store, 1)
    older.epoch, older.batch = 9, 1

    def starts(number: int = iter(range(99)).__next__()) -> None:
        place = tmp_path / f"again{number}{time.monotonic_ns()}"
        Host(place, store).remote.restore()

    starts()
    for broken, text in ((data[:-1], "is cut off"), (bytes(len(data)), "not a bundle"), (b"", "is empty")):
        store.put(bundle, broken)
        with pytest.raises(StreamingStateError, match=rf"{bundle}: .*{text}.*; restore the object"):
            starts()
    store.put(bundle, whole[f"manifests/{batch_name(1)}"][0])  # type: ignore[index]
    with pytest.raises(StreamingStateError, match="it is the bundle of batch 1"):
        starts()
    store.put(bundle, data)
    store.put(f"manifests/{batch_name(1)}", older.to_bytes())
    with pytest.raises(StreamingStateError, match="the epoch went backwards: batch 1 was written with epoch 9"):
        starts()
    store.put(f"manifests/{batch_name(1)}", whole[f"manifests/{batch_name(1)}"][0])  # type: ignore[index]
    store.delete(store.names("kept"))
    with pytest.raises(StreamingStateError, match=r"/kept/[0-9a-f]+: the object is missing"):
        starts()


def test_a_state_of_spark_is_refused_before_the_first_commit(tmp_path: Path, store: ObjectStore) -> None:
    host = Host(tmp_path / "host", store)
    checkpoint = host.start()
    host.plan(0)
    (host.locations.root / "spark" / "state" / "0" / "0").mkdir(parents=True)
    (host.locations.root / "spark" / "state" / "0" / "0" / "1.delta").touch()
    with pytest.raises(StreamingStateError, match="keeps a state in Spark, as dropDuplicates"):
        checkpoint.commit(manifest_of(0, []))
    assert store.names("manifests") == []
    host.remote.release()


def test_a_micro_batch_takes_few_requests(tmp_path: Path, server: ObjectServer, store: ObjectStore) -> None:
    host, chance = Host(tmp_path / "host", store), random.Random(1)
    checkpoint, counts = host.start(), []
    for batch in range(3 * SWEEP_EVERY):
        before = len(server.requests)
        for _ in range(2):  # tasks
            links = [(batch, [segment for segment, _ in host.log(batch, chance)])]
        host.plan(batch)
        checkpoint.commit(manifest_of(batch, links))
        checkpoint.mark_published(batch)
        retain(checkpoint, 10)
        counts.append(len(server.requests) - before)
    assert max(counts[1:SWEEP_EVERY]) == 2 + 3
    assert sum(counts[SWEEP_EVERY:]) <= (2 + 4) * 2 * SWEEP_EVERY
    host.remote.release()


def test_working_directories_of_ended_processes_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = working.working_directory(tmp_path / "scratch", "state")
    ended, recent = tmp_path / "scratch" / "state-ended", tmp_path / "scratch" / "other-ended"
    for path in (ended, recent):
        shutil.copytree(mine, path)
    monkeypatch.setattr(working.time, "time", lambda: 1e10)
    again = working.working_directory(tmp_path / "scratch", "state")
    assert again != mine
    assert mine.exists()
    assert not ended.exists()
    assert recent.exists()
    assert working.is_working(mine / "log" / "x")
    assert not working.is_working(tmp_path / "log" / "x")

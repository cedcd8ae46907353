"""A stop at any moment leaves the old state or the new one, and nothing that is needed is ever deleted."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.checkpoint import Checkpoint, batch_name, batch_of, recover
from eddy.spark.streaming.manifest import GroupState, Link, Manifest, OutputFile
from tests.spark.streaming.manifests import make_manifest, make_segment

STEPS = ("open", "write", "fsync", "close", "replace")


class Steps:
    """Calls of `os` that change files, of which one does not go well.

    stop    what happens instead of, or after, call number `at`; a write is half done when it stops before its end
    after   the call is made, and then it stops
    calls   the names of the calls so far
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None, stop: Callable[[], None], after: bool) -> None:
        self.calls: list[str] = []
        for name in STEPS:
            patch.setattr(os, name, self._counted(name, getattr(os, name), at, stop, after))

    def _counted(
        self, name: str, real: Callable[..., Any], at: int | None, stop: Callable[[], None], after: bool
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) - 1 != at:
                return real(*arguments, **options)
            if name == "write" and not after:
                descriptor, data = arguments
                real(descriptor, data[: len(data) // 2])
            if after:
                real(*arguments, **options)
            stop()
            raise AssertionError("it went on")

        return call


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; return its id."""
    with warnings.catch_warnings():
        # What runs there takes no lock that another thread could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    """Wait for a process; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def number_of_steps(root: Path, before: int, manifest: Manifest) -> int:
    filled(root, before)
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, None, killed, False)
        Checkpoint(root).commit(manifest)
    return len(steps.calls)


def filled(root: Path, batches: int) -> Checkpoint:
    """Give a checkpoint with so many batches, from 0 on."""
    checkpoint = Checkpoint(root)
    for batch in range(batches):
        checkpoint.commit(make_manifest(batch))
    return checkpoint


def spark_log(checkpoint: Checkpoint, planned: int | None, committed: int | None) -> None:
    for name, newest in (("offsets", planned), ("commits", committed)):
        (checkpoint.spark / name).mkdir(parents=True, exist_ok=True)
        for batch in range(-1 if newest is None else newest + 1):
            (checkpoint.spark / name / str(batch)).touch()
            (checkpoint.spark / name / f".{batch}.crc").touch()


def manifest_files(checkpoint: Checkpoint, batch: int) -> tuple[Path, Path]:
    name = f"{batch_name(batch)}.manifest"
    return checkpoint.manifests / name, checkpoint.copies / name


# --- commit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 41])
def test_batches_one_after_the_other(tmp_path: Path, first: int) -> None:
    checkpoint = Checkpoint(tmp_path / "deep" / "root")
    assert checkpoint.newest() is None
    assert checkpoint.newest_number() is None
    for batch in range(first, first + 3):
        manifest = make_manifest(batch)
        checkpoint.commit(manifest)
        checkpoint.commit(manifest)
        for seen in (checkpoint, Checkpoint(checkpoint.root, create=False)):
            assert seen.newest() == manifest
            assert seen.newest_number() == batch
            assert seen.recoveries == []
    for wrong in (first, first + 1, first + 4):
        with pytest.raises(StreamingStateError, match=f"newest is batch {first + 2}, the next is {first + 3}"):
            checkpoint.commit(make_manifest(wrong))
    with pytest.raises(StreamingStateError, match=f"batch {first + 2} is committed with other content"):
        checkpoint.commit(make_manifest(first + 2, extra={"other": 1}))
    with pytest.raises(StreamingStateError, match="numbered from 0"):
        checkpoint.commit(make_manifest(-1))
    assert Checkpoint(checkpoint.root).newest() == make_manifest(first + 2)


def test_what_another_object_commits_is_seen(tmp_path: Path) -> None:
    one, other = filled(tmp_path, 1), Checkpoint(tmp_path)
    assert other.newest() == make_manifest(0)
    one.commit(make_manifest(1))
    with pytest.raises(StreamingStateError, match="other content"):
        other.commit(make_manifest(1, extra={"other": 1}))
    other.commit(make_manifest(2))
    one.commit(make_manifest(3))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_killed_at_any_step_of_a_commit(tmp_path: Path, before: int, after: bool) -> None:
    new = make_manifest(before)
    old = make_manifest(before - 1) if before else None
    count = number_of_steps(tmp_path / "counted", before, new)
    seen = []
    for at in range(count):
        root = tmp_path / str(at)
        filled(root, before)

        def work(root: Path = root, at: int = at) -> None:
            Steps(pytest.MonkeyPatch(), at, killed, after)
            Checkpoint(root).commit(new)

        assert ended(forked(work)) == -signal.SIGKILL
        checkpoint = Checkpoint(root)
        found = checkpoint.newest()
        assert found in (old, new)
        assert checkpoint.damaged == {}
        seen.append(found == new)
        if found == new:
            # One look has put back what was missing.
            primary, copy = manifest_files(checkpoint, before)
            assert primary.read_bytes() == copy.read_bytes() == new.to_bytes()
        else:
            checkpoint.commit(make_manifest(before, extra={"replayed": True}))
        Checkpoint(root).commit(make_manifest(before + 1))
        checkpoint.retain()
        assert not list(checkpoint.manifests.rglob("*.tmp"))
    # Once it is the new one it stays so.
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


@pytest.mark.parametrize("after", [False, True])
def test_an_error_at_any_step_of_a_commit(tmp_path: Path, after: bool) -> None:
    def stop() -> None:
        raise OSError(28, "No space left on device")

    old, new = make_manifest(1), make_manifest(2)
    for at in range(number_of_steps(tmp_path / "counted", 2, new)):
        checkpoint = filled(tmp_path / str(at), 2)
        with pytest.MonkeyPatch.context() as patch:
            Steps(patch, at, stop, after)
            with pytest.raises(OSError, match="No space"):
                checkpoint.commit(new)
        assert Checkpoint(checkpoint.root).newest() in (old, new)
        checkpoint.commit(new)
        assert Checkpoint(checkpoint.root).newest() == new
        assert after or not list(checkpoint.manifests.rglob("*.tmp"))


def test_a_commit_survives_a_power_cut(tmp_path: Path) -> None:
    """Bytes are synced before the rename, and the directory after it, for the copy first."""
    checkpoint = filled(tmp_path, 1)
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, None, killed, False)
        checkpoint.commit(make_manifest(1))
    once = ["open", "write", "fsync", "close", "replace", "open", "fsync", "close"]
    assert steps.calls == once * 2


# --- damage ----------------------------------------------------------------------------------------------------------


def spoiled(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


@pytest.mark.parametrize("damage", [spoiled, lambda data: b"", lambda data: data[:-1], None])
@pytest.mark.parametrize("which", [0, 1])
def test_one_damaged_copy_is_put_back(tmp_path: Path, which: int, damage: Callable[[bytes], bytes] | None) -> None:
    checkpoint = filled(tmp_path, 3)
    path = manifest_files(checkpoint, 2)[which]
    whole = path.read_bytes()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(whole))
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(2)
    assert path.read_bytes() == whole
    (said,) = again.recoveries
    assert said.startswith(str(path))
    assert Checkpoint(tmp_path).recoveries == []


def test_two_damaged_copies_fall_back(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 3)
    for path in manifest_files(checkpoint, 2):
        path.write_bytes(spoiled(path.read_bytes()))
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(1)
    assert again.newest_number() == 2
    (said,) = again.recoveries
    assert all(str(path) in said for path in manifest_files(checkpoint, 2))
    assert again.newest() == make_manifest(1)
    assert len(again.recoveries) == 1
    # Spark gives the batch again; its manifest takes the place of the damaged one.
    again.commit(make_manifest(2, extra={"again": 1}))
    assert Checkpoint(tmp_path).newest() == make_manifest(2, extra={"again": 1})
    assert again.damaged == {}


def test_a_manifest_under_a_wrong_name_is_damage(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 2)
    for path in manifest_files(checkpoint, 2):
        path.write_bytes(make_manifest(0).to_bytes())
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(1)
    assert "it is the manifest of batch 0, not of 2" in again.recoveries[0]


def test_two_whole_manifests_that_differ_are_refused(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 2)
    manifest_files(checkpoint, 1)[1].write_bytes(make_manifest(1, extra={"other": 1}).to_bytes())
    with pytest.raises(StreamingStateError, match="not the same: one of them is of another checkpoint"):
        Checkpoint(tmp_path).newest()


def test_a_directory_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StreamingStateError, match=f"{tmp_path} is no checkpoint"):
        Checkpoint(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []


# --- recovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifests", "planned", "committed"),
    [(0, None, None), (0, 0, None), (1, 0, None), (3, 2, 2), (3, 2, 1), (3, 3, 2)],
)
def test_recovery_after_a_stop_at_any_time(
    tmp_path: Path, manifests: int, planned: int | None, committed: int | None
) -> None:
    checkpoint = filled(tmp_path, manifests)
    spark_log(checkpoint, planned, committed)
    assert (checkpoint.spark_planned(), checkpoint.spark_committed()) == (planned, committed)
    assert recover(checkpoint) == (make_manifest(manifests - 1) if manifests else None)


@pytest.mark.parametrize("number", [1, 3])
def test_a_lost_batch_that_spark_gives_again(tmp_path: Path, number: int) -> None:
    checkpoint = filled(tmp_path, number)
    spark_log(checkpoint, number - 1, number - 2 if number > 1 else None)
    for path in manifest_files(checkpoint, number - 1):
        path.write_bytes(b"")
    found = recover(Checkpoint(tmp_path))
    assert found == (make_manifest(number - 2) if number > 1 else None)


def test_a_lost_batch_that_spark_does_not_give_again(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 4)
    spark_log(checkpoint, 3, 3)
    for batch in (2, 3):
        for path in manifest_files(checkpoint, batch):
            path.write_bytes(spoiled(path.read_bytes()))
    with pytest.raises(StreamingStateError) as refused:
        recover(Checkpoint(tmp_path))
    message = str(refused.value)
    for batch in (2, 3):
        assert all(str(path) in message for path in manifest_files(checkpoint, batch))
    for part in ("state after batch 3", "newest whole one is of batch 1", "batches 2 to 3", "from a backup"):
        assert part in message


def test_manifests_that_are_gone(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    spark_log(checkpoint, 5, 5)
    with pytest.raises(StreamingStateError, match=r"000000000005.manifest: it is missing.*there is none"):
        recover(checkpoint)


@pytest.mark.parametrize("planned", [None, 1])
def test_another_checkpoint_of_spark(tmp_path: Path, planned: int | None) -> None:
    checkpoint = filled(tmp_path, 3)
    spark_log(checkpoint, planned, planned)
    with pytest.raises(StreamingStateError, match=r"has batch 2, but Spark's checkpoint .* knows of"):
        recover(checkpoint)


# --- published -------------------------------------------------------------------------------------------------------


def test_published_batches(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert not checkpoint.is_published(0)
    for batch in range(5):
        checkpoint.commit(make_manifest(batch))
        assert not checkpoint.is_published(batch)
        checkpoint.mark_published(batch)
        checkpoint.mark_published(batch)
        assert Checkpoint(tmp_path).is_published(batch)
    assert not checkpoint.is_published(5)
    checkpoint.retain(2)
    assert sorted(path.name for path in checkpoint.published.iterdir()) == [batch_name(3), batch_name(4)]
    assert all(checkpoint.is_published(batch) for batch in range(5))


# --- retention -------------------------------------------------------------------------------------------------------


class History:
    """A job that writes, compacts, publishes, fails and cleans up at random, and what must be there of it."""

    def __init__(self, data: st.DataObject, root: Path, keep_late: bool) -> None:
        self.data = data
        self.root = root
        self.keep_late = keep_late
        self.checkpoint = Checkpoint(root / "root")
        self.staging = root / "sink" / "staging"
        self.staging.mkdir(parents=True)
        self.manifests: list[Manifest] = []
        self.chains: dict[int, tuple[Link, ...]] = {}
        self.published: set[int] = set()
        self.orphans: list[Path] = []
        self.files = 0
        self.oldest = 0

    def file(self, directory: Path, batch: int) -> str:
        self.files += 1
        name = f"{batch_name(batch)}-{self.files}"
        (directory / name).touch()
        return name

    def orphan(self, batch: int) -> None:
        """A task that failed, or that Spark has given up, has left something behind."""
        directory = self.data.draw(st.sampled_from((self.checkpoint.log, self.checkpoint.late, self.staging)))
        self.orphans.append(directory / self.file(directory, batch))

    def batch(self) -> None:
        draw, checkpoint = self.data.draw, self.checkpoint
        batch = len(self.manifests)
        for group in draw(st.sets(st.integers(0, 2))):
            chain = self.chains.get(group, ())
            if draw(st.integers(0, 3)) == 0:
                chain = ()
            names = [self.file(checkpoint.log, batch) for _ in range(draw(st.integers(1, 2)))]
            link = Link(batch, None, tuple(make_segment(name, group) for name in names))
            cut = draw(st.integers(0, len(chain)))
            self.chains[group] = (*chain[cut:], link)
        if draw(st.booleans()):
            self.orphan(batch)
        staged = [self.file(self.staging, batch) for _ in range(draw(st.integers(0, 2)))]
        results = [OutputFile(f"staging/{name}", 1, 1) for name in staged]
        late = [OutputFile(self.file(checkpoint.late, batch), 1, 1, 0) for _ in range(draw(st.integers(0, 1)))]
        groups = {group: GroupState(batch, "", chain, None) for group, chain in self.chains.items()}
        manifest = Manifest(batch, {}, (0, 0, 0), groups, tuple(results), tuple(late), {})
        checkpoint.commit(manifest)
        self.manifests.append(manifest)
        if draw(st.integers(0, 4)):
            for earlier in range(batch + 1):
                if earlier not in self.published:
                    checkpoint.mark_published(earlier)
                    self.published.add(earlier)

    def retain(self, keep: int) -> None:
        checkpoint, newest = self.checkpoint, len(self.manifests) - 1
        in_use = self.file(checkpoint.log, self.data.draw(st.integers(0, newest + 1)))
        before = self.all_files()
        deleted = checkpoint.retain(keep, staging=self.staging, in_use=[in_use], keep_late=self.keep_late)
        gone = before - self.all_files()
        assert len(deleted) == len(gone)
        event("deleted something" if gone else "deleted nothing")
        oldest = max(0, newest - keep + 1)
        oldest = min([oldest, *(batch for batch in range(newest) if batch not in self.published)])
        oldest = self.oldest = max(oldest, self.oldest)
        for manifest in self.manifests[oldest:]:
            assert all(path.exists() for path in manifest_files(checkpoint, manifest.batch))
            assert all((checkpoint.log / name).exists() for name in manifest.log_files())
            assert all((checkpoint.late / one.file).exists() for one in manifest.late)
            assert all((self.root / "sink" / one.file).exists() for one in manifest.results)
        for manifest in self.manifests[:oldest]:
            assert not any(path.exists() for path in manifest_files(checkpoint, manifest.batch))
            if self.keep_late:
                assert all((checkpoint.late / one.file).exists() for one in manifest.late)
        assert (checkpoint.log / in_use).exists()
        (checkpoint.log / in_use).unlink()
        for path in self.orphans:
            if (batch_of(path.name) or 0) >= newest:
                assert path.exists()
            elif path.parent != checkpoint.late or not self.keep_late:
                assert not path.exists()
        if not self.keep_late:
            named = {name for manifest in self.manifests[oldest:] for name in manifest.log_files()}
            old = {name for name in os.listdir(checkpoint.log) if (batch_of(name) or 0) < newest}
            assert old <= named
        assert Checkpoint(checkpoint.root).newest() == self.manifests[-1]
        assert all(checkpoint.is_published(batch) == (batch in self.published) for batch in range(newest + 2))
        assert checkpoint.retain(keep, staging=self.staging, keep_late=self.keep_late) == []

    def all_files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_file()}


@settings(max_examples=30)
@given(st.data(), st.booleans())
def test_retention_deletes_nothing_that_is_needed(data: st.DataObject, keep_late: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        history = History(data, Path(place), keep_late)
        assert history.checkpoint.retain() == []
        for what in data.draw(st.lists(st.sampled_from("bbbbror"), min_size=1, max_size=14)):
            if what == "o" and history.manifests:
                history.orphan(data.draw(st.integers(0, len(history.manifests))))
            elif what == "r" and history.manifests:
                history.retain(data.draw(st.integers(1, 4)))
            else:
                history.batch()
            if data.draw(st.integers(0, 4)) == 0:
                history.checkpoint = Checkpoint(history.checkpoint.root)
        history.retain(1)


def test_an_error_at_any_step_of_retention(tmp_path: Path) -> None:
    """What is still there of a manifest names files that are still there, and the next time the rest goes."""
    steps = 5 * 2 + 5 + 5  # manifests and copies, marks, log files of five batches
    for at in range(steps + 1):
        checkpoint = Checkpoint(tmp_path / str(at))
        for batch in range(7):
            (checkpoint.log / f"{batch_name(batch)}-0.log").touch()
            checkpoint.commit(make_manifest(batch))
            checkpoint.mark_published(batch)
        unlink, calls = os.unlink, 0

        def failing(*arguments: Any, unlink: Callable[..., None] = unlink, at: int = at, **options: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise OSError(5, "Input/output error")
            unlink(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "unlink", failing)
            if at == steps:
                assert len(checkpoint.retain(2)) == steps
            else:
                with pytest.raises(OSError, match="Input/output"):
                    checkpoint.retain(2)
        left = {name for place in (checkpoint.manifests, checkpoint.copies) for name in os.listdir(place)}
        for batch in {batch for batch in map(batch_of, left) if batch is not None}:
            assert (checkpoint.log / f"{batch_name(batch)}-0.log").exists()
        again = Checkpoint(checkpoint.root)
        assert again.newest() == make_manifest(6)
        assert all(again.is_published(batch) for batch in range(7))
        again.retain(2)
        assert sorted(os.listdir(again.log)) == [f"{batch_name(batch)}-0.log" for batch in (5, 6)]


def test_a_stop_within_retention_makes_no_late_rows(tmp_path: Path) -> None:
    """What a failed task left behind must not outlive the manifest that does not name it: then it would count."""
    for at in range(12):
        checkpoint = Checkpoint(tmp_path / str(at))
        named = [f"{batch_name(batch)}-0-named" for batch in range(5)]
        for batch in range(5):
            checkpoint.commit(make_manifest(batch, late=(OutputFile(named[batch], 1, 1, 0),)))
            checkpoint.mark_published(batch)
            for name in (named[batch], f"{batch_name(batch)}-0-left-behind"):
                (checkpoint.late / name).touch()
        unlink, calls = os.unlink, 0

        def stopping(*arguments: Any, unlink: Callable[..., None] = unlink, at: int = at, **options: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise OSError(5, "Input/output error")
            unlink(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "unlink", stopping)
            with pytest.raises(OSError, match="Input/output"):
                checkpoint.retain(2, keep_late=True)
        again = Checkpoint(checkpoint.root)
        assert [path.name for path in again.late_files(0)] == named
        again.retain(2, keep_late=True)
        assert [path.name for path in Checkpoint(checkpoint.root).late_files(0)] == named


def test_nothing_goes_while_a_manifest_is_damaged(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 5)
    for batch in range(5):
        checkpoint.mark_published(batch)
        (checkpoint.log / f"{batch_name(batch)}-0.log").touch()
    for path in manifest_files(checkpoint, 3):
        path.write_bytes(b"")
    again = Checkpoint(tmp_path)
    assert again.retain(2) == []
    assert again.retain(1) == [
        *(f"manifests/{place}{batch_name(batch)}.manifest" for place in ("", "copies/") for batch in range(4)),
        *(f"published/{batch_name(batch)}" for batch in range(4)),
        *(f"log/{batch_name(batch)}-0.log" for batch in range(4)),
    ]


def test_names_without_a_batch_stay(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 3)
    strange = [checkpoint.log / "notes.txt", checkpoint.late / "1", checkpoint.published / "x", tmp_path / "metrics"]
    for path in strange:
        path.touch()
    for batch in range(3):
        checkpoint.mark_published(batch)
    assert len(checkpoint.retain(1)) == 6
    assert all(path.exists() for path in strange)
    with pytest.raises(StreamingStateError, match="keep=0"):
        checkpoint.retain(0)


# --- one driver at a time --------------------------------------------------------------------------------------------


def test_two_drivers(tmp_path: Path) -> None:
    checkpoint, other = Checkpoint(tmp_path), Checkpoint(tmp_path)
    checkpoint.lock()
    checkpoint.lock()
    with pytest.raises(StreamingStateError, match=f"in use by process {os.getpid()} on {os.uname().nodename}"):
        other.lock()
    checkpoint.unlock()
    other.lock()
    other.unlock()
    other.unlock()


def test_the_lock_of_a_killed_driver_is_free(tmp_path: Path) -> None:
    ready, tell = os.pipe()

    def work() -> None:
        Checkpoint(tmp_path).lock()
        os.write(tell, b"!")
        signal.pause()

    checkpoint = Checkpoint(tmp_path)
    pid = forked(work)
    try:
        assert os.read(ready, 1) == b"!"
        with pytest.raises(StreamingStateError, match=f"in use by process {pid} on"):
            checkpoint.lock()
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    os.close(ready)
    os.close(tell)
    checkpoint.lock()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    checkpoint.unlock()


def test_a_holder_that_has_not_written_its_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.lock()
    (tmp_path / "lock").write_text("")
    with pytest.raises(StreamingStateError, match="another process, which has not written its name"):
        Checkpoint(tmp_path).lock()
    checkpoint.unlock()

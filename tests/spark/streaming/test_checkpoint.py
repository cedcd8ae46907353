"""A stop at any moment leaves the old state or the new one, and one driver at a time holds the checkpoint."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.retention import retain
from tests.spark.streaming.checkpoints import filled, manifest_files
from tests.spark.streaming.manifests import make_manifest

STEPS = ("open", "write", "fsync", "close", "replace")


class Steps:
    """Counts calls of `os` that change files, and lets one of them fail.

    stop    runs instead of, or after, call number `at`; a write that it replaces is half done
    after   whether the call runs before `stop`
    calls   names of the calls so far
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
        # The child takes no lock that another thread could hold.
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
        for seen in (checkpoint, Checkpoint(checkpoint.root)):
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
    first, other = filled(tmp_path, 1), Checkpoint(tmp_path)
    assert other.newest() == make_manifest(0)
    first.commit(make_manifest(1))
    with pytest.raises(StreamingStateError, match="other content"):
        other.commit(make_manifest(1, extra={"other": 1}))
    other.commit(make_manifest(2))
    first.commit(make_manifest(3))


@pytest.mark.campaign(1)
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
        newest = checkpoint.newest()
        assert newest in (old, new)
        assert checkpoint.damaged == {}
        seen.append(newest == new)
        if newest == new:
            # The read has restored the missing file.
            primary, copy = manifest_files(checkpoint, before)
            assert primary.read_bytes() == copy.read_bytes() == new.to_bytes()
        else:
            checkpoint.commit(make_manifest(before, extra={"replayed": True}))
        Checkpoint(root).commit(make_manifest(before + 1))
        retain(checkpoint)
        assert not list(checkpoint.manifests.rglob("*.tmp"))
    # After the first new state, all later stops leave the new state.
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
    """Bytes are synced before the rename and the directory after it; the copy is written first."""
    checkpoint = filled(tmp_path, 1)
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, None, killed, False)
        checkpoint.commit(make_manifest(1))
    once = ["open", "write", "fsync", "close", "replace", "open", "fsync", "close"]
    assert steps.calls == once * 2


def test_a_place_that_cannot_hold_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StreamingStateError, match=r"file cannot hold the state of a streaming join: .* may write"):
        Checkpoint(tmp_path / "file")


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
    retain(checkpoint, 2)
    assert sorted(path.name for path in checkpoint.published.iterdir()) == [batch_name(3), batch_name(4)]
    assert all(checkpoint.is_published(batch) for batch in range(5))


# --- one driver at a time --------------------------------------------------------------------------------------------


def test_two_drivers(tmp_path: Path) -> None:
    checkpoint, other = Checkpoint(tmp_path), Checkpoint(tmp_path)
    checkpoint.lock.acquire()
    checkpoint.lock.acquire()
    with pytest.raises(StreamingStateError, match=f"in use by process {os.getpid()} on {os.uname().nodename}"):
        other.lock.acquire()
    checkpoint.lock.release()
    other.lock.acquire()
    other.lock.release()
    other.lock.release()


def test_the_lock_of_a_killed_driver_is_free(tmp_path: Path) -> None:
    ready, tell = os.pipe()

    def work() -> None:
        Checkpoint(tmp_path).lock.acquire()
        os.write(tell, b"!")
        signal.pause()

    checkpoint = Checkpoint(tmp_path)
    pid = forked(work)
    try:
        assert os.read(ready, 1) == b"!"
        with pytest.raises(StreamingStateError, match=f"in use by process {pid} on"):
            checkpoint.lock.acquire()
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    os.close(ready)
    os.close(tell)
    checkpoint.lock.acquire()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    checkpoint.lock.release()


def test_a_holder_that_has_not_written_its_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.lock.acquire()
    (tmp_path / "lock").write_text("")
    with pytest.raises(StreamingStateError, match="another process, which has not written its name"):
        Checkpoint(tmp_path).lock.acquire()
    checkpoint.lock.release()

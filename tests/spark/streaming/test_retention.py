"""Retention never deletes a file that is needed, and deletes all others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_of
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import GroupState, Manifest, ManifestLink, OutputFile
from eddy.spark.streaming.state.retention import retain
from tests.spark.streaming.checkpoints import filled, manifest_files
from tests.spark.streaming.manifests import make_manifest, make_segment


@contextmanager
def unlink_fails_after(calls: int) -> Iterator[None]:
    """Let all calls of `os.unlink` after the first ones fail."""
    unlink, left = os.unlink, calls

    def failing(*arguments: Any, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        unlink(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", failing)
        yield


class RetentionHistory:
    """A job that writes, compacts, publishes, fails and cleans up at random, and the files that must exist."""

    def __init__(self, data: st.DataObject, root: Path) -> None:
        self.data = data
        self.root = root
        self.checkpoint = Checkpoint(root / "root")
        self.manifests: list[Manifest] = []
        self.chains: dict[int, tuple[ManifestLink, ...]] = {}
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
        """Leave a file of a task that failed, or that Spark has given up."""
        directory = self.data.draw(st.sampled_from((self.checkpoint.log, self.checkpoint.late)))
        self.orphans.append(directory / self.file(directory, batch))

    def batch(self) -> None:
        draw, checkpoint = self.data.draw, self.checkpoint
        batch = len(self.manifests)
        for group in draw(st.sets(st.integers(0, 2))):
            chain = self.chains.get(group, ())
            if draw(st.integers(0, 3)) == 0:
                chain = ()
            names = [self.file(checkpoint.log, batch) for _ in range(draw(st.integers(1, 2)))]
            link = ManifestLink(batch, None, tuple(make_segment(name, group) for name in names))
            cut = draw(st.integers(0, len(chain)))
            self.chains[group] = (*chain[cut:], link)
        if draw(st.booleans()):
            self.orphan(batch)
        late = [OutputFile(self.file(checkpoint.late, batch), 1, 1, 0) for _ in range(draw(st.integers(0, 1)))]
        groups = {group: GroupState(batch, "", chain, None) for group, chain in self.chains.items()}
        manifest = Manifest(batch, {}, (0, 0, 0), groups, (), tuple(late), {})
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
        deleted = retain(checkpoint, keep, in_use=[in_use])
        gone = before - self.all_files()
        assert len(deleted) == len(gone)
        event("deleted something" if gone else "deleted nothing")
        oldest = max(0, newest - keep + 1)
        oldest = min([oldest, *(batch for batch in range(newest) if batch not in self.published)])
        oldest = self.oldest = max(oldest, self.oldest)
        for manifest in self.manifests[oldest:]:
            assert all(path.exists() for path in manifest_files(checkpoint, manifest.batch))
            assert all((checkpoint.log / name).exists() for name in manifest.log_files())
        for manifest in self.manifests[:oldest]:
            assert not any(path.exists() for path in manifest_files(checkpoint, manifest.batch))
        for manifest in self.manifests:
            assert all((checkpoint.late / late_file.file).exists() for late_file in manifest.late)
        assert (checkpoint.log / in_use).exists()
        (checkpoint.log / in_use).unlink()
        for path in self.orphans:
            if (batch_of(path.name) or 0) >= newest:
                assert path.exists()
            elif path.parent == checkpoint.log:
                assert not path.exists()
        named = {name for manifest in self.manifests[oldest:] for name in manifest.log_files()}
        old = {name for name in os.listdir(checkpoint.log) if (batch_of(name) or 0) < newest}
        assert old <= named
        assert Checkpoint(checkpoint.root).newest() == self.manifests[-1]
        assert all(checkpoint.is_published(batch) == (batch in self.published) for batch in range(newest + 2))
        assert retain(checkpoint, keep) == []

    def all_files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_file()}


@settings(max_examples=30)
@given(st.data())
def test_retention_deletes_nothing_that_is_needed(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        history = RetentionHistory(data, Path(place))
        assert retain(history.checkpoint) == []
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
    """Every manifest that is left names existing files, and the next call deletes the rest."""
    steps = 5 * 2 + 5 + 5  # manifests and copies, marks, log files of five batches
    for at in range(steps + 1):
        checkpoint = Checkpoint(tmp_path / str(at))
        for batch in range(7):
            (checkpoint.log / f"{batch_name(batch)}-0.log").touch()
            checkpoint.commit(make_manifest(batch))
            checkpoint.mark_published(batch)
        with unlink_fails_after(at):
            if at == steps:
                assert len(retain(checkpoint, 2)) == steps
            else:
                with pytest.raises(OSError, match="Input/output"):
                    retain(checkpoint, 2)
        left = {name for place in (checkpoint.manifests, checkpoint.copies) for name in os.listdir(place)}
        for batch in {batch for batch in map(batch_of, left) if batch is not None}:
            assert (checkpoint.log / f"{batch_name(batch)}-0.log").exists()
        again = Checkpoint(checkpoint.root)
        assert again.newest() == make_manifest(6)
        assert all(again.is_published(batch) for batch in range(7))
        retain(again, 2)
        assert sorted(os.listdir(again.log)) == [f"{batch_name(batch)}-0.log" for batch in (5, 6)]


def test_a_stop_within_retention_makes_no_late_rows(tmp_path: Path) -> None:
    """The file of a failed task must go before the manifest that does not name it; otherwise it would count."""
    for at in range(12):
        checkpoint = Checkpoint(tmp_path / str(at))
        named = [f"{batch_name(batch)}-0-named" for batch in range(5)]
        for batch in range(5):
            checkpoint.commit(make_manifest(batch, late=(OutputFile(named[batch], 1, 1, 0),)))
            checkpoint.mark_published(batch)
            for name in (named[batch], f"{batch_name(batch)}-0-left-behind"):
                (checkpoint.late / name).touch()
        with unlink_fails_after(at), pytest.raises(OSError, match="Input/output"):
            retain(checkpoint, 2)
        again = Checkpoint(checkpoint.root)
        assert [path.name for path in again.late_files(0)] == named
        retain(again, 2)
        assert [path.name for path in Checkpoint(checkpoint.root).late_files(0)] == named


def test_nothing_goes_while_a_manifest_is_damaged(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 5)
    for batch in range(5):
        checkpoint.mark_published(batch)
        (checkpoint.log / f"{batch_name(batch)}-0.log").touch()
    for path in manifest_files(checkpoint, 3):
        path.write_bytes(b"")
    again = Checkpoint(tmp_path)
    assert retain(again, 2) == []
    assert retain(again, 1) == [
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
    assert len(retain(checkpoint, 1)) == 6
    assert all(path.exists() for path in strange)
    with pytest.raises(StreamingStateError, match="keep=0"):
        retain(checkpoint, 0)

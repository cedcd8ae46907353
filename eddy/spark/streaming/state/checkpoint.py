"""The directory with the state of a streaming job: its layout, its commits, its marks of published batches.

    root/
        identity.json                  the query that the checkpoint belongs to (identity.py), and identity-copy.json
        lock                           the driver that runs the job (driver_lock.py)
        files/                         the files of each stream in their order, if workers read them (file_log.py)
        log/                           segments of rows (segments.py); names begin with the batch in 12 digits
        late/                          files of late rows, named in the same way
        manifests/<12 digits>.manifest state after each batch (manifest.py)
        manifests/copies/              a copy of each manifest
        published/<12 digits>          an empty file for each batch whose results were published
        spark/                         Spark's own checkpoint: the offsets it planned, the batches it marked complete
        metrics/                       metrics of the driver; not part of the state

A batch is committed from the moment at which its manifest, or the copy of the manifest, has its final name. Every file
that the manifest names was made durable before. The steps of batch b are, in this order:

    Spark plans b (spark/offsets/b), log and late files, manifest b, published b, Spark completes b (spark/commits/b)

After a stop between any two steps, Spark replays batch b.

A checkpoint in an object store has this layout in a working directory (remote.py).

Every write goes to a file with a temporary name, which is synced and renamed; then its directory is synced
(`eddy.storage.durable`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named, batch_of
from eddy.spark.streaming.state.copies import ReadOutcome, read_twice, write_twice
from eddy.spark.streaming.state.driver_lock import DriverLock
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.remote import RemoteCheckpoint, RunLock
from eddy.storage.durable import PRIVATE_FILE, make_directories, sync_directory

_MANIFEST = ".manifest"


@dataclass(frozen=True)
class NamedFiles:
    """Files that a manifest names: paths below `log`, paths below `late`."""

    log: frozenset[str]
    late: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> NamedFiles:
        return cls(manifest.log_files(), frozenset(output.file for output in manifest.late))


class Checkpoint:
    """The files of one job under `root`. Creates missing directories; raises StreamingStateError if this fails.

    remote      the checkpoint in an object store of which `root` is the working directory; None on a file system
    lock        held by the driver of the job
    recoveries  texts on damage that was repaired or skipped, oldest first
    damaged     batches whose manifest is damaged in both copies, with the damage of each copy
    """

    def __init__(self, root: Path, remote: RemoteCheckpoint | None = None) -> None:
        self.root, self.remote = Path(root), remote
        self.log = self.root / "log"
        self.late = self.root / "late"
        self.manifests = self.root / "manifests"
        self.copies = self.manifests / "copies"
        self.published = self.root / "published"
        self.spark = self.root / "spark"
        self.lock: DriverLock | RunLock = DriverLock(self.root) if remote is None else RunLock(remote)
        self.recoveries: list[str] = []
        self.damaged: dict[int, tuple[str, ...]] = {}
        self._named: dict[int, NamedFiles] = {}
        self._last: tuple[int, bytes] | None = None  # the newest whole manifest that this object has seen
        try:
            make_directories(self.log, self.late, self.manifests, self.copies, self.published)
        except OSError as problem:
            raise StreamingStateError(
                f"{self.root} cannot hold the state of a streaming join: {problem}; give a directory in which the"
                " driver and the workers may write"
            ) from problem

    @property
    def place(self) -> str:
        """The checkpoint in messages: its directory, or its URL."""
        return str(self.root) if self.remote is None else self.remote.store.url

    # Manifests

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the newest one. Afterwards the manifest survives a power cut. The call is atomic.

        A second commit of the newest manifest has no effect. Raises StreamingStateError for a batch that is committed
        with other content, and for a batch that does not follow the newest; the first batch may have any number.
        """
        data = manifest.to_bytes()
        batch = manifest.batch
        path, copy = manifest_paths(self.root, batch)
        if self._last is None or self._last[0] != self.newest_number():
            self.newest()
        if self._last is not None:
            last, content = self._last
            if batch == last and content == data:
                return
            if batch == last:
                raise StreamingStateError(
                    f"batch {batch} is committed with other content in {path}; another driver uses this checkpoint:"
                    " stop it"
                )
            if batch != last + 1:
                raise StreamingStateError(
                    f"batch {batch} cannot be committed in {self.manifests}: the newest is batch {last}, the next is"
                    f" {last + 1}; Spark's checkpoint {self.spark} belongs to another job, or was replaced: restore it"
                )
        if self.remote is not None:
            self.remote.commit(manifest, data)
        write_twice(path, copy, data)
        self.damaged.pop(batch, None)
        self._named[batch] = NamedFiles.of(manifest)
        self._last = (batch, data)

    def newest(self) -> Manifest | None:
        """Return the newest whole manifest, None without one.

        A missing or damaged copy is restored from the other copy. If both copies are damaged, the previous manifest is
        returned, and `recoveries` reports the damage; `recovery.recover` decides whether a job may resume from the
        previous manifest. O(segments).
        """
        self._last = None
        for batch in sorted(self.numbers(), reverse=True):
            outcome = self._read(batch)
            if outcome.value is not None:
                self._last = (batch, outcome.data)
                return outcome.value
        return None

    def newest_number(self) -> int | None:
        """Return the greatest batch that has a manifest, whole or damaged; None without one."""
        return max(self.numbers(), default=None)

    def numbers(self) -> set[int]:
        """Return the batches of all manifests of which at least a copy exists."""
        return committed_batches(self.root)

    def named_files(self, batch: int) -> NamedFiles | None:
        """Return the files that a manifest names, None if the manifest is damaged. Reads each manifest once."""
        if batch not in self._named:
            self._read(batch)
        return self._named.get(batch)

    def forget_named_files(self, before: int) -> None:
        """Drop the cached names of files of deleted manifests, those of batches before this one."""
        for batch in [batch for batch in self._named if batch < before]:
            del self._named[batch]

    def _read(self, batch: int) -> ReadOutcome[Manifest]:
        """Read one manifest; record its damage."""

        def parse(data: bytes) -> Manifest:
            manifest = Manifest.from_bytes(data)
            if manifest.batch != batch:
                raise StreamingStateError(f"it is the manifest of batch {manifest.batch}, not of {batch}")
            return manifest

        outcome = read_twice(*manifest_paths(self.root, batch), parse)
        self.recoveries += outcome.repairs
        if outcome.value is not None:
            self._named.setdefault(batch, NamedFiles.of(outcome.value))
        elif batch not in self.damaged:
            self.damaged[batch] = outcome.damages
            self.recoveries.append(
                f"the manifest of batch {batch} is damaged and was skipped: {'; '.join(outcome.damages)}"
            )
        return outcome

    # Published batches and late rows

    def mark_published(self, batch: int) -> None:
        """Record that the results of a committed batch were published. Survives a power cut; idempotent."""
        if self.remote is not None:
            self.remote.mark_published(batch)
        os.close(os.open(self.published / batch_name(batch), os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
        sync_directory(self.published)

    def is_published(self, batch: int) -> bool:
        """Return whether the results of a batch were published; batches before the oldest manifest always were."""
        if (self.published / batch_name(batch)).exists():
            return True
        numbers = self.numbers()
        return bool(numbers) and batch < min(numbers)

    def late_files(self, stream: int | None) -> list[Path]:
        """Return the files of a stream's late rows, of failed rows for None, of all committed batches, oldest first."""
        numbers = sorted(self.numbers())
        read = [whole for batch in numbers if (whole := self._read(batch).value) is not None]
        named = {output.file for manifest in read for output in manifest.late if output.stream == stream}
        # Retention deletes unnamed files before manifests, so a manifest named each file older than all manifests.
        there = self._names(self.late)
        gone = [name for name in there if numbers and (batch_of(name) or 0) < numbers[0]]
        named.update(name for name in gone if name.split("-")[1] == ("failed" if stream is None else str(stream)))
        return self._here(self.late, named)

    def _names(self, directory: Path) -> list[str]:
        """Return the names of all files of a directory, those that are only objects as well."""
        names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
        if self.remote is not None:
            names.update(self.remote.names(directory.name))
        return sorted(names)

    def _here(self, directory: Path, names: Iterable[str]) -> list[Path]:
        """Return the paths of files of a directory, after those that are only objects were fetched."""
        paths = [directory / name for name in sorted(names)]
        if self.remote is not None:
            self.remote.fetch(paths)
        return paths

    # Spark's own checkpoint

    def spark_committed(self) -> int | None:
        """Return the newest batch that Spark has marked complete, None without one."""
        return _newest_batch(self.spark / "commits")

    def spark_planned(self) -> int | None:
        """Return the newest batch whose offsets Spark has written, None without one."""
        return _newest_batch(self.spark / "offsets")


def manifest_paths(root: Path, batch: int) -> tuple[Path, Path]:
    """Return the paths of a batch's manifest and of its copy."""
    name = f"{batch_name(batch)}{_MANIFEST}"
    return root / "manifests" / name, root / "manifests" / "copies" / name


def committed_batches(root: Path) -> set[int]:
    """Return the batches of which a manifest or its copy exists, whole or damaged; none without the directories."""
    batches: set[int | None] = set()
    for directory in {path.parent for path in manifest_paths(root, 0)}:
        with suppress(FileNotFoundError):
            batches.update(batch_named(name, _MANIFEST) for name in os.listdir(directory))
    return {batch for batch in batches if batch is not None}


def _newest_batch(directory: Path) -> int | None:
    """Return the greatest number that is the name of a file; None without one, or without the directory."""
    try:
        return max((int(name) for name in os.listdir(directory) if name.isascii() and name.isdigit()), default=None)
    except FileNotFoundError:
        return None

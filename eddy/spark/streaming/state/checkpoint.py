"""The directory that holds a streaming job: what is committed, what is published, what can go.

    root/
        identity.json                  which query it belongs to (identity.py), and identity-copy.json
        lock                           who runs it
        log/                           segments of rows (segments.py); names begin with the batch in 12 digits
        late/                          files of late rows, named in the same way
        manifests/<12 digits>.manifest what each batch decided (manifest.py)
        manifests/copies/              the same once more
        published/<12 digits>          an empty file for each batch whose results were published
        spark/                         Spark's own checkpoint: the offsets it planned, the batches it saw end
        metrics/                       not looked at here

A batch is committed from the moment on at which its manifest, or the copy of it, has its name. Everything it names was
made durable before. The order of events of batch b is

    Spark plans b (spark/offsets/b) - log and late files - manifest b - published b - Spark sees b end (spark/commits/b)

and after a stop between any two of them Spark gives batch b again.

Every write goes to a temporary name, is synced, renamed, and the directory synced (durable.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named, batch_of
from eddy.spark.streaming.state.durable import (
    PRIVATE_FILE,
    TEMPORARY,
    Found,
    final_name,
    make_directories,
    read_twice,
    sync_directory,
    write_twice,
)
from eddy.spark.streaming.state.manifest import Manifest
from eddy.storage.json_form import FormError, fields, integer, parse, text

_MANIFEST = ".manifest"


@dataclass(frozen=True)
class _Needs:
    """What a manifest names: paths below `log`, paths below `late`."""

    log: frozenset[str]
    late: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> _Needs:
        return cls(manifest.log_files(), frozenset(one.file for one in manifest.late))


class Checkpoint:
    """The files of one job under `root`. Directories that are missing are made; StreamingStateError if they cannot be.

    recoveries  what was found damaged and put right or passed over, as text, in the order found
    damaged     batches whose manifest was found damaged in both copies, and what is wrong with each
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.log = self.root / "log"
        self.late = self.root / "late"
        self.manifests = self.root / "manifests"
        self.copies = self.manifests / "copies"
        self.published = self.root / "published"
        self.spark = self.root / "spark"
        self.recoveries: list[str] = []
        self.damaged: dict[int, tuple[str, ...]] = {}
        self._needs: dict[int, _Needs] = {}
        self._last: tuple[int, bytes] | None = None  # the newest whole manifest this object has seen
        self._lock: int | None = None
        try:
            make_directories(self.log, self.late, self.manifests, self.copies, self.published)
        except OSError as problem:
            raise StreamingStateError(
                f"{self.root} cannot hold the state of a streaming join: {problem}; give a directory in which the"
                " driver and the workers may write"
            ) from problem

    # Manifests

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the newest one. Afterwards it survives a power cut; after a stop within, it is there or not.

        The same manifest once more changes nothing. Raises StreamingStateError for a batch that is committed with other
        content, and for one that does not follow the newest; the first batch of all may have any number.
        """
        data = manifest.to_bytes()
        batch = manifest.batch
        path, copy = self._path(batch), self._copy(batch)
        if self._last is None or self._last[0] != self.newest_number():
            self.newest()
        if self._last is not None:
            last, content = self._last
            if batch == last and content == data:
                return
            if batch == last:
                raise StreamingStateError(
                    f"batch {batch} is committed with other content in {path}; another driver runs on this"
                    " checkpoint, stop it"
                )
            if batch != last + 1:
                raise StreamingStateError(
                    f"batch {batch} cannot be committed in {self.manifests}: the newest is batch {last}, the next is"
                    f" {last + 1}; Spark's checkpoint {self.spark} is not the one that belongs to it"
                )
        write_twice(path, copy, data)
        self.damaged.pop(batch, None)
        self._needs[batch] = _Needs.of(manifest)
        self._last = (batch, data)

    def newest(self) -> Manifest | None:
        """Return the newest whole manifest, None for none.

        A damaged or missing one of its two copies is written anew from the other. With both damaged the one before is
        taken, and `recoveries` tells it; whether that is sound, `recover` decides. O(segments).
        """
        self._last = None
        for batch in sorted(self._numbers(), reverse=True):
            found = self._read(batch)
            if found.value is not None:
                self._last = (batch, found.data)
                return found.value
        return None

    def newest_number(self) -> int | None:
        """Return the greatest number that a manifest has by its name, damaged or not; None for none."""
        return max(self._numbers(), default=None)

    def _read(self, batch: int) -> Found[Manifest]:
        """Read one manifest; note what is wrong."""

        def parse(data: bytes) -> Manifest:
            manifest = Manifest.from_bytes(data)
            if manifest.batch != batch:
                raise StreamingStateError(f"it is the manifest of batch {manifest.batch}, not of {batch}")
            return manifest

        found = read_twice(self._path(batch), self._copy(batch), parse)
        self.recoveries += found.mended
        if found.value is not None:
            self._needs.setdefault(batch, _Needs.of(found.value))
        elif batch not in self.damaged:
            self.damaged[batch] = found.damages
            self.recoveries.append(
                f"the manifest of batch {batch} is damaged and was passed over: {'; '.join(found.damages)}"
            )
        return found

    def _path(self, batch: int) -> Path:
        return self.manifests / f"{batch_name(batch)}{_MANIFEST}"

    def _copy(self, batch: int) -> Path:
        return self.copies / f"{batch_name(batch)}{_MANIFEST}"

    def _numbers(self) -> set[int]:
        """Return the numbers of all manifests, of which a copy at least is there."""
        names = [*os.listdir(self.manifests), *os.listdir(self.copies)]
        return {batch for name in names if (batch := batch_named(name, _MANIFEST)) is not None}

    # Published batches

    def mark_published(self, batch: int) -> None:
        """Note that the results of a committed batch were published. Survives a power cut; twice is like once."""
        os.close(os.open(self.published / batch_name(batch), os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
        sync_directory(self.published)

    def is_published(self, batch: int) -> bool:
        """Say whether the results of a batch were published; batches below the oldest manifest count as published."""
        if (self.published / batch_name(batch)).exists():
            return True
        numbers = self._numbers()
        return bool(numbers) and batch < min(numbers)

    # Retention

    def retain(self, keep: int = 10, *, in_use: Iterable[str] = ()) -> list[str]:
        """Delete what nobody needs; return the paths of it, relative to the root.

        keep    how many of the newest manifests stay. One that is not published stays, and those after it
        in_use  names of log files that a task is about to read or a manifest about to name: those of a compaction
                under way, whose own file may begin with a batch long past when a manifest names it at last

        Deleted are manifests; files of the log that no manifest that stays names; and files of late rows that no
        manifest has named. Late rows themselves are for others to read, and stay when their manifest goes. Of all these
        go only files whose batch, by their names, is older than the newest: a task of the newest batch that Spark has
        given up may still write. Names that begin with no batch stay. While one of the manifests that stay is damaged,
        nothing goes: it may be put back from a backup. Cost: a list of each directory, and one read of each manifest
        this object has not seen.
        """
        if keep < 1:
            raise StreamingStateError(f"keep={keep}: at least the newest manifest must stay")
        deleted = _unlink(
            path for place in (self.root, self.manifests, self.copies) for path in place.glob(f"*{TEMPORARY}")
        )
        numbers = sorted(self._numbers())
        if numbers:
            oldest = min([*numbers[-keep:], *(batch for batch in numbers[:-keep] if not self.is_published(batch))])
            needs = {batch: self._named(batch) for batch in numbers}
            if all(needs[batch] is not None for batch in numbers if batch >= oldest):
                deleted += self._retain_files(numbers, oldest, needs, in_use)
        return [str(path.relative_to(self.root)) for path in deleted]

    def _retain_files(
        self, numbers: list[int], oldest: int, needs: dict[int, _Needs | None], in_use: Iterable[str]
    ) -> list[Path]:
        """Delete manifests below `oldest`, and files below the newest that no manifest from there on names."""
        newest = numbers[-1]
        stay = [one for batch, one in needs.items() if one is not None and batch >= oldest]
        deleted = self._retain_late(numbers, oldest, needs)
        # Manifests first: one that names files which are gone must not be there after a stop in between.
        deleted += _unlink(
            path for batch in numbers if batch < oldest for path in (self._path(batch), self._copy(batch))
        )
        # The mark goes after the manifest: without either, a batch this old counts as published.
        deleted += _unlink(path for path, _ in _of_batches(self.published, 0, oldest))
        log = frozenset(in_use).union(*(one.log for one in stay))
        # A file in use may still have its temporary name.
        deleted += _unlink(path for path, name in _of_batches(self.log, 0, newest) if final_name(name) not in log)
        for batch in [batch for batch in self._needs if batch < oldest]:
            del self._needs[batch]
        return deleted

    def _retain_late(self, numbers: list[int], oldest: int, needs: dict[int, _Needs | None]) -> list[Path]:
        """Delete files of late rows that a failed task left behind.

        Before any manifest goes: only that of its batch tells such a file from one that counts, and without manifest
        each file counts (`late_files`).
        """
        known = [one for one in needs.values() if one is not None]
        since = numbers[0] if len(known) == len(needs) else oldest
        named = frozenset[str]().union(*(one.late for one in known))
        return _unlink(path for path, name in _of_batches(self.late, since, numbers[-1]) if name not in named)

    def _named(self, batch: int) -> _Needs | None:
        """Return what a manifest names, None when it is damaged."""
        if batch not in self._needs:
            self._read(batch)
        return self._needs.get(batch)

    # Spark's own checkpoint

    def spark_committed(self) -> int | None:
        """Return the newest batch that Spark has seen end, None for none."""
        return _newest_batch(self.spark / "commits")

    def spark_planned(self) -> int | None:
        """Return the newest batch whose offsets Spark has written down, None for none."""
        return _newest_batch(self.spark / "offsets")

    def late_files(self, stream: int) -> list[Path]:
        """Return the files of late rows of a stream, of all batches committed, oldest first."""
        numbers = sorted(self._numbers())
        read = [found for batch in numbers if (found := self._read(batch).value) is not None]
        named = {one.file for manifest in read for one in manifest.late if one.stream == stream}
        # What no manifest names any more and was not deleted was named by one that is gone.
        gone = [path.name for path in self.late.iterdir() if numbers and (batch_of(path.name) or 0) < numbers[0]]
        named.update(name for name in gone if name.split("-")[1] == str(stream))
        return [self.late / name for name in sorted(named)]

    # One driver at a time

    def lock(self) -> None:
        """Take the checkpoint for this process until `unlock` or its end; twice is like once.

        Raises StreamingStateError that names who has it. A process that was forked off holds it as well.
        """
        if self._lock is not None:
            return
        path = self.root / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise StreamingStateError(
                f"{self.root} is in use by {holder}: one driver runs a checkpoint at a time; stop that one, or give"
                " this one a checkpoint of its own"
            ) from None
        except OSError as problem:
            os.close(descriptor)
            raise StreamingStateError(
                f"{path} cannot be locked ({problem}): put the checkpoint on a file system with locks"
            ) from problem
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        """Give the checkpoint back; nothing when it is not taken."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def read_manifest(root: Path, batch: int) -> Manifest:
    """Return the manifest of a batch; nothing is mended. Raises StreamingStateError if neither copy is whole."""
    problems = []
    for place in ("manifests", "manifests/copies"):
        path = root / place / f"{batch_name(batch)}{_MANIFEST}"
        try:
            return Manifest.from_bytes(path.read_bytes())
        except (OSError, StreamingStateError) as problem:
            problems.append(f"{path}: {problem}")
    raise StreamingStateError(
        f"the state after batch {batch} cannot be read: {'; '.join(problems)}; restore one of the two from a backup"
    )


def recover(checkpoint: Checkpoint) -> Manifest | None:
    """Return the manifest to go on from, None to begin anew.

    Spark gives every batch again that it has not seen end, so a manifest that is missing or damaged costs nothing as
    long as Spark will give its batch again. Raises StreamingStateError

    - when the newest whole manifest is older than the newest batch Spark has seen end: the state of that batch is lost;
    - when it is newer than any batch Spark has planned: Spark's checkpoint was deleted, lost its newest files or is
      another one, and would number other rows with batches that are decided already, which would be dropped.
    """
    newest = checkpoint.newest()
    number = checkpoint.newest_number()
    committed, planned = checkpoint.spark_committed(), checkpoint.spark_planned()
    if committed is not None and (newest is None or newest.batch < committed):
        found = "there is none" if newest is None else f"the newest whole one is of batch {newest.batch}"
        damages = [text for batch in sorted(checkpoint.damaged) for text in checkpoint.damaged[batch]]
        missing = "; ".join(damages) or f"{checkpoint.manifests / batch_name(committed)}{_MANIFEST}: it is missing"
        lost = 0 if newest is None else newest.batch + 1
        batches = f"batch {committed}" if lost >= committed else f"batches {lost} to {committed}"
        raise StreamingStateError(
            f"the state after batch {committed}, which Spark has seen end, is lost: {missing}. Of the manifests in"
            f" {checkpoint.manifests} {found}. Spark will not give the rows of {batches} again; restore the file or its"
            " copy from a backup, or start with a new checkpoint"
        )
    if number is not None and (planned is None or planned < number):
        known = "no batch" if planned is None else f"batches up to {planned}"
        raise StreamingStateError(
            f"{checkpoint.manifests} has batch {number}, but Spark's checkpoint {checkpoint.spark} knows of {known}: it"
            " was deleted, lost its newest files or is another one, and the rows of its next batches would be taken for"
            " those decided already; restore it, or start with a new checkpoint"
        )
    return newest


def _newest_batch(directory: Path) -> int | None:
    """Return the greatest number that is the name of a file, None for none or no directory."""
    try:
        return max((int(name) for name in os.listdir(directory) if name.isascii() and name.isdigit()), default=None)
    except FileNotFoundError:
        return None


def _of_batches(directory: Path, since: int, before: int) -> Iterator[tuple[Path, str]]:
    """Yield the files at any depth whose names begin with a batch in [since, before), and their paths below."""
    for place, _, names in os.walk(directory):
        for name in names:
            batch = batch_of(name)
            if batch is not None and since <= batch < before:
                path = Path(place) / name
                yield path, path.relative_to(directory).as_posix()


def _unlink(paths: Iterable[Path]) -> list[Path]:
    """Delete files, in the order of their paths; return those that were there."""
    deleted = []
    for path in sorted(paths):
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        deleted.append(path)
    return deleted


def _holder(written: bytes) -> str:
    """Return who has written a lock's file, as far as it can be read."""
    try:
        found = parse(written)
        fields({"pid": integer(0), "host": text})(found, "lock")
        return f"process {found['pid']} on {found['host']}"
    except FormError:
        return "another process, which has not written its name yet"

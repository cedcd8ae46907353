"""A checkpoint in an object store, and its working directory on the host of the driver.

    begun                   what the job had before its first batch
    lease                   the driver that runs the job (lease.py)
    manifests/<12 digits>   a bundle for each batch: its manifest, and the files of the driver from which it goes on
    kept/<digest>           a file of a bundle that is large, under the digest of its bytes
    published/<12 digits>   an empty object for each batch whose results were published
    log/ late/              segments and groups, and late rows, under the names of their files
    staging/ queries/       results of batches that are not published yet

The working directory has the layout of a checkpoint on a file system (checkpoint.py), so the driver and Spark work as
they do there. The directory is disposable: a start makes a new one from the newest bundle. A batch is committed from
the moment at which its bundle exists; only one driver can create it. Every object that the manifest names was written
before. The bundle has the files of Spark's checkpoint that Spark reads at a start, so that Spark replays the batch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named, batch_of
from eddy.spark.streaming.state.lease import Lease
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.object_store import ObjectStore
from eddy.spark.streaming.state.spark_files import read_at_start
from eddy.storage.durable import TEMPORARY, make_directories, private_opener
from eddy.storage.file_kind import FileKind
from eddy.storage.seal import digest
from stairs.errors import EddyError
from stairs.storage.json_form import fields, file_name, integer, list_of, row_of, text
from stairs.storage.parts import Plain

BUNDLE = FileKind("bundle", b"eddybndl", 2, StreamingStateError, "a streaming join", "go on from")
LARGE = 1 << 16
"""Bytes from which on a file of a bundle is an object of its own, which several bundles share."""
SWEEP_EVERY = 32
"""Batches between two sweeps, each of which lists the prefix and deletes what is not needed."""
BEGUN = "begun"
"""The object with what a job had before its first batch."""
STAGED = ("staging", "queries")
_FOLDERS = ("manifests", "published", "files", "spark")
_THREADS = 16
_HEADER = fields(
    {
        "epoch": integer(1, (1 << 63) - 1),
        "batch": integer(0, (1 << 63) - 1),
        "names": list_of(file_name),
        "kept": list_of(row_of(file_name, text)),
    }
)


class StateBundle:
    """The bundle of a batch.

    manifest  bytes of the manifest
    files     the small files of the driver by path
    kept      the digests of the large ones, which are objects of their own
    """

    def __init__(self, epoch: int, batch: int, manifest: bytes, files: dict[str, bytes]) -> None:
        self.epoch, self.batch, self.manifest, self.files = epoch, batch, manifest, files
        self.kept: dict[str, str] = {}

    def to_bytes(self) -> bytes:
        header: Plain = {
            "epoch": self.epoch,
            "batch": self.batch,
            "names": list(self.files),
            "kept": [list(pair) for pair in self.kept.items()],
        }
        whole = [np.frombuffer(data, np.uint8) for data in (self.manifest, *self.files.values())]
        return BUNDLE.pack({"header": header, "files": whole})

    @classmethod
    def from_bytes(cls, data: bytes) -> StateBundle:
        """Raises StreamingStateError for anything but the bytes of a bundle."""
        parts = BUNDLE.unpack(data)
        header = parts.value("header", _HEADER)
        names = header["names"]
        whole = [array.tobytes() for array in parts.arrays("files", np.uint8, [(-1,)] * (1 + len(names)))]
        files = dict(zip(names, whole[1:], strict=True))
        bundle = cls(header["epoch"], header["batch"], whole[0], files)
        bundle.kept = dict(header["kept"])
        return bundle


class RemoteCheckpoint:
    """The checkpoint of one job in an object store.

    locations  the working directory, and the store
    lease      held by the driver of the job
    """

    def __init__(self, locations: Locations) -> None:
        assert locations.store is not None
        self.store, self.root, self.lease = locations.store, locations.root, Lease(locations.store)
        self._locations = locations
        self._fresh = False
        """Whether the working directory is as `restore` has made it."""
        self._restored: int | None = None
        self._epoch = 0
        self._late: dict[int, frozenset[str]] = {}
        """By batch whose bundle may be there, the files of late rows that its manifest names."""
        self._kept: set[str] = set()
        """Digests of large files that are objects."""
        self._large = False
        """Whether a bundle had large files."""
        self._swept: int | None = None

    @contextmanager
    def names_objects(self) -> Iterator[None]:
        """Let errors of the body name objects in place of files of the working directory."""
        try:
            yield
        except EddyError as problem:
            raise self.told(problem) from problem.__cause__

    def told(self, problem: EddyError) -> EddyError:
        """Return an error that names objects in place of files of the working directory."""
        text = str(problem)
        if str(self.root) not in text:
            return problem
        again = copy(problem)
        again.args = (text.replace(str(self.root), self.store.url), *problem.args[1:])
        return again

    # A start

    def restore(self) -> None:
        """Fill the new working directory from the newest bundle. Raises StreamingStateError for a damaged object."""
        bundles = self._bundles()
        for before, after in pairwise(bundles):
            if after.epoch < before.epoch:
                raise StreamingStateError(
                    f"{self.store.url}: the epoch went backwards: batch {before.batch} was written with epoch"
                    f" {before.epoch}, and batch {after.batch} with {after.epoch}: objects of two checkpoints are"
                    " mixed; restore one of them, or start with a new prefix"
                )
        self._late = {state.batch: _late_of(Manifest.from_bytes(state.manifest)) for state in bundles}
        for bundle in bundles:
            self._write(f"manifests/{batch_name(bundle.batch)}.manifest", bundle.manifest)
            self._write(f"manifests/copies/{batch_name(bundle.batch)}.manifest", bundle.manifest)
        begun = None if bundles else self.store.read(BEGUN)
        if begun is not None:
            self._write_files(StateBundle.from_bytes(begun[0]))
        if bundles:
            newest = bundles[-1]
            self._kept, self._large = set(newest.kept.values()), any(state.kept for state in bundles)
            self._epoch = newest.epoch
            self._write_files(newest)
            published = self.store.names("published")
            for name in published:
                self._write(name, b"")
            if f"published/{batch_name(newest.batch)}" not in published:
                self.fetch_staged(newest.batch, everything=True)
        self._restored, self._fresh = (bundles[-1].batch if bundles else None), True

    def _write_files(self, bundle: StateBundle) -> None:
        for name, data in bundle.files.items():
            self._write(name, data)
        for name, of in bundle.kept.items():
            self._write(name, _whole(self.store, f"kept/{of}"))
        if (self.root / "identity.json").exists():
            self._write("identity-copy.json", (self.root / "identity.json").read_bytes())

    def _bundles(self) -> list[StateBundle]:
        """Return all bundles, oldest first."""
        batches = self.numbers()
        while True:
            try:
                with ThreadPoolExecutor(_THREADS) as pool:
                    return list(pool.map(partial(read_bundle, self.store), batches))
            except StreamingStateError:
                # A driver that still runs may have deleted old ones in the meantime.
                again = self.numbers()
                if again == batches:
                    raise
                batches = again

    def acquire(self) -> None:
        """Take the lease. Raises StreamingStateError if another driver holds it."""
        self.store.check_conditions()
        self.lease.acquire(self._epoch)
        try:
            numbers = self.numbers()
            if not self._fresh or (numbers[-1] if numbers else None) != self._restored:
                # An earlier run has changed the directory, or another driver has committed batches since `restore`.
                for name in (*_FOLDERS, *STAGED):
                    shutil.rmtree(self.root / name, ignore_errors=True)
                self.restore()
                make_directories(self.root / "manifests" / "copies", self.root / "published")
            self._fresh = False
        except BaseException:
            self.lease.release()
            raise

    def begin(self) -> None:
        """Store what a first start has fixed before its first batch: the identity, and where topics begin."""
        if self._restored is None:
            assert self.lease.epoch is not None
            begun = StateBundle(self.lease.epoch, 0, b"", {})
            self._add_files(begun, self._own_files())
            self.store.put_new(BEGUN, begun.to_bytes())

    def numbers(self) -> list[int]:
        """Return the batches that have a bundle, ascending."""
        batches = (batch_named(Path(name).name) for name in self.store.names("manifests"))
        return sorted(batch for batch in batches if batch is not None)

    def _write(self, name: str, data: bytes) -> None:
        path = self.root / name
        make_directories(path.parent)
        with open(path, "wb", opener=private_opener) as file:  # not synced: another start makes a new directory
            file.write(data)

    # A micro-batch

    def commit(self, manifest: Manifest, data: bytes) -> None:
        """Commit a batch. Raises StreamingStateError if another driver has done so, or holds the lease.

        data   the bytes of the manifest
        """
        self.lease.renew()
        assert self.lease.epoch is not None
        batch = manifest.batch
        bundle = StateBundle(self.lease.epoch, batch, data, {})
        spark = self.root / "spark"
        self._check_spark_state(spark)
        self._add_files(bundle, (*self._own_files(), *read_at_start(spark)))
        if not {"identity.json", f"spark/offsets/{batch}"} <= bundle.files.keys() | bundle.kept.keys():
            raise StreamingStateError(
                f"{self.store.url}: the working directory of this driver, below spark.local.dir, was deleted while the"
                f" job ran; batch {batch} is not committed: start the job again"
            )
        name = f"manifests/{batch_name(batch)}"
        if not self.store.put_new(name, bundle.to_bytes()):
            raise StreamingStateError(
                f"batch {batch} is committed in {self.store.url}/{name} by another driver, which uses this checkpoint:"
                " stop it, or start this job again if no other one runs"
            )
        self._restored, self._epoch = batch, self.lease.epoch
        self._late[batch] = _late_of(manifest)
        os.utime(self.root)

    def _add_files(self, bundle: StateBundle, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                name, data = path.relative_to(self.root).as_posix(), path.read_bytes()
            except FileNotFoundError:
                continue  # an old list of files, which the source has just deleted
            if len(data) < LARGE:
                bundle.files[name] = data
                continue
            self._large = True
            bundle.kept[name] = of = digest(data).hex()
            if of not in self._kept:
                self.store.put(f"kept/{of}", data)
                self._kept.add(of)

    def _own_files(self) -> list[Path]:
        """Return the files of the driver, without those of Spark."""
        identity = self.root / "identity.json"
        lists = (path for path in (self.root / "files").glob("*") if not path.name.endswith(TEMPORARY))
        return [*([identity] if identity.exists() else []), *sorted(lists)]

    def _check_spark_state(self, spark: Path) -> None:
        """Raise StreamingStateError if Spark keeps more than the progress of the sources."""
        if next((spark / "state").glob("*/*/*"), None) is not None:
            raise StreamingStateError(
                f"{self.store.url}: a DataFrame of the join keeps a state in Spark, as dropDuplicates and aggregates"
                " do, and a checkpoint in an object store does not hold it; use a checkpoint on a shared file system,"
                " or compute the DataFrame in a query of its own"
            )

    def mark_published(self, batch: int) -> None:
        """Record that the results of a batch were published."""
        self.store.put(f"published/{batch_name(batch)}", b"")

    # Files of workers

    def names(self, folder: str) -> list[str]:
        """Return the names of files of a folder of the working directory that are objects."""
        return [Path(name).name for name in self.store.names(folder)]

    def fetch(self, paths: Sequence[Path]) -> None:
        """Get files that the working directory lacks."""
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._locations.fetch, paths))

    def fetch_staged(self, batch: int, *, everything: bool = False) -> None:
        """Fetch the results of a batch that are not in the working directory.

        everything   whether a sink may stage results where the working directory has no folder yet
        """
        folders = [folder for folder in STAGED if everything or (self.root / folder).is_dir()]
        there = (name for folder in folders for name in self.store.names(folder))
        self.fetch([self.root / name for name in there if _staged_batch(name) == batch])

    def sweep(self, oldest: int, named: frozenset[str]) -> None:
        """Delete objects that neither a restart nor a running task needs, every `SWEEP_EVERY` batches.

        oldest  the oldest batch whose bundle is kept
        named   the files of the log that kept manifests name, or that are in use
        """
        batches = self.numbers() if self._is_due() else []
        if not batches:
            return
        newest = self._swept = batches[-1]
        folders = [folder for folder in STAGED if (self.root / folder).is_dir()]
        listed = {
            folder: self.store.names(folder) for folder in ("published", "log", *folders, *["kept"][: self._large])
        }
        kept = set[str]()
        if self._large:
            kept = {of for batch in batches if batch >= oldest for of in read_bundle(self.store, batch).kept.values()}
        oldest_known = min(self._late, default=newest)
        late = self.store.names("late", f"late/{batch_name(oldest_known)}")
        unnamed = [name for name in late if _is_old(name, newest) and Path(name).name not in self._late_named(name)]
        # All of this was there while this driver held the lease, so no other one has begun to use it.
        self.lease.renew()
        # Files of late rows that no manifest names go first: without its manifest, each file of a batch counts.
        self.store.delete(unnamed)
        # Manifests are deleted first: after a stop in between, no manifest may name an object that is gone.
        self.store.delete(f"manifests/{batch_name(batch)}" for batch in batches if batch < oldest)
        self.store.delete(
            [
                *(name for name in listed["published"] if (batch_of(Path(name).name) or 0) < oldest),
                *(name for name in listed["log"] if _is_old(name, newest) and Path(name).name not in named),
                *(name for name in listed.get("kept", ()) if Path(name).name not in kept | self._kept),
                *(name for folder in STAGED for name in listed.get(folder, ()) if (_staged_batch(name) or 0) < newest),
            ]
        )
        self._kept &= kept
        self._late = {batch: names for batch, names in self._late.items() if batch >= oldest}

    def _late_named(self, name: str) -> frozenset[str]:
        """Return the files of late rows that the manifest of a file's batch names; without it each file counts."""
        file = Path(name).name
        return self._late.get(batch_of(file) or 0, frozenset([file]))

    def _is_due(self) -> bool:
        if self._restored is None:
            return False
        return self._swept is None or self._restored - self._swept >= SWEEP_EVERY

    def release(self) -> None:
        """Give the lease back; without effect if it is not held."""
        self.lease.release()


class RunLock:
    """The lease as the lock of one run: it gives back only what it has taken.

    remote   the checkpoint, which several runs may use one after the other
    """

    def __init__(self, remote: RemoteCheckpoint) -> None:
        self._remote, self._holds = remote, False

    def acquire(self) -> None:
        """Take the lease, and make the working directory ready; idempotent. Raises what `acquire` of `remote` does."""
        if not self._holds:
            self._remote.acquire()
            self._holds = True

    def release(self) -> None:
        """Give the lease back; without effect if this run does not hold it."""
        if self._holds:
            self._holds = False
            self._remote.release()


def _late_of(manifest: Manifest) -> frozenset[str]:
    return frozenset(output.file for output in manifest.late)


def _is_old(name: str, newest: int) -> bool:
    batch = batch_of(Path(name).name)
    return batch is not None and batch < newest


def _staged_batch(name: str) -> int | None:
    return batch_named(Path(name).parent.name)


def read_bundle(store: ObjectStore, batch: int) -> StateBundle:
    """Return the bundle of a batch. Raises a StreamingStateError that names the object if it is missing or damaged."""
    name = f"manifests/{batch_name(batch)}"
    try:
        bundle = StateBundle.from_bytes(_whole(store, name))
        if bundle.batch != batch:
            raise StreamingStateError(f"it is the bundle of batch {bundle.batch}")
    except StreamingStateError as problem:
        raise StreamingStateError(
            f"{store.url}/{name}: {problem}; restore the object from a version or a backup"
        ) from None
    return bundle


def _whole(store: ObjectStore, name: str) -> bytes:
    stored = store.read(name)
    if stored is None:
        raise StreamingStateError(f"{store.url}/{name}: the object is missing; restore it from a backup")
    return stored[0]

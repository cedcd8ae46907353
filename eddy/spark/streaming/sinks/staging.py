"""The place where tasks write the results of a batch before anyone may see them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.spark.streaming.state.durable import RESULT_DIRECTORY, make_directories, sync_directory

_COLLECTED = "publish-"
_GLOB = set("*?[]{}\\")


def local_path(path: str | os.PathLike[str], what: str) -> Path:
    """Return an absolute path. Raises SparkJoinError for what is no path of a file system the driver has mounted."""
    text = os.fspath(path)
    if text.startswith("file:/"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    if "://" in text or not text:
        raise SparkJoinError(
            f"{what}: {text!r} is no path of a mounted file system; sinks rename directories there, so give a local or"
            " a shared directory that the driver and all workers have under the same name"
        )
    if strange := sorted(_GLOB.intersection(text)):
        raise SparkJoinError(f"{what}: Spark reads {strange[0]!r} in {text} as a pattern; give a path without it")
    return Path(text).absolute()


@contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Raise what the operating system says as SparkJoinError with the path and what to do."""
    try:
        yield
    except OSError as problem:
        raise SparkJoinError(
            f"{path}: {doing} failed: {problem.strerror or problem}; see that the directory is on a mounted file system"
            " with room, and that the driver and the workers may write there"
        ) from problem


class Staging:
    """One directory per batch below a root.

    root   made when it is needed
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, batch: int) -> Path:
        """Return where tasks write the results of a batch. The directory is there; it may hold files of other tries."""
        path = self.root / batch_name(batch)
        with explained(path, "making a staging directory"):
            make_directories(path, mode=RESULT_DIRECTORY)
        return path

    def collected(self, batch: int) -> Path:
        """Return a directory for the files of a batch that count, made if need be."""
        path = self.root / f"{_COLLECTED}{batch_name(batch)}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def prepare(self) -> None:
        """See that files can be made here. Raises SparkJoinError when not."""
        with explained(self.root, "writing a first file"):
            make_directories(self.root, mode=RESULT_DIRECTORY)
            probe = self.root / ".writable"
            probe.write_bytes(b"")
            probe.unlink()

    def paths(self, batch: int, files: Sequence[str]) -> list[Path]:
        """Return the paths of the files of a batch. Raises SparkJoinError naming one that is not there."""
        found = [self.root / batch_name(batch) / name for name in checked_names(files)]
        for path in found:
            if not path.is_file():
                raise SparkJoinError(missing(batch, path))
        return found

    def take(self, batch: int, files: Sequence[str], to: Sequence[Path]) -> None:
        """Move files of a batch to other names in one directory; those that a try before this one moved are there.

        Every step may be the last before a crash, after which all of it is done again.
        """
        for name, path in zip(checked_names(files), to, strict=True):
            source = self.root / batch_name(batch) / name
            if source.exists():
                os.replace(source, path)
            elif not path.exists():
                raise SparkJoinError(missing(batch, source))
        for directory in {path.parent for path in to}:
            sync_directory(directory)

    def clean(self, before_batch: int) -> None:
        """Remove what is left of batches before this one."""
        with explained(self.root, "removing old staging directories"):
            if not self.root.is_dir():
                return
            for path in sorted(self.root.iterdir()):
                batch = batch_named(path.name.removeprefix(_COLLECTED))
                if batch is not None and batch < before_batch:
                    # A task that was given up may still write here; what it leaves goes the next time.
                    shutil.rmtree(path, ignore_errors=True)


def checked_names(files: Sequence[str]) -> list[str]:
    """Return the names of a batch's files. Raises SparkJoinError for one that readers would not see, or seen twice."""
    names = list(files)
    for name in names:
        if not name or "/" in name or name[0] in "._" or _GLOB.intersection(name):
            raise SparkJoinError(
                f"result file {name!r}: give the plain name of a file in the staging directory, which does not begin"
                " with '.' or '_' (readers skip those)"
            )
    if len(set(names)) < len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise SparkJoinError(f"result file {doubled!r} is named twice; a file is published once")
    return names


def row_count(path: Path) -> int:
    """Return how many rows a Parquet file has. Reads its footer."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except pa.ArrowInvalid as problem:
        raise SparkJoinError(
            f"{path} is no whole Parquet file ({problem}), though its batch is committed; restore it, or begin again"
            " with a new checkpoint"
        ) from problem


def missing(batch: int, path: Path) -> str:
    return (
        f"{path}: a result file of batch {batch} is gone, though the batch is committed; restore the directory, or"
        " begin again with a new checkpoint"
    )

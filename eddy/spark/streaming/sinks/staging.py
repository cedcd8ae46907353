"""Staging directories: tasks write the results of a batch there before they are published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.errors import SparkJoinError
from eddy.spark.local_path import GLOB
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.storage.durable import RESULT_DIRECTORY, make_directories, sync_directory

_COLLECTED = "publish-"
_READ_ROWS = 65_536


@contextmanager
def explained(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError of the body into a SparkJoinError that names the path, the action and a remedy."""
    try:
        yield
    except OSError as problem:
        raise SparkJoinError(
            f"{path}: {action} failed: {problem.strerror or problem}; check that the directory is on a mounted file"
            " system with free space, and that the driver and the workers may write there"
        ) from problem


class Staging:
    """Staging directories, one per batch, below a root.

    root   directory that is created when it is needed
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, batch: int) -> Path:
        """Create and return the staging directory of a batch, which may contain files of earlier attempts."""
        path = self.root / batch_name(batch)
        with explained(path, "creating a staging directory"):
            make_directories(path, mode=RESULT_DIRECTORY)
        return path

    def collected(self, batch: int) -> Path:
        """Create and return a directory for exactly the files of a batch that count."""
        path = self.root / f"{_COLLECTED}{batch_name(batch)}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def prepare(self) -> None:
        """Check that files can be created. Raises SparkJoinError if not."""
        with explained(self.root, "creating a first file"):
            make_directories(self.root, mode=RESULT_DIRECTORY)
            probe = self.root / ".writable"
            probe.write_bytes(b"")
            probe.unlink()

    def paths(self, batch: int, files: Sequence[str]) -> list[Path]:
        """Return the paths of the files of a batch. Raises a SparkJoinError that names a missing file."""
        paths = [self.root / batch_name(batch) / name for name in checked_names(files)]
        for path in paths:
            if not path.is_file():
                raise SparkJoinError(missing(batch, path))
        return paths

    def take(self, batch: int, files: Sequence[str], to: Sequence[Path]) -> None:
        """Rename files of a batch to the paths `to`; files that an earlier attempt renamed stay.

        A crash may follow every step; afterwards all steps run again.
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
        """Remove the staging directories of batches before this one."""
        with explained(self.root, "removing old staging directories"):
            if not self.root.is_dir():
                return
            for path in sorted(self.root.iterdir()):
                batch = batch_named(path.name.removeprefix(_COLLECTED))
                if batch is not None and batch < before_batch:
                    # A task that Spark has given up may still write here; the next call removes its files.
                    shutil.rmtree(path, ignore_errors=True)


def checked_names(files: Sequence[str]) -> list[str]:
    """Return the names of a batch's files. Raises SparkJoinError for a name that readers skip, or that occurs twice."""
    names = list(files)
    for name in names:
        if not name or "/" in name or name[0] in "._" or GLOB.intersection(name):
            raise SparkJoinError(
                f"result file {name!r}: give the plain name of a file in the staging directory; it must not begin with"
                " '.' or '_', because readers skip such names"
            )
    if len(set(names)) < len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise SparkJoinError(f"result file {doubled!r} is named twice; name each file once")
    return names


def row_count(path: Path) -> int:
    """Return the number of rows of a Parquet file. Reads its footer."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except pa.ArrowInvalid as problem:
        raise SparkJoinError(
            f"{path} is not a whole Parquet file ({problem}), although its batch is committed; restore it from a"
            " backup, or start with a new checkpoint"
        ) from problem


def read_batches(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Parquet files in order, some ten thousand at a time, without reading ahead."""
    for path in paths:
        # By default a ParquetFile keeps all bytes that it has read until it is closed.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(_READ_ROWS, use_threads=False)


def missing(batch: int, path: Path) -> str:
    return (
        f"{path}: this result file of batch {batch} is missing, although the batch is committed; restore it from a"
        " backup, or start with a new checkpoint"
    )

"""The common part of sinks that keep results in a directory: its owner, its content, and the files of each batch."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.local_path import local_path
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging, explained
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.storage.durable import RESULT_DIRECTORY, make_directories

if TYPE_CHECKING:
    import pyarrow as pa


class DirectorySink(Sink):
    """A sink with a directory that contains only its results; base of ParquetSink and TransactionSink.

    path   directory that is created if missing; the driver and all workers reach it under this path
    """

    options = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path, type(self).__name__)
        self._files = Staging(self.path / "_staging")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> DirectorySink:
        if "path" not in options:
            raise SparkJoinError(f"format {cls.name!r} needs a path: call start(path), or option('path', …)")
        return cls(options["path"])  # as text: pathlib would turn s3://… into a relative path

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Check that the directory is writable, belongs to this job, and has only files of this kind of sink.

        Raises a SparkJoinError that names the path and a remedy.
        """
        if self.path.exists() and not self.path.is_dir():
            raise SparkJoinError(f"{self.path} is a file; give a directory for the results")
        with explained(self.path, "preparing the directory of results"):
            names = sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []
            foreign = [name for name in names if name[0] not in "._" and not self._makes(name)]
            if foreign:
                raise SparkJoinError(
                    f"{self.path} holds {foreign[0]!r}, which no job published there; give an empty directory, or one"
                    " to which this job published"
                )
            make_directories(*self._directories(), mode=RESULT_DIRECTORY)
            claim(self.path, job, self._has_batches())
        self._files.prepare()
        staging, final = self._files.root, self._directories()[0]
        if os.stat(staging).st_dev != os.stat(final).st_dev:
            raise SparkJoinError(
                f"{staging} is on another file system than {final}, so files cannot be renamed from one to the other;"
                " unmount it"
            )
        self._staging, self._schema = self._files, schema

    @abstractmethod
    def _makes(self, name: str) -> bool:
        """Return whether this kind of sink creates visible entries of this name."""

    @abstractmethod
    def _directories(self) -> Sequence[Path]:
        """Return the directories to create at the start. The first one receives the files of batches."""

    @abstractmethod
    def _has_batches(self) -> bool:
        """Return whether the directory has published results."""


def check_same(place: Path | str, batch: int, there: set[str], files: set[str]) -> None:
    """Raise SparkJoinError if a published batch has other files than the files to publish."""
    differing = sorted(there ^ files)
    if differing:
        raise SparkJoinError(
            f"{place} holds batch {batch} with other files than the job has for it: only one of the two has"
            f" {differing[0]!r}. Either the manifest of the published batch was lost, and the batch was joined again:"
            f" restore {batch_name(batch)}.manifest and its copy in the checkpoint from a backup, or start with a new"
            " checkpoint and a new directory of results. Or two jobs publish here: give each job a directory of its own"
        )

"""The sinks whose results stay in a directory: what may be in it, whose it is, and which files a batch has there."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.ownership import claim
from eddy.spark.streaming.sinks.staging import Staging, explained, local_path
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.durable import RESULT_DIRECTORY, make_directories

if TYPE_CHECKING:
    import pyarrow as pa


class DirectorySink(ABC):
    """A sink with a directory for its results alone; ParquetSink and TransactionSink are.

    path   made if need be; the driver and all workers have it under this name
    """

    name = "directory"
    writes = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path, type(self).__name__)
        self._staging = Staging(self.path / "_staging")

    def prepare(self, *, schema: pa.Schema, owner: str, scratch: Path) -> None:
        """See that the directory can be written, is no other job's, and holds nothing but what this kind of sink makes.

        Raises SparkJoinError that names the path and what to do.
        """
        if self.path.exists() and not self.path.is_dir():
            raise SparkJoinError(f"{self.path} is a file; give a directory for the results")
        with explained(self.path, "preparing the directory of results"):
            names = sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []
            foreign = [name for name in names if name[0] not in "._" and not self._makes(name)]
            if foreign:
                raise SparkJoinError(
                    f"{self.path} holds {foreign[0]!r}, which no job published there; give an empty directory, or one"
                    " this job published to"
                )
            make_directories(*self._directories(), mode=RESULT_DIRECTORY)
            claim(self.path, owner, self._has_batches())
        self._staging.prepare()
        staging, final = self._staging.root, self._directories()[0]
        if os.stat(staging).st_dev != os.stat(final).st_dev:
            raise SparkJoinError(
                f"{staging} is on another file system than {final}, so nothing can be renamed from one to the other;"
                " unmount it"
            )

    def staging(self, batch: int) -> Path:
        return self._staging.of(batch)

    def clean(self, before_batch: int) -> None:
        self._staging.clean(before_batch)

    @abstractmethod
    def _makes(self, name: str) -> bool:
        """Say whether a name in the directory, one that readers see, may be of this sink."""

    @abstractmethod
    def _directories(self) -> Sequence[Path]:
        """Return the directories that are made at the start, that to which files are renamed first."""

    @abstractmethod
    def _has_batches(self) -> bool:
        """Say whether results were published."""


def check_same(place: Path, batch: int, there: set[str], files: set[str]) -> None:
    """Raise SparkJoinError if a batch that is published at a place has other files than it is to be published with."""
    differing = sorted(there ^ files)
    if differing:
        raise SparkJoinError(
            f"{place} holds batch {batch} with other files than it has now: {differing[0]!r} is in one of the two only."
            " Either the manifest it was published by is lost, and the batch was joined again: restore"
            f" {batch_name(batch)}.manifest and its copy in the checkpoint from a backup, or start with a new"
            " checkpoint and a new directory of results. Or two jobs publish here: give each a directory of its own"
        )

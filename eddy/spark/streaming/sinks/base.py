"""What a job asks of a sink."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class Sink(Protocol):
    """A place for results. A job prepares it once, then for each batch asks for staging, commits, and publishes.

    name    for messages
    writes  whether results are to be written at all; if not, they are only counted, and nothing is staged
    """

    @property
    def name(self) -> str: ...

    @property
    def writes(self) -> bool: ...

    def prepare(self, *, schema: pa.Schema, owner: str, scratch: Path) -> None:
        """See that the place can be used, before the first batch of a run.

        schema   of the results, as the query has it
        owner    what the job is known by from run to run; a place that another job publishes to is refused
        scratch  a directory of the job that the driver and all workers have under this name; it outlives a run, and
                 sinks without a place of their own stage in it

        Raises SparkJoinError that names the path and what to do.
        """
        ...

    def staging(self, batch: int) -> Path:
        """Return the directory in which the tasks of a batch write Parquet files; it is there.

        Each try of a task takes a name not used before, that begins with neither '.' nor '_'. Before the batch is
        committed its files are whole and synced, and so is this directory. It is on the file system of the final place.
        """
        ...

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Make the results of a committed batch seen: `files` of its staging directory, and no others.

        Called again with the same files after a crash, as often as need be. Batches come in order. Raises
        SparkJoinError that names the path and what to do; the call may then be made again.
        """
        ...

    def clean(self, before_batch: int) -> None:
        """Remove the staging directories of batches before this one, all of which were published."""
        ...

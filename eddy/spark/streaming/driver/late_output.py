"""Counts and logs late rows on the driver, and passes them to the user's functions.

The driver calls a function after the commit of a batch and before it marks the batch as published, as with
`foreachBatch`. If the driver dies in between, or the function raises, the next start calls the function again with the
same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from eddy.query.query import Query
from eddy.results.failed_rows import FAILED
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.late_files import check_late_file
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.worker.tasks import LateCount
from eddy.streams.late_options import Failed, Late
from eddy.streams.span_texts import span_text
from eddy.streams.table import Table

LOG = logging.getLogger(__name__)


class JobLateOutput:
    """Late rows of a job.

        query      the query that the workers run
    choices    per stream, what happens to its late rows
    failed     what happens to failed rows
    locations  have the files of late rows
    """

    def __init__(self, query: Query, choices: Sequence[Late], failed: Failed, locations: Locations) -> None:
        self._query = query
        self._choices = choices
        self._locations = locations
        self._on_failed = failed
        self._counts = [0] * len(query.streams)
        self._failed = 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of late rows of each stream since the start."""
        return {stream.name: count for stream, count in zip(self._query.streams, self._counts, strict=True)}

    def count(self, batch: int, counts: Iterable[Mapping[int, LateCount]]) -> None:
        """Add the late rows of a committed batch, given the counts of its tasks; log the first late row of each
        stream."""
        sums: dict[int, LateCount] = {}
        for part in counts:
            for i, count in part.items():
                sums[i] = sums.get(i, LateCount()).plus(count)
        for i, (rows, behind) in sorted(sums.items()):
            stream = self._query.streams[i]
            if not self._counts[i] and isinstance(stream, Table):
                LOG.warning(
                    f"{stream.place}: batch {batch} has its first stale changes since the start: {rows:,} changes with"
                    f" a {stream.version} less than that of an earlier change of their key. They are only counted"
                )
            elif not self._counts[i]:
                name, kind = self._query.streams[i].name, self._query.time_type
                assert kind is not None
                span = span_text(behind, kind)
                kept = "They are only counted" if self._choices[i] == "count" else f"late({name!r}) returns them"
                LOG.warning(
                    f"stream {name}: batch {batch} has its first late rows since the start: {rows:,} rows, which do not"
                    f" join. The oldest is {span} older than the watermark; increase lateness in join(…, lateness=…) by"
                    f" {span} to accept such rows. {kept}"
                )
            self._counts[i] += rows

    @property
    def failed_count(self) -> int:
        """Number of failed rows since the start that were kept."""
        return self._failed

    def count_failed(self, batch: int, rows: int) -> None:
        """Count the failed rows of a committed batch, and log the first ones."""
        if rows and not self._failed:
            LOG.warning(
                f"batch {batch} has the first failed rows since the start: {rows:,} rows for which an expression of the"
                " query has no value. They are left out of the results; failed() returns them with the reasons"
            )
        self._failed += rows

    def _hand_over_failed(self, batch: int, file: str) -> None:
        """Pass failed rows to the function that takes them. Raises SparkJoinError if the function raises."""
        if not callable(self._on_failed):
            return
        path = self._path(file)
        with pq.ParquetFile(path) as reader:
            rows = reader.read().select(FAILED.names).cast(FAILED)
        try:
            self._on_failed(rows)
        except Exception as problem:
            raise SparkJoinError(
                f"the function for failed rows failed in batch {batch}: {type(problem).__name__}: {problem}; the batch"
                " is committed and its results are published, and the next start of the job calls the function again"
                " with the same rows"
            ) from problem

    def _path(self, file: str) -> Path:
        """Return the path of a file of late rows, which is checked."""
        path = self._locations.late / file
        self._locations.fetch(path)
        check_late_file(path)
        return path

    def hand_over(self, manifest: Manifest) -> None:
        """Pass the late rows of a batch to functions, one file per call. Raises SparkJoinError if a function raises."""
        for file in manifest.late:
            if file.stream is None:
                self._hand_over_failed(manifest.batch, file.file)
                continue
            choice, stream = self._choices[file.stream], self._query.streams[file.stream]
            if not callable(choice):
                continue
            with pq.ParquetFile(self._path(file.file)) as reader:
                rows = reader.read().cast(stream.late_schema)
            try:
                choice(stream.name, rows)
            except Exception as problem:
                raise SparkJoinError(
                    f"stream {stream.name}: the function for late rows failed in batch {manifest.batch}:"
                    f" {type(problem).__name__}: {problem}; the batch is committed and its results are published, and"
                    " the next start of the job calls the function again with the same rows"
                ) from problem

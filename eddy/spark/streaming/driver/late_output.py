"""Late rows on the driver, after the commit of their batch: counted, told, and handed to functions.

A function is called like one given to `foreachBatch`: between the commit of a batch and the note that it was published.
If the driver dies or the function raises before that note, it is called again with the same rows at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from eddy.query.lateness import Late, span_text
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.worker.join_stage import LateFigures

LOG = logging.getLogger(__name__)


class LateOutput:
    """What the driver does with the late rows of a job.

    query      as the workers run it
    choices    per stream, what becomes of its late rows
    directory  where the files of late rows are
    """

    def __init__(self, query: Query, choices: Sequence[Late], directory: Path) -> None:
        self._query = query
        self._choices = choices
        self._directory = directory
        self._counts = [0] * len(query.streams)

    @property
    def counts(self) -> dict[str, int]:
        """Late rows of each stream since the start."""
        return {stream.name: count for stream, count in zip(self._query.streams, self._counts, strict=True)}

    def note(self, batch: int, found: Iterable[Mapping[int, LateFigures]]) -> None:
        """Count the late rows of a batch just committed, given what each task found; log the first of each stream."""
        sums: dict[int, LateFigures] = {}
        for part in found:
            for i, figures in part.items():
                sums[i] = sums.get(i, LateFigures()).plus(figures)
        for i, (rows, behind) in sorted(sums.items()):
            if not self._counts[i]:
                name, kind = self._query.streams[i].name, self._query.time_type
                assert kind is not None
                span = span_text(behind, kind)
                goes = "They are counted only" if self._choices[i] == "count" else f"They are kept for late({name!r})"
                LOG.warning(
                    f"stream {name}: its first late rows since the start came in batch {batch}, {rows:,} in all. They"
                    f" join nothing. The oldest is {span} older than the watermark; join(…, lateness=…) with {span}"
                    f" more would let such rows in. {goes}"
                )
            self._counts[i] += rows

    def hand_over(self, manifest: Manifest) -> None:
        """Give the late rows of a batch to functions, a file at a time. Raises SparkJoinError from what they raise."""
        for file in manifest.late:
            assert file.stream is not None
            choice, stream = self._choices[file.stream], self._query.streams[file.stream]
            if not callable(choice):
                continue
            with pq.ParquetFile(self._directory / file.file) as reader:
                rows = reader.read().cast(stream.schema)
            try:
                choice(stream.name, rows)
            except Exception as problem:
                raise SparkJoinError(
                    f"stream {stream.name}: the function that takes late rows failed in batch {manifest.batch}:"
                    f" {type(problem).__name__}: {problem}; the batch is committed and its results are published, and"
                    " the call will be made again with the same rows when the job is started again"
                ) from problem

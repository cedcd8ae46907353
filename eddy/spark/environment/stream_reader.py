"""Sources of streams in Python, for every version of Spark: a source is written for Spark 4.2 and read by older ones.

Since 4.2 Spark gives a source the start of a micro-batch and a limit, and prepares it for the trigger `availableNow`.
Before, it asks for the latest offset only, so `OlderReader` keeps the start itself. What an older version cannot do:

  - A limit of a source that Spark itself reads has no effect with `availableNow`, as Spark asks once; such a source
    must refuse a limit (`require_limits`).
  - A source with several micro-batches under `availableNow` is prepared at its creation, and the caller stops the query
    when nothing is left (`streaming/driver/streaming_query.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from eddy.spark.environment.spark_version import limits_reads
from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING or limits_reads():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit of what one micro-batch reads, as in Spark 4.2."""

        def __init__(self, most: int = 0) -> None:
            self.most = most

    class ReadAllAvailable(ReadLimit):
        """No limit, as in Spark 4.2."""

    class ReadMaxFiles(ReadLimit):
        """A number of files, as in Spark 4.2."""

    class ReadMaxRows(ReadLimit):
        """A number of rows, as in Spark 4.2."""

    class SupportsTriggerAvailableNow:
        """A source that can end with what is there now, as in Spark 4.2."""


__all__ = [
    "LimitedReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "reader_of",
    "require_limits",
]


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A source in the form of Spark 4.2: `latestOffset(start, limit)`, `getDefaultReadLimit`, and so on."""


def require_limits(what: str) -> None:
    """Raise SparkJoinError if this version of Spark cannot limit what a source in Python reads."""
    if not limits_reads():
        import pyspark

        raise SparkJoinError(
            f"{what} needs Spark 4.2 or newer, and this is {pyspark.__version__}: leave it out, or read the source"
            " through a join whose workers read their input (transport 'packed')"
        )


def reader_of(source: LimitedReader, now: bool = False) -> DataSourceStreamReader:
    """Return a source in the form that this version of Spark reads.

    now   before 4.2: whether the query ends with what is there now; Spark 4.2 says so itself
    """
    return source if limits_reads() else OlderReader(source, now)


class OlderReader(DataSourceStreamReader):
    """A source for Spark 4.0 and 4.1, which ask for the latest offset without saying where the micro-batch starts.

    It starts where the last one ended. After a restart Spark calls `partitions` with the last offset of its log before
    it asks for a new one.
    """

    def __init__(self, source: LimitedReader, now: bool) -> None:
        self._source = source
        self._start: dict[str, Any] | None = None
        if now:
            source.prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:
        first = self._source.initialOffset()
        if self._start is None:  # Spark also asks for it after the first latest offset
            self._start = first
        return first

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._start is None:
            self.initialOffset()
        assert self._start is not None
        self._start = self._source.latestOffset(self._start, self._source.getDefaultReadLimit())
        return self._start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._start = end
        return self._source.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._source.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._source.commit(end)

    def stop(self) -> None:
        self._source.stop()

"""Aggregates of a streaming join: an operator on the driver between the results of a batch and the sink.

    tasks -> files of results - manifest - operator -> file of groups -> state of groups -> sink

A group may have results from all partitions, so one operator sees all of them. It takes them when their batch is
committed, in the order of batches, with the watermark after the batch. Nothing depends on how the results were dealt to
files, because aggregates do not depend on the order of rows. The state after a batch is durable before the sink gets
the rows. So a batch that is published again, after a stop at any point, has the same rows, and each result counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.aggregates.groups import Groups
from eddy.query.query import Query
from eddy.query.ungrouped import ungrouped
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.groups.batch import as_rows
from eddy.spark.groups.state import GroupsFiles
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.sinks.staging import read_batches
from eddy.spark.streaming.worker.output_files import ResultFile
from eddy.spark.types import spark_schema
from stairs.memory.allowance import Allowance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GroupsSink(Sink):
    """Takes the results of a streaming join and gives the rows of their groups to another sink.

    watermark   the one after the batch to be published, in ticks
    """

    def __init__(self, inner: Sink, query: Query, root: Path) -> None:
        self._inner, self._query = inner, query
        self._files = GroupsFiles(root, query)
        self._groups: Groups | None = None
        self._batch: int | None = None
        """The batch after which `_groups` are; None before the first."""
        self.watermark: int | None = None

    def prepare(self, *, schema: pa.Schema, owner: str, scratch: Path) -> None:
        """See `Sink.prepare`; the inner sink gets the schema of groups."""
        self._files.check()
        super().prepare(schema=schema, owner=owner, scratch=scratch / "joined")
        self._inner.prepare(schema=self._query.output_schema, owner=owner, scratch=scratch)
        self._files.begin()

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Aggregate the results of a batch, and publish the rows of groups that they complete."""
        done = self._files.batches()
        if batch in done:
            given: Sequence[str] = self._files.read(batch).files
        else:
            given = self._aggregate(batch, files, done)
        self._inner.publish(batch, given, spark)

    def _aggregate(self, batch: int, files: Sequence[str], done: list[int]) -> list[str]:
        before = max((one for one in done if one < batch), default=None)
        groups = self._groups
        if groups is None or self._batch != before:
            groups = Groups(self._query, False, False, Allowance())
            if before is not None:
                self._files.fill(self._files.read(before), groups)
        # Set again when the batch is complete: after an exception the groups are read anew.
        self._groups = None
        rows = pa.Table.from_batches([*read_batches(self.paths(batch, files))]) if files else None
        found, commit = groups.follow(as_rows(self._query, rows), self.watermark, False)
        groups.commit(commit)
        given: list[str] = []
        if self._inner.writes:
            out = ResultFile(self._inner.staging(batch), 0, spark_schema(self._query.output_schema))
            out.write(found)
            given = [one.file for one in out.close()]
        self._files.write(batch, groups, self.watermark, given)
        self._groups, self._batch = groups, batch
        return given

    def clean(self, before_batch: int) -> None:
        """See `Sink.clean`."""
        super().clean(before_batch)
        self._inner.clean(before_batch)
        self._files.clean(before_batch)


def sink_of(inner: Sink, query: Query | None, root: Path, begun: bool) -> Sink:
    """Return the sink of a job; query: the one with aggregates, None without; begun: whether the checkpoint is used.

    Raises StreamingStateError for a checkpoint that was begun the other way.
    """
    found = (root / "groups").exists()
    if query is None:
        if found:
            raise StreamingStateError(f"the checkpoint {root} belongs to a join with aggregates; use a new one")
        return inner
    if begun and not found:
        raise StreamingStateError(
            f"the checkpoint {root} belongs to a join without aggregates, whose earlier results are not counted; use a"
            " new one"
        )
    return GroupsSink(inner, query, root)


def without_groups(query: Query) -> Query:
    """Return the streaming join whose results a query aggregates.

    Raises SparkJoinError for aggregates that a streaming join cannot give.
    """
    assert query.aggregation is not None
    window = query.aggregation.window
    if len(query.streams) == 1:
        raise SparkJoinError(
            "a streaming join has two streams or more: aggregate one stream with Spark,"
            " frame.withWatermark(…).groupBy(window(…)), or in an eddy.Engine"
        )
    if window is None:
        raise SparkJoinError(
            "a streaming join gives each row once, and these aggregates change for ever: give the query a group_window,"
            " in SQL GROUP BY TUMBLE, HOP or SESSION; or publish the results with the sink 'transactions' and aggregate"
            " them with Spark: stream_transactions(…).groupBy(…)"
        )
    if window.slack is None:
        raise SparkJoinError(
            "group_window: results with any event time may come, because the stream whose time counts has no Range"
            " window or interval; give it one, or leave time= out"
        )
    return ungrouped(query)

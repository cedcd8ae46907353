"""Aggregates and first rows of a streaming join: an operator on the driver between results of a batch and the sink.

    tasks -> files of results - manifest - operator -> file of groups -> state of groups -> sink

A group may have results from all partitions, so one operator gets all results. The operator takes the results of a
batch after its commit, in the order of batches, with the watermark after the batch. The distribution of results over
files has no influence, because aggregates do not depend on the order of rows. The state after a batch is durable before
the sink gets the rows. So a batch that is published again, after a stop at any point, has the same rows, and each
result counts once.

The groups of a batch are computed from the groups of the previous batch. The manifests state with which batch the
groups began, so only this batch has no previous groups.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.query.query import Query
from eddy.spark.errors import StreamingStateError
from eddy.spark.groups.operators import ResultOperator, operator_of
from eddy.spark.groups.state import GroupsFiles, TakenBatch
from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.sinks.staging import read_batches
from eddy.spark.streaming.worker.output_files import ResultFile
from eddy.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.state.locations import Locations
    from eddy.spark.streaming.state.manifest import Manifest

GROUPS_BEGIN = "groups_begin"
"""Key of the first batch whose results are aggregated in `extra` of manifests; the value is None without aggregates."""


class ManifestSink(Sink):
    """A sink that follows the manifests: `committed` comes before each `publish`."""

    @abstractmethod
    def committed(self, manifest: Manifest) -> None:
        """Take the newest manifest. Raises StreamingStateError if it does not belong to this sink."""


class GroupsSink(ManifestSink):
    """Takes the results of a streaming join and passes the rows of their groups to another sink.

    place   directory of the groups below the checkpoint
    after   only windows that begin after this time are given; None = all windows
    name    of the query in a hub, None for a job of its own

    Call `committed` before each `publish`, and before `prepare` if a batch is committed.
    """

    def __init__(
        self,
        inner: Sink,
        query: Query,
        locations: Locations,
        *,
        place: str = "groups",
        after: int | None = None,
        name: str | None = None,
    ) -> None:
        self._inner, self._query, self._locations, self._after = inner, query, locations, after
        self._files = GroupsFiles(locations, query, place, name)
        self._groups: ResultOperator | None = None
        self._given = operator_of(query).schema
        self.n_rows = 0
        """Rows of groups given since the start."""
        self._batch: int | None = None
        """The newest batch in `_groups`; None before the first batch."""
        self._first: int | None = None
        self._watermark: int | None = None

    @property
    def _title(self) -> str:
        return self._inner._title

    @property
    def recoveries(self) -> list[str]:
        """Texts on files of groups that were restored from their copies."""
        return self._files.recoveries

    def committed(self, manifest: Manifest) -> None:
        """See `ManifestSink`; raises StreamingStateError for a checkpoint without aggregates."""
        first = manifest.extra[GROUPS_BEGIN]
        if first is None:
            raise StreamingStateError(
                f"the checkpoint {self._locations.root} belongs to a join without aggregates and top, whose earlier"
                " results are not counted; use a new one"
            )
        self.follows(first, manifest.watermarks["engine"])

    def follows(self, first: int, watermark: int | None) -> None:
        """Take the first batch of the groups, and the watermark after the newest batch."""
        self._first, self._watermark = first, watermark

    def check(self, batch: int, results: Sequence[str], published: bool) -> None:
        """Raise StreamingStateError unless the groups after a committed batch exist, or can be made.

        The groups can be made while the batch is not published, from the groups of the previous batch.
        """
        if not self._made(batch, results):
            before = self._before(batch)
            if published:
                self._files.check(batch)
                raise StreamingStateError(
                    f"{self._files.path(batch)} has the groups of other results of the join than the manifest of batch"
                    f" {batch}, whose groups were published; restore both from one backup, or start with a new"
                    " checkpoint"
                )
            if before is not None:
                self._files.check(before)
        else:
            self._files.check(batch)

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """See `Sink.prepare`; the inner sink gets the schema of groups."""
        self.begin(schema, job, scratch)
        self._inner.prepare(schema=self._given, job=job, scratch=scratch)

    def begin(self, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Prepare the sink apart from the inner one; see `Sink.prepare`."""
        super().prepare(schema=schema, job=job, scratch=scratch / "joined")
        self._files.begin()

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        """Aggregate the results of a batch, and publish the rows of groups that they complete."""
        made = self._made(batch, files)
        given: Sequence[str] = self._aggregate(batch, files) if made is None else made.files
        self._inner.publish(batch, given, spark)

    def _made(self, batch: int, results: Sequence[str]) -> TakenBatch | None:
        """Return the groups after a batch, None if they are not made of these results.

        If the manifest that named the result files is lost, another attempt to join the batch makes other files.
        """
        if not self._files.has(batch):
            return None
        try:
            saved = self._files.read(batch)
        except StreamingStateError:
            return None  # `check` raises it where nothing else has the groups
        return saved.taken if saved.taken.results == tuple(results) else None

    def _before(self, batch: int) -> int | None:
        """Return the batch whose groups precede those of a batch, None for the first groups."""
        return None if batch == self._first else batch - 1

    def _aggregate(self, batch: int, files: Sequence[str]) -> list[str]:
        before = self._before(batch)
        groups = self._groups
        if groups is None or self._batch != before:
            groups = operator_of(self._query, self._after)
            if before is not None:
                self._files.fill(before, groups)
        # The attribute is set again when the batch is complete: after an exception the groups are read again.
        self._groups = None
        rows = pa.Table.from_batches([*read_batches(self.paths(batch, files))]) if files else None
        group_rows, failed = groups.follow(rows, self._watermark, batch)
        self.n_rows += len(group_rows)
        if failed and self._query.failed != "count":
            self._files.write_failed(batch, failed)
        given: list[str] = []
        if self._inner.writes:
            # The rows follow from the results: if the groups are made again, the sink finds the file that it published.
            keep, of = self._locations.keep, " ".join(files)
            out = ResultFile(self._inner.staging(batch), 0, spark_schema(self._given), keep, of)
            out.write(group_rows)
            given = [written.file for written in out.close()]
        self._files.write(batch, groups, rows, TakenBatch(tuple(files), tuple(given), self._watermark))
        self._groups, self._batch = groups, batch
        return given

    def clean(self, before_batch: int) -> None:
        """See `Sink.clean`."""
        super().clean(before_batch)
        self._inner.clean(before_batch)
        self._files.clean(before_batch)


def sink_of(inner: Sink, query: Query | None, locations: Locations, begun: bool) -> Sink:
    """Return the sink of a job.

    query   the query with aggregates or `top`, None without
    begun   whether the checkpoint has been used

    Raises StreamingStateError for a checkpoint that began with aggregates if `query` is None, and vice versa.
    """
    root = locations.root
    grouped = (root / "groups").exists()
    if query is None:
        if grouped:
            raise StreamingStateError(f"the checkpoint {root} belongs to a join with aggregates or top; use a new one")
        return inner
    if begun and not grouped:
        raise StreamingStateError(
            f"the checkpoint {root} has no directory 'groups'. If it belongs to a join without aggregates and top,"
            " use a new one, because its earlier results are not counted; if the directory is lost, restore it from a"
            " backup"
        )
    return GroupsSink(inner, query, locations)

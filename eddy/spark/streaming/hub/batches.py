"""The micro-batches of a hub: those of a join, with the versions of all queries in each."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.hops.placing import Placement
from eddy.spark.streaming.driver.batch_plan import BatchPlan
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.distribution import distribute
from eddy.spark.streaming.driver.micro_batch import MicroBatches
from eddy.spark.streaming.driver.operator_works import Above, check_files
from eddy.spark.streaming.driver.settings import Settings
from eddy.spark.streaming.hub.queries import HubQueries
from eddy.spark.streaming.hub.saved import SAVED
from eddy.spark.streaming.state.batch_names import batch_of
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import BatchTask, PartitionReport, VersionReport, VersionTask
from eddy.streams.keyed import KeyedInput
from stairs.storage.json_form import Form


class HubBatches(MicroBatches):
    """Runs the micro-batches of a hub. Raises SparkJoinError for queries that do not resume those of the checkpoint."""

    EXTRA: ClassVar[Mapping[str, Form]] = {"hub": SAVED}
    KEEPS_PLANS: ClassVar[bool] = False  # an engine has several joins, and after a change it has other joins

    def __init__(self, context: JobContext, settings: Settings, queries: HubQueries) -> None:
        self._queries = queries
        super().__init__(context, settings)
        try:
            self._check_published(context.checkpoint)
            if self.manifest is not None:
                published = context.checkpoint.is_published(self.manifest.batch)
                queries.restore(self.manifest.extra["hub"], self.manifest.batch, published)
                for state in self.manifest.operators.values():
                    check_files(state, context.locations)
                if not context.checkpoint.is_published(self.manifest.batch):
                    for name in {file.file.partition("/")[0] for file in self.manifest.results}:
                        if name not in queries.sinks.dropped:
                            queries.sinks.of(name)
        except BaseException:
            self.close()
            raise
        streams = [i for i, stream in enumerate(context.job.query.streams) if not isinstance(stream, KeyedInput)]
        self._maintenance.asking = dict.fromkeys(self._maintenance.asking, streams)

    def _check_published(self, checkpoint: Checkpoint) -> None:
        """Raise StreamingStateError if the results of a batch are published whose manifest is lost.

        If an element took effect in the batch, a replay would use other versions of queries than the results did.
        """
        marks = (batch_of(name) for name in os.listdir(checkpoint.published))
        published = max((batch for batch in marks if batch is not None), default=None)
        newest = None if self.manifest is None else self.manifest.batch
        if published is not None and (newest is None or published > newest):
            raise StreamingStateError(
                f"{checkpoint.manifests}: the manifest of batch {published} is lost, and with it the versions of its"
                " queries, but its results are published; restore the file or its copy from a backup, or start with a"
                " new checkpoint"
            )

    def query_rows(self) -> list[tuple[str, str, int, int, str]]:
        """Return name, state, newest version, results and text of each query."""
        return self._queries.rows()

    def place(self, placement: Placement) -> None:
        """Raise SparkJoinError: the queries of a hub share the engines of its key groups."""
        raise SparkJoinError(
            f"place({placement!r}): the queries of a hub share the engines of its key groups, so a hub runs in one"
            " round; start the query with eddy.spark.join to place its steps"
        )

    def _check_one_plan(self, call: str) -> None:
        """Raise SparkJoinError: each engine of a hub has a join for each graph of its queries."""
        raise SparkJoinError(
            f"{call}: the queries of a hub share engines, and each engine chooses the plans of their joins; start the"
            " query with eddy.spark.join to choose its plan, or give the hub another policy at its next start"
        )

    def explain(self) -> str:
        """Return a text on the job, its queries, and its state after the newest batch."""
        return "\n".join([*self._queries.lines(), super().explain()])

    def _why_undealt(self) -> list[str | None]:
        why = "the queries of a hub change, and one without the stream would have its results from each fragment"
        return [why for _ in self._context.job.query.streams]

    def _begin(self, batch: int) -> None:
        self._queries.begin(batch, self._watermarks)

    def _versions(self, batch: int) -> tuple[VersionTask, ...]:
        return self._queries.versions(batch)

    def _check_operators(self) -> None:
        """Check nothing: the queries are not known yet."""

    def _above(self, batch: int) -> Sequence[Above]:
        return self._queries.above(batch)

    def _distribute(self, plan: BatchPlan, holdings: Sequence[Holding], movable: bool) -> list[BatchTask]:
        works = distribute(plan.tasks, plan.layout.partition_map.n, holdings, plan.groups, movable=False)
        blobs = self._queries.blobs()
        return [
            replace(
                work,
                versions=tuple(blobs),
                queries={key: data for key, data in blobs.items() if key not in holding.queries},
            )
            for work, holding in zip(works, holdings, strict=True)
        ]

    def _owned(
        self, batch: int, plan: BatchPlan, reports: Sequence[PartitionReport]
    ) -> tuple[tuple[OutputFile, ...], dict[str, Any]]:
        by_version: dict[str, VersionReport] = defaultdict(VersionReport)
        for report in reports:
            for key, version_report in report.versions.items():
                by_version[key].add(version_report)
        for report in reports:
            for key, operator in report.operators.items():
                # The joined rows are in no file.
                by_version[key].files += operator.files
                by_version[key].above_rows += operator.rows
        files, saved = self._queries.owned(batch, plan.watermarks, by_version)
        self._maintenance.spans, self._maintenance.bounds = self._queries.spans(), self._queries.bounds()
        return files, {"hub": saved}

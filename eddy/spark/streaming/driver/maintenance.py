"""Maintenance of the log: compaction of long chains, and retention of the files that manifests name.

A thread of the driver runs compaction in parallel with the micro-batches. Compaction reads links of the log and writes
one link that replaces them; the next manifest names the new link in their place. Compaction is not a Spark job: the
tasks of a micro-batch all start at once, so they would wait for the slot of any other task.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from eddy.log import LOG
from eddy.spark.partitioning.latest import latest, latest_versions
from eddy.spark.partitioning.split_tree import SplitTree, own_rows
from eddy.spark.partitioning.ties import sort_ties
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.compaction import Chosen, Horizon, compact, part
from eddy.spark.streaming.state.manifest import GroupState, Manifest, ManifestLink
from eddy.spark.streaming.state.retention import retain
from eddy.spark.streaming.state.segments import Segment
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable

TOGETHER_BYTES = 64 << 20
"""Bytes of segments that a compaction gets from an object store at once; of more, it gets those of one key group."""


class Maintenance:
    """Compaction and retention of one job.

    keep   number of manifests to keep
    """

    def __init__(self, context: JobContext, keep: int) -> None:
        self._context = context
        self._keep = keep
        self.spans: Sequence[int | None] = context.job.query.spans
        """Per stream, the ticks for which a row matters to later results; None: without limit."""
        self.bounds: frozenset[int] = frozenset()
        """Batches before and after which rows must not be in one link, because a version of a query distinguishes
        them."""
        job = context.job
        self._latest: dict[int, Chosen] = {
            i: partial(latest, stream) for i, stream in enumerate(job.query.streams) if isinstance(stream, Table)
        }
        self.asking: dict[int, Sequence[int]] = {
            join.table: () if join.at is None else (join.at,) for join in job.query.as_of_joins
        }
        """By versioned table the streams whose rows may ask for a version."""
        self._ties = {i: partial(sort_ties, job, i) for i in job.query.versioned_at}
        self._pool = ThreadPoolExecutor(1, "eddy maintenance")
        self._after_commit: Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._compacting: dict[int, tuple[ManifestLink, ...]] = {}
        self._links: dict[int, ManifestLink] = {}
        self._name: str | None = None
        self.problem: BaseException | None = None
        """The error of the newest compaction; the job continues without it."""

    def compacted(self, groups: Mapping[int, GroupState]) -> dict[int, GroupState]:
        """Return the states with finished compactions applied."""
        states = dict(groups)
        if self._thread is not None and not self._thread.is_alive():
            for group, link in self._links.items():
                state, replaced = states[group], self._compacting[group]
                # Links that were pruned in the meantime hold only dead rows.
                older = tuple(kept for kept in state.chain if kept.batch < replaced[0].batch)
                newer = tuple(kept for kept in state.chain if kept.batch > replaced[-1].batch)
                states[group] = replace(state, chain=(*older, *([link] if link.segments else []), *newer))
            self._thread, self._links = None, {}
        return states

    def begin(self, manifest: Manifest, frontier: int | None) -> None:
        """Begin the work after a commit, which runs while Spark plans the next micro-batch.

        The work deletes files that are no longer needed, and starts a compaction if a chain is long enough.
        """
        chosen = {**self._latest, **self._latest_versions(frontier)}
        horizon = Horizon(frontier, self.spans, chosen, self._ties)
        self._after_commit = self._pool.submit(self._work, manifest, horizon, self.bounds)

    def _latest_versions(self, frontier: int | None) -> dict[int, Chosen]:
        """Return by versioned table what returns the versions that a row may still get."""
        job, chosen = self._context.job, dict[int, Chosen]()
        for join in job.query.as_of_joins:
            table = job.query.streams[join.table]
            assert isinstance(table, VersionedTable)
            limit = frontier
            for span in (self.spans[stream] for stream in self.asking[join.table]):
                limit = None if frontier is None or limit is None or span is None else min(limit, frontier - span)
            times = cast(Callable[[pa.RecordBatch], np.ndarray], partial(job.positions, stream=join.table))
            chosen[join.table] = partial(latest_versions, table, times, limit)
        return chosen

    def check(self) -> None:
        """Wait until the work after the last commit is done; raise its error."""
        if self._after_commit is not None:
            after, self._after_commit = self._after_commit, None
            after.result()

    def _work(self, manifest: Manifest, horizon: Horizon, bounds: frozenset[int]) -> None:
        self._context.sink.clean(manifest.batch)
        in_use = {segment.file for chain in self._compacting.values() for link in chain for segment in link.segments}
        if self._name is not None:
            in_use.add(self._name)
        retain(self._context.checkpoint, self._keep, in_use=in_use if self._thread is not None else ())
        if self._thread is None:
            chains = {}
            for group, state in manifest.groups.items():
                links = mergeable(state.chain, horizon, bounds)
                if links:
                    chains[group] = links
            if chains:
                self._compacting = chains
                # Retention must know the name while the file is written.
                self._name = f"{batch_name(manifest.batch)}-base-{uuid.uuid4().hex}"
                shares = self._context.job.shares
                tree = SplitTree(shares.partitions, len(shares.counts), manifest.splits)
                self._thread = threading.Thread(
                    target=self._compact, args=(tree, horizon), name="eddy compaction", daemon=True
                )
                self._thread.start()

    def wait(self) -> None:
        """Wait until all work has ended; log its error. Idempotent."""
        self._pool.shutdown()
        if self._after_commit is not None and (problem := self._after_commit.exception()) is not None:
            LOG.warning("%s: the work after the last commit failed: %s", self._context.name, problem)
        thread = self._thread  # another thread may reset it in the meantime
        if thread is not None:
            thread.join()

    def _compact(self, tree: SplitTree, horizon: Horizon) -> None:
        job, locations = self._context.job, self._context.locations
        assert self._name is not None
        try:
            with locations.reader(job.logged) as reader, locations.writer(self._name) as writer:
                links = {}
                wanted = [segment for chain in self._compacting.values() for link in chain for segment in link.segments]
                if sum(segment.length for segment in wanted) <= TOGETHER_BYTES:
                    reader.expect(wanted)
                for group, chain in self._compacting.items():

                    def of_group(segment: Segment, rows: pa.RecordBatch, group: int = group) -> pa.RecordBatch:
                        return own_rows(job, tree, group, segment.stream, segment.splits, rows)

                    among = (writer, group, of_group, len(tree.splits))
                    links[group] = compact(reader, chain, job.positions, horizon, *among)
                writer.finish()
                self._links = links
            self.problem = None
        except Exception as problem:  # the chains stay as they are; the next batch tries again
            self._links, self.problem = {}, problem
            LOG.warning("%s: compaction of the log failed; the next batch tries again: %s", self._context.name, problem)


def mergeable(chain: tuple[ManifestLink, ...], horizon: Horizon, bounds: frozenset[int]) -> tuple[ManifestLink, ...]:
    """Return adjacent links to merge now, or no links; all links are on one side of each bound."""
    runs: dict[int, list[ManifestLink]] = {}
    for link in chain:
        runs.setdefault(sum(bound <= link.batch for bound in bounds), []).append(link)
    for run in runs.values():
        links = part(tuple(run), horizon)
        if links is not None:
            return tuple(run[links])
    return ()

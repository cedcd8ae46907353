"""Maintenance of the log: compaction of long chains, and retention of the files that manifests name.

A thread of the driver runs compaction as a Spark job of its own, next to the micro-batches. The Spark job reads links
of the log and writes one link that replaces them; the next manifest names it in their place. Micro-batches never wait
for it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eddy.log import LOG
from eddy.spark.job_description import described
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.compaction import compact, part
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import GroupState, Link, Manifest
from eddy.spark.streaming.state.retention import retain
from eddy.spark.streaming.state.segments import SegmentReader, SegmentWriter


@dataclass(frozen=True)
class _CompactionTask:
    """The work of one task: chains by key group, to compact into one log file."""

    name: str
    frontier: int | None
    chains: tuple[tuple[int, tuple[Link, ...]], ...]


class _CompactGroups:
    """The function that Spark runs on a task: it returns the link that replaces each chain, by key group."""

    def __init__(self, job: Job, locations: Locations, spans: Sequence[int | None]) -> None:
        self._job = job
        self._locations = locations
        self._spans = list(spans)

    def __call__(self, task: _CompactionTask) -> dict[int, Link]:
        schemas = [stream.schema for stream in self._job.query.streams]
        positions, frontier, log = self._job.positions, task.frontier, self._locations.log
        with SegmentReader(log, schemas) as reader, SegmentWriter(log, task.name) as writer:
            links = {
                group: compact(reader, chain, schemas, positions, frontier, self._spans, writer, group)
                for group, chain in task.chains
            }
            writer.finish()
        return links


class Maintenance:
    """Compaction and retention of one job.

    keep   number of manifests to keep
    """

    def __init__(self, context: JobContext, keep: int) -> None:
        self._context = context
        self._keep = keep
        self.spans = context.job.query.spans
        """Per stream, the ticks for which a row matters to later results; None: without limit."""
        self._thread: threading.Thread | None = None
        self._compacting: dict[int, tuple[Link, ...]] = {}
        self._links: dict[int, Link] = {}
        self._names: list[str] = []
        self.problem: BaseException | None = None
        """The error of the newest compaction; the job continues without it."""

    def compacted(self, groups: Mapping[int, GroupState]) -> dict[int, GroupState]:
        """Return the states with finished compactions applied."""
        found = dict(groups)
        if self._thread is not None and not self._thread.is_alive():
            for group, link in self._links.items():
                state, replaced = found[group], self._compacting[group]
                # Links that were pruned in the meantime hold only dead rows.
                older = tuple(one for one in state.chain if one.batch < replaced[0].batch)
                newer = tuple(one for one in state.chain if one.batch > replaced[-1].batch)
                found[group] = replace(state, chain=(*older, *([link] if link.segments else []), *newer))
            self._thread, self._links = None, {}
        return found

    def after(self, manifest: Manifest, frontier: int | None) -> None:
        """Delete files that are no longer needed after a commit, and start a compaction if a chain is long enough."""
        self._context.sink.clean(manifest.batch)
        in_use = {one.file for chain in self._compacting.values() for link in chain for one in link.segments}
        in_use.update(self._names)
        retain(self._context.checkpoint, self._keep, in_use=in_use if self._thread is not None else ())
        if self._thread is None:
            chains = {}
            for group, state in manifest.groups.items():
                links = part(state.chain, frontier, self.spans)
                if links is not None:
                    chains[group] = state.chain[links]
            if chains:
                tasks = max(1, min(len(chains), self._context.spark.sparkContext.defaultParallelism))
                self._compacting = chains
                # Retention must know the names while the files are written.
                self._names = [f"{batch_name(manifest.batch)}-base-{uuid.uuid4().hex}" for _ in range(tasks)]
                self._thread = threading.Thread(
                    target=self._compact, args=(frontier,), name="eddy compaction", daemon=True
                )
                self._thread.start()

    def wait(self) -> None:
        """Wait until a running compaction ends."""
        thread = self._thread  # another thread may reset it in the meantime
        if thread is not None:
            thread.join()

    def _compact(self, frontier: int | None) -> None:
        context = self._context
        try:
            chains, n = sorted(self._compacting.items()), len(self._names)
            tasks = [_CompactionTask(name, frontier, tuple(chains[k::n])) for k, name in enumerate(self._names)]
            work = _CompactGroups(context.job, context.locations, self.spans)
            found: dict[int, Link] = {}
            with described(context.spark, f"{context.name}: compact the log"):
                for links in context.spark.sparkContext.parallelize(tasks, n).map(work).collect():
                    found.update(links)
            self._links = found
            self.problem = None
        except Exception as problem:  # the chains stay as they are; the next batch tries again
            self.problem = problem
            LOG.warning("%s: compaction of the log failed; the next batch tries again: %s", context.name, problem)

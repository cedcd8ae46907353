"""Keeps the log short: compaction of long chains beside the job, retention of what old manifests need.

Compaction is a Spark job of its own, started by a thread of the driver after a commit. It reads the log and writes one
link for several; the next manifest names it in their place. Micro-batches never wait for it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eddy.log import LOG
from eddy.query.windows import Unbounded
from eddy.spark.job_description import described
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.driver.context import Run
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.locations import Places
from eddy.spark.streaming.state.manifest import GroupState, Link, Manifest
from eddy.spark.streaming.state.segments import SegmentReader, SegmentWriter
from eddy.spark.streaming.worker.compaction import compact, part


@dataclass(frozen=True)
class _Share:
    """Key groups whose chains one task compacts, into a log file of this name."""

    name: str
    frontier: int | None
    chains: tuple[tuple[int, tuple[Link, ...]], ...]


class _CompactGroups:
    """What Spark runs: a function from a share to the link that stands for each chain, by key group."""

    def __init__(self, job: Job, places: Places, spans: Sequence[int | None]) -> None:
        self._job = job
        self._places = places
        self._spans = list(spans)

    def __call__(self, share: _Share) -> dict[int, Link]:
        schemas = [stream.schema for stream in self._job.query.streams]
        positions, frontier = self._job.positions, share.frontier
        with SegmentReader(self._places.log, schemas) as reader, SegmentWriter(self._places.log, share.name) as writer:
            links = {
                group: compact(reader, chain, schemas, positions, frontier, self._spans, writer, group)
                for group, chain in share.chains
            }
            writer.finish()
        return links


class Tidying:
    """Compaction and retention of one job."""

    def __init__(self, run: Run, keep: int) -> None:
        self._run = run
        self._keep = keep
        self.spans = [
            None if isinstance(stream.window, Unbounded) else window.size
            for stream, window in zip(run.job.query.streams, run.job.query.graph.windows, strict=True)
        ]
        """Per stream, the ticks that a row can be matched for; None: for ever."""
        self._thread: threading.Thread | None = None
        self._begun: dict[int, tuple[Link, ...]] = {}
        self._links: dict[int, Link] = {}
        self._names: list[str] = []
        self.problem: BaseException | None = None
        """Why the newest compaction failed; the job goes on without it."""

    def compacted(self, groups: Mapping[int, GroupState]) -> dict[int, GroupState]:
        """Return the states with what compaction has finished put in."""
        found = dict(groups)
        if self._thread is not None and not self._thread.is_alive():
            for group, link in self._links.items():
                state, begun = found[group], self._begun[group]
                # Links that were pruned meanwhile hold only what is dead.
                older = tuple(one for one in state.chain if one.batch < begun[0].batch)
                newer = tuple(one for one in state.chain if one.batch > begun[-1].batch)
                found[group] = replace(state, chain=(*older, *([link] if link.segments else []), *newer))
            self._thread, self._links = None, {}
        return found

    def after(self, manifest: Manifest, frontier: int | None) -> None:
        """Look after a commit whether there is something to do."""
        self._run.sink.clean(manifest.batch)
        in_use = {one.file for chain in self._begun.values() for link in chain for one in link.segments}
        in_use.update(self._names)
        self._run.checkpoint.retain(self._keep, in_use=in_use if self._thread is not None else ())
        if self._thread is None:
            chains = {}
            for group, state in manifest.groups.items():
                links = part(state.chain, frontier, self.spans)
                if links is not None:
                    chains[group] = state.chain[links]
            if chains:
                tasks = max(1, min(len(chains), self._run.spark.sparkContext.defaultParallelism))
                self._begun = chains
                # Named here, so that retention knows them while they are written.
                self._names = [f"{batch_name(manifest.batch)}-base-{uuid.uuid4().hex}" for _ in range(tasks)]
                self._thread = threading.Thread(
                    target=self._compact, args=(frontier,), name="eddy compaction", daemon=True
                )
                self._thread.start()

    def wait(self) -> None:
        """Wait for a compaction under way."""
        thread = self._thread  # another thread may take it away meanwhile
        if thread is not None:
            thread.join()

    def _compact(self, frontier: int | None) -> None:
        run = self._run
        try:
            dealt, tasks = sorted(self._begun.items()), len(self._names)
            shares = [_Share(name, frontier, tuple(dealt[k::tasks])) for k, name in enumerate(self._names)]
            work = _CompactGroups(run.job, run.places, self.spans)
            found: dict[int, Link] = {}
            with described(run.spark, f"{run.name}: compaction of the log"):
                for links in run.spark.sparkContext.parallelize(shares, tasks).map(work).collect():
                    found.update(links)
            self._links = found
            self.problem = None
        except Exception as problem:  # the chains stay as they are, and the next batch tries again
            self.problem = problem
            LOG.warning("%s: compaction of the log failed, and will be tried again: %s", run.name, problem)

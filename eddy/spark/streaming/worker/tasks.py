"""Messages of the join of a micro-batch: the work that the driver gives to each task, and the reports on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eddy.spark.hops.hops import Hops
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.state.manifest import OutputFile, PartState
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.samples import Sample

LIVE, MAPPED, LOADED, NEW = "live", "mapped", "loaded", "new"
"""Sources of an engine: kept in the memory of a worker of the host; spilled to a file of the host and mapped again;
loaded from the log; new, as the key group had no rows before."""


@dataclass(frozen=True)
class GroupTask:
    """The work on one key group in a micro-batch.

    before    token of the state before the rows, None for a group without a state
    after     token of the state after the rows
    segments  the rows
    plan      the group's plan, that of its last engine or a requested one; None = the engine keeps its own
    handed    whether another worker of the host passes the engine on
    by_log    whether the engine must be loaded from the log, if this worker does not have it
    watched   whether the rows of its most frequent keys are counted
    """

    group: int
    before: str | None
    after: str
    segments: tuple[Segment, ...]
    plan: str | None
    handed: bool = False
    by_log: bool = False
    watched: bool = False


@dataclass(frozen=True)
class VersionTask:
    """A version of a query of a hub in a micro-batch: its bounds, and the destination of its results.

    key      names the version among all versions of one start of a hub
    number   of the version within its query
    start    first micro-batch whose rows it may use, or whose results it has if the start is a warm one
    drain    the micro-batch before which a result must have a component; None without a drain
    staging  directory of result files; None = results are only counted
    splits   whether results of rows of this micro-batch alone go to separate files
    query    the name of its query
    alone    whether it has a join alone in each key group
    output   the form of its results
    wakes    whether it has rows from before its start, so that it may have results there without further rows
    replaces the versions whose answers a changelog takes back at its start
    """

    key: str
    number: int
    start: int
    warm: bool
    drain: int | None
    staging: Path | None
    splits: bool
    query: str = ""
    alone: bool = False
    output: JoinOutput = "append"
    wakes: bool = False
    replaces: tuple[VersionTask, ...] = ()


@dataclass(frozen=True)
class PartitionTask:
    """The work on one partition in a micro-batch.

    previous    batch of the manifest with the state before this batch; None for the first batch
    late_below  event time below which rows of this batch are late, for each stream
    forgotten   watermark of the engines before this batch
    watermark   watermark of the engines after this batch
    staging     directory of result files; None if results are only counted
    tree        splits of key groups in this batch
    versions    versions of the queries of a hub; None in a join of one query
    steps       distance between two sampled rows, for each stream; None if no row is sampled
    """

    batch: int
    partition: int
    previous: int | None
    late_below: tuple[int, ...] | None
    forgotten: int | None
    watermark: int | None
    staging: Path | None
    groups: tuple[GroupTask, ...]
    tree: SplitTree
    versions: tuple[VersionTask, ...] | None = None
    steps: tuple[int, ...] | None = None


NodeCopy = tuple[int, int, int]
"""A copy of a window on a node of a join in hops: (node, stream, class by whose keys the copy is partitioned)."""


def copy_token(state: str, nodes: int) -> str:
    """Return the token of copies in a state. The token contains the number of nodes, on which the rows of a node
    depend."""
    return f"{state} {nodes}"


@dataclass(frozen=True)
class LoggedRows:
    """Rows of earlier micro-batches: the segments of one link of a key group's chain."""

    group: int
    late_below: tuple[int, ...] | None
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class HopTask:
    """The work of one Spark task in a micro-batch that runs in hops.

    tasks       the task of each node
    segments    rows of the batch that this task sends to the nodes
    missing     copies that no worker has
    base        rows of earlier batches that this task sends to the missing copies
    after       name of the state of the copies after the batch
    late_below, forgotten, watermark, staging, tree, steps   as in `PartitionTask`
    """

    batch: int
    hops: Hops
    tasks: tuple[int, ...]
    segments: tuple[Segment, ...]
    base: tuple[LoggedRows, ...]
    missing: frozenset[NodeCopy]
    after: str
    late_below: tuple[int, ...] | None
    forgotten: int | None
    watermark: int | None
    staging: Path | None
    tree: SplitTree
    steps: tuple[int, ...] | None


@dataclass(frozen=True)
class OperatorTask:
    """The operator above one join in a micro-batch; see `operator_stage.py`.

    key      names the query in the workers: that of its version in a hub, "" in a join of one query
    name     names the state in manifests
    before   token of the state before the batch, None without a state
    after    token of the state after the batch
    due      parts that have rows to give, or that begin, without results
    since    only windows that begin after this time are given; None = all windows
    staging  directory of the rows; None = rows are only counted
    places   the task of each part
    """

    key: str
    name: str
    before: str | None
    after: str
    due: frozenset[int]
    since: int | None
    staging: Path | None
    places: tuple[int, ...]


@dataclass(frozen=True)
class OperatorsTask:
    """The operators above the joins of a micro-batch.

    previous   batch of the manifest with their states before this batch; None for the first batch
    watermark  after the batch
    forget     whether the parts in the workers are ignored
    """

    batch: int
    previous: int | None
    watermark: int | None
    operators: tuple[OperatorTask, ...]
    forget: bool = False


@dataclass(frozen=True)
class PolicyTask:
    """A policy that the user of a running job requested.

    number  of the request, from 1 on in one start of a job
    data    the policy as bytes, pickled by Spark
    """

    number: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class BatchTask:
    """The work of one Spark task in a micro-batch.

    partitions  partitions that the worker of the task serves
    tasks       the work on these partitions; a partition without work is left out
    hand_over   key groups whose engines other workers of the host need
    drop        key groups whose engines in this worker are out of date
    versions    keys of the versions of the queries of a hub
    queries     key of a version -> its query as bytes, for versions that the worker does not know yet
    share       bytes for the engines of the worker; None without a bound
    addresses   address at which each task listens; empty if tasks send nothing to each other
    hops        the work in a micro-batch that runs in hops; None in one round
    operators   the operators above the joins; None without
    policy      a policy for all engines that the worker does not know yet; None = the worker keeps its own
    """

    partitions: tuple[int, ...]
    tasks: tuple[PartitionTask, ...]
    hand_over: tuple[int, ...]
    drop: tuple[int, ...]
    versions: tuple[str, ...] = ()
    queries: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    share: int | None = None
    addresses: tuple[tuple[str, int], ...] = ()
    hops: HopTask | None = None
    operators: OperatorsTask | None = None
    policy: PolicyTask | None = None


class LateCount(NamedTuple):
    """Late rows of one stream: their number, and the greatest distance of one of them from the watermark in ticks."""

    rows: int = 0
    behind: int = 0

    def plus(self, other: LateCount) -> LateCount:
        """Return the count of the late rows of both counts."""
        return LateCount(self.rows + other.rows, max(self.behind, other.behind))


@dataclass
class VersionReport:
    """Results of a version of a query in one partition, or in all of them.

    files  files of results that belong to the version in any case
    alone  files of the results whose rows are all of this micro-batch, if these results have separate files
    rows, alone_rows   number of results in `files` and in `alone`, also if results are only counted
    above_rows         number of rows of the operator above the join, which are in `files` in place of results
    """

    files: list[OutputFile] = field(default_factory=list)
    alone: list[OutputFile] = field(default_factory=list)
    rows: int = 0
    alone_rows: int = 0
    above_rows: int = 0

    def add(self, other: VersionReport) -> None:
        """Add the results of another partition."""
        self.files += other.files
        self.alone += other.alone
        self.rows += other.rows
        self.alone_rows += other.alone_rows
        self.above_rows += other.above_rows


@dataclass
class OperatorReport:
    """Report of a task on the parts of an operator.

    files    files of rows for the sink
    rows     their number, also if they are only counted
    parts    number of a part that has changed -> its state
    repairs  texts on files that were restored from their copies
    """

    files: list[OutputFile] = field(default_factory=list)
    rows: int = 0
    parts: dict[int, PartState] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)


@dataclass
class PartitionReport:
    """Report on one partition; in hops, on all nodes of one task; or on the operators of one task.

    results    written files of results
    late       written files of late and of failed rows
    late_rows  late rows of each stream, copies counted once
    groups     a row of metrics for each key group or node
    shipped    bytes that the task sent to other tasks
    samples    stream -> hashes of the keys of some rows
    cpu_s      CPU seconds of the process while it joined
    versions   key of a version of a query of a hub -> its results
    operators  key of a query -> the parts of the operator above its join
    """

    results: list[OutputFile] = field(default_factory=list)
    late: list[OutputFile] = field(default_factory=list)
    late_rows: dict[int, LateCount] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    shipped: int = 0
    samples: dict[int, Sample] = field(default_factory=dict)
    cpu_s: float = 0.0
    versions: dict[str, VersionReport] = field(default_factory=dict)
    operators: dict[str, OperatorReport] = field(default_factory=dict)


@dataclass
class MemoryReport:
    """The engines of one worker after a micro-batch, and its evictions in this micro-batch.

    share                   bytes for the live engines of the worker; None without a bound
    live, nbytes            engines in memory, and their bytes
    spilled, spilled_bytes  engines in files, and the bytes of the files
    peak                    most bytes of live engines, including the engine in use
    trims                   engines whose stored states and buffers for results were freed
    spills                  engines that were written to files
    drops                   engines that could not be written to a file; their rows are in the log
    """

    host: str
    share: int | None = None
    live: int = 0
    nbytes: int = 0
    spilled: int = 0
    spilled_bytes: int = 0
    peak: int = 0
    trims: int = 0
    spills: int = 0
    drops: int = 0


@dataclass
class TaskReport:
    """Report on one Spark task: on its partitions, and on the memory of its worker.

    busy_s  seconds of the task, without those in which it waited for other tasks
    """

    partitions: list[PartitionReport]
    memory: MemoryReport
    busy_s: float


@dataclass(frozen=True)
class TaskFailure:
    """The report of a task that failed, in a stage whose tasks Spark would repeat one by one.

    trace  the error with its trace; None if the task was turned away, because another task failed or did not come
    """

    trace: str | None

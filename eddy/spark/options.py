"""The options of a join on Spark: three frozen dataclasses, which check their values and are passed whole.

    EngineOptions       how each engine runs; defined in the module of the engines, because workers load both together
    PartitionOptions    how rows reach the tasks, and how work is spread over them
    StreamingOptions    where the state of a streaming join is durable, and which rows are late

A batch join has the first two classes; a streaming join and a hub have all three. Users write the fields as keyword
arguments of `eddy.spark.join`, `explain`, `sql` and `Hub`. The `…Keywords` name the arguments of each for type
checkers, and `takes_options` shows them with their defaults in `help` and in notebooks.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar, cast, get_args

import numpy as np

from eddy.routing.policies import Policy, PolicyName
from eddy.spark.errors import SparkJoinError
from eddy.spark.hops.placing import Placement, check_placement
from eddy.spark.local_path import local_path
from eddy.spark.partitioning.engine import EngineOptions, JoinOutput
from eddy.spark.streaming.state.identity import CHANGES, How
from eddy.spark.streaming.state.object_store import ObjectStore, is_url
from eddy.spark.transports.choice import AUTO, check_transport
from eddy.streams.numbers import whole
from jisc.strategies import StrategyName

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.rebalancing import Rebalancer

WatermarkOf = Literal["slowest", "per-source"]
_UNITS = {"B": 1}
_UNITS |= {f"{letter}B": 1000**n for n, letter in enumerate("KMGT", 1)} | {"kB": 1000}
_UNITS |= {f"{letter}iB": 1024**n for n, letter in enumerate("KMGT", 1)}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class PartitionOptions:
    """How the rows of a join reach its tasks, and how work is spread over tasks and hosts.

    partitions  number of tasks that join; None = the number of tasks that run at a time, or 1 in a batch join with a
                `Rows` window. With dynamic allocation the most tasks of a streaming join; None = those of all
                executors, at most 16, or more if more run at the start
    transport   "packed": the workers read the Parquet files behind the DataFrames; "rows": any DataFrame; "auto":
                "packed" where possible. Fixed when a checkpoint begins
    placement   where the steps of a query without a common key run. "grid" (None): one round, rows are copied to a
                grid of partitions. {head: [(stream, "ship" or "window"), …]}: several rounds; to join a stream, the
                intermediate tuples are shuffled by a key that they share with the stream ("ship"), or stay in their
                partitions, which get a copy of the stream ("window"). One plan for each stream as head, or for one
                stream if no window is `Range`. "hops": such plans, chosen from samples of the rows. "auto": the grid or
                hops, whichever is predicted from samples to take less time. A batch join decides once; a streaming join
                decides for each micro-batch, and needs a plan for each head. In a streaming join None is the placement
                in the checkpoint, and "hops" and "auto" begin with the hops in the checkpoint

    For batch DataFrames only:
    order_by    stream -> integer, date or timestamp column that numbers the rows over all streams; replaces the time
                columns

    For streaming DataFrames only:
    key_groups  number of parts of the key space, each with its own engine and plan; fixed when a checkpoint begins.
                None = the number in the checkpoint; in a new checkpoint 4 for each task that can run at a time, at
                least 8, or 8 if some stream lacks the key and is copied to several groups
    rebalance   how key groups change partitions: "auto", by load with hysteresis, and a group that alone overloads a
                partition is split; "off", on request only; or your own `Rebalancer`
    memory      bound on the bytes of all engines on each host, a number of bytes or text such as "2 GiB"; None = no
                bound. Engines of idle key groups are spilled to files of the host, and mapped again when the groups
                have rows. Unlike max_bytes, the bound neither changes results nor refuses rows

    Raises SparkJoinError for invalid values.
    """

    partitions: int | None = None
    transport: str = AUTO
    placement: Placement | None = None
    order_by: Mapping[str, str] | None = None
    key_groups: int | None = None
    rebalance: Literal["auto", "off"] | Rebalancer = "auto"
    memory: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("partitions", "key_groups"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _count(name, getattr(self, name)))
        if self.partitions is not None and self.partitions < 1:
            raise SparkJoinError(f"partitions={self.partitions}: give 1 or more")
        check_transport(self.transport)
        if self.placement is not None:
            check_placement(self.placement)
        if self.key_groups is not None and self.key_groups < 1:
            raise SparkJoinError(f"key_groups={self.key_groups}: give 1 or more")
        if isinstance(self.rebalance, str) and self.rebalance not in ("auto", "off"):
            raise SparkJoinError(f"rebalance={self.rebalance!r}: pass 'auto' or 'off', or a Rebalancer")
        if self.memory is not None and self.memory_bytes is None:
            raise SparkJoinError(
                f"memory={self.memory!r}: pass a number of bytes, 1 or more, or text such as '2 GiB' or '500 MB'; units"
                f" are {', '.join(_UNITS)}"
            )

    @property
    def memory_bytes(self) -> int | None:
        """`memory` as a number of bytes."""
        size = whole(self.memory)
        if isinstance(self.memory, str) and (parts := _SIZE.fullmatch(self.memory)) and parts[2] in _UNITS:
            size = int(float(parts[1]) * _UNITS[parts[2]])
        return None if size is None or size < 1 else size


@dataclass(frozen=True)
class StreamingOptions:
    """Where the state of a streaming join is durable, and which of its rows are late.

    checkpoint  where the job's state is durable: a directory that the driver and all workers can reach, on a POSIX file
                system with rename and locks, created if missing; or the URL of an object store, s3://bucket/prefix,
                gs://… or az://…. If it holds a state, the job resumes from it
    checkpoint_options  for a URL, settings of the store as `obstore` names them: "endpoint", "region", "access_key_id",
                "secret_access_key", …; None = those of the environment. Messages and files have none of their values
    keep        number of states to keep, 2 or more
    change      how a join with another query than the checkpoint starts (docs/guide/streaming.md): "handover", the new
                query continues with the rows in the log; "immediate", it starts without rows; None = it is refused
    watermark   which rows are late: "slowest", rows behind the slowest source; "per-source", rows behind their own
                source
    lateness    how far rows may be behind the greatest event time of earlier batches: a timedelta, or ticks of the
                common time type; one for all streams, or a mapping by stream. None, and streams left out: the lateness
                of the query; if this is 0, the delay that `withWatermark` set on the time column of the DataFrame
    idle_after  processing time without rows (a timedelta, or seconds) after which the watermark no longer waits for a
                source; None = the watermark always waits

    Raises SparkJoinError for invalid values; `lateness` is checked with the query.
    """

    checkpoint: str | Path | None = None
    checkpoint_options: Mapping[str, str] | None = field(default=None, repr=False)
    keep: int = 10
    change: How | None = None
    watermark: WatermarkOf = "slowest"
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None
    idle_after: timedelta | float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _count("keep", self.keep))
        if self.checkpoint is not None:
            if is_url(self.checkpoint):
                _ = self.store  # a wrong URL or setting fails here
            else:
                object.__setattr__(self, "checkpoint", local_path(self.checkpoint, "checkpoint"))
        if self.checkpoint_options is not None and not is_url(self.checkpoint):
            raise SparkJoinError("checkpoint_options are for a checkpoint in an object store; leave them out")
        if self.keep < 2:
            raise SparkJoinError(f"keep={self.keep}: give 2 or more, because the newest state may be damaged")
        if self.change not in (None, *CHANGES):
            raise SparkJoinError(
                f"change={self.change!r}: pass 'handover' or 'immediate'; queries on a hub (eddy.spark.Hub) can drain"
            )
        if self.watermark not in get_args(WatermarkOf):
            kinds = ", ".join(map(repr, get_args(WatermarkOf)))
            raise SparkJoinError(f"watermark={self.watermark!r}: pass one of {kinds}")
        seconds = self.idle_after_s
        if seconds is not None and not 0 < seconds < math.inf:
            raise SparkJoinError(
                f"idle_after={seconds!r}: give a time above 0, or None to always wait for silent sources"
            )

    @property
    def store(self) -> ObjectStore | None:
        """The object store of the checkpoint, None for a checkpoint on a file system."""
        return ObjectStore(str(self.checkpoint), self.checkpoint_options) if is_url(self.checkpoint) else None

    @property
    def directory(self) -> Path:
        """The absolute path of a checkpoint on a file system. Raises SparkJoinError without one."""
        if self.checkpoint is None:
            raise SparkJoinError(
                "a streaming join needs checkpoint=, a directory that the driver and all workers reach, or the URL of"
                " an object store"
            )
        return Path(self.checkpoint)

    @property
    def idle_after_s(self) -> float | None:
        """`idle_after` in seconds."""
        idle = self.idle_after.total_seconds() if isinstance(self.idle_after, timedelta) else self.idle_after
        if idle is not None and (isinstance(idle, bool) or not isinstance(idle, int | float | np.integer)):
            raise SparkJoinError(f"idle_after={self.idle_after!r}: give a timedelta, or seconds as a number")
        return None if idle is None else float(idle)


def _count(what: str, value: int) -> int:
    number = whole(value)
    if number is None:
        raise SparkJoinError(f"{what}={value!r}: give a whole number")
    return number


# The options as keyword arguments


class _Common(TypedDict, total=False):
    strategy: StrategyName
    policy: PolicyName | Policy | None
    partitions: int | None
    transport: str


class _OfOneQuery(_Common, total=False):
    plan: str | None
    max_bytes: int | None
    store: Sequence[str] | None
    background: int
    purge: Literal["exact", "paper"]
    placement: Placement | None


class _OfStreams(TypedDict, total=False):
    key_groups: int | None
    rebalance: Literal["auto", "off"] | Rebalancer
    memory: int | str | None
    checkpoint_options: Mapping[str, str] | None
    keep: int
    watermark: WatermarkOf
    lateness: timedelta | int | Mapping[str, timedelta | int] | None
    idle_after: timedelta | float | None


class BatchKeywords(_OfOneQuery, total=False):
    """Options of a batch join."""

    order_by: Mapping[str, str] | None


class StreamingKeywords(_OfOneQuery, _OfStreams, total=False):
    """Options of a streaming join."""

    checkpoint: Required[str | Path]
    change: How | None
    output: JoinOutput


class HubKeywords(_Common, _OfStreams, total=False):
    """Options of a hub."""


Options = tuple[EngineOptions, PartitionOptions, StreamingOptions]
_KINDS = (EngineOptions, PartitionOptions, StreamingOptions)
Function = TypeVar("Function", bound=Callable[..., Any])


def options_of(given: Mapping[str, Any]) -> Options:
    """Return the options from keyword arguments."""
    return cast(Options, tuple(kind(**{name: given[name] for name in _names(kind) & given.keys()}) for kind in _KINDS))


def takes_options(*keywords: type) -> Callable[[Function], Function]:
    """Return a decorator for a function with `**options`: its signature shows these options and refuses others.

    keywords   the classes among `BatchKeywords`, `StreamingKeywords` and `HubKeywords` whose names the function takes

    As Python does, the function raises TypeError for an unknown name.
    """
    known = {name for kind in keywords for name in kind.__optional_keys__ | kind.__required_keys__}  # type: ignore[attr-defined]
    shown = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for kind in _KINDS
        for option in fields(kind)
        if option.name in known
    ]

    def decorated(function: Function) -> Function:
        written = inspect.signature(function)
        plain = [parameter for parameter in written.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        signature = written.replace(parameters=[*plain, *shown])

        @wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            signature.bind(*args, **options)
            return function(*args, **options)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Function, checked)

    return decorated


def _names(kind: type) -> set[str]:
    return {option.name for option in fields(kind)}

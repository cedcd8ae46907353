"""Prepares a streaming join: checks the arguments, fixes the grid and the rules, and plans the path of its rows."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.query.query import Query
from eddy.spark.columns import check_texts, in_query_order
from eddy.spark.environment.executors import Executors
from eddy.spark.environment.session import parallelism
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import PartitionOptions, StreamingOptions
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import make_job
from eddy.spark.streaming.driver.memory import check_bound
from eddy.spark.streaming.driver.placement import check_streaming
from eddy.spark.streaming.driver.progress import observed
from eddy.spark.streaming.driver.rebalancing import Automatic, Manual
from eddy.spark.streaming.driver.settings import Settings
from eddy.spark.streaming.driver.watermarks import make_rules
from eddy.spark.streaming.driver.writer import StreamingJoin
from eddy.spark.streaming.state.identity import saved_choices
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.remote import RemoteCheckpoint
from eddy.spark.streaming.state.working_directory import working_directory
from eddy.spark.streaming.worker.log_stage import LogRows
from eddy.spark.transports.choice import AUTO, carry_streams
from eddy.spark.types import struct_type
from eddy.spark.watermark_delay import delays
from eddy.streams.windows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_GROUPS, GROUPS_PER_TASK = 8, 4
"""The defaults: the least number of key groups, and the number for each task that runs at a time. A group costs a
millisecond per micro-batch; with fewer groups, rebalancing is coarser."""
ELASTIC_TASKS = 16
"""The default of the most tasks with dynamic allocation, if Spark may add more executors than these need."""
COPIED_KEY_GROUPS = 8
"""The default if streams lack key classes: rows are copied along these classes, so more groups mean more copies."""


def prepare(
    query: Query,
    frames: Mapping[str, DataFrame],
    engines: EngineOptions,
    partitioning: PartitionOptions,
    streaming: StreamingOptions,
    null_keys: bool = False,
) -> StreamingJoin:
    """Return the join after all checks that are possible before its start; see `eddy.spark.join` and `make_job`."""
    if len(query.streams) == 1:
        raise SparkJoinError(
            "a streaming join has two streams or more, and the query has one: filter and select its rows with Spark,"
            " frame.where(…).select(…)"
        )
    for stream in query.streams:
        if isinstance(stream.window, Rows):
            raise SparkJoinError(
                f"stream {stream.name!r} has a Rows window, which counts rows in order of arrival; a streaming job has"
                " no such order: use a Range window"
            )
    for name, frame in frames.items():
        if not hasattr(frame, "_jdf"):
            raise SparkJoinError(
                f"stream {name!r}: its DataFrame lives in Spark Connect, but the driver's part of a streaming join"
                " needs a classic session in this process: use eddy.spark.session()"
            )
    ordered = in_query_order(query, frames)
    declared = {name: by_time[time] for name, time, by_time in _watermarks(query, ordered) if time in by_time}
    rules = make_rules(query, streaming, declared)
    session = ordered[0].sparkSession
    locations = _locations(streaming, session)
    checkpoint, remote = locations.root, None
    place = str(checkpoint) if locations.store is None else locations.store.url
    if locations.store is not None:
        remote = RemoteCheckpoint(locations)
        remote.restore()
    saved = saved_choices(checkpoint)
    slots = _slots(session)
    usual = _usual_groups(query, slots) if saved is None else math.prod(saved.shares)
    groups = usual if partitioning.key_groups is None else partitioning.key_groups
    job = make_job(query, options=engines, partitions=groups, null_keys=null_keys)
    check_texts(query, ordered, [schema.names for schema in job.inputs])
    if groups > job.shares.partitions and partitioning.key_groups is not None:
        raise SparkJoinError(
            f"key_groups={groups}: the query has no equality to partition by, so all streams meet in one key group;"
            " leave key_groups out, or add an equality"
        )
    groups = job.shares.partitions
    struct_type(job.output_schema)
    empty = engines.runtime(job.query)  # a bad plan should fail here and not in a task
    check_bound(partitioning.memory_bytes, empty.nbytes)
    tasks = min(slots, groups) if partitioning.partitions is None else partitioning.partitions
    if not 1 <= tasks <= groups:
        raise SparkJoinError(f"partitions={tasks}: give 1 to {groups}, the number of key groups")
    transport = partitioning.transport
    if saved is not None:
        if transport not in (AUTO, saved.transport):
            raise SparkJoinError(
                f"transport={transport!r}: the checkpoint {place} was begun with {saved.transport!r}, and Spark's"
                f" progress in it fits no other; pass 'auto' or {saved.transport!r}, or start with a new checkpoint"
            )
        transport = saved.transport
    carried = carry_streams(transport, LogRows(job, locations), ordered, checkpoint)
    placement, rebalance = partitioning.placement, partitioning.rebalance
    rebalancer = Automatic() if rebalance == "auto" else Manual() if rebalance == "off" else rebalance
    check_streaming(job, "grid" if placement is None else placement, partitioning.memory_bytes)
    settings = Settings(tasks, rules, rebalancer, query.late_by_stream, query.failed, partitioning, streaming)
    if not carried.inputs:
        carried = carried._replace(frame=observed(job.query, carried.frame))
    return StreamingJoin(session, job, locations, carried, settings, checkpoint, remote=remote)


def _locations(streaming: StreamingOptions, session: SparkSession) -> Locations:
    """Return the directories of a checkpoint; one in an object store gets a new working directory."""
    scratch = Path((session.conf.get("spark.local.dir", None) or tempfile.gettempdir()).split(",")[0])
    store = streaming.store
    place = str(streaming.directory) if store is None else store.url
    state = hashlib.blake2b(place.encode(), digest_size=8).hexdigest()
    if store is None:
        return Locations(streaming.directory, state, scratch)
    return Locations(working_directory(scratch / f"eddy-{os.getuid()}", state), state, scratch, store)


def _watermarks(query: Query, frames: Sequence[DataFrame]) -> Iterator[tuple[str, str | None, dict[str, timedelta]]]:
    """Yield for each stream its name, its time column, and the delays of `withWatermark` by column."""
    for stream, frame in zip(query.streams, frames, strict=True):
        yield stream.name, stream.time, delays(frame)


def _usual_groups(query: Query, slots: int) -> int:
    everywhere = any(len(key_class.columns) == len(query.streams) for key_class in query.partition_classes)
    return max(KEY_GROUPS, GROUPS_PER_TASK * slots) if everywhere else COPIED_KEY_GROUPS


def _slots(session: SparkSession) -> int:
    """Return how many tasks may run at a time; with dynamic allocation at most ELASTIC_TASKS, unless more run now."""
    executors = Executors(session.sparkContext)
    if not executors.elastic:
        return parallelism(session)
    return max(executors.slots(), min(executors.most_slots() or ELASTIC_TASKS, ELASTIC_TASKS))

"""The steps of a batch join without Spark: split, shuffle, sort and join in this process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pyarrow as pa

from eddy.spark.batch.blobs import BLOB_SCHEMA, SplitRows
from eddy.spark.batch.partition_join import join_blobs
from eddy.spark.partitioning.job import Job


def split_here(job: Job, stream: int, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the blobs of one map task of one stream."""
    return list(SplitRows(job)(stream, iter(batches)))


def shuffled(job: Job, blobs: list[pa.RecordBatch], chance: random.Random) -> list[list[pa.RecordBatch]]:
    """Return the blobs of each partition in small batches, ascending by `first`, equal ones in random order."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(job.shares.partitions)]
    for batch in blobs:
        for i, part in enumerate(batch.column("part").to_pylist()):
            parts[part].append(batch.slice(i, 1))
    dealt = []
    for rows in parts:
        chance.shuffle(rows)
        rows.sort(key=lambda row: row.column("first")[0].as_py())
        some = [rows[k : k + 3] for k in range(0, len(rows), 3)]
        dealt.append([pa.concat_batches(few) for few in some])
    return dealt


def run_here(job: Job, tasks: Mapping[str, Sequence[Sequence[pa.RecordBatch]]], seed: int = 0) -> pa.Table:
    """Run a job: per stream a list of map tasks, each a list of batches. Raises what a task raises."""
    chance = random.Random(seed)
    blobs: list[pa.RecordBatch] = []
    for i, stream in enumerate(job.query.streams):
        for batches in tasks.get(stream.name, ()):
            blobs += split_here(job, i, batches)
    assert all(batch.schema == BLOB_SCHEMA for batch in blobs)
    results = [out for part in shuffled(job, blobs, chance) for out in join_blobs(job, iter(part))]
    schema = results[0].schema if results else job.query.output_schema
    return pa.Table.from_batches(results, schema=schema)

"""The changes of a batch by key: what a target needs that has one row for each key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.staging import read_batches
from eddy.spark.types import spark_schema

OP, ADDED = "op", ("+I", "+U")
"""The column of a changelog with the operation, and the operations of rows that stand afterwards."""


class KeyedChanges(NamedTuple):
    """The changes of a batch, for a target with one row for each key.

    upserts   rows that replace those with their keys
    deletes   the keys of rows that end without a successor, without the other columns
    """

    upserts: pa.Table
    deletes: pa.Table


def row_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the rows of a target: those of results, without the operation of a changelog."""
    return schema.remove(schema.get_field_index(OP)) if OP in schema.names else schema


def key_columns(text: str | Sequence[str], schema: pa.Schema, place: str) -> list[str]:
    """Return the columns of a key, given as a list or as text with commas between them.

    Raises SparkJoinError for a column that results do not have, and for none.
    """
    rows = row_schema(schema).names
    if not isinstance(text, str):
        names = [*text]
    else:
        names = [text] if text in rows else [part.strip() for part in text.split(",")]
    for name in names or [""]:
        if name not in rows:
            raise SparkJoinError(f"{place}: key {name!r} is no result column; the columns are {', '.join(rows)}")
    return names


def keyed_changes(paths: Sequence[Path], schema: pa.Schema, key: Sequence[str], place: str) -> KeyedChanges:
    """Return what the rows of some files do by key; rows of a join without tables are upserts. O(rows).

    Nulls of a key are equal. Raises SparkJoinError for two rows of a batch with one key.
    """
    batches = [pa.RecordBatch.from_arrays(batch.columns, schema=spark_schema(schema)) for batch in read_batches(paths)]
    rows = pa.Table.from_batches(batches, schema=spark_schema(schema))
    stands = pc.is_in(rows.column(OP), pa.array(ADDED)) if OP in rows.schema.names else pa.repeat(True, len(rows))
    named = [f"k{k}" for k in range(len(key))]
    keys = pa.table([*(rows.column(name) for name in key), pc.cast(stands, pa.int64())], names=[*named, "stands"])
    by_key = keys.group_by(named).aggregate([("stands", "sum")])
    most = pc.max(by_key.column("stands_sum")).as_py()
    if most is not None and most > 1:
        first = by_key.filter(pc.greater(by_key.column("stands_sum"), 1)).slice(0, 1).to_pylist()[0]
        shown = ", ".join(f"{name}={first[alias]!r}" for name, alias in zip(key, named, strict=True))
        raise SparkJoinError(
            f"{place}: a batch has {most} rows with the key {shown}; take the columns that identify a row, such as the"
            " keys of all tables of the query"
        )
    ended = by_key.filter(pc.equal(by_key.column("stands_sum"), 0)).select(named).rename_columns([*key])
    return KeyedChanges(rows.filter(stands).select(row_schema(schema).names), ended)

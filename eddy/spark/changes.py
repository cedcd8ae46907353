"""Changes of tables as rows of DataFrames: envelopes of Debezium as plain changes, and the last row of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.ingest.changes import DELETES, IMPLIED, UPSERTS
from eddy.ingest.envelopes import AFTER, BEFORE, FILE, KEY, MESSAGE, POSITION, POSITION_BITS, SOURCE
from eddy.query.query import Query
from eddy.spark.columns import quoted
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.last_rows import LastRows
from eddy.streams.keyed import OP_COLUMN
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Unbounded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Frames = Mapping[str, "DataFrame"]


def with_plain_changes(query: Query, frames: Frames) -> tuple[Query, Frames]:
    """Return the query and its DataFrames with plain changes in place of envelopes of Debezium.

    Raises SparkJoinError for a DataFrame without the columns of envelopes.
    """
    inputs, found = dict[str, Stream](), dict(frames)
    for one in query.streams:
        if isinstance(one, Table) and one.ops == "debezium" and one.name in frames:
            inputs[one.name], found[one.name] = _plain(one, frames[one.name])
    return (query.with_inputs(inputs), found) if inputs else (query, frames)


def with_last_rows(query: Query, frames: Frames) -> tuple[Query, Frames]:
    """Return a query over the last rows of tables, and their DataFrames: what a batch join reads of a table.

    A table has one change of each key then, which comes before the rows of streams with event times. So its results are
    never taken back. Raises SparkJoinError for branches with Range windows, and for a DataFrame without changes.
    """
    inputs, found = dict[str, Stream](), dict(frames)
    for one in query.streams:
        if isinstance(one, Table) and one.name in frames:
            if query.graph.timed and query.branches:
                raise SparkJoinError(
                    f"{one.place}: a batch join with Range windows and branches takes no tables; join its last rows as"
                    " a stream with a time column, or without Range windows"
                )
            given: dict[str, Any] = {"ops": None, "version": None, "tombstones": None, "late": None, "window": None}
            # Event times are compared with those of all streams, but not with tables.
            inputs[one.name] = (
                replace(one, **given)
                if query.graph.timed
                else LastRows(one.name, one.schema, window=Unbounded(), filter=one.filter)
            )
            found[one.name] = _last(one, frames[one.name])
    return (query.with_inputs(inputs), found) if inputs else (query, frames)


def _last(table: Table, frame: DataFrame) -> DataFrame:
    """Return the last row of each key, without keys whose last change is a delete."""
    from pyspark.sql import functions as F

    assert table.version is not None
    needed = [*table.schema.names, *([OP_COLUMN] if table.ops is not None else [])]
    check_columns(table, frame, needed)
    columns = {name: frame[quoted(name)] for name in table.schema.names}
    gone = F.lit(False) if table.ops is None else _gone(table, frame[OP_COLUMN])
    # The order of changes is read of each of them, so no check is left out there.
    order = F.when(gone.isNotNull(), columns[table.version])
    for name in (*table.keys, table.version):
        text = f"{table.place}, column {name}: a change without a value; a change has a key and a version"
        order = F.when(F.isnull(columns[name]), F.raise_error(F.lit(text))).otherwise(order)
    rows = frame if table.ops is None else frame.where(~F.coalesce(frame[OP_COLUMN].isin(*IMPLIED), F.lit(False)))
    row = F.struct(*(column.alias(f"c{k}") for k, column in enumerate(columns.values())), gone.alias("gone"))
    keys = [columns[name].alias(f"k{k}") for k, name in enumerate(table.keys)]
    last = rows.groupBy(*keys).agg(F.max_by(row, order).alias("last")).where("not last.gone")
    return last.select(*(F.col(f"last.c{k}").alias(name) for k, name in enumerate(columns)))


def _gone(table: Table, ops: Column) -> Column:
    """Return whether changes are deletes; an unknown operation is an error."""
    from pyspark.sql import functions as F

    text = F.concat(
        F.lit(f"{table.place}: column {OP_COLUMN!r} is "),
        F.coalesce(ops, F.lit("null")),
        F.lit(f"; an upsert is one of {', '.join(UPSERTS)}, a delete one of {', '.join(DELETES)}"),
    )
    unknown = F.raise_error(text).cast("boolean")
    return F.when(ops.isin(*UPSERTS), F.lit(False)).when(ops.isin(*DELETES), F.lit(True)).otherwise(unknown)


def check_columns(table: Table, frame: DataFrame, needed: Sequence[str]) -> None:
    """Raise SparkJoinError unless a DataFrame has the columns of changes."""
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise SparkJoinError(
            f"{table.place}: its changes need column {lacking[0]!r}, and the DataFrame has {', '.join(frame.columns)}"
        )


def _plain(table: Table, frame: DataFrame) -> tuple[Table, DataFrame]:
    """Return a table with ops="column", and its changes: those that docs/guide/semantics.md defines for envelopes."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    assert table.version is not None
    check_columns(table, frame, [OP_COLUMN, AFTER])
    structs = {
        field.name: field.dataType
        for field in frame.schema
        if field.name in (BEFORE, AFTER, KEY, SOURCE) and isinstance(field.dataType, StructType)
    }
    parts = {name: set(kind.names) for name, kind in structs.items()}
    lacking = [name for name in table.schema.names if name not in parts.get(AFTER, ())]
    if lacking:
        raise SparkJoinError(
            f"{table.place}: {AFTER!r} of an envelope is a struct of the columns of the table, and column"
            f" {lacking[0]!r} is not in it: {frame.schema[AFTER].dataType.simpleString()}"
        )

    def field(part: str, name: str) -> Column:
        return frame[f"{part}.{quoted(name)}"]

    def refused(holds: Column, problem: str) -> Column:
        return F.when(holds, F.raise_error(F.lit(f"{table.place}: an envelope {problem}")).cast("string"))

    version = _version(table, frame, parts)
    keyed = [part for part in (BEFORE, KEY) if set(table.keys) <= parts.get(part, set())]
    old = {name: F.coalesce(*(field(part, name) for part in keyed)) if keyed else F.lit(None) for name in table.keys}
    new = {name: field(AFTER, name) for name in table.schema.names}
    ops, no = frame[OP_COLUMN], F.lit(False)
    upserts, deletes = F.coalesce(ops.isin(*UPSERTS), no), F.coalesce(ops.isin(*DELETES), no)
    moved = no
    if BEFORE in keyed:
        same = [field(BEFORE, name).isNull() | (field(BEFORE, name) == new[name]) for name in table.keys]
        known, kept = [field(BEFORE, name).isNotNull() for name in table.keys], same[0]
        for one in same[1:]:
            kept &= one
        moved = upserts & ~kept
        for one in known:
            moved &= one
    name = table.version
    while name in table.schema.names:
        name += "_"
    kinds = {one: structs[AFTER][one].dataType for one in table.schema.names}

    def change(op: str, values: Mapping[str, Column]) -> Column:
        columns = [values.get(one, F.lit(None)).cast(kind) for one, kind in kinds.items()]
        named = [column.alias(f"c{k}") for k, column in enumerate(columns)]
        return F.struct(F.lit(op).alias("op"), version.alias("version"), *named)

    problems = F.coalesce(
        refused(ops == "t", "is the truncation of a table, whose rows it does not name; let Debezium leave it out"),
        refused(~(upserts | deletes | (ops == MESSAGE)), "has another op than c, r, u, d, t or m"),
        refused(ops.isNull() & frame[AFTER].isNotNull(), "has a row after it and no op"),
        refused(upserts & frame[AFTER].isNull(), "is an upsert without a row 'after'"),
        refused(deletes & old[table.keys[0]].isNull(), "is a delete, and neither 'before' nor 'key' has the key"),
        refused((upserts | deletes) & version.isNull(), f"has no version {table.version!r}"),
    )
    end, begin = change(DELETES[0], old), change(UPSERTS[0], new)
    changes = F.array(F.when((deletes | moved) & problems.isNull(), end), F.when(upserts & problems.isNull(), begin))
    present = F.filter(changes, lambda one: one.isNotNull())
    rows = frame.select(F.explode(F.when(problems.isNull(), present)).alias("change"))
    schema = table.schema.append(pa.field(name, pa.int64()))
    options: dict[str, Any] = {"schema": schema, "ops": "column", "version": name, "window": None}
    columns = [F.col(f"change.c{k}").alias(one) for k, one in enumerate(table.schema.names)]
    columns += [F.col("change.version").alias(name), F.col("change.op").alias(OP_COLUMN)]
    return replace(table, **options), rows.select(*columns)


def _version(table: Table, frame: DataFrame, parts: Mapping[str, set[str]]) -> Column:
    """Return the version of each envelope. Raises SparkJoinError if envelopes have no such number."""
    from pyspark.sql import functions as F

    name = str(table.version)
    found = [frame[f"{SOURCE}.{quoted(name)}"]] if name in parts.get(SOURCE, ()) else []
    if found and name == POSITION:
        if FILE not in parts[SOURCE]:
            raise SparkJoinError(
                f"{table.place}: version={POSITION!r} is a position in a file of the log, and {SOURCE!r} of its"
                f" envelopes has no {FILE!r}; read it as well, or take version='ts_ms'"
            )
        number = F.regexp_extract(frame[f"{SOURCE}.{FILE}"], "([0-9]{1,6})$", 1)
        bits = F.shiftleft(F.when(number != "", number).cast("bigint"), POSITION_BITS)
        found = [bits + found[0].cast("bigint")]
    found += [frame[quoted(name)]] if name in frame.columns else []
    if not found:
        raise SparkJoinError(
            f"{table.place}: neither {SOURCE!r} of its envelopes nor the DataFrame has the version {name!r};"
            f" the DataFrame has {', '.join(frame.columns)}"
        )
    return F.coalesce(*found).cast("bigint")

"""Changes of tables as rows of DataFrames: envelopes of Debezium and the feed of Delta Lake as plain changes, and the
last row of each key."""

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

BEGINS, ENDS = ("insert", "update_postimage"), ("update_preimage", "delete")
"""The kinds of changes in a change data feed of Delta Lake: of rows that begin, and of rows that end."""
KIND, COMMIT, COMMITTED_AT = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that a change data feed has beside those of its table."""
_SHOWN = 400
"""The characters of a bad change that an error shows."""


def with_plain_changes(query: Query, frames: Frames) -> tuple[Query, Frames]:
    """Return the query and its DataFrames with plain changes in place of envelopes of Debezium.

    Raises SparkJoinError for a DataFrame without the columns of envelopes.
    """
    inputs, new_frames = dict[str, Stream](), dict(frames)
    for stream in query.streams:
        if isinstance(stream, Table) and stream.ops == "debezium" and stream.name in frames:
            inputs[stream.name], new_frames[stream.name] = plain_changes(stream, frames[stream.name])
    return (query.with_inputs(inputs), new_frames) if inputs else (query, frames)


def with_last_rows(query: Query, frames: Frames) -> tuple[Query, Frames]:
    """Return a query over the last rows of tables, and their DataFrames: what a batch join reads of a table.

    A table has one change of each key then, which comes before the rows of streams with event times. So its results are
    never taken back. Raises SparkJoinError for branches with Range windows, and for a DataFrame without changes.
    """
    inputs, new_frames = dict[str, Stream](), dict(frames)
    for stream in query.streams:
        if isinstance(stream, Table) and stream.name in frames:
            if query.graph.timed and query.branches:
                raise SparkJoinError(
                    f"{stream.place}: a batch join with Range windows and branches takes no"
                    " tables; join its last rows as"
                    " a stream with a time column, or without Range windows"
                )
            given: dict[str, Any] = {"ops": None, "version": None, "tombstones": None, "late": None, "window": None}
            # Event times are compared with those of all streams, but not with tables.
            inputs[stream.name] = (
                replace(stream, **given)
                if query.graph.timed
                else LastRows(stream.name, stream.schema, window=Unbounded(), filter=stream.filter)
            )
            new_frames[stream.name] = _last(stream, frames[stream.name])
    return (query.with_inputs(inputs), new_frames) if inputs else (query, frames)


def _last(table: Table, frame: DataFrame) -> DataFrame:
    """Return the last row of each key, without keys whose last change is a delete."""
    from pyspark.sql import functions as F

    assert table.version is not None
    needed = [*table.schema.names, *([OP_COLUMN] if table.ops is not None else [])]
    check_columns(table, frame, needed)
    columns = {name: frame[quoted(name)] for name in table.schema.names}
    shown = {name: columns[name] for name in (*table.keys, table.version)}
    gone = F.lit(False) if table.ops is None else _gone(table, frame[OP_COLUMN], shown)
    # The order of changes is read of each of them, so no check is left out there.
    order = F.when(gone.isNotNull(), columns[table.version])
    for name, column in shown.items():
        error = _error(
            f"{table.place}, column {name}: a change without a value",
            shown,
            "give it a key and a version, or leave it out",
        )
        order = F.when(F.isnull(column), error).otherwise(order)
    rows = frame if table.ops is None else frame.where(~F.coalesce(frame[OP_COLUMN].isin(*IMPLIED), F.lit(False)))
    row = F.struct(*(column.alias(f"c{k}") for k, column in enumerate(columns.values())), gone.alias("gone"))
    keys = [columns[name].alias(f"k{k}") for k, name in enumerate(table.keys)]
    last = rows.groupBy(*keys).agg(F.max_by(row, order).alias("last")).where("not last.gone")
    return last.select(*(F.col(f"last.c{k}").alias(name) for k, name in enumerate(columns)))


def _gone(table: Table, ops: Column, shown: Mapping[str, Column]) -> Column:
    """Return whether changes are deletes; an unknown operation is an error."""
    from pyspark.sql import functions as F

    unknown = _error(
        f"{table.place}: a change has an unknown value in column {OP_COLUMN!r}",
        {OP_COLUMN: ops, **shown},
        f"write one of {', '.join(UPSERTS)} for an upsert, one of {', '.join(DELETES)} for a delete",
    ).cast("boolean")
    return F.when(ops.isin(*UPSERTS), F.lit(False)).when(ops.isin(*DELETES), F.lit(True)).otherwise(unknown)


def _error(problem: str, shown: Mapping[str, Column], remedy: str) -> Column:
    """Return a column that raises an error of Spark, which shows values of the row at fault."""
    from pyspark.sql import functions as F

    values = [
        F.concat(F.lit(f"{name} = "), F.coalesce(column.cast("string"), F.lit("null")))
        for name, column in shown.items()
    ]
    row = F.substring(F.concat_ws(", ", *values), 1, _SHOWN)
    return F.raise_error(F.concat(F.lit(f"{problem}: "), row, F.lit(f"; {remedy}")))


def delta_changes(feed: DataFrame, version: str = "version") -> DataFrame:
    """Return the change data feed of a table of Delta Lake as changes for a `Table` with ops="column".

        feed = spark.readStream.format("delta").option("readChangeFeed", "true").load("orders")
        table = eddy.Table("orders", columns, key="no", version="version", ops="column")
        join(eddy.Query([table, people], on), {"orders": delta_changes(feed), "people": …}, checkpoint="state")

    feed     a batch or streaming DataFrame with the columns of the table, `_change_type` and `_commit_version`
    version  name of the column of versions, int64, which the columns of the `Table` have, too

    The changes have the columns of the table, the version and `op`. Within a commit rows end before others begin: a row
    that is updated ends, too, so that an update of its key leaves no row behind. So the versions of a key differ,
    unless the table has several rows with this key. An unknown kind of change is an error of the job, which shows it.

    Raises SparkJoinError for a DataFrame without these columns, or with a column of the name of a new one.
    """
    from pyspark.sql import functions as F

    lacking = [name for name in (KIND, COMMIT) if name not in feed.columns]
    if lacking:
        raise SparkJoinError(
            f"delta_changes: a change data feed has the column {lacking[0]!r}, and the DataFrame has"
            f" {', '.join(feed.columns)}; read the table with .option('readChangeFeed', 'true')"
        )
    taken = [name for name in (version, OP_COLUMN) if name in feed.columns]
    if taken:
        raise SparkJoinError(
            f"delta_changes: the table has a column {taken[0]!r}, and the changes have one of this name; rename it, or"
            " name the versions with version=…"
        )
    kind, commit = feed[KIND], feed[COMMIT].cast("bigint")
    unknown = _error(
        f"delta_changes: a change has an unknown value in column {KIND!r}",
        {KIND: kind, COMMIT: commit},
        f"leave it out with where(…); the known ones are {', '.join((*BEGINS, *ENDS))}",
    )
    begins = F.when(kind.isin(*BEGINS), F.lit(True)).when(kind.isin(*ENDS), F.lit(False))
    begins = begins.otherwise(unknown.cast("boolean"))
    kept = [feed[quoted(name)] for name in feed.columns if name not in (KIND, COMMIT, COMMITTED_AT)]
    ops = F.when(begins, F.lit(UPSERTS[0])).otherwise(F.lit(DELETES[0])).alias(OP_COLUMN)
    return feed.select(*kept, (2 * commit + begins.cast("bigint")).alias(version), ops)


def check_columns(table: Table, frame: DataFrame, needed: Sequence[str]) -> None:
    """Raise SparkJoinError unless a DataFrame has the columns of changes."""
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise SparkJoinError(
            f"{table.place}: its changes need column {lacking[0]!r}, and the DataFrame has {', '.join(frame.columns)}"
        )


def plain_changes(table: Table, frame: DataFrame) -> tuple[Table, DataFrame]:
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

    shown = [
        column for column in (OP_COLUMN, BEFORE, AFTER, KEY, SOURCE, str(table.version)) if column in frame.columns
    ]

    def refused(holds: Column, problem: str, remedy: str) -> Column:
        values = {name: frame[quoted(name)] for name in shown}
        return F.when(holds, _error(f"{table.place}: an envelope {problem}", values, remedy).cast("string"))

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
        for condition in same[1:]:
            kept &= condition
        moved = upserts & ~kept
        for condition in known:
            moved &= condition
    name = table.version
    while name in table.schema.names:
        name += "_"
    kinds = {column: structs[AFTER][column].dataType for column in table.schema.names}

    def change(op: str, values: Mapping[str, Column]) -> Column:
        columns = [values.get(field_name, F.lit(None)).cast(kind) for field_name, kind in kinds.items()]
        named = [column.alias(f"c{k}") for k, column in enumerate(columns)]
        return F.struct(F.lit(op).alias("op"), version.alias("version"), *named)

    problems = F.coalesce(
        refused(
            ops == "t",
            "is the truncation of a table, whose rows it does not name",
            "let Debezium leave truncations out (skipped.operations=t), or write a delete for each row",
        ),
        refused(
            ~(upserts | deletes | (ops == MESSAGE)),
            f"has another {OP_COLUMN} than c, r, u, d, t or m",
            f"leave it out with where(…), or write one of these to {OP_COLUMN!r}",
        ),
        refused(
            ops.isNull() & frame[AFTER].isNotNull(),
            f"has a row {AFTER!r} and no {OP_COLUMN}",
            f"write 'c', 'r' or 'u' to {OP_COLUMN!r}, or leave it out with where(…)",
        ),
        refused(upserts & frame[AFTER].isNull(), f"is an upsert without a row {AFTER!r}", "pass the envelopes whole"),
        refused(
            deletes & old[table.keys[0]].isNull(),
            f"is a delete, and neither {BEFORE!r} nor {KEY!r} has the key",
            f"pass the key of the message as a struct column {KEY!r}",
        ),
        refused(
            (upserts | deletes) & version.isNull(),
            f"has no version {table.version!r}",
            f"pass the envelopes whole, with their {SOURCE!r}, or name another number with version=…",
        ),
    )
    end, begin = change(DELETES[0], old), change(UPSERTS[0], new)
    changes = F.array(F.when((deletes | moved) & problems.isNull(), end), F.when(upserts & problems.isNull(), begin))
    present = F.filter(changes, lambda entry: entry.isNotNull())
    rows = frame.select(F.explode(F.when(problems.isNull(), present)).alias("change"))
    schema = table.schema.append(pa.field(name, pa.int64()))
    options: dict[str, Any] = {"schema": schema, "ops": "column", "version": name, "window": None}
    columns = [F.col(f"change.c{k}").alias(column) for k, column in enumerate(table.schema.names)]
    columns += [F.col("change.version").alias(name), F.col("change.op").alias(OP_COLUMN)]
    return replace(table, **options), rows.select(*columns)


def _version(table: Table, frame: DataFrame, parts: Mapping[str, set[str]]) -> Column:
    """Return the version of each envelope. Raises SparkJoinError if envelopes have no such number."""
    from pyspark.sql import functions as F

    name = str(table.version)
    versions = [frame[f"{SOURCE}.{quoted(name)}"]] if name in parts.get(SOURCE, ()) else []
    if versions and name == POSITION:
        if FILE not in parts[SOURCE]:
            raise SparkJoinError(
                f"{table.place}: version={POSITION!r} is a position in a file of the log, and {SOURCE!r} of its"
                f" envelopes has no {FILE!r}; read it as well, or take version='ts_ms'"
            )
        number = F.regexp_extract(frame[f"{SOURCE}.{FILE}"], "([0-9]{1,6})$", 1)
        bits = F.shiftleft(F.when(number != "", number).cast("bigint"), POSITION_BITS)
        versions = [bits + versions[0].cast("bigint")]
    versions += [frame[quoted(name)]] if name in frame.columns else []
    if not versions:
        raise SparkJoinError(
            f"{table.place}: neither {SOURCE!r} of its envelopes nor the DataFrame has the version {name!r};"
            f" the DataFrame has {', '.join(frame.columns)}"
        )
    return F.coalesce(*versions).cast("bigint")

"""The changes of a table, and the versions of a versioned one, that count for later results: the newest of each key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.changes import IMPLIED, comparable
from eddy.ingest.validation import checked_ticks
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable


def latest(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the change of each key with the greatest version, the last one of equal versions, in their order.

    rows   changes with their operation, which have keys and versions

    Deletes stay: they outlive older changes of their key. O(rows * log rows).
    """
    assert table.version is not None
    rows = _stated(rows)
    versions = checked_ticks(table.place, table.version, "version", rows, table.version_type)
    return rows.take(_last(table, rows, versions, []))


def latest_versions(
    table: VersionedTable, times_of: Callable[[pa.RecordBatch], np.ndarray], limit: int | None, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the versions that a row may get: of those up to a limit the last one of each key, and all later ones.

    times_of  returns the event time of each row in ticks, int64[n]
    limit     event time, in ticks, below which no row asks for a version any more; None = rows may ask for any time
    rows      versions in the order of arrival

    Of several versions of one key and one time, the last one stays. Deletes stay: they end older versions of their key.
    O(rows * log rows).
    """
    rows = _stated(rows) if table.ops is not None else rows
    times = times_of(rows)
    distinct = times if limit is None else np.maximum(times, limit)
    return rows.take(_last(table, rows, times, [pa.array(distinct)]))


def _stated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return changes without those that say what the next one says, too."""
    return rows.filter(pc.invert(pc.is_in(rows.column(OP_COLUMN), pa.array(IMPLIED))))


def _last(table: KeyedInput, rows: pa.RecordBatch, order_by: np.ndarray, more: list[pa.Array]) -> pa.Array:
    """Return the numbers of the rows that are the last ones of their key and the columns `more`, ascending.

    order_by   int64[n], by which rows are ordered; of equal rows the later one is the last
    """
    order = np.argsort(order_by, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    keys = [*(comparable(rows.column(name)) for name in table.keys), *more]
    names = [str(k) for k in range(len(keys))]
    last = pa.table([*keys, pa.array(rank)], [*names, "rank"]).group_by(names).aggregate([("rank", "max")])
    return pa.array(np.sort(order[last["rank_max"].to_numpy()]))

"""The changes of a table that count for its state: the newest one of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.changes import IMPLIED, comparable
from eddy.ingest.validation import checked_ticks
from eddy.streams.keyed import OP_COLUMN
from eddy.streams.table import Table


def latest(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the change of each key with the greatest version, the last one of equal versions, in their order.

    rows   changes with their operation, which have keys and versions

    Deletes stay: they outlive older changes of their key. O(rows * log rows).
    """
    assert table.version is not None
    ops = rows.column(OP_COLUMN)
    rows = rows.filter(pc.invert(pc.is_in(ops, pa.array(IMPLIED))))
    versions = checked_ticks(table.place, table.version, "version", rows, table.version_type)
    order = np.argsort(versions, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    names = [str(k) for k in range(len(table.keys))]
    keys = [comparable(rows.column(name)) for name in table.keys]
    last = pa.table([*keys, pa.array(rank)], [*names, "rank"]).group_by(names).aggregate([("rank", "max")])
    return rows.take(pa.array(np.sort(order[last["rank_max"].to_numpy()])))

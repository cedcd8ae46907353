"""The order of rows of one stream at equal positions: by their content, so that it is independent of Spark."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from eddy.spark.partitioning.job import Job
from eddy.spark.types import sortable_type

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def sort_ties(job: Job, stream: int, rows: Rows) -> Rows:
    """Return rows of a stream by (position, content, column after column), nulls last. O(rows * log rows)."""
    keys = sorted(rows.schema.names, key=lambda name: name != job.sequence[stream])
    ranked = pa.table([rows.column(key).cast(sortable_type(rows.schema.field(key).type)) for key in keys], names=keys)
    return rows.take(pc.sort_indices(ranked, sort_keys=[(key, "ascending") for key in keys]))

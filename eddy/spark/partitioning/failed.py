"""Rows and groups that fail in a batch join: they fail the job, unless the query only counts them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError


def refuse_failed(query: Query, failed: Iterable[pa.RecordBatch]) -> None:
    """Raise SparkJoinError if there are failed rows, unless the query says failed="count"."""
    for batch in failed:
        if not batch.num_rows or query.failed == "count":
            continue
        one = batch.slice(0, 1).to_pylist()[0]
        row = ", ".join(f"{name} = {value}" for name, value in one["row"])
        raise SparkJoinError(
            f"{one['kind']} {one['expression']} has no value for a row: {one['reason']}. The row has {row}."
            " A batch join gives all of its results or none: keep such rows out with where= or a filter, give the"
            ' expression a value for them, or leave them out with Query(…, failed="count")'
        )

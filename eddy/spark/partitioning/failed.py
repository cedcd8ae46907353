"""Rows and groups that fail in a batch join: the job fails, unless the query only counts them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from eddy.query.query import Query
from eddy.results.failed_rows import failed_text
from eddy.spark.errors import SparkJoinError


def refuse_failed(query: Query, failed: Iterable[pa.RecordBatch]) -> None:
    """Raise SparkJoinError if there are failed rows, unless the query has failed="count"."""
    for batch in failed:
        if not batch.num_rows or query.failed == "count":
            continue
        raise SparkJoinError(
            f"{failed_text(batch)}. A batch join gives all of its results or none: keep such rows out with where= or a"
            ' filter, give the expression a value for them, or leave them out with Query(…, failed="count")'
        )

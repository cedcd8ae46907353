"""One partition of a join: Arrow in, Arrow out, in the types of Spark.

The engine knows nothing of where its input comes from nor of when it ends, so a batch job and a stream's
micro-batches use it alike: whoever owns it calls `push` with rows in arrival order, as often as there are some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from eddy.query import Query
from eddy.runtime import Runtime
from eddy.spark.types import spark_schema

OUTPUT_ROWS = 65_536


class PartitionEngine:
    """A runtime for one partition whose results are batches that Spark takes as they are.

    `output_schema` is the schema of every batch given out: that of the query, each type replaced by the one Spark has
    for it.
    """

    def __init__(self, query: Query, plan: str | None = None) -> None:
        self._runtime = Runtime(query, plan=plan)
        self.output_schema = spark_schema(query.output_schema)

    @property
    def runtime(self) -> Runtime:
        """The runtime inside, for metrics, explain and check."""
        return self._runtime

    def push(
        self, rows: Mapping[str, pa.Table | pa.RecordBatch], order: np.ndarray | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Process arrivals as `Runtime.push` does; yield the results in batches of at most 65 536 rows, none empty.

        The arrivals are processed when the first batch is asked for. Raises what `Runtime.push` raises.
        """
        table = self._runtime.push(rows, order)
        if table.schema != self.output_schema:
            table = table.cast(self.output_schema)
        for batch in table.to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield batch

    def late(self) -> dict[str, pa.Table]:
        """Return the late rows since the last call, per stream with any."""
        return {name: table for name, table in self._runtime.late().items() if table.num_rows}

"""One partition of a join: Arrow in, Arrow out, in the types of Spark.

The engine knows nothing of where its input comes from nor of when it ends, so a batch job and a stream's
micro-batches use it alike: whoever owns it calls `push` with rows in arrival order, as often as there are some.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from eddy.query.query import Query
from eddy.routing.policies import Policy
from eddy.runtime import Runtime
from eddy.spark.types import spark_schema

OUTPUT_ROWS = 65_536

Results = TypeVar("Results", pa.Table, pa.RecordBatch)


@dataclass(frozen=True)
class EngineOptions:
    """What the runtimes of a job are made with, beside the query; see `eddy.Runtime`.

    plan         join tree to begin with
    strategy     how plans run and change
    policy       how the plan is found
    max_bytes    what one engine may take
    """

    plan: str | None = None
    strategy: str = "eddy"
    policy: str | Policy | None = None
    max_bytes: int | None = None

    def runtime(self, query: Query, plan: str | None = None) -> Runtime:
        """Return a runtime, with another plan to begin with if one is given."""
        return Runtime(
            query,
            plan=self.plan if plan is None else plan,
            strategy=self.strategy,
            policy=self.new_policy(),
            max_bytes=self.max_bytes,
        )

    def new_policy(self) -> str | Policy | None:
        """Return the policy for one more engine: what an object learns is of one engine."""
        return copy.deepcopy(self.policy)

    @property
    def text(self) -> str:
        """The options as text; a policy of the user's by its name."""
        policy = self.policy if self.policy is None or isinstance(self.policy, str) else self.policy.name
        return f"plan={self.plan}, strategy={self.strategy}, policy={policy}, max_bytes={self.max_bytes}"


class PartitionEngine:
    """A runtime for one partition whose results are batches that Spark takes as they are.

    `output_schema` is the schema of every batch given out: that of the query, each type replaced by the one Spark has
    for it.
    """

    def __init__(self, query: Query, options: EngineOptions | None = None) -> None:
        self._runtime = (options or EngineOptions()).runtime(query)
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
        for batch in self._runtime.push(rows, order).to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield as_spark(batch, self.output_schema)


def as_spark(results: Results, schema: pa.Schema) -> Results:
    """Return results in the types of Spark: `schema` is `spark_schema` of theirs."""
    return results if results.schema == schema else results.cast(schema)

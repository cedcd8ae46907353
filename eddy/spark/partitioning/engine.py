"""The engines of a job: the options that all of them share, and the engine of one partition of a batch join."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.changes import UPSERTS
from eddy.log import endless_told
from eddy.query.query import Query
from eddy.results.results import OP
from eddy.routing.policies import Policy, PolicyName
from eddy.runtime import Runtime
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.failed import refuse_failed
from eddy.spark.types import spark_schema
from jisc.strategies import StrategyName
from stairs.errors import PlanError

OUTPUT_ROWS = 65_536

Results = TypeVar("Results", pa.Table, pa.RecordBatch)
JoinOutput = Literal["append", "changelog"]
"""The forms of the results of a join: each once, or a changelog."""


@dataclass(frozen=True)
class EngineOptions:
    """How each engine of a job runs, in addition to its query.

    A batch join has an engine for each partition, a streaming join one for each key group.

    plan         first join tree, "((R S) T) U"; None = the engine chooses
    strategy, policy, background, purge   as in `eddy.Runtime`; each engine has its own copy of the policy
    store        as in `eddy.Runtime`, of the first plan: an engine that is loaded with a later plan, which lacks one of
                 these states, begins without stored states
    max_bytes    as in `eddy.Runtime`, for each engine; in hops of a streaming join for each node

    For streaming DataFrames only:
    output       "append", or "changelog": results also end, when a row leaves its window. The results have the column
                 `op`, and are as if rows had come in the order of event time, whatever the micro-batches: so rows wait
                 until the watermark has passed them. A join with tables has a changelog under either value
    """

    plan: str | None = None
    strategy: StrategyName = "eddy"
    policy: PolicyName | Policy | None = None
    max_bytes: int | None = None
    store: Sequence[str] | None = None
    background: int = 0
    purge: Literal["exact", "paper"] = "exact"
    output: JoinOutput = "append"

    def __post_init__(self) -> None:
        if self.output not in ("append", "changelog"):
            raise SparkJoinError(f"output={self.output!r}: pass 'append' or 'changelog'")
        if self.store is not None and not isinstance(self.store, str):
            object.__setattr__(self, "store", tuple(sorted(self.store)))

    def runtime(self, query: Query, plan: str | None = None, *, bounded: bool = False) -> Runtime:
        """Return a new runtime; `plan` replaces the first plan of the options, `bounded`: see `Runtime`."""
        with endless_told():
            make = partial(
                Runtime,
                query,
                plan=self.plan if plan is None else plan,
                strategy=self.strategy,
                policy=self.new_policy(),
                max_bytes=self.max_bytes,
                background=self.background,
                purge=self.purge,
                bounded=bounded,
                output="changelog" if query.tables_changing else self.output,
            )
            try:
                return make(store=self.store)
            except PlanError:
                if plan is None or self.store is None:
                    raise
                return make(store=())

    def new_policy(self) -> PolicyName | Policy | None:
        """Return the policy for another engine: a copy, because each engine's policy learns on its own.

        Raises SparkJoinError for a policy that cannot be copied.
        """
        try:
            return copy.deepcopy(self.policy)
        except TypeError as problem:
            raise SparkJoinError(
                f"policy {self.policy!r} cannot be copied ({problem}), and each engine needs its own: keep files,"
                " connections and generators out of the object"
            ) from problem

    @property
    def text(self) -> str:
        """The options that determine plans, as text. A policy object appears by its name."""
        policy = self.policy if self.policy is None or isinstance(self.policy, str) else self.policy.name
        shown = {option.name: getattr(self, option.name) for option in fields(self) if option.name != "output"} | {
            "policy": policy
        }
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class PartitionEngine:
    """A runtime for one partition whose results are Arrow batches in Spark's types.

        engine = PartitionEngine(query)
        for batch in engine.push({"R": rows}):
            ...

    `output_schema` is the schema of every result batch: the query's schema with each type replaced by the type that
    Spark uses for it. A partition of any DataFrame can be joined with it: the owner calls `push` with rows in arrival
    order.
    """

    def __init__(self, query: Query, options: EngineOptions | None = None) -> None:
        self._query = query
        self._runtime = (options or EngineOptions()).runtime(query, bounded=True)
        self.output_schema = spark_schema(query.output_schema)

    @property
    def runtime(self) -> Runtime:
        """The runtime, for its metrics, `explain` and `check`."""
        return self._runtime

    def push(
        self, rows: Mapping[str, pa.Table | pa.RecordBatch], order: np.ndarray | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Process arrivals as `Runtime.push` does; yield the results in non-empty batches of at most 65 536 rows.

        Processing begins when the caller requests the first batch. Raises what `Runtime.push` raises, and
        SparkJoinError for rows that fail (`eddy.spark.partitioning.failed`).
        """
        yield from self._batches(self._runtime.push(rows, order))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the input, as `Runtime.finish` does; yield the results as `push` does."""
        yield from self._batches(self._runtime.finish())

    def _batches(self, results: pa.Table) -> Iterator[pa.RecordBatch]:
        if self._runtime.failed_count:
            refuse_failed(self._query, self._runtime.failed().to_batches())
            if self._query.failed != "count":
                # `max_bytes` left no memory for a single row.
                raise SparkJoinError(
                    f"expressions of the query have no value for {self._runtime.failed_count:,} rows, and max_bytes"
                    " leaves no room to tell which: raise it to see the reason"
                )
        if self._query.tables_changing:
            # A table has one change of each key here. So results end only when rows leave their windows.
            results = results.filter(pc.equal(results.column(OP), UPSERTS[0])).drop_columns([OP])
        for batch in results.to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield as_spark(batch, self.output_schema)


def as_spark(results: Results, schema: pa.Schema) -> Results:
    """Return results in Spark's types; `schema` is the `spark_schema` of their schema."""
    return results if results.schema == schema else results.cast(schema)


def signed(schema: pa.Schema, output: JoinOutput) -> pa.Schema:
    """Return the columns of results in a form: those of a changelog have their operation as well."""
    return schema if output == "append" else schema.insert(0, pa.field(OP, pa.string(), False))

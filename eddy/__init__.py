"""An adaptive runtime for multi-way joins over streams.

Write a `Query`, give it to a `Runtime`, push Arrow batches, get Arrow results:

>>> import pyarrow as pa
>>> rows = pa.schema([("key", pa.int64()), ("value", pa.string())])
>>> query = Query([Stream("R", rows, window=Rows(1000)), Stream("S", rows, window=Rows(1000))], ["R.key = S.key"])
>>> runtime = Runtime(query)
>>> left = pa.record_batch({"key": [1, 2], "value": ["a", "b"]})
>>> right = pa.record_batch({"key": [2], "value": ["c"]})
>>> runtime.push({"R": left, "S": right}, order=[0, 0, 1]).to_pylist()
[{'R.key': 2, 'R.value': 'b', 'S.key': 2, 'S.value': 'c'}]

`eddy.spark` embeds it in Spark jobs and is imported by name.
"""

from eddy.errors import (
    CapacityError,
    EddyError,
    InputError,
    LateRowsError,
    PlanError,
    QueryError,
    SnapshotError,
    StateError,
)
from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.conditions import Predicate
from eddy.query.branch import Branch
from eddy.query.predicates import AttributeClass
from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.query.windows import Range, Rows, Unbounded
from eddy.runtime import Runtime
from eddy.warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "AdaptiveFilter",
    "AttributeClass",
    "Branch",
    "CapacityError",
    "EddyError",
    "InputError",
    "LateRowsError",
    "PlanError",
    "Predicate",
    "Query",
    "QueryError",
    "Range",
    "Rows",
    "Runtime",
    "SnapshotError",
    "StateError",
    "Stream",
    "Unbounded",
    "__version__",
    "warmup",
]

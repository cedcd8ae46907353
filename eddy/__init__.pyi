from . import agg
from .compiling import warmup
from .dialect.declarations import create_table
from .dialect.printing import to_sql
from .dialect.statement import sql
from .dialect.union import UnionAll
from .errors import (
    CapacityError,
    EddyError,
    FailedRowsError,
    InputError,
    LateRowsError,
    PlanError,
    QueryError,
    SnapshotError,
    SqlError,
    StateError,
)
from .filters.adaptive import AdaptiveFilter
from .filters.conditions import Predicate
from .queries.engine import Engine
from .query.as_of import AsOf
from .query.branch import Branch
from .query.group_windows import Hopping, Session, Tumbling
from .query.predicates import AttributeClass
from .query.query import Query
from .query.top import Top
from .routing.estimates import plans
from .runtime import Runtime
from .streams.stream import Stream
from .streams.table import Table
from .streams.versioned_table import VersionedTable
from .streams.windows import Range, Rows, Unbounded
from .watch.serve import serve

__version__: str

__all__ = [
    "AdaptiveFilter",
    "AsOf",
    "AttributeClass",
    "Branch",
    "CapacityError",
    "EddyError",
    "Engine",
    "FailedRowsError",
    "Hopping",
    "InputError",
    "LateRowsError",
    "PlanError",
    "Predicate",
    "Query",
    "QueryError",
    "Range",
    "Rows",
    "Runtime",
    "Session",
    "SnapshotError",
    "SqlError",
    "StateError",
    "Stream",
    "Table",
    "Top",
    "Tumbling",
    "Unbounded",
    "UnionAll",
    "VersionedTable",
    "__version__",
    "agg",
    "create_table",
    "plans",
    "serve",
    "sql",
    "to_sql",
    "warmup",
]

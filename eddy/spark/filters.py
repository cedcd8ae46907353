"""`eddy.spark.filter`: rows of a DataFrame that meet several conditions, asked in an order each task learns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter, named
from eddy.filters.conditions import Filter, Predicate, conditions
from eddy.spark.batch.rows import quoted
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _FilterRows:
    """What a worker does with the rows of one task; columns come and leave as c0, c1, …"""

    def __init__(self, predicates: tuple[Predicate, ...], columns: Sequence[str]) -> None:
        self._predicates = predicates
        self._columns = list(columns)
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_filter[{len(predicates)} predicates]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        accepts = AdaptiveFilter(self._predicates, place="eddy.spark.filter")
        for batch in batches:
            rows = accepts.accepted(batch.rename_columns(self._columns))
            if len(rows):
                yield batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))


def filter(df: DataFrame, predicates: Filter, names: Sequence[str] | None = None) -> DataFrame:
    """Return the rows of a DataFrame, batch or streaming, for which all predicates are true (not null).

    predicates  Arrow expressions over the columns by name, functions from a pyarrow.RecordBatch to a boolean for each
                row, `eddy.Predicate`s, or one of these; functions are sent to the workers by cloudpickle
    names       how errors name them, one each; None = by themselves

    The schema stays as it is. Each task learns the order in which to ask them by itself (`eddy.AdaptiveFilter`). What
    Spark can say in its own columns is better said to Spark: rows pass through Python here. Raises QueryError for a
    predicate that does not fit the columns, SparkJoinError for a DataFrame that has a name twice and for workers
    that cannot import this package; the job fails with an InputError that names the predicate when one fails on its
    rows.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    if not hasattr(df, "mapInArrow"):
        raise SparkJoinError(f"eddy.spark.filter takes a Spark DataFrame, not {type(df).__name__}")
    doubled = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if doubled:
        raise SparkJoinError(f"the DataFrame has two columns {doubled[0]!r}; rename one before the filter")
    schema = to_arrow_schema(df.schema, timezone=df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC")
    checked = named(conditions(predicates, schema, "eddy.spark.filter"), names)
    if not checked:
        return df
    check_workers(df.sparkSession)
    # Columns go by number: mapInArrow of pyspark 4.3 looks them up by unquoted name and fails on a dot.
    numbered = [StructField(f"c{k}", one.dataType, one.nullable, one.metadata) for k, one in enumerate(df.schema)]
    given = df.select(*(df[quoted(name)].alias(f"c{k}") for k, name in enumerate(df.columns)))
    kept = given.mapInArrow(_FilterRows(checked, df.columns), StructType(numbered))
    return kept.toDF(*df.columns)

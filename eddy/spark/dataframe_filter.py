"""`eddy.spark.filter`: filters a DataFrame by several conditions, which tasks evaluate in an order that they learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter, named
from eddy.filters.conditions import Filter, Predicate, conditions
from eddy.spark.columns import check_frame, numbered
from eddy.spark.environment.spark_version import arrow_schema
from eddy.spark.environment.worker_python import check_workers
from eddy.spark.errors import SparkJoinError
from eddy.spark.session_zone import session_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _FilterRows:
    """The function that Spark runs on the rows of one task. Columns arrive and leave as c0, c1, …"""

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

        import pyarrow.compute as pc
        kept = eddy.spark.filter(df, [pc.field("price") > 10, is_known], names=["price", "known"])

    predicates  one predicate or several: Arrow expressions over the columns by name, functions from a
                pyarrow.RecordBatch to a boolean per row, or `eddy.Predicate`s. Spark sends functions to the workers by
                cloudpickle
    names       one name per predicate for error messages; None = the text of the predicate

    The schema does not change. Each task independently learns the best order of the predicates (`eddy.AdaptiveFilter`).
    Rows pass through Python, so prefer `DataFrame.where` for conditions that Spark can express. Raises QueryError for a
    predicate that does not fit the columns, and SparkJoinError for a DataFrame with two columns of one name and for
    workers that cannot import this package. If a predicate fails on its rows, the job fails with an InputError that
    names the predicate.
    """
    from pyspark.sql.types import StructField, StructType

    check_frame("eddy.spark.filter", df)
    doubled = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if doubled:
        raise SparkJoinError(f"the DataFrame has two columns {doubled[0]!r}; rename one before the filter")
    schema = arrow_schema(df.schema, session_zone(df.sparkSession))
    checked = named(conditions(predicates, schema, "eddy.spark.filter"), names)
    if not checked:
        return df
    check_workers(df.sparkSession)
    fields = [StructField(f"c{k}", field.dataType, field.nullable, field.metadata) for k, field in enumerate(df.schema)]
    kept = numbered(df, df.columns).mapInArrow(_FilterRows(checked, df.columns), StructType(fields))
    return kept.toDF(*df.columns)

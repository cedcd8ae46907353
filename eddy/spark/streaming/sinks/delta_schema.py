"""Columns of a Delta table beside those of a query's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.types import spark_schema

if TYPE_CHECKING:
    from deltalake import Field, Schema


def delta_schema(schema: pa.Schema) -> Schema:
    """Return the Delta schema of results with the Arrow schema `schema`.

    Raises a SparkJoinError that names the column if Delta does not have its type.
    """
    from deltalake import Schema

    wanted = spark_schema(schema)
    for field in wanted:
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as problem:  # deltalake raises plain Exception for this
            raise SparkJoinError(
                f"result column {field.name!r}: Delta has no type for Arrow's {field.type}; leave the column out of the"
                " query's select"
            ) from problem
    return Schema.from_arrow(wanted)


def differences(there: Schema, wanted: Schema) -> list[str]:
    """Return how the columns of a table differ from those of the results. The order of columns has no influence."""
    table = {field.name: field for field in there.fields}
    results = {field.name: field for field in wanted.fields}
    texts = []
    for name in {**results, **table}:
        if name not in table:
            texts.append(f"only the results have {_described(results[name])}")
        elif name not in results:
            texts.append(f"only the table has {_described(table[name])}")
        elif (table[name].type, table[name].nullable) != (results[name].type, results[name].nullable):
            texts.append(f"{_described(results[name])} of the results is {_described(table[name])} in the table")
    return texts


def _described(field: Field) -> str:
    kind = getattr(field.type, "type", field.type)
    return f"{field.name!r} {kind}" + ("" if field.nullable else " not null")

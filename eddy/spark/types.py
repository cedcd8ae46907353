"""Arrow types and the Spark types that represent them.

Spark has no unsigned integers, no half floats, no views or encodings, and only one unit of time, microseconds. Workers
know a column only by its plain type (`stairs.plain_types`). A result column of a type that Spark lacks gets the
narrowest Spark type that holds all its values. Spark's `timestamp` is an instant (Arrow: with a time zone), and
`timestamp_ntz` is a local time (Arrow: without). This module never converts between the two, because only the user can
know the zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from stairs.plain_types import plain

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark can hold every value of `kind`; `kind` itself if possible."""
    kind = plain(kind)
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_timestamp(kind):
        # Spark's Arrow reader knows only the zone of the session; an instant does not depend on it.
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type)) for field in kind])
    return kind


def sortable_type(kind: pa.DataType) -> pa.DataType:
    """Return `kind`, or a type of the same order that Arrow can sort if it cannot sort `kind`."""
    return spark_type(kind) if kind == pa.float16() else kind


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with `spark_type` of every type; all fields are nullable, as in Spark's results."""
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in schema])


def struct_type(schema: pa.Schema) -> StructType:
    """Return the Spark schema of results with the Arrow schema `schema`.

    Raises a SparkJoinError that names the column if Spark does not have its type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    for field in spark_schema(schema):
        try:
            from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True)
        except (PySparkException, TypeError, ValueError) as problem:
            raise SparkJoinError(
                f"result column {field.name!r}: Spark has no type for Arrow's {field.type}; leave the column out of the"
                " query's select"
            ) from problem
    return from_arrow_schema(spark_schema(schema), prefer_timestamp_ntz=True)


def why_unfit(given: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return why a column of the Spark type `given` (as Arrow) cannot be a stream's column of type `wanted`.

    Returns None if it can. Numbers may differ in width: the job fails at a value that does not fit, and never changes a
    value.
    """
    # Spark and queries declare the nullability of nested values differently, so it is not compared.
    if spark_type(given) == spark_type(wanted):
        return None
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        if (given.tz is None) == (wanted.tz is None):
            return None
        if given.tz is None:
            return "the column has no time zone (timestamp_ntz): declare a type without tz, or cast it to timestamp"
        return "the column is an instant (timestamp): declare a timestamp with tz='UTC', or cast it to timestamp_ntz"
    whole = pa.types.is_integer, pa.types.is_integer
    exact = (pa.types.is_integer, pa.types.is_decimal), (pa.types.is_decimal, pa.types.is_decimal)
    floats = (pa.types.is_floating, pa.types.is_floating)
    for of_given, of_wanted in (whole, *exact, floats):
        if of_given(given) and of_wanted(wanted):
            return None
    return "cast the column to the type the query declares, or declare this one"

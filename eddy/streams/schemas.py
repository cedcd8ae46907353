"""Arrow schemas of users' objects: frames, schemas and dicts of types, of Arrow, pandas, Polars, DuckDB and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from stairs.errors import QueryError

PYTHON_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us"),
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
}
"""Types of columns whose type is given as a class of Python."""


def schema_of(given: object, where: str) -> pa.Schema:
    """Return the Arrow schema that an object has or describes. Reads no rows, except of pandas' columns of objects.

    `given` is a schema of Arrow, Polars or Spark, anything with rows that has such a schema (tables and batches of
    Arrow, frames of pandas, Polars and Spark, relations of DuckDB), or a dict from names to types: of Arrow, names of
    Arrow's types ("int64"), types of Polars, or classes of Python (`PYTHON_TYPES`). Raises QueryError, which begins
    with `where`.
    """
    try:
        schema = _read(given, where)
    except QueryError:
        raise
    except Exception as error:
        raise QueryError(f"{where}the schema of a {type(given).__name__} cannot be read: {error}") from error
    if schema is None:
        raise QueryError(
            f"{where}its schema is a {type(given).__name__}; give a pyarrow.Schema, a frame of pandas, Polars or Spark,"
            " a relation of DuckDB, or a dict such as {'user': 'int64', 'at': pa.timestamp('us')}"
        )
    return schema


def _read(given: Any, where: str) -> pa.Schema | None:
    if isinstance(given, pa.Schema):
        return given
    library = type(given).__module__.partition(".")[0]
    if library == "pyspark":
        return _of_spark(getattr(given, "schema", given))
    if library == "pandas":
        return _of_pandas(given, where)
    if library == "polars" and hasattr(given, "collect_schema"):
        given = given.collect_schema()
    if isinstance(given, Mapping):
        if not given:
            raise QueryError(f"{where}its schema has no columns")
        return pa.schema([(str(name), _type_of(kind, f"{where}column {name!r}: ")) for name, kind in given.items()])
    if isinstance(getattr(given, "schema", None), pa.Schema):
        return given.schema
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).schema
    return None


def _of_pandas(frame: Any, where: str) -> pa.Schema:
    fields = []
    for k, name in enumerate(frame.columns):
        try:
            fields.append((str(name), pa.Array.from_pandas(frame.iloc[:, k]).type))
        except pa.ArrowException as error:
            raise QueryError(f"{where}the type of column {name!r} is not clear: {error}; give its schema") from error
    return pa.schema(fields)


def _of_spark(schema: Any) -> pa.Schema | None:
    """Return the Arrow schema of a StructType. Spark's `timestamp` is an instant: UTC in Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(schema, timezone="UTC") if isinstance(schema, StructType) else None


def _type_of(kind: Any, where: str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, str):
        try:
            return pa.type_for_alias(kind)
        except ValueError as error:
            raise QueryError(
                f"{where}Arrow has no type named {kind!r}; names are 'int64', 'string', 'timestamp[us]', …, and pa.…()"
                " makes the others"
            ) from error
    if isinstance(kind, type) and kind in PYTHON_TYPES:
        return PYTHON_TYPES[kind]
    if (type(kind) if not isinstance(kind, type) else kind).__module__.partition(".")[0] == "polars":
        import polars

        return polars.Series([], dtype=kind).to_arrow().type
    classes = ", ".join(python_type.__name__ for python_type in PYTHON_TYPES)
    raise QueryError(f"{where}{kind!r} is no type of a column; give a type of pyarrow, its name, or one of {classes}")

"""`Stream(schema=…)` takes what people have."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import eddy

WANTED = pa.schema([("user", pa.int64()), ("page", pa.string()), ("at", pa.timestamp("us"))])
ROW = {"user": [1], "page": ["home"], "at": [datetime(2026, 1, 2)]}
TABLE = pa.table(ROW, WANTED)
FRAME = pd.DataFrame(ROW).astype({"at": "datetime64[us]"})
STRUCT = spark.StructType(
    [
        spark.StructField("user", spark.LongType()),
        spark.StructField("page", spark.StringType(), nullable=False),
        spark.StructField("at", spark.TimestampNTZType()),
    ]
)
SCHEMAS: dict[str, Any] = {
    "Arrow": WANTED,
    "table of Arrow": TABLE,
    "batch of Arrow": TABLE.to_batches()[0],
    "reader of Arrow": TABLE.to_reader(),
    "pandas": FRAME,
    "Polars": pl.DataFrame(ROW),
    "lazy Polars": pl.LazyFrame(ROW),
    "schema of Polars": pl.DataFrame(ROW).schema,
    "DuckDB": duckdb.from_arrow(TABLE),
    "Spark": STRUCT,
    "types of Arrow": dict(zip(WANTED.names, WANTED.types, strict=True)),
    "names of types": {"user": "int64", "page": "string", "at": "timestamp[us]"},
    "classes of Python": {"user": int, "page": str, "at": datetime},
    "types of Polars": {"user": pl.Int64, "page": pl.String(), "at": pl.Datetime("us")},
}


@pytest.mark.parametrize("form", SCHEMAS)
def test_forms_of_a_schema(form: str) -> None:
    schema = eddy.Stream("clicks", SCHEMAS[form], time="at").schema
    assert isinstance(schema, pa.Schema)
    large = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}  # what Polars has
    assert [(field.name, large.get(field.type, field.type)) for field in schema] == [
        (field.name, field.type) for field in WANTED
    ]


def test_an_instant_of_spark_has_a_zone() -> None:
    schema = spark.StructType([spark.StructField("at", spark.TimestampType())])
    assert eddy.Stream("clicks", schema).schema == pa.schema([("at", pa.timestamp("us", "UTC"))])


def test_the_schema_of_a_reader_costs_no_row() -> None:
    reader = TABLE.to_reader()
    eddy.Stream("clicks", reader)
    assert reader.read_all() == TABLE


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (None, "stream clicks: its schema is a NoneType; give a pyarrow.Schema, a frame of pandas"),
    "names": (["user"], "stream clicks: its schema is a list; give"),
    "no columns": ({}, "stream clicks: its schema has no columns"),
    "a name Arrow lacks": ({"user": "bigint"}, "stream clicks: column 'user': Arrow has no type named 'bigint'"),
    "a class that is no type": ({"user": list}, "stream clicks: column 'user': <class 'list'> is no type of a column"),
    "a type of Spark by itself": (spark.LongType(), "stream clicks: its schema is a LongType"),
    "columns of different classes": (
        pd.DataFrame({"v": [1, "x"]}),
        "stream clicks: the type of column 'v' is not clear: ",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_has_no_schema(what: str) -> None:
    given, message = WRONG[what]
    with pytest.raises(eddy.QueryError, match=message):
        eddy.Stream("clicks", given)

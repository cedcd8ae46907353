"""The forms in which rows are pushed: Arrow, data frames, dicts; columns of other widths and units."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eddy

pytestmark = pytest.mark.versions

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))])
DAY = datetime(2026, 1, 2)
ROWS: list[dict[str, Any]] = [
    {"k": "x", "n": 1, "t": DAY},
    {"k": "y", "n": None, "t": DAY},
    {"k": None, "n": 3, "t": DAY},
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


class Capsule:
    """One batch, as the objects of another library give it."""

    def __init__(self, table: pa.Table) -> None:
        (self._batch,) = table.combine_chunks().to_batches()

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "batch": lambda table: table.to_batches()[0],
    "array capsule": Capsule,
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "Polars": pl.from_arrow,
    "DuckDB": lambda table: duckdb.from_arrow(table),
    "rows": lambda table: table.to_pylist(),
    "tuple of rows": lambda table: tuple(table.to_pylist()),
    "columns": lambda table: table.to_pydict(),
    "columns of Arrow": lambda table: dict(zip(table.column_names, table.columns, strict=True)),
    "columns of Polars": lambda table: pl.from_arrow(table).to_dict(),
    "columns of NumPy": lambda table: {"k": np.array(["x", "y", None], object), "n": table["n"], "t": table["t"]},
    "other columns too": lambda table: table.append_column("more", [pa.nulls(3)]).select(["more", "t", "n", "k"]),
    "narrow": lambda table: table.cast(
        pa.schema([("k", pa.large_string()), ("n", pa.int8()), ("t", pa.timestamp("s"))])
    ),
    "index of a column": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype).set_index("k"),
    "index beside a column": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype).set_index("k", drop=False),
    "views": lambda table: table.cast(
        pa.schema([("k", pa.string_view()), ("n", pa.uint64()), ("t", pa.timestamp("ns"))])
    ),
    "encoded": lambda table: table.set_column(0, "k", table["k"].dictionary_encode()),
}


def pair(schema: pa.Schema = SCHEMA) -> eddy.Runtime:
    streams = [eddy.Stream(name, schema, window=eddy.Rows(9)) for name in "RS"]
    return eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]), output="changelog")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_results(form: str) -> None:
    runtime = pair()
    runtime.push({"R": TABLE})
    results = runtime.push({"S": FORMS[form](TABLE)})
    assert runtime.position == 6
    wanted = pair()
    wanted.push({"R": TABLE})
    assert results.equals(wanted.push({"S": TABLE}))
    assert results["S.n"].to_pylist() == [1, None]


@pytest.mark.parametrize("form", ["rows", "columns", "pandas", "table"])
def test_no_rows(form: str) -> None:
    runtime = pair()
    assert (
        runtime.push(
            {"R": FORMS[form](TABLE.slice(0, 0)) if form != "columns" else {"k": [], "n": [], "t": []}}
        ).num_rows
        == 0
    )
    assert runtime.position == 0


WIDTHS: dict[str, tuple[pa.DataType, pa.Array]] = {
    "half a float": (pa.float32(), pa.array([1.5, None, float("nan"), float("-inf")], pa.float64())),
    "a float of a half": (pa.float64(), pa.array([1.5, None], pa.float32())),
    "days": (pa.date32(), pa.array([datetime(2026, 1, 2).date(), None], pa.date64())),
    "decimals": (pa.decimal128(12, 3), pa.array([1, None], pa.int64()).cast(pa.decimal128(20, 0))),
    "a zone": (
        pa.timestamp("ms", "UTC"),
        pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("s", "Asia/Tokyo")),
    ),
    "lists of Polars": (pa.list_(pa.int64()), pl.Series([[1, 2], None], dtype=pl.List(pl.Int32)).to_arrow()),
    "texts in structs": (pa.struct({"a": pa.string()}), pa.array([{"a": "x"}], pa.struct({"a": pa.string_view()}))),
    "spans": (pa.duration("ns"), pa.array([5, None], pa.duration("s"))),
    "bytes": (pa.large_binary(), pa.array([b"x", None], pa.binary())),
    "nothing but nulls": (pa.int64(), pa.nulls(2)),
    "a dictionary of other indices": (pa.dictionary(pa.int32(), pa.string()), pa.array(["x", "x"]).dictionary_encode()),
}


@pytest.mark.parametrize("what", WIDTHS)
def test_other_widths_that_lose_nothing(what: str) -> None:
    kind, column = WIDTHS[what]
    runtime = pair(pa.schema([("k", pa.int64()), ("v", kind)]))
    keys = pa.array([1] * len(column))
    runtime.push({"R": {"k": keys, "v": column}})
    joined = runtime.push({"S": pa.table({"k": pa.array([1]), "v": column[:1]})})["R.v"]
    assert joined.type == kind
    assert sorted(map(str, joined.to_pylist())) == sorted(map(str, column.cast(kind).to_pylist()))


WRONG: dict[str, tuple[Any, str]] = {
    "a text": ("x", "stream R: cannot read rows from str; push a pyarrow RecordBatch or Table, a DataFrame"),
    "a number": (3, "cannot read rows from int"),
    "a series": (pd.Series([1], name="n"), "cannot read rows from Series"),
    "a signalling NaN": (pd.DataFrame({"k": ["x"], "n": [Decimal("sNaN")], "t": [DAY]}), "is of class Decimal; give"),
    "numbers": ([1, 2], "cannot read rows from list"),
    "a row without a column": (
        [{"k": "x", "n": 1, "t": DAY}, {"k": "x"}],
        "column 'n' is missing in row 1 of the push",
    ),
    "columns without one": ({"k": ["x"], "t": [DAY]}, r"column 'n' is missing in the columns \['k', 't'\]"),
    "columns of two lengths": (
        {"k": ["x", "y"], "n": [1], "t": [DAY, DAY]},
        "different lengths: {'k': 2, 'n': 1, 't': 2}",
    ),
    "one value for a column": ({"k": "xyz", "n": [1], "t": [DAY]}, "column 'k' is 'xyz'; give a sequence"),
    "a text for a number": ([{"k": "x", "n": "1", "t": DAY}], "column 'n' of type int64: "),
    "a fraction for a number": ([{"k": "x", "n": 1.5, "t": DAY}], "'n' of type int64: 1.5 is of class float; give"),
    "too large a number": (
        {"k": ["x"], "n": pa.array([1 << 63], pa.uint64()), "t": [DAY]},
        "column 'n' is uint64, the query declares int64, and a value does not fit: .*9223372036854775808",
    ),
    "too fine a time": (
        {"k": ["x"], "n": [1], "t": pa.array([1], pa.timestamp("ns"))},
        r"column 't' is timestamp\[ns\], the query declares timestamp\[us\], and a value does not fit",
    ),
    "too fine a part": (
        {"k": ["x"], "n": [1], "t": pa.array([[1500]], pa.list_(pa.timestamp("ms")))},
        r"column 't' is list<item: timestamp\[ms\]>, the query declares timestamp\[us\]; cast it first",
    ),
    "a time with a zone": (
        {"k": ["x"], "n": [1], "t": pa.array([1], pa.timestamp("us", "UTC"))},
        "column 't' is timestamp.us, tz=UTC., the query declares timestamp.us.; cast it first",
    ),
    "floats for numbers": (pd.DataFrame({"k": ["x"], "n": [1.0], "t": [DAY]}), "column 'n' is double, .*cast it first"),
    "a frame without a column": (pl.DataFrame({"k": ["x"]}), r"column 'n' is missing in the columns \['k'\]"),
}


NESTED: dict[str, tuple[pa.DataType, pa.DataType, Any]] = {
    "times in lists": (pa.list_(pa.timestamp("s")), pa.list_(pa.timestamp("ms")), [1500]),
    "numbers in structs": (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.int64()}), {"a": 300}),
    "names of structs": (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8()}), {"b": 3}),
    "order in structs": (
        pa.struct({"a": pa.int8(), "b": pa.int8()}),
        pa.struct({"b": pa.int8(), "a": pa.int8()}),
        {"a": 1, "b": 2},
    ),
    "floats in lists": (pa.list_(pa.float32()), pa.list_(pa.float64()), [0.1]),
    "lengths of lists": (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 1), [1]),
    "keys of maps": (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int64(), pa.int8()), [(300, 1)]),
}


@pytest.mark.parametrize("what", NESTED)
def test_parts_of_nested_columns_are_cast_if_nothing_is_lost(what: str) -> None:
    wanted, given, value = NESTED[what]
    runtime = pair(pa.schema([("k", pa.int64()), ("v", wanted)]))
    with pytest.raises(eddy.InputError, match=r"column 'v' is .*, the query declares"):
        runtime.push({"R": {"k": [1], "v": pa.array([value], given)}})
    assert runtime.position == 0


@pytest.mark.parametrize("what", WRONG)
def test_rows_that_do_not_fit(what: str) -> None:
    rows, message = WRONG[what]
    runtime = pair()
    runtime.push({"S": TABLE})
    before = runtime.snapshot()
    with pytest.raises(eddy.InputError, match=message):
        runtime.push({"R": rows})
    assert runtime.snapshot() == before


def test_a_float_that_would_be_rounded() -> None:
    runtime = pair(pa.schema([("k", pa.int64()), ("v", pa.float32())]))
    with pytest.raises(eddy.InputError, match=r"0\.1 would be rounded; declare the wider type or cast it first"):
        runtime.push({"R": pa.table({"k": [1, 2], "v": [0.5, 0.1]})})


def test_a_reader_that_fails() -> None:
    def batches() -> Any:
        yield TABLE.to_batches()[0]
        raise OSError("the disk is gone")

    runtime = pair()
    with pytest.raises(eddy.InputError, match=r"the rows in a RecordBatchReader cannot be read: .*the disk is gone"):
        runtime.push({"R": pa.RecordBatchReader.from_batches(SCHEMA, batches())})
    assert runtime.position == 0

"""No value is cut at the door: for each source, type of column and form of input, it arrives as given or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eddy
from eddy.ingest.tables import checked_rows

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 900001)
TOKYO = ZoneInfo("Asia/Tokyo")
FINE = "2026-01-02 03:04:05.900000001"
SOURCES: dict[str, list[Any]] = {
    "nothing": [None],
    "midnight": [datetime(2026, 1, 2), None],
    "microseconds": [MOMENT, None],
    "far future": [datetime(2900, 1, 2)],
    "UTC": [MOMENT.replace(tzinfo=UTC)],
    "Tokyo": [datetime(2026, 1, 2, 3, tzinfo=TOKYO), None],
    "zones": [MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=TOKYO)],
    "with and without a zone": [MOMENT, MOMENT.replace(tzinfo=TOKYO)],
    "nanoseconds of pandas": [pd.Timestamp(FINE)],
    "nanoseconds of pandas in Tokyo": [pd.Timestamp(FINE, tz="Asia/Tokyo")],
    "no time": [pd.NaT, datetime(2026, 1, 2)],
    "nanoseconds of NumPy": [np.datetime64(FINE)],
    "seconds of NumPy": [np.datetime64("2026-01-02T03:04:05"), None],
    "days of NumPy": [np.datetime64("2026-01-02")],
    "units of NumPy": [np.datetime64("2026-01-02T03:04:05"), np.datetime64(FINE)],
    "no time of NumPy": [np.datetime64("NaT", "s")],
    "days": [date(2026, 1, 2), None],
    "a day and a moment": [date(2026, 1, 2), MOMENT],
    "a moment and a day": [MOMENT, date(2026, 1, 2)],
    "time of day": [time(1, 2, 3), None],
    "fine time of day": [time(1, 2, 3, 400001)],
    "time of day with a zone": [time(1, 2, 3, tzinfo=UTC)],
    "span": [timedelta(seconds=3), None],
    "fine span": [timedelta(microseconds=1500001)],
    "span of pandas": [pd.Timedelta(1500001, "ns")],
    "span of NumPy": [np.timedelta64(1500001, "ns")],
    "long span": [timedelta(days=200_000)],
    "small": [5, None],
    "above a byte": [300],
    "negative": [-1],
    "above half a float": [2049],
    "above a float": [2**24 + 1],
    "above a double": [2**53 + 1],
    "above 64 bits with a sign": [2**63 + 5],
    "above 64 bits": [2**70],
    "integer and fraction": [1, 2.5, None],
    "large integer and fraction": [2**53 + 1, 0.5],
    "whole float": [1.0],
    "tenth": [0.1, None],
    "half": [0.5, float("nan"), float("inf")],
    "unsigned of NumPy": [np.uint64(2**64 - 1)],
    "power above 64 bits of NumPy": [np.uint64(2**63)],
    "long double": [np.longdouble("0.1")],
    "tenth in 32 bits": [np.float32(0.1)],
    "integer of NumPy": [np.int16(300)],
    "decimal": [Decimal("0.10"), None],
    "fine decimal": [Decimal("0.123")],
    "large decimal": [Decimal(10**30)],
    "boolean": [True, None],
    "boolean of NumPy": [np.bool_(True)],
    "integer and boolean": [1, True],
    "text": ["x", None],
    "digits": ["5"],
    "bytes": [b"x", None],
    "text with a NUL": ["x\0y"],
    "bytes with a NUL": [b"x\0y"],
    "list": [[1, 2], None, []],
    "list of texts": [["x"], None],
    "list of NumPy's moments": [np.array(["2026-01-02T03:04:05.9"], "datetime64[ms]")],
    "list of NumPy's whole moments": [np.array(["2026-01-02T03:04:05"], "datetime64[ns]"), None],
    "list of NumPy's spans": [np.array([1500], "timedelta64[us]")],
    "list of one of NumPy's spans": [[np.timedelta64(2, "s")]],
    "list of NumPy's unsigned": [np.array([2**64 - 1], np.uint64)],
    "struct of NumPy's moment": [{"a": np.datetime64("2026-01-02T03:04:05", "ms")}],
    "pair of NumPy's moment": [[("a", np.datetime64("2026-01-02T03:04:05", "ms"))]],
    "list of fractions": [[1, 2.5]],
    "list of moments": [[MOMENT]],
    "struct": [{"a": 1}, None],
    "struct with more": [{"a": 1, "b": 2}],
    "struct of a fraction": [{"a": 1.5}],
    "pairs": [[("a", 1)]],
    "pair of a fraction": [[("a", 1.5)]],
    "complex": [1j],
    "object": [object()],
}
COLUMNS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(10, 2), pa.decimal256(50, 0), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.binary(1), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.timestamp("s"))),
    *(pa.list_(pa.int8()), pa.list_(pa.timestamp("s")), pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int8())),
    *(pa.large_list(pa.string()), pa.list_(pa.duration("us")), pa.list_(pa.float32()), pa.list_(pa.int64(), 1)),
    *(pa.struct({"a": pa.timestamp("us")}), pa.map_(pa.string(), pa.timestamp("us"))),
]


def _null(value: object) -> bool:
    return value is None or value is pd.NaT or value is pd.NA


def _of_pandas(column: pd.Series) -> tuple[Any, list[Any]]:
    """Return a frame and its values. In pandas, NaN is a missing value."""
    values = [None if null else value for value, null in zip(column.tolist(), column.isna(), strict=True)]
    return pd.DataFrame({"v": column}), values


FORMS: dict[str, Callable[[list[Any]], tuple[Any, list[Any]]]] = {
    "rows": lambda values: ([{"v": value} for value in values], values),
    "columns": lambda values: ({"v": values}, values),
    "objects of NumPy": lambda values: ({"v": _objects(values)}, values),
    "array of NumPy": lambda values: ({"v": np.array(values)}, [*np.array(values)]),
    "frame of pandas": lambda values: _of_pandas(pd.Series(values)),
    "objects of pandas": lambda values: _of_pandas(pd.Series(values, dtype=object)),
    "series of pandas": lambda values: ({"v": pd.Series(values)}, _of_pandas(pd.Series(values))[1]),
    "Polars": lambda values: (pl.DataFrame({"v": values}), pl.DataFrame({"v": values})["v"].to_list()),
    "Arrow": lambda values: (pa.table({"v": pa.array(values)}), pa.array(values).to_pylist()),
    "DuckDB": lambda values: (duckdb.from_arrow(pa.table({"v": pa.array(values)})), pa.array(values).to_pylist()),
}


def _objects(values: list[Any]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _ticks(value: Any, kind: pa.DataType) -> Any:
    """Return the time that a number of ticks is; any other value as it is."""
    if pa.types.is_map(kind) and value is not None:  # a dict is a map, too
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, _ticks(item, kind.item_type)) for key, item in pairs]
    if pa.types.is_struct(kind) and value is not None:
        return {name: _ticks(part, kind.field(name).type) for name, part in value.items()}
    if pa.types.is_nested(kind) and isinstance(value, list):
        return [_ticks(part, kind.value_type) for part in value]
    return pa.scalar(value, kind).as_py() if pa.types.is_temporal(kind) and type(value) is int else value


def _exact(value: Any) -> Any:
    """Return a value in a form in which equal means the same kind of thing and the same amount of it."""
    if _null(value) or (isinstance(value, np.datetime64) and np.isnat(value)):
        return None
    if isinstance(value, bool | np.bool_):
        return ("boolean", bool(value))
    if isinstance(value, np.datetime64):
        unit = np.datetime_data(value.dtype)[0]
        return ("day" if unit == "D" else "moment", False, int(value.astype("datetime64[ns]").astype(np.int64)))
    if isinstance(value, timedelta | np.timedelta64):
        whole = value if isinstance(value, np.timedelta64) else None
        if whole is not None:
            return ("span", int(whole.astype("timedelta64[ns]").astype(np.int64)))
        micros = value // timedelta(microseconds=1)
        return ("span", micros * 1000 + (value.nanoseconds if isinstance(value, pd.Timedelta) else 0))
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        since = value.to_pydatetime(warn=False) if isinstance(value, pd.Timestamp) else value
        micros = (since - datetime(1970, 1, 1, tzinfo=UTC if zoned else None)) // timedelta(microseconds=1)
        return ("moment", zoned, micros * 1000 + (value.nanosecond if isinstance(value, pd.Timestamp) else 0))
    if isinstance(value, date):
        return ("day", False, (value - date(1970, 1, 1)) // timedelta(microseconds=1) * 1000)
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        return ("number", str(float(value)))
    if isinstance(value, int | float | Decimal | np.number):
        return ("number", Fraction(*(int(value) if isinstance(value, np.integer) else value).as_integer_ratio()))
    if isinstance(value, Mapping):
        return {name: _exact(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray | pl.Series):
        return [_exact(part) for part in value]
    return ("text" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "other", value)


@pytest.mark.parametrize("form", FORMS)
def test_a_value_arrives_as_given_or_is_refused(form: str) -> None:
    accepted: set[pa.DataType] = set()
    for what, values in SOURCES.items():
        try:
            rows, given = FORMS[form](values)
        except Exception:
            continue  # the other library cannot hold these values
        for kind in COLUMNS:
            try:
                batch = checked_rows(rows, pa.schema([("v", kind)]), "R")
            except eddy.InputError:
                continue
            accepted.add(kind)
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            if any(type(value) is int and value > 1 << 20 for value in given) and pa.types.is_temporal(plain):
                assert [tick.value for tick in batch["v"].cast(plain)] == given  # Python has no such times
                continue
            wanted = [_ticks(value, plain) for value in given]
            assert _exact(batch["v"].to_pylist()) == _exact(wanted), (what, kind)
    # A door that refuses everything would pass, too.
    strange = {kind for kind in COLUMNS if pa.types.is_nested(kind) or pa.types.is_map(kind)}
    assert accepted >= set(COLUMNS) - strange if "of" not in form else accepted


MAPS = {pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.timestamp("us"))}
EXPECTED = {
    "midnight": {pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "microseconds": {pa.timestamp("us"), pa.timestamp("ns")},
    "zones": {pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")},
    "nanoseconds of pandas": {pa.timestamp("ns")},
    "seconds of NumPy": {pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "days": {pa.date32(), pa.date64()},
    "fine time of day": {pa.time64("us"), pa.time64("ns")},
    "fine span": {pa.duration("us"), pa.duration("ns")},
    "above a byte": {kind for kind in COLUMNS if pa.types.is_temporal(kind) and not pa.types.is_time(kind)}
    - {pa.date64()}
    | {pa.int16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()}
    | {pa.decimal128(10, 2), pa.decimal256(50, 0)},
    "tenth": {pa.float64()},
    "decimal": {pa.decimal128(10, 2)},
    "boolean": {pa.bool_()},
    "text": {pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())},
    "bytes": {pa.binary(), pa.binary(1)},
    "list": {pa.list_(kind) for kind in (pa.int8(), pa.timestamp("s"), pa.duration("us"), pa.float32())},
    "struct": {pa.struct({"a": kind}) for kind in (pa.int64(), pa.timestamp("us"))} | MAPS,
    "pairs": MAPS,
    "list of NumPy's whole moments": {pa.list_(pa.timestamp("s"))},
    "list of NumPy's spans": {pa.list_(pa.duration("us"))},
    "list of one of NumPy's spans": {pa.list_(pa.duration("us"))},
    "struct of NumPy's moment": {pa.struct({"a": pa.timestamp("us")}), pa.map_(pa.string(), pa.timestamp("us"))},
    "pair of NumPy's moment": {pa.map_(pa.string(), pa.timestamp("us"))},
    "list of texts": {pa.large_list(pa.string())},
    "text with a NUL": {pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())},
}


@pytest.mark.parametrize("what", EXPECTED)
def test_columns_that_take_python_values(what: str) -> None:
    taken = set()
    for kind in COLUMNS:
        try:
            checked_rows({"v": SOURCES[what]}, pa.schema([("v", kind)]), "R")
            taken.add(kind)
        except eddy.InputError:
            pass
    encoded = pa.dictionary(pa.int8(), pa.timestamp("s"))
    assert (encoded in taken) == (pa.timestamp("s") in taken)
    assert taken - {encoded} == EXPECTED[what]


def test_a_cut_second_makes_no_result() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s"))])
    streams = [eddy.Stream(name, schema, time="at") for name in "ab"]
    runtime = eddy.Runtime(eddy.Query(streams, ["a.k = b.k", "b.at between a.at and a.at + 1 hour"]))
    with pytest.raises(eddy.InputError, match=r"stream a: column 'at' of type timestamp\[s\]: .*would lose data"):
        runtime.push({"a": [{"k": 1, "at": datetime(2026, 1, 1, 0, 0, 0, 900000)}]})
    assert runtime.position == 0

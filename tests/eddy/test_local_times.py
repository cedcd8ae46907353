"""Functions of local times around changes of all clocks, against DuckDB, with the rules of PostgreSQL."""

from __future__ import annotations

import datetime as dt
import random
import zoneinfo

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Runtime, Stream, sql
from eddy.expressions.scalars import Scalars
from eddy.expressions.source import StatementText, parse
from eddy.filters.conditions import project

DAY = 86_400
AROUND = (-20 * DAY, -DAY // 2, -5_400, -1_800, -1, 0, 1, 1_800, 5_400, DAY // 2, 3 * DAY, 20 * DAY, 200 * DAY)
"""Seconds after a change of the clock."""
ZONES = sorted(zoneinfo.available_timezones() - {"Factory", "localtime"})
LOCAL = "timezone(z, x)"
"""The local time in DuckDB."""
OF_DAYS, OF_HOURS = ("year", "quarter", "month", "week", "day"), ("hour", "minute", "second")
FUNCTIONS = {
    "CAST(x AS DATE)": f"CAST({LOCAL} AS DATE)",
    "CAST(x AS TIMESTAMP(0) WITH LOCAL TIME ZONE)": "date_trunc('second', x)",
    "FLOOR(x TO DAY)": "date_trunc('day', x)",
    "x + INTERVAL '1' DAY": "x + INTERVAL 24 HOURS",
    # Of a local time in a gap or one that comes twice, `timezone` gives what PostgreSQL gives.
    **{f"DATE_TRUNC('{unit}', x)": f"timezone(z, date_trunc('{unit}', {LOCAL}))" for unit in OF_DAYS},
    # DuckDB moves the first of two equal hours to the second one, where PostgreSQL keeps the offset.
    **{f"DATE_TRUNC('{unit}', x)": f"x - ({LOCAL} - date_trunc('{unit}', {LOCAL}))" for unit in OF_HOURS},
    **{
        f"EXTRACT({unit} FROM x)": f"EXTRACT({unit} FROM {LOCAL})"
        for unit in (*(name.upper() for name in (*OF_DAYS, *OF_HOURS)), "DOY")
    },
}


def changes(zone: str) -> npt.NDArray[np.int64]:
    """Return the seconds at which the clock of a zone changes, from 1973 to 2035."""

    def offsets(seconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return local(pa.array(seconds).cast(pa.timestamp("s", zone))) - seconds

    weeks = np.arange(1_100 * DAY, 24_100 * DAY, 7 * DAY)
    week_offsets = offsets(weeks)
    k = np.flatnonzero(week_offsets[1:] != week_offsets[:-1])
    low, high = weeks[k], weeks[k + 1]
    while (high - low > 1).any():
        middle = (low + high) // 2
        changed = offsets(middle) != week_offsets[k]
        low, high = np.where(changed, low, middle), np.where(changed, middle, high)
    return high


def local(instants: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.local_timestamp(instants).cast(pa.int64()))


def test_all_zones() -> None:
    trees = {text: parse(StatementText(f"SELECT {text}")).expressions[0] for text in FUNCTIONS}
    columns = ", ".join(f"{expression} AS c{k}" for k, expression in enumerate(FUNCTIONS.values()))
    chosen = random.Random(40)
    connection = duckdb.connect()
    connection.execute("LOAD icu; SET threads = 1")
    compared, known = 0, set()
    for zone in ZONES:
        moments = changes(zone)
        local_bytes = local(pa.array(moments).cast(pa.timestamp("s", zone))).tobytes()
        if local_bytes in known:
            continue  # another name of one zone
        known.add(local_bytes)
        moments = [int(moment) for moment in chosen.sample(moments.tolist(), min(len(moments), 6))]
        at = pa.array(sorted({1_000_000 * (moment + after) + 123_456 for moment in moments for after in AROUND}))
        if not len(at):
            continue
        kind = pa.timestamp("us", zone)
        table = pa.table({"x": at.cast(kind)})
        connection.execute(f"SET TimeZone = '{zone}'")
        connection.register("pushed", table)
        wanted = connection.sql(
            f"SELECT {LOCAL} AS own, {columns} FROM (SELECT x, '{zone}' AS z FROM pushed)"
        ).to_arrow_table()
        if (np.asarray(wanted.column("own").cast(pa.int64())) != local(table.column("x"))).any():
            continue  # DuckDB has another edition of the zones
        scalars = Scalars(StatementText(""), lambda _, zoned=kind: ("x", zoned))
        values = [scalars.value(tree) for tree in trees.values()]
        computed = project({f"c{k}": value.arrow for k, value in enumerate(values)}, table)
        for k, (text, value) in enumerate(zip(FUNCTIONS, values, strict=True)):
            ours, theirs = computed.column(f"c{k}"), wanted.column(f"c{k}").cast(value.kind)
            if ours != theirs:
                i = next(i for i in range(len(at)) if ours[i] != theirs[i])
                raise AssertionError(f"{text} of {table['x'][i]}: {ours[i]}, and {theirs[i]} in DuckDB")
        compared += len(at)
    assert compared > 15_000


@pytest.mark.parametrize(
    ("zone", "instant", "expression", "value"),
    [
        ("America/Los_Angeles", "2024-11-03 08:40", "DATE_TRUNC('HOUR', a.at)", "2024-11-03 01:00:00-07:00"),
        ("America/Los_Angeles", "2024-11-03 09:40", "DATE_TRUNC('HOUR', a.at)", "2024-11-03 01:00:00-08:00"),
        ("America/Sao_Paulo", "2018-11-04 15:00", "CAST(a.at AS DATE)", "2018-11-04"),
        ("America/Sao_Paulo", "2018-11-04 15:00", "DATE_TRUNC('DAY', a.at)", "2018-11-04 01:00:00-02:00"),
        ("America/Havana", "2024-11-03 04:40", "CAST(a.at AS DATE)", "2024-11-03"),
        ("America/Havana", "2024-11-03 15:00", "FLOOR(a.at TO DAY)", "2024-11-03 00:00:00-05:00"),
        # The gap begins before midnight, and ends after it.
        ("America/Toronto", "1919-03-31 15:00", "DATE_TRUNC('DAY', a.at)", "1919-03-31 01:00:00-04:00"),
    ],
)
def test_a_pushed_row_at_a_change_of_the_clock(zone: str, instant: str, expression: str, value: str) -> None:
    rows = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", zone))])
    query = sql(f"SELECT {expression} AS y FROM a JOIN b ON a.k = b.k", [Stream(name, rows) for name in "ab"])
    at = pa.scalar(dt.datetime.fromisoformat(instant)).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")).as_py()
    runtime = Runtime(query)
    runtime.push({"a": [{"k": 1, "at": at}]})
    (row,) = runtime.push({"b": [{"k": 1, "at": at}]}).to_pylist()
    assert str(row["y"]) == value
